//! The reconcile loop of the host: wake up, observe, decide, execute one effect, decide again. It
//! owns the journal and the host's state; all other parts of the agent hand it snapshots.
//!
//! This file is long because observing the store and executing effects still share one context.

use crate::catalog::{Fencing, Needs, PublishedServices, Reader, Trust};
use crate::certificates::Certificates;
use crate::checks::CheckRegistry;
use crate::context::Context;
use crate::execute::Executor;
use crate::files::Directory;
use crate::status::Status;
use crate::step::RunResult;
use crate::{clock, config, failpoint, journal, store_view};
use etcd_session::{Gate, Mirror, Presence, PresenceState, Session, Snapshot, StoreError, jitter};
use planning::host::{
    Addressable, Claim, Decision, Desired, Fact, HostState, Observed, Published, RunningStep,
    ServiceProblems, StepReport, Target, advance,
};
use planning::policy::Policy;
use planning::settings::{Settings, ValidationDirectory, read_version_file};
use schema::codec::{cut, log_tail};
use schema::names::Version;
use schema::plan::{Action, Conclusion, Effect, Planned};
use schema::records::{CHECK_LINE_MAX_BYTES, Driver, FailingCheck, LiveClaim, MachineInfo, Maintenance};
use schema::store_trust::{StoreMemory, StoreTrust, assess};
use schema::time::BootMillis;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// Why the loop woke up. It carries no data, so ten changes can be one wake-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wake {
    StoreChanged,
    ClaimChanged,
    StepEnded,
    TimeCame,
    SettingsChanged,
    ServicesChanged,
    CatalogChanged,
    ChecksChanged,
}

