//! The answer of the DNS server: a pure function of question and catalog. Encoding, transport and limits
//! are the agent's.
//!
//! Names, as Consul has them: `[tag.]service.service[.datacenter].domain`, `_service._tag-or-proto.service…`
//! (RFC 2782), `host.node[.datacenter].domain`, and the reverse names of every known address. Names are compared
//! without case (RFC 4343).

use crate::instance::Instance;
use crate::view::{ServiceView, View};
use schema::codec;
use schema::codec::ValueError;
use schema::health::Level;
use schema::names::{HostName, ServiceName, Tag};
use schema::records::{LiveClaim, usable_addresses};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// What the server answers for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    /// The domain, in lower case, without dots at its ends.
    pub domain: String,
    /// The name of this datacenter, in lower case.
    pub datacenter: Option<String>,
    /// The name of the host that answers.
    pub host: HostName,
    /// Time to live of what is answered, in seconds.
    pub ttl: u32,
    /// For how long "there is none" may be kept, in seconds.
    pub negative_ttl: u32,
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QueryType {
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
    /// Host and port.
    Srv,
    /// The name of an address.
    Ptr,
    /// The start of authority.
    Soa,
    /// The name servers.
    Ns,
    /// Anything; answered minimally (RFC 8482).
    Any,
    /// A type that exists and that nothing here has.
    Other,
}

/// A question, its name in lower case and without the final dot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question<'a> {
    /// The labels, from left to right.
    pub labels: Vec<&'a str>,
    /// The type.
    pub kind: QueryType,
}

/// How a question ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseCode {
    /// There is such a name; maybe with no data of the type.
    NoError,
    /// There is no such name.
    NoSuchName,
    /// None of our names.
    Refused,
    /// The catalog has not been read yet.
    NotReady,
}

/// The data of one record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Data {
    /// An IPv4 address.
    A(Ipv4Addr),
    /// An IPv6 address.
    Aaaa(Ipv6Addr),
    /// Port and host.
    Srv {
        /// The port; 0 of a service that has none.
        port: u16,
        /// The name of the host.
        target: String,
    },
    /// A name.
    Ptr(String),
    /// The start of authority.
    Soa,
    /// A name server.
    Ns(String),
    /// What is said to "anything": nothing (RFC 8482).
    HostInfo,
}

/// One record of an answer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResourceRecord {
    /// Its owner; `None`: the name that was asked for.
    pub name: Option<String>,
    /// Its data.
    pub data: Data,
}

/// The claim of a host's name, which each agent keeps in the store, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// A host claims the name, and these are the addresses that others can reach.
    Of(Arc<[IpAddr]>),
    /// Nobody does.
    Nobody,
    /// It cannot be told.
    Unknown,
}

impl Claim {
    /// As it stands in the store, if it is there.
    ///
    /// # Errors
    /// It is there and cannot be read: whoever claims the name has no known address.
    pub fn read(value: Option<&[u8]>) -> Result<Self, ValueError> {
        let Some(value) = value else { return Ok(Self::Nobody) };
        let claim: LiveClaim = codec::read(value)?;
        let addresses = claim.addresses.iter().filter_map(|text| text.parse().ok());
        Ok(Self::Of(usable_addresses(addresses).into()))
    }
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// How it ended.
    pub code: ResponseCode,
    /// What was asked for.
    pub records: Vec<ResourceRecord>,
    /// Addresses of names in it.
    pub additional: Vec<ResourceRecord>,
    /// The zone of the name; its start of authority goes with a negative answer. `None` outside our zones.
    pub zone: Option<String>,
    /// The service whose health decides; it should be followed from now on.
    pub service: Option<ServiceName>,
    /// A host that the catalog does not have. The claim of its name says whether there is one: [`Answer::with_claim`].
    pub host: Option<HostName>,
}

impl Answer {
    fn code(code: ResponseCode, zone: Option<String>) -> Self {
        Self { code, records: Vec::new(), additional: Vec::new(), zone, service: None, host: None }
    }

    /// The answer with what is known of the claim of [`Answer::host`]; its kind is that of the question.
    #[must_use]
    pub fn with_claim(mut self, claim: &Claim, kind: QueryType) -> Self {
        match claim {
            Claim::Of(list) => {
                self.code = ResponseCode::NoError;
                addresses(kind, list.iter().copied(), &mut self.records);
                host_info(kind, &mut self);
            }
            Claim::Unknown if self.code == ResponseCode::NoSuchName => self.code = ResponseCode::NotReady,
            // It is there because others stand below it, or is not there.
            Claim::Unknown | Claim::Nobody => {}
        }
        self
    }

    /// True if there is nothing of what was asked for.
    pub fn is_negative(&self) -> bool {
        self.records.is_empty()
    }
}

/// Answers a question.
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
    // The name may name the datacenter behind its kind, and by itself.
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
        answer.code = match (view.records_known(), has_names_below(inner, view)) {
            // A name is there, and empty, when another stands below it (RFC 4592, section 2.2.2).
            (_, true) => ResponseCode::NoError,
            (true, false) => ResponseCode::NoSuchName,
            (false, false) => ResponseCode::NotReady,
        };
    }
    answer
}

/// True if there are names below this one, which stands before `kind` and the datacenter.
fn has_names_below((front, kind): (&[&str], Option<&str>), view: &View) -> bool {
    match (front, kind) {
        // The datacenter, `service` and `node` by themselves.
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

/// Adds the addresses of the type asked for.
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
        // RFC 2782; a protocol stands where Consul takes a tag as well.
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
        // Instances that nobody checks could be told already, but not which of the others work.
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
                // Whoever asks for hosts finds them, and knows by itself where to knock.
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
        // Of other addresses we know nothing: whoever asks shall ask somebody else.
        return Answer::code(ResponseCode::Refused, None);
    };
    // The zone above reverse names is none of ours, so each is a zone of its own.
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

/// The address that a reverse name stands for: `5.0.0.10.in-addr.arpa`, or 32 nibbles under `ip6.arpa` (RFC 3596).
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
