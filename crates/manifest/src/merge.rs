//! Merging of files as the Compose Specification says: mappings are merged, lists are joined, and other values are
//! replaced. `!reset` removes a key, and `!override` replaces a value whole. An empty value changes nothing.

use crate::fields::volumes;
use crate::form::{Merge, Object, Read, Treatment};
use crate::reader::{Field, Reader};
use crate::table::{SERVICE, TOP_LEVEL};
use crate::yaml::{Entry, MergeTag, Node, Value};
use schema::names::quoted;
use std::collections::{BTreeMap, btree_map};

/// Merges a later file into what there is already.
pub(crate) fn merge_document(base: &mut Node, over: Node) {
    merge(base, over, Rule::Object(&TOP_LEVEL));
}

/// Merges a service into the one that it extends.
pub(crate) fn merge_service(base: &mut Node, over: Node) {
    merge(base, over, Rule::Object(&SERVICE));
}

/// How the values of a mapping are merged.
#[derive(Clone, Copy)]
enum Rule {
    /// As the table says for each key of this mapping.
    Object(&'static Object),
    /// Each value is such a mapping.
    Each(&'static Object),
    /// All in this way.
    All(Merge),
}

fn merge(base: &mut Node, over: Node, rule: Rule) {
    match (&mut base.value, over.value) {
        (Value::Map(base), Value::Map(over)) => merge_entries(base, over, rule),
        (Value::List(base), Value::List(over)) => {
            base.extend(over.into_iter().filter(|item| item.tag != Some(MergeTag::Reset)).map(settled));
        }
        // `NAME:` without a value takes that of the command.
        (Value::Text(_), Value::Null) if matches!(rule, Rule::All(Merge::Pairs)) => base.value = Value::Null,
        (_, Value::Null) => {}
        (_, value) => *base = settled(Node { value, ..over }),
    }
}

fn merge_entries(base: &mut BTreeMap<String, Entry>, over: BTreeMap<String, Entry>, rule: Rule) {
    for (name, entry) in over {
        match entry.node.tag {
            Some(MergeTag::Reset) => {
                base.remove(&name);
                continue;
            }
            Some(MergeTag::Override) => {
                base.insert(name, settled_entry(entry));
                continue;
            }
            None => {}
        }
        let inner = below(rule, &name);
        match base.entry(name) {
            btree_map::Entry::Vacant(place) => _ = place.insert(settled_entry(entry)),
            // A volume replaces the one with the same target, whatever form both have.
            btree_map::Entry::Occupied(mut place) if matches!(rule, Rule::All(Merge::Targets)) => {
                place.insert(settled_entry(entry));
            }
            btree_map::Entry::Occupied(mut place) => {
                let found = place.get_mut();
                // Mistakes in a value that several files make up are reported in the last one.
                found.position = entry.position;
                merge(&mut found.node, entry.node, inner);
            }
        }
    }
}

fn below(rule: Rule, name: &str) -> Rule {
    let object = match rule {
        Rule::Object(object) => object,
        Rule::Each(object) => return Rule::Object(object),
        Rule::All(_) => return rule,
    };
    match object.find(name).map(|key| &key.treatment) {
        Some(Treatment::Accepted { read: Read::Object(object), .. }) => Rule::Object(object),
        Some(Treatment::Accepted { read: Read::Each(object), .. }) => Rule::Each(object),
        Some(Treatment::Accepted { merge, read: Read::Service(_) | Read::Apart, .. }) => Rule::All(*merge),
        Some(Treatment::NoMeaning(_) | Treatment::Refused { .. }) | None => Rule::All(Merge::ByKind),
    }
}

/// Returns a value without what `!reset` removes from it.
fn settled(node: Node) -> Node {
    // Most values have no tag, and stay as they are.
    if !node.has_tag() {
        return node;
    }
    let value = match node.value {
        Value::List(items) => Value::List(
            items.into_iter().filter(|item| item.tag != Some(MergeTag::Reset)).map(settled).collect(),
        ),
        Value::Map(entries) => Value::Map(
            entries
                .into_iter()
                .filter(|(_, entry)| entry.node.tag != Some(MergeTag::Reset))
                .map(|(name, entry)| (name, settled_entry(entry)))
                .collect(),
        ),
        Value::Null | Value::Text(_) => node.value,
    };
    Node { position: node.position, tag: None, value }
}

fn settled_entry(entry: Entry) -> Entry {
    Entry { position: entry.position, node: settled(entry.node) }
}

/// Gives the keys with several forms one form, so that files that use different ones can be merged.
pub(crate) fn unify_service(reader: &mut Reader<'_>, path: &str, node: &mut Node) {
    let Value::Map(entries) = &mut node.value else { return };
    for (name, entry) in entries {
        let Some(key) = SERVICE.find(name) else { continue };
        let Treatment::Accepted { merge, .. } = key.treatment else { continue };
        let path = format!("{path}.{name}");
        match merge {
            Merge::ByKind => {}
            Merge::Pairs => unify(reader, &path, &mut entry.node, pair),
            Merge::Targets => {
                if entry.node.as_map().is_some() {
                    let field = Field { path: path.clone(), position: entry.position, node: &entry.node };
                    reader.mistake(&field, "here stands a mapping", "write a list");
                    entry.node.value = Value::Null;
                }
                unify(reader, &path, &mut entry.node, by_target);
            }
        }
    }
}

type Split = fn(&Node) -> Result<(String, Node), &'static str>;

/// Makes a mapping of a list.
fn unify(reader: &mut Reader<'_>, path: &str, node: &mut Node, split: Split) {
    if !matches!(node.value, Value::List(_)) {
        return;
    }
    let Value::List(items) = std::mem::replace(&mut node.value, Value::Null) else { return };
    let mut entries: BTreeMap<String, Entry> = BTreeMap::new();
    for (index, item) in items.iter().enumerate() {
        let field = Field { path: format!("{path}[{index}]"), position: item.position, node: item };
        match split(item) {
            Ok((name, _)) if entries.contains_key(&name) => {
                let what = format!("{} stands twice in the list", quoted(&name));
                reader.mistake(&field, what, "write it once");
            }
            Ok((name, node)) => _ = entries.insert(name, Entry { position: item.position, node }),
            Err(right) => reader.mistake(&field, format!("here stands {}", item.kind()), right),
        }
    }
    node.value = Value::Map(entries);
}

fn pair(item: &Node) -> Result<(String, Node), &'static str> {
    let text = item.as_text().ok_or("write `NAME=value` or a mapping")?;
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Value::Text(value.to_owned())),
        None => (text, Value::Null),
    };
    Ok((name.to_owned(), Node { position: item.position, tag: item.tag, value }))
}

fn by_target(item: &Node) -> Result<(String, Node), &'static str> {
    let target = volumes::target(item);
    let target = target.ok_or("write a named volume with its path, as in data:/var/lib/shop")?;
    Ok((target, item.clone()))
}
