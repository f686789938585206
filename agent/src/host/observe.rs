//! Observes what a decision depends on: files of this machine, the keys of the store, the catalog,
//! the checks. What was observed is kept in the context.

use super::Reconciler;
use super::context::Context;
use super::execute::read_version_file;
use crate::rollout::{WantedDriver, WantedRollout};
use crate::{clock, config};
use etcd_session::{PresenceState, jitter};
use planning::host::{
    Addressable, Claim, Commands, Fact, HostProblems, Published, SiteConfig, Target, VersionFile, store_view,
};
use schema::codec::cut;
use schema::instruction::Instruction;
use schema::records::{CHECK_LINE_MAX_BYTES, FailingCheck, FileProblem, ProblemFile, REASON_MAX_BYTES};
use schema::store_trust::StoreTrust;
use schema::time::BootMillis;
use settings::{ValidationDirectory, read_version_file as parse_version_file};

impl Reconciler {
    /// Reads the files of this machine. Others change them at any time, so they are read at each
    /// wake-up.
    pub(super) fn observe_files(&self, context: &mut Context) {
        let settings = self.settings.settings.borrow().clone();
        context.directory_unreadable = None;
        match (config::validation_directory(&settings), &settings.validation_directory) {
            (Ok(read), _) => context.directory = read,
            // The last known entries stay in use.
            (Err(error), Some(path)) => {
                let empty = ValidationDirectory::unreadable(path, &error.to_string());
                context.directory_unreadable = empty.problem.clone();
                context.directory.get_or_insert(empty);
            }
            (Err(_), None) => {}
        }
        context.version_file = match read_version_file(&settings) {
            Ok(text) => VersionFile::Content(text.and_then(|text| parse_version_file(&text))),
            Err(error) => {
                tracing::warn!(%error, "the version file cannot be read");
                VersionFile::Unreadable
            }
        };
    }

    /// Takes over the newest values of the other tasks.
    pub(super) fn observe_tasks(&mut self, context: &mut Context) {
        context.policy = self.policy(context.directory.as_ref());
        let needs = self.catalog.needs.borrow_and_update().clone();
        context.waits = needs.waits.clone();
        context.services_seen = needs.seen;
        self.observe_rollout(context);
        self.observe_end(context);
        self.observe_catalog(context);
        let uploaded = self.bundle.borrow_and_update().clone();
        if let Some(link) = uploaded.filter(|link| context.state.reporting.bundle.as_ref() != Some(link)) {
            context.state.record(Fact::BundleUploaded(link), &context.policy, clock::now(), jitter());
            context.unsaved = true;
        }
        let files = self.file_problems(context);
        context.problems = HostProblems {
            checks: self.failing_checks(),
            unpublished: self.catalog.published.borrow_and_update().unpublished(),
            files,
        };
    }

    /// Returns the policy of the settings together with the entries of the validation directory.
    pub(super) fn policy(&self, directory: Option<&ValidationDirectory>) -> SiteConfig {
        let mut policy = self.settings.settings.borrow().policy.clone();
        if let Some(directory) = directory {
            policy.steps.validate.extend(directory.steps());
        }
        policy
    }

    /// Takes over what is known of the rollout, while it keeps the host from starting.
    pub(super) fn observe_rollout(&mut self, context: &mut Context) {
        let known = self.rollout.known.borrow_and_update().clone();
        let history = self.executor.session.marks().history;
        context.brakes.follow(&context.state);
        let (followed, host) = (&context.snapshot.followed, &context.state.host);
        context.brakes.queued(|| store_view::claims(followed, host, context.written.as_ref()));
        if let Some((of, view)) = known.as_deref()
            && *of == history
        {
            context.brakes.take(view.clone());
        }
        let wanted = match (&context.target, context.brakes.wanted_since()) {
            (Target::Known(instruction), Some(since)) => {
                let (instruction, fence) = (instruction.clone(), context.fence());
                let found = context.rollout_found.clone();
                Some(WantedRollout { history, instruction, fence, since, found })
            }
            _ => {
                context.rollout_found = None;
                None
            }
        };
        self.rollout.wanted.send_if_modified(|old| {
            let differs = *old != wanted;
            *old = wanted;
            differs
        });
    }

    /// Takes over that the rollout has ended, while the host wants to know.
    fn observe_end(&mut self, context: &mut Context) {
        let ended = *self.rollout.ended.borrow_and_update();
        let target = if let Target::Known(target) = &context.target { Some(target.clone()) } else { None };
        let looks = |context: &Context| context.brakes.drives_rollout(&context.state, target.as_ref()?);
        let knows =
            |target: &Instruction| Some(target.order) == ended && context.state.drives_rollout(target);
        if let Some(order) = target.as_ref().filter(|target| knows(target)).map(|target| target.order) {
            context.state.record(Fact::RolloutEnded(order), &context.policy, clock::now(), jitter());
            context.unsaved = true;
        }
        let is_trusted = context.store_trust == StoreTrust::Trusted;
        let fence = if is_trusted { context.fence() } else { None };
        let history = self.executor.session.marks().history;
        let wanted = fence.map(|fence| WantedDriver { history, search: looks(context), fence });
        self.rollout.end_wanted.send_if_modified(|old| {
            let differs = *old != wanted;
            *old = wanted;
            differs
        });
    }

