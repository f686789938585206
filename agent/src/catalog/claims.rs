//! The addresses of hosts that have no service, read from the claims of their names. A claim is
//! read on request and cached for seconds. Claims are never watched, because every host writes one.

use super::trust::Trust;
use catalog::Claim;
use etcd_session::{Deadline, Session, StoreError};
use schema::keys::Key;
use schema::names::HostName;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{OnceCell, watch};

/// How long a claim is served from the cache after it was read.
const KEPT_FOR: Duration = Duration::from_secs(5);
/// Maximum number of cached names, which also bounds the number of reads. When it is reached, the
/// claims of further names are unknown until cached ones expire.
const NAMES_MAX: usize = 1000;
/// Time limit for one read.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

struct CachedClaim {
    since: Instant,
    /// Concurrent requests for the same host wait for the same read.
    claim: Arc<OnceCell<Claim>>,
}

/// The claims that were requested.
pub(super) struct Claims {
    session: Session,
    trust: watch::Receiver<Trust>,
    kept: Mutex<HashMap<HostName, CachedClaim>>,
    /// True once the log says that claims may not be read; false again after a successful read.
    failure_logged: AtomicBool,
}

impl fmt::Debug for Claims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claims").finish_non_exhaustive()
    }
}

impl Claims {
    pub(super) fn new(session: Session, trust: watch::Receiver<Trust>) -> Self {
        Self { session, trust, kept: Mutex::default(), failure_logged: AtomicBool::new(false) }
    }

    /// Returns the cached claim, if it is still fresh.
    pub(super) fn known(&self, host: &HostName) -> Option<Claim> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(host).filter(|kept| kept.is_fresh())?.claim.get().cloned()
    }

    /// Returns the cached claim if it is still fresh, and otherwise reads it from the store.
    pub(super) async fn read(&self, host: &HostName) -> Claim {
        // Nothing in an untrusted store is believed.
        if self.trust.borrow().epoch.is_none() {
            return Claim::Unknown;
        }
        match self.slot(host) {
            Some(claim) => claim.get_or_init(|| self.ask(host)).await.clone(),
            None => Claim::Unknown,
        }
    }

    fn slot(&self, host: &HostName) -> Option<Arc<OnceCell<Claim>>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = kept.get(host).filter(|kept| kept.is_fresh()) {
            return Some(known.claim.clone());
        }
        if kept.len() >= NAMES_MAX {
            kept.retain(|_, kept| kept.is_fresh());
        }
        if kept.len() >= NAMES_MAX {
            return None;
        }
        let claim = Arc::new(OnceCell::new());
        kept.insert(host.clone(), CachedClaim { since: Instant::now(), claim: claim.clone() });
        Some(claim)
    }

    async fn ask(&self, host: &HostName) -> Claim {
        let key = Key::Live(host.clone());
        match self.session.read_keys(std::slice::from_ref(&key), Deadline::within(READ_TIMEOUT)).await {
            Ok(snapshot) => {
                self.failure_logged.store(false, Ordering::Relaxed);
                let claim = Claim::read(snapshot.get(&key).map(|entry| &entry.value[..]));
                claim.unwrap_or_else(|error| {
                    tracing::debug!(%host, %error, "the claim of a host cannot be read");
                    Claim::Unknown
                })
            }
            Err(error @ StoreError::PermissionDenied { .. }) => {
                if !self.failure_logged.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        %error,
                        "names of hosts that have no service cannot be answered: the user of this agent may not read \
                         /orchestrate/live/; `orchestrate enroll` prints the grants"
                    );
                }
                Claim::Unknown
            }
            Err(error) => {
                tracing::debug!(%host, %error, "the claim of a host could not be read");
                Claim::Unknown
            }
        }
    }
}

impl CachedClaim {
    fn is_fresh(&self) -> bool {
        self.since.elapsed() < KEPT_FOR
    }
}
