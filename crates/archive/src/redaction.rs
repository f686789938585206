//! Removes secrets from text before it leaves the host: those that are known, also where they are encoded, in other case,
//! coloured or split over lines, what matches a pattern, and whatever has the form of a secret. Other secrets are not recognised.

mod in_form;
mod patterns;
mod stream;
mod view;

pub use in_form::in_form;
pub use view::unescaped_url;

use aho_corasick::{AhoCorasick, AhoCorasickBuilder, AhoCorasickKind, MatchKind};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use regex_lite::Regex;
use std::ops::Range;
use view::{View, is_line_end, views};

/// Length of the shortest secret that is removed, in bytes. Shorter ones would match inside words.
pub const SHORTEST_SECRET: usize = 4;
/// Length of the shortest secret that is looked for in base64, in bytes. Of shorter ones too few characters are certain.
const SHORTEST_IN_BASE64: usize = 8;
/// Length of the shortest part of a secret that is removed where a text was cut, in bytes.
const SHORTEST_PART: usize = 4;
/// Longest rest of a character or of an escape that a cut leaves, in bytes: that of `\u0041` without its first one.
const LONGEST_REST: usize = 5;
const HIDDEN: &str = "***";
/// Where a text was cut, so that a part of a secret may stand there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cut {
    /// Something before it is missing.
    pub begin: bool,
    /// Something after it is missing, or has not been written yet.
    pub end: bool,
}

/// What stands between the start and the last part of an output that is too long to be kept as a whole.
pub const CUT_LINE: &str = "\n[the output between is not kept; its last part:]\n";

/// Finds secrets. It has no `Debug`, because it holds them.
pub struct Redactor {
    /// The forms in which the known secrets are written.
    forms: Vec<Vec<u8>>,
    finder: Option<AhoCorasick>,
    patterns: Vec<Regex>,
}

impl Default for Redactor {
    fn default() -> Self {
        Self::new([])
    }
}

impl Redactor {
    /// Returns what finds these secrets. Those that are shorter than [`SHORTEST_SECRET`] are not looked for.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut forms: Vec<Vec<u8>> = secrets.into_iter().flat_map(forms).collect();
        forms.sort();
        forms.dedup();
        // The other kinds need a thousand times the length of the secrets.
        let kind = Some(AhoCorasickKind::ContiguousNFA);
        let built = AhoCorasickBuilder::new()
            .kind(kind)
            .match_kind(MatchKind::Standard)
            .ascii_case_insensitive(true)
            .build(&forms);
        // It fails only for more text than a program can hold.
        let finder = if forms.is_empty() { None } else { built.ok() };
        Self { forms, finder, patterns: Vec::new() }
    }

    /// Finds also what matches one of these patterns, in a line or in two lines as if they were one. Where a text was cut,
    /// the word there is removed, because it may be a part of what matches.
    pub fn with_patterns(self, patterns: Vec<Regex>) -> Self {
        Self { patterns, ..self }
    }

    /// Returns a text with `***` in the place of each secret.
    pub fn redact(&self, text: &str, cut: Cut) -> String {
        masked(text, self.hidden(text, cut))
    }

    /// Returns the places of secrets, sorted.
    fn hidden(&self, text: &str, cut: Cut) -> Vec<Range<usize>> {
        let mut hidden = self.known(text, cut);
        hidden.extend(in_form(text));
        hidden.extend(patterns::matching(&self.patterns, text));
        if !self.patterns.is_empty() {
            hidden.extend(patterns::cut_words(text, cut.begin, cut.end));
        }
        hidden.sort_unstable_by_key(|range| (range.start, range.end));
        hidden
    }

    /// Returns the places of the known secrets.
    fn known(&self, text: &str, cut: Cut) -> Vec<Range<usize>> {
        let Some(finder) = &self.finder else { return Vec::new() };
        let mut found = Vec::new();
        for view in views(View::of(text)) {
            found.extend(finder.find_overlapping_iter(&view.bytes).map(|found| view.place(found.range())));
            if cut.begin {
                let part = self.forms.iter().filter_map(|form| begins_with_end(&view.bytes, form)).max();
                found.extend(part.map(|length| view.place(0..length)));
            }
            if cut.end {
                let part = self.forms.iter().filter_map(|form| ends_with_begin(&view.bytes, form)).max();
                found.extend(part.map(|length| view.place(view.bytes.len() - length..view.bytes.len())));
            }
        }
        found
    }
}

