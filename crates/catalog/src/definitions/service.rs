//! A service as its file defines it.

use schema::health::CheckStatus;
use schema::names::{CheckId, HostName, InterfaceName, ServiceName, Tag, quoted};
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

/// The id that Consul gives a check that has none: `service:<id>`, and a number where there are several.
pub(super) fn check_id(
    given: Option<&str>,
    service: Option<&str>,
    number: Option<usize>,
) -> Result<CheckId, String> {
    let text = match (given, service, number) {
        (Some(given), ..) => given.to_owned(),
        (None, Some(service), None) => format!("service:{service}"),
        (None, Some(service), Some(number)) => format!("service:{service}:{number}"),
        (None, None, _) => return Err("a check of the host needs an id or a name".into()),
    };
    let plain: String = text.chars().map(|c| if c.is_whitespace() { '-' } else { c }).collect();
    CheckId::new(plain).map_err(|e| e.to_string())
}
