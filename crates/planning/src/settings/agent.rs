//! The settings of the agent, validated.
//!
//! This file is long because it lists every setting twice, as written in a file and as validated.

use crate::policy::{Leftovers, Policy, Step, Steps};
use crate::settings::command::{absolute, check_placeholders};
use crate::settings::error::{SettingsError, settings_error};
use crate::settings::services::{CatalogSettings, DnsSettings, ServicesSettings, TemplateSettings};
use crate::settings::{merge, services};
use schema::names::{HostName, Role, StepName, Version};
use schema::records::Driver;
use schema::time::{Backoff, Span};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Fragment {
    host: Option<HostName>,
    role: Option<Role>,
    group: Option<Role>,
    labels: BTreeMap<String, String>,
    driver: Option<Driver>,
    state_directory: Option<PathBuf>,
    version_file: Option<PathBuf>,
    facts_file: Option<PathBuf>,
    environment: BTreeMap<String, String>,
    store: StoreFragment,
    http: HttpFragment,
    validation: ValidationFragment,
    attempts: AttemptsFragment,
    log: LogFragment,
    services: services::ServicesFragment,
    catalog: services::CatalogFragment,
    dns: services::DnsFragment,
    requires: Vec<services::RequiresFragment>,
    template: Vec<services::TemplateFragment>,
    identity: IdentityFragment,
    prefetch: Vec<StepFragment>,
    apply: Vec<StepFragment>,
    converge: Vec<StepFragment>,
    validate: Vec<StepFragment>,
    on_suspect: Vec<StepFragment>,
}

/// Number of failed attempts after which a host is suspect, unless its settings say otherwise.
pub(crate) const SUSPECT_AFTER: u32 = 3;
/// The bounds of the delay after a failed attempt, in seconds, unless the settings of the host say otherwise.
pub(crate) const BACKOFF_SECONDS: [u64; 2] = [30, 1800];

