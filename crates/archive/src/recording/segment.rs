//! Reads a segment.

use super::error::SegmentError;
use super::frame::{BEGIN, END, Frame, Kind, frame, read};
use super::line::{Between, FORMAT, FrameLine, Header, Hidden, KeyLine, RevisionLine};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use schema::snapshot::Entry;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Greatest length of all lines of a segment, in bytes. The keys of a fleet of 10,000 hosts take 30 MiB.
const LINES_MAX_BYTES: usize = 1024 * 1024 * 1024;

/// What stands in the place of a value that is not recorded.
pub const NOT_RECORDED: &str = "(not recorded)";

/// What stands in the place of a value that was erased.
pub const ERASED: &str = "(erased)";

/// The value of a key, as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordedValue {
    /// The value.
    Plain(Vec<u8>),
    /// The value is hidden.
    Hidden(Hidden),
}

/// A key that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedEntry {
    /// Its value.
    pub value: RecordedValue,
    /// Revision of its creation.
    pub create_revision: i64,
    /// Revision of its last change.
    pub mod_revision: i64,
    /// Number of writes since its creation.
    pub version: i64,
    /// Its lease; 0 for none.
    pub lease: i64,
}

impl RecordedEntry {
    /// Returns the entry of the store. In the place of a hidden value stands [`NOT_RECORDED`] or [`ERASED`].
    pub fn into_entry(self) -> Entry {
        let value = match self.value {
            RecordedValue::Plain(value) => value,
            RecordedValue::Hidden(hidden) if hidden.is_erased() => ERASED.into(),
            RecordedValue::Hidden(_) => NOT_RECORDED.into(),
        };
        Entry {
            value,
            create_revision: self.create_revision,
            mod_revision: self.mod_revision,
            lease: self.lease,
            version: self.version,
        }
    }

    /// True if the two cannot be the same entry. Hashes of different recorders have different keys, and an erased value may
    /// have been any.
    pub fn contradicts(&self, other: &Self) -> bool {
        let values = match (&self.value, &other.value) {
            (RecordedValue::Hidden(hidden), _) | (_, RecordedValue::Hidden(hidden)) if hidden.is_erased() => {
                true
            }
            (RecordedValue::Hidden(one), RecordedValue::Hidden(other)) => one.bytes == other.bytes,
            (RecordedValue::Plain(one), RecordedValue::Plain(other)) => {
                one == other || is_same_but_for_erased(one, other)
            }
            (one, other) => one == other,
        };
        let numbers = |of: &Self| (of.create_revision, of.mod_revision, of.version, of.lease);
        !values || numbers(self) != numbers(other)
    }
}

/// True if two values are one event, from one of which values were erased.
fn is_same_but_for_erased(one: &[u8], other: &[u8]) -> bool {
    let has_erased = |value: &[u8]| value.windows(ERASED.len()).any(|part| part == ERASED.as_bytes());
    if !has_erased(one) && !has_erased(other) {
        return false;
    }
    let read = |value| serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(value).ok();
    let (Some(mut one), Some(mut other)) = (read(one), read(other)) else { return false };
    for field in EVENT_VALUES {
        if [&one, &other].iter().any(|event| event.get(field).is_some_and(|value| value == ERASED)) {
            one.remove(field);
            other.remove(field);
        }
    }
    one == other
}

/// The fields of an event with values of the key that it is about.
pub(super) const EVENT_VALUES: [&str; 2] = ["from", "to"];

/// A change of a key; the entry is `None` if it was deleted.
pub type Change = (String, Option<RecordedEntry>);

/// The changes of one revision; without changes, a mark that the store was at it, and that nothing that is recorded had
/// changed up to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The revision.
    pub revision: i64,
    /// When it came; of a mark, `by` is when the store was at it.
    pub between: Between,
    /// True if the recorder learnt of it after a time without contact.
    pub afterwards: bool,
    /// The changes, in their order.
    pub changes: Vec<Change>,
}

/// A segment of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Its first line.
    pub header: Header,
    /// The keys at its beginning.
    pub keys: BTreeMap<String, RecordedEntry>,
    /// What changed after that, in order.
    pub steps: Vec<Step>,
    /// False if its recorder did not close it, so that the end of what it had written may be missing.
    pub closed: bool,
}

