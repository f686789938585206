//! Decodes queries and encodes answers, with hickory's codec. Only this module uses hickory's
//! types.

use catalog::{Answer, Claim, Data, QueryType, Question, ResourceRecord, View, Zone, answer};
use hickory_proto::op::{Edns, Header, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, HINFO, NS, PTR, SOA, SRV};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use hickory_proto::serialize::binary::{BinDecodable, BinDecoder};
use schema::names::{HostName, ServiceName};

/// Longest answer by UDP without EDNS, in bytes (RFC 1035, section 4.2.1).
const PLAIN_MAX_BYTES: usize = 512;
/// Longest answer by UDP that never needs fragments, in bytes (DNS flag day 2020).
const UDP_MAX_BYTES: usize = 1232;
const HEADER_BYTES: usize = 12;
/// Offset in the header of the number of answers; the numbers of the other sections follow.
const ANSWER_COUNT_AT: usize = 6;
/// The truncation flag in the third byte of the header.
const TRUNCATED: u8 = 0x02;
/// Size of the type and class after the name of a question, in bytes.
const QUESTION_REST_BYTES: usize = 4;
/// Size of the type, class, time to live and length after the name of a record, in bytes.
const RECORD_REST_BYTES: usize = 10;
/// Returns the EDNS record (RFC 6891, section 6.1.2) for an answer; every answer to a query with
/// such a record has one. It holds the root name, its type, the largest payload that this server
/// takes by UDP, whether the client asked for signatures (RFC 3225, section 3), and nothing else.
fn options(edns: &Edns) -> [u8; 11] {
    let [high, low] = (UDP_MAX_BYTES as u16).to_be_bytes();
    let flags = if edns.flags().dnssec_ok { 0x80 } else { 0 };
    [0, 0, 41, high, low, 0, 0, flags, 0, 0, 0]
}
/// Maximum number of records in an answer. The smallest record has 16 bytes, so this many records
/// fit neither into 1232 bytes (UDP) nor into 65,535 bytes (TCP).
const RECORDS_MAX_UDP: usize = 128;
const RECORDS_MAX_TCP: usize = 4200;

/// The transport of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transport {
    Udp,
    Tcp,
}

/// The reply to a packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// No answer, because the packet is no query.
    Silence,
    /// The bytes of the answer.
    Bytes(Vec<u8>),
    /// The packet can be answered once this has been read.
    Later(PendingRead),
    /// The name is not one that this server answers for; a forwarder may know it.
    Foreign,
}

/// A read that a packet waits for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PendingRead {
    /// The health of a service that was not followed yet.
    Health(ServiceName),
    /// The claim of a host that the catalog does not have.
    Claim(HostName),
}

/// The data that answers are made from.
pub(super) struct AnswerSource<'a> {
    pub(super) view: &'a View,
    pub(super) zone: &'a Zone,
    /// The serial number in the start of authority record.
    pub(super) serial: u32,
    /// Returns the claim of a host, if it has been read.
    pub(super) claim: &'a dyn Fn(&HostName) -> Option<Claim>,
}

impl Reply {
    /// Returns the bytes of the answer, if there is one.
    pub(super) fn bytes(self) -> Option<Vec<u8>> {
        if let Self::Bytes(bytes) = self { Some(bytes) } else { None }
    }
}

/// A packet that was decoded.
pub(super) struct ParsedQuery {
    message: Message,
    query: Query,
    /// Longest answer to this query, in bytes.
    limit: usize,
}

