//! Services that an operator takes out of use, and their last functional instances.

use super::publish::{HEALTH, RECORDS, wait_for_health};
use tests::etcd::Etcd;
use tests::host::Host;
use tests::wait;

/// Nobody takes the last functional instance by mistake, and two operators do not take the last two of them at
/// the same time.
#[test]
fn the_last_functional_instance_stays_unless_it_is_forced() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let mut hosts = ["h1", "h2"].map(|name| Host::new(name, &etcd.endpoints()));
    for host in &mut hosts {
        host.write_switched_service("web", 80);
        host.write("web-works", "");
        host.start();
        wait_for_health(host, &store, &format!("web/{}", host.name), Some("passing"));
    }
    let run = |line: &str, code: i32, says: &str| {
        let result = hosts[0].command(&line.split(' ').collect::<Vec<_>>(), "");
        assert_eq!(result.code, code, "{line}: {result:?}");
        assert!(result.err.contains(says), "{line}: {result:?}");
    };
    run("drain", 64, "`orchestrate drain HOST`, or `orchestrate drain --this-host`");
    run("maintenance on", 64, "`orchestrate maintenance on HOST`");
    run("drain nosuch", 1, "host nosuch is not known");
    run("drain h2 --service db", 1, "h2 has no service db");
    run("drain h2", 0, "h2 is draining\nweb: 1 of 2 instances stay functional\n");
    run("drain h2", 0, "h2 is draining already; nothing was changed");
    run("maintenance on h1", 3, "h1 has the last functional instance of web; --force takes it");
    run("drain h1 --service web", 3, "--force");
    assert_eq!(store.list("/orchestrate/maintenance/").len(), 1);
    run("drain web --force", 0, "use `orchestrate drain --this-host --service web`");
    run("drain web --hostname h1 --off", 0, "use `orchestrate drain h1 --service web`");
    run("drain h2 --off", 0, "h2 is not draining any more");

    // What fails there is shown with its output.
    hosts[1].remove("web-works");
    wait_for_health(&hosts[1], &store, "web/h2", Some("critical"));
    let shows = || hosts[0].command(&["services", "show", "web", "--checks"], "");
    let shown = |text: &str| {
        text.lines().any(|line| line.starts_with("h2 ") && line.contains("service:web  critical"))
    };
    let has_check =
        || shows().out.split_once("OUTPUT").is_some_and(|(_, checks)| shown(checks)).then_some(());
    wait::until("the check is shown", has_check, || format!("{:?}", shows()));
    hosts[1].write("web-works", "");

    // Both at once: one of them is told.
    for _ in 0..10 {
        wait_for_health(&hosts[0], &store, "web/h1", Some("passing"));
        wait_for_health(&hosts[1], &store, "web/h2", Some("passing"));
        let codes = std::thread::scope(|scope| {
            let ops = &hosts[0];
            let drain = |name| scope.spawn(move || ops.command(&["drain", name], "").code);
            [drain("h1"), drain("h2")].map(|thread| thread.join().expect("a command"))
        });
        assert!(codes == [0, 3] || codes == [3, 0], "{codes:?}");
        for name in ["h1", "h2"] {
            assert_eq!(hosts[0].command(&["drain", name, "--off"], "").code, 0);
        }
    }
}

#[test]
fn an_operator_takes_services_out_of_use_and_hosts_out_of_the_fleet() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let mut host = Host::new("h1", &etcd.endpoints());
    for name in ["web", "db"] {
        host.write_switched_service(name, 80);
        host.write(&format!("{name}-works"), "");
    }
    host.start();
    // The test waits for both services: a service whose first check has not run yet is critical
    // too, and the first wait below would mistake that for the effect of maintenance.
    wait_for_health(&host, &store, "web/h1", Some("passing"));
    wait_for_health(&host, &store, "db/h1", Some("passing"));
    for (command, web, db) in [
        ("maintenance on --this-host --service web --reason disk --force", "critical", "passing"),
        ("drain h1 --force", "critical", "draining"),
        ("maintenance off h1 --service web", "draining", "draining"),
        ("drain h1 --off", "passing", "passing"),
    ] {
        let result = host.command(&command.split(' ').collect::<Vec<_>>(), "");
        assert_eq!(result.code, 0, "{command}: {result:?}");
        wait_for_health(&host, &store, "web/h1", Some(web));
        wait_for_health(&host, &store, "db/h1", Some(db));
        if command.starts_with("maintenance on") {
            let view = host.command(&["services", "show", "web"], "");
            assert_eq!(view.code, 1);
            assert!(view.out.contains("critical (maintenance: disk)"), "{}", view.out);
            assert!(host.command(&["status"], "").out.contains("  disk"));
        }
    }
    let result = host.command(&["hosts", "decommission", "h1", "--force"], "");
    assert_eq!(result.code, 0, "{result:?}");
    wait_for_health(&host, &store, "web/h1", None);
    assert_eq!(store.list(RECORDS).len() + store.list(HEALTH).len(), 0);
}
