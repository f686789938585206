//! Executes the effects of a plan. It decides nothing: each effect is executed as it is, the
//! journal is on disk before anything outside this process changes (only a report is written
//! without that), and the outcome is recorded as a fact. `announce.rs` has the writes to the store.

use super::context::Context;
use crate::catalog::FilesHandle;
use crate::environment::CommandEnvironment;
use crate::files::Directory;
use crate::handles::Handles;
use crate::secrets::Secrets;
use crate::step::{RUN_ID_VARIABLE, RunAbout, RunResult, Runs};
use crate::{clock, failpoint};
use anyhow::{Context as _, bail};
use commands::trust;
use etcd_session::{Session, StoreError, jitter};
use planning::host::{Decision, Fact, HostState, RunningStep, Step, VersionFile};
use schema::names::Version;
use schema::plan::Effect;
use schema::steps::{StepEnd, StepPhase};
use schema::why_not::WhyNot;
use schema::writes::WriteRefusal;
use settings::{Settings, VERSION_PLACEHOLDER};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::{mpsc, watch};

const VERSION_FILE_MAX_BYTES: u64 = 4096;

/// Why an effect was not executed.
#[derive(Debug)]
pub(crate) enum ExecuteError {
    /// Local state could not be written.
    Record(io::Error),
    /// A comparison of the transaction failed.
    Refused(WriteRefusal),
    /// This kept the host from starting, at this revision.
    HeldBack(WhyNot, i64),
    /// The store could not be written.
    Store(StoreError),
}

/// Executes effects. It owns what effects need.
pub(crate) struct Executor {
    pub(crate) session: Session,
    pub(crate) directory: Directory,
    pub(crate) settings: watch::Receiver<Arc<Settings>>,
    /// This program, which is also the runner of each step.
    pub(crate) program: PathBuf,
    pub(crate) runs: Runs,
    pub(crate) environment: CommandEnvironment,
    pub(crate) secrets: Secrets,
    /// Sends the results of steps to the loop.
    pub(crate) ends: mpsc::Sender<(RunningStep, RunResult)>,
    /// Writes the catalog's files. Each step starts after they were brought up to date.
    pub(crate) files: FilesHandle,
    /// Number of steps started since this process started.
    pub(crate) steps_run: u64,
}

impl Executor {
    /// # Errors
    /// Returns an error if the path of this program is unknown.
    pub(crate) fn new(
        handles: &Handles,
        directory: Directory,
        files: FilesHandle,
        ends: mpsc::Sender<(RunningStep, RunResult)>,
    ) -> anyhow::Result<Self> {
        let Handles { settings, session, environment, secrets, runs, .. } = handles.clone();
        let program = std::env::current_exe().context("the path of this program")?;
        let settings = settings.settings;
        Ok(Self {
            session,
            directory,
            settings,
            program,
            runs,
            environment,
            secrets,
            ends,
            files,
            steps_run: 0,
        })
    }
}

/// Returns the directory and the name of the version file.
fn version_file(settings: &Settings) -> (PathBuf, String) {
    let path = &settings.version_file;
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    (path.parent().map(Path::to_owned).unwrap_or_default(), name)
}

