//! Collects mistakes in merged settings.

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
