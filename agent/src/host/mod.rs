//! The reconcile loop of the host: wake up, observe, decide, execute one effect, decide again. It
//! owns the host's state; all other parts of the agent hand it snapshots.
//!
//! `observe` reads what a decision depends on, `store` follows the store and its trust, `execute`
//! carries out effects, `announce` writes to the store, `outcome` logs and counts, `context` holds what is known.

mod announce;
mod context;
mod execute;
mod observe;
mod outcome;
mod store;

pub(crate) use execute::{Executor, read_version_file};

use crate::catalog::CatalogHandles;
use crate::clock;
use crate::command_locks::CommandLocks;
use crate::identity::machine_info;
use crate::metrics::Metrics;
use crate::reconcile::{self, Passes, Reconcile, Wake};
use crate::rollout::RolloutHandles;
use crate::settings_watch::SettingsView;
use crate::status::Status;
use crate::step::RunResult;
use crate::store::StoreHandles;
use crate::supervise::TaskEnded;
use crate::templates::TemplateStates;
use context::Context;
use etcd_session::{PresenceState, Snapshot, Statement, jitter};
use execute::ExecuteError;
use planning::host::{Advance, Decision, Desired, HostState, Observed, RunningStep, advance, store_view};
use schema::names::Version;
use schema::plan::{Action, Conclusion, Effect, Planned};
use schema::records::{BundleLink, Driver};
use schema::time::{BootMillis, Now};
use schema::writes::WriteRefusal;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// What wakes the loop. Except for the result of a step it carries no data, so ten changes can be one
/// wake-up.
#[derive(Debug)]
pub(crate) enum HostEvent {
    StoreChanged,
    ClaimChanged,
    StepEnded(Box<(RunningStep, RunResult)>),
    SettingsChanged,
    FilesChanged,
    ServicesChanged,
    CatalogChanged,
    ChecksChanged,
    RolloutChanged,
    BundleUploaded,
    WatchdogDue,
}

/// The parts of the reconcile loop.
pub(crate) struct Reconciler {
    pub settings: SettingsView,
    pub store: StoreHandles,
    pub catalog: CatalogHandles,
    pub rollout: RolloutHandles,
    pub executor: Executor,
    /// The status that other tasks show.
    pub status: watch::Sender<Arc<Status>>,
    /// Steps that ended, with their results.
    pub ends: mpsc::Receiver<(RunningStep, RunResult)>,
    /// The states of the templates.
    pub templates: watch::Receiver<Arc<TemplateStates>>,
    /// Says which commands run that hold claims.
    pub command_locks: Arc<CommandLocks>,
    /// The bundle of a failure that was uploaded last.
    pub bundle: watch::Receiver<Option<BundleLink>>,
    pub metrics: Metrics,
}

/// Time that the supervisor has to say which task ended.
const SUPERVISOR_DELAY: Duration = Duration::from_secs(1);
/// Longest time between two reads of the clock while a time is awaited.
const CLOCK_POLL_INTERVAL: Duration = Duration::from_secs(60);
/// Interval at which the version file of an external driver is read.
const VERSION_FILE_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The running loop: its parts, what it knows, and what wakes it.
struct HostLoop {
    parts: Reconciler,
    context: Context,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    presences: watch::Receiver<PresenceState>,
    checks: watch::Receiver<u64>,
    watchdog: tokio::time::Interval,
    /// The task that this one depends on and that has ended.
    ended: Option<TaskEnded>,
}

impl Reconcile for HostLoop {
    type Event = HostEvent;

    async fn next_event(&mut self) -> Option<HostEvent> {
        let follows_catalog = self.context.follows_catalog();
        let parts = &mut self.parts;
        let (settings, catalog, rollout) = (&mut parts.settings, &mut parts.catalog, &mut parts.rollout);
        // A channel whose sender was dropped would be ready for ever, so that is the end and no
        // event.
        let changed = tokio::select! {
            changed = self.snapshots.changed() => (changed.is_ok(), HostEvent::StoreChanged, "mirror"),
            changed = self.presences.changed() => (changed.is_ok(), HostEvent::ClaimChanged, "presence"),
            Some(ended) = parts.ends.recv() => return Some(HostEvent::StepEnded(Box::new(ended))),
            changed = settings.settings.changed() => (changed.is_ok(), HostEvent::SettingsChanged, "signals"),
            changed = settings.untrusted.changed() => (changed.is_ok(), HostEvent::SettingsChanged, "signals"),
            changed = settings.refused.changed() => (changed.is_ok(), HostEvent::FilesChanged, "signals"),
            changed = catalog.loaded.changed() => (changed.is_ok(), HostEvent::FilesChanged, "definitions"),
            changed = parts.templates.changed() => (changed.is_ok(), HostEvent::FilesChanged, "templates"),
            changed = catalog.needs.changed() => (changed.is_ok(), HostEvent::ServicesChanged, "needs"),
            changed = catalog.published.changed() => (changed.is_ok(), HostEvent::ServicesChanged, "publisher"),
            changed = catalog.changes.changed(), if follows_catalog => {
                (changed.is_ok(), HostEvent::CatalogChanged, "catalog")
            }
            changed = rollout.known.changed() => (changed.is_ok(), HostEvent::RolloutChanged, "rollout"),
            changed = rollout.ended.changed() => (changed.is_ok(), HostEvent::RolloutChanged, "rollout-end"),
            changed = parts.bundle.changed() => (changed.is_ok(), HostEvent::BundleUploaded, "bundles"),
            changed = self.checks.changed() => (changed.is_ok(), HostEvent::ChecksChanged, "checks"),
            _ = self.watchdog.tick() => return Some(HostEvent::WatchdogDue),
        };
        match changed {
            (true, event, _) => Some(event),
            (false, _, task) => {
                self.ended = Some(TaskEnded::of(task));
                None
            }
        }
    }

