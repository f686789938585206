//! Health and records that a host publishes for its services.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::process::Command;
use std::time::Duration;
use tests::etcd::Etcd;
use tests::host::Host;
use tests::process::{in_own_network, run};
use tests::recorder::Recorder;
use tests::store::Store;
use tests::wait;

/// Time limit for a change of a resolved name; the agent resolves names twice a minute.
const LOOKS: Duration = Duration::from_secs(75);
pub(super) const HEALTH: &str = "/orchestrate/health/";
pub(super) const RECORDS: &str = "/available_services/";

pub(super) fn wait_for_health(host: &Host, store: &Store, key: &str, expected: Option<&str>) {
    let key = format!("{HEALTH}{key}");
    let is = || (store.get(&key).as_deref() == expected).then_some(());
    wait::until(&format!("{key} is {expected:?}"), is, || {
        format!("{:?}\n{}", store.get(&key), host.describe())
    });
}

#[test]
fn a_service_is_addressable_at_once_and_functional_while_its_check_passes() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let mut host = Host::new("h1", &etcd.endpoints());
    host.write_switched_service("web", 80);
    host.start();
    // Services are published before any version is triggered.
    wait_for_health(&host, &store, "web/h1", Some("critical"));
    let record: Value = serde_json::from_str(&store.get("/available_services/web/h1").unwrap()).unwrap();
    assert_eq!(record["host"], "h1");
    assert_eq!((&record["addresses"], &record["port"]), (&json!(["127.0.0.1"]), &json!(80)));
    assert_eq!(record["interfaces"]["lo"][0], "127.0.0.1");
    host.write("web-works", "");
    wait_for_health(&host, &store, "web/h1", Some("passing"));
    host.remove("web-works");
    wait_for_health(&host, &store, "web/h1", Some("critical"));
    // An invalid file affects only its own services, and their last good definition stays in
    // effect.
    host.write_service("web.json", "{\"service\": {\"name\": \"web\", \"prot\": 1}}");
    host.write_service("other.toml", "[[service]]\nname = \"other\"\n");
    wait_for_health(&host, &store, "other/h1", Some("passing"));
    wait_for_health(&host, &store, "web/h1", Some("critical"));
    let errors = host.status().unwrap()["services"]["errors"].to_string();
    assert!(errors.contains("prot: a service has no such field"), "{errors}");
    // A service that is no longer defined is written as withdrawn before its keys are deleted.
    let (recorder, before) = (Recorder::start(&etcd), store.revision());
    std::fs::remove_file(host.path("services.d/other.toml")).unwrap();
    wait_for_health(&host, &store, "other/h1", None);
    assert_eq!(store.get("/available_services/other/h1"), None);
    let changes = recorder.up_to(store.revision());
    let of_other: Vec<Option<String>> = changes
        .iter()
        .filter(|change| change.revision > before && change.key.ends_with("health/other/h1"))
        .map(|change| change.value.clone())
        .collect();
    assert_eq!(of_other, [Some("withdrawn".to_owned()), None]);
}

#[test]
fn an_agent_that_restarts_says_nothing_anew() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let mut host = Host::new("h1", &etcd.endpoints());
    host.write_switched_service("web", 80);
    host.write("web-works", "");
    host.start();
    wait_for_health(&host, &store, "web/h1", Some("passing"));
    let all = |store: &Store| -> BTreeMap<String, String> {
        let mut all = store.list(HEALTH);
        all.extend(store.list(RECORDS));
        all
    };
    let (before, recorder, since) = (all(&store), Recorder::start(&etcd), store.revision());
    for kill in [false, true] {
        if kill {
            host.kill()
        } else {
            host.stop()
        }
        host.start();
        let published = |s: &Value| s["services"]["published"]["services"]["web"] == "passing";
        wait::until(
            "the agent knows what stands there",
            || host.status().filter(published),
            || host.describe(),
        );
        let checked = |s: &Value| s["checks"][0]["is_known"] == true;
        let checks = || serde_json::from_str(&host.http_get("/v1/checks")?.1).ok();
        wait::until("the check ran again", || checks().filter(checked), || host.describe());
    }
    assert_eq!(all(&store), before);
    let mut changes = recorder.up_to(store.revision());
    changes.retain(|change| change.revision > since);
    let of_services = changes.iter().filter(|c| c.key.starts_with(HEALTH) || c.key.starts_with(RECORDS));
    let of_services: Vec<_> = of_services.collect();
    assert!(of_services.is_empty(), "resumed leases cause no event: {of_services:#?}\n{}", host.describe());
    // After a reboot the records still exist under their lease, and health is written again under
    // the new claim.
    host.remove("web-works");
    host.reboot("boot-2");
    host.start();
    wait_for_health(&host, &store, "web/h1", Some("critical"));
    let changes: Vec<_> = recorder.up_to(store.revision());
    let is_record = |c: &tests::recorder::Change| c.revision > since && c.key.starts_with(RECORDS);
    assert!(!changes.iter().any(is_record), "the record outlives a reboot");
}

