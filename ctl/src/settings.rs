//! The settings of one invocation. Options win over the environment, `ORCHESTRATE_*` over
//! `ETCDCTL_*`, and both over defaults. The environment is read here and nowhere else.

use crate::author::Author;
use crate::endpoints;
use crate::exit::Failure;
use crate::options::GlobalOptions;
use crate::output::Format;
use crate::past::{NamedRecording, PastQuestion, S3Settings};
use anyhow::anyhow;
use etcd_session::{Secret, SessionConfig, TlsFiles};
use schema::names::HostName;
use schema::time::parse_duration;
use std::path::PathBuf;
use std::time::Duration;

/// Directory in which the agent and the command keep what they know about this host.
pub(crate) const STATE_DIRECTORY: &str = "/var/lib/orchestrate";

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// All environment variables that are read.
#[cfg(test)]
pub(crate) const VARIABLES: [&str; 36] = [
    "ORCHESTRATE_BY",
    "ORCHESTRATE_STEP_HOST",
    "ORCHESTRATE_SOCKET",
    "ORCHESTRATE_HIERA_FILE",
    "ORCHESTRATE_PROFILE_LIST",
    "ORCHESTRATE_UPGRADE_FILE",
    "ORCHESTRATE_ENDPOINTS",
    "ORCHESTRATE_CACERT",
    "ORCHESTRATE_CERT",
    "ORCHESTRATE_KEY",
    "ORCHESTRATE_USER",
    "ORCHESTRATE_PASSWORD",
    "ORCHESTRATE_NAMESPACE",
    "ORCHESTRATE_TIMEOUT",
    "ORCHESTRATE_LOCAL_VERSION_FILE",
    "ORCHESTRATE_STATE_DIR",
    "ORCHESTRATE_FLAVOUR",
    "ORCHESTRATE_HOSTNAME",
    "ETCDCTL_ENDPOINTS",
    "ETCDCTL_CACERT",
    "ETCDCTL_CERT",
    "ETCDCTL_KEY",
    "ETCDCTL_USER",
    "ETCDCTL_PASSWORD",
    "ORCHESTRATE_DIAL_TIMEOUT",
    "ORCHESTRATE_RECORDING",
    "ORCHESTRATE_BUNDLES",
    "ORCHESTRATE_S3_ENDPOINT",
    "ORCHESTRATE_S3_REGION",
    "ORCHESTRATE_S3_CREDENTIALS",
    "ORCHESTRATE_S3_CACERT",
    "XDG_CACHE_HOME",
    "HOME",
    "SUDO_USER",
    "LOGNAME",
    "USER",
];

/// The generation of the original tool whose output is wanted, where the generations differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flavour {
    Newest,
    /// The first generation, which kept its data in etcd v2.
    Etcd,
}

/// The settings of one invocation.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// How to reach the store.
    pub(crate) session: SessionConfig,
    /// The moment of the past that the question is about; `None` for the present.
    pub(crate) past: Option<PastQuestion>,
    /// The recording that is named.
    pub(crate) recording: Option<NamedRecording>,
    /// How object stores are reached.
    pub(crate) s3: S3Settings,
    /// Object store of the bundles, as a URL.
    pub(crate) bundles: Option<String>,
    /// True if an option or the environment says where the store is, even if that is the default
    /// endpoint.
    pub(crate) endpoints_given: bool,
    /// True if `--host` says where the store is. It names the store, but may have been meant to name a host of the fleet.
    pub(crate) store_host_given: bool,
    /// Time limit of the whole command.
    pub(crate) timeout: Duration,
    /// Format of the results.
    pub(crate) format: Format,
    pub(crate) flavour: Flavour,
    /// File with the installed version.
    pub(crate) local_version_file: PathBuf,
    /// Socket on which the agent of this host takes results of checks.
    pub(crate) agent_socket: PathBuf,
    /// File that Hiera reads.
    pub(crate) hiera_file: PathBuf,
    /// File with the list of this host's roles.
    pub(crate) profile_list: PathBuf,
    /// File with the rules of `rolling_upgrade`.
    pub(crate) upgrade_file: PathBuf,
    /// Directory in which this host remembers versions, leases and stores.
    pub(crate) state_directory: PathBuf,
    /// Directory of the user in which lists for completion are kept.
    pub(crate) cache_directory: Option<PathBuf>,
    /// Name of this host, from the environment or the kernel; not validated yet.
    pub(crate) host_name: String,
    /// Who acts, for events.
    pub(crate) author: Author,
}

