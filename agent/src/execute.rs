//! Executes the effects of a plan. It decides nothing: each effect is executed as it is, the
//! journal is on disk before anything outside this process changes (only a report is written
//! without that), and the outcome is recorded as a fact.

use crate::catalog::FilesHandle;
use crate::context::Context;
use crate::files::Directory;
use crate::secrets::Secrets;
use crate::step::{RUN_ID_VARIABLE, RunResult, Runs};
use crate::{clock, failpoint, journal, trust};
use etcd_session::{Deadline, PresenceState, Session, StoreError, Written, jitter};
use planning::host::{Decision, Fact, HostState, RunningStep};
use planning::policy::{Step, StepEnd};
use planning::settings::{Settings, VERSION_PLACEHOLDER};
use schema::keys::StatusState;
use schema::names::{StatusType, Version};
use schema::plan::Effect;
use schema::records::{MachineInfo, StatusRecord};
use schema::steps::StepPhase;
use schema::store_trust::StoreTrust;
use schema::writes::host::{HostWrite, Listing};
use schema::writes::{Fence, WriteRefusal};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

const STORE_TIMEOUT: Duration = Duration::from_secs(8);
const VERSION_FILE_MAX_BYTES: u64 = 4096;

/// Why an effect was not executed.
#[derive(Debug)]
pub(crate) enum ExecuteError {
    /// Local state could not be written.
    Record(io::Error),
    /// A comparison of the transaction failed.
    Refused(WriteRefusal),
    /// The store could not be written.
    Store(StoreError),
}

pub(crate) struct Executor {
    settings: watch::Receiver<Arc<Settings>>,
    program: PathBuf,
    runs: Runs,
    secrets: Secrets,
    ends: mpsc::Sender<(RunningStep, RunResult)>,
    steps_run: AtomicU64,
    /// Writes the catalog's files, which a step may read.
    files: Option<FilesHandle>,
}

impl Executor {
    /// Creates an executor. `program` is this program, which is also the runner of each step.
    pub(crate) fn new(
        settings: watch::Receiver<Arc<Settings>>,
        program: PathBuf,
        runs: Runs,
        secrets: Secrets,
        ends: mpsc::Sender<(RunningStep, RunResult)>,
    ) -> Self {
        let steps_run = AtomicU64::new(0);
        Self { settings, program, runs, secrets, ends, steps_run, files: None }
    }

    /// From now on, each step starts after these files were brought up to date with the catalog.
    pub(crate) fn keep_up(&mut self, files: FilesHandle) {
        self.files = Some(files);
    }

    /// Returns the number of steps started since this process started.
    pub(crate) fn steps_run(&self) -> u64 {
        self.steps_run.load(Ordering::Relaxed)
    }

    /// Returns the deadline of a write to the store that starts now.
    pub(crate) fn deadline(&self) -> Deadline {
        Deadline::within(STORE_TIMEOUT)
    }

    /// Removes the known secrets from the output of a step.
    pub(crate) fn redact(&self, text: &str) -> String {
        self.secrets.redact(text)
    }

    fn version_file(&self) -> (PathBuf, String) {
        let path = self.settings.borrow().version_file.clone();
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        (path.parent().map(Path::to_owned).unwrap_or_default(), name)
    }

