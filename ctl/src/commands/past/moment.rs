//! What a recording holds at the moment of a question, and what changed about hosts before it.

use crate::exit::Failure;
use crate::past::PastQuestion;
use archive::recording::{At, Past, Recording, RecordingPlace, SegmentName};
use fleet::views::{PastEvent, host_changes, tells_of_hosts};
use schema::time::EpochSeconds;

/// Reads the moment of a question. Returns it with the names of all segments, and with their place.
pub(crate) fn find(question: &PastQuestion) -> Result<(Past, Vec<SegmentName>, RecordingPlace), Failure> {
    let PastQuestion { recording, at, asked_at, .. } = question;
    let at = At::read(at, asked_at.0.saturating_mul(1000)).map_err(Failure::usage)?;
    let place = recording.open()?;
    let listed = place.list().map_err(|error| recording.unreadable(error))?;
    let names: Vec<SegmentName> = listed.into_iter().map(|segment| segment.name).collect();
    let past = Recording::new(names.clone()).at(&at, &place).map_err(|error| recording.unreadable(error))?;
    Ok((past, names, place))
}

/// Returns what changed about hosts by itself between a time before the moment of a question and the moment, and what is
/// not recorded of that time.
pub(crate) fn host_changes_since(
    question: &PastQuestion,
    since: EpochSeconds,
) -> Result<(Vec<PastEvent>, Vec<String>), Failure> {
    let recording = &question.recording;
    let (past, names, place) = find(question)?;
    let from = since.0.saturating_mul(1000);
    let Some(mut history) = Recording::new(names).history(from, &past.moment, tells_of_hosts, &place) else {
        return Err(recording.unreadable("no recorder knows what was before the moment"));
    };
    let gaps = std::mem::take(&mut history.gaps);
    let events = history.into_changes().flat_map(|step| host_changes(step.revision, step.at, &step.changes));
    Ok((events.collect(), gaps))
}