impl Settings {
    /// Reads options and environment. An empty variable counts as not set.
    pub(crate) fn resolve(
        options: &GlobalOptions,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, Failure> {
        let get = |name: &str| environment(name).filter(|value| !value.is_empty());
        // The options that name endpoints come first, then those of the original tool, then the environment.
        let named = endpoints::named(options);
        let store_host_given = named.is_none() && endpoints::host(options).is_some();
        let named = named.or_else(|| endpoints::by_host_and_port(options));
        let endpoints = named.or_else(|| either(&get, "ENDPOINTS").map(|text| endpoints::list(&text)));
        let endpoints_given = endpoints.is_some();
        let mut session = SessionConfig::new(endpoints.unwrap_or_else(endpoints::by_default));
        let path = |flag: &Option<PathBuf>, name: &str| {
            flag.clone().or_else(|| either(&get, name).map(PathBuf::from))
        };
        session.tls = TlsFiles {
            cacert: path(&options.cacert, "CACERT"),
            cert: path(&options.cert, "CERT"),
            key: path(&options.key, "KEY"),
        };
        session.user = user(options, &get)?;
        session.namespace =
            options.namespace.clone().or_else(|| get("ORCHESTRATE_NAMESPACE")).unwrap_or_default();
        if let Some(limit) =
            duration("--dial-timeout", options.dial_timeout.as_deref(), "ORCHESTRATE_DIAL_TIMEOUT", &get)?
        {
            session.dial_timeout = limit;
        }
        session.waits_for_repair = false;
        session.check()?;
        let s3 = S3Settings::read(options, &get);
        let recording = NamedRecording::read(options.recording.as_ref(), get("ORCHESTRATE_RECORDING"), &s3);
        let timeout = duration("--timeout", options.timeout.as_deref(), "ORCHESTRATE_TIMEOUT", &get)?;
        Ok(Self {
            session,
            past: PastQuestion::read(recording.as_ref(), options.at.as_ref(), options.now.as_deref())?,
            recording,
            s3,
            bundles: get("ORCHESTRATE_BUNDLES"),
            endpoints_given,
            store_host_given,
            timeout: timeout.unwrap_or(DEFAULT_TIMEOUT),
            format: options.output,
            flavour: match get("ORCHESTRATE_FLAVOUR").as_deref() {
                None | Some("consul") => Flavour::Newest,
                Some("etcd") => Flavour::Etcd,
                Some(other) => {
                    let shown = schema::names::quoted(other);
                    return Err(Failure::usage(anyhow!(
                        "ORCHESTRATE_FLAVOUR is {shown}: it can be etcd, or consul"
                    )));
                }
            },
            agent_socket: get("ORCHESTRATE_SOCKET")
                .map_or_else(|| "/run/orchestrate/agent.sock".into(), PathBuf::from),
            hiera_file: get("ORCHESTRATE_HIERA_FILE")
                .map_or_else(|| "/etc/puppet/hiera/data/services.yaml".into(), PathBuf::from),
            profile_list: get("ORCHESTRATE_PROFILE_LIST")
                .map_or_else(|| "/var/lib/puppet/profile_list.txt".into(), PathBuf::from),
            upgrade_file: get("ORCHESTRATE_UPGRADE_FILE")
                .map_or_else(|| "/etc/jiocloud-upgrade.json".into(), PathBuf::from),
            local_version_file: get("ORCHESTRATE_LOCAL_VERSION_FILE")
                .unwrap_or("/etc/current_version".into())
                .into(),
            state_directory: get("ORCHESTRATE_STATE_DIR").unwrap_or(STATE_DIRECTORY.into()).into(),
            cache_directory: get("XDG_CACHE_HOME")
                .map(PathBuf::from)
                .or_else(|| get("HOME").map(|home| PathBuf::from(home).join(".cache")))
                .filter(|path| path.is_absolute()),
            host_name: get("ORCHESTRATE_HOSTNAME")
                .unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned())
                .to_ascii_lowercase(),
            author: Author::resolve(options.by.as_deref(), &get)?,
        })
    }

