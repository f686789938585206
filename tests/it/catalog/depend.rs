//! Hosts that need services of other hosts.

use serde_json::Value;
use tests::etcd::Etcd;
use tests::host::Host;
use tests::wait;

const NEEDS_DB: &str = "[[requires]]\nservice = \"mysql\"\nphase = \"apply\"\n\
                        [[requires]]\nservice = \"mysql\"\nphase = \"validate\"\n";

fn wait_for_detail(host: &Host, part: &str) {
    let is = |s: &Value| s["detail"].as_str().is_some_and(|detail| detail.contains(part));
    wait::until(&format!("{} says {part:?}", host.name), || host.status().filter(is), || host.describe());
}

/// Waits until a command prints `part`: hosts report a moment after they know something.
fn wait_for_words(host: &Host, command: &[&str], part: &str) {
    let says = || host.command(command, "").out.contains(part).then_some(());
    wait::until(&format!("{command:?} says {part:?}"), says, || format!("{:?}", host.command(command, "")));
}

#[test]
fn a_host_waits_for_a_service_says_for_which_and_goes_on_when_it_works() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let mut db = Host::new("db1", &etcd.endpoints());
    db.write_switched_service("mysql", 3306);
    let mut web = Host::new("web1", &etcd.endpoints()).with(NEEDS_DB);
    web.write_switched_service("web", 80);
    let mut balancer =
        Host::new("lb1", &etcd.endpoints()).with("[[requires]]\nservice = \"web\"\nphase = \"apply\"\n");
    for host in [&mut db, &mut web, &mut balancer] {
        host.start();
    }
    store.put("/current_version", "1");
    db.wait_for_listing(&store, "1");
    wait_for_detail(&web, "waits for mysql: 0 of 1 functional");
    wait_for_detail(&balancer, "waits for web: 0 of 1 functional");
    assert_eq!(web.runs("packages", "1"), 0, "what follows is held");
    for part in [
        "lb1 waits for web: 0 of 1 functional",
        "web1 waits for mysql: 0 of 1 functional",
        "mysql on db1 is critical: check service:mysql: mysql does not work",
    ] {
        wait_for_words(&db, &["why", "lb1"], part);
    }
    let roots = db.command(&["why"], "");
    assert!(
        roots
            .out
            .contains("2 hosts wait: mysql on db1 is critical: check service:mysql: mysql does not work"),
        "{roots:?}"
    );
    // The database works, so all hosts continue on their own.
    db.write("mysql-works", "");
    web.wait_for_listing(&store, "1");
    web.wait_for_verdict("ok");
    web.write("web-works", "");
    balancer.wait_for_listing(&store, "1");
    // The database fails: the host that needs it for validation waits, is not installed again, and
    // stays on its list.
    let converged = web.runs("render", "1");
    db.remove("mysql-works");
    wait_for_detail(&web, "waits for mysql: 0 of 1 functional");
    wait_for_words(&db, &["why", "web1"], "mysql on db1 is critical");
    assert!(store.get("/running_version/1/web1").is_some());
    // An outage that is over before the phase may run again needs no run.
    let more = || (web.runs("render", "1") > converged).then_some(());
    wait::until("the eventual phase ran without the database", more, || web.describe());
    let converged = web.runs("render", "1");
    db.write("mysql-works", "");
    web.wait_for_verdict("ok");
    assert_eq!(web.runs("packages", "1"), 1, "the consistent phase ran once");
    let more = || (web.runs("render", "1") > converged).then_some(());
    wait::until("the eventual phase ran again", more, || web.describe());
}

#[test]
fn a_need_that_is_read_again_counts_at_once() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let host = Host::started("h1", &etcd.endpoints());
    store.put("/current_version", "1");
    host.wait_for_listing(&store, "1");
    host.wait_for_verdict("ok");
    let settings = host.read("agent.toml");
    host.write(
        "agent.toml",
        &format!("{settings}\n[[requires]]\nservice = \"mysql\"\nphase = \"validate\"\n"),
    );
    host.signal(rustix::process::Signal::HUP);
    wait_for_detail(&host, "waits for mysql: 0 of 1 functional");
    store.put("/available_services/mysql/db1", r#"{"addresses": ["10.0.0.9"]}"#);
    host.wait_for_verdict("ok");
}

