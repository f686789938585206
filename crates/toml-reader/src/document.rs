//! Reads TOML that people write, and finds every mistake in it, each with its line and its setting.
//!
//! serde ends at the first mistake. Therefore what is wrong is taken out of the document, and the
//! rest is read again.

use crate::text::line_at;
use crate::words::{in_plain_words, missing_setting, unknown_setting};
use serde::de::DeserializeOwned;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue, Deserializer, Error};

/// Number of mistakes after which a file is read no further. More help nobody, and each costs a
/// pass over the file.
const MISTAKES_MAX: usize = 50;

/// A mistake in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The line, counted from 1, if it is known.
    pub line: Option<usize>,
    /// The name of the setting, for example `store.endpoints`. It is empty if no setting is wrong,
    /// but the form of the file.
    pub setting: String,
    /// What is wrong, and what would be right.
    pub message: String,
}

/// What could be read of a file.
#[derive(Debug)]
pub struct Document<'a, T> {
    /// The file without its mistakes, as the value and as the table with positions. `None` if the
    /// text is not TOML, or if it has too many mistakes.
    pub content: Option<(T, Spanned<DeTable<'a>>)>,
    /// The mistakes, in the order in which they stand in the file.
    pub mistakes: Vec<Mistake>,
    /// True if a whole table is missing in the content. What refers to it would look wrong.
    pub lost_tables: bool,
}

/// A step on the way to a value.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Key(String),
    Index(usize),
}

/// Reads a file as far as it is right.
pub fn read<T: DeserializeOwned>(text: &str) -> Document<'_, T> {
    let mut document = Document { content: None, mistakes: Vec::new(), lost_tables: false };
    let mut table = match DeTable::parse(text) {
        Ok(table) => table,
        Err(error) => {
            document.lost_tables = true;
            document.mistakes.push(not_toml(text, &error));
            return document;
        }
    };
    // The keys that were taken out, each with the position of its table.
    let mut taken: Vec<(Range<usize>, String)> = Vec::new();
    while document.mistakes.len() < MISTAKES_MAX {
        if let Some((line, path)) = first_date(text, table.get_ref()) {
            let message = "no setting is a date; write it in quotes".to_owned();
            document.mistakes.push(Mistake { line: Some(line), setting: name(&path), message });
            match take_out(table.get_mut(), &path) {
                Some((of, key, _)) => taken.extend(of.zip(key)),
                None => break,
            }
            continue;
        }
        let error = match T::deserialize(Deserializer::from(table.clone())) {
            Ok(content) => {
                document.content = Some((content, table));
                break;
            }
            Err(error) => error,
        };
        let path = error.span().map(|span| find(table.get_ref(), &span)).unwrap_or_default();
        let is_known_to_miss = missing_setting(error.message()).is_some_and(|name| {
            taken.iter().any(|(of, key)| Some(of) == error.span().as_ref() && *key == name)
        });
        // A required setting that was taken out is missing now, which is no mistake of its own.
        if !is_known_to_miss {
            document.mistakes.push(mistake(text, &error, table.get_ref(), &path));
        }
        match take_out(table.get_mut(), &path) {
            Some((of, key, value)) => {
                document.lost_tables |= value.get_ref().is_table() || value.get_ref().is_array();
                taken.extend(of.zip(key));
            }
            // The mistake has no place, so that nothing can be taken out.
            None => break,
        }
    }
    document.lost_tables |= document.content.is_none();
    document.mistakes.sort_by_key(|mistake| mistake.line);
    document
}

/// Returns the line of the deepest part of a path such as `service.0.port` that is in the table.
pub fn line_of(text: &str, table: &DeTable<'_>, path: &str) -> Option<usize> {
    let mut parts = path.split('.');
    let (key, value) = table.get_key_value(parts.next()?)?;
    let (mut line, mut value) = (key.span().start, value);
    for part in parts {
        let below = match value.get_ref() {
            DeValue::Table(table) => table.get_key_value(part).map(|(key, value)| (key.span().start, value)),
            DeValue::Array(array) => {
                let entry = part.parse().ok().and_then(|index: usize| array.get(index));
                entry.map(|value| (value.span().start, value))
            }
            _ => None,
        };
        let Some(below) = below else { break };
        (line, value) = below;
    }
    Some(line_at(text, line))
}

