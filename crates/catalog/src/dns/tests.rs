use super::*;
use crate::guard::GuardSettings;
use crate::instance::{CatalogFact, StoredRecord};
use crate::state::{Catalog, catalog_at_once};
use schema::records::ServiceRecord;
use schema::time::BootMillis;
use std::collections::BTreeMap;

fn zone(datacenter: Option<&str>) -> Zone {
    Zone {
        domain: "consul".into(),
        datacenter: datacenter.map(Into::into),
        host: HostName::new("h1").unwrap(),
        ttl: 5,
        negative_ttl: 5,
    }
}

fn record(tags: &[&str]) -> ServiceRecord {
    ServiceRecord {
        addresses: vec!["10.0.0.1".parse().unwrap()],
        port: Some(80),
        tags: tags.iter().map(|tag| Tag::new(tag).unwrap()).collect(),
        ..ServiceRecord::default()
    }
}

fn names(service: &str, host: &str) -> (ServiceName, HostName) {
    (ServiceName::new(service).unwrap(), HostName::new(host).unwrap())
}

fn view(services: &[(&str, &str, &[&str])]) -> View {
    let record = |tags| StoredRecord::new(record(tags), false);
    let records: BTreeMap<_, _> =
        services.iter().map(|(service, host, tags)| (names(service, host), record(tags))).collect();
    catalog_at_once(records, [])
}

/// What a test table expects of a name.
#[derive(Debug, PartialEq, Eq)]
enum Expected {
    /// The name has data.
    Data,
    /// The name exists but has no data.
    Empty,
    /// The name does not exist, and there is none below it.
    None,
}

