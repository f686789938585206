//! The store itself: its identity, and the texts that operators keep in it.

pub(super) mod accept;
pub(super) mod identity;
pub(super) mod values;
