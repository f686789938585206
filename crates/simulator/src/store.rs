//! The store of a simulated fleet: the core of solo-etcd, with transactions as values.

use etcd_client::proto::{
    PbCompactionRequest, PbCompare, PbDeleteRequest, PbKeyValue, PbLeaseGrantRequest, PbPutRequest,
    PbRangeRequest, PbTargetUnion, PbTxnOpRequest, PbTxnRequest, PbTxnRequestOp,
};
use schema::keys::{Key, Prefix};
use schema::reads::Read;
use schema::snapshot::{Entry, KeySnapshot};
use schema::transaction::{Compare, Operation, Transaction};
use solo_etcd::core::{Command, CommandResult, Refusal, Store as Core};
use std::collections::{BTreeMap, BTreeSet};

/// A change of one key at one revision.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) key: String,
    pub(crate) revision: i64,
    /// The new entry; `None` if the key was deleted.
    pub(crate) entry: Option<Entry>,
    /// True if the key did not exist, and still does not. A watch does not see that.
    pub(crate) is_nothing: bool,
}

/// The answer to a transaction.
#[derive(Debug, Clone)]
pub(crate) struct Committed {
    /// True if all comparisons held.
    pub(crate) applied: bool,
    /// The keys that the transaction read because a comparison did not hold.
    pub(crate) found: KeySnapshot,
    pub(crate) changes: Vec<Change>,
}

/// Number of revisions after which the history is discarded.
const HISTORY: i64 = 200;

#[derive(Debug, Clone)]
pub(crate) struct Store {
    core: Core,
    next_lease: i64,
    /// What is added to the revisions of the core.
    first_revision: i64,
}

impl Store {
    pub(crate) fn new() -> Self {
        Self::starting_at(0)
    }

    /// Returns a store whose revisions begin with this one.
    pub(crate) fn starting_at(first_revision: i64) -> Self {
        let mut core = Core::default();
        // Starting is never refused.
        let _ = core.apply(Command::Start, 0);
        Self { core, next_lease: 1000, first_revision }
    }

    pub(crate) fn revision(&self) -> i64 {
        self.first_revision + self.core.revision()
    }

    pub(crate) fn raft_term(&self) -> u64 {
        self.core.raft_term()
    }

    pub(crate) fn commit(&mut self, transaction: &Transaction, now: u64) -> Result<Committed, Refusal> {
        let command = Command::Txn(self.request(transaction));
        command.check()?;
        let before = self.revision();
        let keys = self.changed_keys(transaction);
        let absent: BTreeSet<String> = keys.iter().filter(|key| self.entry(key).is_none()).cloned().collect();
        let CommandResult::Txn(answer) = self.core.apply(command, now)? else { return Err(Refusal::Stopped) };
        if !answer.succeeded {
            let found = self.read_all(&transaction.reads, &transaction.read_ranges);
            return Ok(Committed { applied: false, found, changes: Vec::new() });
        }
        let mut changes = self.changes(keys.into_iter(), before);
        changes.iter_mut().for_each(|c| c.is_nothing = c.entry.is_none() && absent.contains(&c.key));
        self.discard_history(now);
        Ok(Committed { applied: true, found: KeySnapshot::default(), changes })
    }

    /// Returns the keys that a transaction changes.
    pub(crate) fn changed_keys(&self, transaction: &Transaction) -> Vec<String> {
        let keys = |operation: &Operation| match operation {
            Operation::DeleteAll(range) => self.list(range).entries.into_keys().collect(),
            other => other.key().into_iter().map(Key::to_string).collect::<Vec<_>>(),
        };
        transaction.operations.iter().flat_map(keys).collect::<Vec<String>>()
    }

    /// Returns what became of these keys, if the last command wrote at all.
    fn changes(&self, keys: impl Iterator<Item = String>, before: i64) -> Vec<Change> {
        let revision = self.revision();
        if revision == before {
            return Vec::new();
        }
        keys.map(|key| Change { revision, entry: self.entry(&key), key, is_nothing: false }).collect()
    }

    /// Returns the entry of a key.
    pub(crate) fn entry(&self, key: &str) -> Option<Entry> {
        let request = PbRangeRequest { key: key.into(), ..PbRangeRequest::default() };
        self.core.range(&request).ok()?.kvs.into_iter().next().map(|kv| self.entry_of(kv))
    }

