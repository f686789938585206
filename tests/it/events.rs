//! `events`: who did what, from the store and as it happens.

use serde_json::Value;
use std::time::{SystemTime, UNIX_EPOCH};
use tests::etcd::Etcd;
use tests::host::Host;
use tests::process::binary;
use tests::wait;

/// Runs the command; it must exit with 0.
fn orchestrate(host: &Host, words: &[&str]) -> String {
    let result = host.command(words, "");
    assert_eq!(result.code, 0, "{words:?}: {result:?}");
    result.out
}

fn events(host: &Host, more: &[&str]) -> Vec<Value> {
    let answer = orchestrate(host, &[&["events", "-o", "json"], more].concat());
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    answer["events"].as_array().expect("a list").clone()
}

#[test]
fn acts_and_changes_without_a_command_are_listed_in_order() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let mut host = Host::new("web1", &etcd.endpoints());
    host.set_environment("LOGNAME", "ann");
    host.unset_environment("SUDO_USER");
    orchestrate(&host, &["trigger_update", "1", "--reason", "kernel"]);
    orchestrate(&host, &["hosts", "add", "web1", "--by", "deploy job 7"]);
    host.set_environment("ORCHESTRATE_BY", "cron");
    orchestrate(&host, &["values", "set", "gate", "open"]);
    store.put("/current_version", "2");
    let rows: Vec<[String; 4]> = events(&host, &[])
        .iter()
        .map(|event| ["by", "verb", "key", "new_value"].map(|name| event[name].to_string()))
        .collect();
    let quoted = |text: &str| format!("{text:?}");
    let row = |by: &str, verb: &str, key: &str| [quoted(by), quoted(verb), quoted(key)];
    assert_eq!(rows[0][..3], row("ann", "trigger_update", "/current_version"));
    assert_eq!(rows[1][..3], row("deploy job 7", "hosts add", "/orchestrate/hosts/web1"));
    assert_eq!(rows[2], ["\"cron\"", "\"values set\"", "\"/orchestrate/config/gate\"", "\"open\""]);
    assert_eq!(rows[3], ["null", "null", "\"/current_version\"", "\"2\""]);
    assert_eq!(rows.len(), 4, "{rows:?}");
    let of_host = events(&host, &["web1"]);
    assert_eq!(of_host.len(), 1, "{of_host:?}");
    let unknown = host.command(&["events", "web9"], "");
    assert_eq!((unknown.code, unknown.out.as_str()), (1, ""), "{unknown:?}");
    assert!(unknown.err.contains("host web9 is not known"), "{unknown:?}");
    assert_eq!(events(&host, &["--since", "1h"]).len(), 4);
    let table = orchestrate(&host, &["events"]);
    for part in ["AT ", "ann           trigger_update  version 1", "kernel", "no command      version 2"] {
        assert!(table.contains(part), "{part:?} in {table}");
    }
    let wrong = host.command(&["hosts", "add", "web2", "--by", "a\nb"], "");
    assert!(wrong.code == 64 && wrong.err.contains("without control characters"), "{wrong:?}");
}

#[test]
fn a_clock_that_is_wrong_deletes_no_event_and_is_named() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let host = Host::new("web1", &etcd.endpoints());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis();
    let day = 24 * 3600 * 1000;
    for age in [400, 90, 40] {
        let event = r#"{"client":"ops1","verb":"values set","what":"/orchestrate/config/k"}"#;
        store.put(&format!("/orchestrate/events/{:013}-abc{age}", now - age * day), event);
    }
    let result = host.command(&["values", "set", "k", "v"], "");
    assert!(
        result.code == 0 && result.err.contains("is 40d older than the clock of this machine"),
        "{result:?}"
    );
    assert_eq!(store.list("/orchestrate/events/").len(), 4, "none is deleted");
    let quiet = host.command(&["values", "set", "k", "w"], "");
    assert!(quiet.code == 0 && !quiet.err.contains("clock"), "{quiet:?}");
    store.put(
        &format!("/orchestrate/events/{:013}-abcnew", now + 40 * day),
        r#"{"client":"ops2","verb":"freeze","what":"x"}"#,
    );
    let behind = host.command(&["values", "set", "k", "x"], "");
    assert!(behind.code == 0 && behind.err.contains("newer than the clock of this machine"), "{behind:?}");
    assert_eq!(store.list("/orchestrate/events/").len(), 7, "none is deleted");
}

