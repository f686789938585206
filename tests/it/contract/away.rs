//! Every verb while the store is unreachable, too slow or without a quorum.

use super::empty::{NEITHER, NOT_READ};
use super::filled::{reads_of_a_filled_store, writes_to_a_filled_store};
use super::fleet::{FLEET, assert_every_verb, discovery_service, fill};
use super::rows::{NOWHERE, Row, SAMPLE_LINT, SHORT, World, check, check_all, report, row};
use std::collections::BTreeSet;
use std::time::Duration;
use tests::etcd::Etcd;
use tests::proxy::{Behaviour, Proxy};
use tests::wait;

/// Returns the rows whose result is the same whatever prevents the answer: those of this file, and for every verb that
/// has none here its first row on a filled store, which cannot be told.
fn without_an_answer() -> Vec<Row> {
    let mut rows = own_rows();
    let mut covered: BTreeSet<String> = rows.iter().map(|row| row.verb().to_owned()).collect();
    for other in reads_of_a_filled_store().into_iter().chain(writes_to_a_filled_store()) {
        if covered.insert(other.verb().to_owned()) {
            rows.push(other.cannot_be_told());
        }
    }
    rows
}

fn own_rows() -> Vec<Row> {
    vec![
        row("a trigger is not taken for done", "trigger_update 44", 2, ""),
        row("a guard cannot tell", "trigger_update --require-settled 44", 2, ""),
        row("a configuration run gets the last version", "current_version", 0, "43\n")
            .remembered("43")
            .says("warning"),
        row("a configuration run gets a word", "current_version", 0, "None\n").says("warning"),
        row("what is remembered is checked", "current_version", 0, "None\n").remembered("a b"),
        row("the same in the first generation", "current_version", 0, "43\n")
            .remembered("43")
            .first_generation(),
        row("no member answers", "ping", 1, "Connection failed\n"),
        row("nothing desired is known, something installed", "pending_update", 2, NOT_READ).installed("42"),
        row("nothing desired is known, nothing installed", "pending_update", 3, NEITHER),
        row("what is remembered is no instruction", "pending_update", 2, NOT_READ)
            .installed("42")
            .remembered("43"),
        row("looking only", "pending_update --peek", 2, NOT_READ).installed("42"),
        row("a command needs an agent", "with-claim -- true", 2, "").says("no agent listens on"),
        row("a page needs a store that can be read", "ui", 2, ""),
        row("the file is here", "local_version", 0, "42\n").installed("42"),
        row("the file is written here", "local_version 43", 0, "43\n").installed("42"),
        row("a result cannot be told", "update_own_status puppet 0", 2, ""),
        row("a listing cannot be told", "update_own_info", 2, "").installed("42"),
        row("there is no listing to tell", "update_own_info", 0, ""),
        row("hosts cannot be verified", "verify_hosts 43", 2, "").input("web-1\n"),
        row("hosts cannot be waited for", "verify_hosts --wait 300ms 43 web-1", 2, ""),
        row("no hosts are no, whoever answers", "verify_hosts 43", 1, ""),
        row("a single version cannot be told", "check_single_version -v 43", 2, ""),
        row("no answer is not 'no failures'", "get_failures", 2, ""),
        row("no answer is not 'no failures', by host", "get_failures --hosts", 2, ""),
        row("no answer is not 'no failures', first generation", "get_failures --hosts", 2, "")
            .first_generation(),
        row("no token", "new_discovery_token --endpoint @DISCOVERY/", 2, ""),
        row("health is not known, which starts no run", "local_health -v", 0, "").says("warning"),
        row("no explanation", "debug_timeout 43", 2, ""),
        row("the fleet cannot be told", "status", 2, ""),
        row("nobody can account", "unaccounted", 2, ""),
        row("no roster", "hosts list", 2, ""),
        row("nothing is added", "hosts add web-3", 2, ""),
        row("nothing is taken out", "hosts decommission web-1 --force", 2, ""),
        row("why cannot be told", "why web-1", 2, ""),
        row("who waits cannot be told", "why", 2, ""),
        row("services cannot be told", "services list", 2, ""),
        row("a service cannot be told", "services show web", 2, ""),
        row("nobody can tell what came", "wait_for web", 2, ""),
        row("a name cannot be told", "dns web.service.consul", 2, ""),
        row("no file without an answer", "cache_services", 2, "")
            .with("ORCHESTRATE_HIERA_FILE", "@HOST/services.yaml"),
        row("roles cannot be told", "publish_service", 2, "")
            .with("ORCHESTRATE_PROFILE_LIST", "/etc/hostname"),
        row("no roles, nothing to tell", "publish_service", 0, "")
            .with("ORCHESTRATE_PROFILE_LIST", "@HOST/none"),
        row("values cannot be told", "values list", 2, ""),
        row("nothing is worked on", "maintenance on web-1", 2, ""),
        row("nothing is drained", "drain --this-host", 2, ""),
        row("nothing is frozen", "freeze --reason disk", 2, ""),
        row("nothing is unfrozen", "unfreeze", 2, ""),
        row("a policy cannot be told", "policy show", 2, ""),
        row("no policy is set", "policy set /dev/null", 2, ""),
        row("a policy is checked without a store", "policy check /dev/null", 0, ""),
        row("claims cannot be told", "claims", 2, ""),
        row("nothing is released", "claims release web-1 --reason x", 2, ""),
        row("nothing is paused", "rollout pause", 2, ""),
        row("nothing is resumed", "rollout resume", 2, ""),
        row("nothing is rolled back", "rollout rollback", 2, ""),
        row("no rollout can be told", "rollout status", 2, ""),
        row("no history can be told", "rollout history", 2, ""),
        row("no queue can be told", "rollout queue", 2, ""),
        row("no numbers change", "rollout set --max 1", 2, ""),
        row("nobody starts", "rollout start 44 --max 1", 2, ""),
        row("the end of a rollout cannot be told", "rollout status --wait 1ms", 2, ""),
        row("nobody is excused", "rollout excuse web-1 --reason x", 2, ""),
        row("no value is written", "manage_config state global a=b", 2, ""),
        row("no value is set", "set_config a b global", 2, ""),
        row("nothing is enabled", "enable_puppet True global", 2, ""),
        row("no values can be told", "host_data state", 2, ""),
        row("no value can be told", "check_config a global", 2, ""),
        row("no upgrade", "rolling_upgrade upgrade 44", 2, ""),
        row("no upgrade to wait for", "rolling_upgrade upgrade 44 --retry", 2, ""),
        row("nothing can be foreseen", "rolling_upgrade upgrade 44 --noop", 2, ""),
        row("no upgrade can be told", "rolling_upgrade status", 2, ""),
        row("nobody is held", "rolling_upgrade global_disable_puppet", 2, ""),
        row("recordings need no store", "recording list --recording @HOST", 1, "").says("has no segments"),
        row("nothing to check", "recording check --recording @HOST", 1, "").says("has no segments"),
        row("nothing to remove", "recording prune --older-than 1d --recording @HOST", 1, ""),
        row("nothing to erase", "recording erase /a --recording @HOST", 1, ""),
        row("no directory", "recording list --recording @HOST/nowhere", 2, "").says("No such file"),
        row("lint needs no store", SAMPLE_LINT, 0, ""),
        row("no log", "logs web-1", 2, ""),
        row("no bundle", "logs web-1 --from file:///srv", 2, ""),
        row("no report", "bundle web-1 --from file:///srv", 2, ""),
        row("no retry", "retry web-1", 2, ""),
        row("no store to show", "store show", 2, ""),
        row("no store to accept", "store accept --version 43", 2, ""),
        row("nothing is written that may not work", "bootstrap --directory @HOST/etc", 2, ""),
        row("completion needs no store", "completion zsh", 0, "").contains("compdef"),
        row("manual pages need no store", "manual @HOST/man", 0, "")
            .contains("/man/man1/orchestrate-status.1\n"),
        row("enrolling needs no store", "enroll ci --as verifier --print-etcdctl", 0, "")
            .contains("grant-permission orchestrate-verifier read --prefix=true"),
    ]
}

