//! Tests with packets that no well-behaved client sends, and of answers, which must fit whatever
//! they contain.

use super::answer_packet;
use catalog::{StoredRecord, View, Zone, catalog_at_once};
use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RecordType};
use proptest::prelude::*;
use schema::names::{HostName, ServiceName};
use schema::records::ServiceRecord;
use std::collections::BTreeMap;

fn zone() -> Zone {
    Zone {
        domain: "consul".into(),
        datacenter: Some("dc1".into()),
        host: HostName::new("h1").unwrap(),
        ttl: 5,
        negative_ttl: 5,
    }
}

fn view(instances: usize) -> View {
    let web = ServiceName::new("web").unwrap();
    let record = |number: usize| ServiceRecord {
        addresses: vec![
            format!("10.0.{}.{}", number / 250, number % 250 + 1).parse().unwrap(),
            "fd00::1".parse().unwrap(),
        ],
        port: Some(80),
        ..ServiceRecord::default()
    };
    let host = |number: usize| HostName::new(format!("host-{number}")).unwrap();
    let records: BTreeMap<_, _> =
        (0..instances).map(|n| ((web.clone(), host(n)), StoredRecord::new(record(n), false))).collect();
    catalog_at_once(records, [])
}

fn answer(packet: &[u8], view: &View, by_tcp: bool) -> Option<Vec<u8>> {
    answer_packet(packet, view, &zone(), by_tcp)
}

fn question(name: &str, kind: RecordType) -> Message {
    let mut message = Message::new(4711, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    message
}

#[test]
fn what_is_no_question_gets_silence_or_an_error_and_never_more() {
    let view = view(3);
    let good = question("web.service.consul.", RecordType::A).to_vec().unwrap();
    let code = |packet: &[u8]| {
        let bytes = answer(packet, &view, false)?;
        Some(Message::from_vec(&bytes).unwrap().metadata.response_code)
    };
    assert_eq!(code(&good), Some(ResponseCode::NoError));
    let changed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut packet = good.clone();
        change(&mut packet);
        packet
    };
    for (what, packet, expected) in [
        ("empty", Vec::new(), None),
        ("short", good[..11].to_vec(), None),
        ("an answer", changed(&|p| p[2] |= 0x80), None),
        ("cut", good[..20].to_vec(), Some(ResponseCode::FormErr)),
        ("two questions", changed(&|p| p[5] = 2), Some(ResponseCode::FormErr)),
        ("no question", changed(&|p| p[5] = 0), Some(ResponseCode::FormErr)),
        (
            "a name that points to itself",
            changed(&|p| p[12..14].copy_from_slice(&[0xc0, 12])),
            Some(ResponseCode::FormErr),
        ),
        (
            "a name that points ahead",
            changed(&|p| p[12..14].copy_from_slice(&[0xc0, 20])),
            Some(ResponseCode::FormErr),
        ),
        ("an update", changed(&|p| p[2] = 0x28), Some(ResponseCode::NotImp)),
        (
            "an update that is cut",
            changed(&|p| {
                p[2] = 0x28;
                p.truncate(20)
            }),
            Some(ResponseCode::FormErr),
        ),
    ] {
        let found = code(&packet);
        if found.is_some() {
            let answer_flags = answer(&packet, &view, false).unwrap()[2];
            assert_eq!(answer_flags & 0x78, packet[2] & 0x78, "{what}: the opcode of the question");
        }
        let fine = found == expected || (expected == Some(ResponseCode::FormErr) && found.is_some());
        assert!(fine, "{what}: {found:?}");
        if what != "no question" && what != "two questions" {
            assert_eq!(found, expected, "{what}");
        }
    }
}

#[test]
fn an_answer_fits_and_says_when_it_was_cut() {
    let view = view(500);
    for (kind, per_answer) in [(RecordType::A, 16), (RecordType::SRV, 30)] {
        for (payload, limit) in [(None, 512), (Some(1232), 1232), (Some(65_535), 1232), (Some(100), 512)] {
            let mut request = question("web.service.consul.", kind);
            if let Some(payload) = payload {
                let mut edns = hickory_proto::op::Edns::new();
                edns.set_max_payload(payload);
                request.set_edns(edns);
            }
            let bytes = answer(&request.to_vec().unwrap(), &view, false).unwrap();
            assert!(
                bytes.len() <= limit && bytes.len() + 2 * per_answer + 20 > limit,
                "{kind} {payload:?}: {}",
                bytes.len()
            );
            let message = Message::from_vec(&bytes).unwrap();
            assert!(message.metadata.truncation && message.metadata.authoritative);
            assert_eq!(message.edns.is_some(), payload.is_some());
            assert!(message.answers.len() > 10);
        }
        let request = question("web.service.consul.", kind).to_vec().unwrap();
        let bytes = answer(&request, &view, true).unwrap();
        let message = Message::from_vec(&bytes).unwrap();
        assert_eq!((message.answers.len(), message.metadata.truncation), (500, false));
    }
}

