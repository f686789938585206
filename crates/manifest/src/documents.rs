//! The files of a manifest before they are merged, and the services that extend each other.

use crate::form::known;
use crate::limits::EXTENDS_MAX;
use crate::merge::{merge_service, unify_service};
use crate::mistake::Position;
use crate::reader::{Field, Reader};
use crate::source::Input;
use crate::table::parts::EXTENDS;
use crate::variables::interpolate;
use crate::yaml::{Budget, Entry, MergeTag, Node, Value, load};
use schema::names::quoted;
use std::collections::BTreeMap;

/// The files, each as a mapping. A file that cannot be read is missing.
pub(crate) struct Documents<'a> {
    input: &'a Input,
    roots: Vec<Option<Node>>,
    budget: Budget,
}

/// A service of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ServiceOfFile {
    source: usize,
    name: String,
}

/// What a service extends.
struct Extends {
    base: ServiceOfFile,
    path: String,
    position: Position,
}

impl<'a> Documents<'a> {
    /// Reads the text of all files.
    pub(crate) fn load(input: &'a Input, reader: &mut Reader<'_>) -> Self {
        let mut budget = Budget::default();
        let mut roots = Vec::new();
        for (index, source) in input.sources.iter().chain(&input.extended).enumerate() {
            let root = load(&source.text, index, &mut budget, &mut reader.report);
            roots.push(root.and_then(|root| mapping(root, reader)));
        }
        Self { input, roots, budget }
    }

    /// Returns the name that the last file with a name gives to the group, with the variables of the command.
    pub(crate) fn name(&mut self, reader: &mut Reader<'_>) -> Option<String> {
        let roots = self.roots[..self.input.sources.len()].iter().rev();
        let mut name = roots.flatten().find_map(|root| root.get("name"))?.node.clone();
        // A mistake in it is reported when the whole file is read.
        let mut ignored = crate::mistake::Report::default();
        interpolate(&mut name, "name", reader.variables, &mut self.budget, &mut ignored);
        name.as_text().map(str::to_owned)
    }

    /// Returns a file with the services that it has after `extends`, and without what Compose leaves to other programs.
    pub(crate) fn resolved(&mut self, source: usize, reader: &mut Reader<'_>) -> Option<Node> {
        let root = self.roots.get(source)?.as_ref()?;
        let mut rest = Node::empty(root.position);
        let mut names = Vec::new();
        let entries = root.as_map()?;
        for (key, entry) in
            entries.iter().filter(|(key, _)| !key.starts_with("x-") || *key == "x-orchestrate")
        {
            match entry.node.as_map() {
                Some(services) if key == "services" => names = services.keys().cloned().collect(),
                Some(_) | None => {
                    let mut entry = entry.clone();
                    interpolate(&mut entry.node, key, reader.variables, &mut self.budget, &mut reader.report);
                    insert(&mut rest, key, entry);
                }
            }
        }
        let services = entries.get("services").filter(|services| services.node.as_map().is_some());
        if let Some(services) = services {
            let mut resolved = Node { tag: services.node.tag, ..Node::empty(services.node.position) };
            let position = services.position;
            for name in names {
                let service = ServiceOfFile { source, name: name.clone() };
                if let Some(entry) = self.service(&service, &mut Vec::new(), reader) {
                    insert(&mut resolved, &name, entry);
                }
            }
            insert(&mut rest, "services", Entry { position, node: resolved });
        }
        Some(rest)
    }

    /// Returns a service with what it extends. `path` holds the services that led to it.
    fn service(
        &mut self,
        service: &ServiceOfFile,
        path: &mut Vec<ServiceOfFile>,
        reader: &mut Reader<'_>,
    ) -> Option<Entry> {
        let root = self.roots.get(service.source)?.as_ref()?;
        let found = root.get("services")?.node.get(&service.name)?;
        let position = found.position;
        let key = format!("services.{}", service.name);
        let mut node = match self.budget.copy(&found.node) {
            Ok(node) => node,
            Err(error) => {
                reader.report.mistake(position, key, error.what(), error.right());
                return None;
            }
        };
        interpolate(&mut node, &key, reader.variables, &mut self.budget, &mut reader.report);
        unify_service(reader, &key, &mut node);
        let extends = take_extends(&mut node);
        let Some(extends) = extends.and_then(|entry| self.extends(service, &entry, reader)) else {
            return Some(Entry { position, node });
        };
        path.push(service.clone());
        let base = self.base(&extends, path, reader);
        path.pop();
        let mut base = base?;
        merge_service(&mut base.node, node);
        Some(Entry { position, node: Node { position, ..base.node } })
    }

