//! Whether the catalog of the store counts.

/// What the reconciler says of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Trust {
    /// The epoch of the store, if it is ours and did not go back.
    pub epoch: Option<u64>,
    /// The revision of the request that what is held back be let through; 0 if there is none.
    pub release: i64,
}