    pub(crate) fn read_version_file(&self) -> io::Result<Option<String>> {
        let (directory, name) = self.version_file();
        let bytes = match Directory::open(&directory) {
            Ok(directory) => directory.read(&name, VERSION_FILE_MAX_BYTES)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Executes an effect. Returns false if there is nothing to do until the next wake-up.
    #[expect(clippy::too_many_arguments, reason = "borrows of the reconciler's parts, one caller")]
    pub(crate) async fn execute(
        &mut self,
        state: &mut HostState,
        context: &mut Context,
        directory: &Directory,
        session: &Session,
        facts: &MachineInfo,
        decision: &Decision,
        effect: Effect,
    ) -> Result<bool, ExecuteError> {
        match effect {
            Effect::WriteVersionFile { version } => {
                save(state, context, directory)?;
                self.write_version_file(&version).map_err(ExecuteError::Record)?;
                failpoint::reach("agent-after-version-file");
            }
            Effect::RunStep { phase, step } => {
                return self.run_step(state, context, directory, session, phase, step.as_str()).await;
            }
            Effect::CommitStart { instruction } => {
                save(state, context, directory)?;
                failpoint::reach("agent-before-start-transaction");
                let target = Some(instruction.order.revision);
                self.write(state, context, session, facts, decision, Listing::Remove, target).await?;
                failpoint::reach("agent-after-start-transaction");
                state.record(Fact::Started, &context.policy, clock::now(), jitter());
            }
            Effect::Announce { version } => {
                save(state, context, directory)?;
                let listing = Listing::Set(version, clock::now().wall);
                self.write(state, context, session, facts, decision, listing, None).await?;
                failpoint::reach("agent-after-done-transaction");
            }
            Effect::Withdraw => {
                save(state, context, directory)?;
                self.write(state, context, session, facts, decision, Listing::Remove, None).await?;
            }
            Effect::Report => {
                self.write(state, context, session, facts, decision, Listing::Keep, None).await?;
            }
        }
        Ok(true)
    }

    fn write_version_file(&self, version: &Version) -> io::Result<()> {
        let (directory, name) = self.version_file();
        Directory::open(&directory)?.replace(&name, version.as_str().as_bytes(), 0o644)
    }

    /// Commits one transaction of the host, which includes the report of this decision.
    #[expect(clippy::too_many_arguments, reason = "as `execute`")]
    async fn write(
        &self,
        state: &mut HostState,
        context: &mut Context,
        session: &Session,
        facts: &MachineInfo,
        decision: &Decision,
        listing: Listing,
        target_revision: Option<i64>,
    ) -> Result<(), ExecuteError> {
        let PresenceState::Held { lease, live_revision } = context.presence else {
            return Err(ExecuteError::Refused(WriteRefusal::Claim));
        };
        let store = context.snapshot.keys.get(&schema::keys::Key::Store);
        let fence = Fence { live_revision, store_revision: store.map_or(0, |e| e.mod_revision) };
        let now = clock::now();
        let write_id = etcd_session::random_token();
        let waits = planning::host::waits_of(state, &context.policy, &context.waits);
        let report = state.report(decision, &context.target, facts, waits, &context.problems, now, write_id);
        // A store that went back gets no results, but the report may say that the host is blocked.
        let trusted = context.store_trust == StoreTrust::Trusted;
        let mut published = match context.written.clone() {
            Some((at, published)) if at > context.snapshot.read_revision => published,
            _ => crate::store_view::published(&context.snapshot, &state.host),
        };
        let mut statuses = if trusted { state.statuses.clone() } else { BTreeMap::new() };
        statuses.retain(|kind, wanted| !is_in_store(&published.statuses, kind, wanted));
        let write = HostWrite {
            host: &state.host,
            lease,
            fence,
            target_revision,
            listing: listing.clone(),
            statuses: statuses.iter().map(|(kind, (s, record))| (kind.clone(), *s, record.clone())).collect(),
            report: &report,
        };
        let written = session.write_host(&write, published.listing.as_ref(), self.deadline()).await;
        let revision = match written.map_err(ExecuteError::Store)? {
            Written::Done(revision) => revision,
            Written::Refused(refusal) => return Err(ExecuteError::Refused(refusal)),
        };
        context.store_failures = 0;
        context.write_error = None;
        if let Some(memory) = state.store.as_mut().filter(|_| trusted) {
            if revision < memory.revision {
                // The store went back before this write. The next read shows that, which this lower
                // revision must not hide by becoming the remembered one.
                return Err(ExecuteError::Refused(WriteRefusal::Store));
            }
            memory.revision = revision;
            memory.report_revision = Some(revision);
        }
        published.report = Some(report);
        match listing {
            Listing::Keep => {}
            Listing::Remove => published.listing = None,
            Listing::Set(version, _) => published.listing = Some(version),
        }
        replace_statuses(&mut published.statuses, statuses);
        context.written = Some((revision, published));
        state.record(Fact::ReportWritten, &context.policy, now, jitter());
        context.unsaved = true;
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "as `execute`")]
    async fn run_step(
        &mut self,
        state: &mut HostState,
        context: &mut Context,
        directory: &Directory,
        session: &Session,
        phase: StepPhase,
        name: &str,
    ) -> Result<bool, ExecuteError> {
        let Some(step) = context.policy.steps.of(phase).iter().find(|s| s.name.as_str() == name).cloned()
        else {
            return Ok(true);
        };
        let running = RunningStep { run_id: etcd_session::random_token(), phase, step: step.name.clone() };
        self.secrets.learn_settings(&self.settings.borrow().clone());
        let environment = self.environment(state, session, phase, &running).await;
        if let Some(files) = &self.files {
            files.flush().await;
        }
        let step = with_version(step, environment.get("ORCHESTRATE_STEP_VERSION"));
        state.record(Fact::StepStarted(running.clone()), &context.policy, clock::now(), jitter());
        context.unsaved = true;
        if let Err(error) = save(state, context, directory) {
            // The step does not start, because its start could not be recorded.
            state.running = None;
            return Err(error);
        }
        self.steps_run.fetch_add(1, Ordering::Relaxed);
        tracing::info!(%phase, step = %running.step, run = %running.run_id, "step starts");
        match self.start_run(&running, &step, environment) {
            Ok(child) => {
                self.await_run(running, Some(child));
                Ok(false)
            }
            Err(why) => {
                let result =
                    RunResult { end: StepEnd::NotStarted { why }, leftovers: 0, output: String::new() };
                // The queue has room, because at most one step runs at a time.
                let _ = self.ends.try_send((running, result));
                Ok(false)
            }
        }
    }

    fn start_run(
        &self,
        running: &RunningStep,
        step: &Step,
        environment: BTreeMap<String, String>,
    ) -> Result<tokio::process::Child, String> {
        if let Some(why) = &step.cannot_run {
            return Err(why.clone());
        }
        trust::check_command(Path::new(&step.command[0]))?;
        let prepared = self.runs.prepare(&running.run_id, step, environment).map_err(|e| e.to_string())?;
        prepared.start(&self.program).map_err(|e| format!("its runner could not be started: {e}"))
    }

    /// Sends the result of a run to the loop when it ends, whichever process started the run.
    pub(crate) fn await_run(&self, running: RunningStep, child: Option<tokio::process::Child>) {
        let runs = self.runs.clone();
        let ends = self.ends.clone();
        tokio::spawn(async move {
            if let Some(mut child) = child {
                // Reaps the runner. The result file says how the step ended.
                let _ = child.wait().await;
            }
            let waiting = running.clone();
            let result = tokio::task::spawn_blocking(move || runs.wait(&waiting)).await;
            if let Ok(result) = result {
                // This fails only when the agent stops; the next agent finds the result on disk.
                let _ = ends.send((running, result)).await;
            }
        });
    }

    /// Returns the complete environment of a step.
    async fn environment(
        &self,
        state: &HostState,
        session: &Session,
        phase: StepPhase,
        running: &RunningStep,
    ) -> BTreeMap<String, String> {
        let settings = self.settings.borrow().clone();
        let attempt = state.attempt.as_ref();
        let version = match phase {
            StepPhase::Prefetch | StepPhase::OnSuspect => attempt.map(|a| &a.instruction.version),
            _ => state.subject(),
        };
        let from = attempt.and_then(|a| a.from.as_ref()).or(state.installed.as_ref());
        let mut environment = BTreeMap::from([
            ("PATH".to_owned(), crate::trust::PATH.to_owned()),
            ("LANG".into(), "C.UTF-8".into()),
        ]);
        let mut set = |name: &str, value: String| environment.insert(name.to_owned(), value);
        set("ORCHESTRATE_STEP_VERSION", version.map(ToString::to_string).unwrap_or_default());
        set("ORCHESTRATE_STEP_FROM", from.map(ToString::to_string).unwrap_or_default());
        set("ORCHESTRATE_STEP_PHASE", phase.to_string());
        set("ORCHESTRATE_STEP_HOST", state.host.to_string());
        set("ORCHESTRATE_STEP_ROLE", settings.role.as_ref().map(ToString::to_string).unwrap_or_default());
        set(RUN_ID_VARIABLE, running.run_id.to_string());
        set("ORCHESTRATE_STEP_ATTEMPT", attempt.map_or(0, |a| a.number).to_string());
        // These make the `orchestrate` command work inside a step.
        set("ORCHESTRATE_ENDPOINTS", session.endpoints().await.join(","));
        set("ORCHESTRATE_NAMESPACE", settings.store.namespace.clone());
        set("ORCHESTRATE_HOSTNAME", state.host.to_string());
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
}

fn with_version(mut step: Step, version: Option<&String>) -> Step {
    for argument in step.command.iter_mut().filter(|a| *a == VERSION_PLACEHOLDER) {
        *argument = version.cloned().unwrap_or_default();
    }
    step
}

/// True if the store holds this result and no other one of its type.
fn is_in_store(
    published: &BTreeMap<(StatusType, StatusState), StatusRecord>,
    kind: &StatusType,
    (state, record): &(StatusState, StatusRecord),
) -> bool {
    let mut of_kind = published.iter().filter(|((k, _), _)| k == kind);
    of_kind.next().is_some_and(|((_, s), r)| s == state && r == record) && of_kind.next().is_none()
}

fn replace_statuses(
    published: &mut BTreeMap<(StatusType, StatusState), StatusRecord>,
    written: BTreeMap<StatusType, (StatusState, StatusRecord)>,
) {
    for (kind, (state, record)) in written {
        published.retain(|(k, _), _| *k != kind);
        published.insert((kind, state), record);
    }
}

/// Saves the journal if it is out of date, before anything outside this process changes.
fn save(state: &HostState, context: &mut Context, directory: &Directory) -> Result<(), ExecuteError> {
    if context.unsaved {
        journal::save(directory, state).map_err(ExecuteError::Record)?;
        context.recorded();
    }
    Ok(())
}