    /// Updates what the catalog makes addressable, while an attempt may depend on that. A settled
    /// host does not read the catalog.
    fn observe_catalog(&self, context: &mut Context) {
        if !context.follows_catalog() {
            context.addressable = None;
            return;
        }
        let shown = self.catalog.reader.snapshot();
        if context.addressable.is_some_and(|(generation, _)| generation == shown.generation) {
            return;
        }
        let digest = shown.view.addressable(&context.state.host);
        let before = context.addressable.map(|(_, before)| before);
        context.addressable = digest.map(|digest| {
            let same = before.filter(|before| before.digest == digest);
            let since = clock::boot_millis();
            (shown.generation, same.unwrap_or(Addressable { digest, since }))
        });
    }

    /// Returns what is wrong with the files of this host.
    fn file_problems(&mut self, context: &Context) -> Vec<FileProblem> {
        let secrets = self.executor.secrets();
        let problem = |file, why: &str| FileProblem {
            file,
            reason: cut(&secrets.redact(why), REASON_MAX_BYTES),
            line: String::new(),
        };
        let settings = self.settings.refused.borrow_and_update().clone();
        let in_use = self.settings.settings.borrow().clone();
        let (role, group) = (in_use.role.as_ref(), in_use.group.as_ref());
        let (followed, host) = (&context.snapshot.followed, &context.state.host);
        let roster = store_view::roster_difference(followed, host, role, group);
        let settings = settings.iter().chain(&roster).map(|why| problem(ProblemFile::Settings, why));
        let services = self.catalog.loaded.borrow_and_update().clone();
        let services = services.errors.iter().map(|why| problem(ProblemFile::Service, why));
        let templates = self.templates.borrow_and_update().clone();
        let mut templates = templates.iter().filter_map(|(target, state)| {
            let fault = state.fault.as_ref()?;
            let line = FailingCheck::last_line(&secrets.redact_check(&fault.output));
            let what = format!("{}: {}", target.display(), fault.what);
            Some(FileProblem { line, ..problem(ProblemFile::Template, &what) })
        });
        // Many service files with errors must not hide that a template has one.
        let first = templates.next();
        settings.chain(first).chain(services).chain(templates).collect()
    }

    /// Returns the checks that do not pass, each with the last line of its output. Checks without a
    /// result yet are left out.
    fn failing_checks(&self) -> Vec<FailingCheck> {
        let failing = self.catalog.registry.failing().into_iter();
        failing
            .map(|check| FailingCheck {
                service: check.service,
                check: cut(&check.name, CHECK_LINE_MAX_BYTES),
                status: check.state.status,
                line: FailingCheck::last_line(&self.executor.secrets().redact_check(&check.state.output)),
            })
            .collect()
    }

    /// Returns the commands that run under claims of this host, or did.
    pub(super) fn commands(&self, context: &Context, published: Option<&Published>) -> Commands {
        let held = published.and_then(|published| published.claims.claims.as_ref());
        let purposes = held.into_iter().flat_map(|held| &held.purposes);
        self.command_locks.observe(purposes, context.state.cycles.current.is_some())
    }

    /// Returns who holds the name of this host.
    pub(super) fn claim_of(&self, presence: &PresenceState) -> Claim {
        match presence {
            PresenceState::NotYet => Claim::NotYet,
            PresenceState::Held { .. } => Claim::Held,
            PresenceState::Contested { holder } => {
                Claim::Contested { holder: holder.clone(), ours: self.store.claim.to_string() }
            }
        }
    }

    /// Returns what the store holds for this host. `None` without a claim, and while that is not
    /// known.
    pub(super) fn published(&self, context: &Context) -> Option<Published> {
        let PresenceState::Held { live_revision, .. } = context.presence else { return None };
        let (snapshot, host) = (&context.snapshot, &context.state.host);
        let published =
            store_view::published(&snapshot.followed, host, context.written.as_ref(), live_revision);
        // Without a connection the mirror retries by itself, at its own pace.
        if published.is_none() && snapshot.connected {
            self.store.mirror.request_resync();
        }
        published
    }
}

impl Context {
    /// Logs what is wrong with the validation directory, if that has changed.
    pub(super) fn warn_of_directory(&mut self) {
        let Some(directory) = &self.directory else { return };
        let skipped = if directory.skipped.is_empty() {
            None
        } else {
            let names: Vec<String> = directory.skipped.iter().map(ToString::to_string).collect();
            Some(format!("these files of the validation directory do not validate: {}", names.join(", ")))
        };
        let unreadable = self.directory_unreadable.clone();
        let warnings = [unreadable, skipped];
        let warnings: Vec<String> = warnings.into_iter().flatten().collect();
        let warnings = (!warnings.is_empty()).then(|| warnings.join("; "));
        if self.directory_logged != warnings {
            warnings.iter().for_each(|warnings| tracing::warn!("{warnings}"));
            self.directory_logged = warnings;
        }
    }

    /// True if the store can be written now. For a store that went back the mirror need not be
    /// connected, so that the host reports as soon as possible that it is blocked.
    pub(super) fn is_store_ready(&self, now: BootMillis) -> bool {
        let followed = self.snapshot.connected || matches!(self.store_trust, StoreTrust::WentBack { .. });
        followed && now >= self.store_retry_at
    }

    /// True while an attempt may depend on what the catalog makes addressable.
    pub(super) fn follows_catalog(&self) -> bool {
        let wanted = match &self.target {
            Target::Known(instruction) => Some(&instruction.version),
            _ => None,
        };
        self.state.attempt.is_some() || (wanted.is_some() && wanted != self.state.versions.installed.as_ref())
    }
}
