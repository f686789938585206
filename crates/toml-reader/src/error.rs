//! Mistakes, each with the file that it is in.

use crate::document::Mistake;

/// A mistake in a settings file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{file}{}: {}{message}",
    .line.map(|n| format!(":{n}")).unwrap_or_default(),
    if .setting.is_empty() { String::new() } else { format!("{setting}: ") }
)]
pub struct SettingsError {
    /// The name of the file. It names all files if the mistake belongs to the merged settings.
    pub file: String,
    /// The line, from 1, if it is known.
    pub line: Option<usize>,
    /// The name of the setting, for example `store.endpoints`; empty if it is not one setting.
    pub setting: String,
    /// What is wrong, and what would be right if that is known.
    pub message: String,
}

impl SettingsError {
    /// Creates a mistake of a whole file.
    pub fn of_file(file: &str, message: String) -> Self {
        Self { file: file.to_owned(), line: None, setting: String::new(), message }
    }

    /// Creates the error of a mistake that was found in this file.
    pub fn in_file(file: &str, mistake: Mistake) -> Self {
        let Mistake { line, setting, message } = mistake;
        Self { file: file.to_owned(), line, setting, message }
    }
}

/// All mistakes in settings, in the order of the files and lines. As a text they are on one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct SettingsErrors(pub Vec<SettingsError>);

impl From<SettingsError> for SettingsErrors {
    fn from(error: SettingsError) -> Self {
        Self(vec![error])
    }
}
