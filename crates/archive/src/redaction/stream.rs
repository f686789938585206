//! Removes secrets from a text of any length, with little memory.

use super::{Cut, HIDDEN, Redactor};
use std::io::{self, Read, Write};
use std::ops::Range;

/// Length of the text that is looked at together, in bytes. What a [`Redactor`] makes of it needs 70 times as much.
const WINDOW: usize = 128 * 1024;
/// Length of the text at the end of a window that the next one begins with, in bytes. No secret is longer, also if all
/// its characters are escaped.
const OVERLAP: usize = 32 * 1024;
/// Length of the text before a secret that shows that it is one, as `password=` does, in bytes.
const BEFORE: usize = 128;
/// Number of bytes that are read at once.
const READ: u64 = 64 * 1024;

impl Redactor {
    /// Copies a text without its secrets. What is no UTF-8 is replaced by U+FFFD. Returns the number of bytes written.
    ///
    /// # Errors
    /// Returns the error of the reader or of the writer.
    pub fn copy(&self, mut from: impl Read, cut: Cut, to: &mut impl Write) -> io::Result<u64> {
        let (mut text, mut raw) = (String::new(), Vec::new());
        let (mut written, mut is_first, mut hides_word) = (0, true, false);
        loop {
            let is_over = from.by_ref().take(READ).read_to_end(&mut raw)? == 0;
            take_text(&mut raw, &mut text, is_over);
            while is_over && !text.is_empty() || text.len() >= WINDOW {
                if hides_word {
                    let end = text.find(char::is_whitespace);
                    text.drain(..end.unwrap_or(text.len()));
                    hides_word = end.is_none();
                    continue;
                }
                let begin = cut.begin && is_first;
                let is_last = is_over && text.len() < WINDOW;
                let end = if is_last { Some(text.len()) } else { self.border(&text, begin) };
                let part = &text[..end.unwrap_or(0)];
                let shown = match end {
                    Some(_) => self.redact(part, Cut { begin, end: is_last && cut.end }),
                    None => HIDDEN.to_owned(),
                };
                to.write_all(shown.as_bytes())?;
                written += shown.len() as u64;
                text.drain(..end.unwrap_or(0));
                // A secret fills the whole window: the rest of this word belongs to it.
                hides_word = end.is_none();
                is_first = false;
            }
            if is_over {
                return Ok(written);
            }
        }
    }

    /// Returns where a text can be divided, so that neither a secret nor what shows one is divided; `None` if there is no
    /// such place.
    fn border(&self, text: &str, begin: bool) -> Option<usize> {
        let hidden = self.hidden(text, Cut { begin, end: false });
        let mut latest = text.len() - OVERLAP;
        while !text.is_char_boundary(latest) {
            latest -= 1;
        }
        let is_inside = |at: usize, range: &Range<usize>| range.start < at && at < range.end;
        // Nothing that shows a secret goes over the end of a line.
        let mut lines = text[..latest].rmatch_indices('\n').map(|(at, _)| at + 1);
        let after_line = lines.find(|at| !hidden.iter().any(|range| is_inside(*at, range)));
        let shows = |at: usize, range: &Range<usize>| range.start < at + BEFORE && at < range.end;
        let elsewhere = || {
            let mut places = (1..=latest).rev().filter(|at| text.is_char_boundary(*at));
            places.find(|at| !hidden.iter().any(|range| shows(*at, range)))
        };
        after_line.or_else(elsewhere)
    }
}

/// Moves what is complete of bytes to a text.
fn take_text(raw: &mut Vec<u8>, text: &mut String, is_over: bool) {
    let mut kept = 0;
    for chunk in raw.utf8_chunks() {
        let is_end = kept + chunk.valid().len() + chunk.invalid().len() == raw.len();
        text.push_str(chunk.valid());
        kept += chunk.valid().len();
        // The rest of a character at the end may follow: it has at most three bytes.
        if is_end && !is_over && chunk.invalid().len() < 4 && !chunk.invalid().is_empty() {
            break;
        }
        if !chunk.invalid().is_empty() {
            text.push(char::REPLACEMENT_CHARACTER);
            kept += chunk.invalid().len();
        }
    }
    raw.drain(..kept);
}
