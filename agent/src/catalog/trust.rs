//! Whether the catalog in the store is trusted.

/// The part of the store trust that the catalog needs, as the reconciler publishes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Trust {
    /// The epoch of the store; `None` unless the store is trusted, that is, belongs to this fleet
    /// and did not go back.
    pub epoch: Option<u64>,
    /// The revision of the drop-stale request in the store; 0 if there is none.
    pub release: i64,
}
