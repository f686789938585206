//! Bounds of requests and leases: etcd's own.

/// Operations, or comparisons, in one transaction.
pub const OPERATIONS_MAX: usize = 128;

/// The longest time to live of a lease.
pub const LEASE_SECONDS_MAX: i64 = 9_000_000_000;

/// The shortest: etcd rounds one and a half election time-outs up.
pub const LEASE_SECONDS_MIN: i64 = 2;

/// Bytes of one request, encoded.
pub const REQUEST_BYTES_MAX: usize = 1536 * 1024;
