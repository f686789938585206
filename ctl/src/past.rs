//! The moment of the past that a question names, and what the answer says about it.

use crate::exit::Failure;
use anyhow::anyhow;
use schema::time::EpochSeconds;
use serde::Serialize;
use std::path::PathBuf;

/// Which moment of the past a question is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PastQuestion {
    /// The directory of the recording.
    pub(crate) directory: PathBuf,
    /// The moment, as it was given.
    pub(crate) at: String,
    /// What counts as the present; `None` for the time of the moment.
    pub(crate) now: Option<EpochSeconds>,
}

impl PastQuestion {
    /// Reads the options; `None` if they are about the present.
    pub(crate) fn read(
        (recording, at): (Option<&PathBuf>, Option<&String>),
        now: Option<&str>,
    ) -> Result<Option<Self>, Failure> {
        let now = now.map(|text| {
            let time = text.parse::<jiff::Timestamp>().map(|time| EpochSeconds(time.as_second()));
            let shown = schema::names::quoted(text);
            time.map_err(|_| {
                Failure::usage(anyhow!("--now is {shown}: it must be a time as 2026-11-27T02:14:00Z"))
            })
        });
        let (Some(directory), Some(at)) = (recording, at) else { return Ok(None) };
        Ok(Some(Self { directory: directory.clone(), at: at.clone(), now: now.transpose()? }))
    }
}

/// What an answer says about the moment of the past that it is about.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct PastView {
    /// The moment, as `lineage/epoch/branch/revision`.
    pub(crate) moment: String,
    /// A time at which the store had not come to the revision; `None` if that is not known.
    pub(crate) earliest_at: Option<String>,
    /// A time at which it had.
    pub(crate) latest_at: String,
    /// What counts as the present.
    pub(crate) present_at: String,
    /// The directory of the recording.
    pub(crate) recording: String,
    /// Version of the program that recorded it.
    pub(crate) recorded_by: String,
    /// Version of the program that answers.
    pub(crate) answered_by: String,
    /// The next revision, if the store may have come to it before the time that was asked for.
    pub(crate) next_revision: Option<i64>,
}
