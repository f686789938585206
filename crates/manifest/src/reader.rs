//! Takes typed values out of a document, and reports what has the wrong form.

use crate::mistake::{Position, Report};
use crate::yaml::{Node, Value};
use std::collections::BTreeMap;
use std::fmt::Display;

/// A value with the path of its key.
#[derive(Debug, Clone)]
pub(crate) struct Field<'a> {
    /// The path of the key, for example `services.web.deploy`.
    pub(crate) path: String,
    /// The position of the key.
    pub(crate) position: Position,
    pub(crate) node: &'a Node,
}

impl<'a> Field<'a> {
    /// Returns an entry of a mapping.
    pub(crate) fn child(&self, key: &str, position: Position, node: &'a Node) -> Self {
        let path = if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) };
        Self { path, position, node }
    }
}

/// Reads values and keeps what is wrong with them.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    pub(crate) report: Report,
    /// The variables of the command.
    pub(crate) variables: &'a BTreeMap<String, String>,
}

impl Reader<'_> {
    /// Reports a mistake in a field.
    pub(crate) fn mistake(&mut self, field: &Field<'_>, what: impl Into<String>, right: impl Into<String>) {
        self.report.mistake(field.position, field.path.as_str(), what, right);
    }

    /// Returns the text of a single value, which may be a number.
    pub(crate) fn text<'a>(&mut self, field: &Field<'a>) -> Option<&'a str> {
        let text = field.node.as_text();
        if text.is_none() {
            self.wrong_kind(field, "a single value");
        }
        text
    }

    /// Reads a single value into its type.
    pub(crate) fn parse<T, E: Display>(
        &mut self,
        field: &Field<'_>,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let text = self.text(field)?;
        match parse(text) {
            Ok(value) => Some(value),
            Err(error) => {
                self.wrong_value(field, &error);
                None
            }
        }
    }

    /// Reads `true` or `false`.
    pub(crate) fn flag(&mut self, field: &Field<'_>) -> Option<bool> {
        match self.text(field)? {
            "true" => Some(true),
            "false" => Some(false),
            other => {
                let what = format!("{} is neither true nor false", schema::names::quoted(other));
                self.mistake(field, what, "write true or false");
                None
            }
        }
    }

    /// Returns the items of a list.
    pub(crate) fn items<'a>(&mut self, field: &Field<'a>) -> Vec<Field<'a>> {
        match &field.node.value {
            Value::List(items) => {
                let item = |(index, node): (usize, &'a Node)| Field {
                    path: format!("{}[{index}]", field.path),
                    position: node.position,
                    node,
                };
                items.iter().enumerate().map(item).collect()
            }
            Value::Null => Vec::new(),
            Value::Text(_) | Value::Map(_) => {
                self.wrong_kind(field, "a list");
                Vec::new()
            }
        }
    }

    /// Returns the entries of a mapping with keys that the operator chooses.
    pub(crate) fn entries<'a>(&mut self, field: &Field<'a>) -> Vec<(&'a str, Field<'a>)> {
        match &field.node.value {
            Value::Map(entries) => {
                let entry = |key: &'a str, position, node| (key, field.child(key, position, node));
                entries.iter().map(|(key, found)| entry(key, found.position, &found.node)).collect()
            }
            Value::Null => Vec::new(),
            Value::Text(_) | Value::List(_) => {
                self.wrong_kind(field, "a mapping");
                Vec::new()
            }
        }
    }

    /// Reports a value that breaks the rule of its type. The error has the form `what; what would be right`.
    pub(crate) fn wrong_value(&mut self, field: &Field<'_>, error: &impl Display) {
        let text = error.to_string();
        match text.rsplit_once("; ") {
            Some((what, right)) => self.mistake(field, what, right),
            None => self.mistake(field, text, "write a valid value"),
        }
    }

    fn wrong_kind(&mut self, field: &Field<'_>, expected: &str) {
        self.mistake(field, format!("here stands {}", field.node.kind()), format!("write {expected}"));
    }
}
