//! At most one agent holds a host name.

use std::time::Duration;
use tests::etcd::Etcd;
use tests::host::Host;
use tests::wait;

const LEASE: Duration = Duration::from_secs(30);

#[test]
fn the_second_agent_under_a_name_stays_out_naming_both_and_takes_over_when_the_first_is_gone() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let mut first = Host::started("h1", &etcd.endpoints());
    store.put("/current_version", "1");
    first.wait_for_listing(&store, "1");
    // Another machine, reinstalled or with a wrong name: another machine id and an empty state
    // directory.
    let second = Host::started("h1", &etcd.endpoints());
    let status = second.wait_for_verdict("blocked");
    let detail = status["detail"].as_str().expect("text");
    let machine = |host: &Host| host.read("machine-id").trim().to_owned();
    assert!(detail.contains(&machine(&first)) && detail.contains(&machine(&second)), "{detail}");
    assert!(second.steps().is_empty(), "it does nothing under this name");
    first.wait_for_verdict("ok");
    first.kill();
    wait::until_within(
        LEASE * 2,
        "the second takes over",
        || second.status().filter(|s| s["claim"]["state"] == "held"),
        || second.describe(),
    );
    second.wait_for_listing(&store, "1");
}

#[test]
fn a_cloned_state_directory_is_set_aside() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let mut original = Host::started("h1", &etcd.endpoints());
    store.put("/current_version", "1");
    original.wait_for_listing(&store, "1");
    let mut clone = Host::new("h2", &etcd.endpoints());
    original.stop();
    let copied = std::process::Command::new("cp").arg("-a").arg(original.state()).arg(clone.state()).status();
    assert!(copied.expect("cp").success());
    clone.write("current_version", "1");
    original.start();
    clone.start();
    clone.wait_for_listing(&store, "1");
    original.wait_for_listing(&store, "1");
    let instance = |host: &Host| std::fs::read_to_string(host.state().join("instance")).expect("an instance");
    assert_ne!(instance(&original), instance(&clone));
    assert_eq!(clone.begins("packages", "1"), 0, "what its file says was validated, not applied");
    assert!(clone.runs("check", "1") > 0);
}

#[test]
fn a_second_process_on_the_same_state_directory_or_name_ends_at_once() {
    let etcd = Etcd::single();
    let first = Host::started("h1", &etcd.endpoints());
    wait::until("it runs", || first.http_get("/live"), || first.describe());
    let again = |settings: &str| {
        let mut command = std::process::Command::new(tests::process::binary("orchestrate-agent"));
        let output = tests::process::run(command.arg("--config").arg(first.path(settings)), "");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, error) = again("agent.toml");
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("another agent uses the state directory"), "{error}");
    let copy = first.read("agent.toml").replace("/state\"", "/state-copy\"");
    first.write("copy.toml", &copy);
    let (code, error) = again("copy.toml");
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("another agent on this machine runs as host h1"), "{error}");
}

#[test]
fn stopped_for_longer_than_the_lease_it_writes_nothing_as_if_it_still_held_the_name() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let host = Host::started("h1", &etcd.endpoints());
    store.put("/current_version", "1");
    host.wait_for_listing(&store, "1");
    host.signal(rustix::process::Signal::STOP);
    wait::until_within(
        LEASE * 2,
        "the lease ran out",
        || {
            (store.get("/orchestrate/live/h1").is_none() && store.list("/running_version/").is_empty())
                .then_some(())
        },
        || host.describe(),
    );
    store.put("/current_version", "2");
    host.signal(rustix::process::Signal::CONT);
    host.wait_for_listing(&store, "2");
    host.wait_for_verdict("ok");
}

#[test]
fn a_restarted_agent_resumes_its_lease_and_its_listing_stays() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let mut host = Host::started("h1", &etcd.endpoints());
    store.put("/current_version", "1");
    host.wait_for_listing(&store, "1");
    let live = store.get("/orchestrate/live/h1");
    let revision = store.revision();
    host.kill();
    host.start();
    host.wait_for_verdict("ok");
    wait::until(
        "it holds its name",
        || host.status().filter(|s| s["claim"]["state"] == "held"),
        || host.describe(),
    );
    assert_eq!(store.get("/orchestrate/live/h1"), live);
    assert_eq!(store.revision(), revision, "a restart writes nothing");
}

#[test]
fn a_decommissioned_host_stops_and_comes_back_when_it_is_added_again() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let host = Host::started("h1", &etcd.endpoints());
    store.put("/current_version", "1");
    host.wait_for_listing(&store, "1");
    let refused = host.command(&["hosts", "decommission", "h1"], "");
    let seconds = refused.err.split_once("stays live for ").and_then(|(_, rest)| rest.split(' ').next());
    let seconds: Option<u64> = seconds.and_then(|seconds| seconds.parse().ok());
    assert!(refused.code == 3 && seconds.is_some_and(|seconds| seconds <= 30), "{refused:?}");
    let result = host.command(&["hosts", "decommission", "h1", "--force"], "");
    assert_eq!(result.code, 0, "{result:?}");
    host.wait_for_verdict("blocked");
    assert!(store.list("/running_version/").is_empty());
    let result = host.command(&["hosts", "add", "h1"], "");
    assert_eq!(result.code, 0, "{result:?}");
    host.wait_for_listing(&store, "1");
    host.wait_for_verdict("ok");
}

#[test]
fn a_roster_entry_that_was_deleted_by_hand_comes_back() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let host = Host::started("h1", &etcd.endpoints());
    store.put("/current_version", "1");
    host.wait_for_listing(&store, "1");
    store.delete("/orchestrate/hosts/h1");
    wait::until("it is on the roster", || store.get("/orchestrate/hosts/h1"), || host.describe());
    host.wait_for_listing(&store, "1");
    host.wait_for_verdict("ok");
    assert_eq!(host.begins("packages", "1"), 1);
}

/// A listing that somebody else deleted, or wrote without a lease, is written again: by the running
/// agent, and by an agent that starts.
#[test]
fn a_listing_that_somebody_deleted_comes_back_within_a_backstop() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let mut host = Host::new("h1", &etcd.endpoints());
    let endpoints = etcd.endpoints();
    host = host.with(&format!("[store]\nendpoints = {endpoints:?}\nbackstop = \"1s\"\n"));
    host.start();
    store.put("/current_version", "1");
    host.wait_for_listing(&store, "1");
    let listing = "/running_version/1/h1";
    let lease = store.lease_of(listing);
    store.delete(listing);
    host.wait_for_listing(&store, "1");
    store.put(listing, "0");
    let is_leased = || (store.lease_of(listing) == lease).then_some(());
    wait::until("it hangs on the lease of the host again", is_leased, || host.describe());
    host.kill();
    store.delete(listing);
    host.start();
    host.wait_for_listing(&store, "1");
    assert_eq!(host.begins("packages", "1"), 1);
    // The listing of a decommissioned host is not written again.
    store.put("/orchestrate/hosts/h1", r#"{"since":1,"decommissioned":2}"#);
    host.wait_for_verdict("blocked");
    store.delete(listing);
    let is_gone = || store.get(listing).is_none();
    wait::stays("off the list", Duration::from_secs(3), is_gone, || host.describe());
}
