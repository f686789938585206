//! Removes secrets from text before it leaves the host: those that are known, also where they are encoded or split over
//! lines, and whatever has the form of a secret. A secret that is neither known nor has such a form is not recognised.

mod stream;

use aho_corasick::{AhoCorasick, AhoCorasickBuilder, AhoCorasickKind, MatchKind};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use std::ops::Range;

/// Length of the shortest secret that is removed, in bytes. Shorter ones would match inside words.
pub const SHORTEST_SECRET: usize = 4;
/// Length of the shortest secret that is looked for in base64, in bytes. Of shorter ones too few characters are certain.
const SHORTEST_IN_BASE64: usize = 8;
/// Length of the shortest part of a secret that is removed where a text was cut, in bytes.
const SHORTEST_PART: usize = 4;
/// Longest rest of a character or of an escape that a cut leaves, in bytes: that of `\u0041` without its first one.
const LONGEST_REST: usize = 5;
const HIDDEN: &str = "***";
/// Endings of names whose value is a secret: `?token=…`, `PGPASSWORD=…`.
const NAMES: [&str; 9] =
    ["password", "passwd", "pass", "pwd", "secret", "token", "apikey", "api_key", "api-key"];

/// Where a text was cut, so that a part of a secret may stand there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cut {
    /// Something before it is missing.
    pub begin: bool,
    /// Something after it is missing, or has not been written yet.
    pub end: bool,
}

/// What stands between the begin and the last part of an output that is too long to be kept as a whole.
pub const CUT_LINE: &str = "\n[the output between is not kept; its last part:]\n";

/// Finds secrets. It has no `Debug`, because it holds them.
pub struct Redactor {
    patterns: Vec<Vec<u8>>,
    finder: Option<AhoCorasick>,
}

impl Default for Redactor {
    fn default() -> Self {
        Self::new([])
    }
}

