//! What really is, which the laws compare with what the store says.

use crate::machine::Machine;
use crate::store::Store;

/// The store, and the machines as they really are.
#[derive(Clone, Copy)]
pub(crate) struct Reality<'a> {
    pub(crate) store: &'a Store,
    pub(crate) machines: &'a [Machine],
}
