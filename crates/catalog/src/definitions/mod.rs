//! The services and checks that files define for a host. There are three kinds of files: Consul's
//! JSON, this program's own TOML, and the profile list of the original tool. A file with a mistake
//! does not affect the others.

mod consul;
mod native;
mod service;

pub use service::{
    CheckDefinition, CheckKind, DefinitionError, DefinitionErrors, Parsed, ServiceAddress, ServiceDefinition,
};

use consul::parse_consul;
use native::parse_toml;

use schema::names::{CheckId, Role, ServiceName, quoted};
use std::collections::{BTreeMap, BTreeSet};

/// All services and host checks of one host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Definitions {
    /// The services, by name.
    pub services: BTreeMap<ServiceName, ServiceDefinition>,
    /// The checks of the host; all of its services depend on them.
    pub host_checks: Vec<CheckDefinition>,
}

/// Parses the profile list of the original tool: one role per line, each of which is a service.
/// Empty lines are ignored. A line that is not a valid name is skipped, with a note.
pub fn parse_profile_list(file: &str, text: &str) -> Parsed {
    let mut parsed = Parsed::default();
    let mut seen = BTreeSet::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        match Role::new(line).and_then(|role| ServiceName::new(role.as_str())) {
            Ok(name) if seen.insert(name.clone()) => parsed.services.push(ServiceDefinition::bare(name)),
            Ok(_) => {}
            Err(error) => parsed.notes.push(format!("{file}:{}: {error}", number + 1)),
        }
    }
    parsed
}

/// Extensions of service files. Files in HCL are refused with an error, not ignored.
pub const FILE_KINDS: [&str; 3] = ["toml", "json", "hcl"];

/// Parses one service file; the extension of its name decides how.
///
/// # Errors
/// Returns the mistakes, each with its line if that is known.
pub fn parse_file(file: &str, text: &str) -> Result<Parsed, DefinitionErrors> {
    match file.rsplit('.').next() {
        Some("toml") => parse_toml(file, text),
        Some("hcl") => {
            let message = "HCL is not read; write it as JSON".to_owned();
            Err(DefinitionError { file: file.to_owned(), line: None, message }.into())
        }
        _ => parse_consul(file, text),
    }
}

/// Combines the files of a host, in the given order. A definition that conflicts with one before it
/// is left out and reported as an error.
pub fn assemble<'a>(
    files: impl IntoIterator<Item = (&'a str, &'a Parsed)>,
) -> (Definitions, Vec<DefinitionError>) {
    let files: Vec<(&str, &Parsed)> = files.into_iter().collect();
    let mut all = Definitions::default();
    let mut errors = Vec::new();
    let mut error = |file: &str, message: String| {
        errors.push(DefinitionError { file: file.to_owned(), line: None, message });
    };
    let mut origin: BTreeMap<ServiceName, &str> = BTreeMap::new();
    let mut ids: BTreeSet<CheckId> = BTreeSet::new();
    for (file, parsed) in &files {
        for service in &parsed.services {
            let is_bare = *service == ServiceDefinition::bare(service.name.clone());
            match origin.get(&service.name) {
                // The profile list only says that the host has the service; another file says more
                // about it.
                Some(_) if is_bare => {}
                Some(other) => {
                    let (name, id) = (&service.name, quoted(&service.id));
                    let message = format!(
                        "service {name} is defined in {other} already: a host has one instance of a service; \
                         give the one with id {id} a name of its own, or a host of its own"
                    );
                    error(file, message);
                }
                None => {
                    origin.insert(service.name.clone(), file);
                    all.services.insert(service.name.clone(), service.clone());
                }
            }
        }
    }
    for (file, parsed) in &files {
        for (service, check) in &parsed.checks {
            let Some(id) = service else {
                all.host_checks.push(check.clone());
                continue;
            };
            match all.services.values_mut().find(|s| s.id == *id) {
                Some(service) => service.checks.push(check.clone()),
                None => error(file, format!("check {}: there is no service with id {id:?}", check.id)),
            }
        }
    }
    for (name, service) in &mut all.services {
        let file = origin.get(name).copied().unwrap_or_default();
        service.checks.retain(|check| {
            let is_new = ids.insert(check.id.clone());
            if !is_new {
                error(file, format!("there are two checks with id {}: the second is left out", check.id));
            }
            is_new
        });
    }
    all.host_checks.retain(|check| {
        let is_new = ids.insert(check.id.clone());
        if !is_new {
            error("", format!("there are two checks with id {}: the second is left out", check.id));
        }
        is_new
    });
    (all, errors)
}

#[cfg(test)]
mod tests;
