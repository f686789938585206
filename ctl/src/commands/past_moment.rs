//! What a recording holds at the moment of a question, and what changed about hosts before it.

use crate::exit::Failure;
use crate::output;
use crate::past::PastQuestion;
use archive::recording::{At, Past, RecordedEntry, Recording, RecordingPlace, SegmentName};
use planning::fleet::views::{KeyChange, PastEvent, host_changes, tells_of_hosts};
use schema::snapshot::Entry;
use schema::time::EpochSeconds;
use std::collections::BTreeMap;

/// Reads the moment of a question. Returns it with the names of all segments, and with their place.
pub(super) fn find(question: &PastQuestion) -> Result<(Past, Vec<SegmentName>, RecordingPlace), Failure> {
    let PastQuestion { recording, at, asked_at, .. } = question;
    let at = At::read(at, asked_at.0.saturating_mul(1000)).map_err(Failure::usage)?;
    let place = recording.open()?;
    let listed = place.list().map_err(|error| recording.unreadable(error))?;
    let names: Vec<SegmentName> = listed.into_iter().map(|segment| segment.name).collect();
    let past = Recording::new(names.clone()).at(&at, &place).map_err(|error| recording.unreadable(error))?;
    Ok((past, names, place))
}

/// Returns what changed about hosts by itself between a time before the moment of a question and the moment.
pub(super) fn host_changes_since(
    question: &PastQuestion,
    since: EpochSeconds,
) -> Result<Vec<PastEvent>, Failure> {
    let recording = &question.recording;
    let (past, names, place) = find(question)?;
    let from = since.0.saturating_mul(1000);
    let Some(history) = Recording::new(names).history(from, &past.moment, tells_of_hosts, &place) else {
        return Err(recording.unreadable("no recorder knows what was before the moment"));
    };
    history.gaps.iter().for_each(|gap| output::warn(gap));
    let mut held: BTreeMap<String, Entry> =
        history.keys.into_iter().map(|(key, entry)| (key, entry.into_entry())).collect();
    let mut events = Vec::new();
    for step in history.steps {
        let change = |(key, entry): (String, Option<RecordedEntry>)| {
            let after = entry.map(RecordedEntry::into_entry);
            let before = match &after {
                Some(after) => held.insert(key.clone(), after.clone()),
                None => held.remove(&key),
            };
            let had_lease = before.as_ref().is_some_and(|entry| entry.lease != 0);
            let [before, after] = [before, after].map(|entry| entry.map(|entry| entry.value));
            KeyChange { key, before, after, had_lease }
        };
        let changes: Vec<KeyChange> = step.changes.into_iter().map(change).collect();
        let at = EpochSeconds(step.between.by.div_euclid(1000));
        events.extend(host_changes(step.revision, at, &changes));
    }
    Ok(events)
}
