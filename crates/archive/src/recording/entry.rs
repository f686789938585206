//! What a recording has of a key, and what changed at a revision.

use super::line::{Between, Hidden};
use schema::snapshot::Entry;

/// What stands in the place of a value that is not recorded.
pub const NOT_RECORDED: &str = "(not recorded)";

/// What stands in the place of a value that was erased.
pub const ERASED: &str = "(erased)";

/// The value of a key, as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordedValue {
    Plain(Vec<u8>),
    /// The value is hidden.
    Hidden(Hidden),
}

/// A key that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedEntry {
    pub value: RecordedValue,
    /// Revision of its creation.
    pub create_revision: i64,
    /// Revision of its last change.
    pub mod_revision: i64,
    /// Number of writes since its creation.
    pub version: i64,
    /// Its lease; 0 for none.
    pub lease: i64,
}

impl RecordedEntry {
    /// Returns the entry of the store. In the place of a hidden value stands [`NOT_RECORDED`] or [`ERASED`].
    pub fn into_entry(self) -> Entry {
        let value = match self.value {
            RecordedValue::Plain(value) => value,
            RecordedValue::Hidden(hidden) if hidden.is_erased() => ERASED.into(),
            RecordedValue::Hidden(_) => NOT_RECORDED.into(),
        };
        Entry {
            value,
            create_revision: self.create_revision,
            mod_revision: self.mod_revision,
            lease: self.lease,
            version: self.version,
        }
    }

    /// True if the two cannot be the same entry. Hashes of different recorders have different keys, and an erased value may
    /// have been any.
    pub fn contradicts(&self, other: &Self) -> bool {
        let values = match (&self.value, &other.value) {
            (RecordedValue::Hidden(hidden), _) | (_, RecordedValue::Hidden(hidden)) if hidden.is_erased() => {
                true
            }
            (RecordedValue::Hidden(one), RecordedValue::Hidden(other)) => one.bytes == other.bytes,
            (RecordedValue::Plain(one), RecordedValue::Plain(other)) => {
                one == other || is_same_but_for_erased(one, other)
            }
            (one, other) => one == other,
        };
        let numbers = |of: &Self| (of.create_revision, of.mod_revision, of.version, of.lease);
        !values || numbers(self) != numbers(other)
    }
}

/// True if two values are one event, from one of which values were erased.
fn is_same_but_for_erased(one: &[u8], other: &[u8]) -> bool {
    let has_erased = |value: &[u8]| value.windows(ERASED.len()).any(|part| part == ERASED.as_bytes());
    if !has_erased(one) && !has_erased(other) {
        return false;
    }
    let read = |value| serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(value).ok();
    let (Some(mut one), Some(mut other)) = (read(one), read(other)) else { return false };
    for field in EVENT_VALUES {
        if [&one, &other].iter().any(|event| event.get(field).is_some_and(|value| value == ERASED)) {
            one.remove(field);
            other.remove(field);
        }
    }
    one == other
}

/// The fields of an event with values of the key that it is about.
pub(super) const EVENT_VALUES: [&str; 2] = ["from", "to"];

/// A change of a key; the entry is `None` if it was deleted.
pub type Change = (String, Option<RecordedEntry>);

/// The changes of one revision; without changes, a mark that the store was at it, and that nothing that is recorded had
/// changed up to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The revision.
    pub revision: i64,
    /// When it came; of a mark, `by` is when the store was at it.
    pub between: Between,
    /// True if the recorder learnt of it after a time without contact.
    pub afterwards: bool,
    /// The changes, in their order.
    pub changes: Vec<Change>,
}