    fn reason(event: &HostEvent) -> &'static str {
        match event {
            HostEvent::StoreChanged => "store",
            HostEvent::ClaimChanged => "claim",
            HostEvent::StepEnded(_) => "step",
            HostEvent::SettingsChanged => "settings",
            HostEvent::FilesChanged => "files",
            HostEvent::ServicesChanged => "services",
            HostEvent::CatalogChanged => "catalog",
            HostEvent::ChecksChanged => "checks",
            HostEvent::RolloutChanged => "rollout",
            HostEvent::BundleUploaded => "upload",
            HostEvent::WatchdogDue => "watchdog",
        }
    }

    async fn pass(&mut self, wake: Wake<HostEvent>) -> Option<Instant> {
        tracing::trace!(?wake, "awake");
        match wake {
            Wake::Event(HostEvent::StepEnded(ended)) => {
                let (running, result) = *ended;
                self.parts.end_step(&mut self.context, running, result);
            }
            Wake::Event(HostEvent::WatchdogDue) => crate::systemd::ping(),
            _ => {}
        }
        // Marked as seen before the pass, so that a change during it wakes the loop again.
        self.parts.catalog.changes.borrow_and_update();
        self.checks.borrow_and_update();
        let requeue_at =
            self.parts.reconcile_once(&mut self.context, &mut self.snapshots, &mut self.presences).await;
        // tokio's timers do not count the time that the machine is suspended, so the loop reads the
        // clock that does at least once a minute.
        requeue_at.map(|at| Instant::now() + at.since(clock::boot_millis()).min(CLOCK_POLL_INTERVAL))
    }
}

impl Reconciler {
    /// Runs until `stop` resolves, or until a task that this one depends on has ended. It never
    /// waits for a step, because the runner of a step works without the agent.
    ///
    /// # Errors
    /// Returns an error if a task that this one depends on has ended: its messages would never
    /// arrive, so the process has to end.
    pub(crate) async fn run(
        self,
        state: HostState,
        passes: Passes,
        stop: impl Future<Output = Result<(), TaskEnded>>,
    ) -> Result<(), TaskEnded> {
        let mut stop = std::pin::pin!(stop);
        let policy = self.settings.settings.borrow().policy.clone();
        let context = Context::new(state, policy, machine_info());
        if let Some(running) = context.state.steps.running() {
            tracing::info!(run = %running.run_id, step = %running.step, "a step was running: waiting for its end");
            self.executor.await_run(running.clone(), None);
        }
        let watchdog = crate::systemd::watchdog_interval();
        let mut host = HostLoop {
            context,
            snapshots: self.store.mirror.snapshots(),
            presences: self.store.presence.states(),
            checks: self.catalog.registry.status_changes(),
            watchdog: tokio::time::interval(watchdog.unwrap_or(Duration::from_secs(3600))),
            ended: None,
            parts: self,
        };
        let ended = match reconcile::run_until(&mut host, &passes, stop.as_mut()).await {
            Some(stopped) => stopped,
            // If a supervised task has ended, the supervisor knows which one ended first.
            None => match tokio::time::timeout(SUPERVISOR_DELAY, stop).await {
                Ok(stopped) => stopped,
                Err(_) => host.ended.take().map_or(Ok(()), Err),
            },
        };
        if let Err(error) = host.context.save(&host.parts.executor.directory) {
            tracing::error!(%error, "the journal could not be written");
        }
        ended
    }

    /// Runs passes until the plan has nothing to do now; returns when to run the next one.
    async fn reconcile_once(
        &mut self,
        context: &mut Context,
        snapshots: &mut watch::Receiver<Arc<Snapshot>>,
        presences: &mut watch::Receiver<PresenceState>,
    ) -> Option<BootMillis> {
        self.observe_files(context);
        loop {
            let now = clock::boot_millis();
            if context.record_failure.take_if(|(_, at)| *at <= now).is_some() {
                // Before anything is decided, it is known whether the journal can be written again.
                self.save_if_needed(context);
            }
            context.snapshot = snapshots.borrow_and_update().clone();
            let presence = presences.borrow_and_update().clone();
            if matches!(presence, PresenceState::Held { .. }) && presence != context.presence {
                self.metrics.note_name_claim();
            }
            context.presence = presence;
            self.observe_store(context).await;
            self.observe_tasks(context);
            let certificates_again = self.store.certificates.check(&mut context.facts, clock::now());
            // Times are compared with one clock reading, so that none can fall between two.
            let now = clock::now();
            let decision = self.decide(context, now);
            context.warn_of_directory();
            context.passes += 1;
            self.publish_status(context, &decision);
            if let Some(Planned { action: Action::Do(effect), because }) = decision.plan.actions.first() {
                tracing::debug!(%effect, %because, "acting");
                // What is decided after it also says when to look again.
                self.execute_one(context, &decision, effect.clone()).await;
                continue;
            }
            self.save_if_needed(context);
            let is_external = context.policy.driver == Driver::External;
            let times = [
                decision.plan.requeue_at,
                Some(context.store_retry_at).filter(|at| *at > now.boot),
                context.record_failure.as_ref().map(|(_, at)| *at),
                certificates_again,
                is_external.then(|| now.boot.plus(VERSION_FILE_POLL_INTERVAL)),
            ];
            return times.into_iter().flatten().min();
        }
    }

