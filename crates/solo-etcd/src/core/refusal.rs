//! What the store refuses, in etcd's own words and codes: clients compare the text.

/// A refusal. Texts and codes: etcd's `api/v3rpc/rpctypes/error.go`; codes are those of google.rpc.Code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// A key is empty.
    EmptyKey,
    /// `ignore_value` or `ignore_lease` on a key that is not there, or an operation of no kind.
    KeyNotFound,
    /// A value together with `ignore_value`.
    ValueProvided,
    /// A lease together with `ignore_lease`.
    LeaseProvided,
    /// More operations or comparisons than [`OPERATIONS_MAX`](super::OPERATIONS_MAX).
    TooManyOperations,
    /// A transaction would write a key twice.
    DuplicateKey,
    /// The history before the compaction is gone.
    Compacted,
    /// A revision that is not there yet.
    FutureRevision,
    /// The quota is used up, or the disk is full.
    NoSpace,
    /// No such lease.
    LeaseNotFound,
    /// The id of a new lease is taken.
    LeaseExists,
    /// A time to live beyond [`LEASE_SECONDS_MAX`](super::LEASE_SECONDS_MAX).
    LeaseTooLong,
    /// A request of more than [`REQUEST_BYTES_MAX`](super::REQUEST_BYTES_MAX).
    RequestTooLarge,
    /// Too much waits to be written.
    TooManyRequests,
    /// The store is stopping, or its journal cannot be written.
    Stopped,
}

const INVALID_ARGUMENT: i32 = 3;
const NOT_FOUND: i32 = 5;
const RESOURCE_EXHAUSTED: i32 = 8;
const FAILED_PRECONDITION: i32 = 9;
const OUT_OF_RANGE: i32 = 11;
const UNAVAILABLE: i32 = 14;

impl Refusal {
    /// The code, one of google.rpc.Code.
    pub fn code(self) -> i32 {
        self.parts().0
    }

    /// etcd's words.
    pub fn message(self) -> &'static str {
        self.parts().1
    }

    fn parts(self) -> (i32, &'static str) {
        match self {
            Self::EmptyKey => (INVALID_ARGUMENT, "etcdserver: key is not provided"),
            Self::KeyNotFound => (INVALID_ARGUMENT, "etcdserver: key not found"),
            Self::ValueProvided => (INVALID_ARGUMENT, "etcdserver: value is provided"),
            Self::LeaseProvided => (INVALID_ARGUMENT, "etcdserver: lease is provided"),
            Self::TooManyOperations => (INVALID_ARGUMENT, "etcdserver: too many operations in txn request"),
            Self::DuplicateKey => (INVALID_ARGUMENT, "etcdserver: duplicate key given in txn request"),
            Self::Compacted => (OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted"),
            Self::FutureRevision => {
                (OUT_OF_RANGE, "etcdserver: mvcc: required revision is a future revision")
            }
            Self::NoSpace => (RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded"),
            Self::LeaseNotFound => (NOT_FOUND, "etcdserver: requested lease not found"),
            Self::LeaseExists => (FAILED_PRECONDITION, "etcdserver: lease already exists"),
            Self::LeaseTooLong => (OUT_OF_RANGE, "etcdserver: too large lease TTL"),
            Self::RequestTooLarge => (INVALID_ARGUMENT, "etcdserver: request is too large"),
            Self::TooManyRequests => (RESOURCE_EXHAUSTED, "etcdserver: too many requests"),
            Self::Stopped => (UNAVAILABLE, "etcdserver: server stopped"),
        }
    }
}
