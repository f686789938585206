//! The moment of the past that a question names.

use crate::exit::Failure;
use anyhow::anyhow;
use schema::time::EpochSeconds;
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
