//! This program's own service files: TOML with `[[service]]`, `[[service.check]]`, and `[[check]]`
//! for checks of the host.

use crate::definitions::service::{
    CheckDefinition, CheckKind, DefinitionError, DefinitionErrors, Parsed, ServiceAddress, ServiceDefinition,
    check_id,
};
use schema::health::CheckStatus;
use schema::names::{InterfaceName, ServiceName, Tag};
use schema::time::Span;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use toml_reader::line_of;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    service: Vec<ServiceFragment>,
    check: Vec<CheckFragment>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ServiceFragment {
    name: ServiceName,
    port: Option<u16>,
    #[serde(default)]
    tags: BTreeSet<Tag>,
    #[serde(default)]
    meta: BTreeMap<String, String>,
    address: Option<ServiceAddress>,
    interface: Option<InterfaceName>,
    #[serde(default)]
    check: Vec<CheckFragment>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CheckFragment {
    id: Option<String>,
    name: Option<String>,
    command: Option<Vec<String>>,
    http: Option<String>,
    method: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Option<String>,
    #[serde(default)]
    skip_verify: bool,
    tcp: Option<String>,
    ttl: Option<Span>,
    interval: Option<Span>,
    timeout: Option<Span>,
    initial: Option<CheckStatus>,
    good_after: Option<u32>,
    critical_after: Option<u32>,
    withdraw_after: Option<Span>,
}

/// What is wrong in a service or a check, and the path of the setting below it.
struct Wrong {
    setting: String,
    message: String,
}

fn wrong(setting: impl Into<String>, message: impl Into<String>) -> Wrong {
    Wrong { setting: setting.into(), message: message.into() }
}

impl Wrong {
    /// Returns the same mistake, seen from the table above.
    fn below(self, path: &str, what: &str) -> Self {
        wrong(format!("{path}.{}", self.setting), format!("{what}{}", self.message))
    }
}

/// Parses one file.
///
/// # Errors
/// Returns the mistakes, each with its line.
pub(super) fn parse_toml(file: &str, text: &str) -> Result<Parsed, DefinitionErrors> {
    let error = |line, message| DefinitionError { file: file.to_owned(), line, message };
    let document = toml_reader::read::<File>(text);
    let mut errors: Vec<DefinitionError> = document
        .mistakes
        .into_iter()
        .map(|mistake| error(mistake.line, with_name(&mistake.setting, &mistake.message)))
        .collect();
    let mut parsed = Parsed::default();
    if let Some((read, table)) = document.content {
        let wrongs = assemble(read, &mut parsed);
        errors
            .extend(wrongs.into_iter().map(|w| error(line_of(text, table.get_ref(), &w.setting), w.message)));
    }
    if errors.is_empty() { Ok(parsed) } else { Err(DefinitionErrors(errors)) }
}

fn with_name(setting: &str, message: &str) -> String {
    if setting.is_empty() { message.to_owned() } else { format!("{setting}: {message}") }
}

/// Adds what is right to the result, and returns what is wrong.
fn assemble(read: File, parsed: &mut Parsed) -> Vec<Wrong> {
    let mut wrongs = Vec::new();
    for (number, service) in read.service.into_iter().enumerate() {
        let name = service.name.clone();
        match read_service(service) {
            Ok(service) => parsed.services.push(service),
            Err(found) => {
                let (path, what) = (format!("service.{number}"), format!("service {name}: "));
                wrongs.extend(found.into_iter().map(|wrong| wrong.below(&path, &what)));
            }
        }
    }
    for (number, check) in read.check.into_iter().enumerate() {
        let given = check.id.clone().or_else(|| check.name.clone());
        match read_check(check, given.as_deref(), None, None) {
            Ok(check) => parsed.checks.push((None, check)),
            Err(found) => wrongs.push(found.below(&format!("check.{number}"), "")),
        }
    }
    wrongs
}

/// Reads a service.
///
/// # Errors
/// Returns what is wrong: of the service, and the first mistake of each of its checks.
fn read_service(fragment: ServiceFragment) -> Result<ServiceDefinition, Vec<Wrong>> {
    let mut wrongs = Vec::new();
    if fragment.address.is_some() && fragment.interface.is_some() {
        wrongs.push(wrong("interface", "give address or interface, not both"));
    }
    if fragment.port == Some(0) {
        wrongs.push(wrong("port", "0 is no port: 1 to 65535"));
    }
    let several = fragment.check.len() > 1;
    let mut checks = Vec::new();
    for (index, check) in fragment.check.into_iter().enumerate() {
        let (id, number) = (check.id.clone(), several.then_some(index + 1));
        match read_check(check, id.as_deref(), Some(fragment.name.as_str()), number) {
            Ok(check) => checks.push(check),
            Err(found) => wrongs.push(found.below(&format!("check.{index}"), "")),
        }
    }
    if !wrongs.is_empty() {
        return Err(wrongs);
    }
    Ok(ServiceDefinition {
        port: fragment.port,
        tags: fragment.tags,
        meta: fragment.meta,
        address: fragment.address,
        interface: fragment.interface,
        checks,
        ..ServiceDefinition::bare(fragment.name)
    })
}

fn read_check(
    fragment: CheckFragment,
    given: Option<&str>,
    service: Option<&str>,
    number: Option<usize>,
) -> Result<CheckDefinition, Wrong> {
    let id = check_id(given, service, number).map_err(|message| wrong("id", message))?;
    let name = fragment.name.clone().unwrap_or_else(|| id.as_str().to_owned());
    let wrong = |setting: &str, what: &str| wrong(setting, format!("check {id}: {what}"));
    let ttl = fragment.ttl;
    let mut kinds = Vec::new();
    if let Some(arguments) = fragment.command {
        if !arguments.first().is_some_and(|program| program.starts_with('/')) {
            return Err(wrong("command", "command must begin with the absolute path of a program"));
        }
        kinds.push(CheckKind::Command { arguments });
    }
    if let Some(url) = fragment.http {
        if !(url.starts_with("http://") || url.starts_with("https://")) {
            return Err(wrong("http", "http must begin with http:// or https://"));
        }
        kinds.push(CheckKind::Http {
            url,
            method: fragment.method.unwrap_or_else(|| "GET".into()),
            headers: fragment.headers.into_iter().collect(),
            body: fragment.body.unwrap_or_default(),
            skip_verify: fragment.skip_verify,
        });
    }
    if let Some(address) = fragment.tcp {
        if address.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok()).is_none() {
            return Err(wrong("tcp", "tcp must be of the form host:port"));
        }
        kinds.push(CheckKind::Tcp { address });
    }
    if ttl.is_some() {
        kinds.push(CheckKind::Ttl);
    }
    let [kind] = <[_; 1]>::try_from(kinds).map_err(|found: Vec<CheckKind>| {
        wrong("", &format!("one of command, http, tcp and ttl is needed; found {}", found.len()))
    })?;
    let interval = match (ttl, fragment.interval) {
        (Some(ttl), _) if ttl.0.is_zero() => return Err(wrong("ttl", "its ttl must be more than 0")),
        (Some(ttl), _) => ttl.0,
        (None, Some(interval)) if interval.0.is_zero() => {
            return Err(wrong("interval", "its interval must be more than 0"));
        }
        (None, Some(interval)) => interval.0,
        (None, None) => {
            return Err(wrong("interval", "interval is missing: how often it runs, as in \"10s\""));
        }
    };
    let default = if matches!(kind, CheckKind::Command { .. }) { 30 } else { 10 };
    Ok(CheckDefinition {
        name,
        kind,
        interval,
        timeout: fragment.timeout.map_or(Duration::from_secs(default), |t| t.0),
        initial: fragment.initial.unwrap_or(CheckStatus::Critical),
        good_after: fragment.good_after.unwrap_or(1).max(1),
        critical_after: fragment.critical_after.unwrap_or(1).max(1),
        withdraw_after: fragment.withdraw_after.map(|t| t.0),
        id,
    })
}
