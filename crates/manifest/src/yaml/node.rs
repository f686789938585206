//! A value of a YAML document.

use crate::mistake::Position;
use std::collections::BTreeMap;

/// A value, where it stands, and how it is merged with the value of an earlier file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) position: Position,
    pub(crate) tag: Option<MergeTag>,
    pub(crate) value: Value,
}

/// A tag of Compose that changes how files are merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MergeTag {
    /// `!reset`: the key is removed.
    Reset,
    /// `!override`: the value replaces that of the earlier files.
    Override,
}

/// The content of a value. A number is text as well, so `1.10` stays what the operator wrote.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Null,
    Text(String),
    List(Vec<Node>),
    Map(BTreeMap<String, Entry>),
}

/// A key of a mapping with its value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    /// The position of the key.
    pub(crate) position: Position,
    pub(crate) node: Node,
}

impl Node {
    pub(crate) fn new(position: Position, value: Value) -> Self {
        Self { position, tag: None, value }
    }

    /// Returns a mapping without entries.
    pub(crate) fn empty(position: Position) -> Self {
        Self::new(position, Value::Map(BTreeMap::new()))
    }

    /// Returns the entries of a mapping.
    pub(crate) fn as_map(&self) -> Option<&BTreeMap<String, Entry>> {
        match &self.value {
            Value::Map(entries) => Some(entries),
            Value::Null | Value::Text(_) | Value::List(_) => None,
        }
    }

    /// Returns the value of a key of a mapping.
    pub(crate) fn get(&self, key: &str) -> Option<&Entry> {
        self.as_map()?.get(key)
    }

    /// Returns the text of a scalar.
    pub(crate) fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            Value::Null | Value::List(_) | Value::Map(_) => None,
        }
    }

    /// True if the value, or one below it, has a tag that changes how files are merged.
    pub(crate) fn has_tag(&self) -> bool {
        let below = match &self.value {
            Value::Null | Value::Text(_) => false,
            Value::List(items) => items.iter().any(Self::has_tag),
            Value::Map(entries) => entries.values().any(|entry| entry.node.has_tag()),
        };
        below || self.tag.is_some()
    }

    /// Names the kind of a value for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self.value {
            Value::Null => "nothing",
            Value::Text(_) => "a single value",
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
        }
    }

    /// Returns the number of values and of bytes of text in a value.
    pub(crate) fn size(&self) -> (usize, usize) {
        let mut total = (1, 0);
        let mut add = |node: &Self, key: usize| {
            let (nodes, bytes) = node.size();
            total.0 += nodes;
            total.1 += bytes + key;
        };
        match &self.value {
            Value::Null => {}
            Value::Text(text) => total.1 = text.len(),
            Value::List(items) => items.iter().for_each(|item| add(item, 0)),
            Value::Map(entries) => entries.iter().for_each(|(key, entry)| add(&entry.node, key.len())),
        }
        total
    }
}
