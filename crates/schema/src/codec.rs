//! Values of the store as bytes: JSON with a format version, and the plain text of the original
//! tool.

use crate::names::{NameError, Version, quoted};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The format version that this program writes.
pub const FORMAT: u32 = 1;

/// The first bytes of every value that this program writes.
const FRONT: &str = r#"{"format":1,"#;

/// Largest part of a step's output in a report, in bytes.
pub const LOG_TAIL_MAX_BYTES: usize = 4 * 1024;

/// A value that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// The value is not UTF-8 text.
    #[error("the value is not UTF-8")]
    NotText,
    /// The value is not the JSON that belongs under its key.
    #[error("the value {shown} is not the expected JSON: {detail}")]
    NotJson {
        /// The value, quoted and cut.
        shown: String,
        /// The error of the JSON parser.
        detail: String,
    },
    /// The value was written by a newer program.
    #[error("the value has format {found}, this program reads up to {FORMAT}")]
    Newer {
        /// The format version of the value.
        found: u32,
    },
}

/// Reads a value of the store.
///
/// # Errors
/// Returns an error if the value is not UTF-8, is not the expected JSON, or has a newer format.
pub fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ValueError> {
    read_up_to(bytes, FORMAT).map(|(_, value)| value)
}

/// Reads a value whose format is at most `newest`. Returns the format too.
///
/// # Errors
/// Returns the errors of [`read`].
pub(crate) fn read_up_to<T: DeserializeOwned>(bytes: &[u8], newest: u32) -> Result<(u32, T), ValueError> {
    #[derive(Deserialize)]
    struct Envelope {
        #[serde(default = "first_format")]
        format: u32,
    }
    let text = std::str::from_utf8(bytes).map_err(|_| ValueError::NotText)?;
    let not_json = |e: serde_json::Error| ValueError::NotJson { shown: quoted(text), detail: e.to_string() };
    // serde would accept a list as a struct whose fields come in order.
    if !text.trim_start().starts_with('{') {
        return Err(ValueError::NotJson { shown: quoted(text), detail: "not an object".into() });
    }
    // A value that begins as this program writes it has a known format, so the format need not be
    // parsed separately.
    let mut format = FORMAT;
    if !text.starts_with(FRONT) {
        let envelope: Envelope = serde_json::from_str(text).map_err(not_json)?;
        if envelope.format > newest {
            return Err(ValueError::Newer { found: envelope.format });
        }
        format = envelope.format;
    }
    Ok((format, serde_json::from_str(text).map_err(not_json)?))
}

/// Reads a value that begins as this program writes it, and borrows from it. Returns `None` if the
/// value begins differently or cannot be parsed in this way; [`read`] finds out what is wrong with
/// it, if anything.
pub(crate) fn read_own<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    let text = std::str::from_utf8(bytes).ok()?;
    if text.starts_with(FRONT) { serde_json::from_str(text).ok() } else { None }
}

fn first_format() -> u32 {
    FORMAT
}

/// Returns a value of the store as one line of JSON, with its format version first.
pub fn write<T: Serialize>(value: &T) -> String {
    write_as(FORMAT, value)
}

/// Writes a value as [`write()`] does, with this format version.
pub(crate) fn write_as<T: Serialize>(format: u32, value: &T) -> String {
    serde_json::to_string(&Envelope { format, value })
        .unwrap_or_else(|e| unreachable!("values of the store have text keys and finite numbers: {e}"))
}

/// Writes a value as [`write()`] does, for values that are too large to keep as text in memory.
///
/// # Errors
/// Returns the error of the writer.
pub fn write_to<T: Serialize>(value: &T, writer: impl std::io::Write) -> std::io::Result<()> {
    Ok(serde_json::to_writer(writer, &Envelope { format: FORMAT, value })?)
}

#[derive(Serialize)]
struct Envelope<'a, T> {
    format: u32,
    #[serde(flatten)]
    value: &'a T,
}

/// Why the text of a version cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VersionError {
    #[error("the value is not UTF-8")]
    NotText,
    #[error(transparent)]
    Name(#[from] NameError),
}

/// Reads the text of `/current_version`. Surrounding white space is stripped, because
/// `echo 43 | etcdctl put /current_version` stores the newline.
///
/// # Errors
/// Returns the rule that the text breaks.
pub fn read_version(bytes: &[u8]) -> Result<Version, VersionError> {
    let text = std::str::from_utf8(bytes).map_err(|_| VersionError::NotText)?;
    Ok(Version::new(text.trim())?)
}

/// Cuts text to at most `max` bytes at a character boundary, and marks the cut.
pub fn cut(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let mut end = max.saturating_sub('…'.len_utf8());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &text[..end])
}

/// Returns the last lines that fit into [`LOG_TAIL_MAX_BYTES`], with control characters replaced.
pub fn log_tail<'a>(lines: impl DoubleEndedIterator<Item = &'a str>) -> Vec<String> {
    let mut kept = Vec::new();
    let mut bytes = 0;
    for line in lines.rev() {
        let escaped: String =
            line.chars().map(|c| if c.is_control() && c != '\t' { '�' } else { c }).collect();
        let line = cut(&escaped, 512);
        // Each line costs two quotes and a comma, and one more byte for each character that JSON
        // escapes.
        bytes += line.len() + 3 + line.matches(['"', '\\', '\t']).count();
        if bytes > LOG_TAIL_MAX_BYTES {
            break;
        }
        kept.push(line);
    }
    kept.reverse();
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Token;
    use crate::records::{RosterEntry, StoreIdentity};
    use proptest::prelude::*;

    #[test]
    fn values_carry_their_format_and_tolerate_more_than_they_know() {
        let identity = StoreIdentity::new(Token::new("abc").unwrap(), 3);
        let text = write(&identity);
        assert_eq!(text, r#"{"format":1,"lineage":"abc","epoch":3}"#);
        assert_eq!(read::<StoreIdentity>(text.as_bytes()).unwrap(), identity);
        let more = br#"{"format":1,"lineage":"abc","epoch":3,"colour":"red"}"#;
        assert_eq!(read::<StoreIdentity>(more).unwrap(), identity);
        let newer = read::<StoreIdentity>(br#"{"format":2,"lineage":"abc","epoch":3}"#).unwrap_err();
        assert_eq!(newer, ValueError::Newer { found: 2 });
        read::<RosterEntry>(b"[]").unwrap_err();
        for bad in [&b""[..], b"\xff", b"3", b"null", br#"{"format":1}"#, br#"{"lineage":3}"#] {
            read::<StoreIdentity>(bad).unwrap_err();
        }
    }

    #[test]
    fn a_trailing_newline_is_no_part_of_a_version() {
        assert_eq!(read_version(b" v43\n").unwrap().as_str(), "v43");
        for bad in [&b""[..], b"\n", b"a b", b"../x", b"\xff\xfe", b"a\0"] {
            read_version(bad).unwrap_err();
        }
    }

    proptest! {
        #[test]
        fn a_log_tail_fits_its_bound(lines in prop::collection::vec(".{0,700}", 0..40)) {
            let tail = log_tail(lines.iter().map(String::as_str));
            prop_assert!(serde_json::to_string(&tail).unwrap().len() <= LOG_TAIL_MAX_BYTES + 2);
            let has_control = tail.iter().any(|l| l.chars().any(|c| c.is_control() && c != '\t'));
            prop_assert!(!has_control);
        }

        #[test]
        fn cut_text_fits(text in ".{0,400}", max in 3usize..300) {
            prop_assert!(cut(&text, max).len() <= max);
        }
    }
}
