//! Finds what matches a pattern of secrets, also where it is encoded, or split over two lines.

use super::view::{View, views};
use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::DecodePaddingMode::RequireNone;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use regex_lite::Regex;
use std::ops::Range;

/// Length of the shortest text that is decoded from base64, in characters. Shorter ones are words.
const SHORTEST_BASE64: usize = 8;
/// A part of a text in base64 ends anywhere, so its last bits may belong to what follows.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(RequireNone).with_decode_allow_trailing_bits(true),
);

/// Returns the places of what matches one of these patterns in the lines of a text, and in two lines as if they were one.
pub(super) fn matching(patterns: &[Regex], text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    if patterns.is_empty() {
        return found;
    }
    for view in views(View::of(text)) {
        in_view(patterns, &view, &mut found);
        for shift in 0..4 {
            in_view(patterns, &in_base64(&view, shift), &mut found);
        }
    }
    found
}

/// Returns the places of the words at which a text was cut, because they may be parts of what matches a pattern. Such a
/// word may go on in another line.
pub(super) fn cut_words(text: &str, begin: bool, end: bool) -> impl Iterator<Item = Range<usize>> {
    let first = 0..word(text.char_indices().map(|(at, c)| (at + c.len_utf8(), c))).unwrap_or(0);
    let last = word(text.char_indices().rev()).unwrap_or(text.len())..text.len();
    begin.then_some(first).into_iter().chain(end.then_some(last)).filter(|word| !word.is_empty())
}

/// Returns the last place of a word that begins with these characters and may have line ends at one place inside of it;
/// `None` if it has no characters.
fn word(characters: impl Iterator<Item = (usize, char)>) -> Option<usize> {
    let (mut last, mut lines, mut is_at_end) = (None, 0, true);
    for (at, c) in characters {
        let is_line_end = c == '\n' || c == '\r';
        if c.is_whitespace() && !is_line_end || is_line_end && !is_at_end && lines == 1 {
            break;
        }
        if is_line_end {
            lines += usize::from(!is_at_end);
        } else {
            last = Some(at);
        }
        is_at_end = is_line_end;
    }
    last
}

fn in_view(patterns: &[Regex], view: &View, found: &mut Vec<Range<usize>>) {
    let lines = view.lines();
    let pairs = lines.windows(2).map(|pair| pair[0].start..pair[1].end);
    for part in lines.iter().cloned().chain(pairs) {
        let text = readable(&view.bytes[part.clone()]);
        for matching in patterns.iter().flat_map(|pattern| pattern.find_iter(&text)) {
            if !matching.is_empty() {
                found.push(view.place(part.start + matching.start()..part.start + matching.end()));
            }
        }
    }
}

/// Returns bytes as a text of the same length, in which what is no UTF-8 is replaced.
fn readable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|_| text.push('\u{1a}'));
    }
    text
}

/// Returns what a text holds in base64 (RFC 4648, sections 4 and 5), if this many characters before each part of it do not
/// belong to it. Four characters make three bytes, so one of four shifts is right wherever a secret begins.
fn in_base64(encoded: &View, shift: usize) -> View {
    let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/-_".contains(byte);
    let mut view = View::default();
    let mut at = 0;
    for run in encoded.bytes.chunk_by(|one, other| is_base64(one) == is_base64(other)) {
        let begin = at + shift;
        at += run.len();
        if !is_base64(&run[0]) || run.len() < SHORTEST_BASE64 + shift {
            continue;
        }
        let standard = run[shift..].iter().map(|byte| match byte {
            b'-' => b'+',
            b'_' => b'/',
            other => *other,
        });
        let mut standard: Vec<u8> = standard.collect();
        // One character more is less than a byte.
        if standard.len() % 4 == 1 {
            standard.pop();
        }
        let decoded = BASE64.decode(&standard).unwrap_or_default();
        view.end_line();
        for (number, byte) in decoded.into_iter().enumerate() {
            let characters = begin + number * 8 / 6..begin + ((number + 1) * 8).div_ceil(6);
            view.push(byte, encoded.place(characters));
        }
    }
    view
}
