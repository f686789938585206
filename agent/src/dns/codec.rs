//! From bytes to a question and from an answer to bytes, by hickory's codec. Its types stay in here.

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, HINFO, NS, PTR, SOA, SRV};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use model::catalog::{Answer, Data, QueryType, Question, ResourceRecord, View, Zone, answer};
use model::names::ServiceName;

/// Longest answer by UDP without EDNS (RFC 1035, section 4.2.1).
const PLAIN_MAX_BYTES: usize = 512;
/// Longest answer by UDP that never needs fragments (DNS flag day 2020).
const UDP_MAX_BYTES: usize = 1232;
const HEADER_BYTES: usize = 12;
/// The smallest record has 16 bytes: so many do not fit into 1232, or into 65,535.
const RECORDS_MAX_UDP: usize = 128;
const RECORDS_MAX_TCP: usize = 4200;

/// How a question came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transport {
    Udp,
    Tcp,
}

/// What becomes of a packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// Nothing is answered: it is no question.
    Silence,
    /// These bytes.
    Bytes(Vec<u8>),
    /// The health of this service is not followed yet; once it is the packet can be answered.
    Later(ServiceName),
    /// None of our names: somebody else may know.
    Foreign,
}

/// A packet that was read.
pub(super) struct Asked {
    message: Message,
    query: Query,
    /// Longest answer.
    limit: usize,
}

/// Reads a packet; `Err` with what is to be answered at once.
pub(super) fn read(packet: &[u8], transport: Transport) -> Result<Asked, Reply> {
    // An answer is never answered, so that no two servers can be made to talk for ever.
    if packet.len() < HEADER_BYTES || packet[2] & 0x80 != 0 {
        return Err(Reply::Silence);
    }
    let Ok(message) = Message::from_vec(packet) else {
        let id = u16::from_be_bytes([packet[0], packet[1]]);
        return Err(encoded(&Message::error_msg(id, OpCode::Query, ResponseCode::FormErr)));
    };
    let limit = match (transport, &message.edns) {
        (Transport::Tcp, _) => usize::from(u16::MAX),
        (Transport::Udp, None) => PLAIN_MAX_BYTES,
        (Transport::Udp, Some(edns)) => usize::from(edns.max_payload()).clamp(PLAIN_MAX_BYTES, UDP_MAX_BYTES),
    };
    if message.metadata.op_code != OpCode::Query {
        return Err(encoded(&response(&message, ResponseCode::NotImp)));
    }
    let [query] = message.queries.as_slice() else {
        return Err(encoded(&response(&message, ResponseCode::FormErr)));
    };
    let query = query.clone();
    if message.edns.as_ref().is_some_and(|edns| edns.version() != 0) {
        return Err(encoded(&response(&message, ResponseCode::BADVERS)));
    }
    let is_transfer = matches!(query.query_type, RecordType::AXFR | RecordType::IXFR);
    if is_transfer || !matches!(query.query_class, DNSClass::IN | DNSClass::ANY) {
        return Err(encoded(&response(&message, ResponseCode::Refused)));
    }
    Ok(Asked { message, query, limit })
}

impl Asked {
    /// Answers from the catalog. `seed` decides the order; `can_wait` whether to wait for health.
    pub(super) fn answer(
        &self,
        view: &View,
        zone: &Zone,
        serial: u32,
        seed: &mut u64,
        can_wait: bool,
        forwards: bool,
    ) -> (Reply, Option<ServiceName>) {
        let name = self.query.name.to_lowercase();
        let labels: Option<Vec<&str>> = name.iter().map(|label| std::str::from_utf8(label).ok()).collect();
        let Some(labels) = labels else {
            // None of our names has bytes that are no text.
            return (encoded(&response(&self.message, ResponseCode::Refused)), None);
        };
        let kind = match self.query.query_type {
            RecordType::A => QueryType::A,
            RecordType::AAAA => QueryType::Aaaa,
            RecordType::SRV => QueryType::Srv,
            RecordType::PTR => QueryType::Ptr,
            RecordType::SOA => QueryType::Soa,
            RecordType::NS => QueryType::Ns,
            RecordType::ANY => QueryType::Any,
            _ => QueryType::Other,
        };
        let mut found = answer(&Question { labels, kind }, view, zone);
        use model::catalog::ResponseCode as Code;
        let code = match found.code {
            Code::NoError => ResponseCode::NoError,
            Code::NoSuchName => ResponseCode::NXDomain,
            Code::Refused if forwards => return (Reply::Foreign, None),
            Code::Refused => return (encoded(&response(&self.message, ResponseCode::Refused)), None),
            Code::NotReady if can_wait && let Some(service) = &found.service => {
                return (Reply::Later(service.clone()), Some(service.clone()));
            }
            Code::NotReady => ResponseCode::ServFail,
        };
        shuffle(&mut found.records, seed);
        // So many never fit; that some are missing is said when the rest is fitted.
        found.records.truncate(if self.limit > UDP_MAX_BYTES { RECORDS_MAX_TCP } else { RECORDS_MAX_UDP });
        let service = found.service.clone();
        (self.encode(found, code, zone, serial, forwards), service)
    }