impl Segment {
    /// Reads a segment.
    ///
    /// # Errors
    /// Returns an error if it is damaged anywhere, or newer than this program.
    pub fn read(bytes: &[u8]) -> Result<Self, SegmentError> {
        if !bytes.starts_with(BEGIN) {
            // A file of which nothing was written yet is one too.
            let is_begun = BEGIN.starts_with(bytes);
            return Err(if is_begun { SegmentError::Unfinished } else { SegmentError::NotASegment });
        }
        let mut reader = Reader::default();
        let mut at = BEGIN.len();
        while reader.index_at.is_none()
            && let Some(frame) = read(bytes, at)?
        {
            reader.take(&frame, at)?;
            at = frame.end;
        }
        reader.finish(&bytes[at..], at)
    }

    /// True if a file ends as a closed segment does. Only the end is read.
    ///
    /// # Errors
    /// Returns the error of the file.
    pub fn is_closed(file: &File) -> io::Result<bool> {
        let Some(at) = file.metadata()?.len().checked_sub(END.len() as u64) else { return Ok(false) };
        let mut end = [0; END.len()];
        file.read_exact_at(&mut end, at)?;
        Ok(end == *END)
    }

    /// Closes a segment whose recorder did not close it: keeps its whole frames, and adds the index. Returns `None` if it is
    /// closed, also if it is damaged, or if the keys at its beginning are not complete, so that nothing can be kept.
    pub fn rebuild(bytes: &[u8]) -> Option<Vec<u8>> {
        if !bytes.starts_with(BEGIN) || bytes.ends_with(END) {
            return None;
        }
        let (mut reader, mut end) = (Reader::default(), BEGIN.len());
        while let Ok(Some(frame)) = read(bytes, end)
            && frame.kind != Kind::Index
            && reader.take(&frame, end).is_ok()
        {
            end = frame.end;
        }
        if !reader.has_all_keys() {
            return None;
        }
        let lines: Vec<Vec<u8>> =
            reader.frames.iter().map(serde_json::to_vec).collect::<Result<_, _>>().ok()?;
        let index = frame(Kind::Index, &[lines.join(&b'\n'), b"\n".to_vec()].concat()).ok()?;
        Some([&bytes[..end], &index, &(end as u64).to_le_bytes()[..], END].concat())
    }

    /// Returns the last revision of which everything is known.
    pub fn last_revision(&self) -> i64 {
        self.steps.last().map_or(self.header.revision, |step| step.revision)
    }

    /// Returns the last time of which something is known, in milliseconds since 1970.
    pub fn last_time(&self) -> i64 {
        self.steps.last().map_or(self.header.between.by, |step| step.between.by)
    }

    /// Returns all keys at a revision; `None` if the segment does not cover it.
    pub fn into_keys_at(self, revision: i64) -> Option<BTreeMap<String, RecordedEntry>> {
        if !(self.header.revision..=self.last_revision()).contains(&revision) {
            return None;
        }
        let mut keys = self.keys;
        let changes = self.steps.into_iter().take_while(|step| step.revision <= revision);
        for (key, entry) in changes.flat_map(|step| step.changes) {
            match entry {
                Some(entry) => _ = keys.insert(key, entry),
                None => _ = keys.remove(&key),
            }
        }
        Some(keys)
    }
}

fn damaged(at: usize, why: impl Into<String>) -> SegmentError {
    SegmentError::Damaged { at, why: why.into() }
}

/// What was read so far.
#[derive(Default)]
struct Reader {
    header: Option<Header>,
    /// The keys at the beginning, in order.
    keys: Vec<(String, RecordedEntry)>,
    steps: Vec<Step>,
    /// The frames, as an index has to name them.
    frames: Vec<FrameLine>,
    index_at: Option<usize>,
    bytes: usize,
}

