//! The settings of the observer: one file, because there are few.

use super::agent::{LogFormat, LogFragment};
use super::checks;
use super::command::absolute_path;
use super::error::{Problems, SettingsError, SettingsErrors, name_of};
use super::notify::{NotifyFragment, NotifySettings};
use super::recorder::{RecorderFragment, RecorderSettings};
use super::store::{StoreFragment, StoreSettings};
use crate::incidents::IncidentTimes;
use catalog::mistakes;
use schema::names::HostName;
use schema::time::Span;
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Fragment {
    state_directory: Option<PathBuf>,
    store: StoreFragment,
    http: HttpFragment,
    incidents: IncidentsFragment,
    notify: NotifyFragment,
    recorder: RecorderFragment,
    log: LogFragment,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct HttpFragment {
    listen: Option<SocketAddr>,
    names: Vec<HostName>,
    token_file: Option<PathBuf>,
    open_to_local_users: Option<bool>,
    token_digests: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
}

/// Who may look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HttpAccess {
    /// Every user of this machine.
    LocalUsers,
    /// Who shows the token in this file, which is made if it does not exist.
    Token(PathBuf),
    /// Who shows a token whose digest is in this file.
    Digests(PathBuf),
}

/// The files of a server that encrypts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTls {
    /// The certificate and those that lead to its authority, as PEM.
    pub cert: PathBuf,
    /// The key of the certificate, as PEM.
    pub key: PathBuf,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct IncidentsFragment {
    hold_for: Option<Span>,
    clear_for: Option<Span>,
}

/// All settings of an observer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObserverSettings {
    /// The directory of the token and of the open incidents.
    pub state_directory: PathBuf,
    /// The store. What the agent alone uses has its default.
    pub store: StoreSettings,
    /// The address of the HTTP server. Without TLS it is one of the machine itself.
    pub http_listen: SocketAddr,
    /// Names by which clients may ask the server, besides `localhost`.
    pub http_names: Vec<HostName>,
    /// The files of TLS; `None` if the server does not encrypt.
    pub http_tls: Option<ServerTls>,
    /// Who may look.
    pub http_access: HttpAccess,
    /// How long conditions hold before they are incidents.
    pub incident_times: IncidentTimes,
    /// Who hears of incidents.
    pub notify: NotifySettings,
    /// Where the store is recorded; `None` if it is not.
    pub recorder: Option<RecorderSettings>,
    /// The log filter, in the syntax of `EnvFilter` of tracing.
    pub log_level: String,
    /// The format of the log on standard error.
    pub log_format: LogFormat,
}

/// Reads the text of a settings file. `file` is its name, for messages.
///
/// # Errors
/// Returns all mistakes, each with its line.
pub fn read_observer(file: &str, text: &str) -> Result<ObserverSettings, SettingsErrors> {
    let document = mistakes::read::<Fragment>(text);
    let in_file = |mistake| SettingsError::in_file(file, mistake);
    let mut errors: Vec<SettingsError> = document.mistakes.into_iter().map(in_file).collect();
    let Some((fragment, table)) = document.content else { return Err(SettingsErrors(errors)) };
    let mut problems = Problems::new(document.lost_tables);
    let settings = validate(fragment, &mut problems);
    errors.extend(problems.into_found().into_iter().map(|(path, message)| SettingsError {
        file: file.to_owned(),
        line: mistakes::line_of(text, table.get_ref(), &path),
        setting: name_of(&path),
        message,
    }));
    errors.sort_by_key(|error| error.line);
    if errors.is_empty() { Ok(settings) } else { Err(SettingsErrors(errors)) }
}

