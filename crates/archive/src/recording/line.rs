//! The lines of a segment, as they are written.

use schema::names::Token;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The newest format that this program writes and reads.
pub(super) const FORMAT: u32 = 1;

/// The times between which something happened, by the clock of the recorder, in milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Between {
    /// It had not happened at this time; `None` if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<i64>,
    /// It had happened at this time.
    pub by: i64,
}

/// The first line of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Number of the format.
    pub format: u32,
    /// Version of the program that wrote it.
    pub program: String,
    /// Lineage of the store.
    pub lineage: Token,
    /// Epoch of the lineage.
    pub epoch: u64,
    /// Branch of the epoch: what was written after one restoration of the store, and before the next.
    pub branch: Token,
    pub recorder: Token,
    /// Revision of the keys at the beginning.
    pub revision: i64,
    /// Number of these keys.
    pub keys: usize,
    /// When the store was at this revision: it had not passed it before `after`, and had reached it at `by`.
    #[serde(flatten)]
    pub between: Between,
    /// True if the branch begins here because the store was restored, so that earlier revisions of it may exist too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restored: bool,
    /// True if the segment continues the one before it of the same recorder, without a gap.
    pub continues: bool,
    /// Why changes before it were lost, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<String>,
    /// What was erased later, and when.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub erased: Vec<Erased>,
}

/// A mark that values were erased from a segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Erased {
    /// When, in milliseconds since 1970.
    pub at: i64,
    pub what: String,
}

/// What stands in the place of a value that is not recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hidden {
    /// Its length in bytes; 0 if it was erased.
    pub bytes: u64,
    /// A hash with a key that only the recorder has. Equal values of one recorder have equal hashes. It is `erased` if the
    /// value was recorded, and erased later.
    pub hash: String,
}

impl Hidden {
    /// Returns what stands in the place of a value that was erased.
    pub(super) fn erased() -> Self {
        Self { bytes: 0, hash: ERASED_HASH.into() }
    }

    /// True if the value was erased.
    pub fn is_erased(&self) -> bool {
        self.hash == ERASED_HASH
    }
}

/// The hash of a value that was erased.
const ERASED_HASH: &str = "erased";

/// A key with its value, or one that was deleted.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct KeyLine<'a> {
    #[serde(borrow)]
    pub(super) key: Cow<'a, str>,
    /// The value, if it is text.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) value: Option<Cow<'a, str>>,
    /// The value, if it is not text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) base64: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) hidden: Option<Hidden>,
    /// Revision of the creation. It is missing for a deleted key, as are the other three.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) created: i64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) modified: i64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) version: i64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) lease: i64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// The changes of one revision; without changes, a mark that the store was at this revision, and that nothing that is
/// recorded had changed up to it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RevisionLine<'a> {
    pub(super) revision: i64,
    /// [`Between::after`]. The two are not flattened, because that would copy every value once more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) after: Option<i64>,
    pub(super) by: i64,
    /// True if the recorder learnt of it after a time without contact, so that the times are far apart.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) afterwards: bool,
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    pub(super) changes: Vec<KeyLine<'a>>,
}

/// A frame, in the index.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FrameLine {
    /// Its position in the file.
    pub(super) at: u64,
    /// Its first revision.
    pub(super) first: i64,
    /// Its last revision.
    pub(super) last: i64,
    /// When the last revision, or the last mark, was seen.
    pub(super) by: i64,
}
