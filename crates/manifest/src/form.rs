//! The form of the table of keys: for each key, what is done with it.

use crate::draft::Draft;
use crate::reader::{Field, Reader};
use schema::names::quoted;

/// A mapping with known keys, for example a service or `deploy`.
#[derive(Debug)]
pub(crate) struct Object {
    /// Where it stands, for example `services.*.deploy`. It is empty for the top level.
    pub(crate) path: &'static str,
    pub(crate) keys: &'static [Key],
}

/// A row of the table.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) treatment: Treatment,
}

/// What is done with a key.
#[derive(Debug)]
pub(crate) enum Treatment {
    /// The key is acted on.
    Accepted {
        /// What it does, for the manual.
        what: &'static str,
        merge: Merge,
        read: Read,
    },
    /// The key has no meaning in the Compose Specification.
    NoMeaning(&'static str),
    /// The key is a mistake.
    Refused {
        why: &'static str,
        /// What to write instead.
        right: &'static str,
    },
}

/// How the values of several files are merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Merge {
    /// By the kind of value: mappings are merged, lists are joined, and other values replace each other.
    ByKind,
    /// A mapping, or a list of `NAME=value`. Entries are merged by their names.
    Pairs,
    /// A list of volumes. An entry replaces one with the same target.
    Targets,
}

/// How an accepted key is read.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Read {
    /// By this function, into the service.
    Service(fn(&mut Reader<'_>, &mut Draft, &Field<'_>)),
    /// The key is a mapping with keys of its own, which are parts of the service.
    Object(&'static Object),
    /// The key is a mapping with names that the operator chooses, and each value has these keys.
    Each(&'static Object),
    /// By the code that reads the mapping, before or beside its other keys.
    Apart,
}

/// Makes the row of a key that is acted on.
pub(crate) const fn accepted(name: &'static str, read: Read, what: &'static str) -> Key {
    Key { name, treatment: Treatment::Accepted { what, merge: Merge::ByKind, read } }
}

/// Makes the row of a key that is acted on and that has a rule of its own for several files.
pub(crate) const fn merged(name: &'static str, merge: Merge, read: Read, what: &'static str) -> Key {
    Key { name, treatment: Treatment::Accepted { what, merge, read } }
}

/// Makes the row of a key that is refused.
pub(crate) const fn refused(name: &'static str, why: &'static str, right: &'static str) -> Key {
    Key { name, treatment: Treatment::Refused { why, right } }
}

impl Object {
    pub(crate) fn find(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }
}

/// Returns the accepted entries of a mapping, and reports its other keys.
pub(crate) fn known<'a>(
    reader: &mut Reader<'_>,
    object: &'static Object,
    field: &Field<'a>,
) -> Vec<(&'static Key, Field<'a>)> {
    let mut found = Vec::new();
    for (name, entry) in reader.entries(field) {
        match object.find(name) {
            Some(key) => match &key.treatment {
                Treatment::Accepted { .. } => found.push((key, entry)),
                Treatment::NoMeaning(why) => {
                    reader.report.warning(entry.position, entry.path.as_str(), *why, "remove the line");
                }
                Treatment::Refused { why, right } => {
                    reader.mistake(&entry, format!("`{name}` is refused: {why}"), *right);
                }
            },
            // Compose leaves these names to other programs.
            None if name.starts_with("x-") => {}
            None => {
                let what = format!("the key {} is not known here", quoted(name));
                reader.mistake(&entry, what, proposal(object, name));
            }
        }
    }
    found
}

/// Reads the keys of a service, or of a part of it.
pub(crate) fn read_object(
    reader: &mut Reader<'_>,
    draft: &mut Draft,
    object: &'static Object,
    field: &Field<'_>,
) {
    for (key, entry) in known(reader, object, field) {
        let Treatment::Accepted { read, .. } = &key.treatment else { continue };
        match read {
            Read::Service(read) => read(reader, draft, &entry),
            Read::Object(object) => read_object(reader, draft, object, &entry),
            Read::Each(_) | Read::Apart => {}
        }
    }
}

/// Returns what to write instead of a key that is not known.
fn proposal(object: &Object, name: &str) -> String {
    let near = object.keys.iter().map(|key| (distance(key.name, name), key.name));
    match near.min().filter(|(distance, _)| *distance <= 1 + name.len() / 4) {
        Some((_, nearest)) => format!("did you mean `{nearest}`?"),
        None => {
            let accepted = |key: &&Key| matches!(key.treatment, Treatment::Accepted { .. });
            let names: Vec<&str> = object.keys.iter().filter(accepted).map(|key| key.name).collect();
            if names.is_empty() {
                "remove it".to_owned()
            } else {
                format!("here can stand {}", names.join(", "))
            }
        }
    }
}

/// Returns how many characters have to be added, removed or replaced to make one name of another.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
