//! The environment of every command that the agent runs: of steps, checks, probes, and the commands of templates. It also
//! says whether a command of the settings may run.

use crate::settings_watch::SettingsView;
use etcd_session::Session;
use schema::names::HostName;
use settings::Settings;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// Makes environments. Copies share what they know.
#[derive(Clone)]
pub(crate) struct CommandEnvironment {
    settings: watch::Receiver<Arc<Settings>>,
    untrusted: watch::Receiver<Option<String>>,
    session: Session,
    host: HostName,
    /// The endpoints that were last known.
    endpoints: Arc<Mutex<Vec<String>>>,
}

impl CommandEnvironment {
    pub(crate) fn new(view: &SettingsView, session: Session, host: HostName) -> Self {
        let SettingsView { settings, untrusted, .. } = view.clone();
        let endpoints = Arc::new(Mutex::new(settings.borrow().store.endpoints.clone().unwrap_or_default()));
        Self { settings, untrusted, session, host, endpoints }
    }

    /// Returns why no command of the settings may run now; `None` if only root and the agent's user can write them.
    pub(crate) fn untrusted(&self) -> Option<String> {
        self.untrusted.borrow().clone()
    }

    /// Returns an environment with these variables besides those that every command has. It waits for nothing: a check
    /// runs on time also while the store is away.
    pub(crate) async fn with<const N: usize>(&self, own: [(&str, String); N]) -> BTreeMap<String, String> {
        let settings = self.settings.borrow().clone();
        let mut environment = commands::base_environment();
        let mut set = |name: &str, value: String| environment.insert(name.to_owned(), value);
        own.into_iter().for_each(|(name, value)| _ = set(name, value));
        // These make the `orchestrate` command work inside a command.
        set("ORCHESTRATE_ENDPOINTS", self.endpoints().await.join(","));
        set("ORCHESTRATE_NAMESPACE", settings.store.namespace.clone());
        set("ORCHESTRATE_HOSTNAME", self.host.to_string());
        set("ORCHESTRATE_STATE_DIR", settings.state_directory.display().to_string());
        set("ORCHESTRATE_LOCAL_VERSION_FILE", settings.version_file.display().to_string());
        if let Some((socket, _)) = &settings.socket {
            set("ORCHESTRATE_SOCKET", socket.display().to_string());
        }
        let tls = &settings.store;
        for (name, path) in [("CACERT", &tls.cacert), ("CERT", &tls.cert), ("KEY", &tls.key)] {
            if let Some(path) = path {
                set(&format!("ORCHESTRATE_{name}"), path.display().to_string());
            }
        }
        environment.extend(settings.environment.clone());
        environment
    }

    async fn endpoints(&self) -> Vec<String> {
        // The session may be connecting, which takes seconds.
        let found = tokio::time::timeout(Duration::ZERO, self.session.endpoints()).await.unwrap_or_default();
        // No code panics while it holds the lock.
        let mut known = self.endpoints.lock().unwrap_or_else(PoisonError::into_inner);
        if !found.is_empty() {
            *known = found;
        }
        known.clone()
    }
}
