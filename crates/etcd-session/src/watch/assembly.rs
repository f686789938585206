//! Puts what several feeds send together into one snapshot of the store, which moves from revision to revision. The
//! snapshot is at a revision only when every feed has sent all changes up to it.
//!
//! This file is long because its tests need its inside.

use super::feed::{Change, FeedEvent};
use schema::reads::Keys;
use schema::snapshot::{Entry, KeySnapshot};
use std::collections::{BTreeMap, BTreeSet};

/// What a feed sent about a revision that the snapshot has not reached.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Pending {
    /// A change; the entry is `None` for a deleted key.
    Change(String, Option<Entry>),
    /// A complete list of a part.
    List(usize, BTreeMap<String, Entry>),
}

/// How the snapshot came to a later revision.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Advance {
    /// The keys that were changed, if only for a while. Of the first snapshot no key is named: all are new.
    pub changed: BTreeSet<String>,
    /// Each revision with its changes, in order, if they are wanted ([`Assembly::with_revisions`]).
    pub revisions: Vec<(i64, Vec<Change>)>,
    /// True if a list came in place of changes, so that `revisions` lacks some.
    pub is_listed: bool,
}

/// What one feed has sent.
#[derive(Debug, Clone)]
struct Part {
    keys: Keys,
    /// The key, or what all its keys begin with.
    range: String,
    /// Every change up to this revision was sent; `None` before the first list.
    reached: Option<i64>,
    /// Revisions, without both ends, whose changes were not sent, because a list came instead.
    gap: Option<(i64, i64)>,
    /// Entries of a list that is not complete.
    listing: Vec<(String, Entry)>,
    connected: bool,
    /// Number of its keys in the snapshot.
    count: usize,
}

impl Part {
    /// True if the key belongs to it.
    fn has(&self, key: &str) -> bool {
        match &self.keys {
            Keys::One(_) => key == self.range,
            Keys::Below(_) => key.starts_with(&self.range),
        }
    }
}

/// Entries of several feeds at one revision, and what is known of later revisions.
#[derive(Debug, Clone)]
pub struct Assembly {
    parts: Vec<Part>,
    snapshot: KeySnapshot,
    pending: BTreeMap<i64, Vec<Pending>>,
    /// Bytes of keys and values of the changes that are pending.
    pending_bytes: usize,
    /// True if somebody wants each revision with its changes.
    gives_revisions: bool,
}

impl Assembly {
    /// Returns an empty snapshot of these keys. The feed with number N must follow the key or range at that place.
    pub fn new(keys: impl IntoIterator<Item = Keys>) -> Self {
        let part = |keys: Keys| Part {
            range: keys.to_string(),
            keys,
            reached: None,
            gap: None,
            listing: Vec::new(),
            connected: false,
            count: 0,
        };
        Self {
            parts: keys.into_iter().map(part).collect(),
            snapshot: KeySnapshot::default(),
            pending: BTreeMap::new(),
            pending_bytes: 0,
            gives_revisions: false,
        }
    }

    /// Returns a snapshot that no feed moves on.
    pub fn of(snapshot: KeySnapshot) -> Self {
        Self { snapshot, ..Self::new([]) }
    }

    /// Gives each revision with its changes, which costs a copy of them.
    #[must_use]
    pub fn with_revisions(mut self, gives_revisions: bool) -> Self {
        self.gives_revisions = gives_revisions;
        self
    }

    /// Returns the bytes of keys and values of changes that the snapshot has not reached. While a feed sends nothing, they
    /// become more and more.
    pub fn pending_bytes(&self) -> usize {
        self.pending_bytes
    }

    /// Returns the snapshot; its revision is 0 before the first one is complete.
    pub fn snapshot(&self) -> &KeySnapshot {
        &self.snapshot
    }

    /// Returns the feeds that are not connected.
    pub fn disconnected(&self) -> impl Iterator<Item = usize> {
        self.parts.iter().enumerate().filter(|(_, part)| !part.connected).map(|(number, _)| number)
    }

    /// Returns the feeds that are connected and have to send more before the snapshot can reach this revision, and the
    /// newest one that another feed has sent.
    pub fn behind(&self, revision: i64) -> impl Iterator<Item = usize> {
        let newest = self.newest().max(Some(revision));
        let lags = move |part: &Part| part.connected && part.reached < newest;
        self.parts.iter().enumerate().filter(move |(_, part)| lags(part)).map(|(number, _)| number)
    }

