//! Removes secrets from a text of any length, with little memory.

use super::{Cut, Redactor, masked};
use std::io::{self, Read, Write};
use std::ops::Range;

/// Bounds of the length of text at the end of a window that the next one begins with, in bytes. A secret that is longer,
/// with its escapes, may be divided, so that a part of it stays.
const OVERLAP: [usize; 2] = [32 * 1024, 128 * 1024];
/// Number of bytes by which an escape can be longer than what it stands for: `\u0041`.
const ESCAPED: usize = 6;
/// How much longer the text is that is looked at together. What a [`Redactor`] makes of it needs 70 times as much.
const WINDOW: usize = 4;
/// Length of the text before a secret that shows that it is one, as `password=` does, in bytes.
const BEFORE: usize = 128;
/// Number of bytes that are read at once.
const READ: u64 = 64 * 1024;

/// Where a text can be divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Border {
    At(usize),
    /// Nowhere: a secret goes on after the text.
    After(SecretEnd),
}

/// Before what a secret ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SecretEnd {
    Quote(char),
    Blank,
    LineEnd,
}

impl SecretEnd {
    fn is(self, c: char) -> bool {
        match self {
            Self::Quote(quote) => c == quote,
            Self::Blank => c.is_whitespace(),
            Self::LineEnd => c == '\n',
        }
    }
}

impl Redactor {
    /// Copies a text without its secrets. What is no UTF-8 is replaced by U+FFFD. Returns the number of bytes written.
    ///
    /// # Errors
    /// Returns the error of the reader or of the writer.
    pub fn copy(&self, mut from: impl Read, cut: Cut, to: &mut impl Write) -> io::Result<u64> {
        let longest = self.forms.iter().map(Vec::len).max().unwrap_or(0);
        let overlap = longest.saturating_mul(ESCAPED).clamp(OVERLAP[0], OVERLAP[1]);
        let window = overlap * WINDOW;
        let (mut text, mut raw) = (String::new(), Vec::new());
        // What ends the secret that was begun; `None` if none was.
        let mut hides: Option<SecretEnd> = None;
        let (mut written, mut is_first) = (0, true);
        loop {
            let is_over = from.by_ref().take(READ).read_to_end(&mut raw)? == 0;
            take_text(&mut raw, &mut text, is_over);
            while is_over && !text.is_empty() || text.len() >= window {
                if let Some(secret_end) = hides {
                    let end = text.find(|c: char| secret_end.is(c));
                    text.drain(..end.unwrap_or(text.len()));
                    if end.is_some() {
                        hides = None;
                    }
                    continue;
                }
                let begin = cut.begin && is_first;
                let is_last = is_over && text.len() < window;
                // What follows a part shows that its end is a secret, as the `@` of a URL does.
                let hidden = self.hidden(&text, Cut { begin, end: is_last && cut.end });
                let border = if is_last {
                    Border::At(text.len())
                } else {
                    border(&text, &hidden, text.len() - overlap, self.unquoted_end())
                };
                let end = match border {
                    Border::At(end) => end,
                    Border::After(secret_end) => {
                        hides = Some(secret_end);
                        text.len()
                    }
                };
                let shown = masked(&text[..end], hidden.into_iter().filter(|range| range.start < end));
                to.write_all(shown.as_bytes())?;
                written += shown.len() as u64;
                text.drain(..end);
                is_first = false;
            }
            if is_over {
                return Ok(written);
            }
        }
    }

    /// Before what a secret ends at the latest that no quote ends. What matches a pattern may have blanks.
    fn unquoted_end(&self) -> SecretEnd {
        if self.patterns.is_empty() { SecretEnd::Blank } else { SecretEnd::LineEnd }
    }
}

/// Returns where a text with these secrets can be divided, at this place or before it if possible, so that neither a secret
/// nor what shows one is divided. It is never the start of the text.
fn border(text: &str, hidden: &[Range<usize>], latest: usize, unquoted_end: SecretEnd) -> Border {
    let latest = floor_boundary(text, latest);
    let is_inside = |at: usize| hidden.iter().any(|range| range.start < at && at < range.end);
    // Nothing that shows a secret goes over the end of a line.
    let mut after_lines = text[..latest].rmatch_indices('\n').map(|(at, _)| at + 1);
    if let Some(at) = after_lines.find(|at| !is_inside(*at)) {
        return Border::At(at);
    }
    let mut at = latest;
    // Sorted by their begins, so each is looked at once.
    for Range { start, end } in hidden.iter().rev() {
        if *start < at + BEFORE && at < *end {
            at = floor_boundary(text, start.saturating_sub(BEFORE));
        }
    }
    if at > 0 {
        return Border::At(at);
    }
    // What shows a secret does not begin in another one, so each end of one will do.
    let ends = || hidden.iter().map(|range| range.end).filter(|end| !is_inside(*end));
    let before = ends().filter(|end| *end <= latest).max();
    let after = ends().filter(|end| *end > latest && *end < text.len()).min();
    match before.or(after) {
        Some(at) => Border::At(at),
        None => {
            let last = hidden.iter().filter(|range| range.end == text.len()).map(|range| range.start).min();
            let quote = last.and_then(|start| text[..start].chars().next_back());
            Border::After(quote.filter(|c| "\"'".contains(*c)).map_or(unquoted_end, SecretEnd::Quote))
        }
    }
}

/// Returns the last place up to this one at which a character begins.
fn floor_boundary(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
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
