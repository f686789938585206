//! Keys and their history: every version of every key since the last compaction.
//!
//! The model is etcd's `mvcc`: one revision per transaction, a number within it for each change,
//! and a tombstone for a deletion. Nothing is ever changed in place, so any revision since the
//! compaction can be read, and a watcher that fell behind reads the changes that it missed.
//!
//! This file is long because all operations on the history keep the same invariants.

use super::Refusal;
use etcd_client::proto::{PbEvent, PbKeyValue};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

/// A key, shared between the index and the order of changes.
pub(crate) type Key = Arc<[u8]>;

/// Revision of an empty store.
const FIRST_REVISION: i64 = 1;
/// Value of the compacted revision before the first compaction.
const NEVER: i64 = -1;
/// Space that one version counts for in the quota besides its key and value, in bytes.
const VERSION_BYTES: u64 = 128;

/// One version of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Version {
    /// Revision of the transaction that wrote this version.
    pub(crate) revision: i64,
    /// Number of the change within the transaction.
    pub(crate) sub: i32,
    /// Revision of the first version since the key last did not exist.
    pub(crate) created: i64,
    /// Number of this version since the key was created, from 1; 0 for a tombstone.
    pub(crate) version: i64,
    /// Id of the lease; 0 for none.
    pub(crate) lease: i64,
    pub(crate) value: Box<[u8]>,
}

impl Version {
    fn is_tombstone(&self) -> bool {
        self.version == 0
    }

    fn bytes(&self, key: &[u8]) -> u64 {
        (key.len() + self.value.len()) as u64 + VERSION_BYTES
    }

    fn key_value(&self, key: &[u8], keys_only: bool) -> PbKeyValue {
        PbKeyValue {
            key: key.to_vec(),
            create_revision: self.created,
            mod_revision: self.revision,
            version: self.version,
            value: if keys_only { Vec::new() } else { self.value.to_vec() },
            lease: self.lease,
        }
    }
}

/// An entry in the order of changes. The version itself is stored under its key.
#[derive(Debug, Clone)]
struct Change {
    revision: i64,
    sub: i32,
    key: Key,
}

/// The keys that a request concerns: one key, a range, or all keys from one on. The rule is etcd's:
/// no end means one key, an end of one zero byte means no upper bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span<'a> {
    key: &'a [u8],
    end: &'a [u8],
}

impl<'a> Span<'a> {
    pub(crate) fn new(key: &'a [u8], end: &'a [u8]) -> Self {
        Self { key, end }
    }

    pub(crate) fn one(key: &'a [u8]) -> Self {
        Self { key, end: &[] }
    }

    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        match self.end {
            [] => key == self.key,
            [0] => key >= self.key,
            end => key >= self.key && key < end,
        }
    }

    /// True if the span cannot contain a key.
    fn is_empty(&self) -> bool {
        !matches!(self.end, [] | [0]) && self.end <= self.key
    }

    fn bounds(&self) -> (Bound<&'a [u8]>, Bound<&'a [u8]>) {
        let last = match self.end {
            [] => Bound::Included(self.key),
            [0] => Bound::Unbounded,
            end => Bound::Excluded(end),
        };
        (Bound::Included(self.key), last)
    }
}

/// All keys with their versions, and the order of all changes.
#[derive(Debug, Clone)]
pub(crate) struct Mvcc {
    keys: BTreeMap<Key, Vec<Version>>,
    changes: VecDeque<Change>,
    revision: i64,
    compacted: i64,
    bytes: u64,
}

impl Default for Mvcc {
    fn default() -> Self {
        Self {
            keys: BTreeMap::new(),
            changes: VecDeque::new(),
            revision: FIRST_REVISION,
            compacted: NEVER,
            bytes: 0,
        }
    }
}

impl Mvcc {
    pub(crate) fn revision(&self) -> i64 {
        self.revision
    }

    pub(crate) fn compacted(&self) -> i64 {
        self.compacted
    }

    /// Returns the approximate size of the history in bytes, which the quota counts.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the newest version of a key, if the key exists.
    pub(crate) fn newest(&self, key: &[u8]) -> Option<&Version> {
        self.keys.get(key)?.last().filter(|v| !v.is_tombstone())
    }

    /// Returns the newest version of a key in the form that clients receive.
    pub(crate) fn newest_key_value(&self, key: &[u8]) -> Option<PbKeyValue> {
        self.newest(key).map(|version| version.key_value(key, false))
    }

