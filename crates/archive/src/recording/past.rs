//! Questions about the past: what the store held at a moment.

use super::at::{At, time_text};
use super::entry::RecordedEntry;
use super::error::{NotRecorded, PlaceError, RecordingError, SegmentError, UnusableReason, UnusableSegment};
use super::line::{Between, Erased};
use super::moment::Moment;
use super::name::{Branch, SegmentName};
use super::segment::Segment;
use schema::names::Token;
use schema::snapshot::KeySnapshot;
use std::collections::BTreeMap;

/// Where segments are kept.
pub trait Source {
    /// Returns the bytes of a segment.
    ///
    /// # Errors
    /// Returns why it cannot be read.
    fn load(&self, name: &SegmentName) -> Result<Vec<u8>, PlaceError>;
}

/// The segments of a recording. Those of several recorders complete each other.
#[derive(Debug, Clone, Default)]
pub struct Recording {
    /// By history and recorder, each list in the order of the revisions.
    recorders: BTreeMap<(Branch, Token), Vec<SegmentName>>,
}

/// The store at a moment of the past.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Past {
    pub moment: Moment,
    /// When the store came to this revision.
    pub between: Between,
    /// The next revision, if the store may have come to it before the time that was asked for.
    pub uncertain: Option<(i64, Between)>,
    pub keys: BTreeMap<String, RecordedEntry>,
    /// Version of the program that recorded the first of the segments.
    pub recorded_with: String,
    /// The segments that say so. The first one is used, and the others agree with it.
    pub segments: Vec<SegmentName>,
    /// Segments that could not be used, each with the reason.
    pub problems: Vec<String>,
    /// What was erased from the first of the segments.
    pub erased: Vec<Erased>,
}

impl Past {
    /// Returns the keys as they would be read from the store.
    pub fn into_snapshot(self) -> KeySnapshot {
        let entries = self.keys.into_iter().map(|(key, entry)| (key, entry.into_entry())).collect();
        KeySnapshot { revision: self.moment.revision, raft_term: 0, entries }
    }
}

/// A segment that covers the moment.
struct Found {
    name: SegmentName,
    segment: Segment,
    revision: i64,
    between: Between,
    uncertain: Option<(i64, Between)>,
}

impl Recording {
    /// Returns the recording with these segments.
    pub fn new(names: impl IntoIterator<Item = SegmentName>) -> Self {
        let mut recorders: BTreeMap<_, Vec<SegmentName>> = BTreeMap::new();
        for name in names {
            recorders.entry((name.branch.clone(), name.recorder.clone())).or_default().push(name);
        }
        recorders.values_mut().for_each(|names| names.sort());
        Self { recorders }
    }

    /// Returns the segments of each recorder, in the order of the revisions.
    pub fn recorders(&self) -> impl Iterator<Item = (&Branch, &Token, &[SegmentName])> {
        self.recorders.iter().map(|((branch, recorder), names)| (branch, recorder, names.as_slice()))
    }

    /// Returns the segments that ended before a time, in milliseconds since 1970: of each recorder the oldest ones, so that
    /// no hole appears when they are removed. The last one of a recorder is never among them, because it may still grow.
    pub fn ended_before(&self, time: i64) -> Vec<SegmentName> {
        let mut of_recorders: BTreeMap<&Token, Vec<&SegmentName>> = BTreeMap::new();
        for ((_, recorder), names) in &self.recorders {
            of_recorders.entry(recorder).or_default().extend(names);
        }
        let ended = of_recorders.into_values().flat_map(|mut names| {
            names.sort_by_key(|name| (name.begun, name.revision));
            let count = names.windows(2).take_while(|pair| pair[1].begun <= time).count();
            names.truncate(count);
            names
        });
        ended.cloned().collect()
    }

    /// Returns what the store held at a moment.
    ///
    /// # Errors
    /// Returns why nobody can say that. A damaged segment matters only where no other one covers the moment.
    pub fn at(&self, at: &At, source: &impl Source) -> Result<Past, RecordingError> {
        let mut found: Vec<Found> = Vec::new();
        let (mut nearest, mut problems) = (Vec::new(), Vec::new());
        // Histories of which the moment is not known, though they may have it, and why.
        let mut unknown: BTreeMap<&Branch, String> = BTreeMap::new();
        for ((branch, recorder), names) in &self.recorders {
            let looked = match at {
                At::Moment(moment) if moment.branch != *branch => continue,
                At::Moment(Moment { revision, .. }) | At::Revision(revision) => {
                    look_for_revision(*revision, names, source)
                }
                At::Time(time) => look_for_time(*time, names, source),
            };
            match looked {
                Ok(Ok(one)) => found.push(one),
                Ok(Err(why)) => {
                    nearest.push(format!("recorder {recorder} in {branch}: {why}"));
                    if fits(at, names, source) {
                        unknown.entry(branch).or_insert_with(|| "not recorded".into());
                    }
                }
                Err(problem) => {
                    unknown.insert(branch, problem.to_string());
                    problems.push(problem.to_string());
                }
            }
        }
        // Of recorders that know different revisions before a time, the one that knows the newest is the nearest.
        let newest = |of: &Branch| {
            found.iter().filter(|f| f.name.branch == *of).map(|f| f.revision).max().unwrap_or_default()
        };
        let newest: Vec<i64> = found.iter().map(|one| newest(&one.name.branch)).collect();
        let mut of_newest = newest.iter();
        found.retain(|one| of_newest.next() == Some(&one.revision));
        if found.is_empty() {
            let is_unreadable = !problems.is_empty();
            nearest.extend(problems);
            let at = at.to_string();
            return Err(RecordingError::NotRecorded(NotRecorded { at, nearest, is_unreadable }));
        }
        found.iter().for_each(|one| drop(unknown.remove(&one.name.branch)));
        if !unknown.is_empty() {
            let unknown = unknown.into_iter().map(|(branch, why)| format!("{branch} ({why})")).collect();
            return Err(RecordingError::Ambiguous {
                at: at.to_string(),
                moments: moments_of(&found),
                unknown,
            });
        }
        agreed(at, found, problems)
    }
}

