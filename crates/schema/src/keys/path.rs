//! How the path of a key is read, and shown with placeholders.

use crate::names::{NameError, quoted};
use std::fmt;

/// A key that is unknown or contains an invalid name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The path is unknown to this program.
    #[error("unknown key {0}")]
    Unknown(String),
    /// The path is known, but a name in it is invalid.
    #[error("key {key}")]
    Name {
        key: String,
        /// The rule that the name breaks.
        #[source]
        source: NameError,
    },
}

/// An argument in the path of a key. It takes one segment between slashes, or several.
pub(super) trait Part: Sized {
    /// What stands for the argument in `docs/keys.md`. If there are several, each has a row there.
    const PLACEHOLDERS: &'static [&'static str];

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
    fn read(path: &mut PathReader<'_>) -> Result<Self, Mismatch>;
}

/// Why a path is not that of a row.
pub(super) enum Mismatch {
    /// The path is another one.
    Path,
    /// A name in it is invalid.
    Name(NameError),
}

/// The part of a path that was not read yet.
pub(super) struct PathReader<'a>(&'a str);

impl<'a> PathReader<'a> {
    pub(super) fn new(path: &'a str) -> Self {
        Self(path)
    }

    /// Reads exactly this text.
    pub(super) fn text(&mut self, text: &str) -> Result<(), Mismatch> {
        self.0 = self.0.strip_prefix(text).ok_or(Mismatch::Path)?;
        Ok(())
    }

    pub(super) fn part<T: Part>(&mut self) -> Result<T, Mismatch> {
        T::read(self)
    }

    /// Reads an argument with a function that returns it and what follows.
    pub(super) fn part_with<T>(&mut self, read: fn(&str) -> Option<(T, &str)>) -> Result<T, Mismatch> {
        let (part, rest) = read(self.0).ok_or(Mismatch::Path)?;
        self.0 = rest;
        Ok(part)
    }

    /// Reads everything up to the next slash, or to the end.
    pub(super) fn segment(&mut self) -> &'a str {
        let (segment, rest) = self.0.split_at(self.0.find('/').unwrap_or(self.0.len()));
        self.0 = rest;
        segment
    }

    /// Returns what was not read.
    pub(super) fn rest(self) -> &'a str {
        self.0
    }

    /// Checks that everything was read.
    pub(super) fn end(self) -> Result<(), Mismatch> {
        if self.0.is_empty() { Ok(()) } else { Err(Mismatch::Path) }
    }
}

/// Tries rows on the path of a key.
pub(super) struct Parser<'a> {
    path: &'a str,
    /// The first name that is invalid, in a row that matches otherwise.
    invalid: Option<NameError>,
}

impl<'a> Parser<'a> {
    pub(super) fn new(path: &'a str) -> Self {
        Self { path, invalid: None }
    }

    /// Returns the key if the path begins with this text, and `parse` reads what follows.
    // Without a call most rows cost the comparison of a few bytes.
    #[inline(always)]
    pub(super) fn row<K>(
        &mut self,
        start: &str,
        parse: fn(PathReader<'a>) -> Result<K, Mismatch>,
    ) -> Option<K> {
        match parse(PathReader(self.path.strip_prefix(start)?)) {
            Ok(key) => return Some(key),
            Err(Mismatch::Path) => {}
            Err(Mismatch::Name(error)) => self.invalid = self.invalid.take().or(Some(error)),
        }
        None
    }

    /// Returns why no row matches.
    pub(super) fn error(self) -> KeyError {
        let key = quoted(self.path);
        match self.invalid {
            Some(source) => KeyError::Name { key, source },
            None => KeyError::Unknown(key),
        }
    }
}

/// The path of a key with placeholders for its arguments; several paths, if one of them has several placeholders.
pub(super) struct Placeholders(Vec<String>);

impl Placeholders {
    pub(super) fn new(start: &str) -> Self {
        Self(vec![start.to_owned()])
    }

    pub(super) fn text(self, text: &str) -> Self {
        Self(self.0.into_iter().map(|path| path + text).collect())
    }

    /// Adds an argument. Only its type counts.
    pub(super) fn part<T: Part>(self, _: &Option<T>) -> Self {
        let with = |path: String| T::PLACEHOLDERS.iter().map(move |name| format!("{path}{name}"));
        Self(self.0.into_iter().flat_map(with).collect())
    }

    pub(super) fn paths(self) -> Vec<String> {
        self.0
    }
}
