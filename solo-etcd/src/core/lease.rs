//! Leases: a time to live, and the keys that go with it. Time comes in from outside, in milliseconds of a
//! clock that never goes back.

use super::mvcc::Key;
use super::{LEASE_SECONDS_MIN, Refusal};
use std::collections::{BTreeMap, BTreeSet};

/// A lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lease {
    /// As granted, in seconds.
    pub(crate) seconds: i64,
    /// When it ends, unless it is kept alive.
    ends_millis: u64,
    pub(crate) keys: BTreeSet<Key>,
}

/// All leases.
#[derive(Debug, Clone, Default)]
pub(crate) struct Leases {
    by_id: BTreeMap<i64, Lease>,
    /// By their ends, to find the next.
    ends: BTreeSet<(u64, i64)>,
}

impl Leases {
    pub(crate) fn get(&self, id: i64) -> Option<&Lease> {
        self.by_id.get(&id)
    }

    pub(crate) fn count(&self) -> usize {
        self.by_id.len()
    }

    /// Grants a lease; gives the seconds granted, which may be more than asked for.
    pub(crate) fn grant(&mut self, id: i64, seconds: i64, now_millis: u64) -> Result<i64, Refusal> {
        if self.by_id.contains_key(&id) {
            return Err(Refusal::LeaseExists);
        }
        let seconds = seconds.max(LEASE_SECONDS_MIN);
        let ends_millis = end(seconds, now_millis);
        self.by_id.insert(id, Lease { seconds, ends_millis, keys: BTreeSet::new() });
        self.ends.insert((ends_millis, id));
        Ok(seconds)
    }

    /// Gives a lease its full time again; `None` if it is not there.
    pub(crate) fn renew(&mut self, id: i64, now_millis: u64) -> Option<i64> {
        let lease = self.by_id.get_mut(&id)?;
        self.ends.remove(&(lease.ends_millis, id));
        lease.ends_millis = end(lease.seconds, now_millis);
        self.ends.insert((lease.ends_millis, id));
        Some(lease.seconds)
    }

    /// Takes a lease away, with its keys.
    pub(crate) fn remove(&mut self, id: i64) -> Option<Lease> {
        let lease = self.by_id.remove(&id)?;
        self.ends.remove(&(lease.ends_millis, id));
        Some(lease)
    }

    pub(crate) fn attach(&mut self, id: i64, key: &Key) {
        if let Some(lease) = self.by_id.get_mut(&id) {
            lease.keys.insert(key.clone());
        }
    }

    pub(crate) fn detach(&mut self, id: i64, key: &[u8]) {
        if let Some(lease) = self.by_id.get_mut(&id) {
            lease.keys.remove(key);
        }
    }

    /// Whole seconds left, as etcd cuts them off.
    pub(crate) fn seconds_left(&self, id: i64, now_millis: u64) -> Option<i64> {
        let left = self.by_id.get(&id)?.ends_millis.saturating_sub(now_millis) / 1000;
        Some(i64::try_from(left).unwrap_or(i64::MAX))
    }

    /// Every lease with its seconds, the next to end first.
    pub(crate) fn by_end(&self) -> impl Iterator<Item = (i64, i64)> {
        self.ends.iter().filter_map(|(_, id)| Some((*id, self.by_id.get(id)?.seconds)))
    }

    /// The leases whose time is over.
    pub(crate) fn ended(&self, now_millis: u64) -> impl Iterator<Item = i64> {
        self.ends.iter().take_while(move |(ends, _)| *ends <= now_millis).map(|(_, id)| *id)
    }

    /// When the next one ends.
    pub(crate) fn next_end_millis(&self) -> Option<u64> {
        self.ends.first().map(|(ends, _)| *ends)
    }
}

fn end(seconds: i64, now_millis: u64) -> u64 {
    now_millis.saturating_add(u64::try_from(seconds).unwrap_or(0).saturating_mul(1000))
}
