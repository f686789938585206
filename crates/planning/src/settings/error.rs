//! What is wrong with settings, and where.

use catalog::text::{line_at, with_nearest};

/// A mistake in a settings file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}{}: {message}", .line.map(|n| format!(":{n}")).unwrap_or_default())]
pub struct SettingsError {
    /// The file.
    pub file: String,
    /// The line, from 1, if one can be named.
    pub line: Option<usize>,
    /// What is wrong, and what would be right.
    pub message: String,
}

pub(super) fn settings_error(file: &str, text: &str, error: &toml::de::Error) -> SettingsError {
    let line = error.span().map(|span| line_at(text, span.start));
    SettingsError { file: file.to_owned(), line, message: with_nearest(error.message()) }
}