/// Shortest live lease: etcd grants no shorter lease.
const LIVE_LEASE_MIN: Duration = Duration::from_secs(2);

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct StoreFragment {
    endpoints: Option<Vec<String>>,
    endpoints_file: Option<PathBuf>,
    discovery_srv: Option<String>,
    discovery_url: Option<String>,
    discovery_port: Option<u16>,
    cacert: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    user: Option<String>,
    password_file: Option<PathBuf>,
    namespace: Option<String>,
    backstop: Option<Span>,
    live_lease: Option<Span>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct HttpFragment {
    listen: Option<SocketAddr>,
    socket: Option<PathBuf>,
    socket_group: Option<String>,
    take_check_results: Option<bool>,
    fleet_lock: Option<bool>,
}

/// The format of the log on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LogFragment {
    level: Option<String>,
    format: Option<LogFormat>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct IdentityFragment {
    machine_id_file: Option<PathBuf>,
    boot_id_file: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ValidationFragment {
    directory: Option<PathBuf>,
    every: Option<Span>,
    timeout: Option<Span>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct AttemptsFragment {
    spread_window: Option<Span>,
    not_yet_retry: Option<Span>,
    backoff_min: Option<Span>,
    backoff_max: Option<Span>,
    suspect_after: Option<u32>,
    suspect_retry_on_change: Option<Span>,
    suspect_retry_every: Option<Span>,
    reapply_per_day: Option<u32>,
    reapply_after: Option<Span>,
    converge_at_most_every: Option<Span>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StepFragment {
    name: StepName,
    command: Vec<String>,
    timeout: Option<Span>,
    grace: Option<Span>,
    done_codes: Option<Vec<i32>>,
    not_yet_codes: Option<Vec<i32>>,
    leftovers: Option<Leftovers>,
    /// Known here so that a fragment can contain it; used and removed when fragments are merged.
    #[serde(default, rename = "replace")]
    _replace: bool,
}

/// Where the store is and how to reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreSettings {
    /// The endpoints, if they are listed.
    pub endpoints: Option<Vec<String>>,
    /// A file with one endpoint per line.
    pub endpoints_file: Option<PathBuf>,
    /// A DNS domain with SRV records of the store.
    pub discovery_srv: Option<String>,
    /// A discovery URL with its token.
    pub discovery_url: Option<String>,
    /// The client port of the hosts that the discovery URL finds.
    pub discovery_port: u16,
    /// File with the authorities that may sign the certificate of the store.
    pub cacert: Option<PathBuf>,
    /// File with the client certificate.
    pub cert: Option<PathBuf>,
    /// File with the key of the client certificate.
    pub key: Option<PathBuf>,
    /// The user name at the store.
    pub user: Option<String>,
    /// File with the password of the user.
    pub password_file: Option<PathBuf>,
    /// Prefix of every key.
    pub namespace: String,
    /// Mean time between two linearizable reads that check the mirror.
    pub backstop: Duration,
    /// How long the claim and the listing of a host remain when its agent is gone, in whole
    /// seconds. The lease is renewed three times within this time.
    pub live_lease: Duration,
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self {
            endpoints: None,
            endpoints_file: None,
            discovery_srv: None,
            discovery_url: None,
            discovery_port: 2379,
            cacert: None,
            cert: None,
            key: None,
            user: None,
            password_file: None,
            namespace: String::new(),
            backstop: Duration::from_secs(30),
            live_lease: Duration::from_secs(30),
        }
    }
}

/// All settings of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The name of the host; `None` for the machine's own name.
    pub host: Option<HostName>,
    /// The role of the host.
    pub role: Option<Role>,
    /// The group of the host.
    pub group: Option<Role>,
    /// Free labels for the roster.
    pub labels: BTreeMap<String, String>,
    /// The directory of the agent's journal.
    pub state_directory: PathBuf,
    /// The file that tells the installed version to others on the machine.
    pub version_file: PathBuf,
    /// The file that Facter reads as an external fact, if one is written.
    pub facts_file: Option<PathBuf>,
    /// Variables that are added to the environment of every step.
    pub environment: BTreeMap<String, String>,
    /// The store.
    pub store: StoreSettings,
    /// The address of the local HTTP server.
    pub http_listen: SocketAddr,
    /// The Unix socket that takes check results, and the group that may use it.
    pub socket: Option<(PathBuf, Option<String>)>,
    /// True if check results are also taken over HTTP on TCP.
    pub http_takes_results: bool,
    /// True if the server on TCP speaks FleetLock.
    pub http_fleet_lock: bool,
    /// The services that the host publishes.
    pub services: ServicesSettings,
    /// How the agent follows the catalog.
    pub catalog: CatalogSettings,
    /// The DNS server.
    pub dns: DnsSettings,
    /// The files that are rendered from the catalog.
    pub templates: Vec<TemplateSettings>,
    /// The file with the identity of the machine. In containers it may be elsewhere.
    pub machine_id_file: PathBuf,
    /// The file with the identity of the boot.
    pub boot_id_file: PathBuf,
    /// The log filter, in the syntax of `EnvFilter` of tracing.
    pub log_level: String,
    /// The format of the log on standard error.
    pub log_format: LogFormat,
    /// The directory of executables that validate.
    pub validation_directory: Option<PathBuf>,
    /// Time limit of each entry of the validation directory.
    pub validation_timeout: Duration,
    /// The configuration that decisions depend on.
    pub policy: Policy,
}

/// Reads fragments in the given order; each is a file name and its text.
///
/// # Errors
/// Returns the first mistake in a fragment or in the merged settings.
pub fn read(fragments: &[(String, String)]) -> Result<Settings, SettingsError> {
    let files: Vec<&str> = fragments.iter().map(|(file, _)| file.as_str()).collect();
    let whole = |message: String| SettingsError { file: files.join(", "), line: None, message };
    let merged = merged(fragments)?.into_table();
    let fragment: Fragment = merged.try_into().map_err(|e: toml::de::Error| whole(e.message().to_owned()))?;
    validate(fragment).map_err(whole)
}

/// Returns the merged fragments as TOML, with the file and line of each value. Values in
/// `environment` that may be secrets are hidden.
///
/// # Errors
/// Returns the same errors as [`read`].
pub fn show(fragments: &[(String, String)]) -> Result<String, SettingsError> {
    read(fragments)?;
    merged(fragments).map(|tree| tree.show())
}

fn merged(fragments: &[(String, String)]) -> Result<merge::Tree, SettingsError> {
    let mut merged = merge::Tree::default();
    for (file, text) in fragments {
        // Each fragment is parsed alone first, so that a mistake is reported with its own file and
        // line.
        toml::from_str::<Fragment>(text).map_err(|e| settings_error(file, text, &e))?;
        merged.merge(merge::Tree::read(file, text)?)?;
    }
    Ok(merged)
}

fn validate(fragment: Fragment) -> Result<Settings, String> {
    let store = store(fragment.store)?;
    let steps = Steps {
        prefetch: steps("prefetch", fragment.prefetch)?,
        apply: steps("apply", fragment.apply)?,
        converge: steps("converge", fragment.converge)?,
        validate: steps("validate", fragment.validate)?,
        on_suspect: steps("on_suspect", fragment.on_suspect)?,
    };
    let span =
        |given: Option<Span>, default_seconds| given.map_or(Duration::from_secs(default_seconds), |s| s.0);
    let attempts = fragment.attempts;
    let validate_every = span(fragment.validation.every, 60);
    if validate_every < Duration::from_millis(100) {
        return Err("validation.every must be at least 100ms".into());
    }
    let suspect_after = attempts.suspect_after.unwrap_or(SUSPECT_AFTER);
    if suspect_after == 0 {
        return Err("attempts.suspect_after must be at least 1".into());
    }
    let paths = [&fragment.state_directory, &fragment.version_file, &fragment.facts_file];
    if let Some(relative) = paths.into_iter().flatten().find(|path| !path.is_absolute()) {
        return Err(format!("{} must be an absolute path", relative.display()));
    }
    let requires = services::requires(fragment.requires, &steps)?;
    let templates = services::templates(fragment.template)?;
    let services = services::services(fragment.services)?;
    let dns = services::dns(fragment.dns)?;
    let catalog = services::catalog(fragment.catalog)?;
    if let Some(name) = fragment.environment.keys().find(|n| n.is_empty() || n.contains(['=', '\0'])) {
        return Err(format!("environment: {name:?} is not the name of a variable"));
    }
    Ok(Settings {
        host: fragment.host,
        role: fragment.role,
        group: fragment.group,
        labels: fragment.labels,
        state_directory: fragment.state_directory.unwrap_or_else(|| "/var/lib/orchestrate".into()),
        version_file: fragment.version_file.unwrap_or_else(|| "/etc/current_version".into()),
        facts_file: fragment.facts_file,
        environment: fragment.environment,
        store,
        http_listen: fragment.http.listen.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 8580))),
        socket: fragment.http.socket.map(|path| (path, fragment.http.socket_group)),
        http_takes_results: fragment.http.take_check_results.unwrap_or(false),
        http_fleet_lock: fragment.http.fleet_lock.unwrap_or(false),
        services,
        catalog,
        dns,
        templates,
        machine_id_file: fragment.identity.machine_id_file.unwrap_or_else(|| "/etc/machine-id".into()),
        boot_id_file: fragment
            .identity
            .boot_id_file
            .unwrap_or_else(|| "/proc/sys/kernel/random/boot_id".into()),
        log_level: fragment.log.level.unwrap_or_else(|| "info".into()),
        log_format: fragment.log.format.unwrap_or_default(),
        validation_directory: fragment.validation.directory,
        validation_timeout: span(fragment.validation.timeout, 60),
        policy: Policy {
            driver: fragment.driver.unwrap_or_default(),
            steps,
            requires,
            converge_at_most_every: span(attempts.converge_at_most_every, 10),
            validate_every,
            not_yet_retry: span(attempts.not_yet_retry, 15).max(Duration::from_millis(100)),
            attempt_backoff: Backoff::new(
                span(attempts.backoff_min, BACKOFF_SECONDS[0]),
                span(attempts.backoff_max, BACKOFF_SECONDS[1]),
            ),
            suspect_after,
            suspect_retry_on_change: span(attempts.suspect_retry_on_change, 60),
            suspect_retry_every: span(attempts.suspect_retry_every, 3600),
            reapply_per_day: attempts.reapply_per_day.unwrap_or(1),
            reapply_after: span(attempts.reapply_after, 900),
            spread_window: span(attempts.spread_window, 0),
        },
    })
}

