//! Values of the catalog that Puppet reads, and resources that wait for it.

use super::Site;
use serde_json::{Value, json};
use std::process::Command;
use std::time::{Duration, SystemTime};
use tests::etcd::Etcd;
use tests::host::Host;
use tests::process::{binary, run};
use tests::store::Store;
use tests::wait;

#[test]
fn a_question_that_is_too_long_ends_the_helper_and_shifts_no_answers() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut helper = Command::new(binary("orchestrate-hiera"));
    helper.arg("--file").arg(directory.path().join("none"));
    let long = format!("{{\"ask\": \"addresses\", \"name\": \"{}\"}}\n", "w".repeat(70_000));
    let output = run(&mut helper, &long);
    assert!(output.stdout.is_empty(), "{output:?}");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("65536"), "{output:?}");
}

fn put_service(store: &Store, service: &str, host: &str, number: u8) {
    let record = json!({
        "format": 1, "host": host, "port": 8000 + u16::from(number), "tags": [format!("t{number}")],
        "addresses": [format!("10.0.0.{number}")], "meta": { "rack": "%{lookup('x')}" },
        "interfaces": { "eth0": [format!("10.0.0.{number}"), format!("fd00::{number}")], "lo": ["127.0.0.1"] },
    });
    store.put(&format!("/available_services/{service}/{host}"), &record.to_string());
}

/// Returns a host whose agent follows `web`.
fn follower(etcd: &Etcd) -> Host {
    Host::new("h1", &etcd.endpoints()).with("[catalog]\nfollow = [\"web\"]")
}

fn wait_for_cache(host: &Host, parts: &[&str]) {
    let text = || host.read("state/catalog.json");
    let is = || parts.iter().all(|part| text().contains(part)).then_some(());
    wait::until(&format!("the cached catalog has {parts:?}"), is, || {
        format!("{}\n{}", text(), host.describe())
    });
}

/// Makes the cached catalog look as if the store had been unreachable for `age`.
fn make_old(host: &Host, age: Duration) {
    let file = std::fs::File::options().write(true).open(host.path("state/catalog.json")).expect("a cache");
    file.set_modified(SystemTime::now() - age).expect("a time");
}

const CACHED: [(&str, &str); 12] = [
    ("addresses", "orchestrate::addresses('web')"),
    ("interface", "orchestrate::addresses('web', 'eth0')"),
    ("functional", "orchestrate::addresses('web', undef, 'functional')"),
    ("tagged", "orchestrate::addresses('web', undef, 'addressable', 't2')"),
    ("first", "orchestrate::first_address('web', 'eth0')"),
    ("none", "orchestrate::first_address('nothing') =~ Undef"),
    ("hosts", "orchestrate::hosts('web')"),
    ("dns", "orchestrate::dns('Web.service.consul.')"),
    ("srv", "orchestrate::srv('_web._tcp.service.consul')"),
    ("reverse", "orchestrate::reverse('10.0.0.2')"),
    ("ready", "[orchestrate::ready('web'), orchestrate::ready('web', 2), orchestrate::ready('nothing', 1)]"),
    ("services", "orchestrate::services('web', 'functional')"),
];