/// Returns a text with `***` in these places, which are sorted.
fn masked(text: &str, hidden: impl IntoIterator<Item = Range<usize>>) -> String {
    let (mut shown, mut end) = (String::with_capacity(text.len()), 0);
    for range in hidden {
        if range.start >= end {
            shown.push_str(&text[end..range.start]);
            shown.push_str(HIDDEN);
        }
        // Lines stay lines.
        let new = &text[range.start.max(end)..range.end.max(end)];
        shown.extend(new.chars().filter(|c| *c == '\n'));
        end = end.max(range.end);
    }
    shown + &text[end..]
}

/// Returns the length of what bytes begin with, if it ends with the longest end of a form, but not the whole. Before
/// that may stand the rest of a character or of an escape.
fn begins_with_end(bytes: &[u8], form: &[u8]) -> Option<usize> {
    let after = |rest: usize| {
        let bytes = bytes.get(rest..)?;
        let longest = bytes.len().min(form.len().saturating_sub(1));
        let parts = (SHORTEST_PART..=longest).rev();
        let mut found =
            parts.filter(|length| bytes[..*length].eq_ignore_ascii_case(&form[form.len() - length..]));
        found.next().map(|length| rest + length)
    };
    (0..=LONGEST_REST).filter_map(after).max()
}

/// Returns the length of what bytes end with, if it begins with the longest begin of a form, but not the whole. After
/// that may stand a part of a character or of an escape.
fn ends_with_begin(bytes: &[u8], form: &[u8]) -> Option<usize> {
    let before = |rest: usize| {
        let bytes = &bytes[..bytes.len().checked_sub(rest)?];
        let longest = bytes.len().min(form.len().saturating_sub(1));
        let parts = (SHORTEST_PART..=longest).rev();
        let mut found =
            parts.filter(|length| bytes[bytes.len() - length..].eq_ignore_ascii_case(&form[..*length]));
        found.next().map(|length| rest + length)
    };
    (0..=LONGEST_REST).filter_map(before).max()
}

/// Returns a secret as it is, without line ends, in hexadecimal digits, and what is certain of it in base64, wherever it stands there. Base64
/// encodes line ends too, whichever they are.
fn forms(secret: &[u8]) -> Vec<Vec<u8>> {
    let plain: Vec<u8> = secret.iter().copied().filter(|byte| !is_line_end(*byte)).collect();
    if plain.len() < SHORTEST_SECRET {
        return Vec::new();
    }
    let lines: Vec<&[u8]> = secret.split(|byte| *byte == b'\n').collect();
    let lines: Vec<&[u8]> = lines.iter().map(|line| line.strip_suffix(b"\r").unwrap_or(line)).collect();
    let of_lines = [plain.clone(), lines.join(&b'\n'), lines.join(&b"\r\n"[..])];
    let mut forms: Vec<Vec<u8>> = of_lines.iter().flat_map(|secret| in_base64(secret)).collect();
    forms.extend(of_lines.iter().map(|secret| in_hex(secret)));
    forms.push(plain);
    forms
}

/// Returns a secret in hexadecimal digits. Case does not matter where it is looked for.
fn in_hex(secret: &[u8]) -> Vec<u8> {
    secret.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect()
}

/// Returns what is certain of a secret in base64 (RFC 4648, sections 4 and 5).
fn in_base64(secret: &[u8]) -> Vec<Vec<u8>> {
    let mut forms = Vec::new();
    if secret.len() >= SHORTEST_IN_BASE64 {
        // Three bytes make four characters, so what is before the secret shifts it in three ways.
        for shift in 0..3 {
            let shifted = [&[0; 2][..shift], secret].concat();
            let certain = (shift * 8).div_ceil(6)..shifted.len() * 8 / 6;
            for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
                forms.push(engine.encode(&shifted).as_bytes()[certain.clone()].to_vec());
            }
        }
    }
    forms
}

#[cfg(test)]
mod form_tests;
#[cfg(test)]
mod tests;
