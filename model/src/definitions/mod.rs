//! What a host is told of its services: definitions read from files of three kinds, Consul's JSON, our own
//! TOML and the profile list of the original tool. A wrong file breaks only itself.

mod consul;
mod native;

use consul::parse_consul;
use native::parse_toml;

use crate::checks::CheckStatus;
use crate::names::{CheckId, HostName, InterfaceName, Role, ServiceName, Tag, quoted};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

/// A mistake in a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}{}: {message}", .line.map(|n| format!(":{n}")).unwrap_or_default())]
pub struct DefinitionError {
    /// The file.
    pub file: String,
    /// The line, from 1, if one can be named.
    pub line: Option<usize>,
    /// What is wrong, and what would be right.
    pub message: String,
}

/// A service as a host is told to have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceDefinition {
    /// Its name.
    pub name: ServiceName,
    /// How checks in other files refer to it; Consul's `id`.
    pub id: String,
    /// Its port.
    pub port: Option<u16>,
    /// Its tags.
    pub tags: BTreeSet<Tag>,
    /// Free text by name.
    pub meta: BTreeMap<String, String>,
    /// The address that others should use, instead of those of the host.
    pub address: Option<ServiceAddress>,
    /// The interface whose addresses others should use.
    pub interface: Option<InterfaceName>,
    /// Its checks.
    pub checks: Vec<CheckDefinition>,
}

/// Where others find a service.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum ServiceAddress {
    /// Here.
    Ip(IpAddr),
    /// Where this name points; its host finds out.
    Name(HostName),
}

impl TryFrom<String> for ServiceAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if let Ok(ip) = text.parse() {
            return Ok(Self::Ip(ip));
        }
        // A name does not end in a number (RFC 3696, section 2): that is a mistyped address.
        let ends_in_number =
            text.rsplit('.').next().is_some_and(|end| end.bytes().all(|b| b.is_ascii_digit()));
        match HostName::new(&text) {
            Ok(name) if !ends_in_number => Ok(Self::Name(name)),
            _ => Err(format!("{} is neither an IP address nor the name of a host", quoted(&text))),
        }
    }
}

impl ServiceDefinition {
    /// A service of which nothing but the name is known.
    pub fn bare(name: ServiceName) -> Self {
        Self {
            id: name.as_str().to_owned(),
            name,
            port: None,
            tags: BTreeSet::new(),
            meta: BTreeMap::new(),
            address: None,
            interface: None,
            checks: Vec::new(),
        }
    }
}

/// How it is found out whether something works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckDefinition {
    /// Unique on the host.
    pub id: CheckId,
    /// For people.
    pub name: String,
    /// What is done.
    pub kind: CheckKind,
    /// Time between two runs. For [`CheckKind::Ttl`] the time to live.
    pub interval: Duration,
    /// Most time for one run.
    pub timeout: Duration,
    /// What it counts as before its first result.
    pub initial: CheckStatus,
    /// So many good results in a row make it good again; at least 1.
    pub good_after: u32,
    /// So many bad results in a row make it critical; at least 1.
    pub critical_after: u32,
    /// After so long without a break in critical the service is withdrawn until it is good again.
    pub withdraw_after: Option<Duration>,
}

/// What a check does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckKind {
    /// Runs a program: 0 passing, 1 warning, else critical.
    Command {
        /// Program and arguments; no shell.
        arguments: Vec<String>,
    },
    /// Asks a web server: 2xx passing, 429 warning, else critical.
    Http {
        /// What.
        url: String,
        /// By this method.
        method: String,
        /// With these headers.
        headers: Vec<(String, String)>,
        /// With this body.
        body: String,
        /// Its certificate is not looked at.
        skip_verify: bool,
    },
    /// Connects.
    Tcp {
        /// `host:port`.
        address: String,
    },
    /// Is told from outside, at least once per interval; silence is critical.
    Ttl,
}

/// What one file holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Parsed {
    /// Services.
    pub services: Vec<ServiceDefinition>,
    /// Checks beside services: of the service with this id, or of the host.
    pub checks: Vec<(Option<String>, CheckDefinition)>,
    /// What was passed over, each with why.
    pub notes: Vec<String>,
}

/// Every service and host check of one host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Definitions {
    /// The services.
    pub services: BTreeMap<ServiceName, ServiceDefinition>,
    /// Checks of the host; all of its services depend on them.
    pub host_checks: Vec<CheckDefinition>,
}

/// The profile list of the original tool: one role per line, each a service. Empty lines count for nothing; a line
/// that is no name is passed over, with a note.
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

/// How names of service files end.
pub const FILE_KINDS: [&str; 3] = ["toml", "json", "hcl"];

/// Reads one service file, as its name says.
///
/// # Errors
/// The first mistake, with its line where one can be named.
pub fn parse_file(file: &str, text: &str) -> Result<Parsed, DefinitionError> {
    match file.rsplit('.').next() {
        Some("toml") => parse_toml(file, text),
        Some("hcl") => {
            let message = "HCL is not read; write it as JSON".to_owned();
            Err(DefinitionError { file: file.to_owned(), line: None, message })
        }
        _ => parse_consul(file, text),
    }
}

/// Puts the files of a host together, in the order given. What does not fit with the files before is left
/// out and named.
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
                // The profile list says that it is there; another file says more.
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

/// The id that Consul gives a check that has none: `service:<id>`, and a number where there are several.
fn check_id(given: Option<&str>, service: Option<&str>, number: Option<usize>) -> Result<CheckId, String> {
    let text = match (given, service, number) {
        (Some(given), ..) => given.to_owned(),
        (None, Some(service), None) => format!("service:{service}"),
        (None, Some(service), Some(number)) => format!("service:{service}:{number}"),
        (None, None, _) => return Err("a check of the host needs an id or a name".into()),
    };
    let plain: String = text.chars().map(|c| if c.is_whitespace() { '-' } else { c }).collect();
    CheckId::new(plain).map_err(|e| e.to_string())
}

/// The line on which a text stands first.
fn line_of(text: &str, part: &str) -> Option<usize> {
    text.lines().position(|line| line.contains(part)).map(|at| at + 1)
}

#[cfg(test)]
mod tests;
