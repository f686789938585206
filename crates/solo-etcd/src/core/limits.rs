//! Limits of requests and leases. The values are those of etcd.

/// Largest number of operations, and of comparisons, in one transaction.
pub const OPERATIONS_MAX: usize = 128;

/// Longest time to live of a lease, in seconds.
pub const LEASE_SECONDS_MAX: i64 = 9_000_000_000;

/// Shortest time to live of a lease, in seconds: etcd rounds up one and a half election timeouts.
pub const LEASE_SECONDS_MIN: i64 = 2;

/// Largest size of one encoded request, in bytes.
pub const REQUEST_BYTES_MAX: usize = 1536 * 1024;
