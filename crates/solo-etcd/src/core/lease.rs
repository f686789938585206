//! Leases: a time to live, and the keys that are deleted with it. The caller supplies the time, in
//! milliseconds of a clock that never goes back.

use super::limits::LEASE_SECONDS_MIN;
use super::mvcc::Key;
use super::refusal::Refusal;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A lease with the keys attached to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lease {
    /// Time to live as granted, in seconds.
    pub(crate) seconds: i64,
    pub(crate) keys: BTreeSet<Key>,
}

/// All leases and the times at which they end.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    by_id: BTreeMap<i64, Lease>,
    /// The end times have a lock of their own, so that a lease can be kept alive while readers hold
    /// the store, however long they take.
    ends: Mutex<Ends>,
}

/// The times, in milliseconds, at which leases end unless they are kept alive.
#[derive(Debug, Clone, Default)]
struct Ends {
    by_id: BTreeMap<i64, u64>,
    /// The lease that ends next comes first.
    in_order: BTreeSet<(u64, i64)>,
}

impl Clone for Leases {
    fn clone(&self) -> Self {
        Self { by_id: self.by_id.clone(), ends: Mutex::new(self.ends().clone()) }
    }
}

impl Ends {
    fn set(&mut self, id: i64, ends_millis: u64) {
        self.remove(id);
        self.by_id.insert(id, ends_millis);
        self.in_order.insert((ends_millis, id));
    }

    fn remove(&mut self, id: i64) {
        if let Some(ends_millis) = self.by_id.remove(&id) {
            self.in_order.remove(&(ends_millis, id));
        }
    }
}

impl Leases {
    pub(crate) fn get(&self, id: i64) -> Option<&Lease> {
        self.by_id.get(&id)
    }

    pub(crate) fn count(&self) -> usize {
        self.by_id.len()
    }

    /// Grants a lease. Returns the seconds granted, which may be more than requested.
    pub(crate) fn grant(&mut self, id: i64, seconds: i64, now_millis: u64) -> Result<i64, Refusal> {
        if self.by_id.contains_key(&id) {
            return Err(Refusal::LeaseExists);
        }
        let seconds = seconds.max(LEASE_SECONDS_MIN);
        self.by_id.insert(id, Lease { seconds, keys: BTreeSet::new() });
        self.ends().set(id, end(seconds, now_millis));
        Ok(seconds)
    }

    /// Gives a lease its full time again and returns that time in seconds. Returns `None` if the
    /// lease does not exist or its time is over.
    pub(crate) fn keep_alive(&self, id: i64, now_millis: u64) -> Option<i64> {
        let seconds = self.by_id.get(&id)?.seconds;
        let mut ends = self.ends();
        if *ends.by_id.get(&id)? <= now_millis {
            return None;
        }
        ends.set(id, end(seconds, now_millis));
        Some(seconds)
    }

    /// Gives every lease its full time again.
    pub(crate) fn renew_all(&self, now_millis: u64) {
        let mut ends = self.ends();
        for (id, lease) in &self.by_id {
            ends.set(*id, end(lease.seconds, now_millis));
        }
    }

    /// Removes a lease and returns it with its keys.
    pub(crate) fn remove(&mut self, id: i64) -> Option<Lease> {
        let lease = self.by_id.remove(&id)?;
        self.ends().remove(id);
        Some(lease)
    }

    fn ends(&self) -> MutexGuard<'_, Ends> {
        // No code panics between the updates of the two fields, so a poisoned lock holds consistent
        // data.
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Returns the whole seconds left, rounded down as in etcd.
    pub(crate) fn seconds_left(&self, id: i64, now_millis: u64) -> Option<i64> {
        let left = self.ends().by_id.get(&id)?.saturating_sub(now_millis) / 1000;
        Some(i64::try_from(left).unwrap_or(i64::MAX))
    }

    /// Returns every lease with its granted seconds, the one that ends next first.
    pub(crate) fn by_end(&self) -> Vec<(i64, i64)> {
        let ends = self.ends();
        ends.in_order.iter().filter_map(|(_, id)| Some((*id, self.by_id.get(id)?.seconds))).collect()
    }

    /// Returns at most `most` leases whose time is over.
    pub(crate) fn ended(&self, now_millis: u64, most: usize) -> Vec<i64> {
        let ends = self.ends();
        let ended = ends.in_order.iter().take_while(|(ends, _)| *ends <= now_millis);
        ended.take(most).map(|(_, id)| *id).collect()
    }

    /// Returns the time at which the next lease ends, in milliseconds.
    pub(crate) fn next_end_millis(&self) -> Option<u64> {
        self.ends().in_order.first().map(|(ends, _)| *ends)
    }
}

fn end(seconds: i64, now_millis: u64) -> u64 {
    now_millis.saturating_add(u64::try_from(seconds).unwrap_or(0).saturating_mul(1000))
}