    /// Returns the newest revision that a feed has sent and the snapshot has not reached.
    pub fn newest(&self) -> Option<i64> {
        self.pending.last_key_value().map(|(revision, _)| *revision)
    }

    /// Returns the revision up to which a feed has sent every change, and the number of keys that it follows there.
    pub fn sent(&self, number: usize) -> Option<(i64, usize)> {
        let part = &self.parts[number];
        let reached = part.reached?;
        let (mut before, mut count) = (&self.snapshot.entries, part.count);
        // Whether each key is there that changed after `before`.
        let mut changed: BTreeMap<&str, bool> = BTreeMap::new();
        for pending in self.pending.values().flatten() {
            match pending {
                Pending::Change(key, entry) if part.has(key) => _ = changed.insert(key, entry.is_some()),
                Pending::List(of, list) if *of == number => {
                    (before, count) = (list, list.len());
                    changed.clear();
                }
                Pending::Change(..) | Pending::List(..) => {}
            }
        }
        let added = changed.iter().filter(|(key, there)| **there && !before.contains_key(**key)).count();
        let removed = changed.iter().filter(|(key, there)| !**there && before.contains_key(**key)).count();
        Some((reached, count + added - removed))
    }

    /// Takes an event of a feed.
    pub fn take(&mut self, number: usize, event: FeedEvent) {
        let part = &mut self.parts[number];
        match event {
            FeedEvent::InitApply(entries) => part.listing.extend(entries),
            FeedEvent::InitDone(revision) => {
                // The snapshot may not have passed an earlier gap.
                let earlier = part.gap.filter(|(_, after)| *after > self.snapshot.revision);
                let before = earlier.map_or(part.reached.unwrap_or(0), |(before, _)| before);
                part.gap = Some((before, revision));
                part.reached = Some(revision);
                // An earlier list that the snapshot has not reached is in the gap now. Lists are large.
                let is_earlier = |pending: &Pending| matches!(pending, Pending::List(of, _) if *of == number);
                self.pending.values_mut().for_each(|all| all.retain(|pending| !is_earlier(pending)));
                self.pending.retain(|_, all| !all.is_empty());
                let list = Pending::List(number, std::mem::take(&mut part.listing).into_iter().collect());
                self.pending.entry(revision).or_default().push(list);
            }
            FeedEvent::Apply(revision, changes) => {
                part.reached = part.reached.max(Some(revision));
                self.pending_bytes +=
                    changes.iter().map(|(key, entry)| bytes_of(key, entry.as_ref())).sum::<usize>();
                let changes = changes.into_iter().map(|(key, entry)| Pending::Change(key, entry));
                self.pending.entry(revision).or_default().extend(changes);
            }
            FeedEvent::Progress(revision) => part.reached = part.reached.max(Some(revision)),
            FeedEvent::Connected(connected) => {
                part.connected = connected;
                part.listing.clear();
            }
            // The caller starts again, confirms progress, or says what is wrong.
            FeedEvent::WentBack(_) | FeedEvent::UnconfirmedProgress(_) | FeedEvent::Problem(_) => {}
        }
    }

    /// Moves the snapshot to the newest revision up to which everything is known. `None` if it did not move.
    pub fn advance(&mut self) -> Option<Advance> {
        let revision = self.complete().filter(|revision| *revision > self.snapshot.revision)?;
        let is_first = self.snapshot.revision == 0;
        let later = self.pending.split_off(&(revision + 1));
        let Advance { mut changed, mut revisions, mut is_listed } = Advance::default();
        let pending = std::mem::replace(&mut self.pending, later).into_iter();
        for (at, pending) in pending.flat_map(|(at, all)| all.into_iter().map(move |one| (at, one))) {
            is_listed |= matches!(pending, Pending::List(..));
            match pending {
                Pending::Change(key, entry) => {
                    self.pending_bytes -= bytes_of(&key, entry.as_ref());
                    if self.gives_revisions {
                        add_change(at, &key, entry.as_ref(), &mut revisions);
                    }
                    self.set(key, entry, &mut changed);
                }
                // Nearly all keys come this way, and nothing has to be compared.
                Pending::List(number, mut list) if is_first && self.parts[number].count == 0 => {
                    self.parts[number].count = list.len();
                    self.snapshot.entries.append(&mut list);
                }
                Pending::List(number, list) => {
                    let range = self.parts[number].range.clone();
                    let there = self.snapshot.entries.range(range.clone()..);
                    let there = there.map(|(key, _)| key).take_while(|key| key.starts_with(&range));
                    let gone: Vec<String> = there.filter(|key| !list.contains_key(*key)).cloned().collect();
                    gone.into_iter().for_each(|key| self.set(key, None, &mut changed));
                    list.into_iter().for_each(|(key, entry)| self.set(key, Some(entry), &mut changed));
                }
            }
        }
        self.snapshot.revision = revision;
        if is_first {
            changed.clear();
        }
        Some(Advance { changed, revisions, is_listed })
    }