    /// Reads keys at the current revision.
    pub(crate) fn read(&self, keys: &[Key]) -> KeySnapshot {
        let entries = keys.iter().filter_map(|key| {
            let key = key.to_string();
            self.entry(&key).map(|entry| (key, entry))
        });
        KeySnapshot { revision: self.revision(), raft_term: self.raft_term(), entries: entries.collect() }
    }

    /// Reads keys and ranges at the current revision.
    pub(crate) fn read_all(&self, keys: &[Key], ranges: &[Prefix]) -> KeySnapshot {
        self.read_together(&Read::all(keys, ranges))
    }

    /// Reads all of this at the current revision.
    pub(crate) fn read_together(&self, reads: &[Read]) -> KeySnapshot {
        let mut found = self.read(&[]);
        for read in reads {
            found.entries.extend(match read {
                Read::Key(key) => self.read(std::slice::from_ref(key)).entries,
                Read::Range(range) => self.list(range).entries,
                Read::NextAfter { range, key, count } => self.next_after(range, key, *count),
            });
        }
        found
    }

    fn next_after(&self, prefix: &Prefix, key: &Key, count: u32) -> BTreeMap<String, Entry> {
        let request = PbRangeRequest {
            key: format!("{key}\0").into(),
            range_end: range(prefix).1,
            limit: i64::from(count),
            ..PbRangeRequest::default()
        };
        self.entries_of(&request)
    }

    fn entries_of(&self, request: &PbRangeRequest) -> BTreeMap<String, Entry> {
        let found = self.core.range(request).map(|answer| answer.kvs).unwrap_or_default();
        let entry = |kv: PbKeyValue| (String::from_utf8_lossy(&kv.key).into_owned(), self.entry_of(kv));
        found.into_iter().map(entry).collect()
    }

    /// Reads all keys of a range.
    pub(crate) fn list(&self, prefix: &Prefix) -> KeySnapshot {
        let (key, range_end) = range(prefix);
        let request = PbRangeRequest { key, range_end, ..PbRangeRequest::default() };
        let entries = self.entries_of(&request);
        KeySnapshot { revision: self.revision(), raft_term: self.raft_term(), entries }
    }

    pub(crate) fn grant(&mut self, seconds: i64, now: u64) -> i64 {
        self.next_lease += 1;
        let request = PbLeaseGrantRequest { id: self.next_lease, ttl: seconds };
        // An id is used once.
        let _ = self.core.apply(Command::LeaseGrant(request), now);
        self.next_lease
    }

    /// Keeps a lease alive. Returns false if it does not exist.
    pub(crate) fn keep_alive(&self, lease: i64, now: u64) -> bool {
        self.core.keep_alive(lease, now).is_some()
    }

    /// Returns the seconds that a lease has left.
    pub(crate) fn seconds_left(&self, lease: i64, now: u64) -> Option<i64> {
        self.core.lease(lease, now).map(|(left, ..)| left)
    }

    pub(crate) fn next_lease_end(&self) -> Option<u64> {
        self.core.next_lease_end_millis()
    }

    /// Ends one lease whose time is over. Returns the changes, or `None` if there is none.
    pub(crate) fn end_lease(&mut self, now: u64) -> Option<Vec<Change>> {
        let id = *self.core.ended_leases(now, 1).first()?;
        Some(self.revoke(id, now))
    }

    /// Revokes a lease. Returns the changes.
    pub(crate) fn revoke(&mut self, lease: i64, now: u64) -> Vec<Change> {
        let keys = self.core.lease(lease, now).map(|(.., keys)| keys).unwrap_or_default();
        let before = self.revision();
        // A lease that does not exist has no keys.
        let _ = self.core.apply(Command::LeaseRevoke(lease), now);
        self.changes(keys.into_iter().map(|key| String::from_utf8_lossy(&key).into_owned()), before)
    }

    /// Another member leads from now on: every lease has its full time again.
    pub(crate) fn change_leader(&mut self, now: u64) {
        let _ = self.core.apply(Command::Start, now);
        self.core.renew_all(now);
    }

    /// Replaces the content by that of a backup. Ids of leases go on.
    pub(crate) fn restore(&mut self, backup: &Self, now: u64) {
        self.core = backup.core.clone();
        self.change_leader(now);
    }

    fn discard_history(&mut self, now: u64) {
        if self.core.revision() - self.core.compacted() > HISTORY {
            self.forget_history(now);
        }
    }

