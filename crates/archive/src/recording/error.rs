//! Why a segment cannot be used.

use super::line::FORMAT;

/// Why a segment cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SegmentError {
    /// It does not begin as a segment does.
    #[error("this is not a segment of a recording")]
    NotASegment,
    /// A newer program wrote it.
    #[error(
        "it has format {format}, written by version {program}; this program reads formats up to {FORMAT}"
    )]
    Newer {
        /// Its format.
        format: u32,
        /// The version of the program that wrote it.
        program: String,
    },
    /// It is not as it was written.
    #[error("it is damaged at byte {at}: {why}")]
    Damaged {
        /// Position of the damaged part, in bytes.
        at: usize,
        /// What is wrong.
        why: String,
    },
    /// It ends before its first keys are complete.
    #[error("it ends before the keys at its beginning are complete: its recorder was stopped there")]
    Unfinished,
}