impl Reader {
    fn take(&mut self, frame: &Frame<'_>, at: usize) -> Result<(), SegmentError> {
        let lines = frame.lines(at)?;
        self.bytes += lines.len();
        if self.bytes > LINES_MAX_BYTES {
            return Err(damaged(at, format!("its lines are longer than {LINES_MAX_BYTES} bytes")));
        }
        match (frame.kind, &self.header) {
            (Kind::Header, None) => self.take_header(&lines, at)?,
            (Kind::Keys, Some(_)) if self.steps.is_empty() => self.take_keys(&lines, at)?,
            (Kind::Changes, Some(_)) if self.has_all_keys() => self.take_changes(&lines, at)?,
            (Kind::Index, Some(_)) if self.has_all_keys() => self.take_index(&lines, at)?,
            _ => return Err(damaged(at, "a frame of this kind has no place there")),
        }
        let first = self.frames.last().map_or(0, |frame| frame.last);
        let (last, by) = match (self.steps.last(), &self.header) {
            (Some(step), _) => (step.revision, step.between.by),
            (None, Some(header)) => (header.revision, header.between.by),
            (None, None) => (0, 0),
        };
        let first = if first == 0 { last } else { first };
        self.frames.push(FrameLine { at: at as u64, first, last, by });
        Ok(())
    }

    fn take_header(&mut self, lines: &[u8], at: usize) -> Result<(), SegmentError> {
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
        self.header = Some(serde_json::from_slice(lines).map_err(unreadable)?);
        Ok(())
    }

    fn take_keys(&mut self, lines: &[u8], at: usize) -> Result<(), SegmentError> {
        let revision = self.header.as_ref().map_or(0, |header| header.revision);
        for line in lines_of(lines) {
            let (key, entry) = change(parse(line, at)?, at)?;
            let entry = entry.filter(|entry| entry.mod_revision <= revision);
            let entry = entry.ok_or_else(|| damaged(at, format!("{key:?} is newer than the segment")))?;
            if self.keys.last().is_some_and(|(before, _)| *before >= key) {
                return Err(damaged(at, format!("{key:?} is out of order")));
            }
            self.keys.push((key, entry));
        }
        Ok(())
    }

    fn take_changes(&mut self, lines: &[u8], at: usize) -> Result<(), SegmentError> {
        for line in lines_of(lines) {
            let RevisionLine { revision, after, by, afterwards, changes } = parse(line, at)?;
            let begin = self.header.as_ref().map_or((0, 0), |header| (header.revision, header.between.by));
            let last = self.steps.last().map_or(begin, |step| (step.revision, step.between.by));
            let is_mark = changes.is_empty();
            let follows = if is_mark { revision >= last.0 } else { revision > last.0 };
            if !follows || by < last.1 || after.is_some_and(|after| after > by) {
                return Err(damaged(at, format!("revision {revision} does not follow {}", last.0)));
            }
            let changes: Vec<Change> =
                changes.into_iter().map(|line| change(line, at)).collect::<Result<_, _>>()?;
            let is_of_it = |(_, entry): &Change| entry.as_ref().is_none_or(|e| e.mod_revision == revision);
            if !changes.iter().all(is_of_it) {
                return Err(damaged(at, format!("a change of another revision than {revision}")));
            }
            self.steps.push(Step { revision, between: Between { after, by }, afterwards, changes });
        }
        Ok(())
    }

    fn take_index(&mut self, lines: &[u8], at: usize) -> Result<(), SegmentError> {
        let index: Vec<FrameLine> = lines_of(lines).map(|line| parse(line, at)).collect::<Result<_, _>>()?;
        if index != self.frames {
            return Err(damaged(at, "the index does not agree with the frames"));
        }
        self.index_at = Some(at);
        Ok(())
    }

    /// True if the keys at the beginning are complete.
    fn has_all_keys(&self) -> bool {
        self.header.as_ref().is_some_and(|header| header.keys == self.keys.len())
    }

    /// Returns the segment, of which `rest` follows its last frame.
    fn finish(self, rest: &[u8], at: usize) -> Result<Segment, SegmentError> {
        let complete = self.has_all_keys();
        let Some(header) = self.header.filter(|_| complete) else { return Err(SegmentError::Unfinished) };
        let closed = match self.index_at {
            Some(index) => {
                let end = [&(index as u64).to_le_bytes()[..], END].concat();
                if !end.starts_with(rest) {
                    return Err(damaged(at, "something else than its end follows the index"));
                }
                rest.len() == end.len()
            }
            None if rest.ends_with(END) => return Err(damaged(at, "its length is wrong")),
            // What follows is the beginning of a frame.
            None => false,
        };
        Ok(Segment { header, keys: self.keys.into_iter().collect(), steps: self.steps, closed })
    }
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