fn store(fragment: StoreFragment) -> Result<StoreSettings, String> {
    let ways = [
        fragment.endpoints.is_some(),
        fragment.endpoints_file.is_some(),
        fragment.discovery_srv.is_some(),
        fragment.discovery_url.is_some(),
    ];
    if ways.iter().filter(|way| **way).count() > 1 {
        return Err(
            "[store]: give one of endpoints, endpoints_file, discovery_srv and discovery_url, not several"
                .into(),
        );
    }
    let default = StoreSettings::default();
    let live_lease = fragment.live_lease.map_or(default.live_lease, |s| s.0);
    if live_lease < LIVE_LEASE_MIN || live_lease.subsec_nanos() != 0 {
        return Err("store.live_lease must be whole seconds, and at least 2s".into());
    }
    Ok(StoreSettings {
        live_lease,
        endpoints: fragment.endpoints,
        endpoints_file: fragment.endpoints_file,
        discovery_srv: fragment.discovery_srv,
        discovery_url: fragment.discovery_url,
        discovery_port: fragment.discovery_port.unwrap_or(default.discovery_port),
        cacert: fragment.cacert,
        cert: fragment.cert,
        key: fragment.key,
        user: fragment.user,
        password_file: fragment.password_file,
        namespace: fragment.namespace.unwrap_or_default(),
        backstop: fragment.backstop.map_or(default.backstop, |s| s.0).max(Duration::from_millis(100)),
    })
}