    /// Decides, and records the conclusions of the decisions.
    fn decide(&self, context: &mut Context, now: Now) -> Decision {
        let (claim, published) = (self.claim_of(&context.presence), self.published(context));
        let retry = store_view::retry(&context.snapshot.followed, &context.state.host, context.epoch());
        let decommissioned = store_view::decommissioned(&context.snapshot.followed, &context.state.host);
        let store_ready = context.is_store_ready(now.boot);
        let listed = published.as_ref().map(|published| published.listing.clone());
        let observed = Observed {
            store_trust: context.store_trust.clone(),
            store_ready,
            claim,
            decommissioned,
            version_file: context.version_file.clone(),
            cannot_record: context.record_failure.clone().filter(|(_, at)| *at > now.boot),
            settings_untrusted: self.settings.untrusted.borrow().clone(),
            marked_at: store_view::marked_at(&context.snapshot.followed),
            brakes: context.brakes.known(),
            bad_roster: store_view::bad_roster(&context.snapshot.followed, &context.state.host),
            instance: &self.store.claim.instance,
            live_lease: context.live_lease(),
            commands: self.commands(context, published.as_ref()),
            published,
            facts: &context.facts,
            waits: &context.waits,
            services_seen: context.services_seen,
            addressable: context.addressable.map(|(_, now)| now),
            problems: &context.problems,
            write_id: etcd_session::random_token(),
        };
        let (target, target_since) = (context.target.clone(), context.target_since);
        let desired = Desired { target, target_since, retry, policy: &context.policy };
        let Advance { recorded, decision } = advance(&mut context.state, &desired, &observed, now, jitter());
        for Planned { action, because } in &recorded {
            match action {
                Action::Record(Conclusion::AttemptBegan { .. } | Conclusion::Proven { .. }) => {
                    tracing::info!(conclusion = %action, %because, "decided");
                }
                _ => tracing::debug!(conclusion = %action, %because, "decided"),
            }
            if let Action::Record(conclusion) = action {
                self.note_conclusion(conclusion, &context.state);
            }
            context.unsaved = true;
        }
        // Noted before the listing is corrected, because that may be impossible.
        let is_new = listed.is_some_and(|listed| self.note_listing(context, listed.as_ref()));
        if is_new && !store_ready {
            context.retry_store_now();
            return self.decide(context, now);
        }
        decision
    }

    /// Tells the task that keeps the live lease whether the store lists this host under what it does not stand for.
    /// Returns true if that is new.
    fn note_listing(&self, context: &Context, listed: Option<&Version>) -> bool {
        let driver = context.policy.driver;
        let is_untrue = listed.is_some_and(|listed| context.state.contradicts(listed, driver));
        self.store.presence.contradictions().note(Statement::Listing, context.live_lease(), is_untrue)
    }

    /// Executes one effect and records its result.
    async fn execute_one(&mut self, context: &mut Context, decision: &Decision, effect: Effect) {
        match self.executor.execute(context, decision, effect).await {
            Ok(()) => return,
            Err(ExecuteError::Record(error)) => {
                context.record_failed(&error);
                return;
            }
            Err(ExecuteError::HeldBack(obstacle, revision)) => {
                tracing::info!(obstacle = %obstacle.detail(), "the host does not start");
                context.brakes.refuse(&context.state, obstacle, revision, clock::boot_millis());
                self.observe_rollout(context);
                return;
            }
            Err(ExecuteError::Refused(refusal)) => {
                tracing::info!(
                    %refusal,
                    "the store was not written: a key that the transaction compares has changed"
                );
                if refusal == WriteRefusal::Claim {
                    self.store.presence.check_now();
                }
            }
            Err(ExecuteError::Store(error)) => {
                tracing::warn!(%error, "the store could not be written");
                context.write_error = Some(error.to_string());
            }
        }
        // It is not known what the store holds now, so it is read again.
        context.written = None;
        self.store.mirror.request_resync();
        context.store_failed();
    }

    /// Saves the journal if it is out of date, except during the pause after a failed local write.
    fn save_if_needed(&self, context: &mut Context) {
        if context.record_failure.is_none()
            && let Err(error) = context.save(&self.executor.directory)
        {
            context.record_failed(&error);
        }
    }
}
