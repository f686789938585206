//! The answer of the DNS server: a pure function of question and catalog. The agent does the
//! encoding and the transport, and enforces the limits.
//!
//! The names are those of Consul: `[tag.]service.service[.datacenter].domain`,
//! `_service._tag-or-proto.service…` (RFC 2782), `host.node[.datacenter].domain`, and the reverse
//! names of every known address. Names are compared without case (RFC 4343).
//!
//! This file is long because the cases of one question share their helpers, and its tests are
//! beside them.

use crate::instance::Instance;
use crate::view::{ServiceView, View};
use schema::codec::ValueError;
use schema::health::Level;
use schema::keys;
use schema::names::{HostName, ServiceName, Tag};
use schema::records::usable_addresses;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::sync::Arc;

/// The zone that the server answers for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    /// The domain, in lower case, without leading or trailing dot.
    pub domain: String,
    /// Name of this datacenter, in lower case.
    pub datacenter: Option<String>,
    /// Name of the host that answers.
    pub host: HostName,
    /// Time to live of the records in an answer, in seconds.
    pub ttl: u32,
    /// How long a client may cache a negative answer, in seconds.
    pub negative_ttl: u32,
}

/// The record type of a question. Types that have a name for users come before `Any`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QueryType {
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
    /// Host and port of a service.
    Srv,
    /// The name that belongs to an address.
    Ptr,
    /// The start of authority of the zone.
    Soa,
    /// The name servers of the zone.
    Ns,
    /// Any type; gets a minimal answer (RFC 8482).
    Any,
    /// A type that exists but that no name here has.
    Other,
}

impl QueryType {
    /// The types that can be asked for by name, in the order of messages. They are all variants before
    /// `Any`, so that the compiler notices a new one that is missing here.
    const NAMED: [Self; Self::Any as usize] =
        [Self::A, Self::Aaaa, Self::Srv, Self::Ptr, Self::Soa, Self::Ns];

    /// Returns the name and the number in IANA's registry of DNS parameters.
    const fn registered(self) -> (&'static str, Option<u16>) {
        match self {
            Self::A => ("A", Some(1)),
            Self::Aaaa => ("AAAA", Some(28)),
            Self::Srv => ("SRV", Some(33)),
            Self::Ptr => ("PTR", Some(12)),
            Self::Soa => ("SOA", Some(6)),
            Self::Ns => ("NS", Some(2)),
            Self::Any => ("ANY", Some(255)),
            Self::Other => ("another type", None),
        }
    }

    /// Returns the type with this number.
    pub fn of_number(number: u16) -> Self {
        let has_number = |kind: &Self| kind.registered().1 == Some(number);
        Self::NAMED.into_iter().chain([Self::Any]).find(has_number).unwrap_or(Self::Other)
    }
}

impl fmt::Display for QueryType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.registered().0)
    }
}

/// A text that names no type which can be asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?}: {known}", known = names(&QueryType::NAMED))]
pub struct UnknownQueryType(String);

/// Lists names: `A, B or C`.
fn names(kinds: &[QueryType]) -> String {
    let names: Vec<String> = kinds.iter().map(QueryType::to_string).collect();
    match names.split_last() {
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

impl FromStr for QueryType {
    type Err = UnknownQueryType;

    fn from_str(text: &str) -> Result<Self, UnknownQueryType> {
        let is_named = |kind: &Self| kind.registered().0.eq_ignore_ascii_case(text);
        Self::NAMED.into_iter().find(is_named).ok_or_else(|| UnknownQueryType(text.to_owned()))
    }
}

/// A question. Its name is in lower case and has no final dot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question<'a> {
    /// The labels of the name, from left to right.
    pub labels: Vec<&'a str>,
    pub kind: QueryType,
}

/// The result code of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseCode {
    /// The name exists, but it may have no data of the type.
    NoError,
    /// The name does not exist.
    NoSuchName,
    /// The name is outside the zones of this server.
    Refused,
    /// The catalog has not been read yet.
    NotReady,
}

impl ResponseCode {
    /// Returns the code in words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoError => "no_error",
            Self::NoSuchName => "no_such_name",
            Self::Refused => "refused",
            Self::NotReady => "not_ready",
        }
    }
}

