//! This program's own service files: TOML with `[[service]]`, `[[service.check]]`, and `[[check]]`
//! for checks of the host.

use crate::definitions::service::{
    CheckDefinition, CheckKind, DefinitionError, Parsed, ServiceAddress, ServiceDefinition, check_id,
};
use crate::text::{line_at, with_nearest};
use schema::health::CheckStatus;
use schema::names::{InterfaceName, ServiceName, Tag};
use schema::time::Span;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

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

/// Parses one file.
///
/// # Errors
/// Returns the first mistake, with its line if that is known.
pub(super) fn parse_toml(file: &str, text: &str) -> Result<Parsed, DefinitionError> {
    let error = |line, message| DefinitionError { file: file.to_owned(), line, message };
    let read: File = toml::from_str(text)
        .map_err(|e| error(e.span().map(|span| line_at(text, span.start)), with_nearest(e.message())))?;
    let mut parsed = Parsed::default();
    for service in read.service {
        let name = service.name.clone();
        let read = read_service(service).map_err(|e| error(None, format!("service {name}: {e}")))?;
        parsed.services.push(read);
    }
    for check in read.check {
        let given = check.id.clone().or_else(|| check.name.clone());
        let check = read_check(check, given.as_deref(), None, None).map_err(|e| error(None, e))?;
        parsed.checks.push((None, check));
    }
    Ok(parsed)
}

fn read_service(fragment: ServiceFragment) -> Result<ServiceDefinition, String> {
    if fragment.address.is_some() && fragment.interface.is_some() {
        return Err("give address or interface, not both".into());
    }
    if fragment.port == Some(0) {
        return Err("0 is no port: 1 to 65535".into());
    }
    let several = fragment.check.len() > 1;
    let mut checks = Vec::new();
    for (number, check) in fragment.check.into_iter().enumerate() {
        let (id, number) = (check.id.clone(), several.then_some(number + 1));
        checks.push(read_check(check, id.as_deref(), Some(fragment.name.as_str()), number)?);
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
) -> Result<CheckDefinition, String> {
    let id = check_id(given, service, number)?;
    let name = fragment.name.clone().unwrap_or_else(|| id.as_str().to_owned());
    let wrong = |what: &str| format!("check {id}: {what}");
    let ttl = fragment.ttl;
    let mut kinds = Vec::new();
    if let Some(arguments) = fragment.command {
        if !arguments.first().is_some_and(|program| program.starts_with('/')) {
            return Err(wrong("command must begin with the absolute path of a program"));
        }
        kinds.push(CheckKind::Command { arguments });
    }
    if let Some(url) = fragment.http {
        if !(url.starts_with("http://") || url.starts_with("https://")) {
            return Err(wrong("http must begin with http:// or https://"));
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
            return Err(wrong("tcp must be of the form host:port"));
        }
        kinds.push(CheckKind::Tcp { address });
    }
    if ttl.is_some() {
        kinds.push(CheckKind::Ttl);
    }
    let [kind] = <[_; 1]>::try_from(kinds).map_err(|found: Vec<CheckKind>| {
        wrong(&format!("one of command, http, tcp and ttl is needed; found {}", found.len()))
    })?;
    let interval = match ttl.or(fragment.interval) {
        Some(interval) if interval.0.is_zero() => return Err(wrong("its interval must be more than 0")),
        Some(interval) => interval.0,
        None => return Err(wrong("interval is missing: how often it runs, as in \"10s\"")),
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
