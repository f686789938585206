//! Writes a bundle, one part after the other. At most one part is in memory.

use super::contents::{
    ABOUT, About, BUNDLE_MAX_BYTES, CONTENTS, Contents, LeftOut, PART_MAX_BYTES, Part, UNPACKED_MAX_FILES,
};
use crate::{Cut, Redactor};
use serde::Serialize;
use serde_json::Value;
use std::io::{self, Read, Write};

/// Compression level. Higher ones need more memory for a few per cent.
const LEVEL: i32 = 3;
/// Permissions of the parts.
const MODE: u32 = 0o600;

/// A bundle that is being written.
pub struct BundleWriter<'a, W: Write> {
    tar: tar::Builder<zstd::Encoder<'static, W>>,
    redactor: &'a Redactor,
    contents: Contents,
    /// Number of bytes that parts may still have.
    left: u64,
    /// When the parts were changed, by the clock of the host, in seconds since 1970.
    time: u64,
}

impl<'a, W: Write> BundleWriter<'a, W> {
    /// Begins a bundle.
    ///
    /// # Errors
    /// Returns the error of the writer.
    pub fn new(out: W, about: &About, redactor: &'a Redactor) -> io::Result<Self> {
        let mut encoder = zstd::Encoder::new(out, LEVEL)?;
        encoder.include_checksum(true)?;
        let mut writer = Self {
            tar: tar::Builder::new(encoder),
            redactor,
            contents: Contents::default(),
            left: BUNDLE_MAX_BYTES,
            time: u64::try_from(about.failed_at.0).unwrap_or(0),
        };
        let mut about = about.clone();
        about.cause.line = redactor.redact(&about.cause.line, Cut::default());
        writer.append_own(ABOUT, serde_json::to_string_pretty(&about)?.as_bytes())?;
        Ok(writer)
    }

    /// Adds a part without its secrets. Of a part that is longer than [`PART_MAX_BYTES`], or than what the others have
    /// left, the start is kept. `cut` says where it was cut before. What cannot be read is left out, with the reason.
    ///
    /// # Errors
    /// Returns the error of the writer.
    pub fn add(&mut self, name: &str, from: impl Read, cut: Cut) -> io::Result<()> {
        self.add_part(name, from, cut, cut.begin || cut.end)
    }

    /// Same as [`add`](Self::add) for a file that may be written at the same time: what stands at its end may be the
    /// start of a secret. `begin` is true if it was cut at its start.
    ///
    /// # Errors
    /// Returns the error of the writer.
    pub fn add_unfinished(&mut self, name: &str, from: impl Read, begin: bool) -> io::Result<()> {
        self.add_part(name, from, Cut { begin, end: true }, begin)
    }

    fn add_part(&mut self, name: &str, mut from: impl Read, cut: Cut, is_cut: bool) -> io::Result<()> {
        let limit = PART_MAX_BYTES.min(self.left);
        if limit == 0 {
            self.leave_out(name, "the bundle is full");
            return Ok(());
        }
        let Some(header) = self.header(name) else { return Ok(()) };
        let mut bytes = Vec::new();
        if let Err(error) = from.by_ref().take(limit).read_to_end(&mut bytes) {
            self.leave_out(name, &error.to_string());
            return Ok(());
        }
        let more = from.read(&mut [0]).is_ok_and(|count| count > 0);
        let cut = Cut { end: cut.end || more, ..cut };
        let mut shown = Vec::with_capacity(bytes.len());
        self.redactor.copy(&bytes[..], cut, &mut shown)?;
        drop(bytes);
        // What is no text becomes longer.
        let shown = String::from_utf8_lossy(&shown);
        let end = shown.floor_char_boundary(usize::try_from(limit).unwrap_or(usize::MAX));
        let is_cut = is_cut || more || end < shown.len();
        self.append_part(header, &shown.as_bytes()[..end], name, is_cut)
    }

    /// Adds a value as JSON, without the secrets in its texts. One that does not fit is left out.
    ///
    /// # Errors
    /// Returns the error of the writer, or of the value that cannot be JSON.
    pub fn add_json(&mut self, name: &str, value: &impl Serialize) -> io::Result<()> {
        let Some(header) = self.header(name) else { return Ok(()) };
        let mut value = serde_json::to_value(value)?;
        redact_value(&mut value, self.redactor);
        let text = serde_json::to_string_pretty(&value)?;
        if text.len() as u64 > PART_MAX_BYTES.min(self.left) {
            self.leave_out(name, "the bundle is full");
            return Ok(());
        }
        self.append_part(header, text.as_bytes(), name, false)
    }

    /// Returns the head of a part; `None` if it cannot be part of the bundle, which is noted.
    fn header(&mut self, name: &str) -> Option<tar::Header> {
        let mut header = tar::Header::new_ustar();
        let why = if self.contents.parts.len() + 2 >= UNPACKED_MAX_FILES {
            Some("the bundle has too many parts".to_owned())
        } else if name.chars().any(char::is_control) {
            Some("its path has control characters".to_owned())
        } else if self.contents.parts.iter().any(|part| part.name == name) {
            Some("it is there already".to_owned())
        } else {
            header.set_path(name).err().map(|error| error.to_string())
        };
        match why {
            Some(why) => {
                self.leave_out(name, &why);
                None
            }
            None => Some(header),
        }
    }

    fn append_part(&mut self, header: tar::Header, shown: &[u8], name: &str, is_cut: bool) -> io::Result<()> {
        self.left = self.left.saturating_sub(shown.len() as u64);
        self.contents.parts.push(Part { name: name.to_owned(), bytes: shown.len() as u64, is_cut });
        self.append(header, shown)
    }

    /// Notes what is not in the bundle, and why.
    pub fn leave_out(&mut self, name: &str, why: &str) {
        let why = self.redactor.redact(why, Cut::default());
        self.contents.left_out.push(LeftOut { name: name.to_owned(), why });
    }

    /// Ends the bundle.
    ///
    /// # Errors
    /// Returns the error of the writer.
    pub fn finish(mut self) -> io::Result<W> {
        let text = serde_json::to_string_pretty(&self.contents)?;
        self.append_own(CONTENTS, text.as_bytes())?;
        self.tar.into_inner()?.finish()
    }

    fn append_own(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        let mut header = tar::Header::new_ustar();
        header.set_path(name)?;
        self.append(header, content)
    }

    fn append(&mut self, mut header: tar::Header, content: &[u8]) -> io::Result<()> {
        header.set_size(content.len() as u64);
        header.set_mode(MODE);
        header.set_mtime(self.time);
        header.set_cksum();
        self.tar.append(&header, content)
    }
}

fn redact_value(value: &mut Value, redactor: &Redactor) {
    match value {
        Value::String(text) => *text = redactor.redact(text, Cut::default()),
        Value::Array(values) => values.iter_mut().for_each(|value| redact_value(value, redactor)),
        Value::Object(fields) => fields.values_mut().for_each(|value| redact_value(value, redactor)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
