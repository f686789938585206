use super::*;
use crate::catalogs::Catalogs;
use std::path::PathBuf;

const CATALOG: &str = r#"{"format": 1, "revision": 7,
  "names": {"domain": "consul", "datacenter": "dc1", "host": "h1"},
  "services": {
    "web": [
      {"record": {"host": "w2", "interfaces": {"eth0": ["10.0.0.2"]}, "addresses": ["10.0.0.2"], "port": 80, "tags": ["v2"]},
       "health": "passing", "leased": true},
      {"record": {"host": "W1", "interfaces": {"eth0": ["10.0.0.1", "fd00::1"], "lo": ["127.0.0.1"]}, "addresses": ["10.0.0.1"],
       "port": 81, "meta": {"note": "two\nlines"}}, "health": "critical", "leased": true}],
    "db": [{"record": {"host": "d1", "interfaces": {"eth0": ["10.0.0.9"]}, "addresses": ["10.0.0.9"]}, "leased": true}],
    "my::service": [{"record": {"host": "d1", "interfaces": {"eth0": ["10.0.0.9"]}, "addresses": ["10.0.0.9"]}, "leased": false}]
  }}"#;

/// Asks a question with no agent on the host.
fn ask(question: &str) -> Result<Option<Value>, String> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("catalog.json");
    std::fs::write(&path, CATALOG).expect("written");
    let mut catalogs = Catalogs::new(path);
    let agent = Agent::new(PathBuf::from("/nonexistent/agent.sock"));
    let question = serde_json::from_str(question).map_err(|error| error.to_string())?;
    answer(&question, catalogs.of(None)?, &agent)
}

fn check(question: &str, expected: Value) {
    assert_eq!(ask(question), Ok(Some(expected)), "{question}");
}

#[test]
fn every_question_has_its_answer() {
    check(r#"{"ask": "addresses", "name": "web"}"#, json!(["10.0.0.1", "10.0.0.2"]));
    check(r#"{"ask": "addresses", "name": "web", "level": "functional"}"#, json!(["10.0.0.2"]));
    check(r#"{"ask": "addresses", "name": "web", "tag": "v1"}"#, json!([]));
    check(
        r#"{"ask": "addresses", "name": "web", "interface": "eth0"}"#,
        json!(["10.0.0.1", "10.0.0.2", "fd00::1"]),
    );
    check(r#"{"ask": "addresses", "name": "nothing", "level": "functional"}"#, json!([]));
    check(r#"{"ask": "hosts", "role": "web"}"#, json!(["W1", "w2"]));
    check(r#"{"ask": "ready", "name": "web", "count": 1}"#, json!(true));
    check(r#"{"ask": "ready", "name": "web", "count": 2}"#, json!(false));
    check(r#"{"ask": "ready", "name": "web", "count": 2, "level": "addressable"}"#, json!(true));
    check(r#"{"ask": "dns", "name": "web.service.dc1.consul"}"#, json!(["10.0.0.2"]));
    check(r#"{"ask": "dns", "name": "w1.node.consul"}"#, json!(["10.0.0.1"]));
    check(r#"{"ask": "dns", "name": "nothing.service.consul"}"#, json!([]));
    check(
        r#"{"ask": "srv", "name": "web.service.consul"}"#,
        json!([{"target": "w2.node.consul", "port": 80, "priority": 1, "weight": 1}]),
    );
    check(r#"{"ask": "reverse", "address": "10.0.0.1"}"#, json!("w1.node.consul"));
    check(r#"{"ask": "entry", "key": "services::web::eth0"}"#, json!(["10.0.0.1", "10.0.0.2"]));
    check(
        r#"{"ask": "entry", "key": "services_all::web::eth0"}"#,
        json!(["10.0.0.1", "10.0.0.2", "fd00::1"]),
    );
    check(r#"{"ask": "entry", "key": "services::my::service::eth0"}"#, json!(["10.0.0.9"]));
    check(
        r#"{"ask": "entries"}"#,
        json!({
            "services::web::eth0": ["10.0.0.1", "10.0.0.2"], "services::web::lo": ["127.0.0.1"],
            "services::db::eth0": ["10.0.0.9"], "services::my::service::eth0": ["10.0.0.9"],
            "services_all::web::eth0": ["10.0.0.1", "10.0.0.2", "fd00::1"], "services_all::web::lo": ["127.0.0.1"],
            "services_all::db::eth0": ["10.0.0.9"], "services_all::my::service::eth0": ["10.0.0.9"],
        }),
    );
    let Ok(Some(services)) = ask(r#"{"ask": "services", "name": "web"}"#) else { panic!() };
    // Line breaks in text from another host are replaced by spaces.
    assert_eq!(
        (&services[0]["meta"]["note"], &services[0]["health"]),
        (&json!("two lines"), &json!("critical"))
    );
}

#[test]
fn what_is_not_there_is_missing() {
    for question in [
        r#"{"ask": "entry", "key": "services::web::eth7"}"#,
        r#"{"ask": "entry", "key": "services::nothing::eth0"}"#,
        r#"{"ask": "entry", "key": "lookup_options"}"#,
        r#"{"ask": "reverse", "address": "192.0.2.1"}"#,
    ] {
        assert_eq!(ask(question), Ok(None), "{question}");
    }
}

#[test]
fn what_cannot_be_told_is_refused_with_the_reason() {
    for (question, why) in [
        (r#"{"ask": "addresses", "name": "db", "level": "functional"}"#, "nothing on this host followed it"),
        (r#"{"ask": "ready", "name": "db", "count": 1}"#, "/nonexistent/agent.sock"),
        (r#"{"ask": "dns", "name": "db.service.consul"}"#, "nothing on this host followed it"),
        (r#"{"ask": "dns", "name": "example.org"}"#, "is not below consul, the zone of the agent"),
        (r#"{"ask": "addresses", "name": "no name"}"#, "service"),
        (r#"{"ask": "reverse", "address": "web"}"#, "IP address"),
        (r#"{"ask": "anything"}"#, "unknown variant"),
    ] {
        let message = ask(question).expect_err(question);
        assert!(message.contains(why), "{question}: {message}");
    }
}

#[test]
fn one_compile_has_one_catalog_and_the_next_has_the_newest() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("catalog.json");
    let write = |revision: i64| {
        let next = directory.path().join("next");
        std::fs::write(&next, CATALOG.replace(r#""revision": 7"#, &format!(r#""revision": {revision}"#)))
            .expect("written");
        std::fs::rename(&next, &path).expect("in its place");
    };
    write(1);
    let mut catalogs = Catalogs::new(path.clone());
    let mut revision = |compile: Option<&str>| catalogs.of(compile).map(|held| held.revision());
    assert_eq!(revision(Some("a")), Ok(1));
    write(2);
    assert_eq!((revision(Some("a")), revision(Some("b")), revision(None)), (Ok(1), Ok(2), Ok(2)));
    std::fs::remove_file(&path).expect("removed");
    assert_eq!(revision(Some("a")), Ok(1));
    assert!(revision(Some("c")).is_err_and(|error| error.contains("has not read it from the store yet")));
    // The catalog changes so often during a compile that the compile goes on with the newest one.
    for number in 3..9 {
        write(number);
        assert_eq!(revision(Some(&format!("compile {number}"))), Ok(number));
    }
    assert_eq!(revision(Some("a")), Ok(8));
    let broken = directory.path().join("broken");
    std::fs::write(&broken, "{").expect("written");
    std::fs::rename(&broken, &path).expect("in its place");
    assert!(revision(Some("d")).is_err_and(|error| error.contains("cannot be read")));
}