/// Reads the version file. Returns `None` if it does not exist.
pub(crate) fn read_version_file(settings: &Settings) -> io::Result<Option<String>> {
    let (directory, name) = version_file(settings);
    let bytes = match Directory::open(&directory) {
        Ok(directory) => directory.read(&name, VERSION_FILE_MAX_BYTES)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

impl Executor {
    /// Returns what removes the known secrets from the output of steps and checks.
    pub(super) fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// Executes an effect. A step that was started counts as executed: its end is an event of its own.
    pub(super) async fn execute(
        &mut self,
        context: &mut Context,
        decision: &Decision,
        effect: Effect,
    ) -> Result<(), ExecuteError> {
        match effect {
            Effect::WriteVersionFile { version } => {
                self.save(context)?;
                self.write_version_file(&version).map_err(ExecuteError::Record)?;
                failpoint::reach("agent-after-version-file");
                context.version_file = VersionFile::Content(Some(version));
            }
            Effect::RunStep { phase, step } => self.run_step(context, phase, step.as_str()).await?,
            Effect::CommitStart { .. } => {
                self.save(context)?;
                failpoint::reach("agent-before-start-transaction");
                self.announce(context, decision, &effect).await?;
                failpoint::reach("agent-after-start-transaction");
                context.state.record(decision.started(), &context.policy, clock::now(), jitter());
            }
            Effect::Announce { .. } => {
                self.save(context)?;
                self.announce(context, decision, &effect).await?;
                failpoint::reach("agent-after-done-transaction");
            }
            Effect::Withdraw => {
                self.save(context)?;
                self.announce(context, decision, &effect).await?;
            }
            Effect::Report => {
                if decision.needs_journal {
                    self.save(context)?;
                }
                self.announce(context, decision, &effect).await?;
            }
        }
        Ok(())
    }

    /// Saves the journal if it is out of date.
    fn save(&self, context: &mut Context) -> Result<(), ExecuteError> {
        context.save(&self.directory).map_err(ExecuteError::Record)
    }

    fn write_version_file(&self, version: &Version) -> io::Result<()> {
        let (directory, name) = version_file(&self.settings.borrow());
        Directory::open(&directory)?.replace(&name, version.as_str().as_bytes(), 0o644)
    }

    async fn run_step(
        &mut self,
        context: &mut Context,
        phase: StepPhase,
        name: &str,
    ) -> Result<(), ExecuteError> {
        let Some(step) = context.policy.steps.of(phase).iter().find(|s| s.name.as_str() == name).cloned()
        else {
            return Ok(());
        };
        let running = RunningStep { run_id: etcd_session::random_token(), phase, step: step.name.clone() };
        self.secrets.learn_settings_logged(&self.settings.borrow().clone());
        let environment = self.environment_of(&context.state, phase, &running).await;
        self.files.flush().await;
        let step = with_version(step, environment.get("ORCHESTRATE_STEP_VERSION"));
        context.state.record(Fact::StepStarted(running.clone()), &context.policy, clock::now(), jitter());
        context.unsaved = true;
        if let Err(error) = self.save(context) {
            // The step does not start, because its start could not be recorded.
            context.state.steps.running = None;
            return Err(error);
        }
        self.steps_run += 1;
        if context.is_routine(phase) {
            tracing::debug!(%phase, step = %running.step, run = %running.run_id, "step starts");
        } else {
            tracing::info!(%phase, step = %running.step, run = %running.run_id, "step starts");
        }
        let attempt = context.state.attempt.as_ref();
        let about = RunAbout {
            phase,
            step: running.step.clone(),
            version: environment.get("ORCHESTRATE_STEP_VERSION").and_then(|text| Version::new(text).ok()),
            attempt: attempt.map_or(0, |attempt| attempt.history.number),
            instruction: attempt.map(|attempt| attempt.instruction.order),
            tries: attempt.map_or(0, |attempt| attempt.history.tries),
            began_at: clock::now().wall,
        };
        match self.start_run(&running, about, &step, environment) {
            Ok(child) => self.await_run(running, Some(child)),
            Err(error) => {
                let end = StepEnd::NotStarted { why: format!("{error:#}") };
                let result = RunResult::without_output(end);
                // The queue has room, because at most one step runs at a time.
                let _ = self.ends.try_send((running, result));
            }
        }
        Ok(())
    }

    fn start_run(
        &self,
        running: &RunningStep,
        about: RunAbout,
        step: &Step,
        environment: BTreeMap<String, String>,
    ) -> anyhow::Result<tokio::process::Child> {
        let start = || {
            let prepared = self.runs.prepare(&running.run_id, about, step, environment)?;
            if let Some(why) = &step.cannot_run {
                bail!(why.clone());
            }
            trust::check_command(Path::new(&step.command[0]))?;
            prepared.start(&self.program).context("its runner could not be started")
        };
        start().inspect_err(|error| self.runs.not_started(&running.run_id, format!("{error:#}")))
    }

    /// Sends the result of a run to the loop when it ends, whichever process started the run.
    pub(super) fn await_run(&self, running: RunningStep, child: Option<tokio::process::Child>) {
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
    async fn environment_of(
        &self,
        state: &HostState,
        phase: StepPhase,
        running: &RunningStep,
    ) -> BTreeMap<String, String> {
        let attempt = state.attempt.as_ref();
        let version = match phase {
            StepPhase::Prefetch | StepPhase::OnSuspect => attempt.map(|a| &a.instruction.version),
            StepPhase::Apply | StepPhase::Converge | StepPhase::Validate => state.subject(),
        };
        let from = attempt.and_then(|a| a.from.as_ref()).or(state.versions.installed.as_ref());
        let role = self.settings.borrow().role.as_ref().map(ToString::to_string);
        let own = [
            ("ORCHESTRATE_STEP_VERSION", version.map(ToString::to_string).unwrap_or_default()),
            ("ORCHESTRATE_STEP_FROM", from.map(ToString::to_string).unwrap_or_default()),
            ("ORCHESTRATE_STEP_PHASE", phase.to_string()),
            ("ORCHESTRATE_STEP_HOST", state.host.to_string()),
            ("ORCHESTRATE_STEP_ROLE", role.unwrap_or_default()),
            (RUN_ID_VARIABLE, running.run_id.to_string()),
            ("ORCHESTRATE_STEP_ATTEMPT", attempt.map_or(0, |a| a.history.number).to_string()),
        ];
        self.environment.with(own).await
    }
}

fn with_version(mut step: Step, version: Option<&String>) -> Step {
    for argument in step.command.iter_mut().filter(|a| *a == VERSION_PLACEHOLDER) {
        *argument = version.cloned().unwrap_or_default();
    }
    step
}
