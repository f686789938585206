//! What is wrong in a manifest: the file, the line, the key, and what would be right.

use crate::limits::MISTAKES_MAX;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;

/// A mistake, or something that an operator should know.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Mistake {
    /// The name of the file.
    pub file: String,
    /// The line, counted from 1.
    pub line: usize,
    /// The column, counted from 1.
    pub column: usize,
    /// The path of the key, for example `services.web.deploy.replicas`. It is empty if the form of the file is wrong.
    pub key: String,
    pub what: String,
    /// What would be right.
    pub right: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: ", self.file, self.line, self.column)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        write!(f, "{}; {}", self.what, self.right)
    }
}

impl std::error::Error for Mistake {}

/// The position of a value: the index of its file, the line and the column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Position {
    pub(crate) source: usize,
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// What was found so far, in the order of the files. Names of files are added at the end. Services that extend the same
/// one find its mistakes again, which count once.
#[derive(Debug, Default)]
pub(crate) struct Report {
    mistakes: BTreeSet<Located>,
    warnings: BTreeSet<Located>,
    /// The keys of values that could not be made. What else is wrong with them follows from that.
    broken: BTreeSet<String>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Located {
    position: Position,
    key: String,
    what: String,
    right: String,
}

impl Report {
    /// Adds a mistake because of which a value could not be made. Further mistakes in this value do not count.
    pub(crate) fn broken_value(
        &mut self,
        position: Position,
        key: &str,
        what: impl Into<String>,
        right: impl Into<String>,
    ) {
        self.broken.remove(key);
        self.mistake(position, key, what, right);
        self.broken.insert(key.to_owned());
    }

    /// Adds a mistake.
    pub(crate) fn mistake(
        &mut self,
        position: Position,
        key: impl Into<String>,
        what: impl Into<String>,
        right: impl Into<String>,
    ) {
        let key = key.into();
        if self.broken.contains(&key) {
            return;
        }
        // One more than are reported, so that the last line can say that there are more.
        if self.mistakes.len() <= MISTAKES_MAX {
            self.mistakes.insert(Located { position, key, what: what.into(), right: right.into() });
        }
    }

    /// Adds something that is no mistake and that an operator should know.
    pub(crate) fn warning(
        &mut self,
        position: Position,
        key: impl Into<String>,
        what: impl Into<String>,
        right: impl Into<String>,
    ) {
        if self.warnings.len() < MISTAKES_MAX {
            self.warnings.insert(Located {
                position,
                key: key.into(),
                what: what.into(),
                right: right.into(),
            });
        }
    }

    /// True if there is no mistake so far.
    pub(crate) fn is_clean(&self) -> bool {
        self.mistakes.is_empty()
    }

    /// Returns the mistakes and the warnings, in the order in which they stand in the files.
    pub(crate) fn finish(self, file: impl Fn(usize) -> String) -> (Vec<Mistake>, Vec<Mistake>) {
        let named = |located: BTreeSet<Located>| -> Vec<Mistake> {
            let with_file = |found: Located| Mistake {
                file: file(found.position.source),
                line: found.position.line.max(1),
                column: found.position.column.max(1),
                key: found.key,
                what: found.what,
                right: found.right,
            };
            located.into_iter().map(with_file).collect()
        };
        let (mut mistakes, warnings) = (named(self.mistakes), named(self.warnings));
        if mistakes.len() > MISTAKES_MAX {
            mistakes.truncate(MISTAKES_MAX);
            if let Some(last) = mistakes.last_mut() {
                last.what = format!("{} (there are more mistakes than these {MISTAKES_MAX})", last.what);
            }
        }
        (mistakes, warnings)
    }
}
