//! The settings of the store: where it is, and how to reach it.

use crate::checks;
use crate::error::Problems;
use schema::time::Span;
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;

/// Shortest live lease: etcd grants no shorter lease.
const LIVE_LEASE_MIN: Duration = Duration::from_secs(2);

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct StoreFragment {
    pub(super) endpoints: Option<Vec<String>>,
    pub(super) endpoints_file: Option<PathBuf>,
    pub(super) discovery_srv: Option<String>,
    pub(super) discovery_url: Option<String>,
    pub(super) discovery_port: Option<u16>,
    pub(super) cacert: Option<PathBuf>,
    pub(super) cert: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
    pub(super) user: Option<String>,
    pub(super) password_file: Option<PathBuf>,
    pub(super) namespace: Option<String>,
    pub(super) backstop: Option<Span>,
    pub(super) live_lease: Option<Span>,
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

impl StoreFragment {
    /// Returns the settings. If there is a problem, they are only good for finding further ones.
    pub(super) fn validate(self, problems: &mut Problems) -> StoreSettings {
        let ways = [
            ("store.endpoints", self.endpoints.is_some()),
            ("store.endpoints_file", self.endpoints_file.is_some()),
            ("store.discovery_srv", self.discovery_srv.is_some()),
            ("store.discovery_url", self.discovery_url.is_some()),
        ];
        let given: Vec<&str> = ways.iter().filter(|(_, is_given)| *is_given).map(|(name, _)| *name).collect();
        if let [_, second, ..] = given[..] {
            let message =
                "give one of endpoints, endpoints_file, discovery_srv and discovery_url, not several";
            problems.add(second, message);
        }
        if self.endpoints.as_ref().is_some_and(Vec::is_empty) {
            problems
                .add("store.endpoints", "the list is empty; name one, for example \"http://127.0.0.1:2379\"");
        }
        for endpoint in self.endpoints.iter().flatten() {
            problems.check("store.endpoints", checks::endpoint(endpoint));
        }
        if let Some(namespace) = &self.namespace {
            problems.check("store.namespace", checks::namespace(namespace));
        }
        let default = StoreSettings::default();
        let live_lease = self.live_lease.map_or(default.live_lease, |s| s.0);
        if live_lease < LIVE_LEASE_MIN || live_lease.subsec_nanos() != 0 {
            problems.add("store.live_lease", "must be whole seconds, and at least 2s");
        }
        StoreSettings {
            live_lease,
            endpoints: self.endpoints,
            endpoints_file: self.endpoints_file,
            discovery_srv: self.discovery_srv,
            discovery_url: self.discovery_url,
            discovery_port: self.discovery_port.unwrap_or(default.discovery_port),
            cacert: self.cacert,
            cert: self.cert,
            key: self.key,
            user: self.user,
            password_file: self.password_file,
            namespace: self.namespace.unwrap_or_default(),
            backstop: self.backstop.map_or(default.backstop, |s| s.0).max(Duration::from_millis(100)),
        }
    }
}
