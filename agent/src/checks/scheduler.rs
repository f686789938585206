//! Runs checks on time. Their starts are spread, so that they do not run all at once, and the
//! number of concurrent runs is limited.

use super::registry::CheckRegistry;
use super::run::run;
use crate::catalog::Loaded;
use crate::environment::CommandEnvironment;
use crate::reconcile::{Reconcile, Wake};
use crate::supervise;
use catalog::definitions::{CheckDefinition, CheckKind};
use etcd_session::jitter;
use schema::names::CheckId;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::{Semaphore, watch};
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::Instant;

/// A running check; dropping it ends the check.
struct RunningCheck {
    definition: CheckDefinition,
    task: AbortHandle,
}

impl Drop for RunningCheck {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The task that starts and ends checks as the definitions require.
pub(crate) struct Scheduler {
    registry: Arc<CheckRegistry>,
    loaded: watch::Receiver<Arc<Loaded>>,
    permits: Arc<Semaphore>,
    environment: CommandEnvironment,
    running: BTreeMap<CheckId, RunningCheck>,
    tasks: JoinSet<()>,
}

impl Scheduler {
    /// Prepares the task. The registry knows the checks at once. While others can write the
    /// settings, which name the directories of checks, no command runs, and the last results of
    /// command checks stay.
    pub(crate) fn new(
        registry: Arc<CheckRegistry>,
        loaded: watch::Receiver<Arc<Loaded>>,
        at_once: usize,
        environment: CommandEnvironment,
    ) -> Self {
        registry.define(&loaded.borrow().definitions);
        let permits = Arc::new(Semaphore::new(at_once));
        Self { registry, loaded, permits, environment, running: BTreeMap::new(), tasks: JoinSet::new() }
    }
}

/// What wakes the scheduler.
#[derive(Debug)]
pub(crate) enum SchedulerEvent {
    Definitions,
    /// The task of a check has ended.
    Ended(Result<(), JoinError>),
}

impl Reconcile for Scheduler {
    type Event = SchedulerEvent;

    async fn next_event(&mut self) -> Option<SchedulerEvent> {
        tokio::select! {
            changed = self.loaded.changed() => changed.ok().map(|()| SchedulerEvent::Definitions),
            Some(ended) = self.tasks.join_next() => Some(SchedulerEvent::Ended(ended)),
        }
    }

    fn reason(event: &SchedulerEvent) -> &'static str {
        match event {
            SchedulerEvent::Definitions => "services",
            SchedulerEvent::Ended(_) => "fault",
        }
    }

    async fn pass(&mut self, wake: Wake<SchedulerEvent>) -> Option<Instant> {
        match wake {
            Wake::Event(SchedulerEvent::Ended(Err(error))) if error.is_cancelled() => {}
            // A check runs again and again, so that this is a fault. It must not stay unnoticed that
            // a check does not run.
            Wake::Event(SchedulerEvent::Ended(Err(error))) => std::panic::resume_unwind(error.into_panic()),
            Wake::Event(SchedulerEvent::Ended(Ok(()))) => panic!("a check does not run any more"),
            Wake::Started | Wake::TimeCame | Wake::Event(SchedulerEvent::Definitions) => self.run_defined(),
        }
        None
    }
}

impl Scheduler {
    /// Runs exactly the checks that are defined.
    fn run_defined(&mut self) {
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
                let task = self.tasks.spawn(supervise::child(
                    "check",
                    run_repeatedly(
                        self.registry.clone(),
                        definition.clone(),
                        self.permits.clone(),
                        self.environment.clone(),
                    ),
                ));
                self.running.insert(id, RunningCheck { definition, task });
            }
        }
    }
}

/// Runs a check again and again: the first time soon and after a random delay, then at its
/// interval.
async fn run_repeatedly(
    registry: Arc<CheckRegistry>,
    definition: CheckDefinition,
    permits: Arc<Semaphore>,
    environment: CommandEnvironment,
) {
    /// Longest delay of the first run, in seconds, because it should not wait for a long interval.
    const FIRST_RUN_WINDOW_SECONDS: f64 = 1.0;
    let interval = definition.interval;
    let first = interval.as_secs_f64().min(FIRST_RUN_WINDOW_SECONDS) * jitter();
    let mut next = Instant::now() + std::time::Duration::from_secs_f64(first);
    let mut is_first = true;
    loop {
        tokio::time::sleep_until(next).await;
        // The semaphore is never closed.
        let Ok(_one) = permits.acquire().await else { return };
        let is_command = matches!(definition.kind, CheckKind::Command { .. });
        let may_run = !is_command || environment.untrusted().is_none();
        if may_run && let Some((status, output)) = run(&definition, &environment).await {
            registry.record(&definition.id, status, &output);
        }
        // The second run follows after a random part of the interval, all later runs at the
        // interval. If a run took longer than that, the next one starts at once, so that no more
        // time is lost.
        let phase = if std::mem::take(&mut is_first) { jitter() } else { 1.0 };
        next = (next + interval.mul_f64(phase.max(0.1))).max(Instant::now());
    }
}
