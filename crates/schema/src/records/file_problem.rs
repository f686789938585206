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
    /// A file that is rendered from a template. It does not follow the catalog.
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
    /// The last line that the command printed which found this, if one did. At most
    /// [`CHECK_LINE_MAX_BYTES`](crate::records::CHECK_LINE_MAX_BYTES).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub line: String,
}

impl FileProblem {
    /// True if the other problem is the same. The output is not compared: a change of it alone is not worth a new
    /// report.
    pub fn is_same_as(&self, other: &Self) -> bool {
        (self.file, &self.reason) == (other.file, &other.reason)
    }
}

/// Largest number of problems of files in a report.
pub const PROBLEMS_IN_REPORT: usize = 4;