fn steps(phase: &str, fragments: Vec<StepFragment>) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    for fragment in fragments {
        let name = fragment.name;
        absolute(&fragment.command).map_err(|e| format!("[[{phase}]] {name}: {e}"))?;
        check_placeholders(&fragment.command).map_err(|e| format!("[[{phase}]] {name}: {e}"))?;
        let done_codes = fragment.done_codes.unwrap_or_else(|| vec![0]);
        let not_yet_codes = fragment.not_yet_codes.unwrap_or_else(|| vec![75]);
        if let Some(code) = done_codes.iter().find(|code| not_yet_codes.contains(code)) {
            return Err(format!("[[{phase}]] {name}: code {code} cannot mean done and not yet"));
        }
        steps.push(Step {
            name,
            command: fragment.command,
            timeout: fragment.timeout.map_or(Duration::from_secs(1800), |s| s.0),
            grace: fragment.grace.map_or(Duration::from_secs(10), |s| s.0),
            done_codes,
            not_yet_codes,
            leftovers: fragment.leftovers.unwrap_or_default(),
            cannot_run: None,
        });
    }
    Ok(steps)
}

/// Returns the version in a version file; `None` if the text is empty or not a version.
pub fn read_version_file(text: &str) -> Option<Version> {
    Version::new(text.trim()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Result<Settings, SettingsError> {
        read(&[("agent.toml".into(), text.into())])
    }

    fn check_refused(text: &str, expected: &str) {
        let error = one(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}\nsaid: {error}\nexpected: {expected}");
    }

    #[test]
    fn no_settings_are_fine() {
        let settings = one("").unwrap();
        assert_eq!(settings.http_listen.to_string(), "127.0.0.1:8580");
        assert_eq!(settings.policy.validate_every, Duration::from_secs(60));
        assert_eq!(settings.policy.driver, Driver::Agent);
    }

    #[test]
    fn mistakes_are_named_with_file_and_line_and_the_nearest_name() {
        check_refused(
            "role = \"web\"\nvalidaton = 3\n",
            "agent.toml:2: unknown setting `validaton`; did you mean `validation`?",
        );
        check_refused(
            "[store]\nendpoint = []\n",
            "agent.toml:2: unknown setting `endpoint`; did you mean `endpoints`?",
        );
        check_refused("[[apply]]\nname = \"a\"\ncomand = []\n", "did you mean `command`?");
        check_refused("[validation]\nevery = \"10\"\n", "agent.toml:2: \"10\" is not a duration");
        check_refused("host = \"a_b\"\n", "agent.toml:1: host name \"a_b\": must be DNS labels");
        check_refused("[http]\nlisten = \"nowhere\"\n", "agent.toml:2:");
        check_refused("x = [", "agent.toml:1:");
        check_refused("[[apply]]\nname = \"a\"\n", "missing field `command`");
        check_refused("driver = \"cron\"\n", "unknown variant `cron`, expected `agent` or `external`");
    }

    #[test]
    fn what_cannot_work_together_is_refused() {
        let step = |name: &str, command: &str| format!("[[apply]]\nname = \"{name}\"\ncommand = {command}\n");
        check_refused(
            &(step("a", "[\"/x\"]") + &step("a", "[\"/y\"]")),
            "is already defined in agent.toml:1",
        );
        check_refused(&step("a", "[\"x\"]"), "must be an absolute path");
        check_refused(&step("a", "[]"), "the command is empty");
        check_refused(&(step("a", "[\"/x\"]") + "done_codes = [75]\n"), "cannot mean done and not yet");
        check_refused(&step("a", "[\"/x\", \"{version}\"]"), "after \"--\"");
        check_refused(&step("a", "[\"/x\", \"--\", \"v={version}\"]"), "an argument of its own");
        one(&step("a", "[\"/x\", \"--\", \"{version}\"]")).unwrap();
        check_refused("[store]\nendpoints = []\ndiscovery_srv = \"x\"\n", "not several");
        check_refused("state_directory = \"var\"\n", "must be an absolute path");
        check_refused("[attempts]\nsuspect_after = 0\n", "at least 1");
        check_refused("[store]\nlive_lease = \"1s\"\n", "at least 2s");
        check_refused("[store]\nlive_lease = \"2500ms\"\n", "whole seconds");
    }

    #[test]
    fn later_fragments_win_and_tables_merge() {
        let settings = read(&[
            ("a".into(), "role = \"web\"\n[store]\nnamespace = \"/x\"\nendpoints = [\"a\", \"b\"]\n".into()),
            ("b".into(), "role = \"db\"\n[store]\nendpoints = [\"c\"]\n".into()),
        ])
        .unwrap();
        assert_eq!(settings.role.unwrap().as_str(), "db");
        assert_eq!(settings.store.namespace, "/x");
        assert_eq!(settings.store.endpoints.unwrap(), ["c"]);
    }
}