#[test]
fn functions_answer_from_the_cached_catalog_in_every_condition() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let mut host = follower(&etcd);
    put_service(&store, "web", "w1", 1);
    put_service(&store, "web", "w2", 2);
    put_service(&store, "db", "d1", 9);
    store.put("/orchestrate/health/web/w2", "critical");
    store.put("/orchestrate/config/backups", "off");
    host.start();
    wait_for_cache(&host, &["critical", "10.0.0.1", "10.0.0.9"]);
    let site = Site::new(&host);
    let expected = json!({
        "addresses": ["10.0.0.1", "10.0.0.2"],
        "interface": ["10.0.0.1", "10.0.0.2", "fd00::1", "fd00::2"],
        "functional": ["10.0.0.1"],
        "tagged": ["10.0.0.2"],
        "first": "10.0.0.1",
        "none": true,
        "hosts": ["w1", "w2"],
        "dns": ["10.0.0.1"],
        "srv": [{ "target": "w1.node.consul", "port": 8001, "priority": 1, "weight": 1 }],
        "reverse": "w2.node.consul",
        "ready": [true, false, false],
        // Puppet must not interpolate text that another host wrote.
        "services": [{
            "host": "w1", "address": "10.0.0.1", "addresses": ["10.0.0.1"], "port": 8001, "tags": ["t1"],
            "meta": { "rack": "%{lookup('x')}" }, "health": "unchecked",
        }],
    });
    // The catalog is fresh; values that only the agent knows are available too.
    let live = [
        ("key", "orchestrate::key('backups')"),
        ("no_key", "orchestrate::key('nothing') =~ Undef"),
        ("followed_now", "orchestrate::ready('db')"),
    ];
    let (found, result) = site.found(&[&CACHED[..], &live[..]].concat());
    let mut with_live = expected.clone();
    with_live["key"] = "off".into();
    with_live["no_key"] = true.into();
    with_live["followed_now"] = true.into();
    assert_eq!((found, result.code), (with_live, 2), "{result:?}");
    assert!(!result.err.contains("has not confirmed"), "{result:?}");

    // The agent is stopped: cached values are served, anything else is refused with a reason.
    host.stop();
    let (found, result) = Site { host: &host }.found(&CACHED);
    assert_eq!((&found, result.code), (&expected, 2), "{result:?}");
    for (code, why) in [
        ("orchestrate::key('backups')", "the agent could not be reached on"),
        ("orchestrate::ready('nobody-asked')", ""),
        ("orchestrate::dns('www.example.org')", "is not below consul"),
        ("orchestrate::addresses('no such name')", "service"),
        ("orchestrate::addresses('web', undef, undef, undef, { 'paht' => '/x' })", "no such option: paht"),
        ("orchestrate::addresses('web', undef, undef, undef, { 'helper' => '/no/such' })", "/no/such"),
    ] {
        let (_, result) = Site { host: &host }.found(&[("x", code)]);
        let refused = result.code == 1 && result.err.contains(why);
        assert!(if why.is_empty() { result.code == 2 } else { refused }, "{code}: {result:?}");
    }

    // The store was unreachable for hours.
    make_old(&host, Duration::from_secs(7200));
    let site = Site { host: &host };
    let (found, result) = site.found(&CACHED);
    assert_eq!((&found, result.code), (&expected, 2), "{result:?}");
    assert_eq!(result.err.matches("has not confirmed the catalog for 72").count(), 1, "{result:?}");
    let (_, result) = site.found(&[(
        "x",
        "orchestrate::addresses('web', undef, undef, undef, { 'when_older' => 'fail', 'max_age' => 3600 })",
    )]);
    assert!(result.code == 1 && result.err.contains("at most 3600 s are allowed"), "{result:?}");

    // There is no cached catalog.
    host.remove("state/catalog.json");
    let (_, result) = Site { host: &host }.found(&[("x", "orchestrate::addresses('web')")]);
    assert!(result.code == 1 && result.err.contains("has not read it from the store yet"), "{result:?}");
}

const HIERARCHY: &str = "version: 5
defaults: { datadir: data, data_hash: yaml_data }
hierarchy:
  - name: site data, as the original tool read it
    lookup_key: orchestrate::hiera_yaml
    path: common.yaml
  - name: catalog
    lookup_key: orchestrate::lookup_key
  - name: resolver
    lookup_key: orchestrate::hiera_dns
    options: { nameserver: ['127.0.0.1', PORT], domain: service.consul }
";

const COMMON: &str = "old::array: \"%{lookup_array('services::web::eth0')}\"
old::first: \"%{lookup_array_first_element('services::web::eth0')}\"
old::missing: \"%{lookup_array('services::nothing::eth0')}\"
old::no_array: \"%{lookup_array('plain')}\"
old::loop: \"%{lookup_array('old::loop')}\"
new::array: \"%{alias('services::web::eth0')}\"
new::text: \"http://%{lookup('services::web::eth0.0')}/\"
plain: text
";

