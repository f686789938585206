//! Names of objects, relative to the URL of their store.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Longest name of an object, in bytes. A key of S3 has at most 1024 bytes; the rest is for the prefix.
pub const NAME_MAX_BYTES: usize = 900;
/// Longest part of a name, in bytes. Linux allows no longer file name.
const PART_MAX_BYTES: usize = 255;

/// The name of an object: parts of letters, digits and `._+-`, joined by slashes. It is both a path below a directory and a
/// key of S3, and it needs no escapes in a URL but for `+`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ObjectName(String);

/// An object of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedObject {
    pub name: ObjectName,
    /// Its length in bytes.
    pub bytes: u64,
}

/// Why a text is not the name of an object, or why a URL has a part that no name may have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// There is nothing before, between or after slashes.
    #[error("it has an empty part; name each part, as in a/b")]
    EmptyPart,
    /// A part leads elsewhere.
    #[error("a part is {0}, which leads to another directory; write the path without it")]
    Relative(String),
    /// A character is not allowed.
    #[error("it contains {0:?}; letters, digits, '.', '_', '+', '-' and '/' are allowed")]
    Character(char),
    /// A part is too long.
    #[error("a part has {0} bytes; at most {PART_MAX_BYTES} are allowed")]
    LongPart(usize),
    /// The whole is too long.
    #[error("it has {length} bytes; at most {max} are allowed")]
    Long {
        /// Its length in bytes.
        length: usize,
        /// The longest that is allowed, in bytes.
        max: usize,
    },
}

/// Checks that a text consists of parts that names may have, and has at most so many bytes.
pub(super) fn check_parts(text: &str, max: usize) -> Result<(), NameError> {
    if text.len() > max {
        return Err(NameError::Long { length: text.len(), max });
    }
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "._+-/".contains(c);
    if let Some(other) = text.chars().find(|c| !is_allowed(*c)) {
        return Err(NameError::Character(other));
    }
    for part in text.split('/') {
        match part {
            "" => return Err(NameError::EmptyPart),
            "." | ".." => return Err(NameError::Relative(part.to_owned())),
            _ if part.len() > PART_MAX_BYTES => return Err(NameError::LongPart(part.len())),
            _ => {}
        }
    }
    Ok(())
}

impl ObjectName {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the parts of the name: those of its directories, and the last one.
    pub(super) fn parts(&self) -> (impl Iterator<Item = &str>, &str) {
        let (directories, last) = self.0.rsplit_once('/').unwrap_or(("", &self.0));
        (directories.split('/').filter(|part| !part.is_empty()), last)
    }
}

impl FromStr for ObjectName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        check_parts(text, NAME_MAX_BYTES)?;
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for ObjectName {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<ObjectName> for String {
    fn from(name: ObjectName) -> Self {
        name.0
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_path_without_surprises() {
        let check = |text: &str, expected: Result<(), &str>| {
            let found = text.parse::<ObjectName>().map(|name| assert_eq!(name.as_str(), text));
            match (found, expected) {
                (Ok(()), Ok(())) => {}
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{text}: {error}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        };
        check("a", Ok(()));
        check("v1/web-1.example.com/2026_01+x.tar.zst", Ok(()));
        check("...", Ok(()));
        check(&"x".repeat(255), Ok(()));
        check(&"x".repeat(256), Err("a part has 256 bytes; at most 255"));
        check(&"xy/".repeat(300)[..900 - 1], Ok(()));
        check(&"xy/".repeat(301), Err("it has 903 bytes; at most 900"));
        check("", Err("an empty part"));
        check("/a", Err("an empty part"));
        check("a/", Err("an empty part"));
        check("a//b", Err("an empty part"));
        check(".", Err("a part is ."));
        check("a/../b", Err("a part is .."));
        check("a b", Err("' '"));
        check("a%2e", Err("'%'"));
        check("a?b", Err("'?'"));
        check("a\\b", Err("'\\\\'"));
        check("ä", Err("'ä'"));
        check("a\0", Err("'\\0'"));
        check(".upload-1~", Err("'~'"));
    }

    #[test]
    fn the_last_part_is_the_name_in_its_directory() {
        let check = |text: &str, directories: &[&str], last: &str| {
            let name: ObjectName = text.parse().unwrap();
            let (found, of_file) = name.parts();
            assert_eq!((found.collect::<Vec<_>>().as_slice(), of_file), (directories, last));
        };
        check("a", &[], "a");
        check("a/b/c", &["a", "b"], "c");
    }
}
