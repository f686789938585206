//! Services that are down count as failures, although every host runs its version.

use std::time::Duration;
use tests::etcd::Etcd;
use tests::host::{CommandOutput, Host};
use tests::wait;

fn wait_for(host: &Host, command: &[&str], is: impl Fn(&CommandOutput) -> bool) -> CommandOutput {
    let ask = || Some(host.command(command, "")).filter(&is);
    wait::until_within(Duration::from_secs(90), &format!("{command:?}"), ask, || {
        format!("{:?}\n{}", host.command(command, ""), host.describe())
    })
}

/// A check of the host itself that fails while the file `disk-fails` exists.
const DISK: &str = r#"{"check": {"name": "disk", "script": "test ! -e '@FILE@' || { echo full; exit 2; }", "interval": "200ms"}}"#;

#[test]
fn a_service_that_is_down_is_a_failure_with_its_check_and_an_update_of_it_is_not_refused() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let mut db = Host::new("db1", &etcd.endpoints());
    db.write_switched_service("mysql", 3306);
    db.write("mysql-works", "");
    db.start();
    let mut web = Host::new("web1", &etcd.endpoints())
        .with("[[requires]]\nservice = \"mysql\"\nphase = \"validate\"\n");
    web.start();
    store.put("/current_version", "1");
    db.wait_for_listing(&store, "1");
    web.wait_for_listing(&store, "1");
    wait_for(&db, &["status"], |result| result.code == 0);

    // The database fails while no update is running.
    db.remove("mysql-works");
    let status =
        wait_for(&db, &["status"], |result| result.out.contains("mysql") && result.out.contains("failing"));
    assert_eq!(status.code, 1, "{status:?}");
    wait_for(&web, &["status"], |result| {
        result.out.contains("web1") && result.out.starts_with("fleet: failing")
    });
    let failures = wait_for(&db, &["get_failures", "--hosts"], |result| result.code == 1);
    assert!(failures.out.contains("  Node: db1, Check: mysql\n"), "{failures:?}");
    let counts = db.command(&["get_failures"], "");
    assert_eq!((counts.code, counts.out.as_str()), (1, "Validation failures :0\nPuppet failures :0\n"));
    // Hosts run the desired version, and the trigger that repairs the service is not refused.
    assert_eq!(db.command(&["verify_hosts", "1", "db1", "web1"], "").code, 0);
    let triggered = web.command(&["trigger_update", "2"], "");
    assert_eq!(triggered.code, 0, "{triggered:?}");
    db.wait_for_listing(&store, "2");
    // An operator's maintenance mark explains the failure.
    let out = db.command(&["maintenance", "on", "mysql", "--hostname", "db1"], "");
    assert_eq!(out.code, 0, "{out:?}");
    wait_for(&db, &["get_failures", "--hosts"], |result| !result.out.contains("mysql"));
    db.write("mysql-works", "");
    assert_eq!(db.command(&["maintenance", "off", "mysql", "--hostname", "db1"], "").code, 0);
    wait_for(&db, &["status"], |result| result.code == 0);
}

#[test]
fn a_check_of_the_host_itself_goes_by_its_own_name_and_says_what_it_said() {
    let etcd = Etcd::single();
    // Setting the version first and using one step keeps the number of reports small: a sixth
    // report within a minute would be delayed.
    etcd.store().put("/current_version", "1");
    let apply = "[[apply]]\nname = \"a\"\ncommand = [\"/bin/true\"]\n";
    let mut db = Host::new("db1", &etcd.endpoints()).with(apply);
    db.write_service("mysql.json", r#"{"service": {"name": "mysql", "port": 3306}}"#);
    let file = db.path("disk-fails").display().to_string();
    db.write_service("disk.json", &DISK.replace("@FILE@", &file));
    db.start();
    db.wait_for_listing(&etcd.store(), "1");
    wait_for(&db, &["status"], |result| result.code == 0);
    db.write("disk-fails", "");
    let local = wait_for(&db, &["local_health", "-v"], |result| result.code == 1);
    assert_eq!(local.out, "disk: full\n", "{local:?}");
    let failures = wait_for(&db, &["get_failures", "--hosts"], |result| result.code == 1);
    assert_eq!(failures.out, "Failures:\n  Node: db1, Check: disk\n", "{failures:?}");
    let status = db.command(&["status"], "");
    assert!(status.out.contains("disk  db1   full"), "{status:?}");
}