impl Redactor {
    /// Returns what finds these secrets. Those that are shorter than [`SHORTEST_SECRET`] are not looked for.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut patterns: Vec<Vec<u8>> = secrets.into_iter().flat_map(forms).collect();
        patterns.sort();
        patterns.dedup();
        // The other kinds need a thousand times the length of the secrets.
        let kind = Some(AhoCorasickKind::ContiguousNFA);
        let built = AhoCorasickBuilder::new().kind(kind).match_kind(MatchKind::Standard).build(&patterns);
        // It fails only for more text than a program can hold.
        let finder = if patterns.is_empty() { None } else { built.ok() };
        Self { patterns, finder }
    }

    /// Returns a text with `***` in the place of each secret.
    pub fn redact(&self, text: &str, cut: Cut) -> String {
        masked(text, self.hidden(text, cut))
    }

    /// Returns the places of secrets, sorted.
    fn hidden(&self, text: &str, cut: Cut) -> Vec<Range<usize>> {
        let mut hidden = self.known(text, cut);
        hidden.extend(in_form(text));
        hidden.sort_unstable_by_key(|range| (range.start, range.end));
        hidden
    }

    /// Returns the places of the known secrets.
    fn known(&self, text: &str, cut: Cut) -> Vec<Range<usize>> {
        let Some(finder) = &self.finder else { return Vec::new() };
        let mut found = Vec::new();
        for view in views(text) {
            found.extend(finder.find_overlapping_iter(&view.bytes).map(|found| view.place(found.range())));
            if cut.begin {
                let part =
                    self.patterns.iter().filter_map(|pattern| begins_with_end(&view.bytes, pattern)).max();
                found.extend(part.map(|length| view.place(0..length)));
            }
            if cut.end {
                let part =
                    self.patterns.iter().filter_map(|pattern| ends_with_begin(&view.bytes, pattern)).max();
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

/// Returns the length of what bytes begin with, if it ends with the longest end of a pattern, but not the whole. Before
/// that may stand the rest of a character or of an escape.
fn begins_with_end(bytes: &[u8], pattern: &[u8]) -> Option<usize> {
    let after = |rest: usize| {
        let bytes = bytes.get(rest..)?;
        let longest = bytes.len().min(pattern.len().saturating_sub(1));
        let parts = (SHORTEST_PART..=longest).rev();
        let mut found = parts.filter(|length| bytes[..*length] == pattern[pattern.len() - length..]);
        found.next().map(|length| rest + length)
    };
    (0..=LONGEST_REST).filter_map(after).max()
}

/// Returns the length of what bytes end with, if it begins with the longest begin of a pattern, but not the whole. After
/// that may stand a part of a character or of an escape.
fn ends_with_begin(bytes: &[u8], pattern: &[u8]) -> Option<usize> {
    let before = |rest: usize| {
        let bytes = &bytes[..bytes.len().checked_sub(rest)?];
        let longest = bytes.len().min(pattern.len().saturating_sub(1));
        let parts = (SHORTEST_PART..=longest).rev();
        let mut found = parts.filter(|length| bytes[bytes.len() - length..] == pattern[..*length]);
        found.next().map(|length| rest + length)
    };
    (0..=LONGEST_REST).filter_map(before).max()
}

fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

/// Returns a secret as it is, without line ends, and what is certain of it in base64, wherever it stands there. Base64
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
    forms.push(plain);
    forms
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

/// What an escape stands for.
#[derive(Clone, Copy)]
enum Decoded {
    Byte(u8),
    Char(char),
}

/// A text as another program reads it, without line ends, and from where in the text each byte comes.
#[derive(Default)]
struct View {
    bytes: Vec<u8>,
    places: Vec<Range<usize>>,
}

impl View {
    /// Returns a text as it is.
    fn of(text: &str) -> Self {
        let mut view = Self::default();
        for (at, char) in text.char_indices() {
            let end = at + char.len_utf8();
            text.as_bytes()[at..end].iter().for_each(|byte| view.push(*byte, at..end));
        }
        view
    }

    /// Returns what a decoder makes of this. It is given the bytes from a place on, and returns what they stand for and how
    /// many it has read; `None` if it leaves the first one as it is.
    fn decoded(&self, decode: impl Fn(&[u8]) -> Option<(Decoded, usize)>) -> Self {
        let (mut view, mut at) = (Self::default(), 0);
        while at < self.bytes.len() {
            let rest = &self.bytes[at..];
            let (decoded, length) = decode(rest).unwrap_or((Decoded::Byte(rest[0]), 1));
            let place = self.place(at..at + length);
            match decoded {
                Decoded::Byte(byte) => view.push(byte, place),
                Decoded::Char(char) => {
                    let mut bytes = [0; 4];
                    char.encode_utf8(&mut bytes).bytes().for_each(|byte| view.push(byte, place.clone()));
                }
            }
            at += length;
        }
        view
    }

    fn push(&mut self, byte: u8, place: Range<usize>) {
        if !is_line_end(byte) {
            self.bytes.push(byte);
            self.places.push(place);
        }
    }

    /// Returns the place in the text of bytes of the view; they are not empty.
    fn place(&self, bytes: Range<usize>) -> Range<usize> {
        self.places[bytes.start].start..self.places[bytes.end - 1].end
    }
}

/// Returns a text as it is, as a decoder of URLs reads it, with and without blanks in place of `+` (WHATWG URL, sections
/// 1.3 and 5.1), and as a reader of JSON does (RFC 8259, section 7).
fn views(text: &str) -> Vec<View> {
    let plain = View::of(text);
    let mut views = Vec::new();
    if plain.bytes.contains(&b'%') {
        views.push(plain.decoded(unquoted));
    }
    if plain.bytes.contains(&b'+') {
        let blank = |byte: u8| (byte == b'+').then_some((Decoded::Byte(b' '), 1));
        views.push(plain.decoded(|bytes| blank(bytes[0]).or_else(|| unquoted(bytes))));
    }
    if plain.bytes.contains(&b'\\') {
        views.push(plain.decoded(unescaped));
    }
    views.push(plain);
    views
}

/// Returns what the escapes of a part of a URL stand for; `None` if it has none, or is no text after that.
pub fn unescaped_url(text: &str) -> Option<String> {
    let view = text.contains('%').then(|| View::of(text).decoded(unquoted))?;
    String::from_utf8(view.bytes).ok()
}

/// Reads an escape of a URL; returns its byte and its length.
fn unquoted(bytes: &[u8]) -> Option<(Decoded, usize)> {
    let digit =
        |at: usize| char::from(*bytes.get(at)?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    bytes.starts_with(b"%").then(|| Some((Decoded::Byte(digit(1)? << 4 | digit(2)?), 3))).flatten()
}

/// Reads an escape of JSON; returns its bytes and its length.
fn unescaped(bytes: &[u8]) -> Option<(Decoded, usize)> {
    let rest = bytes.strip_prefix(b"\\")?;
    let one = |byte: u8| Some((Decoded::Byte(byte), 2));
    match rest.first()? {
        byte @ (b'"' | b'\\' | b'/') => one(*byte),
        b'b' => one(8),
        b'f' => one(12),
        b'n' => one(b'\n'),
        b'r' => one(b'\r'),
        b't' => one(b'\t'),
        b'u' => {
            let unit = |at: usize| {
                let digits = std::str::from_utf8(bytes.get(at..at + 6)?).ok()?.strip_prefix("\\u")?;
                u16::from_str_radix(digits, 16).ok()
            };
            let units = [Some(unit(0)?), unit(6)];
            let mut read = char::decode_utf16(units.into_iter().flatten());
            let char = read.next()?.ok()?;
            Some((Decoded::Char(char), 6 * char.len_utf16()))
        }
        _ => None,
    }
}

/// Returns the places of what has the form of a secret.
pub fn in_form(text: &str) -> impl Iterator<Item = Range<usize>> {
    let after = |separator: &'static str| {
        text.match_indices(separator).map(move |(at, _)| (at, at + separator.len()))
    };
    let passwords = after("://").filter_map(|(_, start)| {
        let rest = &text[start..];
        let end = rest.find(|c: char| c.is_whitespace() || "/?#\"'<>`".contains(c)).unwrap_or(rest.len());
        let login = rest[..end].rfind('@')?;
        let colon = rest[..login].find(':')?;
        Some(start + colon + 1..start + login)
    });
    // What stands in a value is removed with it.
    let mut covered = 0;
    let assigned = after("=").filter_map(move |(at, start)| {
        if at < covered {
            return None;
        }
        let head = text[..at].trim_end_matches(['"', '\'']);
        let is_end = |c: char| !c.is_ascii_alphanumeric() && !"-_".contains(c);
        let name = head.rsplit(is_end).next()?.to_ascii_lowercase();
        if !NAMES.iter().any(|ending| name.ends_with(ending)) {
            return None;
        }
        let value = &text[start..];
        let quote = value.chars().next().filter(|c| "\"'".contains(*c));
        let (start, value) = quote.map_or((start, value), |_| (start + 1, &value[1..]));
        let is_end = |c: char| match quote {
            Some(quote) => c == quote,
            None => c.is_whitespace() || "&;,\"'<>)".contains(c),
        };
        covered = start + value.find(is_end).unwrap_or(value.len());
        Some(start..covered)
    });
    passwords.chain(assigned).filter(|range| !range.is_empty())
}

#[cfg(test)]
mod tests;
