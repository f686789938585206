//! Collects what a feed sends: complete lists, and changes.

use super::feed::FeedEvent;
use schema::snapshot::Entry;
use std::collections::BTreeMap;

/// Collects the parts of a list until it is complete. Only the consumer keeps the complete list.
#[derive(Debug)]
pub struct Collector<K, V> {
    listing: BTreeMap<K, V>,
}

/// What a consumer has to apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Collected<K, V> {
    /// A complete list as of this revision. It replaces everything that is known.
    Replaced(BTreeMap<K, V>, i64),
    /// Changes up to this revision, in order. The value is `None` if the key was deleted, or if its
    /// value cannot be read.
    Changed(Vec<(K, Option<V>)>, i64),
    /// True if the watch is connected, false if it is not.
    Connected(bool),
}

impl<K, V> Default for Collector<K, V> {
    fn default() -> Self {
        Self { listing: BTreeMap::new() }
    }
}

impl<K: Ord, V> Collector<K, V> {
    /// Takes an event of the feed. `read` reads a key and, if it was not deleted, its entry. It
    /// returns `None` for a key that does not belong to the list, and no value for an entry that
    /// cannot be read.
    pub fn take(
        &mut self,
        event: FeedEvent,
        mut read: impl FnMut(&str, Option<&Entry>) -> Option<(K, Option<V>)>,
    ) -> Option<Collected<K, V>> {
        match event {
            FeedEvent::InitApply(part) => {
                let read = part.iter().filter_map(|(key, entry)| read(key, Some(entry)));
                self.listing.extend(read.filter_map(|(key, value)| Some((key, value?))));
                None
            }
            FeedEvent::InitDone(revision) => {
                Some(Collected::Replaced(std::mem::take(&mut self.listing), revision))
            }
            FeedEvent::Apply(revision, changes) => {
                let changes = changes.iter().filter_map(|(key, entry)| read(key, entry.as_ref()));
                Some(Collected::Changed(changes.collect(), revision))
            }
            // They are for consumers that put several feeds together.
            FeedEvent::Progress(_)
            | FeedEvent::UnconfirmedProgress(_)
            | FeedEvent::Problem(_)
            | FeedEvent::WentBack(_) => None,
            FeedEvent::Connected(connected) => {
                // The feed begins a new list, or continues with changes.
                self.clear();
                Some(Collected::Connected(connected))
            }
        }
    }

    /// Returns the number of keys of the list that is not complete yet.
    pub fn len(&self) -> usize {
        self.listing.len()
    }

    /// True if no list has begun.
    pub fn is_empty(&self) -> bool {
        self.listing.is_empty()
    }

    /// Drops the list that is not complete yet.
    pub fn clear(&mut self) {
        self.listing.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(value: &str) -> Entry {
        Entry { value: value.into(), create_revision: 1, mod_revision: 1, lease: 0, version: 1 }
    }

    fn part(entries: &[(&str, &str)]) -> FeedEvent {
        FeedEvent::InitApply(entries.iter().map(|(key, value)| ((*key).to_owned(), entry(value))).collect())
    }

    /// Reads keys that begin with `k`, and values that are numbers.
    fn read(key: &str, entry: Option<&Entry>) -> Option<(String, Option<u32>)> {
        let value = entry.and_then(|entry| String::from_utf8_lossy(&entry.value).parse().ok());
        key.starts_with('k').then(|| (key.to_owned(), value))
    }

    #[test]
    fn a_list_counts_when_it_is_complete() {
        let mut collector = Collector::default();
        let mut take = |event| collector.take(event, read);
        assert_eq!(take(part(&[("k1", "1"), ("k2", "bad"), ("other", "3")])), None);
        assert_eq!(take(part(&[("k3", "3")])), None);
        let list = BTreeMap::from([("k1".to_owned(), 1), ("k3".to_owned(), 3)]);
        assert_eq!(take(FeedEvent::InitDone(7)), Some(Collected::Replaced(list, 7)));
        let changes =
            vec![("k1".to_owned(), None), ("k4".into(), Some(entry("4"))), ("k5".into(), Some(entry("?")))];
        let expected = vec![("k1".to_owned(), None), ("k4".into(), Some(4)), ("k5".into(), None)];
        assert_eq!(take(FeedEvent::Apply(9, changes)), Some(Collected::Changed(expected, 9)));
    }

    #[test]
    fn a_list_that_was_cut_off_does_not_count() {
        let mut collector = Collector::default();
        collector.take(part(&[("k1", "1")]), read);
        assert_eq!((collector.len(), collector.is_empty()), (1, false));
        assert_eq!(collector.take(FeedEvent::Connected(false), read), Some(Collected::Connected(false)));
        collector.take(part(&[("k2", "2")]), read);
        let list = BTreeMap::from([("k2".to_owned(), 2)]);
        assert_eq!(collector.take(FeedEvent::InitDone(3), read), Some(Collected::Replaced(list, 3)));
    }
}