    /// Returns the host that a verb is about: the given one, or this host.
    pub(crate) fn host(&self, given: Option<&str>) -> Result<HostName, Failure> {
        match given {
            Some(name) => HostName::folded(name).map_err(Failure::usage),
            None => HostName::new(self.host_name.as_str())
                .map_err(|e| Failure::usage(anyhow!("{e}; set ORCHESTRATE_HOSTNAME"))),
        }
    }
}

fn either(get: &impl Fn(&str) -> Option<String>, name: &str) -> Option<String> {
    get(&format!("ORCHESTRATE_{name}")).or_else(|| get(&format!("ETCDCTL_{name}")))
}

fn duration(
    flag_name: &str,
    flag: Option<&str>,
    variable: &str,
    get: &impl Fn(&str) -> Option<String>,
) -> Result<Option<Duration>, Failure> {
    let from_environment = || get(variable).map(|text| (variable, text));
    let Some((name, text)) = flag.map(|text| (flag_name, text.to_owned())).or_else(from_environment) else {
        return Ok(None);
    };
    let limit = parse_duration(&text).map_err(|e| Failure::usage(anyhow!(e).context(name.to_owned())))?;
    if limit.is_zero() {
        return Err(Failure::usage(anyhow!("{name} must be greater than 0")));
    }
    Ok(Some(limit))
}