fn answer_to(name: &str, kind: QueryType, view: &View, zone: &Zone) -> Expected {
    let question = Question { labels: name.split('.').collect(), kind };
    let answer = answer(&question, view, zone);
    if answer.is_negative() {
        assert!(answer.zone.is_some(), "{name}: a negative answer names its zone");
    }
    match (answer.code, answer.is_negative()) {
        (ResponseCode::NoError, false) => Expected::Data,
        (ResponseCode::NoError, true) => Expected::Empty,
        (ResponseCode::NoSuchName, true) => Expected::None,
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn a_name_without_data_is_there_exactly_while_a_name_exists_below_it() {
    let full = view(&[
        ("web", "web1", &["V1", "traefik.enable=true", "a b", "1.0"]),
        ("Mixed", "db1.Rack2.example.org", &[]),
        ("dotted.name", "web1", &["only-there"]),
    ]);
    let (empty, plain) = (view(&[]), view(&[("web", "web1", &[])]));
    let (ours, nameless) = (zone(Some("dc1")), zone(None));
    let check = |name: &str, view: &View, zone: &Zone, expected: Expected| {
        assert_eq!(answer_to(name, QueryType::A, view, zone), expected, "{name}");
    };
    for (name, expected) in [
        ("dc1.consul", Expected::Empty),
        ("service.consul", Expected::Empty),
        ("node.consul", Expected::Empty),
        ("service.dc1.consul", Expected::Empty),
        ("node.dc1.consul", Expected::Empty),
        ("web.service.dc1.consul", Expected::Data),
        ("web1.node.dc1.consul", Expected::Data),
        ("_tcp.service.consul", Expected::Empty),
        ("_udp.service.dc1.consul", Expected::Empty),
        ("_v1.service.consul", Expected::Empty),
        ("_v1.service.dc1.consul", Expected::Empty),
        ("_web._v1.service.consul", Expected::Data),
        ("org.node.consul", Expected::Empty),
        ("example.org.node.consul", Expected::Empty),
        ("rack2.example.org.node.dc1.consul", Expected::Empty),
        ("db1.rack2.example.org.node.consul", Expected::Data),
        ("dc2.consul", Expected::None),
        ("service.dc2.consul", Expected::None),
        ("web.service.dc2.consul", Expected::None),
        ("_v2.service.consul", Expected::None),
        ("_only-there.service.consul", Expected::None),
        ("_.service.consul", Expected::None),
        ("_v1.node.consul", Expected::None),
        ("_web.service.consul", Expected::None),
        ("net.node.consul", Expected::None),
        ("rack2.node.consul", Expected::None),
        ("ample.org.node.consul", Expected::None),
        ("x.web1.node.consul", Expected::None),
    ] {
        check(name, &full, &ours, expected);
    }
    // A tag that is not a valid label has no DNS name, whatever characters a label may contain.
    for tag in ["traefik.enable=true", "a b", "1.0"] {
        let labels = vec![tag, "web", "service", "consul"];
        let below = format!("_{tag}");
        for labels in [labels, vec![&below, "service", "consul"]] {
            let question = Question { labels, kind: QueryType::A };
            assert_eq!(answer(&question, &full, &ours).code, ResponseCode::NoSuchName, "{tag}");
        }
    }
    check("dc1.consul", &full, &nameless, Expected::None);
    check("service.dc1.consul", &full, &nameless, Expected::None);
    check("_tcp.service.consul", &empty, &ours, Expected::None);
    check("_tcp.service.consul", &view(&[("a.b", "web1", &[])]), &ours, Expected::None);
    check("_v1.service.consul", &plain, &ours, Expected::None);
    check("org.node.consul", &plain, &ours, Expected::None);
}

#[test]
fn a_host_without_a_service_is_where_its_claim_says() {
    let full = view(&[("web", "web1", &[]), ("web", "db1.example.org", &[])]);
    let zone = zone(None);
    let of = |value: &str| Claim::read(Some(value.as_bytes())).unwrap();
    let claim = |addresses: &str| {
        let identity = r#""instance":"0123456789abcdef","machine_id":"m","boot_id":"b""#;
        of(&format!(r#"{{{identity},"addresses":[{addresses}]}}"#))
    };
    let both = claim(r#""10.0.0.7","fd00::7","fe80::7","127.0.0.1","no address""#);
    let none = Claim::read(None).unwrap();
    let check = |name: &str, view: &View, kind, claim: &Claim, code, expected: &[&str]| {
        let found = answer(&Question { labels: name.split('.').collect(), kind }, view, &zone);
        assert_eq!(found.host.as_ref().map(|host| format!("{host}.node.consul")).as_deref(), Some(name));
        let found = found.with_claim(claim, kind);
        let shown: Vec<String> = found
            .records
            .iter()
            .map(|record| match &record.data {
                Data::A(ip) => ip.to_string(),
                Data::Aaaa(ip) => ip.to_string(),
                other => format!("{other:?}"),
            })
            .collect();
        assert_eq!((found.code, shown), (code, expected.iter().map(ToString::to_string).collect()), "{name}");
    };
    use QueryType::{A, Aaaa, Any, Srv};
    use ResponseCode::{NoError, NoSuchName, NotReady};
    check("bare.node.consul", &full, A, &both, NoError, &["10.0.0.7"]);
    check("bare.node.consul", &full, Aaaa, &both, NoError, &["fd00::7"]);
    check("bare.node.consul", &full, Srv, &both, NoError, &[]);
    check("bare.node.consul", &full, Any, &both, NoError, &["HostInfo"]);
    check("bare.node.consul", &full, A, &claim(""), NoError, &[]);
    check("bare.node.consul", &full, A, &none, NoSuchName, &[]);
    check("bare.node.consul", &full, A, &Claim::Unknown, NotReady, &[]);
    // The name exists because there are names below it.
    check("example.org.node.consul", &full, A, &both, NoError, &["10.0.0.7"]);
    check("example.org.node.consul", &full, A, &none, NoError, &[]);
    check("example.org.node.consul", &full, A, &Claim::Unknown, NoError, &[]);
    // A claim is used before the catalog is known. A missing claim is not: the host may still be in
    // the catalog.
    check("bare.node.consul", &View::default(), A, &both, NoError, &["10.0.0.7"]);
    check("bare.node.consul", &View::default(), A, &none, NotReady, &[]);
    let known = answer(&Question { labels: "web1.node.consul".split('.').collect(), kind: A }, &full, &zone);
    assert_eq!(known.host, None);
    Claim::read(Some(b"no claim")).unwrap_err();
}

#[test]
fn a_service_without_a_port_has_srv_records_with_port_0() {
    let instance = |host: &str, port| {
        (names("web", host), StoredRecord::new(ServiceRecord { port, ..record(&["v1"]) }, false))
    };
    let view = catalog_at_once([instance("a", None), instance("b", Some(80))].into(), []);
    for name in ["web.service.consul", "v1.web.service.consul", "_web._tcp.service.consul"] {
        let question = Question { labels: name.split('.').collect(), kind: QueryType::Srv };
        let found = answer(&question, &view, &zone(None));
        let ports: Vec<(u16, &str)> = found
            .records
            .iter()
            .map(|record| match &record.data {
                Data::Srv { port, target } => (*port, target.as_str()),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(ports, [(0, "a.node.consul"), (80, "b.node.consul")], "{name}");
        assert_eq!(found.additional.len(), 2, "{name}");
    }
}

#[test]
fn what_lay_below_a_name_can_go_again() {
    let mut catalog = Catalog::new(GuardSettings::default());
    catalog.replace_records(BTreeMap::new(), BootMillis(0));
    let (zone, now) = (zone(None), BootMillis(0));
    let mut put = |service: &str, host: &str, tags: Option<&[&str]>| {
        let (service, host) = names(service, host);
        let fact = CatalogFact::Record(tags.map(|tags| StoredRecord::new(record(tags), true)));
        catalog.apply(&service, &host, fact, now);
        catalog.settle(now, true);
        let view = catalog.view();
        ["_tcp.service.consul", "_v1.service.consul", "example.org.node.consul"]
            .map(|name| answer_to(name, QueryType::A, view, &zone) == Expected::Empty)
    };
    assert_eq!(put("web", "a.example.org", Some(&["v1"])), [true, true, true]);
    assert_eq!(put("db", "a.example.org", Some(&["v1"])), [true, true, true]);
    assert_eq!(put("db", "b.example.org", Some(&[])), [true, true, true]);
    assert_eq!(put("web", "a.example.org", Some(&["v2"])), [true, true, true]);
    assert_eq!(put("db", "a.example.org", None), [true, false, true]);
    assert_eq!(put("web", "a.example.org", None), [true, false, true]);
    assert_eq!(put("db", "b.example.org", None), [false, false, false]);
}

#[test]
fn the_name_of_an_address_is_a_zone_of_its_own() {
    let (view, zone) = (view(&[("web", "web1", &[])]), zone(None));
    for (kind, expected) in [
        (QueryType::Ptr, Expected::Data),
        (QueryType::Soa, Expected::Data),
        (QueryType::A, Expected::Empty),
        (QueryType::Other, Expected::Empty),
    ] {
        let name = "1.0.0.10.in-addr.arpa";
        assert_eq!(answer_to(name, kind, &view, &zone), expected, "{kind:?}");
        let question = Question { labels: name.split('.').collect(), kind };
        assert_eq!(answer(&question, &view, &zone).zone.as_deref(), Some(name));
    }
}