/// True if a history may have a moment that it has not recorded.
fn fits(at: &At, names: &[SegmentName], source: &impl Source) -> bool {
    let (Some(first), Some(last)) = (names.first(), names.last()) else { return false };
    let last = match load(last, source) {
        Ok(Some(last)) => last,
        Ok(None) => return fits(at, &names[..names.len() - 1], source),
        // One that cannot be read may have anything.
        Err(_) => return true,
    };
    match at {
        At::Time(time) => (first.begun..=last.last_time()).contains(time),
        At::Moment(_) => false,
        At::Revision(revision) => {
            let is_inside = (first.revision..=last.last_revision()).contains(revision);
            // A store goes on from the revision to which it was restored, and nobody sees the first ones.
            let is_before = *revision < first.revision;
            let is_restored = |first: Option<Segment>| first.is_some_and(|first| first.header.restored);
            is_inside || is_before && load(first, source).is_ok_and(is_restored)
        }
    }
}

/// Returns a moment for each history.
fn moments_of(found: &[Found]) -> Vec<Moment> {
    let mut moments: Vec<Moment> =
        found.iter().map(|one| Moment { branch: one.name.branch.clone(), revision: one.revision }).collect();
    moments.dedup();
    moments
}

/// Returns what all of these say, if they agree.
fn agreed(at: &At, found: Vec<Found>, problems: Vec<String>) -> Result<Past, RecordingError> {
    let not_recorded = |nearest| {
        let at = at.to_string();
        Err(RecordingError::NotRecorded(NotRecorded { at, nearest, is_unreadable: true }))
    };
    let moments = moments_of(&found);
    let mut is_ambiguous = false;
    let mut found = found.into_iter();
    let Some(Found { name, segment, revision, between, uncertain }) = found.next() else {
        return not_recorded(problems);
    };
    let (recorded_with, erased) = (segment.header.program.clone(), segment.header.erased.clone());
    let Some(keys) = segment.into_keys_at(revision) else { return not_recorded(problems) };
    let mut segments = vec![name.clone()];
    for other in found {
        let others = other.segment.into_keys_at(other.revision).unwrap_or_default();
        if let Some(key) = contradiction(&keys, &others) {
            if other.name.branch == name.branch {
                let between = Box::new((name, other.name));
                return Err(RecordingError::Contradiction { key, revision, between });
            }
            is_ambiguous = true;
        }
        segments.push(other.name);
    }
    if is_ambiguous {
        return Err(RecordingError::Ambiguous { at: at.to_string(), moments, unknown: Vec::new() });
    }
    let moment = Moment { branch: name.branch, revision };
    Ok(Past { moment, between, uncertain, keys, recorded_with, segments, problems, erased })
}

/// Returns a key about which the two disagree.
fn contradiction(
    one: &BTreeMap<String, RecordedEntry>,
    other: &BTreeMap<String, RecordedEntry>,
) -> Option<String> {
    let differs = |(key, entry): &(&String, &RecordedEntry)| {
        other.get(*key).is_none_or(|other| entry.contradicts(other))
    };
    let missing = other.keys().find(|key| !one.contains_key(*key));
    one.iter().find(differs).map(|(key, _)| key).or(missing).cloned()
}

/// Reads a segment. Returns `None` if its first keys are not complete, because it was just begun: it says nothing yet.
///
/// # Errors
/// Returns why it cannot be used.
pub fn load(name: &SegmentName, source: &impl Source) -> Result<Option<Segment>, UnusableSegment> {
    let unusable = |why: UnusableReason| UnusableSegment { name: name.clone(), why: Box::new(why) };
    let bytes = source.load(name).map_err(|error| unusable(error.into()))?;
    let segment = match Segment::read(&bytes) {
        Ok(segment) => segment,
        Err(SegmentError::Unfinished) => return Ok(None),
        Err(error) => return Err(unusable(error.into())),
    };
    let header = &segment.header;
    let named = (&name.branch.lineage, name.branch.epoch, &name.branch.branch, &name.recorder, name.revision);
    if named != (&header.lineage, header.epoch, &header.branch, &header.recorder, header.revision) {
        return Err(unusable(UnusableReason::OtherName));
    }
    Ok(Some(segment))
}

