//! Checks that no packet makes the DNS server panic, or send a reply that is not a valid answer.
//! The first byte of the input selects the transport.
#![no_main]

use agent::dns::{QUESTION_MAX_BYTES, answer_packet};
use hickory_proto::op::{Message, MessageType};
use catalog::{View, catalog_at_once, Zone};
use schema::records::ServiceRecord;
use schema::names::{HostName, ServiceName};
use std::sync::{LazyLock, Arc};

static SCENE: LazyLock<(View, Zone)> = LazyLock::new(|| {
    let record = |number: u8, port: u16| {
        let json = format!(
            r#"{{"addresses":["10.0.0.{number}","fd00::{number}"],"port":{port},"tags":["blue"]}}"#
        );
        let host = HostName::new(format!("host-{number}")).expect("a name");
        let record = ServiceRecord::read(&host, json.as_bytes()).expect("a record");
        (host, (Arc::new(record), false))
    };
    let records = (1..=100).flat_map(|number| {
        let service = ServiceName::new(if number % 2 == 0 { "web" } else { "db" }).expect("a name");
        let (host, record) = record(number, 80);
        [((service, host), record)]
    });
    let zone = Zone {
        domain: "consul".into(),
        datacenter: Some("dc1".into()),
        host: HostName::new("h1").expect("a name"),
        ttl: 5,
        negative_ttl: 5,
    };
    (catalog_at_once(records.collect(), []), zone)
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((how, packet)) = bytes.split_first() else { return };
    let by_tcp = how % 2 == 1;
    if !by_tcp && packet.len() > QUESTION_MAX_BYTES {
        return;
    }
    let (view, zone) = &*SCENE;
    if let Some(answer) = answer_packet(packet, view, zone, by_tcp) {
        let message = Message::from_vec(&answer).expect("an answer that can be read");
        assert_eq!(message.metadata.message_type, MessageType::Response);
        assert_eq!(answer[..2], packet[..2], "the id of the question");
        assert!(by_tcp || answer.len() <= 1232, "{} bytes by UDP", answer.len());
    }
});