#[test]
fn hiera_finds_addresses_and_old_data_files_mean_what_they_meant() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let mut host = follower(&etcd);
    put_service(&store, "web", "w1", 1);
    host.start();
    wait_for_cache(&host, &["10.0.0.1"]);
    let site = Site::new(&host);
    let write_hierarchy = |text: &str| {
        host.write("puppet/hiera.yaml", &text.replace("PORT", &host.dns_port().to_string()));
    };
    write_hierarchy(HIERARCHY);
    host.write("puppet/data/common.yaml", COMMON);
    let facts = host.path("facts.yaml").display().to_string();
    host.write("facts.yaml", "site: here\n");
    let lookup = |site: &Site<'_>, key: &str| {
        let result = site.puppet("lookup", &["--node", "n1", "--facts", &facts, "--render-as", "json", key]);
        (result.code, serde_json::from_str::<Value>(&result.out).ok(), result.err)
    };
    // The verb itself is run once; all other keys share one compilation, because starting Puppet
    // takes a second.
    let (code, value, result) = lookup(&site, "services::web::eth0");
    assert_eq!((code, value), (0, Some(json!(["10.0.0.1"]))), "{result}");
    assert_eq!(lookup(&site, "services::nothing::eth0").0, 1);
    let or_none = |key: &str| format!("lookup('{key}', {{ 'default_value' => 'none' }})");
    let keys = [
        ("services::web::lo", json!(["127.0.0.1"])),
        ("services_all::web::eth0", json!(["10.0.0.1", "fd00::1"])),
        ("services::web::eth7", json!("none")),
        ("old::array", json!(["10.0.0.1"])),
        ("old::first", json!("10.0.0.1")),
        ("old::missing", json!("none")),
        ("new::array", json!(["10.0.0.1"])),
        ("new::text", json!("http://10.0.0.1/")),
        ("plain", json!("text")),
        // The agent's own DNS server is queried as a resolver.
        ("dns::web", json!(["10.0.0.1"])),
        ("dns::nothing", json!("none")),
    ];
    let codes: Vec<(&str, String)> = keys.iter().map(|(key, _)| (*key, or_none(key))).collect();
    let expressions: Vec<(&str, &str)> = codes.iter().map(|(key, code)| (*key, code.as_str())).collect();
    let expected: Value = keys
        .iter()
        .map(|(key, value)| ((*key).to_owned(), value.clone()))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let (found, result) = site.found(&expressions);
    assert_eq!((&found, result.code), (&expected, 2), "{result:?}");
    for (key, why) in [("old::no_array", "plain is no array"), ("old::loop", "Recursive lookup")] {
        let (_, result) = site.found(&[("x", &or_none(key))]);
        assert!(result.code == 1 && result.err.contains(why), "{key}: {result:?}");
    }
    // An unreachable resolver is not the same as a missing name.
    host.stop();
    let site = Site { host: &host };
    let (_, result) = site.found(&[("x", &or_none("dns::web"))]);
    assert!(result.code == 1 && result.err.contains("web.service.consul: no resolver answers"), "{result:?}");

    // All keys from one hash; with a catalog that is too old, and without one.
    let as_hash = |options: &str| {
        let text = format!(
            "version: 5\nhierarchy:\n  - name: catalog\n    data_hash: orchestrate::data_hash\n    options: {{ {options} }}\n"
        );
        host.write("puppet/hiera.yaml", &text);
    };
    // Hiera reserves `path`: it is refused as an option, and passed on when given beside the
    // function.
    let elsewhere = host.path("elsewhere.json");
    std::fs::copy(host.path("state/catalog.json"), &elsewhere).expect("copied");
    let site_settings = host.read("puppet/orchestrate.yaml");
    host.write("puppet/orchestrate.yaml", &site_settings.replace("state/catalog.json", "nothing.json"));
    for function in ["data_hash: orchestrate::data_hash", "lookup_key: orchestrate::lookup_key"] {
        let level = format!("version: 5\nhierarchy:\n  - name: catalog\n    {function}\n");
        host.write("puppet/hiera.yaml", &format!("{level}    path: {}\n", elsewhere.display()));
        let (found, result) = site.found(&[("all", "lookup('services::web::eth0')")]);
        assert_eq!((&found["all"], result.code), (&json!(["10.0.0.1"]), 2), "{function}: {result:?}");
        host.write(
            "puppet/hiera.yaml",
            &format!("{level}    options: {{ path: {} }}\n", elsewhere.display()),
        );
        let (_, result) = site.found(&[("all", "lookup('services::web::eth0')")]);
        assert!(result.code == 1 && result.err.contains("reserved by Puppet"), "{function}: {result:?}");
    }
    host.write("puppet/orchestrate.yaml", &site_settings);
    as_hash("max_age: 60");
    let (found, result) = site.found(&[("all", "lookup('services::web::eth0')")]);
    assert_eq!((&found["all"], result.code), (&json!(["10.0.0.1"]), 2), "{result:?}");
    make_old(&host, Duration::from_secs(7200));
    as_hash("max_age: 60, when_older: fail");
    let (_, result) = site.found(&[("all", "lookup('services::web::eth0')")]);
    assert!(result.code == 1 && result.err.contains("at most 60 s are allowed"), "{result:?}");
    host.remove("state/catalog.json");
    let (_, result) = site.found(&[("x", &or_none("services::web::eth0"))]);
    assert!(result.code == 1 && result.err.contains("there is no catalog"), "{result:?}");
    as_hash("when_missing: not_found");
    let (found, result) = site.found(&[("x", &or_none("services::web::eth0"))]);
    assert_eq!((&found["x"], result.code), (&json!("none"), 2), "{result:?}");
}