#[test]
fn everyday_files_of_consul_are_published_as_they_are() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let host = Host::new("h1", &etcd.endpoints());
    let (source, target) = (host.path("tags.j2"), host.path("tags.json"));
    host.write("tags.j2", "{% for i in service(\"web\", tag=\"a b\") %}{{ i.tags | tojson }}{% endfor %}");
    let template = format!(
        "[[template]]\nsource = \"{}\"\ntarget = \"{}\"\ndebounce = \"50ms\"\n",
        source.display(),
        target.display()
    );
    let mut host = host.with(&template);
    let tags = ["a b", "blue", "rule=Path(\"/x\") {{ y }}", "traefik.enable=true", "urlprefix-/foo"];
    let check = |args: Value| json!({"args": args, "interval": "1s"});
    let file = |name: &str, check: Value| json!({"service": {"name": name, "port": 80, "tags": tags, "check": check}});
    host.write_service("web.json", &file("web", check(json!(["true", "x"]))).to_string());
    host.write_service("lost.json", &file("lost", check(json!(["no-such-program"]))).to_string());
    host.start();
    wait_for_health(&host, &store, "web/h1", Some("passing"));
    let record: Value = serde_json::from_str(&store.get("/available_services/web/h1").unwrap()).unwrap();
    assert_eq!(record["tags"], json!(tags));
    host.wait_for_name(&["blue.web.service.consul"], &["127.0.0.1"]);
    host.wait_for_name(&["_web._blue.service.consul", "SRV"], &["1 1 80 h1.node.consul."]);
    for name in [r"a\032b.web.service.consul", "traefik.enable=true.web.service.consul"] {
        assert_eq!(host.dig(&[name]), Vec::<String>::new(), "{name}");
    }
    let (_, view) = host.http_get("/v1/services/web?tag=a%20b").expect("an answer");
    let view: Value = serde_json::from_str(&view).expect("JSON");
    assert_eq!(view["instances"][0]["tags"], json!(tags));
    let rendered = || {
        let text = std::fs::read_to_string(&target).ok()?;
        (serde_json::from_str::<Value>(&text).ok()? == json!(tags)).then_some(())
    };
    wait::until("the template has the tags", rendered, || host.describe());
    let why = "no-such-program is not on /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let says_why = || host.socket_answer("GET", "/v1/checks", "")?.contains(why).then_some(());
    wait::until("the check says where its program was looked for", says_why, || host.describe());
}

#[test]
fn an_address_that_is_a_name_is_resolved_and_its_last_addresses_stay() {
    if !in_own_network("catalog::publish::an_address_that_is_a_name_is_resolved_and_its_last_addresses_stay")
    {
        return;
    }
    let etcd = Etcd::single();
    let store = etcd.store();
    let mut host = Host::new("h1", &etcd.endpoints());
    let hosts = host.path("hosts");
    let resolves = |lines: &str| std::fs::write(&hosts, format!("127.0.0.1 localhost\n{lines}")).unwrap();
    resolves("10.7.0.1 db.example.org\n10.7.0.2 db.example.org\n");
    assert!(run(Command::new("mount").arg("--bind").arg(&hosts).arg("/etc/hosts"), "").status.success());
    let service = |name: &str| json!({"service": {"name": name, "address": format!("{name}.example.org")}});
    host.write_service("db.json", &service("db").to_string());
    host.write_service("none.json", &service("none").to_string());
    host.start();
    // A name that does not resolve does not block other services.
    wait_for_health(&host, &store, "db/h1", Some("passing"));
    let record: Value = serde_json::from_str(&store.get("/available_services/db/h1").unwrap()).unwrap();
    assert_eq!(record["addresses"], json!(["10.7.0.1", "10.7.0.2"]));
    let published = || host.status().map(|status| status["services"]["published"].clone());
    let wait_for_trouble = |name: &str| {
        let is = |p: Value| p["unresolved"][name].is_string().then_some(p);
        wait::until_within(LOOKS, name, || published().and_then(is), || host.describe())
    };
    let held_back = json!({"none": "its address none.example.org is not resolved"});
    let view = wait_for_trouble("none.example.org");
    assert_eq!((&view["held_back"], &view["services"]["db"]), (&held_back, &json!("passing")));
    assert!(host.describe().contains("the address of a service does not resolve"), "{}", host.describe());
    resolves("");
    let view = wait_for_trouble("db.example.org");
    assert_eq!((&view["held_back"], &view["services"]["db"]), (&held_back, &json!("passing")));
    let after = store.get("/available_services/db/h1").unwrap();
    assert_eq!(serde_json::from_str::<Value>(&after).unwrap(), record, "what was known last stays");
}

