//! The store without clock or I/O. [`Store::apply`] executes a command and returns its answer; the
//! changes can be read from the history. The same commands in the same order give the same state,
//! which the journal relies on.

mod change;
mod lease;
mod limits;
mod mvcc;
mod read;
mod refusal;
mod txn;

pub use limits::{LEASE_SECONDS_MAX, LEASE_SECONDS_MIN, OPERATIONS_MAX, REQUEST_BYTES_MAX};
pub(crate) use mvcc::{Event, Span};
pub use refusal::Refusal;

use change::Change;
use etcd_client::proto::{
    PbCompactionRequest, PbDeleteRequest, PbDeleteResponse, PbKeyValue, PbLeaseGrantRequest, PbPutRequest,
    PbPutResponse, PbRangeRequest, PbRangeResponse, PbTxnOpRequest, PbTxnRequest, PbTxnResponse,
};
use lease::Leases;
use mvcc::Mvcc;
pub(crate) use mvcc::Version;

/// Space that one lease counts for in the quota, in bytes.
const LEASE_BYTES: u64 = 128;
/// A change of the store. Every command is written to the journal before it is applied.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    Put(PbPutRequest),
    /// Deletes a key or a range of keys.
    DeleteRange(PbDeleteRequest),
    /// Evaluates comparisons, then executes one of two lists of operations.
    Txn(PbTxnRequest),
    /// Discards the history before a revision.
    Compact(PbCompactionRequest),
    /// Grants a lease under the id of the request, which is not 0.
    LeaseGrant(PbLeaseGrantRequest),
    /// Removes a lease and its keys, on request or because its time is over.
    LeaseRevoke(i64),
    /// Raises (true) or clears (false) the alarm NOSPACE.
    NoSpace(bool),
    /// The process started: increases the raft term by one.
    Start,
}

/// Result of a command.
#[derive(Debug, Clone, PartialEq)]
pub enum CommandResult {
    /// Response to a put.
    Put(PbPutResponse),
    /// Response to a deletion.
    DeleteRange(PbDeleteResponse),
    /// Response to a transaction.
    Txn(PbTxnResponse),
    /// Time to live of a granted lease, in seconds.
    Granted(i64),
    /// The command has no result besides the revision.
    Done,
}

/// The whole state of the store: keys with their history, leases, alarm and counters.
#[derive(Debug, Clone, Default)]
pub struct Store {
    mvcc: Mvcc,
    leases: Leases,
    no_space: bool,
    raft_term: u64,
    /// Number of commands applied since the store was created; reported as etcd's raft index.
    applied: u64,
}

/// The part of a snapshot besides keys and leases.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Summary {
    pub(crate) revision: i64,
    pub(crate) compacted: i64,
    pub(crate) no_space: bool,
    pub(crate) raft_term: u64,
    pub(crate) applied: u64,
}

impl Command {
    /// Refuses commands that are invalid in any state. Such a command is never written to the
    /// journal.
    pub fn check(&self) -> Result<(), Refusal> {
        match self {
            Self::Put(request) => txn::check_put(request),
            Self::DeleteRange(request) => txn::check_delete(request),
            Self::Txn(request) => txn::check_txn(request),
            Self::LeaseGrant(request) if request.ttl > LEASE_SECONDS_MAX => Err(Refusal::LeaseTooLong),
            _ => Ok(()),
        }
    }

    /// Returns how many bytes the command may add to the store, for the quota. It is 0 for commands
    /// that free space or take none.
    pub fn cost_bytes(&self) -> u64 {
        match self {
            Self::Put(request) => put_cost(request),
            Self::Txn(request) => txn_cost(request),
            Self::LeaseGrant(_) => LEASE_BYTES,
            _ => 0,
        }
    }
}

fn put_cost(request: &PbPutRequest) -> u64 {
    (request.key.len() + request.value.len()) as u64 + 256
}

fn txn_cost(request: &PbTxnRequest) -> u64 {
    let cost = |operations: &[etcd_client::proto::PbTxnRequestOp]| -> u64 {
        let each = operations.iter().map(|operation| match &operation.request {
            Some(PbTxnOpRequest::RequestPut(put)) => put_cost(put),
            Some(PbTxnOpRequest::RequestTxn(nested)) => txn_cost(nested),
            _ => 0,
        });
        each.sum()
    };
    cost(&request.success).max(cost(&request.failure))
}

