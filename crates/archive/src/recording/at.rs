//! The moment that a question is about.

use super::moment::Moment;
use super::name::Branch;
use schema::names::Token;
use schema::time::parse_duration;
use std::fmt;

/// A moment as an operator names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum At {
    /// A revision of whichever history has it.
    Revision(i64),
    /// A revision of this history.
    Moment(Moment),
    /// A time, in milliseconds since 1970.
    Time(i64),
}

/// The text is no moment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no moment: name a revision (1234), a time (2026-11-27T02:14:00Z), a duration before now (2h), or \
     lineage/epoch/branch/revision"
)]
pub struct AtError {
    text: String,
}

impl At {
    /// Reads a moment. `now` is in milliseconds since 1970.
    ///
    /// # Errors
    /// Returns an error if it is none.
    pub fn read(text: &str, now: i64) -> Result<Self, AtError> {
        let parsed = if let [lineage, epoch, branch, revision] = text.split('/').collect::<Vec<_>>()[..] {
            moment(lineage, epoch, branch, revision).map(Self::Moment)
        } else if text.bytes().all(|b| b.is_ascii_digit()) {
            revision(text).map(Self::Revision)
        } else if let Ok(before) = parse_duration(text) {
            let before = i64::try_from(before.as_millis()).unwrap_or(i64::MAX);
            Some(Self::Time(now.saturating_sub(before)))
        } else {
            text.parse::<jiff::Timestamp>().ok().map(|time| Self::Time(time.as_millisecond()))
        };
        parsed.ok_or_else(|| AtError { text: text.to_owned() })
    }
}

fn revision(text: &str) -> Option<i64> {
    text.parse().ok().filter(|revision| *revision > 0)
}

fn moment(lineage: &str, epoch: &str, branch: &str, at: &str) -> Option<Moment> {
    let (lineage, branch) = (Token::new(lineage).ok()?, Token::new(branch).ok()?);
    Some(Moment { branch: Branch { lineage, epoch: epoch.parse().ok()?, branch }, revision: revision(at)? })
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Revision(revision) => write!(f, "revision {revision}"),
            Self::Moment(moment) => write!(f, "{moment}"),
            Self::Time(time) => f.write_str(&time_text(*time)),
        }
    }
}

/// Returns a time in milliseconds since 1970 as RFC 3339 has it.
pub fn time_text(time: i64) -> String {
    jiff::Timestamp::from_millisecond(time).map_or_else(|_| format!("{time} ms"), |time| format!("{time:.3}"))
}
