//! Claims for something else than an update: commands of operators, and reboots that FleetLock's clients
//! ask for.

use super::{orchestrate, set_policy, started, wait_until_held_back};
use serde_json::{Value, json};
use std::process::Command;
use tests::etcd::Etcd;
use tests::host::Host;
use tests::process::{Running, run};
use tests::store::Store;
use tests::wait;

/// Two hosts at version 1, of which one may be unavailable at a time.
fn two_hosts(etcd: &Etcd) -> (Vec<Host>, Store) {
    let (hosts, store) = (started(&["a1", "a2"], etcd), etcd.store());
    store.put("/current_version", "1");
    hosts.iter().for_each(|host| host.wait_for_listing(&store, "1"));
    set_policy(&hosts[0], "[[limit]]\nby = \"fleet\"\nmax = 1\n");
    (hosts, store)
}

/// Starts a command under a claim that runs until the file `go` exists, and then exits with 7.
fn with_claim(host: &Host, options: &[&str]) -> Running {
    let script = "touch begun; while [ ! -e go ]; do sleep 0.05; done; rm begun go; exit 7";
    let script = format!("cd {}; {script}", host.path("").display());
    let line = [&["with-claim"], options, &["--", "sh", "-c", &script]].concat();
    host.start_command(&line, "with-claim.log")
}

fn wait_for_end(running: &mut Running, host: &Host) -> Option<i32> {
    wait::until("the command ends", || running.ended(), || host.read("with-claim.log"))
}

fn wait_for_begin(host: &Host) {
    let begun = || host.path("begun").exists().then_some(());
    wait::until("the command begins", begun, || {
        format!("{}{}", host.read("with-claim.log"), host.describe())
    });
}

fn claims(store: &Store) -> Vec<String> {
    store.list("/orchestrate/claims/").into_values().collect()
}

fn wait_for_claims(store: &Store, count: usize) {
    let found = || (claims(store).len() == count).then_some(());
    wait::until(&format!("{count} claims"), found, || format!("{:?}", claims(store)));
}

#[test]
fn a_command_and_an_update_are_held_under_the_same_limit() {
    let etcd = Etcd::single();
    let (hosts, store) = two_hosts(&etcd);
    let [a1, a2] = hosts.as_slice() else { panic!("two hosts") };
    let mut command = with_claim(a1, &[]);
    wait_for_begin(a1);
    let listed = orchestrate(a2, "claims", 1);
    assert!(listed.contains("a1    command  live"), "{listed}");
    // Another command waits, and gives up when its time is over.
    let refused = a2.command(&["with-claim", "--wait", "1s", "--", "true"], "");
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(refused.err.contains("1 of at most 1 hosts of the fleet are unavailable: a1"), "{refused:?}");
    // An update waits too; that of the host itself shares the claim.
    store.put("/current_version", "2");
    a1.wait_for_listing(&store, "2");
    assert_eq!(wait_until_held_back(a1, "a2"), "1 of at most 1 hosts of the fleet are unavailable: a1");
    let why = orchestrate(a1, "why a2", 0);
    assert!(why.contains("for: command"), "{why}");
    a1.write("go", "");
    assert_eq!(wait_for_end(&mut command, a1), Some(7), "the code of the command");
    a2.wait_for_listing(&store, "2");
    wait_for_claims(&store, 0);
    assert_eq!(a1.command(&["with-claim", "--", "no-such-program"], "").code, 127);
    let begin = std::time::Instant::now();
    // What the command started has time to end as well.
    let slow = format!(
        "(trap 'sleep 0.5; touch {}; exit' TERM; while :; do sleep 0.1; done) & sleep 100",
        a1.path("ended").display()
    );
    let timed_out = a1.command(&["with-claim", "--for", "1s", "--", "sh", "-c", &slow], "");
    assert_eq!((timed_out.code, begin.elapsed().as_secs() < 60), (124, true), "{timed_out:?}");
    assert!(a1.path("ended").exists(), "it got no SIGKILL");
    wait_for_claims(&store, 0);
}

#[test]
fn claims_of_a_command_that_was_killed_last_until_it_has_ended_and_the_host_works() {
    let etcd = Etcd::single();
    let (mut hosts, store) = two_hosts(&etcd);
    let mut command = with_claim(&hosts[0], &[]);
    wait_for_begin(&hosts[0]);
    // The command itself goes on, also while the agent is away, and takes its claims again if the host was lost.
    command.kill();
    hosts[0].kill();
    store.list("/orchestrate/claims/").keys().for_each(|key| store.delete(key));
    store.delete("/orchestrate/claimed/a1");
    hosts[0].start();
    hosts[0].wait_for_listing(&store, "1");
    wait_for_claims(&store, 1);
    let runs = hosts[0].runs("check", "1");
    let checked = || (hosts[0].runs("check", "1") > runs + 1).then_some(());
    wait::until("the host is validated", checked, || hosts[0].describe());
    assert_eq!(claims(&store).len(), 1);
    hosts[0].write("go", "");
    wait_for_claims(&store, 0);
    // A command that waits goes on waiting while the agent is restarted.
    let mut first = with_claim(&hosts[1], &[]);
    wait_for_begin(&hosts[1]);
    let mut second = hosts[0].start_command(&["with-claim", "--", "true"], "second.log");
    let waits = || hosts[0].read("second.log").contains("are unavailable: a2").then_some(());
    wait::until("it waits", waits, || hosts[0].read("second.log"));
    hosts[0].kill();
    let away = || hosts[0].read("second.log").contains("no agent listens").then_some(());
    wait::until("it notices", away, || hosts[0].read("second.log"));
    hosts[0].start();
    hosts[1].write("go", "");
    assert_eq!(wait_for_end(&mut first, &hosts[1]), Some(7));
    assert_eq!(wait_for_end(&mut second, &hosts[0]), Some(0), "{}", hosts[0].read("second.log"));
    // Without an agent nobody can take claims.
    hosts[0].stop();
    let refused = hosts[0].command(&["with-claim", "--", "true"], "");
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.err.contains("no agent listens on"), "{refused:?}");
}