impl Store {
    /// Applies one command. `now_millis` is in milliseconds of a clock that never goes back; only
    /// leases use it.
    pub fn apply(&mut self, command: Command, now_millis: u64) -> Result<CommandResult, Refusal> {
        self.applied += 1;
        match command {
            Command::Put(request) => {
                if request.lease != 0 && self.leases.get(request.lease).is_none() {
                    return Err(Refusal::LeaseNotFound);
                }
                if (request.ignore_value || request.ignore_lease) && self.mvcc.newest(&request.key).is_none()
                {
                    return Err(Refusal::KeyNotFound);
                }
                Ok(CommandResult::Put(self.change().put(request)))
            }
            Command::DeleteRange(request) => {
                Ok(CommandResult::DeleteRange(self.change().delete_range(&request)))
            }
            Command::Txn(request) => {
                let path = txn::Path::of(&self.mvcc, &request);
                let leases = &self.leases;
                txn::check_against(&self.mvcc, &request, &path, |id| leases.get(id).is_some())?;
                Ok(CommandResult::Txn(txn::run(&mut self.change(), &request, &path)))
            }
            Command::Compact(request) => self.mvcc.compact(request.revision).map(|()| CommandResult::Done),
            Command::LeaseGrant(request) => {
                self.leases.grant(request.id, request.ttl, now_millis).map(CommandResult::Granted)
            }
            Command::LeaseRevoke(id) => {
                let lease = self.leases.remove(id).ok_or(Refusal::LeaseNotFound)?;
                let mut writing = self.mvcc.begin();
                for key in &lease.keys {
                    writing.delete(Span::one(key));
                }
                Ok(CommandResult::Done)
            }
            Command::NoSpace(raised) => {
                self.no_space = raised;
                Ok(CommandResult::Done)
            }
            Command::Start => {
                self.raft_term += 1;
                Ok(CommandResult::Done)
            }
        }
    }

