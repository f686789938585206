//! The definition of a service and its checks, in a form that all kinds of files share.

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
    /// Name of the file.
    pub file: String,
    /// The line, counted from 1, if it is known.
    pub line: Option<usize>,
    /// What is wrong, and how to correct it.
    pub message: String,
}

/// All mistakes in a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct DefinitionErrors(pub Vec<DefinitionError>);

impl From<DefinitionError> for DefinitionErrors {
    fn from(error: DefinitionError) -> Self {
        Self(vec![error])
    }
}

/// The definition of a service on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceDefinition {
    /// Name of the service.
    pub name: ServiceName,
    /// The id by which checks in other files refer to the service; Consul's `id`.
    pub id: String,
    /// Port of the service, if it has one.
    pub port: Option<u16>,
    /// Tags of the instance.
    pub tags: BTreeSet<Tag>,
    /// Metadata: free text by name.
    pub meta: BTreeMap<String, String>,
    /// The address that other hosts should use instead of the addresses of the host.
    pub address: Option<ServiceAddress>,
    /// The interface whose addresses other hosts should use.
    pub interface: Option<InterfaceName>,
    /// The checks of the service.
    pub checks: Vec<CheckDefinition>,
}

/// The address of a service if it is not that of its host.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum ServiceAddress {
    Ip(IpAddr),
    /// A name, which the host resolves to IP addresses.
    Name(HostName),
}

impl TryFrom<String> for ServiceAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if let Ok(ip) = text.parse() {
            return Ok(Self::Ip(ip));
        }
        // A host name does not end in a number (RFC 3696, section 2), so such a text is a mistyped
        // address.
        let ends_in_number =
            text.rsplit('.').next().is_some_and(|end| end.bytes().all(|b| b.is_ascii_digit()));
        match HostName::new(&text) {
            Ok(name) if !ends_in_number => Ok(Self::Name(name)),
            _ => Err(format!("{} is neither an IP address nor the name of a host", quoted(&text))),
        }
    }
}

impl ServiceDefinition {
    /// Returns the definition of a service of which only the name is known.
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

/// The definition of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckDefinition {
    /// Id of the check, unique on the host.
    pub id: CheckId,
    /// Name of the check, for people.
    pub name: String,
    /// What the check does.
    pub kind: CheckKind,
    /// Time between two runs; for [`CheckKind::Ttl`] the time to live.
    pub interval: Duration,
    /// Longest time that one run may take.
    pub timeout: Duration,
    /// The status that the check counts as before its first result.
    pub initial: CheckStatus,
    /// Number of good results in a row that make the status good again; at least 1.
    pub good_after: u32,
    /// Number of critical results in a row that make the status critical; at least 1.
    pub critical_after: u32,
    /// After the check has been critical for this time without a break, the service is withdrawn
    /// until the check is good again.
    pub withdraw_after: Option<Duration>,
}

/// What a check does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckKind {
    /// Runs a program. Exit code 0 is passing, 1 is warning, and any other is critical.
    Command {
        /// Program and arguments; they are not passed to a shell.
        arguments: Vec<String>,
    },
    /// Sends an HTTP request. A response of 2xx is passing, 429 is warning, and any other is
    /// critical.
    Http {
        /// URL of the request.
        url: String,
        /// Method of the request.
        method: String,
        /// Headers of the request, by name.
        headers: Vec<(String, String)>,
        /// Body of the request.
        body: String,
        /// True if the certificate of the server is not verified.
        skip_verify: bool,
    },
    /// Opens a TCP connection.
    Tcp {
        /// Address in the form `host:port`.
        address: String,
    },
    /// Receives its results from outside, at least one per interval; without one the check becomes
    /// critical.
    Ttl,
}

/// The content of one file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Parsed {
    /// The services that the file defines.
    pub services: Vec<ServiceDefinition>,
    /// Checks that the file defines outside of a service. With an id, the check belongs to the
    /// service with that id; without one, to the host.
    pub checks: Vec<(Option<String>, CheckDefinition)>,
    /// The parts of the file that were ignored, each with the reason.
    pub notes: Vec<String>,
}

/// Returns the id of a check. A check without an id gets the one that Consul gives it:
/// `service:<id>`, with a number if the service has several checks.
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
