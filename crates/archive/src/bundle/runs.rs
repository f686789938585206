//! The runs of steps in a bundle: the names of their files, and the output of the one that failed.

use super::contents::{CONTENTS, Contents, PART_MAX_BYTES};
use crate::CUT_LINE;
use schema::names::StepName;
use schema::records::Report;
use schema::steps::StepPhase;
use schema::verdict::{HostFailure, HostVerdict};
use serde::de::DeserializeOwned;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The report of the host.
pub const REPORT: &str = "report.json";
/// The directory of the runs.
const RUNS: &str = "steps";

/// A run of a step in a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunName {
    /// Its number in the attempt, from 1.
    pub number: usize,
    /// The phase of the step.
    pub phase: StepPhase,
    /// The name of the step.
    pub step: StepName,
}

/// What is in a bundle about a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunFile {
    /// How it ended, in words.
    End,
    /// Its output from the start.
    Log,
    /// The last part of its output, if the output is too long to be kept as a whole.
    LastLog,
}

impl RunName {
    /// Returns the path of a file in the bundle.
    pub fn file(&self, file: RunFile) -> String {
        let ending = match file {
            RunFile::End => "end",
            RunFile::Log => "log",
            RunFile::LastLog => "last.log",
        };
        format!("{RUNS}/{self}.{ending}")
    }

    /// Reads the name of a file that says how a run ended; `None` for any other name.
    fn of_end(name: &str) -> Option<Self> {
        let (number, rest) = name.strip_suffix(".end")?.split_once('-')?;
        let (phase, step) = rest.split_once('-')?;
        let phase = StepPhase::ALL.into_iter().find(|known| known.as_str() == phase)?;
        Some(Self { number: number.parse().ok()?, phase, step: StepName::new(step).ok()? })
    }
}

impl fmt::Display for RunName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}-{}-{}", self.number, self.phase, self.step)
    }
}

/// The run that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedRun {
    /// Which run it is.
    pub name: RunName,
    /// How it ended, in words.
    pub end: String,
    /// What it printed, or why that is not in the bundle.
    pub output: Result<String, String>,
    /// True if the end of the output may be missing.
    pub is_cut: bool,
}

impl FailedRun {
    /// Reads an unpacked bundle; `None` if it has no run. It is the last run of the step that the report of the host
    /// blames, because a step for suspect hosts may have run after it, and otherwise the last run.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn read(directory: &Path) -> io::Result<Option<Self>> {
        let mut runs = Vec::new();
        match std::fs::read_dir(directory.join(RUNS)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            entries => {
                for entry in entries? {
                    runs.extend(entry?.file_name().to_str().and_then(RunName::of_end));
                }
            }
        }
        let verdict = read_json::<Report>(directory, REPORT).map(|report| report.verdict);
        let is_blamed = |run: &RunName| match &verdict {
            Some(HostVerdict::Failed(HostFailure { failure, .. })) => {
                run.phase == failure.phase && run.step == failure.step
            }
            _ => false,
        };
        let Some(name) = runs.into_iter().max_by_key(|run| (is_blamed(run), run.number)) else {
            return Ok(None);
        };
        let text = |file| read_text(directory, &name.file(file));
        let end = text(RunFile::End)?.unwrap_or_default();
        let contents: Contents = read_json(directory, CONTENTS).unwrap_or_default();
        let path = name.file(RunFile::Log);
        let is_cut = contents.parts.iter().any(|part| part.name == path && part.is_cut);
        let last = text(RunFile::LastLog)?;
        let (output, is_cut) = match (text(RunFile::Log)?, last) {
            (Some(begin), Some(last)) => (Ok(format!("{begin}{CUT_LINE}{last}")), false),
            (Some(whole), None) => (Ok(whole), is_cut),
            (None, _) => {
                let left_out = contents.left_out.into_iter().find(|part| part.name == path);
                (Err(left_out.map_or_else(|| "the bundle does not say why".into(), |part| part.why)), false)
            }
        };
        Ok(Some(Self { name, end, output, is_cut }))
    }
}

/// Reads a part of a bundle, up to the largest size that a part has; `None` if it is not there. Another host wrote it, so
/// it may be anything.
fn read_text(directory: &Path, name: &str) -> io::Result<Option<String>> {
    let file = match File::open(directory.join(name)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut bytes = Vec::new();
    file.take(PART_MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Reads a part that is JSON; `None` if it cannot be read.
fn read_json<T: DeserializeOwned>(directory: &Path, name: &str) -> Option<T> {
    serde_json::from_str(&read_text(directory, name).ok()??).ok()
}