/// The data of one record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Data {
    /// An IPv4 address.
    A(Ipv4Addr),
    /// An IPv6 address.
    Aaaa(Ipv6Addr),
    /// Port and host of a service.
    Srv {
        /// The port; 0 if the service has none.
        port: u16,
        /// Name of the host.
        target: String,
    },
    /// The name that belongs to an address.
    Ptr(String),
    /// The start of authority of the zone.
    Soa,
    /// Name of a name server.
    Ns(String),
    /// The minimal answer to a question for any type; it contains no information (RFC 8482).
    HostInfo,
}

impl Data {
    /// Returns the data as text, as in the files of a DNS server.
    pub fn text(&self, zone: &Zone) -> String {
        match self {
            Self::A(ip) => ip.to_string(),
            Self::Aaaa(ip) => ip.to_string(),
            Self::Srv { port, target } => format!("1 1 {port} {target}."),
            Self::Ptr(name) | Self::Ns(name) => format!("{name}."),
            Self::Soa => format!("ns.{0}. hostmaster.{0}.", zone.domain),
            Self::HostInfo => "RFC8482".into(),
        }
    }
}

/// One record of an answer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResourceRecord {
    /// Owner of the record; `None` means the name in the question.
    pub name: Option<String>,
    /// Data of the record.
    pub data: Data,
}

/// The claim of a host name in the store, as far as it is known here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// A host claims the name; these are the addresses that other hosts can reach.
    Of(Arc<[IpAddr]>),
    /// No host claims the name.
    Nobody,
    /// It is not known whether a host claims the name.
    Unknown,
}

impl Claim {
    /// Reads the value of the claim in the store, if it exists.
    ///
    /// # Errors
    /// Returns an error if the value exists but cannot be read: a host claims the name, but its
    /// addresses are unknown.
    pub fn read(value: Option<&[u8]>) -> Result<Self, ValueError> {
        let Some(value) = value else { return Ok(Self::Nobody) };
        let claim = keys::Live::read(value)?;
        let addresses = claim.addresses.iter().filter_map(|text| text.parse().ok());
        Ok(Self::Of(usable_addresses(addresses).into()))
    }
}

/// The answer to one question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Result code of the answer.
    pub code: ResponseCode,
    /// Records that answer the question.
    pub records: Vec<ResourceRecord>,
    /// Addresses of the names in [`Answer::records`].
    pub additional: Vec<ResourceRecord>,
    /// The zone of the name; a negative answer contains its start of authority. `None` for names
    /// outside the zones of this server.
    pub zone: Option<String>,
    /// The service whose health decides the answer. The caller should follow its health from now
    /// on.
    pub service: Option<ServiceName>,
    /// A host that is not in the catalog. The claim of its name says whether it exists: see
    /// [`Answer::with_claim`].
    pub host: Option<HostName>,
}

impl Answer {
    fn code(code: ResponseCode, zone: Option<String>) -> Self {
        Self { code, records: Vec::new(), additional: Vec::new(), zone, service: None, host: None }
    }

    /// Returns the answer with the addresses from the claim of [`Answer::host`]. `kind` is the type
    /// of the question.
    #[must_use]
    pub fn with_claim(mut self, claim: &Claim, kind: QueryType) -> Self {
        match claim {
            Claim::Of(list) => {
                self.code = ResponseCode::NoError;
                addresses(kind, list.iter().copied(), &mut self.records);
                host_info(kind, &mut self);
            }
            Claim::Unknown if self.code == ResponseCode::NoSuchName => self.code = ResponseCode::NotReady,
            // The name exists because there are names below it, or it does not exist.
            Claim::Unknown | Claim::Nobody => {}
        }
        self
    }

    /// True if the answer contains no record of the type in the question.
    pub fn is_negative(&self) -> bool {
        self.records.is_empty()
    }
}

