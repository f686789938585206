//! Every key of the store. This is the only place where a key's path is spelled.
//!
//! The first four kinds are the original names, with their leading slash, so that a reader who only
//! knows those sees correct lists. A session may put a namespace in front of everything; keys here
//! are without it.

use crate::names::{ConfigName, HostName, NameError, ServiceName, StatusType, Version};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The three states of a status type. A host is in at most one of them at every revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StatusState {
    /// The last attempt succeeded.
    Success,
    /// The last attempt failed.
    Failed,
    /// The last attempt ended with "not yet".
    Pending,
}

impl StatusState {
    /// All states, in the order in which they are listed.
    pub const ALL: [Self; 3] = [Self::Success, Self::Failed, Self::Pending];

    /// The state as it stands in a key.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failed => "failed",
            Self::Pending => "pending",
        }
    }
}

/// One key of the store.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// The desired version, text; written by an operator.
    CurrentVersion,
    /// Proof that a host runs a version; value: epoch seconds as text; hangs on the live lease.
    RunningVersion(Version, HostName),
    /// A host's last result of one type.
    Status(StatusType, StatusState, HostName),
    /// The identity of the store.
    Store,
    /// The roster: a host that exists, or its tombstone.
    Host(HostName),
    /// The claim of a host name by one running agent; hangs on the live lease.
    Live(HostName),
    /// The version that a host is listed under; written with every change of the listing.
    Announced(HostName),
    /// What a host decided and why; bounded.
    Report(HostName),
    /// An operator's request that a host try again.
    Retry(HostName),
    /// The trace that a host reports a type of result by one-shot verbs. Its success runs out when it
    /// stops; this stays, so that the silence shows.
    Reporting(StatusType, HostName),
    /// Where a service is on a host: it is addressable; hangs on the work lease.
    Service(ServiceName, HostName),
    /// Whether a service works on a host; hangs on the live lease.
    Health(ServiceName, HostName),
    /// What an operator took out of use on a host.
    Maintenance(HostName),
    /// An operator's request that agents stop serving what their guards retain.
    DropStale,
    /// A value that operators keep for files of hosts.
    Config(ConfigName),
}

/// A key that is not one of ours, or holds a name that is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The path is not one that this program knows.
    #[error("unknown key {0}")]
    Unknown(String),
    /// The path is known, a name in it is not valid.
    #[error("key {key}")]
    Name {
        /// The key, quoted.
        key: String,
        /// What is wrong with the name.
        #[source]
        source: NameError,
    },
}

const CURRENT_VERSION: &str = "/current_version";
const RUNNING_VERSION: &str = "/running_version/";
const STATUS: &str = "/status/";
const STORE: &str = "/orchestrate/store";
const HOSTS: &str = "/orchestrate/hosts/";
const LIVE: &str = "/orchestrate/live/";
const ANNOUNCED: &str = "/orchestrate/announced/";
const REPORTS: &str = "/orchestrate/reports/";
const RETRY: &str = "/orchestrate/retry/";
const REPORTING: &str = "/orchestrate/reporting/";
const SERVICES: &str = "/available_services/";
const HEALTH: &str = "/orchestrate/health/";
const MAINTENANCE: &str = "/orchestrate/maintenance/";
const DROP_STALE: &str = "/orchestrate/release_view";
const CONFIG: &str = "/orchestrate/config/";

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CurrentVersion => f.write_str(CURRENT_VERSION),
            Self::RunningVersion(version, host) => write!(f, "{RUNNING_VERSION}{version}/{host}"),
            Self::Status(kind, state, host) => write!(f, "{STATUS}{kind}/{}/{host}", state.as_str()),
            Self::Store => f.write_str(STORE),
            Self::Host(host) => write!(f, "{HOSTS}{host}"),
            Self::Live(host) => write!(f, "{LIVE}{host}"),
            Self::Announced(host) => write!(f, "{ANNOUNCED}{host}"),
            Self::Report(host) => write!(f, "{REPORTS}{host}"),
            Self::Retry(host) => write!(f, "{RETRY}{host}"),
            Self::Reporting(kind, host) => write!(f, "{REPORTING}{kind}/{host}"),
            Self::Service(service, host) => write!(f, "{SERVICES}{service}/{host}"),
            Self::Health(service, host) => write!(f, "{HEALTH}{service}/{host}"),
            Self::Maintenance(host) => write!(f, "{MAINTENANCE}{host}"),
            Self::DropStale => f.write_str(DROP_STALE),
            Self::Config(value) => write!(f, "{CONFIG}{value}"),
        }
    }
}

