//! Files of a host that cannot be used, as its report names them.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What kind of file a problem is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemFile {
    /// The settings of the agent. The previous ones stay in use.
    Settings,
    /// A service file. Its last good content stays in use.
    Service,
    /// A file that is rendered from a template. The file stays as it is.
    Template,
}

impl fmt::Display for ProblemFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Settings => "settings",
            Self::Service => "service file",
            Self::Template => "template",
        })
    }
}

/// A file of a host that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileProblem {
    /// The kind of the file.
    pub file: ProblemFile,
    /// What is wrong; it names the file. At most [`REASON_MAX_BYTES`](crate::records::REASON_MAX_BYTES).
    pub reason: String,
}

/// Largest number of problems of files in a report.
pub const PROBLEMS_IN_REPORT: usize = 4;