#[test]
fn a_host_without_a_usable_address_says_which_services_it_does_not_publish_and_why() {
    let name =
        "catalog::publish::a_host_without_a_usable_address_says_which_services_it_does_not_publish_and_why";
    if !in_own_network(name) {
        return;
    }
    let etcd = Etcd::single();
    let store = etcd.store();
    let host = Host::new("h1", &etcd.endpoints());
    let services = host.path("services.d").display().to_string();
    let mut host = host.with(&format!("[services]\ndirectories = [{services:?}]\n"));
    host.write_service("web.json", r#"{"service": {"name": "web"}}"#);
    host.write_service("db.json", r#"{"service": {"name": "db"}}"#);
    host.start();
    let held_back = || Some(host.status()?["services"]["published"]["held_back"].clone());
    let why = "no interface has an address that others can reach (lo: 127.0.0.1";
    let is =
        |held: &Value| ["db", "web"].iter().all(|s| held[s].as_str().is_some_and(|s| s.starts_with(why)));
    wait::until("it shows why", || held_back().filter(is), || host.describe());
    let log = host.read("agent.log");
    let result: Vec<&str> = log.lines().filter(|line| line.contains("services are not published")).collect();
    assert_eq!(result.len(), 1, "{log}");
    assert!(result[0].contains("db, web") && result[0].contains("set services.addresses"), "{result:?}");
    for command in [&["status"][..], &["why", "h1"]] {
        let names = |result: &str| ["web", "db", why].iter().all(|part| result.contains(part));
        let says = || names(&host.command(command, "").out).then_some(());
        wait::until(&format!("{command:?} says why"), says, || {
            format!("{:?}\n{}", host.command(command, ""), host.describe())
        });
    }
    assert!(run(Command::new("ip").args(["addr", "add", "10.7.0.1/24", "dev", "lo"]), "").status.success());
    let published = || store.get("/available_services/web/h1").filter(|record| record.contains("10.7.0.1"));
    wait::until_within(LOOKS, "they are published", published, || host.describe());
    wait::until("none is held back", || held_back().filter(|held| *held == json!({})), || host.describe());
    let is_quiet = || (!host.command(&["why", "h1"], "").out.contains("unpublished")).then_some(());
    wait::until("nothing is said any more", is_quiet, || host.describe());
    assert_eq!(host.read("agent.log").matches("services are not published").count(), 1);
}

/// Sends a check result to the agent over its Unix socket; returns the answer.
fn tell(host: &Host, path: &str) -> String {
    put(host, path, "")
}

fn put(host: &Host, path: &str, body: &str) -> String {
    host.socket_answer("PUT", path, body).expect("it answers")
}

#[test]
fn a_ttl_check_is_told_over_the_socket_and_silence_is_critical() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let mut host = Host::new("h1", &etcd.endpoints());
    host.write_service("web.json", r#"{"service": {"name": "web", "check": {"ttl": "20s"}}}"#);
    host.start();
    wait_for_health(&host, &store, "web/h1", Some("critical"));
    for (path, code) in [
        ("/v1/agent/check/pass/service:web?note=fine", "200"),
        ("/v1/agent/check/pass/service:nothing", "404"),
        ("/v1/agent/check/maybe/service:web", "404"),
        ("/v1/agent/check/pass/a%2Fb", "400"),
    ] {
        let answer = tell(&host, path);
        assert!(answer.starts_with(&format!("HTTP/1.0 {code}")), "{path}: {answer}");
    }
    wait_for_health(&host, &store, "web/h1", Some("passing"));
    let (code, _) = host.http_get("/v1/agent/check/fail/service:web").unwrap();
    assert_eq!(code, 404, "on TCP nobody tells anything");
    let is_critical = || store.get("/orchestrate/health/web/h1").filter(|health| health == "critical");
    wait::until_within(wait::DEADLINE * 2, "silence is critical", is_critical, || host.describe());
    assert!(tell(&host, "/v1/agent/check/warn/service:web").starts_with("HTTP/1.0 200"));
    wait_for_health(&host, &store, "web/h1", Some("warning"));
    // Requests as Consul's clients send them.
    for (check, body, code, says) in [
        ("service:web", r#"{"Status": "passing", "Output": "by its client"}"#, "200", ""),
        ("service:nothing", r#"{"Status": "passing"}"#, "404", "there is no check"),
        ("a%2Fb", r#"{"Status": "passing"}"#, "400", "must be 1 to 128"),
        ("service:web", r#"{"Status": "fine"}"#, "400", "or warning, or critical"),
        ("service:web", r#"{"Output": "fine"}"#, "400", "missing field `Status`"),
        ("service:web", "", "400", "the body is no result"),
    ] {
        let answer = put(&host, &format!("/v1/agent/check/update/{check}"), body);
        let is_right = answer.starts_with(&format!("HTTP/1.0 {code}")) && answer.contains(says);
        assert!(is_right, "{check} {body}: {answer}");
    }
    wait_for_health(&host, &store, "web/h1", Some("passing"));
    let checks = host.socket_answer("GET", "/v1/checks", "").expect("an answer");
    assert!(checks.contains("by its client"), "{checks}");
    assert!(put(&host, "/v1/agent/check/update/service:web", r#"{"Status": "critical"}"#).contains(" 200 "));
    wait_for_health(&host, &store, "web/h1", Some("critical"));
}

#[test]
fn a_work_lease_that_is_gone_is_replaced() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let mut host = Host::new("h1", &etcd.endpoints());
    host.write_switched_service("web", 80);
    host.write("web-works", "");
    host.start();
    wait_for_health(&host, &store, "web/h1", Some("passing"));
    let lease = || {
        let (runtime, mut client) = store.parts();
        let answer = runtime.block_on(client.get("/available_services/web/h1", None)).unwrap();
        answer.kvs().first().map(|kv| kv.lease())
    };
    let first = lease().expect("a record");
    {
        let (runtime, mut client) = store.parts();
        runtime.block_on(client.lease_revoke(first)).unwrap();
    }
    // The next write of the agent detects that the lease is gone.
    host.write_switched_service("web", 81);
    let again = || lease().filter(|lease| *lease != first);
    wait::until("the record is there under another lease", again, || host.describe());
}

#[test]
fn the_local_http_is_bounded_in_time_size_and_number() {
    let etcd = Etcd::single();
    let host = Host::started("h1", &etcd.endpoints());
    wait::until("it answers", || host.http_get("/live"), || host.describe());
    // Many idle or slow clients block others only until the agent closes their connections.
    let mut idle: Vec<_> = (0..600).map(|_| host.connect_http()).collect();
    idle[0].write_all(b"GET /live HTTP/1.1\r\nHost: loc").unwrap();
    wait::until("somebody else is answered", || host.http_get("/live"), || host.describe());
    idle[0].set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    match idle[0].read_to_end(&mut Vec::new()) {
        Ok(_) => {}
        // The agent closed the connection before it read the request.
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
        Err(error) => panic!("the connection is not closed: {error}"),
    }
    // A web page cannot read it through a host name that it made resolve to this address.
    for (name, code) in
        [("localhost", "200"), ("127.0.0.1:80", "200"), ("evil.example", "403"), ("10.0.0.1", "403")]
    {
        let mut page = host.connect_http();
        write!(page, "GET /status HTTP/1.0\r\nHost: {name}\r\n\r\n").unwrap();
        let mut answer = String::new();
        page.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.0 {code}")), "{name}: {answer}");
    }
    let mut large = host.connect_http();
    write!(large, "PUT /live HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n").unwrap();
    let mut answer = [0; 12];
    large.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 405");
}