#[test]
fn a_run_waits_for_services_and_skips_only_what_needs_them() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let mut host = follower(&etcd);
    put_service(&store, "web", "w1", 1);
    store.put("/orchestrate/config/schema", "go");
    host.start();
    wait_for_cache(&host, &["10.0.0.1"]);
    let site = Site::new(&host);
    let file = |name: &str| host.path(name).display().to_string();
    let manifest = format!(
        "file {{ '{}': content => 'x' }}
         orchestrate_blocker {{ 'web': count => 2, tries => 200, try_sleep => 0.1 }} -> file {{ '{}': content => 'x' }}
         orchestrate_blocker {{ 'nothing': tries => 2, try_sleep => 0.1 }} -> file {{ '{}': content => 'x' }}
         orchestrate_gate {{ 'schema': value => 'go' }} -> file {{ '{}': content => 'x' }}
         orchestrate_gate {{ 'other': value => 'go' }} -> file {{ '{}': content => 'x' }}
         orchestrate_fail {{ 'no seed yet': }} -> file {{ '{}': content => 'x' }}",
        file("apart"),
        file("after-web"),
        file("after-nothing"),
        file("after-schema"),
        file("after-other"),
        file("after-fail"),
    );
    // With `--noop` Puppet only looks and does not wait.
    host.write("puppet/noop.pp", &manifest);
    let result = site.puppet("apply", &["--noop", "--color=false", &file("puppet/noop.pp")]);
    // Puppet 7 and 8 word this message differently.
    let looked =
        result.out.lines().any(|l| l.contains("Orchestrate_blocker[web]/ensure") && l.ends_with("(noop)"));
    assert!(result.code == 0 && looked, "{result:?}");
    // The second instance appears while the run waits for it.
    let result = std::thread::scope(|scope| {
        let run = scope.spawn(|| site.apply(&manifest));
        wait::until("the run is under way", || host.path("apart").exists().then_some(()), || host.describe());
        assert!(!host.path("after-web").exists());
        put_service(&store, "web", "w2", 2);
        run.join().expect("the run")
    });
    let there = |name: &str| host.path(name).exists();
    let names = ["after-web", "after-nothing", "after-schema", "after-other", "after-fail", "apart"];
    assert_eq!(names.map(there), [true, false, true, false, false, true], "{result:?}");
    // Exit code 6 means changes and failures.
    assert_eq!(result.code, 6, "{result:?}");
    for why in [
        "gave up waiting for 1 of nothing functional after 2 looks",
        "other is nil, not \"go\"",
        "no seed yet",
        "Skipping because of failed dependencies",
    ] {
        assert!(result.out.contains(why) || result.err.contains(why), "{why}: {result:?}");
    }
    // Without an agent nothing passes.
    host.stop();
    let site = Site { host: &host };
    let result = site.apply("orchestrate_blocker { 'web': tries => 2, try_sleep => 0.1 }");
    assert!(result.code == 4 && result.err.contains("the agent could not be reached on"), "{result:?}");
    let result = site.apply("orchestrate_gate { 'schema': value => 'go' }");
    assert!(result.code == 4 && result.err.contains("the agent could not be reached on"), "{result:?}");
}