#[test]
fn two_hosts_that_need_each_other_working_are_named_and_by_address_they_settle() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let pair = |level: &str| {
        let host = |name: &str, own: &str, other: &str| {
            let mut host = Host::new(name, &etcd.endpoints()).with(&format!(
                "[[requires]]\nservice = \"{other}\"\nlevel = \"{level}\"\nphase = \"apply\"\n"
            ));
            host.write_switched_service(own, 80);
            host.start();
            host
        };
        let name = |kind: &str| format!("{kind}-{level}");
        [
            host(&name("lb"), &name("balancer"), &name("controller")),
            host(&name("ct"), &name("controller"), &name("balancer")),
        ]
    };
    let settling = pair("addressable");
    let stuck = pair("functional");
    store.put("/current_version", "1");
    for host in &settling {
        host.wait_for_listing(&store, "1");
    }
    let named = || {
        let result = stuck[0].command(&["why"], "");
        result.out.contains("waits for").then_some(result)
    };
    let result = wait::until("the loop is named", named, || stuck[0].describe());
    assert_eq!(
        result.out.lines().next().unwrap(),
        "2 hosts wait: ct-functional waits for balancer-functional on lb-functional, \
         lb-functional waits for controller-functional on ct-functional"
    );
}

#[test]
fn all_hosts_of_a_role_and_a_probe_from_here() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let mut hosts: Vec<Host> = Vec::new();
    for name in ["n1", "n2"] {
        let host = Host::new(name, &etcd.endpoints()).with("role = \"node\"\n");
        host.write_switched_service("node", 80);
        host.write("node-works", "");
        hosts.push(host);
    }
    hosts[0].start();
    let mut last = Host::new("last", &etcd.endpoints());
    let probe = last.path("reachable").display().to_string();
    last = last.with(&format!(
        "[[requires]]\nservice = \"node\"\ncount = \"all\"\nphase = \"apply\"\nprobe = [\"/usr/bin/test\", \"-e\", \"{probe}\"]\n"
    ));
    store.put("/orchestrate/hosts/n2", r#"{"role": "node"}"#);
    last.start();
    store.put("/current_version", "1");
    wait_for_detail(&last, "waits for node: 1 of 2 functional");
    hosts[1].start();
    wait_for_detail(&last, "node: 2 of 2 functional, and the probe from here fails");
    last.write("reachable", "");
    last.wait_for_listing(&store, "1");
}

#[test]
fn a_host_that_waits_before_apply_stays_on_its_list_and_its_eventual_phase_is_of_the_proven_version() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let mut web = Host::new("web1", &etcd.endpoints())
        .with("[attempts]\nconverge_at_most_every = \"100ms\"\nnot_yet_retry = \"200ms\"\n");
    web.start();
    store.put("/current_version", "1");
    web.wait_for_listing(&store, "1");
    let settings = web.read("agent.toml");
    let needs_two = "[[requires]]\nservice = \"mysql\"\ncount = 2\nphase = \"apply\"\n";
    web.write("agent.toml", &format!("{settings}\n{needs_two}"));
    web.signal(rustix::process::Signal::HUP);
    store.put("/current_version", "2");
    wait_for_detail(&web, "waits for mysql: 0 of 2 functional");
    let record = web.wait_for_status(&store, "puppet", "pending");
    assert_eq!(record["version"], "2", "{record}");
    // The host's view of the service changes, and converge follows it.
    let rendered = web.runs("render", "1");
    let comes = |host: &str| {
        store.put(&format!("/orchestrate/health/mysql/{host}"), "passing");
        store.put(&format!("/available_services/mysql/{host}"), r#"{"addresses": ["10.0.0.9"]}"#);
    };
    comes("db1");
    let followed = || (web.runs("render", "1") > rendered).then_some(());
    wait::until("the eventual phase follows", followed, || web.describe());
    assert!(store.get("/running_version/1/web1").is_some(), "{}", web.describe());
    assert_eq!((web.begins("packages", "2"), web.begins("render", "2")), (0, 0), "{}", web.describe());
    comes("db2");
    web.wait_for_listing(&store, "2");
    assert_eq!(store.get("/running_version/1/web1"), None);
}

#[test]
fn a_suspect_host_tries_again_when_what_it_lacked_has_come_though_nobody_declared_the_need() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let mut host = Host::new("h1", &etcd.endpoints()).with(
        "[attempts]\nbackoff_min = \"100ms\"\nbackoff_max = \"200ms\"\nsuspect_retry_on_change = \"500ms\"\n",
    );
    // The step fails like the compilation of a Puppet catalog that lacks another host's data.
    host.write(
        "do-packages",
        "grep -q db1 \"$D/state/catalog.json\" 2>/dev/null && echo 0 > \"$D/code-packages\" || echo 1 > \"$D/code-packages\"\n",
    );
    host.start();
    store.put("/current_version", "1");
    host.wait_for_verdict("suspect");
    let attempts = host.runs("packages", "1");
    assert!(attempts >= 3, "{}", host.describe());
    store.put("/available_services/mysql/db1", r#"{"addresses": ["10.0.0.9"]}"#);
    host.wait_for_listing(&store, "1");
    host.wait_for_verdict("ok");
}
