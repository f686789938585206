//! Writes a segment.

use super::entry::{NOT_RECORDED, RecordedEntry, RecordedValue};
use super::frame::{BEGIN, END, FRAME_BYTES, FRAME_MAX_BYTES, Kind, frame};
use super::line::{Between, FORMAT, FrameLine, Header, Hidden, KeyLine, RevisionLine};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use schema::keys::Prefix;
use schema::records::Event;
use schema::snapshot::{Entry, KeySnapshot};
use serde::Serialize;
use std::borrow::Cow;
use std::fmt;
use std::io::{self, Write};

/// Length from which on a segment should be closed, in bytes.
pub const SEGMENT_MAX_BYTES: u64 = 8 * 1024 * 1024;

/// Digits of the hash of a hidden value.
const HASH_DIGITS: usize = 16;

/// Hides the values that are not recorded: those of the keys under `/orchestrate/config/`, which may be secret, also in the
/// events of who changed them.
pub struct Concealer {
    key: hmac::Key,
    values: String,
    events: String,
}

impl fmt::Debug for Concealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Concealer")
    }
}

impl Concealer {
    /// Returns one whose hashes depend on this key. Without the key nobody can guess a short value by its hash.
    pub fn new(key: &[u8]) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, key);
        Self { key, values: Prefix::Config.to_string(), events: Prefix::Events.to_string() }
    }

    /// Returns an entry of the store as it is recorded.
    pub fn recorded(&self, key: &str, entry: &Entry) -> RecordedEntry {
        RecordedEntry {
            value: self.conceal(key, &entry.value),
            create_revision: entry.create_revision,
            mod_revision: entry.mod_revision,
            version: entry.version,
            lease: entry.lease,
        }
    }

    fn conceal(&self, key: &str, value: &[u8]) -> RecordedValue {
        if key.starts_with(&self.values) {
            return self.hidden(value);
        }
        let of_value = self.values.as_bytes();
        if key.starts_with(&self.events) && value.windows(of_value.len()).any(|part| part == of_value) {
            return self.without_values(value).map_or_else(|| self.hidden(value), RecordedValue::Plain);
        }
        RecordedValue::Plain(value.to_vec())
    }

    fn hidden(&self, value: &[u8]) -> RecordedValue {
        let tag = hmac::sign(&self.key, value);
        let hash: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        RecordedValue::Hidden(Hidden { bytes: value.len() as u64, hash: hash[..HASH_DIGITS].to_owned() })
    }

    /// Returns an event without the values of which it tells; `None` if it cannot be read.
    fn without_values(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut event: Event = serde_json::from_slice(bytes).ok()?;
        if !event.what.starts_with(&self.values) {
            return Some(bytes.to_vec());
        }
        [&mut event.from, &mut event.to].into_iter().flatten().for_each(|value| *value = NOT_RECORDED.into());
        serde_json::to_vec(&event).ok()
    }

    /// Returns the line of a key; the entry is `None` if it was deleted.
    fn line(&self, key: &str, entry: Option<&Entry>) -> KeyLine<'static> {
        let mut line = KeyLine {
            key: Cow::Owned(key.to_owned()),
            value: None,
            base64: None,
            hidden: None,
            created: 0,
            modified: 0,
            version: 0,
            lease: 0,
        };
        let Some(entry) = entry else { return line };
        match self.conceal(key, &entry.value) {
            RecordedValue::Hidden(hidden) => line.hidden = Some(hidden),
            RecordedValue::Plain(value) => match String::from_utf8(value) {
                Ok(text) => line.value = Some(Cow::Owned(text)),
                Err(error) => line.base64 = Some(STANDARD.encode(error.as_bytes())),
            },
        }
        line.created = entry.create_revision;
        line.modified = entry.mod_revision;
        line.version = entry.version;
        line.lease = entry.lease;
        line
    }
}

/// Writes a segment. What is written is in the file after [`Self::flush`], and a reader uses it then.
#[derive(Debug)]
pub struct SegmentWriter<W> {
    out: W,
    concealer: Concealer,
    /// Bytes in the file.
    written: u64,
    /// Lines of the frame that is not written yet.
    lines: Vec<u8>,
    /// The frame of these lines; its position is set when it is written.
    open: FrameLine,
    index: Vec<FrameLine>,
    /// The latest times, which never go backwards.
    latest: Between,
}

