//! Why a segment cannot be used, and why a question about the past has no answer.

use super::line::FORMAT;
use super::moment::Moment;
use super::name::SegmentName;
use crate::objects::{NameError, ObjectError, ObjectProblem};
use std::{fmt, io};

/// Why a segment cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SegmentError {
    #[error("this is not a segment of a recording")]
    NotASegment,
    /// A newer program wrote it.
    #[error(
        "it has format {format}, written by version {program}; this program reads formats up to {FORMAT}"
    )]
    Newer {
        format: u32,
        /// The version of the program that wrote it.
        program: String,
    },
    #[error("it is damaged at byte {at}: {why}")]
    Damaged {
        /// Position of the damaged part, in bytes.
        at: usize,
        why: String,
    },
    #[error("it ends before the keys at its beginning are complete: its recorder was stopped there")]
    Unfinished,
}

/// Why the segments of a place cannot be listed, read or changed.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// No object may have the name of the segment.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A file or directory cannot be used.
    #[error(transparent)]
    File(#[from] io::Error),
    /// An object store cannot be used.
    #[error(transparent)]
    Store(#[from] ObjectError),
    /// A file in a directory cannot be replaced or removed.
    #[error(transparent)]
    Object(#[from] ObjectProblem),
    /// The segment was removed since it was listed.
    #[error("it does not exist any more")]
    Gone,
}

/// A segment that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{name}: {why}")]
pub struct UnusableSegment {
    pub name: SegmentName,
    pub why: Box<UnusableReason>,
}

/// Why a segment of a place cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum UnusableReason {
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error(transparent)]
    Segment(#[from] SegmentError),
    #[error("its header does not match its name")]
    OtherName,
}

/// Why nobody can say what the store held.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordingError {
    /// No segment covers the moment.
    #[error("{0}")]
    NotRecorded(NotRecorded),
    /// What was asked for fits several histories, and they differ, or of some is not known what they held.
    #[error("several histories have {at}: {}; name one of them", listed(moments, unknown))]
    Ambiguous {
        /// What was asked for.
        at: String,
        /// The moments that fit.
        moments: Vec<Moment>,
        /// The histories that may have it too, each with the reason why nobody knows.
        unknown: Vec<String>,
    },
    /// Two segments of one history contradict each other.
    #[error("two segments disagree about {key:?} at revision {revision}: {} and {}", between.0, between.1)]
    Contradiction {
        /// A key about which they disagree.
        key: String,
        /// The revision.
        revision: i64,
        between: Box<(SegmentName, SegmentName)>,
    },
}

/// No segment covers a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotRecorded {
    /// What was asked for.
    pub at: String,
    /// What is known around it, each for one recorder.
    pub nearest: Vec<String>,
    /// True if something could not be read, so that it may be recorded.
    pub is_unreadable: bool,
}

impl fmt::Display for NotRecorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not recorded", self.at)?;
        if self.nearest.is_empty() {
            f.write_str(": there are no segments")
        } else {
            write!(f, ": {}", self.nearest.join("; "))
        }
    }
}

fn listed(moments: &[Moment], unknown: &[String]) -> String {
    moments.iter().map(ToString::to_string).chain(unknown.iter().cloned()).collect::<Vec<_>>().join(", ")
}
