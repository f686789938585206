//! What changed in the store before a moment.

use super::at::time_text;
use super::line::Between;
use super::moment::Moment;
use super::name::SegmentName;
use super::past::{Recording, Source, load};
use super::segment::{Change, RecordedEntry, Segment, Step};
use std::collections::BTreeMap;

/// What changed in the store between a time and a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// All keys at its begin.
    pub keys: BTreeMap<String, RecordedEntry>,
    /// The changes, in order. What was not recorded is one step, which tells the difference alone.
    pub steps: Vec<Step>,
    /// What is missing, for people.
    pub gaps: Vec<String>,
}

impl Recording {
    /// Returns what changed from a time, in milliseconds since 1970, to a moment. Of the recorders that know the moment, the one
    /// with the fewest gaps tells. Returns `None` if no one knows it.
    pub fn history(&self, from: i64, moment: &Moment, source: &impl Source) -> Option<History> {
        let of_branch = self.recorders().filter(|(branch, ..)| **branch == moment.branch);
        let histories = of_branch.filter_map(|(_, _, names)| {
            let mut teller = Teller::new(from);
            for segment in segments(names, from, moment, source)? {
                match segment {
                    Ok(segment) => teller.tell(&segment, moment.revision),
                    Err(why) => teller.history.gaps.push(why),
                }
            }
            Some(teller.finish())
        });
        histories.min_by_key(|history| history.gaps.len())
    }
}

/// Returns the segments of one recorder from the one that knows the time, or the first one, to the one that knows the moment.
fn segments(
    names: &[SegmentName],
    from: i64,
    moment: &Moment,
    source: &impl Source,
) -> Option<Vec<Result<Segment, String>>> {
    let mut found: Vec<Result<Segment, String>> = Vec::new();
    for name in names.iter().filter(|name| name.revision <= moment.revision).rev() {
        // One that cannot be read is a gap; one that was just begun says nothing.
        let Some(loaded) = load(name, source).transpose() else { continue };
        if found.is_empty() && loaded.as_ref().is_ok_and(|last| last.last_revision() < moment.revision) {
            return None;
        }
        let is_first = loaded.as_ref().is_ok_and(|segment| segment.header.between.by <= from);
        found.push(loaded);
        if is_first {
            break;
        }
    }
    found.reverse();
    found.last()?.is_ok().then_some(found)
}

/// Puts the segments of one recorder together.
struct Teller {
    from: i64,
    /// All keys so far.
    state: BTreeMap<String, RecordedEntry>,
    /// The revision and the time up to which the segments before went; `None` before the first one.
    ended: Option<(i64, i64)>,
    /// True if something changed after the begin.
    has_begun: bool,
    history: History,
}

impl Teller {
    fn new(from: i64) -> Self {
        let history = History { keys: BTreeMap::new(), steps: Vec::new(), gaps: Vec::new() };
        Self { from, state: BTreeMap::new(), ended: None, has_begun: false, history }
    }

    /// Goes on with a segment, up to a revision.
    fn tell(&mut self, segment: &Segment, last: i64) {
        let Segment { header, keys, steps, .. } = segment;
        let (begin, by) = (header.revision, header.between.by);
        match self.ended {
            None => {
                self.state.clone_from(keys);
                if by > self.from {
                    self.history.gaps.push(format!("nothing is recorded before {}", time_text(by)));
                }
            }
            Some((end, at)) if end != begin => {
                if by > self.from {
                    let why = header.gap.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
                    let what = "only the difference is known";
                    self.history.gaps.push(format!("between the revisions {end} and {begin} {what}{why}"));
                }
                let changes = difference(&self.state, keys);
                let between = Between { after: Some(at), by };
                self.add(Step { revision: begin, between, afterwards: true, changes });
            }
            Some(_) => {}
        }
        let steps = steps.iter().take_while(|step| step.revision <= last);
        steps.filter(|step| !step.changes.is_empty()).for_each(|step| self.add(step.clone()));
        self.ended = Some((segment.last_revision(), segment.last_time()));
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

    fn finish(mut self) -> History {
        if !self.has_begun {
            self.history.keys = self.state;
        }
        self.history
    }
}

/// Returns the changes that lead from one state to another.
fn difference(from: &BTreeMap<String, RecordedEntry>, to: &BTreeMap<String, RecordedEntry>) -> Vec<Change> {
    let gone = from.keys().filter(|key| !to.contains_key(*key)).map(|key| (key.clone(), None));
    let new = to.iter().filter(|(key, entry)| from.get(*key) != Some(entry));
    gone.chain(new.map(|(key, entry)| (key.clone(), Some(entry.clone())))).collect()
}