    /// Returns the keys of a span with their versions at a revision, in order.
    fn at<'a>(&'a self, span: Span<'a>, revision: i64) -> impl Iterator<Item = (&'a Key, &'a Version)> {
        let found = (!span.is_empty()).then(|| self.keys.range::<[u8], _>(span.bounds()));
        let newest = self.revision <= revision;
        found.into_iter().flatten().filter_map(move |(key, versions)| {
            let version = if newest { versions.last() } else { at_revision(versions, revision) };
            version.filter(|v| !v.is_tombstone()).map(|v| (key, v))
        })
    }

    /// Reads a span at a revision; a revision of 0 or less means the newest. A `limit` of 0 means
    /// no limit. The returned count is that of the whole span.
    pub(crate) fn range(
        &self,
        span: Span<'_>,
        revision: i64,
        limit: usize,
        keys_only: bool,
    ) -> Result<(Vec<PbKeyValue>, i64), Refusal> {
        let at = self.readable(revision)?;
        let mut found = Vec::new();
        let mut count = 0;
        for (key, version) in self.at(span, at) {
            if limit == 0 || found.len() < limit {
                found.push(version.key_value(key, keys_only));
            }
            count += 1;
        }
        Ok((found, count))
    }

    /// Counts the keys of a span at a revision.
    pub(crate) fn count(&self, span: Span<'_>, revision: i64) -> Result<i64, Refusal> {
        let at = self.readable(revision)?;
        Ok(i64::try_from(self.at(span, at).count()).unwrap_or(i64::MAX))
    }

    fn readable(&self, revision: i64) -> Result<i64, Refusal> {
        let at = if revision <= 0 { self.revision } else { revision };
        if at > self.revision {
            Err(Refusal::FutureRevision)
        } else if at < self.compacted {
            Err(Refusal::Compacted)
        } else {
            Ok(at)
        }
    }

    /// Begins a transaction. All its changes get the same revision.
    pub(crate) fn begin(&mut self) -> Writing<'_> {
        Writing { mvcc: self, changes: 0 }
    }

    fn push(&mut self, key: Key, version: Version) {
        self.bytes += version.bytes(&key);
        self.changes.push_back(Change { revision: version.revision, sub: version.sub, key: key.clone() });
        let versions = self.keys.entry(key).or_default();
        if versions.is_empty() {
            // Most keys have one version, and a `Vec` that grows by itself begins with room for
            // four.
            versions.reserve_exact(1);
        }
        versions.push(version);
    }

    /// Discards the versions that are older than the newest version of each key at this revision.
    pub(crate) fn compact(&mut self, revision: i64) -> Result<(), Refusal> {
        if revision <= self.compacted {
            return Err(Refusal::Compacted);
        }
        if revision > self.revision {
            return Err(Refusal::FutureRevision);
        }
        self.compacted = revision;
        // Only keys that changed up to this revision can have versions to discard. A key stays as
        // it is if an earlier compaction kept its one version and it has not changed since.
        let old = self.changes.partition_point(|change| change.revision <= revision);
        let touched: Vec<Key> = self.changes.range(..old).map(|change| change.key.clone()).collect();
        for key in &touched {
            self.forget(key, revision);
        }
        let keys = &self.keys;
        let is_kept = |change: &Change| {
            let versions = keys.get(&change.key)?;
            find(versions, change.revision, change.sub)
        };
        let kept: Vec<Change> = self.changes.drain(..old).filter(|c| is_kept(c).is_some()).collect();
        kept.into_iter().rev().for_each(|change| self.changes.push_front(change));
        Ok(())
    }

    fn forget(&mut self, key: &Key, revision: i64) {
        let Some(versions) = self.keys.get_mut(key) else { return };
        let old = versions.partition_point(|v| v.revision <= revision);
        let keep = match old.checked_sub(1) {
            Some(newest) if !versions[newest].is_tombstone() => newest,
            _ => old,
        };
        self.bytes -= versions.drain(..keep).map(|v| v.bytes(key)).sum::<u64>();
        if versions.is_empty() {
            self.keys.remove(key);
        } else if versions.capacity() > 2 * versions.len() {
            versions.shrink_to_fit();
        }
    }

    /// Returns the changes from a revision on as events, in order. An event can also give the
    /// previous version of its key, unless that is compacted.
    pub(crate) fn events(&self, from: i64) -> impl Iterator<Item = Event<'_>> {
        let first = self.changes.partition_point(|change| change.revision < from);
        self.changes.range(first..).filter_map(|change| {
            let versions = self.keys.get(&change.key)?;
            let index = find(versions, change.revision, change.sub)?;
            Some(Event { key: &change.key, versions, index, compacted: self.compacted })
        })
    }

    /// Returns the existing keys, each with its newest version.
    pub(crate) fn newest_versions(&self) -> impl Iterator<Item = (&[u8], &Version)> {
        let newest = self.keys.iter().filter_map(|(key, versions)| Some((&**key, versions.last()?)));
        newest.filter(|(_, version)| !version.is_tombstone())
    }

    /// Returns the keys that are attached to a lease now, each with the id of its lease.
    pub(crate) fn leased(&self) -> impl Iterator<Item = (&Key, i64)> {
        self.keys.iter().filter_map(|(key, versions)| {
            let lease = versions.last()?.lease;
            (lease != 0).then_some((key, lease))
        })
    }

    /// Returns every version of every key for a snapshot, ordered by key, oldest version first.
    pub(crate) fn versions(&self) -> impl Iterator<Item = (&Key, &Version)> {
        self.keys.iter().flat_map(|(key, versions)| versions.iter().map(move |version| (key, version)))
    }

    /// Rebuilds a history from the output of [`Self::versions`].
    pub(crate) fn restore(
        revision: i64,
        compacted: i64,
        versions: impl Iterator<Item = (Vec<u8>, Version)>,
    ) -> Self {
        let mut mvcc = Self { revision, compacted, ..Self::default() };
        let mut last: Option<Key> = None;
        for (key, version) in versions {
            let key = last.take().filter(|last| **last == *key).unwrap_or_else(|| key.into());
            mvcc.push(key.clone(), version);
            last = Some(key);
        }
        mvcc.changes.make_contiguous().sort_by_key(|change| (change.revision, change.sub));
        mvcc
    }
}