#[test]
fn an_act_says_what_it_did_and_why() {
    let etcd = Etcd::single();
    let host = Host::new("web1", &etcd.endpoints());
    orchestrate(&host, &["store", "accept", "--version", "1", "--reason", "new fleet"]);
    host.write("policy.toml", "[[limit]]\nby = \"fleet\"\nmax = 1\n");
    let policy = host.path("policy.toml");
    orchestrate(&host, &["policy", "set", policy.to_str().expect("text"), "--reason", "be careful"]);
    orchestrate(&host, &["hosts", "add", "web1"]);
    orchestrate(&host, &["maintenance", "on", "web1"]);
    orchestrate(&host, &["maintenance", "off", "web1"]);
    let rows: Vec<(String, String)> = events(&host, &[])
        .iter()
        .map(|event| {
            ["verb", "reason"].map(|name| event[name].as_str().unwrap_or_default().to_owned()).into()
        })
        .collect();
    for (verb, reason) in [
        ("store accept", "new fleet"),
        ("policy set", "be careful"),
        ("maintenance on", ""),
        ("maintenance off", ""),
    ] {
        assert!(rows.contains(&(verb.to_owned(), reason.to_owned())), "{verb}: {rows:?}");
    }
}

#[test]
fn events_are_followed_also_those_that_somebody_deletes() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let mut host = Host::new("web1", &etcd.endpoints());
    host.set_environment("ORCHESTRATE_BY", "ann");
    orchestrate(&host, &["trigger_update", "1"]);
    let mut followed = host.start_command(&["events", "--follow"], "followed");
    let shows = |part: &str| {
        let shown = || host.read("followed");
        wait::until(part, || shown().contains(part).then_some(()), shown);
    };
    shows("  ann  trigger_update  version 1\n");
    orchestrate(&host, &["trigger_update", "2", "--reason", "disk"]);
    shows("  ann  trigger_update  version 1 to 2  disk\n");
    let ids: Vec<String> = store.list("/orchestrate/events/").into_keys().collect();
    store.delete(&ids[0]);
    shows(&format!("{}  somebody deleted this event\n", ids[0]));
    assert_eq!(followed.ended(), None);
    followed.kill();
    assert_eq!(host.read("followed").lines().count(), 3, "{}", host.read("followed"));
}

#[test]
fn who_follows_events_sees_what_hosts_do_by_themselves() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let mut host = Host::new("web1", &etcd.endpoints());
    host.set_environment("ORCHESTRATE_BY", "ann");
    orchestrate(&host, &["trigger_update", "1"]);
    let mut followed = host.start_command(&["events", "--follow"], "followed");
    let shown = || host.read("followed");
    let shows = |part: &str| wait::until(part, || shown().contains(part).then_some(()), shown);
    shows("  ann  trigger_update  version 1\n");
    let rollout = "/orchestrate/rollouts/0000000000-0000000000000000007";
    store.put(
        &format!("{rollout}/halt"),
        r#"{"format":1,"at":1700000050,"by":"db1","why":"2 hosts failed, 1 tolerated"}"#,
    );
    shows("  db1  halt  the rollout of revision 7  2 hosts failed, 1 tolerated\n");
    store.put("/orchestrate/health/web/db1", "passing");
    store.put("/orchestrate/health/web/db1", "critical");
    shows("unknown  unknown  health  web on host db1: critical\n");
    // What was shown as it happened is what is read afterwards.
    let read: Vec<String> = events(&host, &[]).iter().map(|event| event["key"].to_string()).collect();
    assert_eq!(read.len(), 3, "{read:?}");
    assert_eq!(followed.ended(), None);
    followed.kill();
    assert_eq!(shown().lines().count(), 3, "{}", shown());
}

#[test]
fn who_follows_events_is_told_that_the_store_was_restored() {
    let mut etcd = Etcd::single_real();
    let host = Host::new("web1", &etcd.endpoints());
    orchestrate(&host, &["trigger_update", "1"]);
    let snapshot = etcd.save_snapshot();
    orchestrate(&host, &["trigger_update", "2"]);
    let mut followed = host.start_command(&["events", "--follow"], "followed");
    let shown = || host.read("followed");
    wait::until("it follows", || shown().contains("version 1 to 2\n").then_some(()), shown);
    etcd.restore_snapshot(&snapshot);
    let ended = wait::until_within(wait::DEADLINE * 2, "it ends", || followed.ended(), shown);
    assert_eq!(ended, Some(2), "{}", shown());
    assert!(shown().contains("it was restored; start the command again"), "{}", shown());
}

#[test]
fn a_command_in_a_step_acts_as_its_host() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let host = Host::new("web1", &etcd.endpoints());
    let step = format!(
        "[[apply]]\nname = \"drain\"\ncommand = [\"{}\", \"drain\", \"--this-host\", \"--reason\", \"update\"]\n",
        binary("orchestrate").display()
    );
    let mut host = host.with(&step);
    host.start();
    store.put("/current_version", "1");
    host.wait_for_listing(&store, "1");
    let keys: Vec<String> = store.list("/orchestrate/events/").into_keys().collect();
    assert!(keys.len() == 1 && keys[0].starts_with("/orchestrate/events/host/web1/"), "{keys:?}");
    let event = &events(&host, &["web1"])[0];
    let field = |name: &str| event[name].as_str().unwrap_or_default();
    assert_eq!(["by", "step_host", "verb", "reason"].map(field), ["web1", "web1", "drain", "update"]);
    assert!(orchestrate(&host, &["events"]).contains("a step of web1"));
}
