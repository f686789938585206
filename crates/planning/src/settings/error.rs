//! Mistakes in settings, and where they are.

use catalog::mistakes::Mistake;

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

    pub(crate) fn in_file(file: &str, mistake: Mistake) -> Self {
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

/// Collects what is wrong in merged settings. A setting is named by its path, such as
/// `apply.0.command`, by which its file and line are found.
#[derive(Debug)]
pub(super) struct Problems {
    /// True if a table could not be read. What refers to it is not judged.
    pub lost_tables: bool,
    found: Vec<(String, String)>,
}

impl Problems {
    pub(super) fn new(lost_tables: bool) -> Self {
        Self { lost_tables, found: Vec::new() }
    }

    pub(super) fn add(&mut self, setting: impl Into<String>, message: impl Into<String>) {
        self.found.push((setting.into(), message.into()));
    }

    /// Adds the error, if it is one.
    pub(super) fn check(&mut self, setting: impl Into<String>, result: Result<(), String>) {
        if let Err(message) = result {
            self.add(setting, message);
        }
    }

    pub(super) fn into_found(self) -> Vec<(String, String)> {
        self.found
    }
}

/// Returns the name of the setting of a path such as `apply.0.command`: without the numbers of
/// entries, which the line tells.
pub fn name_of(path: &str) -> String {
    let is_number = |part: &&str| part.bytes().all(|b| b.is_ascii_digit());
    path.split('.').filter(|part| !is_number(part)).collect::<Vec<_>>().join(".")
}