    /// Discards what keys were before.
    pub(crate) fn forget_history(&mut self, now: u64) {
        let request = PbCompactionRequest { revision: self.core.revision(), physical: true };
        // Only a revision that is compacted already is refused.
        let _ = self.core.apply(Command::Compact(request), now);
    }

    fn entry_of(&self, kv: PbKeyValue) -> Entry {
        Entry {
            value: kv.value,
            create_revision: self.first_revision + kv.create_revision,
            mod_revision: self.first_revision + kv.mod_revision,
            lease: kv.lease,
            version: kv.version,
        }
    }

    /// Returns the request of a transaction.
    fn request(&self, transaction: &Transaction) -> PbTxnRequest {
        PbTxnRequest {
            compare: transaction.compares.iter().map(|c| compare(c, self.first_revision)).collect(),
            success: transaction.operations.iter().map(operation).collect(),
            failure: Vec::new(),
        }
    }
}

/// Returns the first key of a range, and its end.
fn range(prefix: &Prefix) -> (Vec<u8>, Vec<u8>) {
    let key = prefix.to_string().into_bytes();
    let mut end = key.clone();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    (key, end)
}

/// Numbers of the enumeration `CompareTarget` in etcd's `rpc.proto`.
const TARGET_CREATE: i32 = 1;
const TARGET_MOD: i32 = 2;
const TARGET_VALUE: i32 = 3;
const TARGET_LEASE: i32 = 4;

/// Returns a comparison with a store whose revisions begin with `first`; 0 is that of a key that does not exist.
fn compare(compare: &Compare, first: i64) -> PbCompare {
    let of_core = |revision: i64| if revision == 0 { 0 } else { revision - first };
    let one = |key: &Key| (key.to_string().into_bytes(), Vec::new());
    let ((key, range_end), target, union) = match compare {
        Compare::Revision(key, revision) => {
            (one(key), TARGET_MOD, PbTargetUnion::ModRevision(of_core(*revision)))
        }
        Compare::Value(key, value) => (one(key), TARGET_VALUE, PbTargetUnion::Value(value.clone())),
        Compare::Lease(key, lease) => (one(key), TARGET_LEASE, PbTargetUnion::Lease(*lease)),
        Compare::NoneIn(prefix) => (range(prefix), TARGET_CREATE, PbTargetUnion::CreateRevision(0)),
        Compare::NoneNewer(prefix, revision) => {
            (range(prefix), TARGET_MOD, PbTargetUnion::ModRevision(of_core(*revision) + 1))
        }
        Compare::NoClaims { limit, from, below } => {
            let key = |number| Key::Claim(limit.clone(), number).to_string().into_bytes();
            ((key(*from), key(*below)), TARGET_CREATE, PbTargetUnion::CreateRevision(0))
        }
    };
    // The results of `CompareResult` in etcd's `rpc.proto`: 0 is "equal", 2 is "less".
    let result = if matches!(compare, Compare::NoneNewer(..)) { 2 } else { 0 };
    PbCompare { result, target, key, range_end, target_union: Some(union) }
}

fn operation(operation: &Operation) -> PbTxnRequestOp {
    let put = |key: &Key, value: &[u8], lease| {
        let request = PbPutRequest {
            key: key.to_string().into(),
            value: value.into(),
            lease,
            ..PbPutRequest::default()
        };
        PbTxnOpRequest::RequestPut(request)
    };
    let request = match operation {
        Operation::Put { key, value, lease } => put(key, value, *lease),
        Operation::PutIfAbsent { key, value } => PbTxnOpRequest::RequestTxn(PbTxnRequest {
            compare: vec![self::compare(&Compare::absent(key.clone()), 0)],
            success: vec![PbTxnRequestOp { request: Some(put(key, value, 0)) }],
            failure: Vec::new(),
        }),
        Operation::Delete(key) => PbTxnOpRequest::RequestDeleteRange(PbDeleteRequest {
            key: key.to_string().into(),
            ..PbDeleteRequest::default()
        }),
        Operation::DeleteAll(prefix) => {
            let (key, range_end) = range(prefix);
            let request = PbDeleteRequest { key, range_end, ..PbDeleteRequest::default() };
            PbTxnOpRequest::RequestDeleteRange(request)
        }
    };
    PbTxnRequestOp { request: Some(request) }
}
