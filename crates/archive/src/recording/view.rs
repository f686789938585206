//! What an answer about the past says about its moment.

use super::at::time_text;
use super::past::Past;
use schema::time::EpochSeconds;
use schemars::JsonSchema;
use serde::Serialize;

/// An answer about the past.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(bound = "")]
pub struct AboutPast<'a, T> {
    /// The moment that it is about.
    pub past: &'a PastView,
    /// The answer that the question has about the present too.
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub answer: &'a T,
}

/// The moment that an answer is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PastView {
    /// The moment, as `lineage/epoch/branch/revision`.
    pub moment: String,
    /// A time at which the store had not come to the revision; `None` if that is not known.
    pub earliest_at: Option<String>,
    /// A time at which it had.
    pub latest_at: String,
    /// What counts as the present.
    pub present_at: String,
    /// The directory of the recording.
    pub recording: String,
    /// Version of the program that recorded it.
    pub recorded_by: String,
    /// Version of the program that answers.
    pub answered_by: String,
    /// The next revision, if the store may have come to it before the time that was asked for.
    pub next_revision: Option<i64>,
    /// What was erased from the segment that answers, so that it is missing here or stands as `(erased)`.
    pub erased: Vec<String>,
}

impl PastView {
    /// Returns the moment as a sentence.
    pub fn sentence(&self) -> String {
        let Self { moment, latest_at, present_at, recording, .. } = self;
        let next = self.next_revision.map(|revision| {
            format!("; revision {revision} may have come before the time that was asked for")
        });
        let next = next.unwrap_or_default();
        format!(
            "the past: {moment}, reached by {latest_at}; it counts as {present_at} now; from {recording}{next}"
        )
    }
}

impl Past {
    /// Returns the time that counts as the present, unless somebody names another one: that of the revision.
    pub fn present(&self) -> EpochSeconds {
        EpochSeconds(self.between.by.div_euclid(1000))
    }

    /// Returns what an answer says about this moment. `answered_by` is the version of the program that answers.
    pub fn view(&self, present: EpochSeconds, recording: &str, answered_by: &str) -> PastView {
        PastView {
            moment: self.moment.to_string(),
            earliest_at: self.between.after.map(time_text),
            latest_at: time_text(self.between.by),
            present_at: time_text(present.0.saturating_mul(1000)),
            recording: recording.to_owned(),
            recorded_by: self.recorded_with.clone(),
            answered_by: answered_by.to_owned(),
            next_revision: self.uncertain.map(|(revision, _)| revision),
            erased: self
                .erased
                .iter()
                .map(|mark| format!("erased at {}: {}", time_text(mark.at), mark.what))
                .collect(),
        }
    }
}