    fn change(&mut self) -> Change<'_> {
        Change { writing: self.mvcc.begin(), leases: &mut self.leases }
    }

    /// Answers a range request.
    pub fn range(&self, request: &PbRangeRequest) -> Result<PbRangeResponse, Refusal> {
        read::check_range(request)?;
        read::range(&self.mvcc, request)
    }

    /// Answers a transaction that only reads. Returns `None` if the transaction may write.
    pub fn read_only_txn(&self, request: &PbTxnRequest) -> Option<Result<PbTxnResponse, Refusal>> {
        txn::is_read_only(request)
            .then(|| txn::check_txn(request).and_then(|()| txn::run_read_only(&self.mvcc, request)))
    }

    /// Keeps a lease alive and returns its time to live in seconds. Returns `None` if the lease
    /// does not exist or its time is over. Keep-alives are not in the journal, because every lease
    /// has its full time again after a restart.
    pub fn keep_alive(&self, id: i64, now_millis: u64) -> Option<i64> {
        self.leases.keep_alive(id, now_millis)
    }

    /// Gives every lease its full time again: after a start it is not known how long the store was
    /// down.
    pub fn renew_all(&mut self, now_millis: u64) {
        self.leases.renew_all(now_millis);
    }

    /// Returns the seconds left, the seconds granted and the keys of a lease.
    pub fn lease(&self, id: i64, now_millis: u64) -> Option<(i64, i64, Vec<Vec<u8>>)> {
        let lease = self.leases.get(id)?;
        let keys = lease.keys.iter().map(|key| key.to_vec()).collect();
        Some((self.leases.seconds_left(id, now_millis)?, lease.seconds, keys))
    }

    /// Returns the ids of all leases with the seconds granted, the one that ends next first.
    pub fn leases(&self) -> Vec<(i64, i64)> {
        self.leases.by_end()
    }

    /// Returns the ids of at most `most` leases whose time is over.
    pub fn ended_leases(&self, now_millis: u64, most: usize) -> Vec<i64> {
        self.leases.ended(now_millis, most)
    }

    /// Returns the time at which the next lease ends, in milliseconds.
    pub fn next_lease_end_millis(&self) -> Option<u64> {
        self.leases.next_end_millis()
    }

    /// Returns the newest revision.
    pub fn revision(&self) -> i64 {
        self.mvcc.revision()
    }

    /// Returns the revision of the last compaction; -1 before the first.
    pub fn compacted(&self) -> i64 {
        self.mvcc.compacted()
    }

    /// Returns the approximate size of the whole store in bytes.
    pub fn bytes(&self) -> u64 {
        self.mvcc.bytes() + self.leases.count() as u64 * LEASE_BYTES
    }

    /// True if the alarm NOSPACE is raised.
    pub fn no_space(&self) -> bool {
        self.no_space
    }

    /// Returns the raft term, which increases by one with every start.
    pub fn raft_term(&self) -> u64 {
        self.raft_term
    }

    /// Returns the number of commands applied since the store was created.
    pub fn applied(&self) -> u64 {
        self.applied
    }

    /// Returns the changes from a revision on, in order.
    pub(crate) fn events(&self, from: i64) -> impl Iterator<Item = Event<'_>> {
        self.mvcc.events(from)
    }

    pub(crate) fn summary(&self) -> Summary {
        Summary {
            revision: self.mvcc.revision(),
            compacted: self.mvcc.compacted(),
            no_space: self.no_space,
            raft_term: self.raft_term,
            applied: self.applied,
        }
    }

    /// Returns the existing keys, each with its newest version.
    pub(crate) fn newest(&self) -> impl Iterator<Item = (&[u8], &Version)> {
        self.mvcc.newest_versions()
    }

    pub(crate) fn versions(&self) -> impl Iterator<Item = (&mvcc::Key, &Version)> {
        self.mvcc.versions()
    }

    /// Returns a store with these keys at a revision, without leases and without a history before it.
    pub fn frozen(revision: i64, keys: impl IntoIterator<Item = PbKeyValue>) -> Self {
        let version = |kv: PbKeyValue| {
            let version = Version {
                revision: kv.mod_revision,
                sub: 0,
                created: kv.create_revision,
                version: kv.version,
                lease: kv.lease,
                value: kv.value.into(),
            };
            (kv.key, version)
        };
        let mvcc = Mvcc::restore(revision, revision, keys.into_iter().map(version));
        Self { mvcc, ..Self::default() }
    }

    /// Builds the state from the parts of a snapshot. Leases begin with their full time.
    pub(crate) fn restore(
        summary: &Summary,
        leases: impl Iterator<Item = (i64, i64)>,
        versions: impl Iterator<Item = (Vec<u8>, Version)>,
        now_millis: u64,
    ) -> Result<Self, Refusal> {
        let mvcc = Mvcc::restore(summary.revision, summary.compacted, versions);
        let mut store = Self {
            mvcc,
            leases: Leases::default(),
            no_space: summary.no_space,
            raft_term: summary.raft_term,
            applied: summary.applied,
        };
        for (id, seconds) in leases {
            store.leases.grant(id, seconds, now_millis)?;
        }
        let Store { mvcc, leases, .. } = &mut store;
        for (key, lease) in mvcc.leased() {
            leases.attach(lease, key);
        }
        Ok(store)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(store: &mut Store, id: i64, ttl: i64, now_millis: u64) {
        let request = PbLeaseGrantRequest { id, ttl };
        store.apply(Command::LeaseGrant(request), now_millis).expect("granted");
    }

    fn put(store: &mut Store, key: &str, lease: i64) {
        let request = PbPutRequest { key: key.into(), lease, ..PbPutRequest::default() };
        store.apply(Command::Put(request), 0).expect("written");
    }

    fn keys(store: &Store) -> Vec<Vec<u8>> {
        let all = PbRangeRequest { key: vec![0], range_end: vec![0], ..PbRangeRequest::default() };
        store.range(&all).expect("an answer").kvs.into_iter().map(|kv| kv.key).collect()
    }

    #[test]
    fn a_lease_whose_time_is_over_is_not_kept_alive() {
        let mut store = Store::default();
        grant(&mut store, 7, 10, 1_000);
        assert_eq!(store.keep_alive(7, 10_999), Some(10));
        assert!(store.ended_leases(20_998, 9).is_empty());
        assert_eq!(store.keep_alive(7, 20_999), None, "its end is settled, though not yet carried out");
        assert_eq!(store.ended_leases(20_999, 9), [7]);
        store.renew_all(50_000);
        assert_eq!(store.next_lease_end_millis(), Some(60_000));
    }

    #[test]
    fn a_lease_takes_the_keys_that_hang_on_it_now_in_one_revision() {
        let mut store = Store::default();
        grant(&mut store, 7, 10, 0);
        grant(&mut store, 8, 10, 0);
        for (key, lease) in [("a", 7), ("b", 7), ("c", 7), ("b", 8), ("c", 0)] {
            put(&mut store, key, lease);
        }
        let before = store.revision();
        store.apply(Command::LeaseRevoke(7), 0).expect("revoked");
        assert_eq!((keys(&store), store.revision()), (vec![b"b".to_vec(), b"c".to_vec()], before + 1));
        assert_eq!(store.apply(Command::LeaseRevoke(7), 0), Err(Refusal::LeaseNotFound));
    }

    #[test]
    fn history_and_leases_count_towards_the_quota_and_compaction_gives_back() {
        let mut store = Store::default();
        grant(&mut store, 7, 10, 0);
        assert_eq!(store.bytes(), LEASE_BYTES);
        (0..100).for_each(|_| put(&mut store, "k", 0));
        let full = store.bytes();
        let request = PbCompactionRequest { revision: store.revision(), physical: false };
        store.apply(Command::Compact(request), 0).expect("compacted");
        assert!(store.bytes() * 20 < full, "{} of {full}", store.bytes());
        assert_eq!(keys(&store), [b"k".to_vec()]);
    }
}
