//! Recordings: what the store held at each of its revisions, and when.
//!
//! A recording consists of segments, which are files or objects. Each segment begins with every key at one
//! revision, and goes on with each change, so that it can be read without the others. Recorders write
//! segments ([`SegmentWriter`]), and readers ask for the store at a moment ([`Recording::at`]).
//!
//! # Format 1 of a segment
//!
//! A segment begins with the eight bytes `ORCHREC` and a line feed. Frames follow:
//!
//! | bytes | content |
//! |---|---|
//! | 1 | kind: `H` header, `P` keys at the beginning, `C` changes, `I` index |
//! | 4 | length of the payload, little endian |
//! | 4 | CRC-32 of the kind, the length and the payload, little endian |
//! | | payload: lines of JSON, compressed by Zstandard (RFC 8878) |
//!
//! Exactly one header comes first. The index comes last, and is followed by its position in the file (8
//! bytes, little endian) and the eight bytes `ORCHEND` and a line feed. A segment without an index was not
//! closed, because its recorder died: what its whole frames say is true, and more is not known. Everything
//! else that is not as described here is damage, and nothing of such a segment is used.
//!
//! The lines are the types of `line.rs`. Readers ignore fields that they do not know. A program that must
//! not ignore something writes another format, whose number is in the header.

mod at;
mod check;
mod content;
mod directory;
mod entry;
mod erase;
mod error;
mod frame;
mod history;
mod line;
mod moment;
mod name;
mod past;
mod place;
mod segment;
#[cfg(test)]
mod tests;
mod view;
mod writer;

pub use at::{At, AtError, time_text};
pub use check::{Diagnostic, DiagnosticKind};
pub use directory::Directory;
pub use entry::{Change, ERASED, NOT_RECORDED, RecordedEntry, RecordedValue, Step};
pub use erase::erase;
pub use error::{NotRecorded, PlaceError, RecordingError, SegmentError, UnusableReason, UnusableSegment};
pub use history::{History, KeyChanges};
pub use line::{Between, Erased, Header, Hidden};
pub use moment::Moment;
pub use name::{Branch, ListedSegment, SegmentName, object_name};
pub use past::{Past, Recording, Source, load};
pub use place::{RecordingPlace, list_objects};
pub use segment::Segment;
pub use view::{AboutPast, PastView};
pub use writer::{Concealer, SEGMENT_MAX_BYTES, SegmentWriter};