impl<W: Write> SegmentWriter<W> {
    /// Begins a segment with all keys at one revision. The format, the revision and the number of keys of the header are
    /// set here.
    ///
    /// # Errors
    /// Returns the error of the file.
    pub fn begin(
        mut out: W,
        header: Header,
        snapshot: &KeySnapshot,
        concealer: Concealer,
    ) -> io::Result<Self> {
        out.write_all(BEGIN)?;
        let revision = snapshot.revision;
        let header = Header { format: FORMAT, revision, keys: snapshot.entries.len(), ..header };
        let open = FrameLine { at: 0, first: revision, last: revision, by: header.between.by };
        let mut writer = Self {
            out,
            concealer,
            written: BEGIN.len() as u64,
            lines: Vec::new(),
            open,
            index: Vec::new(),
            latest: header.between,
        };
        writer.push(&header)?;
        writer.end_frame(Kind::Header)?;
        for (key, entry) in &snapshot.entries {
            let line = writer.concealer.line(key, Some(entry));
            push_line(&line, &mut writer.lines)?;
            if writer.lines.len() >= FRAME_BYTES {
                writer.end_frame(Kind::Keys)?;
            }
        }
        if !writer.lines.is_empty() {
            writer.end_frame(Kind::Keys)?;
        }
        Ok(writer)
    }

    /// Adds the changes of the next revision, in their order; an entry is `None` for a deleted key. `afterwards` is true if
    /// the recorder had no contact when they happened.
    ///
    /// # Errors
    /// Returns the error of the file.
    pub fn change(
        &mut self,
        revision: i64,
        between: Between,
        afterwards: bool,
        changes: &[(String, Option<Entry>)],
    ) -> io::Result<()> {
        let by = between.by.max(self.latest.by);
        let after = between.after.max(self.latest.after).map(|after| after.min(by));
        self.latest = Between { after, by };
        let changes = changes.iter().map(|(key, entry)| self.concealer.line(key, entry.as_ref())).collect();
        push_line(&RevisionLine { revision, after, by, afterwards, changes }, &mut self.lines)?;
        (self.open.last, self.open.by) = (revision, by);
        if self.lines.len() >= FRAME_BYTES { self.end_frame(Kind::Changes) } else { Ok(()) }
    }

    /// Adds that the store was at a revision at a time, in milliseconds since 1970, and that nothing that is recorded had
    /// changed up to it.
    ///
    /// # Errors
    /// Returns the error of the file.
    pub fn mark(&mut self, revision: i64, at: i64) -> io::Result<()> {
        let revision = revision.max(self.open.last);
        self.change(revision, Between { after: None, by: at }, false, &[])
    }

    /// Writes everything to the file. The caller syncs it.
    ///
    /// # Errors
    /// Returns the error of the file.
    pub fn flush(&mut self) -> io::Result<()> {
        if !self.lines.is_empty() {
            self.end_frame(Kind::Changes)?;
        }
        self.out.flush()
    }

    pub fn file(&self) -> &W {
        &self.out
    }

    /// Returns the last revision of the segment.
    pub fn revision(&self) -> i64 {
        self.open.last
    }

    /// Returns the latest time in the segment, in milliseconds since 1970.
    pub fn latest(&self) -> i64 {
        self.latest.by
    }

    /// Returns the length of the file so far, in bytes.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Closes the segment and returns its file.
    ///
    /// # Errors
    /// Returns the error of the file.
    pub fn finish(mut self) -> io::Result<W> {
        self.flush()?;
        let position = self.written;
        for line in std::mem::take(&mut self.index) {
            self.push(&line)?;
        }
        self.end_frame(Kind::Index)?;
        self.out.write_all(&position.to_le_bytes())?;
        self.out.write_all(END)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn push(&mut self, line: &impl Serialize) -> io::Result<()> {
        push_line(line, &mut self.lines)
    }

    fn end_frame(&mut self, kind: Kind) -> io::Result<()> {
        if self.lines.len() > FRAME_MAX_BYTES {
            return Err(io::Error::other("a change is too large for a segment"));
        }
        let frame = frame(kind, &self.lines)?;
        self.lines.clear();
        self.out.write_all(&frame)?;
        let FrameLine { first, last, by, .. } = self.open;
        self.index.push(FrameLine { at: self.written, first, last, by });
        self.open.first = last;
        self.written += frame.len() as u64;
        Ok(())
    }
}

fn push_line(line: &impl Serialize, lines: &mut Vec<u8>) -> io::Result<()> {
    serde_json::to_writer(&mut *lines, line)?;
    lines.push(b'\n');
    Ok(())
}