/// Sends a request as the protocol's document does, with curl. Returns the status code and the body.
fn fleet_lock(host: &Host, path: &str, header: &str, body: &str) -> (u16, Value) {
    host.write("body.json", body);
    let url = format!("http://127.0.0.1:{}/v1/{path}", host.http_port());
    let body = format!("@{}", host.path("body.json").display());
    let mut curl = Command::new("curl");
    curl.args(["-sS", "-w", "\n%{http_code}", "-H", header, "-d", &body, &url]);
    let output = run(&mut curl, "");
    let text = String::from_utf8(output.stdout).expect("text");
    let (body, code) = text.rsplit_once('\n').expect("a code");
    (code.parse().expect("a number"), serde_json::from_str(body).unwrap_or_default())
}

const HEADER: &str = "fleet-lock-protocol: true";

/// What a client of the protocol does; `id` names it.
fn ask(host: &Host, path: &str, id: &str) -> (u16, Value) {
    let body = json!({ "client_params": { "id": id, "group": "default" } });
    fleet_lock(host, path, HEADER, &body.to_string())
}

fn turn_on_fleet_lock(host: &mut Host) {
    host.stop();
    std::fs::create_dir(host.path("agent.d")).expect("a directory");
    host.write("agent.d/http.toml", "[http]\nfleet_lock = true\n");
    host.start();
    wait_for_fleet_lock(host);
}

/// Waits until the agent can write to the store. Until then it answers 503, and clients ask again.
fn wait_for_fleet_lock(host: &Host) {
    let ready = || (ask(host, "steady-state", "nobody").0 == 200).then_some(());
    wait::until("the agent answers", ready, || host.describe());
}

#[test]
fn clients_of_fleet_lock_reboot_under_the_limits() {
    let etcd = Etcd::single();
    let (mut hosts, store) = two_hosts(&etcd);
    assert_eq!(ask(&hosts[0], "pre-reboot", "n1").0, 404, "it is turned on in the settings");
    for host in &mut hosts {
        turn_on_fleet_lock(host);
    }
    let [a1, a2] = hosts.as_slice() else { panic!("two hosts") };
    // At its start a client gives back what it may have held.
    assert_eq!(ask(a1, "steady-state", "n1").0, 200);
    assert_eq!(ask(a1, "pre-reboot", "n1").0, 200);
    assert_eq!(ask(a1, "pre-reboot", "n1").0, 200, "a client may ask again");
    let (code, error) = ask(a2, "pre-reboot", "n2");
    assert_eq!((code, error["kind"].as_str()), (409, Some("failed_lock_semaphore_full")));
    assert_eq!(error["value"], "1 of at most 1 hosts of the fleet are unavailable: a1");
    assert_eq!(claims(&store).len(), 1);
    assert!(claims(&store)[0].contains(r#""for":["reboot/n1"]"#), "{:?}", claims(&store));
    // Only the client that took a claim gives it back.
    assert_eq!(ask(a1, "steady-state", "other").0, 200);
    assert_eq!(ask(a2, "pre-reboot", "n2").0, 409);
    assert_eq!(ask(a1, "steady-state", "n1").0, 200);
    assert_eq!(ask(a2, "pre-reboot", "n2").0, 200);
    assert_eq!(ask(a2, "steady-state", "n2").0, 200);
    assert_eq!(claims(&store).len(), 0);
    orchestrate(a1, "freeze --reason maintenance", 0);
    let (code, error) = ask(a1, "pre-reboot", "n1");
    assert_eq!((code, error["kind"].as_str()), (409, Some("failed_lock_frozen")));
    orchestrate(a1, "unfreeze", 0);
    let check = |header: &str, body: &str, kind: &str| {
        let (code, error) = fleet_lock(a1, "pre-reboot", header, body);
        assert_eq!((code, error["kind"].as_str()), (400, Some(kind)), "{header} {body}: {error}");
        assert!(error["value"].as_str().is_some_and(|value| !value.is_empty()), "{error}");
    };
    let good = r#"{"client_params":{"id":"n1","group":"default"}}"#;
    check("x: y", good, "missing_header");
    check("fleet-lock-protocol: false", good, "missing_header");
    check(HEADER, "nothing", "bad_body");
    check(HEADER, r#"{"client_params":{"id":"n1"}}"#, "bad_body");
    check(HEADER, r#"{"client_params":{"id":"","group":"default"}}"#, "bad_id");
    check(HEADER, r#"{"client_params":{"id":"n1","group":"a b"}}"#, "bad_group");
    check(HEADER, r#"{"client_params":{"id":"n1","group":""}}"#, "bad_group");
}

/// A reboot of the machine ends neither a client's claim nor its own: the client gives it back.
#[test]
fn a_claim_for_a_reboot_outlives_the_agent() {
    let etcd = Etcd::single();
    let (mut hosts, store) = two_hosts(&etcd);
    turn_on_fleet_lock(&mut hosts[0]);
    assert_eq!(ask(&hosts[0], "pre-reboot", "n1").0, 200);
    hosts[0].reboot("boot-2\n");
    hosts[0].start();
    hosts[0].wait_for_listing(&store, "1");
    wait_for_fleet_lock(&hosts[0]);
    assert_eq!(claims(&store).len(), 1);
    assert_eq!(ask(&hosts[0], "steady-state", "n1").0, 200);
    assert_eq!(claims(&store).len(), 0);
}