/// Returns the settings. If there is a problem, they are only good for finding further ones.
fn validate(fragment: Fragment, problems: &mut Problems) -> ObserverSettings {
    let Fragment { state_directory, store, http, incidents, notify, recorder, log } = fragment;
    for (setting, is_given) in
        [("live_lease", store.live_lease.is_some()), ("backstop", store.backstop.is_some())]
    {
        if is_given {
            problems.add(format!("store.{setting}"), "only the agent has this setting");
        }
    }
    let store = store.validate(problems);
    if store.user.as_ref().is_some_and(|user| !user.contains(':')) && store.password_file.is_none() {
        problems.add("store.user", "the setting `password_file` is missing");
    }
    if let Some(path) = &state_directory {
        problems.check("state_directory", absolute_path(path));
    }
    let state_directory = state_directory.unwrap_or_else(|| "/var/lib/orchestrate-observer".into());
    let default = IncidentTimes::default();
    let incident_times = IncidentTimes {
        hold_for: incidents.hold_for.map_or(default.hold_for, |span| span.0),
        clear_for: incidents.clear_for.map_or(default.clear_for, |span| span.0),
    };
    if let Some(level) = &log.level {
        problems.check("log.level", checks::log_level(level));
    }
    let (http_listen, http_tls) = http.server(problems);
    ObserverSettings {
        store,
        http_listen,
        http_tls,
        http_access: http.access(&state_directory),
        http_names: http.names,
        state_directory,
        incident_times,
        notify: notify.validate(problems),
        recorder: recorder.validate(problems),
        log_level: log.level.unwrap_or_else(|| "info".into()),
        log_format: log.format.unwrap_or_default(),
    }
}