/// Runs these rows with the store and the discovery service behind proxies with this behaviour.
fn check_without_an_answer(behaviour: Behaviour) {
    let etcd = Etcd::single();
    let store = etcd.store();
    fill(&store, &FLEET);
    let (proxy, discovery) = (Proxy::start(&etcd.endpoint(0)), Proxy::start(&discovery_service()));
    proxy.set(behaviour);
    discovery.set(behaviour);
    let world = World { discovery: discovery.endpoint(), ..World::new(&proxy.endpoint()).within(SHORT) };
    let rows = without_an_answer();
    check_all(&world, &rows);
    assert!(proxy.accepted() > 0 && discovery.accepted() > 0);
    assert_eq!(store.revision(), 2, "nothing was written");
}

#[test]
fn nobody_listens() {
    let rows = without_an_answer();
    assert_every_verb(&[&rows]);
    check_all(&World::new(NOWHERE).within(SHORT), &rows);
}

#[test]
fn the_store_is_slower_than_the_time_out() {
    check_without_an_answer(Behaviour::Delay(Duration::from_secs(3600)));
}

#[test]
fn the_store_is_silent() {
    check_without_an_answer(Behaviour::Swallow);
}

#[test]
fn the_store_hears_and_is_not_heard() {
    check_without_an_answer(Behaviour::SwallowAnswers);
}

