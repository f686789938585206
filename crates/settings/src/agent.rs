//! The settings of the agent, as written in a file and as validated.

use crate::bundles::{BundlesFragment, BundlesSettings};
use crate::secret_pattern::SecretPattern;
use crate::services;
use crate::services::{CatalogSettings, DnsSettings, ServicesSettings, TemplateSettings};
use crate::store::{StoreFragment, StoreSettings};
use planning::host::{Leftovers, SiteConfig};
use schema::names::{HostName, Role, StepName, Version};
use schema::records::Driver;
use schema::time::Span;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Fragment {
    pub(super) host: Option<HostName>,
    pub(super) role: Option<Role>,
    pub(super) group: Option<Role>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) driver: Option<Driver>,
    pub(super) state_directory: Option<PathBuf>,
    pub(super) version_file: Option<PathBuf>,
    pub(super) facts_file: Option<PathBuf>,
    pub(super) environment: BTreeMap<String, String>,
    pub(super) secret_files: Vec<PathBuf>,
    pub(super) secret_patterns: Vec<String>,
    pub(super) store: StoreFragment,
    pub(super) http: HttpFragment,
    pub(super) validation: ValidationFragment,
    pub(super) attempts: AttemptsFragment,
    pub(super) log: LogFragment,
    pub(super) bundles: BundlesFragment,
    pub(super) services: services::ServicesFragment,
    pub(super) catalog: services::CatalogFragment,
    pub(super) dns: services::DnsFragment,
    pub(super) requires: Vec<services::RequiresFragment>,
    pub(super) template: Vec<services::TemplateFragment>,
    pub(super) identity: IdentityFragment,
    pub(super) prefetch: Vec<StepFragment>,
    pub(super) apply: Vec<StepFragment>,
    pub(super) converge: Vec<StepFragment>,
    pub(super) validate: Vec<StepFragment>,
    pub(super) on_suspect: Vec<StepFragment>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct HttpFragment {
    pub(super) listen: Option<SocketAddr>,
    pub(super) names: Vec<HostName>,
    pub(super) socket: Option<PathBuf>,
    pub(super) socket_group: Option<String>,
    pub(super) take_check_results: Option<bool>,
    pub(super) fleet_lock: Option<bool>,
}

/// The format of the log on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct LogFragment {
    pub(super) level: Option<String>,
    pub(super) format: Option<LogFormat>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct IdentityFragment {
    pub(super) machine_id_file: Option<PathBuf>,
    pub(super) boot_id_file: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ValidationFragment {
    pub(super) directory: Option<PathBuf>,
    pub(super) every: Option<Span>,
    pub(super) timeout: Option<Span>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct AttemptsFragment {
    pub(super) spread_window: Option<Span>,
    pub(super) not_yet_retry: Option<Span>,
    pub(super) backoff_min: Option<Span>,
    pub(super) backoff_max: Option<Span>,
    pub(super) suspect_after: Option<u32>,
    pub(super) suspect_retry_on_change: Option<Span>,
    pub(super) suspect_retry_every: Option<Span>,
    pub(super) reapply_per_day: Option<u32>,
    pub(super) reapply_after: Option<Span>,
    pub(super) converge_at_most_every: Option<Span>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StepFragment {
    pub(super) name: StepName,
    pub(super) command: Vec<String>,
    pub(super) timeout: Option<Span>,
    pub(super) grace: Option<Span>,
    pub(super) done_codes: Option<Vec<i32>>,
    pub(super) not_yet_codes: Option<Vec<i32>>,
    pub(super) leftovers: Option<Leftovers>,
    /// Known here so that a fragment can contain it; used and removed when fragments are merged.
    #[serde(default, rename = "replace")]
    _replace: bool,
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
    /// Files of this host whose lines are secrets.
    pub secret_files: Vec<PathBuf>,
    /// What secrets look like.
    pub secret_patterns: Vec<SecretPattern>,
    pub store: StoreSettings,
    /// The address of the local HTTP server.
    pub http_listen: SocketAddr,
    /// Names by which other machines ask the server, besides the host's own.
    pub http_names: Vec<HostName>,
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
    pub dns: DnsSettings,
    /// The files that are rendered from the catalog.
    pub templates: Vec<TemplateSettings>,
    /// Where the bundles of failed attempts go; `None` if there are none.
    pub bundles: Option<BundlesSettings>,
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
    pub policy: SiteConfig,
}

/// Returns the version in a version file; `None` if the text is empty or not a version.
pub fn read_version_file(text: &str) -> Option<Version> {
    Version::new(text.trim()).ok()
}
