//! `/orchestrate/store`: the identity of the store.

use crate::codec::{self, ValueError};
use crate::entry::Entry;
use crate::names::Token;
use serde::{Deserialize, Serialize};

/// `/orchestrate/store`: the identity of the store. A restored or replaced store can have the same
/// cluster id, but it cannot have the same lineage, the same epoch and a history that continues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreIdentity {
    /// Random token, created once in the life of a fleet.
    pub lineage: Token,
    /// How often `store accept` was called in this lineage.
    pub epoch: u64,
    /// Revision at which the epoch began, if the identity was written again since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_at: Option<i64>,
    /// True if freezes may stand in the store. The identity has format 2 then, so that programs that
    /// do not know freezes refuse the store and start nothing.
    #[serde(skip)]
    pub has_brakes: bool,
}

/// The newest format of an identity, which one with brakes has.
pub const STORE_FORMAT: u32 = 2;

impl StoreIdentity {
    /// Returns the identity of a store without brakes.
    pub fn new(lineage: Token, epoch: u64) -> Self {
        Self { lineage, epoch, accepted_at: None, has_brakes: false }
    }

    /// Reads an identity.
    ///
    /// # Errors
    /// Returns an error if the value is not an identity, or was written by a newer program.
    pub fn read(bytes: &[u8]) -> Result<Self, ValueError> {
        let (format, identity): (u32, Self) = codec::read_up_to(bytes, STORE_FORMAT)?;
        Ok(Self { has_brakes: format >= STORE_FORMAT, ..identity })
    }

    /// Returns the value that is stored.
    pub fn write(&self) -> String {
        codec::write_as(if self.has_brakes { STORE_FORMAT } else { codec::FORMAT }, self)
    }

    /// Returns the same identity with brakes. `found` is the entry that it was read from: the epoch
    /// still begins where it did.
    #[must_use]
    pub fn with_brakes(self, found: &Entry) -> Self {
        Self { accepted_at: self.accepted_at.or(Some(found.mod_revision)), has_brakes: true, ..self }
    }
}
