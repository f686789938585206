//! The desired version of the fleet.

use schema::instruction::{Epoch, Instruction};
use schema::keys::Key;
use schema::names::Version;
use schema::order::InstructionOrder;
use schema::snapshot::{Entry, KeySnapshot};

/// The desired version of the fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FleetTarget {
    /// There is no instruction.
    NotSet,
    /// The value of `/current_version` is not a version.
    Invalid {
        /// The naming rule that the value breaks.
        why: String,
    },
    Known {
        version: Version,
        /// The order of the instruction. Its revision is that of `/current_version`.
        order: InstructionOrder,
    },
}

impl FleetTarget {
    /// Reads the target from the entry of `/current_version`, as far as it counts in this epoch.
    pub fn read(current_version: Option<&Entry>, epoch: Epoch) -> Self {
        match epoch.instruction(current_version) {
            Ok(Some(Instruction { version, order })) => Self::Known { version, order },
            Ok(None) => Self::NotSet,
            Err(error) => Self::Invalid { why: error.to_string() },
        }
    }

    /// Reads the target from a snapshot that holds `/current_version` and the identity of the store. If the identity
    /// cannot be read, the reports of the hosts say so.
    pub fn of(found: &KeySnapshot) -> Self {
        let epoch = Epoch::read(found.get(&Key::Store)).unwrap_or_default();
        Self::read(found.get(&Key::CurrentVersion), epoch)
    }

    /// Returns the desired version; `None` if there is no valid one.
    pub fn version(&self) -> Option<&Version> {
        if let Self::Known { version, .. } = self { Some(version) } else { None }
    }

    /// Returns the order of the instruction; `None` if there is no valid one.
    pub fn order(&self) -> Option<InstructionOrder> {
        if let Self::Known { order, .. } = self { Some(*order) } else { None }
    }
}
