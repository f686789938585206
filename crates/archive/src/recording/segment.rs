//! Reads a segment.

use super::content::{Content, Lines, content_of, content_of_all, damaged};
use super::entry::{Change, RecordedEntry, Step};
use super::error::SegmentError;
use super::frame::{BEGIN, END, Frame, Kind, frame, read};
use super::line::{Between, FrameLine, Header};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Greatest length of all lines of a segment, in bytes. The keys of a fleet of 10,000 hosts take 30 MiB.
const LINES_MAX_BYTES: usize = 1024 * 1024 * 1024;

/// Number of frames that are read at the same time. Each has up to 16 MiB of lines.
const BATCH: usize = 8;

/// A segment of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
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
        let (frames, problem) = frames_of(bytes);
        let (mut reader, mut end) = (Reader::default(), BEGIN.len());
        for batch in frames.chunks(BATCH) {
            for (frame, content) in batch.iter().zip(content_of_all(batch)) {
                reader.take(content?, frame.at)?;
                end = frame.end;
            }
        }
        problem.map_or_else(|| reader.finish(&bytes[end..], end), Err)
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
            && content_of(&frame).and_then(|content| reader.take(content, end)).is_ok()
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

/// Returns the frames up to the index, and why there are no more if it is not because the bytes end.
fn frames_of(bytes: &[u8]) -> (Vec<Frame<'_>>, Option<SegmentError>) {
    let (mut frames, mut at) = (Vec::new(), BEGIN.len());
    loop {
        match read(bytes, at) {
            Ok(Some(frame)) => {
                at = frame.end;
                let is_last = frame.kind == Kind::Index;
                frames.push(frame);
                if is_last {
                    return (frames, None);
                }
            }
            Ok(None) => return (frames, None),
            Err(error) => return (frames, Some(error)),
        }
    }
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
    fn take(&mut self, content: Content, at: usize) -> Result<(), SegmentError> {
        self.bytes += content.bytes;
        if self.bytes > LINES_MAX_BYTES {
            return Err(damaged(at, format!("its lines are longer than {LINES_MAX_BYTES} bytes")));
        }
        match (content.lines, &self.header) {
            (Lines::Header(header), None) => self.header = Some(*header),
            (Lines::Keys(keys), Some(_)) if self.steps.is_empty() => self.take_keys(keys, at)?,
            (Lines::Changes(steps), Some(_)) if self.has_all_keys() => self.take_changes(steps, at)?,
            (Lines::Index(index), Some(_)) if self.has_all_keys() => self.take_index(&index, at)?,
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

    fn take_keys(&mut self, keys: Vec<Change>, at: usize) -> Result<(), SegmentError> {
        let revision = self.header.as_ref().map_or(0, |header| header.revision);
        for (key, entry) in keys {
            let entry = entry.filter(|entry| entry.mod_revision <= revision);
            let entry = entry.ok_or_else(|| damaged(at, format!("{key:?} is newer than the segment")))?;
            if self.keys.last().is_some_and(|(before, _)| *before >= key) {
                return Err(damaged(at, format!("{key:?} is out of order")));
            }
            self.keys.push((key, entry));
        }
        Ok(())
    }

    fn take_changes(&mut self, steps: Vec<Step>, at: usize) -> Result<(), SegmentError> {
        for step in steps {
            let Step { revision, between: Between { after, by }, ref changes, .. } = step;
            let begin = self.header.as_ref().map_or((0, 0), |header| (header.revision, header.between.by));
            let last = self.steps.last().map_or(begin, |step| (step.revision, step.between.by));
            let is_mark = changes.is_empty();
            let follows = if is_mark { revision >= last.0 } else { revision > last.0 };
            if !follows || by < last.1 || after.is_some_and(|after| after > by) {
                return Err(damaged(at, format!("revision {revision} does not follow {}", last.0)));
            }
            let is_of_it = |(_, entry): &Change| entry.as_ref().is_none_or(|e| e.mod_revision == revision);
            if !changes.iter().all(is_of_it) {
                return Err(damaged(at, format!("a change of another revision than {revision}")));
            }
            self.steps.push(step);
        }
        Ok(())
    }

    fn take_index(&mut self, index: &[FrameLine], at: usize) -> Result<(), SegmentError> {
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
        if !complete {
            return Err(SegmentError::Unfinished);
        }
        let Some(header) = self.header else { return Err(SegmentError::Unfinished) };
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
