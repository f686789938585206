//! What the store keeps under a key.

/// Value and metadata of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Value of the key, as stored.
    pub value: Vec<u8>,
    /// Revision at which the key was created.
    pub create_revision: i64,
    /// Revision at which the key was last written.
    pub mod_revision: i64,
    /// Lease that the key is attached to; 0 for none.
    pub lease: i64,
    /// Number of writes since the key was created, which is its first.
    pub version: i64,
}