fn at_revision(versions: &[Version], revision: i64) -> Option<&Version> {
    let after = versions.partition_point(|v| v.revision <= revision);
    versions[..after].last()
}

fn find(versions: &[Version], revision: i64, sub: i32) -> Option<usize> {
    versions.binary_search_by_key(&(revision, sub), |v| (v.revision, v.sub)).ok()
}

/// A change in the form that a watcher sees.
pub(crate) struct Event<'a> {
    key: &'a Key,
    versions: &'a [Version],
    index: usize,
    compacted: i64,
}

/// Value of a deletion in `mvccpb.Event.EventType`; a put is 0.
const DELETE: i32 = 1;

impl Event<'_> {
    pub(crate) fn key(&self) -> &[u8] {
        self.key
    }

    pub(crate) fn revision(&self) -> i64 {
        self.versions[self.index].revision
    }

    pub(crate) fn is_delete(&self) -> bool {
        self.versions[self.index].is_tombstone()
    }

    /// Returns the approximate size of the event in an answer, in bytes.
    pub(crate) fn bytes(&self, with_previous: bool) -> usize {
        let previous = if with_previous { self.previous().map_or(0, |v| v.value.len()) } else { 0 };
        self.key.len() + self.versions[self.index].value.len() + previous + 64
    }

    /// Returns the previous version. Like etcd, it reads the key at the revision before, except for
    /// a key that was created in this revision.
    fn previous(&self) -> Option<&Version> {
        let version = &self.versions[self.index];
        let was_there = version.created != version.revision && version.revision > self.compacted;
        at_revision(&self.versions[..self.index], version.revision - 1)
            .filter(|v| was_there && !v.is_tombstone())
    }

    pub(crate) fn message(&self, with_previous: bool) -> PbEvent {
        let version = &self.versions[self.index];
        let previous = if with_previous { self.previous() } else { None };
        PbEvent {
            r#type: if version.is_tombstone() { DELETE } else { 0 },
            kv: Some(version.key_value(self.key, false)),
            prev_kv: previous.map(|v| v.key_value(self.key, false)),
        }
    }
}

/// A transaction that writes. Its own reads see its changes at once. The revision increases with
/// the first change, so a transaction without changes leaves it as it is.
pub(crate) struct Writing<'a> {
    mvcc: &'a mut Mvcc,
    changes: i32,
}

impl Writing<'_> {
    /// Returns the history, including the changes made so far.
    pub(crate) fn so_far(&self) -> &Mvcc {
        self.mvcc
    }

    fn next(&mut self) -> (i64, i32) {
        if self.changes == 0 {
            self.mvcc.revision += 1;
        }
        self.changes += 1;
        (self.mvcc.revision, self.changes - 1)
    }

    /// Writes a key. Returns the shared key and the id of the lease that it had before, 0 for none.
    pub(crate) fn put(&mut self, key: &[u8], value: Vec<u8>, lease: i64) -> (Key, i64) {
        let (revision, sub) = self.next();
        let known = self.mvcc.keys.get_key_value(key);
        let before = known.and_then(|(_, versions)| versions.last()).filter(|v| !v.is_tombstone());
        let (created, version, lease_before) =
            before.map_or((revision, 1, 0), |v| (v.created, v.version + 1, v.lease));
        let key: Key = known.map_or_else(|| key.into(), |(key, _)| key.clone());
        let value = value.into_boxed_slice();
        self.mvcc.push(key.clone(), Version { revision, sub, created, version, lease, value });
        (key, lease_before)
    }

    /// Deletes the keys of a span. Returns the deleted keys, each with the id of its lease.
    pub(crate) fn delete(&mut self, span: Span<'_>) -> Vec<(Key, i64)> {
        let found: Vec<(Key, i64)> =
            self.mvcc.at(span, self.mvcc.revision).map(|(key, v)| (key.clone(), v.lease)).collect();
        for (key, _) in &found {
            let (revision, sub) = self.next();
            let value = Box::default();
            self.mvcc.push(key.clone(), Version { revision, sub, created: 0, version: 0, lease: 0, value });
        }
        found
    }
}
