//! The earlier runs of steps and the one that runs, for people at this machine.

use super::Runs;
use super::record::{
    FILE_MAX_BYTES, Output, RESULT, RunAbout, RunResult, Specification, WHOLE, WHOLE_MAX_BYTES,
};
use crate::files::Directory;
use schema::names::Token;
use schema::steps::StepEnd;
use std::fs::File;
use std::io;
use std::path::Path;

/// A run of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    pub id: Token,
    /// What it was for.
    pub about: RunAbout,
    /// How it ended; `None` if it runs.
    pub end: Option<StepEnd>,
    /// The last part of its output.
    pub output: Output,
}

impl Run {
    /// Reads the directory of a run; `None` if it is not one, or that of an earlier agent.
    fn read(path: &Path) -> io::Result<Option<Self>> {
        let directory = Directory::open(path)?;
        let Some(specification) = Specification::read(&directory)? else { return Ok(None) };
        let Some(about) = specification.about else { return Ok(None) };
        let result = directory.read(RESULT, FILE_MAX_BYTES)?;
        let result = result.and_then(|bytes| serde_json::from_slice::<RunResult>(&bytes).ok());
        let (end, output) = match result {
            Some(result) => (Some(result.end), result.output),
            // The agent wrote down no end of a run whose runner was killed.
            None => (Some(StepEnd::Interrupted), Output::read(&directory)?),
        };
        Ok(Some(Self { id: specification.run_id, about, end, output }))
    }
}

impl Runs {
    /// Returns the runs whose directories are kept, the newest first. Leaves out what cannot be read: a
    /// directory may be removed meanwhile.
    ///
    /// # Errors
    /// Returns the system's error if the directories cannot be listed.
    pub fn list(&self) -> io::Result<Vec<Run>> {
        let before = self.running();
        let mut runs = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            let Ok(entry) = entry else { continue };
            let Ok(Some(mut run)) = Run::read(&entry.path()) else { continue };
            self.mark(&mut run, before.as_ref());
            // Two steps may begin in one second.
            runs.push((entry.metadata().and_then(|metadata| metadata.modified()).ok(), run));
        }
        runs.sort_by_key(|(modified, _)| std::cmp::Reverse(*modified));
        Ok(runs.into_iter().map(|(_, run)| run).collect())
    }

    /// Returns a run; `None` if its directory does not exist.
    ///
    /// # Errors
    /// Returns the system's error if the directory cannot be read.
    pub fn read(&self, id: &Token) -> io::Result<Option<Run>> {
        let before = self.running();
        match Run::read(&self.path.join(id.as_str())) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            found => Ok(found?.map(|mut run| {
                self.mark(&mut run, before.as_ref());
                run
            })),
        }
    }

    /// Opens the output of a run from its start, as far as it is kept. True if that is not the whole. `None` if
    /// nothing is kept of the start.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn whole_output(&self, id: &Token) -> io::Result<Option<(File, bool)>> {
        let directory = Directory::open(&self.path.join(id.as_str()))?;
        match directory.open_existing(WHOLE) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            opened => {
                let file = opened?;
                let is_cut = file.metadata()?.len() >= WHOLE_MAX_BYTES;
                Ok(Some((file, is_cut)))
            }
        }
    }

    /// Calls a run what it is that has no end: it runs if it did before or after it was read.
    fn mark(&self, run: &mut Run, before: Option<&Token>) {
        let is_running = before == Some(&run.id) || self.running().as_ref() == Some(&run.id);
        if run.end == Some(StepEnd::Interrupted) && is_running {
            run.end = None;
        }
    }
}