/// What one recorder says: the moment, or why it does not know. The outer error is a segment that cannot be used.
type Looked = Result<Result<Found, String>, UnusableSegment>;

fn look_for_revision(revision: i64, names: &[SegmentName], source: &impl Source) -> Looked {
    let later = names.partition_point(|name| name.revision <= revision);
    let Some(name) = later.checked_sub(1).and_then(|at| names.get(at)) else {
        return Ok(Err(match names.first() {
            Some(first) => format!("it begins with revision {}", first.revision),
            None => "it has no segments".into(),
        }));
    };
    let Some(segment) = load(name, source)? else {
        return look_for_revision(revision, &names[..later - 1], source);
    };
    let last = segment.last_revision();
    if revision > last {
        return Ok(Err(match names.get(later) {
            Some(next) => {
                let gap = format!("nothing between the revisions {last} and {}", next.revision);
                gap + &why_missing(next, source)
            }
            None => format!("it ends with revision {last}"),
        }));
    }
    let found = Found {
        name: name.clone(),
        between: time_of(revision, &segment),
        segment,
        revision,
        uncertain: None,
    };
    Ok(Ok(first_seen(found, &names[..later], source)?))
}

/// Returns when a revision came, as a segment that covers it says. Of a mark, the first time counts. Two revisions in a row
/// may have others between them in which nothing changed that this program keeps.
fn time_of(revision: i64, segment: &Segment) -> Between {
    let begin = (segment.header.revision, segment.header.between);
    let steps = segment.steps.iter().map(|step| (step.revision, step.between));
    let known = steps.take_while(|(at, _)| *at <= revision);
    known.fold(begin, |before, known| if known.0 > before.0 { known } else { before }).1
}

/// Returns the same moment from the segment in which it was first seen. Later ones begin with the revision at which the one
/// before ended. `names` are those up to the one that was found.
fn first_seen(
    mut found: Found,
    names: &[SegmentName],
    source: &impl Source,
) -> Result<Found, UnusableSegment> {
    for name in names.iter().rev().skip(1) {
        if found.segment.header.revision != found.revision {
            break;
        }
        let Some(segment) = load(name, source)?.filter(|s| s.last_revision() == found.revision) else {
            break;
        };
        let between = time_of(found.revision, &segment);
        found = Found { name: name.clone(), segment, between, ..found };
    }
    Ok(found)
}

/// Returns the reason why something is missing before a segment, if it says one.
fn why_missing(next: &SegmentName, source: &impl Source) -> String {
    let gap = load(next, source).ok().flatten().and_then(|next| next.header.gap);
    gap.map(|why| format!(" ({why})")).unwrap_or_default()
}

fn look_for_time(time: i64, names: &[SegmentName], source: &impl Source) -> Looked {
    let later = names.partition_point(|name| name.begun <= time);
    let Some(name) = later.checked_sub(1).and_then(|at| names.get(at)) else {
        return Ok(Err(match names.first() {
            Some(first) => format!("it begins at {}", time_text(first.begun)),
            None => "it has no segments".into(),
        }));
    };
    let Some(segment) = load(name, source)? else {
        return look_for_time(time, &names[..later - 1], source);
    };
    let mut known = (segment.header.revision, segment.header.between);
    let mut next = None;
    for step in &segment.steps {
        if step.between.by > time {
            next = Some(step);
            break;
        }
        if step.revision > known.0 {
            known = (step.revision, step.between);
        }
    }
    let uncertain = match next {
        // Nothing had changed after that time, or the next change came after it.
        Some(next) if next.changes.is_empty() || next.between.after >= Some(time) => None,
        Some(next) if next.afterwards => {
            let from = next.between.after.map_or_else(|| "an unknown time".into(), time_text);
            let to = time_text(next.between.by);
            return Ok(Err(format!(
                "it had no contact with the store from {from} to {to}, and learnt later what had changed"
            )));
        }
        Some(next) => Some((next.revision, next.between)),
        None => {
            let end = segment.last_time();
            let following = names
                .get(later)
                .map(|next| Ok::<_, UnusableSegment>(load(next, source)?.map(|segment| (next, segment))));
            match following.transpose()?.flatten() {
                // After a change, the next one may have come in the same millisecond.
                _ if end == time && segment.steps.last().is_none_or(|step| step.changes.is_empty()) => None,
                Some((_, next)) if next.header.continues && next.header.revision == known.0 => None,
                Some((next, _)) => {
                    let (from, to) = (time_text(end), time_text(next.begun));
                    return Ok(Err(format!("nothing from {from} to {to}") + &why_missing(next, source)));
                }
                None => return Ok(Err(format!("it ends at {}", time_text(end)))),
            }
        }
    };
    let found = Found { name: name.clone(), segment, revision: known.0, between: known.1, uncertain };
    Ok(Ok(first_seen(found, &names[..later], source)?))
}
