//! The validation directory: which of its entries validate, and why the others do not.

use planning::host::{Leftovers, Step};
use schema::names::StepName;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// The kind of an entry of the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file that somebody may execute.
    Executable,
    /// A regular file that nobody may execute.
    Plain,
    /// Anything that is not a regular file, for example a directory or a broken link.
    Other,
}

impl EntryKind {
    /// Returns the kind for the result of `stat`, with links followed.
    pub fn of(is_file: bool, mode: u32) -> Self {
        match (is_file, mode & 0o111) {
            (false, _) => Self::Other,
            (true, 0) => Self::Plain,
            (true, _) => Self::Executable,
        }
    }
}

/// An entry that does not validate.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Skipped {
    /// The file name of the entry.
    pub name: String,
    /// Why the entry does not validate.
    pub why: &'static str,
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.why)
    }
}

/// The content of the validation directory when it was read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ValidationDirectory {
    /// The entries that validate, in the order of their names.
    steps: Vec<Step>,
    /// The entries that do not validate.
    pub skipped: Vec<Skipped>,
    /// Why the directory as a whole can only fail, if so.
    pub problem: Option<String>,
}

/// Ends of the names of backup files that editors and package managers leave behind.
const BACKUP_ENDS: [&str; 5] = ["~", ".bak", ".orig", ".rpmsave", ".swp"];
/// Part of the names of backup files that dpkg leaves behind, like `NAME.dpkg-old`.
const BACKUP_PART: &str = ".dpkg-";

impl ValidationDirectory {
    /// Takes the entries of the directory. The name of an entry is `None` if it is not UTF-8.
    pub fn new(
        directory: &Path,
        entries: impl IntoIterator<Item = (Option<String>, EntryKind)>,
        timeout: Duration,
    ) -> Self {
        let mut read = Self::default();
        let mut entries: Vec<(Option<String>, EntryKind)> = entries.into_iter().collect();
        entries.sort_by(|(a, _), (b, _)| a.cmp(b));
        let mut names = BTreeSet::new();
        for (name, kind) in entries {
            let Some(name) = name else {
                read.problem = Some(format!(
                    "the validation directory {} contains a file whose name is not UTF-8",
                    directory.display()
                ));
                continue;
            };
            if let Some(why) = why_skipped(&name, kind) {
                read.skipped.push(Skipped { name, why });
                continue;
            }
            let command = directory.join(&name).to_string_lossy().into_owned();
            read.steps.push(step(step_name(&name, &mut names), command, timeout));
        }
        if read.steps.is_empty() && read.problem.is_none() {
            read.problem =
                Some(format!("the validation directory {} contains no executable file", directory.display()));
        }
        read
    }

    /// Creates the value for a directory that cannot be read.
    pub fn unreadable(directory: &Path, error: &str) -> Self {
        let message = format!("the validation directory {} cannot be read: {error}", directory.display());
        Self { problem: Some(message), ..Self::default() }
    }

    /// Returns the steps. A problem of the directory adds one that can only fail.
    pub fn steps(&self) -> Vec<Step> {
        let failing = |why: &String| Step {
            cannot_run: Some(why.clone()),
            ..step(StepName::directory(), String::new(), Duration::from_secs(1))
        };
        self.steps.iter().cloned().chain(self.problem.iter().map(failing)).collect()
    }
}

fn why_skipped(name: &str, kind: EntryKind) -> Option<&'static str> {
    if kind == EntryKind::Other {
        return Some("not a regular file");
    }
    if name.starts_with('.') {
        return Some("hidden");
    }
    let is_autosave = name.starts_with('#') && name.ends_with('#');
    if is_autosave || name.contains(BACKUP_PART) || BACKUP_ENDS.iter().any(|end| name.ends_with(end)) {
        return Some("a backup");
    }
    (kind == EntryKind::Plain).then_some("not executable")
}

/// Returns the step name for a file name: characters that a step name cannot contain become `-`,
/// and a number keeps the names unique.
fn step_name(name: &str, taken: &mut BTreeSet<StepName>) -> StepName {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._+~:-".contains(c);
    let text: String = name.chars().map(|c| if allowed(c) { c } else { '-' }).collect();
    let text = text.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    let text = if text.is_empty() { "file" } else { &text[..text.len().min(100)] };
    let names = std::iter::once(text.to_owned()).chain((2u32..).map(|number| format!("{text}-{number}")));
    let mut free = names.filter_map(|name| StepName::new(&name).ok()).filter(|name| !taken.contains(name));
    let found = free.next().unwrap_or_else(StepName::directory);
    taken.insert(found.clone());
    found
}

fn step(name: StepName, command: String, timeout: Duration) -> Step {
    Step {
        name,
        command: vec![command],
        timeout,
        grace: Duration::from_secs(10),
        done_codes: vec![0],
        not_yet_codes: vec![75],
        leftovers: Leftovers::Kill,
        cannot_run: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use EntryKind::{Executable, Other, Plain};

    fn read(entries: &[(&str, EntryKind)]) -> ValidationDirectory {
        let entries = entries.iter().map(|(name, kind)| (Some((*name).to_owned()), *kind));
        ValidationDirectory::new("/v".as_ref(), entries, Duration::from_secs(1))
    }

    fn commands(directory: &ValidationDirectory) -> Vec<String> {
        directory.steps().into_iter().map(|step| step.command[0].clone()).collect()
    }

    #[test]
    fn every_executable_file_counts_but_hidden_ones_and_backups() {
        let check = |name: &str, kind, expected: Option<&str>| {
            let directory = read(&[("10-first", Executable), (name, kind)]);
            let skipped = directory.skipped.first().map(|skipped| skipped.why);
            assert_eq!(skipped, expected, "{name}");
            let runs = commands(&directory);
            assert_eq!(runs.contains(&format!("/v/{name}")), expected.is_none(), "{name}: {runs:?}");
        };
        for counts in ["keystone.sh", "disk", "A_b", "_x", "a b", "ä", "x.py", "a+b", "orig", "dpkg-x"] {
            check(counts, Executable, None);
        }
        for backup in ["a~", "a.bak", "a.dpkg-old", "a.dpkg-dist", "a.orig", "a.rpmsave", "a.swp", "#a#"] {
            check(backup, Executable, Some("a backup"));
        }
        check(".hidden", Executable, Some("hidden"));
        check("README", Plain, Some("not executable"));
        check("lib", Other, Some("not a regular file"));
    }

    #[test]
    fn names_of_steps_are_valid_and_stay_apart() {
        let directory =
            read(&[("a b", Executable), ("a-b", Executable), ("-", Executable), ("_", Executable)]);
        let names: Vec<String> = directory.steps().iter().map(|step| step.name.to_string()).collect();
        assert_eq!(names, ["file", "file-2", "a-b", "a-b-2"]);
    }

    #[test]
    fn a_directory_with_nothing_to_run_fails_and_says_so() {
        for entries in [&[][..], &[("README", Plain), (".x", Executable)]] {
            let steps = read(entries).steps();
            assert_eq!(steps.len(), 1);
            assert_eq!(
                steps[0].cannot_run.as_deref(),
                Some("the validation directory /v contains no executable file")
            );
        }
        let unreadable = ValidationDirectory::unreadable("/v".as_ref(), "no such file");
        let why = unreadable.steps()[0].cannot_run.clone();
        assert_eq!(why.as_deref(), Some("the validation directory /v cannot be read: no such file"));
        let not_text = ValidationDirectory::new("/v".as_ref(), [(None, Executable)], Duration::ZERO);
        assert!(not_text.steps()[0].cannot_run.is_some());
    }
}