fn not_toml(text: &str, error: &Error) -> Mistake {
    let line = error.span().map(|span| line_at(text, span.start));
    let what = error.message().lines().collect::<Vec<_>>().join(", ");
    Mistake { line, setting: String::new(), message: format!("this is not TOML: {what}") }
}

fn mistake(text: &str, error: &Error, table: &DeTable<'_>, path: &[Part]) -> Mistake {
    let line = error.span().map(|span| line_at(text, span.start));
    if let Some(message) = unknown_setting(error.message()) {
        return Mistake { line, setting: String::new(), message };
    }
    let message = in_plain_words(error.message(), value_at(table, path).map(Spanned::get_ref));
    Mistake { line, setting: name(path), message }
}

/// Returns the name of a setting. The line says which entry of a list is meant.
fn name(path: &[Part]) -> String {
    let keys = path.iter().filter_map(|part| match part {
        Part::Key(key) => Some(key.as_str()),
        Part::Index(_) => None,
    });
    keys.collect::<Vec<_>>().join(".")
}

/// Returns the way to the smallest key or value that contains this position; empty if none does.
fn find(table: &DeTable<'_>, position: &Range<usize>) -> Vec<Part> {
    let mut smallest = (usize::MAX, Vec::new());
    visit_table(table, &mut Vec::new(), &mut |span, path| {
        let contains = span.start <= position.start && position.end <= span.end;
        // Of two that are equally small, the inner one comes later.
        if contains && span.len() <= smallest.0 {
            smallest = (span.len(), path.to_vec());
        }
    });
    smallest.1
}

/// Returns the line of a date and the way to it. A date would be read as a table with a strange key.
fn first_date(text: &str, table: &DeTable<'_>) -> Option<(usize, Vec<Part>)> {
    let mut first = None;
    visit_table(table, &mut Vec::new(), &mut |span, path| {
        let is_date = first.is_none() && value_at(table, path).is_some_and(|v| v.get_ref().is_datetime());
        if is_date {
            first = Some((line_at(text, span.start), path.to_vec()));
        }
    });
    first
}

fn visit_table(table: &DeTable<'_>, path: &mut Vec<Part>, visit: &mut impl FnMut(&Range<usize>, &[Part])) {
    for (key, value) in table {
        path.push(Part::Key(key.get_ref().clone().into_owned()));
        visit(&key.span(), path);
        visit_value(value, path, visit);
        path.pop();
    }
}

fn visit_value(
    value: &Spanned<DeValue<'_>>,
    path: &mut Vec<Part>,
    visit: &mut impl FnMut(&Range<usize>, &[Part]),
) {
    visit(&value.span(), path);
    match value.get_ref() {
        DeValue::Table(table) => visit_table(table, path, visit),
        DeValue::Array(array) => {
            for (index, value) in array.iter().enumerate() {
                path.push(Part::Index(index));
                visit_value(value, path, visit);
                path.pop();
            }
        }
        _ => {}
    }
}

fn value_at<'a, 'i>(table: &'a DeTable<'i>, path: &[Part]) -> Option<&'a Spanned<DeValue<'i>>> {
    let (Part::Key(first), rest) = path.split_first()? else { return None };
    rest.iter().try_fold(table.get(first.as_str())?, |value, part| match (value.get_ref(), part) {
        (DeValue::Table(table), Part::Key(key)) => table.get(key.as_str()),
        (DeValue::Array(array), Part::Index(index)) => array.get(*index),
        _ => None,
    })
}