pub fn answer(question: &Question<'_>, view: &View, zone: &Zone) -> Answer {
    let domain: Vec<&str> = zone.domain.split('.').collect();
    let labels = &question.labels;
    if let Some(address) = reverse_address(labels) {
        return reverse(question.kind, labels.join("."), &address, view, zone);
    }
    let Some(inner) = labels.strip_suffix(domain.as_slice()) else {
        return Answer::code(ResponseCode::Refused, None);
    };
    let mut answer = Answer::code(ResponseCode::NoError, Some(zone.domain.clone()));
    if inner.is_empty() {
        apex(question.kind, zone, view, &mut answer);
        return answer;
    }
    if *inner == ["ns"] {
        addresses(question.kind, view.nodes().addresses(&zone.host), &mut answer.records);
        return answer;
    }
    // The datacenter may follow `service` or `node`, or be the only label.
    let inner = match (inner, &zone.datacenter) {
        ([front @ .., kind @ ("service" | "node"), datacenter], Some(ours)) if datacenter == ours => {
            (front, Some(*kind))
        }
        ([datacenter], Some(ours)) if datacenter == ours => (&[][..], None),
        ([front @ .., kind @ ("service" | "node")], _) => (front, Some(*kind)),
        (all, _) => (all, None),
    };
    match inner {
        (front, Some("node")) if !front.is_empty() => node(front, question.kind, view, &mut answer),
        (front, Some("service")) if !front.is_empty() => {
            service(front, question.kind, view, zone, &mut answer);
        }
        _ => answer.code = ResponseCode::NoSuchName,
    }
    if answer.code == ResponseCode::NoSuchName {
        answer.code = match (view.records_known(), has_names_below(inner.0, inner.1, view)) {
            // A name exists, without data, if there are names below it (RFC 4592, section 2.2.2).
            (_, true) => ResponseCode::NoError,
            (true, false) => ResponseCode::NoSuchName,
            (false, false) => ResponseCode::NotReady,
        };
    }
    answer
}

/// True if there are names below this one. `front` are the labels before `kind` and the datacenter.
fn has_names_below(front: &[&str], kind: Option<&str>, view: &View) -> bool {
    match (front, kind) {
        // The datacenter, `service` or `node` as the whole name.
        ([], _) => true,
        (_, Some("node")) => view.nodes().is_domain(&front.join(".")),
        ([label], Some("service")) => match label.strip_prefix('_') {
            Some("tcp" | "udp") => view.services().keys().any(ServiceName::is_label),
            Some(tag) => view.is_tag_folded(tag),
            None => false,
        },
        _ => false,
    }
}

fn apex(kind: QueryType, zone: &Zone, view: &View, answer: &mut Answer) {
    let server = format!("ns.{}", zone.domain);
    match kind {
        QueryType::Soa => answer.records.push(ResourceRecord { name: None, data: Data::Soa }),
        QueryType::Ns => {
            answer.records.push(ResourceRecord { name: None, data: Data::Ns(server.clone()) });
            named_addresses(&server, view.nodes().addresses(&zone.host), &mut answer.additional);
        }
        QueryType::Any => answer.records.push(ResourceRecord { name: None, data: Data::HostInfo }),
        _ => {}
    }
}

fn data_of(address: IpAddr) -> Data {
    match address {
        IpAddr::V4(ip) => Data::A(ip),
        IpAddr::V6(ip) => Data::Aaaa(ip),
    }
}

fn named_addresses(name: &str, addresses: impl Iterator<Item = IpAddr>, records: &mut Vec<ResourceRecord>) {
    records.extend(addresses.map(|ip| ResourceRecord { name: Some(name.to_owned()), data: data_of(ip) }));
}

/// Adds the addresses that match the type of the question.
fn addresses(kind: QueryType, addresses: impl Iterator<Item = IpAddr>, records: &mut Vec<ResourceRecord>) {
    let wanted = |ip: &IpAddr| match kind {
        QueryType::A => ip.is_ipv4(),
        QueryType::Aaaa => ip.is_ipv6(),
        _ => false,
    };
    records.extend(addresses.filter(wanted).map(|ip| ResourceRecord { name: None, data: data_of(ip) }));
}

fn host_info(kind: QueryType, answer: &mut Answer) {
    if kind == QueryType::Any {
        answer.records.push(ResourceRecord { name: None, data: Data::HostInfo });
    }
}

fn node(front: &[&str], kind: QueryType, view: &View, answer: &mut Answer) {
    let name = front.join(".");
    let host = view.nodes().host_folded(&name);
    match host {
        Some(host) => {
            addresses(kind, view.nodes().addresses(host), &mut answer.records);
            host_info(kind, answer);
        }
        None => {
            answer.code = ResponseCode::NoSuchName;
            answer.host = HostName::new(name).ok();
        }
    }
}