/// A prefix, and the key that a host behind it makes.
type PerHost = (&'static str, fn(HostName) -> Key);
/// The same with a service before the host.
type PerService = (&'static str, fn(ServiceName, HostName) -> Key);

impl Key {
    /// Reads a key as it stands in the store.
    ///
    /// # Errors
    /// A path that is not known, or a name in it that is not valid. Such keys are passed over by readers
    /// and counted; they never become part of an answer.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let unknown = || KeyError::Unknown(crate::names::quoted(text));
        let name = |source| KeyError::Name { key: crate::names::quoted(text), source };
        let host = |rest: &str| HostName::new(rest).map_err(name);
        match text {
            CURRENT_VERSION => return Ok(Self::CurrentVersion),
            STORE => return Ok(Self::Store),
            DROP_STALE => return Ok(Self::DropStale),
            _ => {}
        }
        if let Some(rest) = text.strip_prefix(RUNNING_VERSION) {
            let (version, rest) = rest.split_once('/').ok_or_else(unknown)?;
            return Ok(Self::RunningVersion(Version::new(version).map_err(name)?, host(rest)?));
        }
        if let Some(rest) = text.strip_prefix(STATUS) {
            let (kind, rest) = rest.split_once('/').ok_or_else(unknown)?;
            let (state, rest) = rest.split_once('/').ok_or_else(unknown)?;
            let state = StatusState::ALL.into_iter().find(|s| s.as_str() == state).ok_or_else(unknown)?;
            return Ok(Self::Status(StatusType::new(kind).map_err(name)?, state, host(rest)?));
        }
        if let Some(rest) = text.strip_prefix(REPORTING) {
            let (kind, rest) = rest.split_once('/').ok_or_else(unknown)?;
            return Ok(Self::Reporting(StatusType::new(kind).map_err(name)?, host(rest)?));
        }
        if let Some(rest) = text.strip_prefix(CONFIG) {
            return Ok(Self::Config(ConfigName::new(rest).map_err(name)?));
        }
        let per_service: [PerService; 2] = [(SERVICES, Self::Service), (HEALTH, Self::Health)];
        for (prefix, make) in per_service {
            if let Some(rest) = text.strip_prefix(prefix) {
                let (service, rest) = rest.split_once('/').ok_or_else(unknown)?;
                return Ok(make(ServiceName::new(service).map_err(name)?, host(rest)?));
            }
        }
        let per_host: [PerHost; 6] = [
            (HOSTS, Self::Host),
            (LIVE, Self::Live),
            (ANNOUNCED, Self::Announced),
            (REPORTS, Self::Report),
            (RETRY, Self::Retry),
            (MAINTENANCE, Self::Maintenance),
        ];
        for (prefix, make) in per_host {
            if let Some(rest) = text.strip_prefix(prefix) {
                return Ok(make(host(rest)?));
            }
        }
        Err(unknown())
    }
}

/// The service and the host of the key of a record, not looked at yet; `None` of other keys.
pub fn service_key(key: &str) -> Option<(&str, &str)> {
    key.strip_prefix(SERVICES)?.split_once('/')
}

/// A range of keys that is read or watched together. Each ends in a slash, so a host or version never
/// matches as the beginning of a longer one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prefix {
    /// Every version and the hosts that run it.
    RunningVersions,
    /// The hosts that run one version.
    RunningVersion(Version),
    /// All results of all types.
    Statuses,
    /// The hosts in one state of one type.
    Status(StatusType, StatusState),
    /// The roster.
    Hosts,
    /// The hosts whose agent lives.
    Lives,
    /// What hosts are listed under.
    Announced,
    /// All reports.
    Reports,
    /// What operators asked of hosts.
    Retries,
    /// The hosts that report any type of result by one-shot verbs.
    ReportingAll,
    /// The hosts that report one type of result by one-shot verbs.
    Reporting(StatusType),
    /// Where all services are.
    Services,
    /// Where one service is.
    Service(ServiceName),
    /// Whether services work.
    HealthAll,
    /// Whether one service works.
    Health(ServiceName),
    /// What operators took out of use.
    Maintenances,
    /// The values that operators keep for files of hosts.
    Config,
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RunningVersions => f.write_str(RUNNING_VERSION),
            Self::RunningVersion(version) => write!(f, "{RUNNING_VERSION}{version}/"),
            Self::Statuses => f.write_str(STATUS),
            Self::Status(kind, state) => write!(f, "{STATUS}{kind}/{}/", state.as_str()),
            Self::Hosts => f.write_str(HOSTS),
            Self::Lives => f.write_str(LIVE),
            Self::Announced => f.write_str(ANNOUNCED),
            Self::Reports => f.write_str(REPORTS),
            Self::Retries => f.write_str(RETRY),
            Self::ReportingAll => f.write_str(REPORTING),
            Self::Reporting(kind) => write!(f, "{REPORTING}{kind}/"),
            Self::Services => f.write_str(SERVICES),
            Self::Service(service) => write!(f, "{SERVICES}{service}/"),
            Self::HealthAll => f.write_str(HEALTH),
            Self::Health(service) => write!(f, "{HEALTH}{service}/"),
            Self::Maintenances => f.write_str(MAINTENANCE),
            Self::Config => f.write_str(CONFIG),
        }
    }
}