    /// Returns the newest revision up to which everything is known.
    fn complete(&self) -> Option<i64> {
        let reached: Option<Vec<i64>> = self.parts.iter().map(|part| part.reached).collect();
        let mut revision = reached?.into_iter().min()?;
        // What one feed did not send because a list came is not known.
        while let Some((before, _)) = self
            .parts
            .iter()
            .filter_map(|part| part.gap)
            .find(|(before, after)| (before + 1..*after).contains(&revision))
        {
            revision = before;
        }
        Some(revision)
    }

    fn set(&mut self, key: String, entry: Option<Entry>, changed: &mut BTreeSet<String>) {
        let entries = &mut self.snapshot.entries;
        if entries.get(&key) != entry.as_ref() {
            let is_there = entry.is_some();
            let was_there = match entry {
                Some(entry) => entries.insert(key.clone(), entry),
                None => entries.remove(&key),
            };
            if let Some(part) = self.parts.iter_mut().find(|part| part.has(&key)) {
                part.count = part.count + usize::from(is_there) - usize::from(was_there.is_some());
            }
            changed.insert(key);
        }
    }
}

fn add_change(at: i64, key: &str, entry: Option<&Entry>, revisions: &mut Vec<(i64, Vec<Change>)>) {
    let change = (key.to_owned(), entry.cloned());
    match revisions.last_mut().filter(|(last, _)| *last == at) {
        Some((_, changes)) => changes.push(change),
        None => revisions.push((at, vec![change])),
    }
}

