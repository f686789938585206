//! What a manifest is read from.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Source {
    /// The name of the file, as the operator wrote it. Mistakes name it, and `extends.file` is relative to it.
    pub name: String,
    pub text: String,
}

impl Source {
    /// Returns a source with this name and text.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: name.into(), text: text.into() }
    }
}

/// Everything that decides what a manifest says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Input {
    /// The files to merge. A later file overrides an earlier one.
    pub sources: Vec<Source>,
    /// Files that only `extends.file` refers to. Their other services are not part of the manifest.
    pub extended: Vec<Source>,
    /// The name of the group. It overrides `name` of the files.
    pub name: Option<String>,
    /// The active profiles. `*` stands for all.
    pub profiles: BTreeSet<String>,
    /// The variables that the files can refer to.
    pub environment: BTreeMap<String, String>,
}

impl Input {
    /// Returns the input of one file without profiles and variables.
    pub fn of(text: impl Into<String>) -> Self {
        Self { sources: vec![Source::new("compose.yaml", text)], ..Self::default() }
    }

    /// Returns the file with this index. The files that are only extended come after the others.
    pub(crate) fn source(&self, index: usize) -> Option<&Source> {
        self.sources.iter().chain(&self.extended).nth(index)
    }

    /// Returns the index of the file that `extends.file` of another file means.
    pub(crate) fn find(&self, from: usize, file: &str) -> Option<usize> {
        let wanted = self.resolve(from, file);
        self.sources.iter().chain(&self.extended).position(|source| simplified(&source.name) == wanted)
    }

    /// Returns the name of the file that `extends.file` of another file means.
    pub(crate) fn resolve(&self, from: usize, file: &str) -> String {
        let from = self.source(from).map_or("", |source| source.name.as_str());
        match from.rsplit_once('/') {
            Some((directory, _)) if !file.starts_with('/') => simplified(&format!("{directory}/{file}")),
            Some(_) | None => simplified(file),
        }
    }
}

/// Returns a path without `.` and without `directory/..`.
fn simplified(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
        let goes_up = part == ".." && parts.last().is_some_and(|last| *last != "..");
        if goes_up {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    let root = if path.starts_with('/') { "/" } else { "" };
    format!("{root}{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_found_relative_to_the_one_that_refers_to_it() {
        for (from, file, expected) in [
            ("compose.yaml", "base.yaml", "base.yaml"),
            ("./compose.yaml", "./base.yaml", "base.yaml"),
            ("shop/compose.yaml", "base.yaml", "shop/base.yaml"),
            ("shop/compose.yaml", "../base.yaml", "base.yaml"),
            ("compose.yaml", "../base.yaml", "../base.yaml"),
            ("/srv/shop/compose.yaml", "x/../base.yaml", "/srv/shop/base.yaml"),
            ("shop/compose.yaml", "/srv/base.yaml", "/srv/base.yaml"),
        ] {
            let input = Input { sources: vec![Source::new(from, "")], ..Input::default() };
            assert_eq!(input.resolve(0, file), expected, "{from} {file}");
        }
    }
}