/// The path of every kind of key, with its placeholders: `docs/keys.md` is checked against this list.
pub fn documented() -> Vec<(String, &'static str)> {
    let host = "<host>";
    vec![
        (CURRENT_VERSION.into(), "durable"),
        (format!("{RUNNING_VERSION}<version>/{host}"), "live lease"),
        (format!("{STATUS}<type>/<state>/{host}"), "durable"),
        (STORE.into(), "durable"),
        (format!("{HOSTS}{host}"), "durable"),
        (format!("{LIVE}{host}"), "live lease"),
        (format!("{ANNOUNCED}{host}"), "same lease as the listing"),
        (format!("{REPORTS}{host}"), "durable"),
        (format!("{RETRY}{host}"), "durable"),
        (format!("{REPORTING}<type>/{host}"), "durable"),
        (format!("{SERVICES}<service>/{host}"), "work lease"),
        (format!("{HEALTH}<service>/{host}"), "live lease"),
        (format!("{MAINTENANCE}{host}"), "durable"),
        (DROP_STALE.into(), "durable"),
        (format!("{CONFIG}<name>"), "durable"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name() -> impl Strategy<Value = String> {
        "[A-Za-z0-9][A-Za-z0-9._+~:-]{0,20}"
    }
    fn host() -> impl Strategy<Value = String> {
        "[a-z0-9]{1,8}(-[a-z0-9]{1,4})?(\\.[a-z0-9]{1,5}){0,2}"
    }

    proptest! {
        #[test]
        fn a_key_reads_back_as_written(v in name(), t in name(), h in host(), s in 0usize..3) {
            let version = Version::new(v.clone()).unwrap();
            let host = HostName::new(h).unwrap();
            let kind = StatusType::new(t.clone()).unwrap();
            let service = ServiceName::new(t).unwrap();
            for key in [
                Key::CurrentVersion,
                Key::RunningVersion(version, host.clone()),
                Key::Status(kind.clone(), StatusState::ALL[s], host.clone()),
                Key::Reporting(kind, host.clone()),
                Key::Store,
                Key::Host(host.clone()),
                Key::Live(host.clone()),
                Key::Announced(host.clone()),
                Key::Report(host.clone()),
                Key::Retry(host.clone()),
                Key::Service(service.clone(), host.clone()),
                Key::Health(service, host.clone()),
                Key::Maintenance(host),
                Key::DropStale,
                Key::Config(ConfigName::new(v).unwrap()),
            ] {
                prop_assert_eq!(Key::parse(&key.to_string()).unwrap(), key);
            }
        }

        #[test]
        fn whatever_is_accepted_is_spelled_as_it_was(text in "/?(orchestrate/|status/|running_version/)?.{0,60}") {
            if let Ok(key) = Key::parse(&text) {
                prop_assert_eq!(key.to_string(), text);
            }
        }
    }

    #[test]
    fn garbage_in_the_store_is_refused() {
        for bad in [
            "",
            "/",
            "current_version",
            "/current_version/",
            "/running_version/",
            "/running_version/1",
            "/running_version/1/",
            "/running_version//h",
            "/running_version/../h",
            "/running_version/1/a/b",
            "/status/puppet/failed/",
            "/status/puppet/broken/h",
            "/status/puppet/h",
            "/orchestrate/live/a b",
            "/orchestrate/live/",
            "/orchestrate/hosts/a/b",
            "/orchestrate/unknown/h",
            "/available_services/web",
            "/available_services//h",
            "/available_services/../h",
            "/orchestrate/health/web/a/b",
            "/orchestrate/maintenance/",
            "/orchestrate/release_view/",
            "/running_version/1/h\n",
        ] {
            Key::parse(bad).unwrap_err();
        }
    }
}