#[test]
fn the_store_hangs_up() {
    check_without_an_answer(Behaviour::Refuse);
}

#[test]
fn the_store_talks_nonsense() {
    check_without_an_answer(Behaviour::Garbage);
}

#[test]
fn the_time_out_bounds_everything_that_is_waited_for() {
    let proxy = Proxy::start(NOWHERE);
    proxy.set(Behaviour::Swallow);
    let silent = proxy.endpoint();
    let ways = [
        row("by the environment", "status", 2, ""),
        row("by an option, which wins", "--timeout 200ms status", 2, "").with("ORCHESTRATE_TIMEOUT", "1h"),
        row("by its other name", "--command-timeout 200ms status", 2, "").with("ORCHESTRATE_TIMEOUT", "1h"),
        row("finding endpoints", "status --discovery-url", 2, "").argument(&format!("{silent}/token")),
        row("finding endpoints by a name", "status --endpoints http://store.invalid:1", 2, ""),
        row("more endpoints", "status --endpoints", 2, "").argument(&format!("{silent},{silent},{NOWHERE}")),
    ];
    check_all(&World::new(&silent).within(SHORT), &ways);
}

#[test]
fn one_silent_member_leaves_time_for_another() {
    let etcd = Etcd::single();
    fill(&etcd.store(), &FLEET);
    let proxy = Proxy::start(NOWHERE);
    proxy.set(Behaviour::Swallow);
    // A command may start with any of the members, so each row is run several times.
    let rows = |name, line, out: &str| vec![row(name, line, 0, out); 6];
    let members = format!("{},{}", proxy.endpoint(), etcd.endpoint(0));
    let world = World::new(&members).within(Duration::from_secs(3));
    check_all(&world, &rows("ping", "ping", "Connection succesful\n"));
    check_all(&world, &rows("another verb", "running_versions", "42\n43\n"));
    assert!(proxy.accepted() > 0);
}

#[test]
fn without_a_quorum_nothing_is_verified_and_a_command_that_waits_gets_its_answer() {
    let mut etcd = Etcd::cluster();
    fill(&etcd.store(), &FLEET);
    etcd.kill_member(0);
    etcd.kill_member(1);
    // This member still has all the data, but must not answer without a quorum.
    let proxy = Proxy::start(&etcd.endpoint(2));
    let rows = [
        row("hosts", "verify_hosts 43 web-1 web-2", 2, ""),
        row("a version", "check_single_version 42", 2, ""),
        row("failures", "get_failures --hosts", 2, ""),
        row("the fleet", "status", 2, ""),
        row("a trigger", "trigger_update 44", 2, ""),
    ];
    check_all(&World::new(&proxy.endpoint()).within(SHORT), &rows);
    let before = proxy.accepted();
    std::thread::scope(|scope| {
        let world = World::new(&proxy.endpoint());
        let waiting = row("a question that is asked again", "verify_hosts --wait 20s 43 web-1 web-2", 0, "");
        let command = scope.spawn(move || check(&world, None, &waiting));
        wait::until("it asks", || (proxy.accepted() > before).then_some(()), String::new);
        etcd.start_member(0);
        etcd.start_member(1);
        report(&Vec::from_iter(command.join().expect("joined").err()));
    });
    assert_eq!(etcd.store().get("/current_version").as_deref(), Some("43\n"));
}