/// Decodes a packet; `Err` holds the reply to a packet that is not looked up.
pub(super) fn read(packet: &[u8], transport: Transport) -> Result<ParsedQuery, Reply> {
    // An answer is never answered, so that no two servers can be made to answer each other forever.
    if packet.len() < HEADER_BYTES || packet[2] & 0x80 != 0 {
        return Err(Reply::Silence);
    }
    let Ok(message) = Message::from_vec(packet) else {
        let id = u16::from_be_bytes([packet[0], packet[1]]);
        let op_code = OpCode::from_u8((packet[2] >> 3) & 0x0f);
        return Err(encoded(&Message::error_msg(id, op_code, ResponseCode::FormErr)));
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
    Ok(ParsedQuery { message, query, limit })
}

impl ParsedQuery {
    /// Answers the query from the given data. `seed` determines the order of the records.
    /// `can_wait` is true if the caller can wait for data that is missing.
    pub(super) fn answer(
        &self,
        known: &AnswerSource<'_>,
        seed: &mut u64,
        can_wait: bool,
        forwards: bool,
    ) -> (Reply, Option<ServiceName>) {
        let AnswerSource { view, zone, claim, .. } = *known;
        let name = self.query.name.to_lowercase();
        // Bytes that are not UTF-8 become a character that no name of this server has.
        let labels: Vec<_> = name.iter().map(String::from_utf8_lossy).collect();
        let labels: Vec<&str> = labels.iter().map(AsRef::as_ref).collect();
        let kind = QueryType::of_number(self.query.query_type.into());
        let mut found = answer(&Question { labels, kind }, view, zone);
        if let Some(host) = found.host.take() {
            match claim(&host) {
                None if can_wait => return (Reply::Later(PendingRead::Claim(host)), None),
                claim => found = found.with_claim(&claim.unwrap_or(Claim::Unknown), kind),
            }
        }
        use catalog::ResponseCode as Code;
        let code = match found.code {
            Code::NoError => ResponseCode::NoError,
            Code::NoSuchName => ResponseCode::NXDomain,
            Code::Refused if forwards => return (Reply::Foreign, None),
            Code::Refused => return (encoded(&response(&self.message, ResponseCode::Refused)), None),
            Code::NotReady if can_wait && let Some(service) = &found.service => {
                return (Reply::Later(PendingRead::Health(service.clone())), Some(service.clone()));
            }
            Code::NotReady => ResponseCode::ServFail,
        };
        shuffle(&mut found.records, seed);
        // So many records never fit, so `fit` still finds records to cut and sets the truncation
        // flag.
        found.records.truncate(if self.limit > UDP_MAX_BYTES { RECORDS_MAX_TCP } else { RECORDS_MAX_UDP });
        let service = found.service.clone();
        (self.encode(found, code, known, forwards), service)
    }

    fn encode(&self, found: Answer, code: ResponseCode, source: &AnswerSource<'_>, forwards: bool) -> Reply {
        let (zone, serial) = (source.zone, source.serial);
        let mut message = response(&self.message, code);
        // No server has the authority for all classes together (RFC 1035, section 6.2).
        let is_one_class = self.query.query_class == DNSClass::IN;
        message.metadata.authoritative = code != ResponseCode::ServFail && is_one_class;
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
        // More records would not fit, and a service may have thousands of instances.
        let most = if self.limit > UDP_MAX_BYTES { RECORDS_MAX_TCP } else { RECORDS_MAX_UDP };
        message.additionals = found.additional.iter().take(most).filter_map(record).collect();
        fit(message, self.limit)
    }
}

/// Drops what does not fit: first the additional records, then authorities, then answers, for which
/// the truncation flag is set. The EDNS record stays. Names are compressed by pointers to earlier
/// bytes (RFC 1035, section 4.1.4), so the encoded message can be cut after any record.
fn fit(mut message: Message, limit: usize) -> Reply {
    let options = message.edns.take().map(|edns| options(&edns));
    let options = options.as_ref().map_or(&[][..], |options| &options[..]);
    let limit_bytes = limit - options.len();
    let answers = message.answers.len();
    // The encoder itself cuts a message that is longer than any message can be, and leaves the
    // bytes that it cut after the last record.
    let Ok(mut bytes) = message.to_vec() else { return Reply::Silence };
    let count_of = |section: usize| {
        let at = ANSWER_COUNT_AT + 2 * section;
        u16::from_be_bytes([bytes[at], bytes[at + 1]])
    };
    let counts = [count_of(0), count_of(1), count_of(2)];
    let question_end = end_of_name(&bytes, HEADER_BYTES).map(|end| end + QUESTION_REST_BYTES);
    let Some(mut end) = question_end.filter(|end| *end <= limit_bytes) else { return Reply::Silence };
    let mut kept = [0_u16; 3];
    'sections: for (section, count) in counts.into_iter().enumerate() {
        for _ in 0..count {
            let Some(next) = end_of_record(&bytes, end).filter(|next| *next <= limit_bytes) else {
                break 'sections;
            };
            end = next;
            kept[section] += 1;
        }
    }
    bytes.truncate(end);
    bytes.extend_from_slice(options);
    let is_cut = usize::from(kept[0]) < answers;
    kept[2] += u16::from(!options.is_empty());
    bytes[2] = bytes[2] & !TRUNCATED | if is_cut { TRUNCATED } else { 0 };
    for (section, count) in kept.into_iter().enumerate() {
        let at = ANSWER_COUNT_AT + 2 * section;
        bytes[at..at + 2].copy_from_slice(&count.to_be_bytes());
    }
    Reply::Bytes(bytes)
}