fn bytes_of(key: &str, entry: Option<&Entry>) -> usize {
    key.len() + entry.map_or(0, |entry| entry.value.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use schema::keys::{Key, Prefix};

    /// The parts, and two keys of each range.
    fn parts() -> [Keys; 3] {
        [Keys::One(Key::CurrentVersion), Keys::Below(Prefix::Own), Keys::Below(Prefix::Statuses)]
    }
    const KEYS: [(&str, usize); 5] = [
        ("/current_version", 0),
        ("/orchestrate/a", 1),
        ("/orchestrate/b", 1),
        ("/status/a", 2),
        ("/status/b", 2),
    ];

    fn entry(revision: i64) -> Entry {
        Entry { value: vec![], create_revision: revision, mod_revision: revision, lease: 0, version: 1 }
    }

    /// The entries of the store at each revision, beginning with 0.
    type History = Vec<BTreeMap<String, Entry>>;

    /// Returns what a feed sends about the revisions after `from` up to `to`.
    fn changes(number: usize, (from, to): (usize, usize), history: &History) -> Vec<FeedEvent> {
        let of = |at: usize| {
            let keys = KEYS.iter().filter(|(_, part)| *part == number);
            let differs = keys.filter(|(key, _)| history[at].get(*key) != history[at - 1].get(*key));
            let changes: Vec<_> =
                differs.map(|(key, _)| ((*key).to_owned(), history[at].get(*key).cloned())).collect();
            (!changes.is_empty()).then(|| FeedEvent::Apply(i64::try_from(at).unwrap(), changes))
        };
        (from + 1..=to).filter_map(of).collect()
    }

    fn list(number: usize, at: usize, history: &History) -> [FeedEvent; 2] {
        let is_of = |key: &String| KEYS.iter().any(|(of, part)| of == key && *part == number);
        let entries = history[at].iter().filter(|(key, _)| is_of(key));
        let entries = entries.map(|(key, entry)| (key.clone(), entry.clone())).collect();
        [FeedEvent::InitApply(entries), FeedEvent::InitDone(i64::try_from(at).unwrap())]
    }

    proptest! {
        /// Each write puts or deletes one or two keys. Each turn lets one feed go on: it sends changes and progress,
        /// or a list after a compaction.
        #[test]
        fn the_snapshot_is_the_store_at_its_revision(
            writes in prop::collection::vec((0..5usize, 0..5usize, any::<bool>()), 1..30),
            turns in prop::collection::vec((0..3usize, 0..8usize, 0..6u8), 1..60),
        ) {
            let mut history: History = vec![BTreeMap::new()];
            for (one, other, puts) in writes {
                let mut next = history.last().unwrap().clone();
                let revision = i64::try_from(history.len()).unwrap();
                next.insert(KEYS[one].0.to_owned(), entry(revision));
                if puts {
                    next.insert(KEYS[other].0.to_owned(), entry(revision));
                } else {
                    next.remove(KEYS[other].0);
                }
                history.push(next);
            }
            let newest = history.len() - 1;
            let mut assembly = Assembly::new(parts()).with_revisions(true);
            let mut reached = [None; 3];
            let finish = (0..3).map(|number| (number, newest, 1));
            for (number, more, kind) in turns.into_iter().chain(finish) {
                let to = (reached[number].unwrap_or(0) + more).min(newest);
                let events = match reached[number] {
                    Some(from) if kind > 0 => {
                        let mut events = changes(number, (from, to), &history);
                        events.push(FeedEvent::Progress(i64::try_from(to).unwrap()));
                        events
                    }
                    _ => list(number, to, &history).to_vec(),
                };
                reached[number] = Some(to);
                events.into_iter().for_each(|event| assembly.take(number, event));
                let before = assembly.snapshot().clone();
                let advance = assembly.advance();
                let snapshot = assembly.snapshot();
                let expected = &history[usize::try_from(snapshot.revision).unwrap()];
                prop_assert_eq!(&snapshot.entries, expected);
                let differs = |key: &str| before.entries.get(key) != snapshot.entries.get(key);
                let differing: BTreeSet<String> =
                    KEYS.iter().map(|(key, _)| *key).filter(|key| differs(key)).map(str::to_owned).collect();
                let is_first = before.revision == 0;
                let Advance { changed, revisions, is_listed } = advance.unwrap_or_default();
                prop_assert!(is_first || differing.is_subset(&changed));
                // Without a list, the revisions lead from one snapshot to the next.
                if !is_listed {
                    let mut entries = before.entries.clone();
                    for (at, changes) in revisions {
                        for (key, entry) in changes {
                            match entry {
                                Some(entry) => _ = entries.insert(key, entry),
                                None => _ = entries.remove(&key),
                            }
                        }
                        prop_assert_eq!(&entries, &history[usize::try_from(at).unwrap()]);
                    }
                    prop_assert_eq!(&entries, &snapshot.entries);
                }
                let of_part = |key: &&String| KEYS.iter().any(|(of, part)| of == key && *part == number);
                let count = history[to].keys().filter(of_part).count();
                prop_assert_eq!(assembly.sent(number), Some((i64::try_from(to).unwrap(), count)));
            }
            prop_assert_eq!(assembly.snapshot().revision, i64::try_from(newest).unwrap());
            prop_assert_eq!(assembly.pending_bytes(), 0, "nothing is pending any more");
        }
    }

    #[test]
    fn feeds_that_have_to_send_more_are_known() {
        let mut assembly = Assembly::new(parts());
        let behind = |assembly: &Assembly| assembly.behind(0).collect::<Vec<_>>();
        for number in 0..3 {
            assembly.take(number, FeedEvent::Connected(true));
            assembly.take(number, FeedEvent::InitDone(4));
        }
        assert_eq!(assembly.advance().map(|advance| advance.changed), Some(BTreeSet::new()));
        assert_eq!(behind(&assembly), [0; 0]);
        assembly.take(1, FeedEvent::Apply(6, vec![("/orchestrate/a".into(), Some(entry(6)))]));
        assert_eq!((assembly.advance(), behind(&assembly)), (None, vec![0, 2]));
        assembly.take(2, FeedEvent::Connected(false));
        assert_eq!((assembly.disconnected().collect(), behind(&assembly)), (vec![2], vec![0]));
        assembly.take(0, FeedEvent::Progress(6));
        assembly.take(2, FeedEvent::Progress(7));
        let changed = assembly.advance().map(|advance| advance.changed);
        assert_eq!(changed, Some(BTreeSet::from(["/orchestrate/a".to_owned()])));
        assert_eq!(assembly.snapshot().revision, 6);
        assert_eq!(assembly.behind(7).collect::<Vec<_>>(), [0, 1], "the store has moved on");
    }
}
