//! Refusals of the store, with the texts and codes of etcd: clients compare the text.

/// Reason why a request is refused. Texts and codes are those of etcd's
/// `api/v3rpc/rpctypes/error.go`; the codes are those of google.rpc.Code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// A key is empty.
    EmptyKey,
    /// `ignore_value` or `ignore_lease` is set for a key that does not exist, or an operation of a
    /// transaction has no kind.
    KeyNotFound,
    /// A value is given together with `ignore_value`.
    ValueProvided,
    /// A lease is given together with `ignore_lease`.
    LeaseProvided,
    /// There are more operations or comparisons than [`OPERATIONS_MAX`](super::OPERATIONS_MAX).
    TooManyOperations,
    /// A transaction would write a key twice.
    DuplicateKey,
    /// The requested revision was compacted.
    Compacted,
    /// The requested revision does not exist yet.
    FutureRevision,
    /// The quota is used up, or the disk is full.
    NoSpace,
    /// The lease does not exist.
    LeaseNotFound,
    /// The id requested for a new lease is already in use.
    LeaseExists,
    /// The time to live is longer than [`LEASE_SECONDS_MAX`](super::LEASE_SECONDS_MAX).
    LeaseTooLong,
    /// The request is larger than [`REQUEST_BYTES_MAX`](super::REQUEST_BYTES_MAX).
    RequestTooLarge,
    /// The commands that wait to be written take too much memory.
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
    /// Returns the code, one of google.rpc.Code.
    pub fn code(self) -> i32 {
        self.parts().0
    }

    /// Returns the text that etcd uses for this refusal.
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
