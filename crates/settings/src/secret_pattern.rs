//! A pattern of secrets that the settings name.

use crate::error::Problems;
use regex_lite::{Regex, RegexBuilder};
use schema::names::quoted;

/// Largest program of a pattern, in bytes. A search takes a time that grows with it.
const PATTERN_MAX_BYTES: usize = 64 * 1024;

/// A regular expression. What it matches is a secret.
#[derive(Debug, Clone)]
pub struct SecretPattern(Regex);

impl Eq for SecretPattern {}

impl PartialEq for SecretPattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl SecretPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// Returns what is wrong with it.
    fn read(text: &str) -> Result<Self, String> {
        let built = RegexBuilder::new(text).size_limit(PATTERN_MAX_BYTES).build();
        let regex = built.map_err(|error| format!("{} is no regular expression: {error}", quoted(text)))?;
        if regex.is_match("") {
            let pattern = quoted(text);
            return Err(format!(
                "{pattern} matches the empty text too; describe the whole secret, as in \"ghp_[A-Za-z0-9]{{36}}\""
            ));
        }
        Ok(Self(regex))
    }

    /// Reads the patterns of a setting.
    pub(super) fn read_all(setting: &str, texts: &[String], problems: &mut Problems) -> Vec<Self> {
        let mut patterns = Vec::new();
        for (at, text) in texts.iter().enumerate() {
            let read = Self::read(text).map(|pattern| patterns.push(pattern));
            problems.check(format!("{setting}.{at}"), read);
        }
        patterns
    }

    /// Returns the regular expression.
    pub fn regex(&self) -> &Regex {
        &self.0
    }
}
