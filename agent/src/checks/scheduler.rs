//! Runs checks on time: spread, so that they do not come together, and so many at once as are allowed.

use super::registry::CheckRegistry;
use super::run::run;
use crate::catalog::Loaded;
use catalog::definitions::{CheckDefinition, CheckKind};
use etcd_session::jitter;
use schema::names::CheckId;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// A check that runs; it ends when this is dropped.
struct Running {
    definition: CheckDefinition,
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The task that starts and ends checks as the definitions say.
pub(crate) struct Scheduler {
    registry: Arc<CheckRegistry>,
    loaded: watch::Receiver<Arc<Loaded>>,
    permits: Arc<Semaphore>,
    untrusted: watch::Receiver<Option<String>>,
    running: BTreeMap<CheckId, Running>,
}

impl Scheduler {
    /// Prepares to run; the registry knows the checks at once. While others can write the settings, which name the
    /// directories of checks, no command runs, and what its check said last stands.
    pub(crate) fn new(
        registry: Arc<CheckRegistry>,
        loaded: watch::Receiver<Arc<Loaded>>,
        at_once: usize,
        untrusted: watch::Receiver<Option<String>>,
    ) -> Self {
        registry.define(&loaded.borrow().definitions);
        let permits = Arc::new(Semaphore::new(at_once));
        Self { registry, loaded, permits, untrusted, running: BTreeMap::new() }
    }

    /// Runs until it is dropped.
    pub(crate) async fn run(mut self) {
        loop {
            let loaded = self.loaded.borrow_and_update().clone();
            self.registry.define(&loaded.definitions);
            let of_services = loaded.definitions.services.values().flat_map(|service| &service.checks);
            let wanted: BTreeMap<CheckId, CheckDefinition> = of_services
                .chain(&loaded.definitions.host_checks)
                .filter(|check| check.kind != CheckKind::Ttl)
                .map(|check| (check.id.clone(), check.clone()))
                .collect();
            self.running.retain(|id, running| wanted.get(id) == Some(&running.definition));
            for (id, definition) in wanted {
                if !self.running.contains_key(&id) {
                    let task = tokio::spawn(run_repeatedly(
                        self.registry.clone(),
                        definition.clone(),
                        self.permits.clone(),
                        self.untrusted.clone(),
                    ));
                    self.running.insert(id, Running { definition, task });
                }
            }
            if self.loaded.changed().await.is_err() {
                return;
            }
        }
    }
}

/// The first run comes soon, at a moment of its own; then they keep their distance.
async fn run_repeatedly(
    registry: Arc<CheckRegistry>,
    definition: CheckDefinition,
    permits: Arc<Semaphore>,
    untrusted: watch::Receiver<Option<String>>,
) {
    /// The first look need not wait for a long interval.
    const FIRST_WITHIN_SECONDS: f64 = 1.0;
    let interval = definition.interval;
    let first = interval.as_secs_f64().min(FIRST_WITHIN_SECONDS) * jitter();
    let mut next = Instant::now() + std::time::Duration::from_secs_f64(first);
    let mut is_first = true;
    loop {
        tokio::time::sleep_until(next).await;
        // The semaphore is never closed.
        let Ok(_one) = permits.acquire().await else { return };
        let is_command = matches!(definition.kind, CheckKind::Command { .. });
        let may_run = !is_command || untrusted.borrow().is_none();
        if may_run && let Some((status, output)) = run(&definition).await {
            registry.record(&definition.id, status, &output);
        }
        // A place of its own within the interval, then that distance; a run that took long skips no more than it took.
        let phase = if std::mem::take(&mut is_first) { jitter() } else { 1.0 };
        next = (next + interval.mul_f64(phase.max(0.1))).max(Instant::now());
    }
}