/// Takes a value out. Returns the position of its table and its key, if it was in a table with a
/// position, and the value.
#[allow(clippy::type_complexity, reason = "used once, where its parts are named")]
fn take_out<'i>(
    table: &mut DeTable<'i>,
    path: &[Part],
) -> Option<(Option<Range<usize>>, Option<String>, Spanned<DeValue<'i>>)> {
    let (last, parent) = path.split_last()?;
    let Part::Key(first) = path.first()? else { return None };
    if parent.is_empty() {
        return Some((None, None, table.remove(first.as_str())?));
    }
    let mut value = table.get_mut(first.as_str())?;
    for part in &parent[1..] {
        value = match (value.get_mut(), part) {
            (DeValue::Table(table), Part::Key(key)) => table.get_mut(key.as_str())?,
            (DeValue::Array(array), Part::Index(index)) => array.get_mut(*index)?,
            _ => return None,
        };
    }
    let span = value.span();
    match (value.get_mut(), last) {
        (DeValue::Table(table), Part::Key(key)) => {
            Some((Some(span), Some(key.clone()), table.remove(key.as_str())?))
        }
        (DeValue::Array(array), Part::Index(index)) if *index < array.len() => {
            // A list has no way to remove an element, so it is built again.
            let mut old = std::mem::replace(array, DeArray::new()).into_iter();
            let kept: Vec<_> = old.by_ref().take(*index).collect();
            let removed = old.next()?;
            *array = kept.into_iter().chain(old).collect();
            Some((None, None, removed))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::time::Span;
    use serde::Deserialize;
    use std::collections::BTreeMap;

    #[derive(Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct File {
        number: Option<u16>,
        texts: Vec<String>,
        part: BTreeMap<String, Span>,
        entry: Vec<Entry>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Entry {
        name: String,
        #[serde(rename = "every")]
        _every: Option<Span>,
    }

    /// Checks the mistakes, each as `line setting: message`, and the names of the entries that are
    /// left.
    fn check(text: &str, expected: &[&str], entries: &[&str]) {
        let document = read::<File>(text);
        let shown = document.mistakes.iter().map(|m| {
            format!("{} {}: {}", m.line.map(|n| n.to_string()).unwrap_or_default(), m.setting, m.message)
        });
        assert_eq!(shown.collect::<Vec<_>>(), expected, "{text}");
        let left = document.content.map(|(file, _)| file.entry).unwrap_or_default();
        assert_eq!(left.iter().map(|entry| entry.name.as_str()).collect::<Vec<_>>(), entries, "{text}");
    }

    #[test]
    fn every_mistake_is_found_with_its_line_and_its_setting_and_the_rest_is_read() {
        check("number = 3\n", &[], &[]);
        check(
            "number = 99999\ntexts = [1, \"a\",\n 2]\nnumbr = 1\n[part]\na = 5\nb = \"7s\"\n",
            &[
                "1 number: must be a whole number from 0 to 65535, not 99999",
                "2 texts: must be text in quotes, not 1",
                "3 texts: must be text in quotes, not 2",
                "4 : unknown setting `numbr`; did you mean `number`?",
                "6 part.a: must be a duration in quotes with a unit, as in \"30s\", not 5",
            ],
            &[],
        );
        check(
            "[[entry]]\nname = 1\nevery = 5\n[[entry]]\nevery = \"1s\"\n[[entry]]\nname = \"c\"\nevery = \"x\"\n",
            &[
                "2 entry.name: must be text in quotes, not 1",
                "3 entry.every: must be a duration in quotes with a unit, as in \"30s\", not 5",
                "4 entry: the setting `name` is missing",
                "8 entry.every: \"x\" is not a duration: write a number and a unit each, as in 90s, 1m30s, 500ms, 2h or 1d",
            ],
            &["c"],
        );
    }

    #[test]
    fn a_text_that_is_not_toml_has_one_mistake_and_a_file_full_of_mistakes_comes_to_an_end() {
        let document = read::<File>("number = 1\nx = [");
        assert!(document.content.is_none() && document.lost_tables);
        assert_eq!((document.mistakes.len(), document.mistakes[0].line), (1, Some(2)));
        let many: String = (0..1000).map(|n| format!("x{n} = 1\n")).collect();
        assert_eq!(read::<File>(&many).mistakes.len(), MISTAKES_MAX);
    }

    #[test]
    fn a_path_has_the_line_of_its_deepest_part_that_is_written() {
        let text = "number = 1\n[[entry]]\nname = \"a\"\n[[entry]]\nname = \"b\"\n";
        let (_, table) = read::<File>(text).content.expect("right");
        for (path, line) in
            [("number", Some(1)), ("entry.1.name", Some(5)), ("entry.1.every", Some(4)), ("none", None)]
        {
            assert_eq!(line_of(text, table.get_ref(), path), line, "{path}");
        }
    }
}