/// The error if a task that the loop depends on has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the task that {0} has ended")]
pub(crate) struct TaskEnded(&'static str);

/// The parts of the reconcile loop.
pub(crate) struct Reconciler {
    /// The settings, replaced as a whole on SIGHUP.
    pub settings: watch::Receiver<Arc<Settings>>,
    /// The state directory.
    pub directory: Directory,
    /// The host's state, which the journal keeps.
    pub state: HostState,
    pub session: Session,
    /// The mirror of the keys in [`store_view::scope`].
    pub mirror: Mirror,
    pub presence: Presence,
    /// Tells presence whether the store may be written.
    pub gate: watch::Sender<Gate>,
    /// The claim of this host, for messages.
    pub claim: LiveClaim,
    /// The facts about the machine, for reports.
    pub facts: MachineInfo,
    /// The certificates of the connection to the store.
    pub certificates: Certificates,
    pub executor: Executor,
    /// The status that other tasks show.
    pub status: watch::Sender<Arc<Status>>,
    /// Steps that ended, with their results.
    pub ends: mpsc::Receiver<(RunningStep, RunResult)>,
    /// The checks of this host and their results.
    pub registry: Arc<CheckRegistry>,
    /// The catalog, for what it makes addressable.
    pub reader: Reader,
    /// The unmet needs of this host.
    pub needs: watch::Receiver<Arc<Needs>>,
    /// The services that this host publishes.
    pub services: watch::Receiver<Arc<PublishedServices>>,
    /// Why the settings are not trusted; `None` if only root and the agent's user can write them.
    pub untrusted: watch::Receiver<Option<String>>,
    /// Tells the catalog's tasks whether the catalog of this store counts.
    pub trust: watch::Sender<Trust>,
    /// Tells the publisher whether and how services may be published.
    pub fencing: watch::Sender<Fencing>,
    /// Interval between two pings of the service manager's watchdog; `None` without a watchdog.
    pub watchdog: Option<Duration>,
}

/// Name of the file that holds the last known target. The `orchestrate` command reads it too.
const LAST_TARGET: &str = "current_version";
/// Interval at which the version file of an external driver is read.
const VERSION_FILE_POLL_INTERVAL: Duration = Duration::from_secs(1);

impl Reconciler {
    /// Runs until `stop` resolves. It never waits for a step: the runner of a step needs no agent.
    ///
    /// # Errors
    /// Returns an error if a task that this one depends on has ended: its messages would never
    /// arrive, so the process has to end.
    pub(crate) async fn run(mut self, stop: impl Future<Output = ()>) -> Result<(), TaskEnded> {
        tokio::pin!(stop);
        let mut snapshots = self.mirror.snapshots();
        let mut presences = self.presence.states();
        let mut catalog = self.reader.changes();
        let mut checks = self.registry.status_changes();
        let mut context = self.first_context();
        if let Some(running) = &self.state.running {
            tracing::info!(run = %running.run_id, step = %running.step, "a step was running: waiting for its end");
            self.executor.await_run(running.clone(), None);
        }
        if failpoint::is_wanted(failpoint::MIRROR_ENDS) {
            self.mirror.end();
        }
        let mut watchdog = tokio::time::interval(self.watchdog.unwrap_or(Duration::from_secs(3600)));
        let ended = loop {
            // Marked as seen before the pass, so that a change during it wakes the loop again.
            catalog.borrow_and_update();
            checks.borrow_and_update();
            let requeue_at = self.reconcile_once(&mut context, &snapshots, &presences).await;
            let follows_catalog = self.follows_catalog(&context);
            let wake = async {
                tokio::select! {
                    // All branches are cancel safe: receivers of watch channels, the queue of ended
                    // steps and timers lose nothing when dropped. A channel whose sender was
                    // dropped would be ready for ever, so that is an error and no wake-up.
                    changed = snapshots.changed() => {
                        changed.map(|()| Wake::StoreChanged).map_err(|_| TaskEnded("follows the store"))
                    }
                    changed = presences.changed() => {
                        changed.map(|()| Wake::ClaimChanged).map_err(|_| TaskEnded("holds the name of the host"))
                    }
                    Some((running, result)) = self.ends.recv() => {
                        end_step(&mut self.state, &mut context, &self.executor, running, result);
                        Ok(Wake::StepEnded)
                    }
                    () = sleep_until(requeue_at) => Ok(Wake::TimeCame),
                    changed = self.settings.changed() => {
                        changed.map(|()| Wake::SettingsChanged).map_err(|_| TaskEnded("reads the settings"))
                    }
                    changed = self.untrusted.changed() => {
                        changed.map(|()| Wake::SettingsChanged).map_err(|_| TaskEnded("reads the settings"))
                    }
                    changed = self.needs.changed() => {
                        changed.map(|()| Wake::ServicesChanged).map_err(|_| TaskEnded("follows what the host needs"))
                    }
                    changed = self.services.changed() => {
                        changed.map(|()| Wake::ServicesChanged).map_err(|_| TaskEnded("publishes the services"))
                    }
                    changed = catalog.changed(), if follows_catalog => {
                        changed.map(|()| Wake::CatalogChanged).map_err(|_| TaskEnded("follows the catalog"))
                    }
                    changed = checks.changed() => {
                        changed.map(|()| Wake::ChecksChanged).map_err(|_| TaskEnded("runs the checks"))
                    }
                    _ = watchdog.tick() => {
                        crate::systemd::ping();
                        Ok(Wake::TimeCame)
                    }
                }
            };
            tokio::select! {
                // Stopping comes first, because the signal to stop also ends some of these tasks.
                biased;
                () = &mut stop => break Ok(()),
                reason = wake => match reason {
                    Ok(reason) => tracing::trace!(?reason, "awake"),
                    Err(ended) => break Err(ended),
                }
            }
        };
        if context.unsaved
            && let Err(error) = journal::save(&self.directory, &self.state)
        {
            tracing::error!(%error, "the journal could not be written");
        }
        ended
    }

    fn first_context(&self) -> Context {
        Context {
            unsaved: true,
            policy: self.settings.borrow().policy.clone(),
            directory: None,
            directory_logged: None,
            store_trust: StoreTrust::Unread,
            target: Target::Unread,
            target_since: clock::boot_millis(),
            remembered_target: None,
            snapshot: Arc::default(),
            presence: PresenceState::NotYet,
            written: None,
            store_failures: 0,
            write_error: None,
            store_retry_at: BootMillis(0),
            record_failure: None,
            waits: Vec::new(),
            services_seen: None,
            problems: ServiceProblems::default(),
            addressable: None,
            passes: 0,
            record_failure_logged: None,
        }
    }

    /// Runs passes until the plan has nothing to do now; returns when to run the next one.
    async fn reconcile_once(
        &mut self,
        context: &mut Context,
        snapshots: &watch::Receiver<Arc<Snapshot>>,
        presences: &watch::Receiver<PresenceState>,
    ) -> Option<BootMillis> {
        loop {
            let now = clock::now();
            context.record_failure.take_if(|(_, at)| *at <= now.boot);
            context.policy = self.policy(context);
            self.mirror.poll_also(&store_view::listing_keys(&self.state.host, self.state.listing()));
            context.snapshot = snapshots.borrow().clone();
            context.presence = presences.borrow().clone();
            let needs = self.needs.borrow_and_update().clone();
            context.waits = needs.waits.clone();
            context.services_seen = needs.seen;
            self.observe_store(context).await;
            let now = clock::now();
            self.observe_catalog(context);
            context.problems = ServiceProblems {
                checks: self.failing_checks(),
                unpublished: self.services.borrow_and_update().unpublished(),
            };
            let certificates_again = self.certificates.check(&mut self.facts, now);
            let Some(decision) = self.advance(context) else { continue };
            context.passes += 1;
            self.publish_status(context, &decision);
            let mut requeue_at = decision.plan.requeue_at;
            if let Some(Planned { action: Action::Do(effect), because }) = decision.plan.actions.first() {
                tracing::debug!(%effect, %because, "acting");
                if self.execute_one(context, &decision, effect.clone()).await {
                    continue;
                }
            }
            self.save_if_needed(context);
            let mut soonest =
                |at: BootMillis| requeue_at = Some(requeue_at.map_or(at, |other| other.min(at)));
            if context.store_retry_at > now.boot {
                soonest(context.store_retry_at);
            }
            if let Some((_, at)) = &context.record_failure {
                soonest(*at);
            }
            certificates_again.map(&mut soonest);
            if context.policy.driver == Driver::External {
                soonest(now.boot.plus(VERSION_FILE_POLL_INTERVAL));
            }
            return requeue_at;
        }
    }

    /// Returns the policy of the settings together with the entries of the validation directory.
    /// While the directory cannot be read, its last known entries are used.
    fn policy(&self, context: &mut Context) -> Policy {
        let settings = self.settings.borrow().clone();
        let mut policy = settings.policy.clone();
        let mut unreadable = None;
        match (config::validation_directory(&settings), &settings.validation_directory) {
            (Ok(read), _) => context.directory = read,
            (Err(error), Some(path)) => {
                let empty = ValidationDirectory::unreadable(path, &error.to_string());
                unreadable = empty.problem.clone();
                context.directory.get_or_insert(empty);
            }
            (Err(_), None) => {}
        }
        let rule = self.state.validation_rule;
        if let Some(directory) = &context.directory {
            policy.steps.validate.extend(directory.steps(rule));
            let skipped = (!directory.skipped.is_empty()).then(|| {
                let names: Vec<String> = directory.skipped.iter().map(ToString::to_string).collect();
                format!("these files of the validation directory do not validate: {}", names.join(", "))
            });
            let warnings = [unreadable, directory.warning(rule), skipped];
            let warnings: Vec<String> = warnings.into_iter().flatten().collect();
            let warnings = (!warnings.is_empty()).then(|| warnings.join("; "));
            if context.directory_logged != warnings {
                warnings.iter().for_each(|warnings| tracing::warn!("{warnings}"));
                context.directory_logged = warnings;
            }
        }
        policy
    }

    /// Updates what the catalog makes addressable, while an attempt may depend on that. A settled
    /// host does not read the catalog.
    fn observe_catalog(&self, context: &mut Context) {
        if !self.follows_catalog(context) {
            context.addressable = None;
            return;
        }
        let shown = self.reader.snapshot();
        if context.addressable.is_some_and(|(generation, _)| generation == shown.generation) {
            return;
        }
        let digest = shown.view.addressable(&self.state.host);
        let before = context.addressable.map(|(_, before)| before);
        context.addressable = digest.map(|digest| {
            let same = before.filter(|before| before.digest == digest);
            let since = clock::boot_millis();
            (shown.generation, same.unwrap_or(Addressable { digest, since }))
        });
    }

    /// Returns the checks that do not pass, each with the last line of its output. Checks without a
    /// result yet are left out.
    fn failing_checks(&self) -> Vec<FailingCheck> {
        let failing = self.registry.failing().into_iter();
        failing
            .map(|check| FailingCheck {
                service: check.service,
                check: cut(&check.name, CHECK_LINE_MAX_BYTES),
                status: check.state.status,
                line: FailingCheck::last_line(&self.executor.redact(&check.state.output)),
            })
            .collect()
    }

    fn follows_catalog(&self, context: &Context) -> bool {
        let wanted = match &context.target {
            Target::Known(instruction) => Some(&instruction.version),
            _ => None,
        };
        self.state.attempt.is_some() || (wanted.is_some() && wanted != self.state.installed.as_ref())
    }

    /// Decides, and records the conclusions of the decisions. `None` if the policy has to be
    /// computed again before the next decision.
    fn advance(&mut self, context: &mut Context) -> Option<Decision> {
        let now = clock::now();
        let epoch = self.state.store.as_ref().map_or(0, |s| s.epoch);
        let desired = Desired {
            target: context.target.clone(),
            target_since: context.target_since,
            retry: store_view::retry(&context.snapshot, &self.state.host, epoch),
            policy: &context.policy,
        };
        let claim = match &context.presence {
            PresenceState::NotYet => Claim::NotYet,
            PresenceState::Held { .. } => Claim::Held,
            PresenceState::Contested { holder } => {
                Claim::Contested { holder: holder.clone(), ours: self.claim.to_string() }
            }
        };
        let observed = Observed {
            store_trust: context.store_trust.clone(),
            store_ready: self.is_store_ready(context, now.boot),
            claim,
            decommissioned: store_view::decommissioned(&context.snapshot, &self.state.host),
            version_file: self.version_file(context),
            cannot_record: context.record_failure.clone().filter(|(_, at)| *at > now.boot),
            settings_untrusted: self.untrusted.borrow().clone(),
            published: self.published(context),
            facts: &self.facts,
            waits: &context.waits,
            services_seen: context.services_seen,
            addressable: context.addressable.map(|(_, now)| now),
            problems: &context.problems,
        };
        let advance = advance(&mut self.state, &desired, &observed, now, jitter());
        for Planned { action, because } in &advance.recorded {
            match action {
                Action::Record(Conclusion::AttemptBegan { .. } | Conclusion::Proven { .. }) => {
                    tracing::info!(conclusion = %action, %because, "decided");
                }
                _ => tracing::debug!(conclusion = %action, %because, "decided"),
            }
            context.unsaved = true;
        }
        advance.decision
    }

    /// True if the store can be written now. For a store that went back the mirror need not be
    /// connected, so that the host reports as soon as possible that it is blocked.
    fn is_store_ready(&self, context: &Context, now: BootMillis) -> bool {
        let followed =
            context.snapshot.connected || matches!(context.store_trust, StoreTrust::WentBack { .. });
        followed && now >= context.store_retry_at
    }

    fn version_file(&self, context: &Context) -> Option<Version> {
        match self.executor.read_version_file() {
            Ok(text) => text.and_then(|text| read_version_file(&text)),
            Err(error) => {
                tracing::warn!(%error, "the version file cannot be read");
                // A file that cannot be read does not mean that the host has another version.
                match context.policy.driver {
                    Driver::Agent => self.state.installed.clone(),
                    Driver::External => None,
                }
            }
        }
    }

    /// Returns what the store holds for this host, as last written or as read since then. `None`
    /// without a claim, and while both are older than the claim.
    fn published(&self, context: &Context) -> Option<Published> {
        let PresenceState::Held { live_revision, .. } = context.presence else { return None };
        let read_at = context.snapshot.read_revision;
        match &context.written {
            Some((at, published)) if *at > read_at && *at > live_revision => Some(published.clone()),
            _ if read_at >= live_revision => Some(store_view::published(&context.snapshot, &self.state.host)),
            _ => {
                // Without a connection the mirror retries by itself, at its own pace.
                if context.snapshot.connected {
                    self.mirror.request_resync();
                }
                None
            }
        }
    }

    /// Processes the mirror's snapshot: judges the store, opens the gate, remembers the target.
    async fn observe_store(&mut self, context: &mut Context) {
        let snapshot = context.snapshot.clone();
        if snapshot.reads == 0 {
            return;
        }
        let host = self.state.host.clone();
        let history = self.session.marks().history;
        let seen = store_view::seen(&snapshot, &host, self.state.store.as_ref(), history);
        let mut store_trust = assess(self.state.store.as_ref(), &seen);
        match &store_trust {
            StoreTrust::Unclaimed => self.claim_store(context).await,
            StoreTrust::Accepted { epoch } => {
                tracing::info!(epoch, "the store was accepted by an operator");
                self.session.begin_history(seen.revision, seen.raft_term);
                self.mirror.request_resync();
                self.state.store = seen.identity.as_ref().map(|i| StoreMemory::first(i, &seen));
                context.written = None;
                context.unsaved = true;
                store_trust = StoreTrust::Trusted;
            }
            StoreTrust::Trusted => match (&mut self.state.store, &seen.identity) {
                (Some(memory), _) => memory.note(&seen),
                (none, Some(identity)) => {
                    *none = Some(StoreMemory::first(identity, &seen));
                    context.unsaved = true;
                }
                (None, None) => {}
            },
            StoreTrust::WentBack { by } => {
                let is_news = self.state.store.as_ref().is_some_and(|memory| memory.went_back.is_none());
                if is_news || seen.regressed_revision.is_some() || seen.regressed_term.is_some() {
                    // That the store went back is remembered below. From now on reads are compared
                    // with the marks of this store as it is, so that the mirror follows it.
                    self.session.begin_history(seen.revision, seen.raft_term);
                }
                if let Some(memory) = self.state.store.as_mut().filter(|m| m.went_back.is_none()) {
                    tracing::error!(%by, "the store went back: nothing starts until `orchestrate store accept`");
                    memory.went_back = Some(by.clone());
                    // The last write belongs to another history of the store.
                    context.written = None;
                    context.unsaved = true;
                }
            }
            StoreTrust::Unreadable { why } => {
                if context.store_trust != store_trust {
                    tracing::error!(%why, "the store's identity cannot be read: nothing is written");
                }
            }
            StoreTrust::OtherLineage { ours, theirs } => {
                // The marks of another fleet's store do not apply to the store of this host.
                let marks = self.session.marks();
                if let Some(memory) = &self.state.store
                    && (marks.revision, marks.raft_term) != (memory.revision, memory.raft_term)
                {
                    self.session.begin_history(memory.revision, memory.raft_term);
                }
                if context.store_trust != store_trust {
                    tracing::error!(%ours, %theirs, "this is another fleet's store: nothing is written to it");
                }
            }
            StoreTrust::Unread => {}
        }
        self.open_gate(&store_trust, &snapshot);
        self.publish_trust(&store_trust, &snapshot);
        self.check_claim(context, &snapshot);
        context.store_trust = store_trust;
        let epoch = self.state.store.as_ref().map_or(0, |s| s.epoch);
        let target = store_view::target(&snapshot, epoch);
        if target != context.target {
            tracing::info!(?target, "the target");
            context.target = target;
            context.target_since = clock::boot_millis();
        }
        if context.store_trust == StoreTrust::Trusted {
            self.remember_target(context);
        }
        if store_view::decommissioned(&snapshot, &host)
            && let Some(memory) = self.state.store.as_mut().filter(|m| m.report_revision.is_some())
        {
            // Decommissioning a host deletes its report, so a missing report does not mean that the
            // store went back.
            memory.report_revision = None;
            context.unsaved = true;
        }
    }

    /// Writes the last known target to its file. `orchestrate current_version` answers from this
    /// file when the store is unreachable, so that a configuration run does not abort.
    fn remember_target(&self, context: &mut Context) {
        let Target::Known(instruction) = &context.target else { return };
        let version = &instruction.version;
        if context.remembered_target.as_ref() == Some(version) {
            return;
        }
        if let Err(error) = self.directory.replace(LAST_TARGET, version.as_str().as_bytes(), 0o644) {
            tracing::warn!(%error, "the last known target could not be written");
        }
        context.remembered_target = Some(version.clone());
    }

    async fn claim_store(&mut self, context: &mut Context) {
        if clock::boot_millis() < context.store_retry_at {
            return;
        }
        match self.session.claim_store(self.executor.deadline()).await {
            Ok(()) => self.mirror.request_resync(),
            Err(error @ StoreError::PermissionDenied { .. }) => {
                tracing::warn!(%error, "the store has no identity yet; an operator must create it: orchestrate store accept --version V");
            }
            Err(error) => tracing::debug!(%error, "the store's identity could not be written"),
        }
        // Even after success, so that the next attempt waits until a snapshot shows the identity.
        context.store_failed();
    }

    /// Opens the gate for the store of this host, even if that store went back: the name may be
    /// claimed and the report written there. Closes it otherwise.
    fn open_gate(&self, store_trust: &StoreTrust, snapshot: &Snapshot) {
        let open = matches!(store_trust, StoreTrust::Trusted | StoreTrust::WentBack { .. });
        let store_revision = snapshot.keys.get(&schema::keys::Key::Store).map_or(0, |e| e.mod_revision);
        let history = self.session.marks().history;
        let gate = Gate { open, store_revision, history, memory: self.state.store.clone() };
        self.gate.send_if_modified(|old| {
            let differs = old.differs(&gate);
            *old = gate;
            differs
        });
    }

    /// Sends trust and fencing to the tasks of the catalog. The catalog of a store that went back
    /// or belongs to another fleet does not count, and nothing is published there.
    fn publish_trust(&self, store_trust: &StoreTrust, snapshot: &Snapshot) {
        use schema::keys::Key;
        let revision = |key: Key| snapshot.keys.get(&key).map_or(0, |entry| entry.mod_revision);
        let is_trusted = *store_trust == StoreTrust::Trusted;
        let epoch = self.state.store.as_ref().map_or(0, |store| store.epoch);
        let trust = Trust { epoch: is_trusted.then_some(epoch), release: revision(Key::DropStale) };
        self.trust.send_if_modified(|old| std::mem::replace(old, trust) != trust);
        let host = &self.state.host;
        let maintenance = snapshot.keys.get(&Key::Maintenance(host.clone()));
        let maintenance = maintenance.map(|entry| schema::codec::read::<Maintenance>(&entry.value));
        let maintenance = match maintenance {
            // The last maintenance marks that could be read stay in effect.
            Some(Err(error)) => {
                tracing::warn!(%error, "the maintenance marks of this host cannot be read");
                self.fencing.borrow().maintenance.clone()
            }
            found => found.and_then(Result::ok).unwrap_or_default(),
        };
        let fencing = Fencing {
            store_revision: is_trusted.then(|| revision(Key::Store)),
            history: self.session.marks().history,
            decommissioned: store_view::decommissioned(snapshot, host),
            maintenance,
        };
        self.fencing.send_if_modified(|old| {
            let differs = *old != fencing;
            if differs {
                *old = fencing;
            }
            differs
        });
    }

    /// Asks presence to check the claim and the roster entry if the snapshot shows that the claim
    /// changed or the entry is missing.
    fn check_claim(&self, context: &Context, snapshot: &Snapshot) {
        use schema::keys::Key;
        let PresenceState::Held { live_revision, .. } = context.presence else { return };
        let revision = |key: Key| snapshot.keys.get(&key).map(|e| e.mod_revision);
        let is_held = revision(Key::Live(self.state.host.clone())) == Some(live_revision);
        let enlisted = revision(Key::Host(self.state.host.clone())).is_some();
        if snapshot.keys.revision > live_revision && !(is_held && enlisted) {
            self.presence.check_now();
        }
    }

    /// Executes one effect and records its result. Returns false if the pass is over.
    async fn execute_one(&mut self, context: &mut Context, decision: &Decision, effect: Effect) -> bool {
        match self
            .executor
            .execute(&mut self.state, context, &self.directory, &self.session, &self.facts, decision, effect)
            .await
        {
            Ok(go_on) => go_on,
            Err(crate::execute::ExecuteError::Record(error)) => {
                context.record_failed(&error);
                true
            }
            Err(crate::execute::ExecuteError::Refused(refusal)) => {
                tracing::info!(?refusal, "the transaction was refused");
                if refusal == schema::writes::WriteRefusal::Claim {
                    self.presence.check_now();
                }
                self.mirror.request_resync();
                context.written = None;
                context.store_failed();
                true
            }
            Err(crate::execute::ExecuteError::Store(error)) => {
                tracing::warn!(%error, "the store could not be written");
                context.write_error = Some(error.to_string());
                // It is not known whether the write was applied, so the store is read again.
                context.written = None;
                self.mirror.request_resync();
                context.store_failed();
                true
            }
        }
    }

    /// Saves the journal if it is out of date, except during the pause after a failed local write.
    fn save_if_needed(&mut self, context: &mut Context) {
        if context.unsaved && context.record_failure.is_none() {
            match journal::save(&self.directory, &self.state) {
                Ok(()) => context.recorded(),
                Err(error) => context.record_failed(&error),
            }
        }
    }

    fn publish_status(&self, context: &Context, decision: &Decision) {
        let before = self.status.borrow().clone();
        if before.decision.as_ref().map(|d| &d.verdict) != Some(&decision.verdict) {
            let verdict = decision.verdict.as_str();
            tracing::info!(verdict, detail = decision.verdict.message(), "the verdict of this host");
            crate::systemd::status(&format!("{verdict} {}", decision.verdict.message()));
        }
        self.status.send_replace(Arc::new(Status {
            host: Some(self.state.host.clone()),
            decision: Some(decision.clone()),
            target: context.target.clone().into(),
            installed: self.state.installed.clone(),
            listed: self.state.listing().cloned(),
            running: self.state.running.clone(),
            store_trust: context.store_trust.clone(),
            presence: context.presence.clone(),
            snapshot: context.snapshot.clone(),
            write_trouble: context.write_error.clone(),
            steps_run: self.executor.steps_run(),
            passes: context.passes,
            validation: context.directory.clone(),
            validation_rule: self.state.validation_rule,
            certificates: self.facts.certificates.clone(),
        }));
    }
}

/// Logs the end of a step and records it in the host's state.
fn end_step(
    state: &mut HostState,
    context: &mut Context,
    executor: &Executor,
    running: RunningStep,
    result: RunResult,
) {
    let RunningStep { phase, step, .. } = running;
    tracing::info!(%phase, %step, end = %result.end, leftovers = result.leftovers, "step ended");
    let log = log_tail(executor.redact(&result.output).lines());
    let report = StepReport { phase, step, end: result.end, log };
    state.record(Fact::StepEnded(report), &context.policy, clock::now(), jitter());
    context.unsaved = true;
}

async fn sleep_until(at: Option<BootMillis>) {
    match at {
        // tokio's timers do not count the time that the machine is suspended, so the loop reads the
        // clock that does at least once a minute.
        Some(at) => tokio::time::sleep(at.since(clock::boot_millis()).min(Duration::from_secs(60))).await,
        None => std::future::pending().await,
    }
}