fn service(front: &[&str], kind: QueryType, view: &View, zone: &Zone, answer: &mut Answer) {
    let (name, tag) = match front {
        [name] => (*name, None),
        // RFC 2782. Consul also accepts a tag in the place of the protocol.
        [name, tag] if name.starts_with('_') && tag.starts_with('_') => {
            let tag = &tag[1..];
            (&name[1..], (tag != "tcp" && tag != "udp").then_some(tag))
        }
        [tag, name] => (*name, Some(*tag)),
        _ => {
            answer.code = ResponseCode::NoSuchName;
            return;
        }
    };
    let Some((name, found)) = view.service_folded(name) else {
        answer.code = ResponseCode::NoSuchName;
        return;
    };
    answer.service = Some(name.clone());
    if !view.health_known(name) {
        // Unchecked instances could be returned already, but it is not known which of the others
        // work.
        answer.code = ResponseCode::NotReady;
        return;
    }
    let instances = functional(found, tag);
    if instances.is_empty() && tag.is_some_and(|tag| !has_tag(found, tag)) {
        answer.code = ResponseCode::NoSuchName;
        return;
    }
    for (host, instance) in instances {
        match kind {
            QueryType::Srv => {
                // A service without a port gets SRV records as well: a client that needs only the
                // hosts may know the port from elsewhere.
                let port = instance.record.port.unwrap_or(0);
                let target = format!("{}.node.{}", host.as_str().to_ascii_lowercase(), zone.domain);
                named_addresses(&target, instance.record.addresses.iter().copied(), &mut answer.additional);
                answer.records.push(ResourceRecord { name: None, data: Data::Srv { port, target } });
            }
            _ => addresses(kind, instance.record.addresses.iter().copied(), &mut answer.records),
        }
    }
    host_info(kind, answer);
}

fn functional<'a>(service: &'a ServiceView, tag: Option<&str>) -> Vec<(&'a HostName, &'a Instance)> {
    let tagged =
        |instance: &Instance| tag.is_none_or(|tag| instance.record.tags.iter().any(|t| same_tag(t, tag)));
    service.at(Level::Functional, None).filter(|(_, instance)| tagged(instance)).collect()
}

fn has_tag(service: &ServiceView, tag: &str) -> bool {
    service.instances().values().any(|instance| instance.record.tags.iter().any(|t| same_tag(t, tag)))
}

fn same_tag(tag: &Tag, folded: &str) -> bool {
    tag.as_str().eq_ignore_ascii_case(folded) && tag.is_label()
}

fn reverse(kind: QueryType, name: String, address: &IpAddr, view: &View, zone: &Zone) -> Answer {
    let Some(host) = view.nodes().host_of(address) else {
        // Nothing is known of other addresses: the client should ask another server.
        return Answer::code(ResponseCode::Refused, None);
    };
    // The parent zone of reverse names does not belong to this server, so each name is a zone of
    // its own.
    let mut answer = Answer::code(ResponseCode::NoError, Some(name));
    match kind {
        QueryType::Ptr => {
            let name = format!("{}.node.{}", host.as_str().to_ascii_lowercase(), zone.domain);
            answer.records.push(ResourceRecord { name: None, data: Data::Ptr(name) });
        }
        QueryType::Soa => answer.records.push(ResourceRecord { name: None, data: Data::Soa }),
        _ => host_info(kind, &mut answer),
    }
    answer
}

/// Returns the address of a reverse name: `5.0.0.10.in-addr.arpa`, or 32 nibbles under `ip6.arpa`
/// (RFC 3596).
pub fn reverse_address(labels: &[&str]) -> Option<IpAddr> {
    if let [d, c, b, a, "in-addr", "arpa"] = labels {
        let octet = |text: &&str| text.parse::<u8>().ok().filter(|n| n.to_string() == **text);
        return Some(IpAddr::from([octet(a)?, octet(b)?, octet(c)?, octet(d)?]));
    }
    let nibbles = labels.strip_suffix(&["ip6", "arpa"])?;
    if nibbles.len() != 32 {
        return None;
    }
    let mut value: u128 = 0;
    for nibble in nibbles.iter().rev() {
        let mut characters = nibble.chars();
        let digit = characters.next()?.to_digit(16)?;
        if characters.next().is_some() {
            return None;
        }
        value = value << 4 | u128::from(digit);
    }
    Some(IpAddr::from(Ipv6Addr::from(value)))
}

#[cfg(test)]
mod tests;
