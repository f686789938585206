//! A text as other programs read it.

use std::ops::Range;

pub(super) fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

/// What an escape stands for.
#[derive(Clone, Copy)]
enum Decoded {
    Byte(u8),
    Char(char),
    /// It is not seen.
    Nothing,
}

/// A text as another program reads it, without line ends, and from where in the text each byte comes.
#[derive(Default)]
pub(super) struct View {
    pub(super) bytes: Vec<u8>,
    places: Vec<Range<usize>>,
    /// Before which bytes a line ended.
    line_ends: Vec<usize>,
}

impl View {
    /// Returns a text as it is.
    pub(super) fn of(text: &str) -> Self {
        let mut view = Self::default();
        for (at, char) in text.char_indices() {
            let end = at + char.len_utf8();
            text.as_bytes()[at..end].iter().for_each(|byte| view.push(*byte, at..end));
        }
        view
    }

    /// Returns what a decoder makes of this.
    fn decoded(&self, decode: Decode) -> Self {
        let (mut view, mut at) = (Self::default(), 0);
        let mut line_ends = self.line_ends.iter().peekable();
        while at < self.bytes.len() {
            while line_ends.next_if(|end| **end <= at).is_some() {
                view.end_line();
            }
            let rest = &self.bytes[at..];
            let (decoded, length) = decode(rest).unwrap_or((Decoded::Byte(rest[0]), 1));
            let place = self.place(at..at + length);
            match decoded {
                Decoded::Nothing => {}
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

    pub(super) fn push(&mut self, byte: u8, place: Range<usize>) {
        if is_line_end(byte) {
            self.end_line();
        } else {
            self.bytes.push(byte);
            self.places.push(place);
        }
    }

    /// Notes that what follows is in another line.
    pub(super) fn end_line(&mut self) {
        if self.line_ends.last().is_none_or(|end| *end < self.bytes.len()) {
            self.line_ends.push(self.bytes.len());
        }
    }

    /// Returns the lines that are not empty.
    pub(super) fn lines(&self) -> Vec<Range<usize>> {
        let begins = std::iter::once(0).chain(self.line_ends.iter().copied());
        let ends = self.line_ends.iter().copied().chain(std::iter::once(self.bytes.len()));
        begins.zip(ends).map(|(begin, end)| begin..end).filter(|line| !line.is_empty()).collect()
    }

    /// Returns the place in the text of bytes of the view; they are not empty.
    pub(super) fn place(&self, bytes: Range<usize>) -> Range<usize> {
        self.places[bytes.start].start..self.places[bytes.end - 1].end
    }
}

/// Reads what bytes begin with; returns what it stands for and its length. `None` if the first byte stands for itself.
type Decode = fn(&[u8]) -> Option<(Decoded, usize)>;

/// Returns a text as a decoder of URLs reads it, with and without blanks in place of `+` (WHATWG URL, sections 1.3 and 5.1),
/// as a reader of JSON does (RFC 8259, section 7), as a terminal shows it, and as it is. Each is made only when the one before was looked at,
/// because they are much larger than the text.
pub(super) fn views(plain: View) -> impl Iterator<Item = View> {
    let readers: [(u8, Decode); 4] =
        [(b'%', unquoted), (b'+', unquoted_form), (b'\\', unescaped), (ESCAPE, uncoloured)];
    let (mut readers, mut plain) = (readers.into_iter(), Some(plain));
    std::iter::from_fn(move || {
        let view = plain.as_ref()?;
        let reader = readers.find(|(sign, _)| view.bytes.contains(sign));
        reader.map(|(_, decode)| view.decoded(decode)).or_else(|| plain.take())
    })
}

/// Returns what the escapes of a part of a URL stand for; `None` if it has none, or is no text after that.
pub fn unescaped_url(text: &str) -> Option<String> {
    if !text.contains('%') {
        return None;
    }
    let view = View::of(text).decoded(unquoted);
    String::from_utf8(view.bytes).ok()
}

/// Reads an escape of a form, in which a `+` is a blank.
fn unquoted_form(bytes: &[u8]) -> Option<(Decoded, usize)> {
    if bytes.starts_with(b"+") { Some((Decoded::Byte(b' '), 1)) } else { unquoted(bytes) }
}

/// Reads an escape of a URL.
fn unquoted(bytes: &[u8]) -> Option<(Decoded, usize)> {
    let digit =
        |at: usize| char::from(*bytes.get(at)?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    if !bytes.starts_with(b"%") {
        return None;
    }
    Some((Decoded::Byte(digit(1)? << 4 | digit(2)?), 3))
}

/// What a sequence for a terminal begins with.
const ESCAPE: u8 = 0x1b;

/// Reads a sequence by which a program colours what a terminal shows (ECMA-48, sections 5.3 and 5.4).
fn uncoloured(bytes: &[u8]) -> Option<(Decoded, usize)> {
    let rest = bytes.strip_prefix(b"\x1b")?;
    let (begin, is_final): (usize, fn(&u8) -> bool) = match rest.first()? {
        b'[' => (2, |byte| (0x40..0x7f).contains(byte)),
        _ => (1, |byte| (0x30..0x7f).contains(byte)),
    };
    let length =
        bytes.get(begin..)?.iter().position(|byte| is_final(byte) || !(0x20..0x40).contains(byte))?;
    is_final(&bytes[begin + length]).then_some((Decoded::Nothing, begin + length + 1))
}

/// Reads an escape of JSON.
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
