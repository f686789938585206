//! The content of frames. Most of the time that a segment takes goes into this, so it is done on several cores.

use super::entry::{Change, RecordedEntry, RecordedValue, Step};
use super::error::SegmentError;
use super::frame::{Frame, Kind};
use super::line::{Between, FORMAT, FrameLine, Header, KeyLine, RevisionLine};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use std::thread;

/// Number of frames that are worth a thread.
const WORTH_A_THREAD: usize = 2;

/// What a frame has. Whether it fits what comes before is not known.
pub(super) struct Content {
    /// Length of its lines, in bytes.
    pub(super) bytes: usize,
    pub(super) lines: Lines,
}

/// The lines of a frame.
pub(super) enum Lines {
    Header(Box<Header>),
    Keys(Vec<Change>),
    Changes(Vec<Step>),
    Index(Vec<FrameLine>),
}

/// Returns the content of frames, in their order.
pub(super) fn content_of_all(frames: &[Frame<'_>]) -> Vec<Result<Content, SegmentError>> {
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get());
    let part = frames.len().div_ceil(cores).max(WORTH_A_THREAD);
    let read = |frames: &[Frame<'_>]| frames.iter().map(content_of).collect::<Vec<_>>();
    let mut parts = frames.chunks(part);
    let own = parts.next().unwrap_or_default();
    thread::scope(|scope| {
        let start = |part| (part, thread::Builder::new().spawn_scoped(scope, move || read(part)));
        let started: Vec<_> = parts.map(start).collect();
        let mut found = read(own);
        for (part, thread) in started {
            // Without another thread it takes longer.
            let joined =
                thread.ok().map(|thread| thread.join().unwrap_or_else(|e| std::panic::resume_unwind(e)));
            found.extend(joined.unwrap_or_else(|| read(part)));
        }
        found
    })
}

/// Returns the content of a frame.
///
/// # Errors
/// Returns an error if it is damaged, or if the segment is newer than this program.
pub(super) fn content_of(frame: &Frame<'_>) -> Result<Content, SegmentError> {
    let at = frame.at;
    let bytes = frame.lines()?;
    let lines = match frame.kind {
        Kind::Header => Lines::Header(Box::new(header(&bytes, at)?)),
        Kind::Keys => {
            let keys = lines_of(&bytes).map(|line| change(parse(line, at)?, at));
            Lines::Keys(keys.collect::<Result<_, _>>()?)
        }
        Kind::Changes => {
            Lines::Changes(lines_of(&bytes).map(|line| step(parse(line, at)?, at)).collect::<Result<_, _>>()?)
        }
        Kind::Index => Lines::Index(lines_of(&bytes).map(|line| parse(line, at)).collect::<Result<_, _>>()?),
    };
    Ok(Content { bytes: bytes.len(), lines })
}

pub(super) fn damaged(at: usize, why: impl Into<String>) -> SegmentError {
    SegmentError::Damaged { at, why: why.into() }
}

fn header(lines: &[u8], at: usize) -> Result<Header, SegmentError> {
    /// What headers of all formats have.
    #[derive(Deserialize)]
    struct Beginning {
        format: u32,
        #[serde(default)]
        program: String,
    }
    let unreadable = |error: serde_json::Error| damaged(at, format!("its header: {error}"));
    let Beginning { format, program } = serde_json::from_slice(lines).map_err(unreadable)?;
    if format > FORMAT {
        return Err(SegmentError::Newer { format, program });
    }
    serde_json::from_slice(lines).map_err(unreadable)
}

fn step(line: RevisionLine<'_>, at: usize) -> Result<Step, SegmentError> {
    let RevisionLine { revision, after, by, afterwards, changes } = line;
    let changes = changes.into_iter().map(|line| change(line, at)).collect::<Result<_, _>>()?;
    Ok(Step { revision, between: Between { after, by }, afterwards, changes })
}

pub(super) fn lines_of(lines: &[u8]) -> impl Iterator<Item = &[u8]> {
    lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty())
}

fn parse<'a, T: Deserialize<'a>>(line: &'a [u8], at: usize) -> Result<T, SegmentError> {
    serde_json::from_slice(line).map_err(|error| damaged(at, error.to_string()))
}

/// Returns what a line says of a key.
fn change(line: KeyLine<'_>, at: usize) -> Result<Change, SegmentError> {
    let KeyLine { key, value, base64, hidden, created, modified, version, lease } = line;
    let value = match (value, base64, hidden) {
        (Some(value), None, None) => RecordedValue::Plain(value.into_owned().into_bytes()),
        (None, Some(value), None) => {
            RecordedValue::Plain(STANDARD.decode(value).map_err(|error| damaged(at, error.to_string()))?)
        }
        (None, None, Some(hidden)) => RecordedValue::Hidden(hidden),
        (None, None, None) if modified == 0 => return Ok((key.into_owned(), None)),
        _ => return Err(damaged(at, format!("{key:?} has no value, or more than one"))),
    };
    let entry = RecordedEntry { value, create_revision: created, mod_revision: modified, version, lease };
    Ok((key.into_owned(), Some(entry)))
}
