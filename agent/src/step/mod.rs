//! Steps run outside the agent, each in a small runner of the same program, so that the agent may
//! stop, be upgraded or be killed during a step. This file is the agent's side; [`runner`] is the
//! other side.
//!
//! Each run has a directory with a lock. The agent takes the lock and passes it to the runner as
//! standard input, so a run that may still start is locked at every moment. If the lock is free and
//! there is no result, the run was interrupted.

pub mod list;
mod output;
mod processes;
mod record;
pub mod runner;

pub(crate) use processes::RUN_ID_VARIABLE;
pub use record::{Output, RunAbout, RunResult, Specification};

use crate::failpoint;
use crate::files::Directory;
use planning::host::{RunningStep, Step};
use record::{FILE_MAX_BYTES, RESULT, RUNNER, SPECIFICATION};
use rustix::fs::{FlockOperation, flock};
use schema::names::Token;
use schema::steps::StepEnd;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

const LOCK: &str = "lock";
/// Number of earlier runs whose directories are kept for inspection: so many of updates, and so many of steps
/// that are repeated for ever. Older ones are removed.
const RUNS_KEPT: usize = 20;

/// The directory that holds the directories of all runs.
#[derive(Debug, Clone)]
pub struct Runs {
    path: PathBuf,
    /// The run that has not ended, or whose end this process has not seen yet. At most one step runs at a time.
    running: Arc<Mutex<Option<Token>>>,
}

impl Runs {
    /// Opens the directory below the state directory. Creates it if it does not exist.
    ///
    /// # Errors
    /// Returns the system's error, also if others could have put files into the directory.
    pub fn open(state_directory: &Path) -> io::Result<Self> {
        let path = state_directory.join("runs");
        Directory::open_or_create(&path)?.check_private()?;
        Ok(Self { path, running: Arc::default() })
    }

    /// Returns the run that has not ended.
    fn running(&self) -> Option<Token> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes which run has not ended.
    fn set_running(&self, run_id: Option<&Token>) {
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = run_id.cloned();
    }

    /// Creates the directory of a run and takes its lock.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn prepare(
        &self,
        run_id: &Token,
        about: RunAbout,
        step: &Step,
        environment: BTreeMap<String, String>,
    ) -> io::Result<Prepared> {
        self.remove_old()?;
        self.set_running(Some(run_id));
        let directory = Directory::open_or_create(&self.path.join(run_id.as_str()))?;
        let lock = directory.open_lock(LOCK)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        let millis = |d: std::time::Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
        let specification = Specification {
            run_id: run_id.clone(),
            about: Some(about),
            command: step.command.clone(),
            environment,
            timeout_millis: millis(step.timeout),
            grace_millis: millis(step.grace),
            leftovers: step.leftovers,
        };
        // The journal is what a power cut must not lose: the run itself does not survive one.
        directory.replace_soon(SPECIFICATION, &serde_json::to_vec(&specification)?, 0o600)?;
        Ok(Prepared { directory, lock })
    }

    /// Writes down that a step could not be started, for people: the loop learns it from the error. That it cannot
    /// be written changes nothing else.
    pub fn not_started(&self, run_id: &Token, why: String) {
        let result = RunResult::without_output(StepEnd::NotStarted { why });
        let _ = Directory::open(&self.path.join(run_id.as_str()))
            .and_then(|directory| directory.replace(RESULT, &serde_json::to_vec(&result)?, 0o600));
        self.set_running(None);
    }

    /// Blocks until a run has ended, whichever process started it, and returns its result. A run
    /// whose directory cannot be read counts as interrupted.
    pub fn wait(&self, running: &RunningStep) -> RunResult {
        self.set_running(Some(&running.run_id));
        let result = self.wait_for(&running.run_id).unwrap_or_else(|error| {
            tracing::warn!(run = %running.run_id, %error, "the directory of the run cannot be read");
            RunResult::without_output(StepEnd::Interrupted)
        });
        self.set_running(None);
        result
    }

    fn wait_for(&self, run_id: &Token) -> io::Result<RunResult> {
        let directory = Directory::open(&self.path.join(run_id.as_str()))?;
        let lock = directory.open_lock(LOCK)?;
        loop {
            match flock(&lock, FlockOperation::LockExclusive) {
                Ok(()) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let result =
            directory.read(RESULT, FILE_MAX_BYTES)?.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        failpoint::reach("agent-after-result");
        let runner = directory.read(RUNNER, FILE_MAX_BYTES)?;
        let runner: Option<processes::RunnerTrace> =
            runner.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        if let Some(result) = result {
            runner.iter().for_each(processes::RunnerTrace::remove_group);
            return Ok(result);
        }
        // Nobody holds the lock and there is no result, so the runner was interrupted. Processes
        // that it started must not go on beside the next run of the same step.
        runner.iter().for_each(processes::RunnerTrace::kill_remaining);
        let output = Output::read(&directory).unwrap_or_default();
        Ok(RunResult { output, ..RunResult::without_output(StepEnd::Interrupted) })
    }

    fn remove_old(&self) -> io::Result<()> {
        let (mut updates, mut others) = (Vec::new(), Vec::new());
        for entry in std::fs::read_dir(&self.path)? {
            let entry = entry?;
            let run = (entry.metadata()?.modified()?, entry.path());
            let about = Directory::open(&run.1).and_then(|directory| Specification::read(&directory));
            let about = about.ok().flatten().and_then(|specification| specification.about);
            let is_update = about.is_some_and(|about| about.is_update());
            if is_update { updates.push(run) } else { others.push(run) }
        }
        for mut runs in [updates, others] {
            runs.sort();
            let excess = runs.len().saturating_sub(RUNS_KEPT);
            for (_, path) in runs.into_iter().take(excess) {
                std::fs::remove_dir_all(path)?;
            }
        }
        Ok(())
    }
}

/// A run that is ready to start and whose lock this process holds.
#[derive(Debug)]
pub struct Prepared {
    directory: Directory,
    lock: File,
}

impl Prepared {
    /// Starts the runner and passes the lock to it.
    ///
    /// # Errors
    /// Returns the system's error if the runner cannot be started.
    pub fn start(self, program: &Path) -> io::Result<tokio::process::Child> {
        failpoint::reach("agent-before-spawn");
        let mut command = tokio::process::Command::new(program);
        command.arg("run-step").arg(self.directory.path());
        // The lock is the runner's standard input. The step itself does not get it.
        command.stdin(Stdio::from(self.lock)).stdout(Stdio::null()).kill_on_drop(false);
        command.env_clear();
        #[cfg(debug_assertions)]
        if let Some(point) = std::env::var_os("ORCHESTRATE_FAILPOINT") {
            command.env("ORCHESTRATE_FAILPOINT", point);
        }
        // The runner creates its own session, so signals to the agent's process group, for example
        // from a terminal, do not reach the step.
        let child = command.spawn()?;
        failpoint::reach("agent-after-spawn");
        Ok(child)
    }
}