    fn base(
        &mut self,
        extends: &Extends,
        path: &mut Vec<ServiceOfFile>,
        reader: &mut Reader<'_>,
    ) -> Option<Entry> {
        let mut error = |what: String, right: &str| {
            reader.report.mistake(extends.position, extends.path.as_str(), what, right);
        };
        if let Some(start) = path.iter().position(|service| *service == extends.base) {
            let mut names: Vec<&str> = path[start..].iter().map(|service| service.name.as_str()).collect();
            names.push(&extends.base.name);
            let what = format!("services extend each other in a circle: {}", names.join(" -> "));
            error(what, "remove one `extends`");
            return None;
        }
        if path.len() > EXTENDS_MAX {
            error(format!("more than {EXTENDS_MAX} services extend each other"), "extend fewer services");
            return None;
        }
        let exists = self.roots.get(extends.base.source).and_then(Option::as_ref).is_none_or(|root| {
            root.get("services").is_some_and(|services| services.node.get(&extends.base.name).is_some())
        });
        if !exists {
            let file = self.input.source(extends.base.source).map_or("", |source| source.name.as_str());
            let what = format!("{file} has no service {}", quoted(&extends.base.name));
            error(what, "write the name of a service, and `file` if it is in another file");
            return None;
        }
        self.service(&extends.base, path, reader)
    }

    /// Reads `extends: NAME` or `extends: {service: NAME, file: FILE}`.
    fn extends(&self, service: &ServiceOfFile, entry: &Entry, reader: &mut Reader<'_>) -> Option<Extends> {
        let path = format!("services.{}.extends", service.name);
        let field = Field { path: path.clone(), position: entry.position, node: &entry.node };
        let (mut name, mut file) = (None, None);
        match &entry.node.value {
            Value::Text(text) => name = Some(text.as_str()),
            Value::Null | Value::List(_) | Value::Map(_) => {
                for (key, part) in known(reader, &EXTENDS, &field) {
                    match key.name {
                        "service" => name = reader.text(&part),
                        "file" => file = reader.text(&part),
                        _ => {}
                    }
                }
            }
        }
        let Some(name) = name else {
            reader.mistake(&field, "no service is named", "write `service:` with the name of a service");
            return None;
        };
        let source = match file {
            None => service.source,
            Some(file) => match self.input.find(service.source, file) {
                Some(source) => source,
                None => {
                    let what = format!(
                        "the file {} was not given",
                        quoted(&self.input.resolve(service.source, file))
                    );
                    reader.mistake(&field, what, "give the file, or extend a service of this file");
                    return None;
                }
            },
        };
        let base = ServiceOfFile { source, name: name.to_owned() };
        Some(Extends { base, path, position: entry.position })
    }

    /// Returns the files that `extends.file` names and that were not given.
    pub(crate) fn missing_files(&mut self, reader: &mut Reader<'_>) -> Vec<String> {
        let mut missing = Vec::new();
        for (index, root) in self.roots.iter().enumerate() {
            let services = root.as_ref().and_then(|root| root.get("services")?.node.as_map());
            for service in services.into_iter().flat_map(BTreeMap::values) {
                let file = service.node.get("extends").and_then(|extends| extends.node.get("file"));
                let Some(mut file) = file.map(|file| file.node.clone()) else { continue };
                interpolate(&mut file, "", reader.variables, &mut self.budget, &mut reader.report);
                let Some(file) = file.as_text() else { continue };
                if self.input.find(index, file).is_none() {
                    missing.push(self.input.resolve(index, file));
                }
            }
        }
        missing.sort();
        missing.dedup();
        missing
    }
}

fn mapping(root: Node, reader: &mut Reader<'_>) -> Option<Node> {
    if root.as_map().is_some() {
        return Some(root);
    }
    let what = format!("the file holds {}", root.kind());
    reader.report.mistake(root.position, "", what, "write a mapping with `services`");
    None
}

fn take_extends(node: &mut Node) -> Option<Entry> {
    match &mut node.value {
        Value::Map(entries) => {
            entries.remove("extends").filter(|entry| entry.node.tag != Some(MergeTag::Reset))
        }
        Value::Null | Value::Text(_) | Value::List(_) => None,
    }
}

fn insert(node: &mut Node, key: &str, entry: Entry) {
    if let Value::Map(entries) = &mut node.value {
        entries.insert(key.to_owned(), entry);
    }
}
