//! What changed in the store before a moment.

use super::at::time_text;
use super::entry::{Change, RecordedEntry, Step};
use super::line::{Between, Erased};
use super::moment::Moment;
use super::past::{Recording, Source, load};
use super::segment::Segment;
use schema::snapshot::{Entry, KeyChange};
use schema::time::EpochSeconds;
use std::collections::BTreeMap;

/// What changed in the store between a time and a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// All keys at its start.
    pub keys: BTreeMap<String, RecordedEntry>,
    /// The changes, in order. What was not recorded is one step, which tells the difference alone.
    pub steps: Vec<Step>,
    /// What is missing, for people.
    pub gaps: Vec<String>,
}

/// What changed at one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyChanges {
    /// The revision.
    pub revision: i64,
    /// When the store had come to it.
    pub at: EpochSeconds,
    pub changes: Vec<KeyChange>,
}

impl History {
    /// Returns the changes, in order, with what the keys held before.
    pub fn into_changes(self) -> impl Iterator<Item = KeyChanges> {
        let held = self.keys.into_iter().map(|(key, entry)| (key, entry.into_entry()));
        let mut held: BTreeMap<String, Entry> = held.collect();
        self.steps.into_iter().map(move |step| {
            let change = |(key, entry): Change| {
                let after = entry.map(RecordedEntry::into_entry);
                let before = match &after {
                    Some(after) => held.insert(key.clone(), after.clone()),
                    None => held.remove(&key),
                };
                KeyChange { key, before, after }
            };
            let changes = step.changes.into_iter().map(change).collect();
            KeyChanges {
                revision: step.revision,
                at: EpochSeconds(step.between.by.div_euclid(1000)),
                changes,
            }
        })
    }
}

impl Recording {
    /// Returns what changed about some keys from a time, in milliseconds since 1970, to a moment. Of the recorders that know
    /// the moment, one that knows the time as well tells, and of several the one with the fewest gaps. Returns `None` if no one
    /// knows the moment. One segment is in memory at a time.
    pub fn history(
        &self,
        from: i64,
        moment: &Moment,
        is_wanted: impl Fn(&str) -> bool,
        source: &impl Source,
    ) -> Option<History> {
        let of_branch = self.recorders().filter(|(branch, ..)| **branch == moment.branch);
        let histories = of_branch.filter_map(|(_, _, names)| {
            let mut teller = Teller::new(from, &is_wanted);
            let later = names.partition_point(|name| name.revision <= moment.revision);
            let known = names.partition_point(|name| name.begun <= from);
            for name in names.get(known.saturating_sub(1).min(later)..later)? {
                match load(name, source) {
                    Ok(Some(segment)) => teller.tell(segment, moment.revision),
                    // It was just begun and says nothing.
                    Ok(None) => {}
                    Err(why) => teller.history.gaps.push(why.to_string()),
                }
            }
            teller.finish(moment.revision)
        });
        histories
            .min_by_key(|(begins_late, history)| (*begins_late, history.gaps.len()))
            .map(|(_, found)| found)
    }
}

/// Puts the segments of one recorder together.
struct Teller<'a> {
    from: i64,
    is_wanted: &'a dyn Fn(&str) -> bool,
    /// True if nothing is known of the time at which it should begin.
    begins_late: bool,
    /// All keys so far.
    state: BTreeMap<String, RecordedEntry>,
    /// The revision and the time up to which the segments before went; `None` before the first one.
    ended: Option<(i64, i64)>,
    /// True if something changed after the start.
    has_begun: bool,
    history: History,
}

impl<'a> Teller<'a> {
    fn new(from: i64, is_wanted: &'a dyn Fn(&str) -> bool) -> Self {
        let history = History { keys: BTreeMap::new(), steps: Vec::new(), gaps: Vec::new() };
        Self {
            from,
            is_wanted,
            begins_late: false,
            state: BTreeMap::new(),
            ended: None,
            has_begun: false,
            history,
        }
    }

    /// Goes on with a segment, up to a revision.
    fn tell(&mut self, segment: Segment, last: i64) {
        let ended = (segment.last_revision(), segment.last_time());
        let Segment { header, mut keys, steps, .. } = segment;
        keys.retain(|key, _| (self.is_wanted)(key));
        let (begin, by) = (header.revision, header.between.by);
        for Erased { at, what } in &header.erased {
            self.history.gaps.push(format!("erased at {}: {what}", time_text(*at)));
        }
        match self.ended {
            None => {
                self.state = keys;
                if by > self.from {
                    self.begins_late = true;
                    self.history.gaps.push(format!("nothing is recorded before {}", time_text(by)));
                }
            }
            Some((end, at)) if end != begin => {
                if by > self.from {
                    let why = header.gap.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
                    let what = "only the difference is known";
                    self.history.gaps.push(format!("between the revisions {end} and {begin} {what}{why}"));
                }
                let changes = difference(&self.state, &keys);
                let between = Between { after: Some(at), by };
                self.add(Step { revision: begin, between, afterwards: true, changes });
            }
            Some(_) => {}
        }
        for mut step in steps.into_iter().take_while(|step| step.revision <= last) {
            step.changes.retain(|(key, _)| (self.is_wanted)(key));
            if !step.changes.is_empty() {
                self.add(step);
            }
        }
        self.ended = Some(ended);
    }

    fn add(&mut self, step: Step) {
        if step.between.by > self.from && !self.has_begun {
            self.has_begun = true;
            self.history.keys.clone_from(&self.state);
        }
        for (key, entry) in &step.changes {
            match entry {
                Some(entry) => _ = self.state.insert(key.clone(), entry.clone()),
                None => _ = self.state.remove(key),
            }
        }
        if self.has_begun {
            self.history.steps.push(step);
        }
    }

    /// Returns whether the history begins late, and the history; `None` if it does not reach the revision.
    fn finish(mut self, last: i64) -> Option<(bool, History)> {
        self.ended.filter(|(revision, _)| *revision >= last)?;
        if !self.has_begun {
            self.history.keys = self.state;
        }
        Some((self.begins_late, self.history))
    }
}

/// Returns the changes that lead from one state to another.
fn difference(from: &BTreeMap<String, RecordedEntry>, to: &BTreeMap<String, RecordedEntry>) -> Vec<Change> {
    let gone = from.keys().filter(|key| !to.contains_key(*key)).map(|key| (key.clone(), None));
    let new = to.iter().filter(|(key, entry)| from.get(*key) != Some(entry));
    gone.chain(new.map(|(key, entry)| (key.clone(), Some(entry.clone())))).collect()
}
