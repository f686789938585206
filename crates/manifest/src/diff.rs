//! What changes from one manifest to another.

use crate::canonical::value_of;
use crate::model::Manifest;
use schema::names::ServiceName;
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;

/// The differences between two manifests. It is empty if both mean the same.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Diff {
    /// The services that differ, in the order of their names.
    pub services: BTreeMap<ServiceName, ServiceChange>,
}

/// What changes in a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "change", content = "fields")]
pub enum ServiceChange {
    /// Only the new manifest has it.
    Added,
    /// Only the old manifest has it.
    Removed,
    /// Both have it, with these differences.
    Changed(Vec<FieldChange>),
}

/// A field that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FieldChange {
    /// The path in the canonical form of the service, for example `placement.constraints`.
    pub path: String,
    /// The old value. `None` if there was none.
    pub old: Option<Value>,
    /// The new value. `None` if there is none any more.
    pub new: Option<Value>,
}

/// Compares two manifests of one group.
pub fn diff(old: &Manifest, new: &Manifest) -> Diff {
    let mut services = BTreeMap::new();
    for (name, service) in &new.services {
        match old.services.get(name) {
            None => _ = services.insert(name.clone(), ServiceChange::Added),
            Some(before) if before == service => {}
            Some(before) => {
                let mut fields = Vec::new();
                compare(String::new(), &value_of(before), &value_of(service), &mut fields);
                services.insert(name.clone(), ServiceChange::Changed(fields));
            }
        }
    }
    for name in old.services.keys().filter(|name| !new.services.contains_key(*name)) {
        services.insert(name.clone(), ServiceChange::Removed);
    }
    Diff { services }
}

impl Diff {
    /// True if nothing differs.
    pub fn is_empty(&self) -> bool {
        self.services.is_empty()
    }
}

fn compare(path: String, old: &Value, new: &Value, fields: &mut Vec<FieldChange>) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => compare_objects(&path, old, new, fields),
        (Value::Array(old), Value::Array(new)) => compare_lists(path, old, new, fields),
        // A field without a value is none, as for a reader.
        (old, new) if old != new => fields.push(FieldChange { path, old: present(old), new: present(new) }),
        _ => {}
    }
}

fn compare_objects(
    path: &str,
    old: &Map<String, Value>,
    new: &Map<String, Value>,
    fields: &mut Vec<FieldChange>,
) {
    let mut keys: Vec<&String> = old.keys().chain(new.keys().filter(|key| !old.contains_key(*key))).collect();
    keys.sort();
    for key in keys {
        let inner = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        match (old.get(key), new.get(key)) {
            (Some(old), Some(new)) => compare(inner, old, new, fields),
            (old, new) => fields.push(FieldChange {
                path: inner,
                old: old.and_then(present),
                new: new.and_then(present),
            }),
        }
    }
}

/// Reports the items that came and went. If only the order differs, the whole lists are reported.
fn compare_lists(path: String, old: &[Value], new: &[Value], fields: &mut Vec<FieldChange>) {
    if old == new {
        return;
    }
    let gone = old.iter().filter(|item| !new.contains(item));
    let came = new.iter().filter(|item| !old.contains(item));
    let before = fields.len();
    fields.extend(gone.map(|item| FieldChange { path: path.clone(), old: Some(item.clone()), new: None }));
    fields.extend(came.map(|item| FieldChange { path: path.clone(), old: None, new: Some(item.clone()) }));
    if fields.len() == before {
        let list = |items: &[Value]| Some(Value::from(items.to_vec()));
        fields.push(FieldChange { path, old: list(old), new: list(new) });
    }
}

fn present(value: &Value) -> Option<Value> {
    if value.is_null() { None } else { Some(value.clone()) }
}

impl fmt::Display for Diff {
    /// Writes a line for each difference, as in `~ web.replicas: 2 -> 3`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, change) in &self.services {
            match change {
                ServiceChange::Added => writeln!(f, "+ {name}")?,
                ServiceChange::Removed => writeln!(f, "- {name}")?,
                ServiceChange::Changed(fields) => {
                    for FieldChange { path, old, new } in fields {
                        match (old, new) {
                            (Some(old), Some(new)) => {
                                writeln!(f, "~ {name}.{path}: {} -> {}", plain(old), plain(new))?;
                            }
                            (Some(old), None) => writeln!(f, "- {name}.{path}: {}", plain(old))?,
                            (None, Some(new)) => writeln!(f, "+ {name}.{path}: {}", plain(new))?,
                            (None, None) => {}
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// Returns a value for people: text without quotes if it is one line of visible characters.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) if !text.is_empty() && !text.chars().any(char::is_control) => text.clone(),
        other => other.to_string(),
    }
}