#[test]
fn an_answer_says_of_signatures_what_its_question_said() {
    let view = view(1);
    let check = |what: &str, dnssec_ok: bool, change: &dyn Fn(&mut Message), code: ResponseCode| {
        let mut request = question("web.service.consul.", RecordType::A);
        let mut edns = hickory_proto::op::Edns::new();
        edns.set_dnssec_ok(dnssec_ok);
        request.set_edns(edns);
        change(&mut request);
        for by_tcp in [false, true] {
            let bytes = answer(&request.to_vec().unwrap(), &view, by_tcp).unwrap();
            let message = Message::from_vec(&bytes).unwrap();
            let flags = *message.edns.as_ref().unwrap().flags();
            assert_eq!((flags.dnssec_ok, flags.z), (dnssec_ok, 0), "{what}");
            // The number 16 has two names, BADVERS and BADSIG.
            assert_eq!(u16::from(message.metadata.response_code), u16::from(code), "{what}");
        }
    };
    for dnssec_ok in [false, true] {
        check("an answer", dnssec_ok, &|_| (), ResponseCode::NoError);
        let version = |request: &mut Message| {
            request.edns.as_mut().unwrap().set_version(1);
        };
        check("another version of EDNS", dnssec_ok, &version, ResponseCode::BADVERS);
        let class = |request: &mut Message| {
            request.queries[0].set_query_class(DNSClass::CH);
        };
        check("another class", dnssec_ok, &class, ResponseCode::Refused);
    }
}

#[test]
fn a_datacenter_and_a_long_name_and_no_name() {
    let view = view(1);
    let check = |name: &str, kind, expected: ResponseCode, answers: usize| {
        let mut request = question(name, kind).to_vec().unwrap();
        for byte in &mut request {
            // The letters stand for bytes that no text of a name contains.
            *byte = match *byte {
                b'N' => 0,
                b'F' => 255,
                other => other,
            };
        }
        let bytes = answer(&request, &view, false).unwrap();
        let message = Message::from_vec(&bytes).unwrap();
        assert_eq!((message.metadata.response_code, message.answers.len()), (expected, answers), "{name}");
        assert_eq!(message.metadata.id, 4711);
        assert!(message.metadata.recursion_desired && !message.metadata.recursion_available);
    };
    use ResponseCode::{NXDomain, NoError, Refused};
    check("web.service.dc1.consul.", RecordType::A, NoError, 1);
    check("host-0.node.dc1.consul.", RecordType::AAAA, NoError, 1);
    check("web.service.dc2.consul.", RecordType::A, NXDomain, 0);
    check("service.consul.", RecordType::A, NoError, 0);
    check("consul.", RecordType::SOA, NoError, 1);
    check("a.b.c.d.service.consul.", RecordType::A, NXDomain, 0);
    check(".", RecordType::NS, Refused, 0);
    check(&format!("{}.service.consul.", "x".repeat(63)), RecordType::A, NXDomain, 0);
    check("1.0.0.10.in-addr.arpa.", RecordType::PTR, NoError, 1);
    check("1.0.0.10.in-addr.arpa.", RecordType::A, NoError, 0);
    check("9.0.0.10.in-addr.arpa.", RecordType::PTR, Refused, 0);
    check("weN.service.consul.", RecordType::A, NXDomain, 0);
    check("weF.service.consul.", RecordType::A, NXDomain, 0);
    check("web.serviceN.consul.", RecordType::A, NXDomain, 0);
    check("weF.example.org.", RecordType::A, Refused, 0);
}

#[test]
fn only_a_question_of_one_class_gets_an_answer_of_authority() {
    for (class, expected) in [(DNSClass::IN, true), (DNSClass::ANY, false)] {
        let mut request = question("web.service.consul.", RecordType::A);
        request.queries[0].set_query_class(class);
        let bytes = answer(&request.to_vec().unwrap(), &view(1), false).unwrap();
        let message = Message::from_vec(&bytes).unwrap();
        assert_eq!((message.answers.len(), message.metadata.authoritative), (1, expected), "{class}");
    }
}

proptest! {
    #[test]
    fn no_packet_makes_it_stumble(
        mut packet in prop::collection::vec(any::<u8>(), 0..600),
        like in any::<bool>(),
        at in 0usize..40,
        tcp in any::<bool>(),
    ) {
        let view = view(20);
        if like {
            // The packet becomes one that is nearly a query.
            let good = question("web.service.consul.", RecordType::SRV).to_vec().unwrap();
            let rest = packet.split_off(packet.len().min(4));
            let mut changed = good.clone();
            let place = at.min(changed.len());
            changed.splice(place..(place + 2).min(good.len()), packet);
            packet = changed;
            packet.extend(rest.into_iter().take(at));
        }
        if let Some(bytes) = answer(&packet, &view, tcp) {
            let message = Message::from_vec(&bytes);
            prop_assert!(message.is_ok(), "{:?}", message);
            prop_assert!(bytes[2] & 0x80 != 0, "an answer says that it is one");
            prop_assert_eq!(&bytes[..2], &packet[..2]);
            prop_assert!(tcp || bytes.len() <= 1232);
        }
    }
}
