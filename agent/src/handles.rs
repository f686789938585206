//! What many parts of the agent use.

use crate::environment::CommandEnvironment;
use crate::metrics::Metrics;
use crate::secrets::Secrets;
use crate::settings_watch::SettingsView;
use crate::step::Runs;
use etcd_session::Session;
use schema::names::HostName;

/// Handles that the subsystems are started with. Copies share what they refer to.
#[derive(Clone)]
pub(crate) struct Handles {
    pub host: HostName,
    pub settings: SettingsView,
    pub session: Session,
    pub environment: CommandEnvironment,
    pub secrets: Secrets,
    /// The runs of steps.
    pub runs: Runs,
    pub metrics: Metrics,
}