    fn encode(&self, found: Answer, code: ResponseCode, zone: &Zone, serial: u32, forwards: bool) -> Reply {
        let mut message = response(&self.message, code);
        message.metadata.authoritative = code != ResponseCode::ServFail;
        message.metadata.recursion_available = forwards;
        let record = |record: &ResourceRecord| {
            let name = match &record.name {
                Some(name) => Name::from_ascii(format!("{name}.")).ok()?,
                None => self.query.name.clone(),
            };
            Some(Record::from_rdata(name, zone.ttl, data(&record.data, zone, serial)?))
        };
        message.answers = found.records.iter().filter_map(record).collect();
        let negative = found.is_negative() && code != ResponseCode::ServFail;
        if negative && let Some(domain) = &found.zone {
            let soa = data(&Data::Soa, zone, serial).zip(Name::from_ascii(format!("{domain}.")).ok());
            let soa = soa.map(|(soa, name)| Record::from_rdata(name, zone.negative_ttl, soa));
            message.authorities.extend(soa);
        }
        // More would not fit, and a service may have thousands of instances.
        let most = if self.limit > UDP_MAX_BYTES { RECORDS_MAX_TCP } else { RECORDS_MAX_UDP };
        message.additionals = found.additional.iter().take(most).filter_map(record).collect();
        fit(message, self.limit)
    }
}

/// Drops what does not fit: first what was not asked for, then answers, which is said by the truncation flag. The
/// records of EDNS stay.
fn fit(mut message: Message, limit: usize) -> Reply {
    // The encoder cuts by itself what is longer than any message, and sets the flag.
    let fits = |message: &Message| {
        let is_whole = |bytes: &Vec<u8>| (bytes[2] & 0x02 != 0) == message.metadata.truncation;
        message.to_vec().ok().filter(|bytes| bytes.len() <= limit && is_whole(bytes))
    };
    if let Some(bytes) = fits(&message) {
        return Reply::Bytes(bytes);
    }
    let additionals = std::mem::take(&mut message.additionals);
    if let Some(bare) = fits(&message) {
        let (mut low, mut high) = (0, additionals.len());
        let mut best = bare;
        while low < high {
            let middle = (low + high).div_ceil(2);
            message.additionals = additionals[..middle].to_vec();
            match fits(&message) {
                Some(bytes) => {
                    best = bytes;
                    low = middle;
                }
                None => high = middle - 1,
            }
        }
        return Reply::Bytes(best);
    }
    message.metadata.truncation = true;
    let answers = std::mem::take(&mut message.answers);
    let (mut low, mut high) = (0, answers.len());
    let mut best = fits(&message);
    while low < high {
        let middle = (low + high).div_ceil(2);
        message.answers = answers[..middle].to_vec();
        match fits(&message) {
            Some(bytes) => {
                best = Some(bytes);
                low = middle;
            }
            None => high = middle - 1,
        }
    }
    best.map_or(Reply::Silence, Reply::Bytes)
}

fn data(data: &Data, zone: &Zone, serial: u32) -> Option<RData> {
    let name = |text: &str| Name::from_ascii(format!("{text}.")).ok();
    Some(match data {
        Data::A(ip) => RData::A(A(*ip)),
        Data::Aaaa(ip) => RData::AAAA(AAAA(*ip)),
        Data::Srv { port, target } => RData::SRV(SRV::new(1, 1, *port, name(target)?)),
        Data::Ptr(target) => RData::PTR(PTR(name(target)?)),
        Data::Ns(server) => RData::NS(NS(name(server)?)),
        Data::HostInfo => RData::HINFO(HINFO::new("RFC8482".into(), String::new())),
        Data::Soa => RData::SOA(SOA::new(
            name(&format!("ns.{}", zone.domain))?,
            name(&format!("hostmaster.{}", zone.domain))?,
            serial,
            3600,
            600,
            86_400,
            zone.negative_ttl,
        )),
    })
}

fn response(asked: &Message, code: ResponseCode) -> Message {
    let mut message = Message::new(asked.metadata.id, MessageType::Response, asked.metadata.op_code);
    message.metadata.recursion_desired = asked.metadata.recursion_desired;
    message.metadata.response_code = code;
    message.queries = asked.queries.iter().take(1).cloned().collect();
    if asked.edns.is_some() {
        let mut edns = Edns::new();
        edns.set_max_payload(UDP_MAX_BYTES as u16).set_version(0);
        message.edns = Some(edns);
    }
    message
}

/// Says that the answer could not be had elsewhere.
pub(super) fn failed(packet: &[u8]) -> Reply {
    match Message::from_vec(packet) {
        Ok(message) => encoded(&response(&message, ResponseCode::ServFail)),
        Err(_) => Reply::Silence,
    }
}

/// Says that the name is none of ours.
pub(super) fn refused(packet: &[u8]) -> Reply {
    match Message::from_vec(packet) {
        Ok(message) => encoded(&response(&message, ResponseCode::Refused)),
        Err(_) => Reply::Silence,
    }
}

fn encoded(message: &Message) -> Reply {
    message.to_vec().map_or(Reply::Silence, Reply::Bytes)
}

/// Fisher and Yates, with xorshift64.
fn shuffle<T>(items: &mut [T], seed: &mut u64) {
    for at in (1..items.len()).rev() {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        let other = usize::try_from(*seed % (at as u64 + 1)).unwrap_or(0);
        items.swap(at, other);
    }
}