/// Returns user and password. If the user contains a password, another password replaces it only if
/// its source has the same or a higher priority: a password from the environment does not replace
/// the one in `--user NAME:PASSWORD`.
fn user(
    options: &GlobalOptions,
    get: &impl Fn(&str) -> Option<String>,
) -> Result<Option<(String, Secret)>, Failure> {
    let users = [options.user.clone(), get("ORCHESTRATE_USER"), get("ETCDCTL_USER")];
    let passwords = [options.password.clone(), get("ORCHESTRATE_PASSWORD"), get("ETCDCTL_PASSWORD")];
    let Some((origin, user)) = users.into_iter().enumerate().find_map(|(i, user)| Some((i, user?))) else {
        return Ok(None);
    };
    let usable = if user.contains(':') { origin + 1 } else { passwords.len() };
    let password = passwords.into_iter().take(usable).flatten().next();
    Ok(Some(SessionConfig::parse_user(&user, password.map(Secret::new))?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use etcd_session::EndpointSource;

    fn resolve(arguments: &str, environment: &[(&str, &str)]) -> Result<Settings, Failure> {
        let words = ["orchestrate"].into_iter().chain(arguments.split_whitespace()).chain(["ping"]);
        let cli = crate::cli::parse(words.map(Into::into).collect()).unwrap();
        Settings::resolve(&cli.global, |name| {
            assert!(VARIABLES.contains(&name), "{name} is not in the list of variables");
            environment.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
        })
    }

    fn check_endpoints(arguments: &str, environment: &[(&str, &str)], expected: &[&str]) {
        let expected = EndpointSource::List(expected.iter().map(|e| (*e).to_owned()).collect());
        assert_eq!(
            resolve(arguments, environment).unwrap().session.endpoints,
            expected,
            "{arguments} {environment:?}"
        );
    }

    #[test]
    fn flags_win_over_the_environment_and_that_over_defaults() {
        let both = [("ORCHESTRATE_ENDPOINTS", "o1:1, o2:2"), ("ETCDCTL_ENDPOINTS", "e:1")];
        check_endpoints("", &[], &["127.0.0.1:2379"]);
        check_endpoints("", &both, &["o1:1", "o2:2"]);
        check_endpoints("", &both[1..], &["e:1"]);
        check_endpoints("", &[("ORCHESTRATE_ENDPOINTS", "")], &["127.0.0.1:2379"]);
        check_endpoints("--endpoints a:1,b:2", &both, &["a:1", "b:2"]);
        check_endpoints("--host=h", &both, &["h:2379"]);
        check_endpoints("--host h --port 4001", &both, &["h:4001"]);
        check_endpoints("--port 4001", &both, &["127.0.0.1:4001"]);
        check_endpoints("--host ::1", &[], &["[::1]:2379"]);
        check_endpoints("--discovery_token=", &both, &["o1:1", "o2:2"]);
    }

    #[test]
    fn a_host_names_the_store_unless_other_options_do() {
        let check = |arguments: &str, expected: bool| {
            let settings = resolve(arguments, &[("ORCHESTRATE_ENDPOINTS", "o:1")]).unwrap();
            assert_eq!(settings.store_host_given, expected, "{arguments}");
        };
        check("", false);
        check("--port 4001", false);
        check("--host=", false);
        check("--host web-1", true);
        check("--host 10.0.0.1 --endpoints 10.0.0.12:2379", false);
    }

    #[test]
    fn who_names_the_default_place_has_said_where_the_store_is() {
        let check = |arguments: &str, environment: &[(&str, &str)], expected: bool| {
            let settings = resolve(arguments, environment).unwrap();
            assert_eq!(settings.endpoints_given, expected, "{arguments} {environment:?}");
        };
        check("", &[], false);
        check("", &[("ETCDCTL_ENDPOINTS", "")], false);
        check("--discovery_token=", &[], false);
        check("--endpoints 127.0.0.1:2379", &[], true);
        check("--host 127.0.0.1", &[], true);
        check("--port 2379", &[], true);
        check("", &[("ORCHESTRATE_ENDPOINTS", "127.0.0.1:2379")], true);
        check("", &[("ETCDCTL_ENDPOINTS", "127.0.0.1:2379")], true);
    }

    #[test]
    fn a_discovery_token_is_looked_up_at_the_public_service() {
        let settings = resolve("--discovery_token T --port 4001", &[]).unwrap();
        let expected = EndpointSource::Discovery { url: "https://discovery.etcd.io/T".into(), port: 4001 };
        assert_eq!(settings.session.endpoints, expected);
    }

    #[test]
    fn a_password_goes_with_its_user() {
        let check = |arguments: &str, environment: &[(&str, &str)], expected: &str| {
            let expected = SessionConfig::parse_user(expected, None).unwrap();
            assert_eq!(resolve(arguments, environment).unwrap().session.user, Some(expected), "{arguments}");
        };
        check("--user a:b", &[("ETCDCTL_PASSWORD", "c")], "a:b");
        check("--user a", &[("ETCDCTL_PASSWORD", "c")], "a:c");
        check("--user a --password d", &[("ORCHESTRATE_PASSWORD", "c")], "a:d");
        check("", &[("ETCDCTL_USER", "a"), ("ETCDCTL_PASSWORD", "c")], "a:c");
        assert_eq!(resolve("--user a", &[]).unwrap_err().exit, crate::Exit::Usage);
        assert_eq!(resolve("", &[]).unwrap().session.user, None);
    }

    #[test]
    fn a_setting_that_cannot_be_used_is_wrong_usage() {
        let check = |arguments: &str, environment: &[(&str, &str)], part: &str| {
            let failure = resolve(arguments, environment).unwrap_err();
            assert_eq!(failure.exit, crate::Exit::Usage);
            assert!(format!("{:#}", failure.error).contains(part), "{:#}", failure.error);
        };
        check("--timeout 10", &[], "--timeout: \"10\" is not a duration");
        check("", &[("ORCHESTRATE_TIMEOUT", "soon")], "ORCHESTRATE_TIMEOUT: ");
        check("--timeout 0", &[], "greater than 0");
        check("--cert c", &[], "--key is missing");
        check("", &[("ORCHESTRATE_NAMESPACE", "site")], "begin with a slash");
        check("", &[("ORCHESTRATE_FLAVOUR", "vanilla")], "ORCHESTRATE_FLAVOUR");
        assert_eq!(resolve("--command-timeout 1m30s", &[]).unwrap().timeout, Duration::from_secs(90));
    }
}
