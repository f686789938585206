//! Mistakes in settings, and where they are.

use catalog::text::{line_at, with_nearest};

/// A mistake in a settings file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}{}: {message}", .line.map(|n| format!(":{n}")).unwrap_or_default())]
pub struct SettingsError {
    /// The name of the file. It names all files if the mistake belongs to the merged settings.
    pub file: String,
    /// The line, from 1, if it is known.
    pub line: Option<usize>,
    /// What is wrong, and what would be right if that is known.
    pub message: String,
}

pub(crate) fn settings_error(file: &str, text: &str, error: &toml::de::Error) -> SettingsError {
    let line = error.span().map(|span| line_at(text, span.start));
    SettingsError { file: file.to_owned(), line, message: with_nearest(error.message()) }
}
