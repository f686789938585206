//! The desired version, and which instructions and requests of operators count.
//!
//! When an operator accepts a store that went back, a new epoch begins. What was written before does
//! not count any more: it may come from a backup.

use crate::codec::{self, VersionError};
use crate::keys::{self, Key};
use crate::names::Version;
use crate::order::InstructionOrder;
use crate::records::{StoreIdentity, Trigger};
use crate::snapshot::{Entry, KeySnapshot};
use serde::{Deserialize, Serialize};

/// A desired version together with its order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instruction {
    pub version: Version,
    /// The order of the instruction among all instructions.
    pub order: InstructionOrder,
}

impl Instruction {
    /// Returns the instruction that counts in what was found, which holds the identity of the store and the
    /// desired version; `None` if there is none, or if one of them cannot be read.
    pub fn find(found: &KeySnapshot) -> Option<Self> {
        let epoch = Epoch::read(found.get(&Key::Store)).ok()?;
        epoch.instruction(found.get(&Key::CurrentVersion)).ok()?
    }
}

impl Trigger {
    /// Returns the trigger of the desired version; `None` if that was written without one.
    pub fn find(found: &KeySnapshot) -> Option<Self> {
        if found.revision_of(&Key::Trigger) != found.revision_of(&Key::CurrentVersion) {
            return None;
        }
        found.value_of(keys::Trigger)
    }
}

/// The epoch of a store. The default is that of a store that nobody ever accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Epoch {
    /// Number of the epoch; 0 before the first acceptance.
    pub number: u64,
    /// Revision at which the store's identity was written; 0 if it has none.
    pub accepted_at: i64,
}

impl Epoch {
    /// Reads the epoch from the entry of `/orchestrate/store`.
    ///
    /// # Errors
    /// Returns an error if the identity cannot be read. Hosts do not trust such a store.
    pub fn read(identity: Option<&Entry>) -> Result<Self, codec::ValueError> {
        let Some(entry) = identity else { return Ok(Self::default()) };
        let identity = StoreIdentity::read(&entry.value)?;
        Ok(Self { number: identity.epoch, accepted_at: identity.accepted_at.unwrap_or(entry.mod_revision) })
    }

    /// Returns the order of an instruction or request of an operator; `None` if it was written
    /// before the store was accepted, and does not count any more.
    pub fn order(self, written: &Entry) -> Option<InstructionOrder> {
        let is_old = self.number > 0 && written.mod_revision < self.accepted_at;
        (!is_old).then_some(InstructionOrder { epoch: self.number, revision: written.mod_revision })
    }

    /// Reads the instruction from the entry of `/current_version`; `None` if there is none that
    /// counts.
    ///
    /// # Errors
    /// Returns the naming rule that the version breaks.
    pub fn instruction(self, current_version: Option<&Entry>) -> Result<Option<Instruction>, VersionError> {
        let Some((entry, order)) = current_version.and_then(|e| Some((e, self.order(e)?))) else {
            return Ok(None);
        };
        let version: Version = codec::read_version(&entry.value)?;
        Ok(Some(Instruction { version, order }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(value: &str, mod_revision: i64) -> Entry {
        Entry { value: value.into(), create_revision: 1, mod_revision, lease: 0, version: 1 }
    }

    #[test]
    fn an_instruction_counts_unless_it_was_written_before_the_store_was_accepted() {
        let check = |epoch: Option<(u64, i64)>, written_at: i64, expected: Option<(u64, i64)>| {
            let identity =
                epoch.map(|(epoch, at)| entry(&format!(r#"{{"lineage":"l","epoch":{epoch}}}"#), at));
            let epoch = Epoch::read(identity.as_ref()).expect("an identity");
            let found = epoch.instruction(Some(&entry("v2\n", written_at))).expect("a version");
            let order = found.map(|instruction| (instruction.order.epoch, instruction.order.revision));
            assert_eq!(order, expected, "{epoch:?} {written_at}");
        };
        check(None, 20, Some((0, 20)));
        check(Some((0, 30)), 20, Some((0, 20)));
        check(Some((1, 30)), 20, None);
        check(Some((1, 20)), 20, Some((1, 20)));
        check(Some((2, 20)), 21, Some((2, 21)));
    }

    #[test]
    fn no_instruction_and_a_malformed_one_are_told_apart() {
        assert_eq!(Epoch::default().instruction(None), Ok(None));
        assert!(Epoch::default().instruction(Some(&entry("a b", 1))).is_err());
        assert!(Epoch::read(Some(&entry("garbage", 1))).is_err());
    }
}