impl HttpFragment {
    /// Returns where the server listens, and its files of TLS.
    fn server(&self, problems: &mut Problems) -> (SocketAddr, Option<ServerTls>) {
        for (setting, path) in [
            ("token_file", &self.token_file),
            ("token_digests", &self.token_digests),
            ("cert", &self.cert),
            ("key", &self.key),
        ] {
            if let Some(path) = path {
                problems.check(format!("http.{setting}"), absolute_path(path));
            }
        }
        let tls = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => Some(ServerTls { cert: cert.clone(), key: key.clone() }),
            (None, None) => None,
            (Some(_), None) => {
                problems.add("http.cert", "the setting `key` is missing");
                None
            }
            (None, Some(_)) => {
                problems.add("http.key", "the setting `cert` is missing");
                None
            }
        };
        let listen = self.listen.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 8590)));
        if !listen.ip().is_loopback() && (tls.is_none() || self.token_digests.is_none()) {
            let message = "must be an address of the machine itself, as in \"127.0.0.1:8590\"; another one needs \
                           `cert`, `key` and `token_digests`";
            problems.add("http.listen", message);
        }
        if self.token_digests.is_some() {
            let others = [("token_file", self.token_file.is_some()), ("open_to_local_users", self.is_open())];
            for (setting, _) in others.iter().filter(|(_, is_given)| *is_given) {
                problems.add(format!("http.{setting}"), "`token_digests` says already who may look");
            }
        }
        (listen, tls)
    }

    fn is_open(&self) -> bool {
        self.open_to_local_users.unwrap_or(false)
    }

    fn access(&self, state_directory: &Path) -> HttpAccess {
        match &self.token_digests {
            Some(file) => HttpAccess::Digests(file.clone()),
            None if self.is_open() => HttpAccess::LocalUsers,
            None => {
                HttpAccess::Token(self.token_file.clone().unwrap_or_else(|| state_directory.join("token")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::recorder::{RECORDING_KEEP, RECORDING_MAX_MIB};
    use super::*;
    use schema::time::format_duration;
    use std::collections::{BTreeMap, BTreeSet};

    fn check(text: &str, expected: &[&str]) {
        let errors = read_observer("o.toml", text).err().map_or(Vec::new(), |SettingsErrors(errors)| errors);
        assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), expected, "{text}");
    }

    /// Returns the names that the program accepts in a table.
    fn accepted(table: &str) -> BTreeSet<String> {
        let error =
            toml::from_str::<Fragment>(&format!("[{table}]\nzzz = 1\n")).expect_err("an unknown setting");
        let (_, names) = error.message().split_once("expected").expect("the accepted names");
        names.split('`').skip(1).step_by(2).map(|name| format!("{table}.{name}")).collect()
    }

    #[test]
    fn every_setting_is_documented_with_its_default() {
        let text = include_str!("../../../../docs/observer.md");
        let section = text.split("## Settings").nth(1).expect("a section");
        let rows = section.lines().skip_while(|line| !line.starts_with("| setting")).skip(2);
        let rows = rows.take_while(|line| line.starts_with('|'));
        let cells = rows.map(|row| row.trim_matches('|').split(" | ").map(|c| c.trim().trim_matches('`')));
        let documented: BTreeMap<&str, &str> =
            cells.map(|mut row| (row.next().expect("a name"), row.nth(1).expect("a default"))).collect();
        let names = documented.keys().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let mut accepted_names = BTreeSet::new();
        for table in ["http", "log", "incidents", "recorder", "recorder.upload"] {
            accepted_names.extend(accepted(table));
        }
        accepted_names.insert("state_directory".into());
        for table in ["notify", "notify.alertmanagers.NAME", "notify.webhooks.NAME", "notify.commands.NAME"] {
            accepted_names.extend(accepted(table));
        }
        let tables = ["notify.alertmanagers", "notify.webhooks", "notify.commands", "recorder.upload"];
        accepted_names.retain(|name| !tables.contains(&name.as_str()));
        assert_eq!(names, accepted_names);
        let default = read_observer("o.toml", "").expect("the defaults");
        let HttpAccess::Token(token) = &default.http_access else { panic!("{:?}", default.http_access) };
        for (name, value) in [
            ("http.listen", default.http_listen.to_string()),
            ("http.names", if default.http_names.is_empty() { "none".into() } else { String::new() }),
            ("http.token_file", token.display().to_string()),
            ("http.open_to_local_users", "false".into()),
            ("http.token_digests", "none".into()),
            ("http.cert", if default.http_tls.is_none() { "none".into() } else { String::new() }),
            ("state_directory", default.state_directory.display().to_string()),
            ("incidents.hold_for", format_duration(default.incident_times.hold_for)),
            ("incidents.clear_for", format_duration(default.incident_times.clear_for)),
            ("notify.cacert", default.notify.cacert.map_or("that of the system".into(), |_| String::new())),
            ("recorder.directory", default.recorder.map_or("none".into(), |_| String::new())),
            ("recorder.keep", format_duration(RECORDING_KEEP)),
            ("recorder.max_mib", RECORDING_MAX_MIB.to_string()),
            ("log.level", default.log_level),
            ("log.format", format!("{:?}", default.log_format).to_lowercase()),
        ] {
            assert_eq!(documented[name], value, "{name}");
        }
    }

    #[test]
    fn every_mistake_of_the_file_is_named_with_its_line() {
        check("", &[]);
        check(
            "[store]\nendpoints = [\"http://a:1\"]\n[http]\nlisten = \"[::1]:1\"\nnames = [\"ops\"]\n",
            &[],
        );
        check(
            "[store]\nlive_lease = \"9s\"\nuser = \"viewer\"\nnamespace = \"x\"\n[http]\nlisten = \"10.0.0.1:80\"\n\
             token_file = \"token\"\ntoken_fil = 1\n[log]\nlevel = \"loud\"\n",
            &[
                "o.toml:2: store.live_lease: only the agent has this setting",
                "o.toml:3: store.user: the setting `password_file` is missing",
                "o.toml:4: store.namespace: must be empty or begin with a slash, without a slash at its end, not \
                 \"x\"",
                "o.toml:6: http.listen: must be an address of the machine itself, as in \"127.0.0.1:8590\"; \
                 another one needs `cert`, `key` and `token_digests`",
                "o.toml:7: http.token_file: \"token\" must be an absolute path",
                "o.toml:8: unknown setting `token_fil`; did you mean `token_file`?",
                "o.toml:10: log.level: must be \"error\", \"warn\", \"info\", \"debug\" or \"trace\", or a filter \
                 such as \"info,agent=debug\", not \"loud\"",
            ],
        );
        let tls = "cert = \"/c\"\nkey = \"/k\"\n";
        check(&format!("[http]\nlisten = \"0.0.0.0:1\"\n{tls}token_digests = \"/d\"\n"), &[]);
        check(
            &format!("[http]\n{tls}token_digests = \"d\"\ntoken_file = \"/t\"\nopen_to_local_users = true\n"),
            &[
                "o.toml:4: http.token_digests: \"d\" must be an absolute path",
                "o.toml:5: http.token_file: `token_digests` says already who may look",
                "o.toml:6: http.open_to_local_users: `token_digests` says already who may look",
            ],
        );
        let open = format!("[http]\nlisten = \"10.0.0.1:80\"\n{tls}open_to_local_users = true\n");
        check(
            &open,
            &[
                "o.toml:2: http.listen: must be an address of the machine itself, as in \"127.0.0.1:8590\"; another \
               one needs `cert`, `key` and `token_digests`",
            ],
        );
        check(
            "[recorder]\nkeep = \"1d\"\n",
            &["o.toml:2: recorder.keep: the setting `directory` is missing"],
        );
        check(
            "[recorder]\ndirectory = \"d\"\nkeep = \"0\"\n",
            &[
                "o.toml:2: recorder.directory: \"d\" must be an absolute path",
                "o.toml:3: recorder.keep: must be more than 0",
            ],
        );
        check(
            "[recorder]\ndirectory = \"/d\"\nmax_mib = 31\n",
            &["o.toml:3: recorder.max_mib: must be at least 32: one segment takes 8 or more"],
        );
        check(
            "[recorder]\ndirectory = \"/d\"\n[recorder.upload]\nto = \"s3://b\"\ncacert = \"c\"\n",
            &[
                "o.toml:4: recorder.upload.to: a bucket needs the settings `endpoint` and `credentials`",
                "o.toml:5: recorder.upload.cacert: \"c\" must be an absolute path",
            ],
        );
        check(
            "[recorder]\n[recorder.upload]\nto = \"file:///d\"\n",
            &["o.toml:2: recorder.upload: the setting `directory` is missing"],
        );
        check(
            "[recorder]\ndirectory = \"/d\"\n[recorder.upload]\nregion = \"r\"\n",
            &["o.toml:3: recorder.upload: the setting `to` is missing"],
        );
        check("[http]\ncert = \"/c\"\n", &["o.toml:2: http.cert: the setting `key` is missing"]);
        check("[http]\nkey = \"/k\"\n", &["o.toml:2: http.key: the setting `cert` is missing"]);
        check(
            "[notify]\nheartbeat_url = \"http://a.example/secret\"\n[notify.webhooks.chat]\nurl = \"x\"\nsecret_files = []\n\
             min_severity = \"loud\"\n[notify.webhooks.\"a b\"]\nurl = \"https://a.example/\"\n\
             secret_files = [\"key\"]\n[notify.commands.pager]\nrun = [\"page\"]\ntimeout = \"0\"\n",
            &[
                "o.toml:2: notify.heartbeat_url: must begin with https://, because what is sent to another machine \
                 must be encrypted",
                "o.toml:4: notify.webhooks.chat.url: must be a URL that begins with https://, or with http:// and an \
                 address of this machine",
                "o.toml:5: notify.webhooks.chat.secret_files: name the file of one key, or of two while the key \
                 changes",
                "o.toml:6: notify.webhooks.chat.min_severity: must be \"info\", \"ticket\" or \"page\", not \"loud\"",
                "o.toml:7: notify.webhooks.a b: the name \"a b\" must be of letters, digits, - and _, at most 64",
                "o.toml:9: notify.webhooks.a b.secret_files: must be absolute paths of files",
                "o.toml:11: notify.commands.pager.run: the program \"page\" must be an absolute path",
                "o.toml:12: notify.commands.pager.timeout: must be more than 0",
            ],
        );
    }
}
