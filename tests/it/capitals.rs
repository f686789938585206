//! Names of hosts with capitals: DNS does not tell them from small letters, so keys are in lower case.

use schema::names::HostName;
use std::time::Duration;
use tests::etcd::Etcd;
use tests::host::Host;
use tests::wait;

fn keys_of(etcd: &Etcd, name: &str) -> Vec<String> {
    let ends = |key: &String| key.rsplit('/').next() == Some(name) || key.contains(&format!("/{name}/"));
    etcd.store().list("/").into_keys().filter(ends).collect()
}

fn says(host: &Host, arguments: &[&str], code: i32, part: &str) {
    let answer = host.command(arguments, "");
    assert_eq!(answer.code, code, "{arguments:?}: {answer:?}");
    assert!(answer.out.contains(part) || answer.err.contains(part), "{part:?} is missing: {answer:?}");
}

#[test]
fn a_host_with_capitals_has_a_name_in_lower_case_and_both_spellings_mean_it() {
    let etcd = Etcd::single();
    let host = Host::started("WEB1", &etcd.endpoints());
    says(&host, &["trigger_update", "1"], 0, "");
    for name in ["web1", "WEB1", "Web1"] {
        says(&host, &["verify_hosts", "1", name, "--wait", "30s"], 0, "");
        says(&host, &["verify_hosts", "1", name, "--strict"], 0, "");
        says(&host, &["why", name], 0, "web1");
        says(&host, &["freeze", "--hostname", name, "--reason", "capitals"], 0, "");
        says(&host, &["freezes"], 1, "web1");
        says(&host, &["unfreeze", "--hostname", name, "--all"], 0, "");
        says(&host, &["hosts", "add", name, "--role", "web"], 0, "");
    }
    says(&host, &["verify_hosts", "2", "WEB1"], 1, "not at 2 (1): web1");
    says(&host, &["verify_hosts", "1", "WEB1", "web1", "-o", "json"], 0, r#""wanted_count": 1"#);
    assert_eq!(keys_of(&etcd, "WEB1"), Vec::<String>::new());
    let answer = host.command(&["update_own_status", "no-such-check", "0"], "");
    assert!(answer.err.contains("no-such-check"), "{answer:?}");
    assert!(!answer.err.contains("on the host that runs them"), "this is that host: {answer:?}");
}

#[test]
fn an_agent_moves_the_keys_that_an_older_one_wrote_with_capitals() {
    let etcd = Etcd::single();
    let mut host = Host::started("web1", &etcd.endpoints());
    says(&host, &["trigger_update", "1"], 0, "");
    host.wait_for_listing(&etcd.store(), "1");
    says(&host, &["hosts", "add", "web1", "--role", "web"], 0, "");
    says(&host, &["freeze", "--hostname", "web1", "--reason", "until the disk is new"], 0, "");
    host.stop();
    spell_with_capitals(&etcd, &mut host);
    let runs = host.runs("packages", "1");
    host.start();
    host.wait_for_listing(&etcd.store(), "1");
    wait::until(
        "the former keys are gone",
        || keys_of(&etcd, "WEB1").is_empty().then_some(()),
        || format!("{:?}", keys_of(&etcd, "WEB1")),
    );
    says(&host, &["hosts"], 0, "web1  web");
    says(&host, &["freezes"], 1, "until the disk is new");
    assert_eq!(host.runs("packages", "1"), runs, "the proven version is not applied again");
}

/// Leaves the store, the settings and the journal of a stopped host as an older agent leaves them on a machine
/// with capitals in its name.
fn spell_with_capitals(etcd: &Etcd, host: &mut Host) {
    for key in keys_of(etcd, "web1") {
        let value = etcd.store().get(&key).expect("a value");
        etcd.store().put(&key.replace("web1", "WEB1"), &value);
        etcd.store().delete(&key);
    }
    host.name = HostName::new("WEB1").expect("a name");
    host.write_older_journal();
}

#[test]
fn keys_with_capitals_of_a_host_that_is_gone_can_be_taken_away_and_count_until_then() {
    let etcd = Etcd::single();
    let host = Host::started("web1", &etcd.endpoints());
    says(&host, &["trigger_update", "1"], 0, "");
    host.wait_for_listing(&etcd.store(), "1");
    etcd.store().put("/running_version/1/DB1", "1");
    etcd.store().put("/orchestrate/announced/DB1", "1");
    etcd.store().put("/orchestrate/hosts/DB1", r#"{"role": "db"}"#);
    etcd.store().put("/orchestrate/hosts/db1", "{}");
    says(&host, &["verify_hosts", "1", "DB1"], 1, "not at 1 (1): db1");
    etcd.store().delete("/orchestrate/hosts/db1");
    says(&host, &["verify_hosts", "1", "DB1"], 0, "");
    says(&host, &["verify_hosts", "1", "db1"], 1, "not at 1 (1): db1");
    says(&host, &["hosts", "decommission", "DB1"], 0, "");
    assert_eq!(keys_of(&etcd, "DB1"), ["/orchestrate/hosts/DB1"], "only the tombstone");
    says(&host, &["verify_hosts", "1", "DB1"], 1, "not at 1 (1): db1");
    says(&host, &["hosts", "add", "DB1"], 0, "");
    says(&host, &["hosts", "decommission", "DB1", "-o", "json"], 0, r#""host": "db1""#);
}

#[test]
fn two_machines_with_one_name_in_two_spellings_are_a_name_clash() {
    let etcd = Etcd::single();
    let first = Host::started("web1", &etcd.endpoints());
    says(&first, &["trigger_update", "1"], 0, "");
    first.wait_for_listing(&etcd.store(), "1");
    let mut second = Host::new("Web1", &etcd.endpoints());
    second.start();
    let clash = || first.command(&["status"], "").out.contains("two machines have this name").then_some(());
    wait::until_within(Duration::from_secs(60), "the clash is seen", clash, || {
        format!("{:?}", first.command(&["status"], ""))
    });
}
