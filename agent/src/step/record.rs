//! The files in the directory of a run.

use crate::files::Directory;
use archive::Cut;
use planning::host::Leftovers;
use schema::names::{StepName, Token, Version};
use schema::order::InstructionOrder;
use schema::steps::{StepEnd, StepPhase};
use schema::time::EpochSeconds;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::io;

pub(super) const SPECIFICATION: &str = "specification.json";
pub(super) const RESULT: &str = "result.json";
pub(super) const RUNNER: &str = "runner.json";
/// The output while the step runs.
pub(super) const OUTPUT: &str = "output.json";
/// The output from its start.
pub(super) const WHOLE: &str = "output.log";
pub(super) const FILE_MAX_BYTES: u64 = 1024 * 1024;
/// Number of bytes that are kept of the start of a step's output.
pub(super) const WHOLE_MAX_BYTES: u64 = archive::bundle::PART_MAX_BYTES;
/// Number of bytes that are kept of the end of a step's output.
pub(super) const OUTPUT_MAX_BYTES: usize = 64 * 1024;

/// The order for a runner, which the agent writes into the directory of the run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Specification {
    /// The id of the run, which is also the name of its directory.
    pub run_id: Token,
    /// What the step is run for; `None` in the directory of an earlier agent.
    #[serde(default)]
    pub about: Option<RunAbout>,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The complete environment of the program.
    pub environment: BTreeMap<String, String>,
    /// Time limit of the step, in milliseconds.
    pub timeout_millis: u64,
    /// Time between SIGTERM and SIGKILL, in milliseconds.
    pub grace_millis: u64,
    /// The handling of processes that the step leaves behind.
    pub leftovers: Leftovers,
}

impl Specification {
    /// Reads the order of a run; `None` if there is none.
    pub(super) fn read(directory: &Directory) -> io::Result<Option<Self>> {
        let bytes = directory.read(SPECIFICATION, FILE_MAX_BYTES)?;
        Ok(bytes.map(|bytes| serde_json::from_slice(&bytes)).transpose()?)
    }
}

/// The result of a run, which the runner writes into the directory of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunResult {
    /// How the step ended.
    pub end: StepEnd,
    /// Number of processes that the step left behind and that the runner ended.
    pub leftovers: usize,
    /// The last part of the step's output.
    #[serde(flatten)]
    pub output: Output,
}

impl RunResult {
    /// Returns the result of a step of which no output is known.
    pub fn without_output(end: StepEnd) -> Self {
        Self { end, leftovers: 0, output: Output::default() }
    }
}

/// What a step was run for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunAbout {
    /// The phase of the step.
    pub phase: StepPhase,
    /// The name of the step.
    pub step: StepName,
    /// The version that it was given; `None` if there was none.
    pub version: Option<Version>,
    /// The number of the attempt at the version, from 1; 0 without one.
    pub attempt: u32,
    /// The instruction of that attempt; `None` without one, and in the directory of an earlier agent.
    #[serde(default)]
    pub instruction: Option<InstructionOrder>,
    /// The number of the attempt at that instruction, with those that ended before the start of the update.
    #[serde(default)]
    pub tries: u32,
    /// When it began.
    pub began_at: EpochSeconds,
}

impl RunAbout {
    /// True if the step is part of an update. Others are repeated as long as the host has nothing else to do.
    pub(super) fn is_update(&self) -> bool {
        !matches!(self.phase, StepPhase::Converge | StepPhase::Validate)
    }
}

/// The last part of the output of a step as text, at most 64 KiB before what is no UTF-8 is replaced.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Output {
    /// Number of the lines before it that were not kept.
    #[serde(default)]
    pub skipped_lines: u64,
    #[serde(rename = "output")]
    pub text: String,
}

impl fmt::Debug for Output {
    /// Leaves out the text, because it may contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { skipped_lines, text } = self;
        let mut shown = f.debug_struct("Output");
        shown.field("skipped_lines", skipped_lines).field("bytes", &text.len()).finish()
    }
}

impl Output {
    /// Returns where the text was cut. While the step runs, the rest of a secret may follow.
    pub fn cut(&self, is_over: bool) -> Cut {
        Cut { begin: self.skipped_lines > 0 || self.text.len() >= OUTPUT_MAX_BYTES, end: !is_over }
    }

    /// Reads the file of a step that runs, or whose runner was killed.
    pub(super) fn read(directory: &Directory) -> io::Result<Self> {
        let bytes = directory.read(OUTPUT, FILE_MAX_BYTES)?;
        Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default())
    }
}
