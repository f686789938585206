//! Agents and commands of two versions in one fleet. `ORCHESTRATE_TEST_EARLIER` names the directory of the
//! earlier programs; without it both are those of this workspace, and the test shows a restart.

use std::path::PathBuf;
use tests::etcd::Etcd;
use tests::host::{CommandOutput, Host};
use tests::store::Store;
use tests::wait;

/// Returns the directory of the earlier programs.
fn earlier() -> Option<PathBuf> {
    std::env::var_os("ORCHESTRATE_TEST_EARLIER").map(PathBuf::from)
}

/// Runs a command of both versions; each must exit with this code. Returns what each printed.
fn both(ops: &mut Host, line: &str, code: i32) -> [String; 2] {
    [earlier(), None].map(|programs| {
        ops.set_programs(programs.as_deref());
        let CommandOutput { out, err, code: got } = ops.command(&line.split(' ').collect::<Vec<_>>(), "");
        assert_eq!(got, code, "{line}: {out}{err}");
        out + &err
    })
}

fn check_both(ops: &mut Host, line: &str, code: i32, expected: &[&str]) {
    for printed in both(ops, line, code) {
        assert!(expected.iter().all(|part| printed.contains(part)), "{line}: {expected:?}\n{printed}");
    }
}

/// Replaces the agent by one of these programs, as a package does.
fn replace(host: &mut Host, programs: Option<PathBuf>) {
    host.stop();
    host.set_programs(programs.as_deref());
    host.start();
}

/// The journal, the listing and the result of a host that was installed under a version count for the agent
/// that replaces it: it validates, and applies nothing.
fn check_keeps(host: &mut Host, programs: Option<PathBuf>, store: &Store, version: &str) {
    let (applied, validated) = (host.begins("packages", version), host.runs("check", version));
    replace(host, programs);
    let has_validated = || (host.runs("check", version) > validated).then_some(());
    wait::until("it validates", has_validated, || host.describe());
    host.wait_for_listing(store, version);
    assert_eq!(host.begins("packages", version), applied, "{}", host.describe());
}

#[test]
fn agents_of_two_versions_work_in_one_fleet_and_replace_each_other() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let mut ops = Host::new("ops", &etcd.endpoints());
    let mut hosts = ["h1", "h2", "h3"].map(|name| Host::new(name, &etcd.endpoints()));
    for (number, host) in hosts.iter_mut().enumerate() {
        host.set_programs(earlier().filter(|_| number < 2).as_deref());
        host.write_switched_service("web", 8081 + number as u16);
        host.write("web-works", "");
        host.start();
    }

    // Each finds the services of the others.
    ops.set_programs(earlier().as_deref());
    assert_eq!(ops.command(&["trigger_update", "1"], "").code, 0);
    hosts.iter().for_each(|host| host.wait_for_listing(&store, "1"));
    let records = ["1 1 8081 h1.node.consul.", "1 1 8082 h2.node.consul.", "1 1 8083 h3.node.consul."];
    hosts.iter().for_each(|host| host.wait_for_name(&["web.service.consul", "SRV"], &records));

    // Each command reads the keys of all.
    check_both(&mut ops, "verify_hosts 1 h1 h2 h3", 0, &[]);
    check_both(&mut ops, "status", 0, &["3"]);
    check_both(&mut ops, "hosts list", 0, &["h1", "h2", "h3"]);
    check_both(&mut ops, "services show web", 0, &["h1", "h2", "h3"]);
    for name in ["h1", "h3"] {
        check_both(&mut ops, &format!("why {name}"), 0, &["ok"]);
    }

    // A step goes on while its agent is replaced, and the new agent takes the result.
    hosts[0].write("hold-packages", "");
    ops.set_programs(None);
    assert_eq!(ops.command(&["trigger_update", "2"], "").code, 0);
    hosts[0].wait_for_begin("packages", "2");
    replace(&mut hosts[0], None);
    hosts[0].wait_for_verdict("running");
    hosts[0].remove("hold-packages");
    hosts.iter().for_each(|host| host.wait_for_listing(&store, "2"));
    // An agent that finds a journal of the format before applies again what was under way.
    let begins = if earlier().is_some() { 2 } else { 1 };
    assert_eq!(hosts[0].begins("packages", "2"), begins, "{}", hosts[0].describe());

    // A failure of either is read by both.
    for (number, version) in [(1, "3"), (2, "4")] {
        hosts[number].write(&format!("code-packages-{version}"), "75\n");
        assert_eq!(ops.command(&["trigger_update", version], "").code, 0);
        hosts[number].wait_for_begin("packages", version);
        let name = hosts[number].name.to_string();
        let reads =
            |ops: &mut Host| both(ops, &format!("why {name}"), 0).iter().all(|why| why.contains("packages"));
        wait::until("both say why", || reads(&mut ops).then_some(()), || hosts[number].describe());
        hosts[number].remove(&format!("code-packages-{version}"));
        hosts.iter().for_each(|host| host.wait_for_listing(&store, version));
    }

    // Forwards, back and forwards again.
    check_keeps(&mut hosts[1], None, &store, "4");
    check_keeps(&mut hosts[1], earlier(), &store, "4");
    check_freeze(&mut ops, &mut hosts[1]);
}

/// The first freeze is refused while an agent runs that does not know it; an agent that does not know freezes
/// refuses a store that may have some.
fn check_freeze(ops: &mut Host, earlier_host: &mut Host) {
    ops.set_programs(None);
    let freeze = || ops.command(&["freeze", "--reason", "test"], "");
    if let Some(programs) = earlier() {
        let refused = freeze();
        assert_eq!(refused.code, 3, "{refused:?}");
        assert!(refused.err.contains(earlier_host.name.as_str()), "{refused:?}");
        replace(earlier_host, None);
        let is_known = || Some(freeze()).filter(|result| result.code == 0);
        wait::until("the freeze is written", is_known, || format!("{:?}", freeze()));
        replace(earlier_host, Some(programs));
        earlier_host.wait_for_verdict("blocked");
        replace(earlier_host, None);
        earlier_host.wait_for_verdict("ok");
    } else {
        assert_eq!(freeze().code, 0);
    }
}