/// Returns the offset after a name in a message that this server encoded.
fn end_of_name(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *bytes.get(at)? {
            0 => return Some(at + 1),
            // A pointer ends a name.
            length if length & 0xc0 != 0 => return Some(at + 2),
            length => at += 1 + usize::from(length),
        }
    }
}

/// Returns the offset after a record, if the record is complete.
fn end_of_record(bytes: &[u8], at: usize) -> Option<usize> {
    let data = end_of_name(bytes, at)? + RECORD_REST_BYTES;
    let length = bytes.get(data - 2..data)?;
    let end = data + usize::from(u16::from_be_bytes([length[0], length[1]]));
    (end <= bytes.len()).then_some(end)
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

fn response(request: &Message, code: ResponseCode) -> Message {
    let mut message = Message::new(request.metadata.id, MessageType::Response, request.metadata.op_code);
    message.metadata.recursion_desired = request.metadata.recursion_desired;
    message.metadata.response_code = code;
    message.queries = request.queries.iter().take(1).cloned().collect();
    if let Some(request) = &request.edns {
        let mut edns = Edns::new();
        edns.set_max_payload(UDP_MAX_BYTES as u16).set_version(0);
        edns.set_dnssec_ok(request.flags().dnssec_ok);
        message.edns = Some(edns);
    }
    message
}

/// Returns the reply to a query that no forwarder answered.
pub(super) fn failed(packet: &[u8]) -> Reply {
    match Message::from_vec(packet) {
        Ok(message) => encoded(&response(&message, ResponseCode::ServFail)),
        Err(_) => Reply::Silence,
    }
}

/// Returns the reply to a query for a name that this server does not answer for.
pub(super) fn refused(packet: &[u8]) -> Reply {
    match Message::from_vec(packet) {
        Ok(message) => encoded(&response(&message, ResponseCode::Refused)),
        Err(_) => Reply::Silence,
    }
}

/// What a packet of a forwarder means for a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ForwardedAnswer {
    /// The message answers the query.
    Good,
    /// The message says that the forwarder has no answer; another one may have it.
    Failed,
    /// The message is no answer to this query.
    Unrelated,
}

/// Compares a packet with the query that was sent (RFC 5452, section 9.1): it must be an answer and
/// have the id, the name, the type and the class of the query. Records are not decoded, because new
/// types must pass.
pub(super) fn classify(answer: &[u8], query: &[u8], transport: Transport) -> ForwardedAnswer {
    let head = |packet: &[u8]| {
        let mut decoder = BinDecoder::new(packet);
        let header = Header::read(&mut decoder).ok()?;
        let count = usize::from(header.counts.queries);
        Some((header, Message::read_queries(&mut decoder, count).ok()?))
    };
    let (Some((got, questions)), Some((sent, wanted))) = (head(answer), head(query)) else {
        return ForwardedAnswer::Unrelated;
    };
    let (Header { metadata: got, counts, .. }, sent) = (got, sent.metadata);
    use ResponseCode::{FormErr, NotImp, Refused, ServFail};
    let has_failed = matches!(got.response_code, FormErr | NotImp | Refused | ServFail);
    // A server that could not read the query may leave it out.
    let is_same = questions == wanted || (has_failed && questions.is_empty());
    let is_answer = got.message_type == MessageType::Response;
    if !is_answer || !is_same || (got.id, got.op_code) != (sent.id, sent.op_code) {
        return ForwardedAnswer::Unrelated;
    }
    // Neither an answer nor a server that looks further: a referral, which no client follows.
    let is_lame = got.response_code == ResponseCode::NoError
        && counts.answers == 0
        && sent.recursion_desired
        && !(got.recursion_available || got.authoritative || got.truncation);
    let is_cut = got.truncation && transport == Transport::Tcp;
    if has_failed || is_lame || is_cut { ForwardedAnswer::Failed } else { ForwardedAnswer::Good }
}

fn encoded(message: &Message) -> Reply {
    message.to_vec().map_or(Reply::Silence, Reply::Bytes)
}

/// Shuffles the items, by Fisher and Yates with xorshift64.
fn shuffle<T>(items: &mut [T], seed: &mut u64) {
    for at in (1..items.len()).rev() {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        let other = usize::try_from(*seed % (at as u64 + 1)).unwrap_or(0);
        items.swap(at, other);
    }
}

/// Longest accepted query by UDP, in bytes.
pub const QUESTION_MAX_BYTES: usize = 4096;
