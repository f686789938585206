//! Puppet as the steps of a version.

use super::{Site, module};
use crate::service_manager::{Machine, can_boot};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tests::etcd::Etcd;
use tests::host::Host;
use tests::network::Network;
use tests::process::{self, binary, run};
use tests::{skip, wait};

/// Makes Puppet the steps of a host: apply runs the whole site, converge only the tagged part.
fn run_by_puppet(host: Host, role: &str) -> Host {
    let site = Site::new(&host);
    std::fs::create_dir_all(host.path("services.d")).expect("a directory");
    let at = |name: &str| host.path(name).display().to_string();
    let command = |more: &[&str]| {
        let mut words = vec!["/usr/bin/puppet".to_owned(), "apply".into(), "--detailed-exitcodes".into()];
        words.extend(site.arguments());
        words.extend(more.iter().map(|word| (*word).to_owned()));
        words.push(at("puppet/site.pp"));
        format!("{words:?}")
    };
    let settings = format!(
        "facts_file = \"{facts}\"\nrole = \"{role}\"\nenvironment = {{ HOME = \"{home}\" }}\n\
         [[apply]]\nname = \"puppet\"\ncommand = {apply}\ndone_codes = [0, 2]\n\
         [[converge]]\nname = \"puppet\"\ncommand = {converge}\ndone_codes = [0, 2]\n\
         [[validate]]\nname = \"check\"\ncommand = [\"/usr/bin/test\", \"-s\", \"{whole}\"]\n",
        facts = at("facts.d/orchestrate.json"),
        home = at("puppet"),
        apply = command(&[]),
        converge = command(&["--tags", "follows_catalog"]),
        whole = at("whole"),
    );
    host.write("puppet/site.pp", &site_of(&host));
    host.with(&settings)
}

/// Returns the site of all hosts: every host has a file with the version, and the service of its
/// role; the balancer's file follows the members.
fn site_of(host: &Host) -> String {
    let at = |name: &str| host.path(name).display().to_string();
    format!(
        "$fact = $facts['orchestrate']
         file {{ '{whole}': content => \"${{fact['version']['desired']}}\\n\" }}
         exec {{ '/bin/sh -c \"echo run >> {runs}\"': }}
         orchestrate::service {{ $fact['role']:
           port       => 80,
           tags       => [\"v${{fact['version']['desired']}}\"],
           check_args => ['/usr/bin/test', '-s', '{whole}'],
           interval   => '200ms',
           directory  => '{services}',
         }}
         class balancer {{
           tag 'follows_catalog'
           $members = orchestrate::services('web').map |$found| {{ \"server ${{found['host']}} ${{found['address']}}:${{found['port']}}\" }}
           file {{ '{backends}': content => join($members + [''], \"\\n\") }}
         }}
         if $fact['role'] == 'balancer' {{ include balancer }}\n",
        whole = at("whole"),
        runs = at("runs"),
        services = at("services.d"),
        backends = at("backends"),
    )
}

fn wait_for_text(host: &Host, name: &str, expected: &str) {
    let is = || (host.read(name) == expected).then_some(());
    wait::until_within(WITHIN, &format!("{name} is {expected:?}"), is, || {
        format!("{:?}\n{}", host.read(name), host.describe())
    });
}

/// Time limit for hosts whose Puppet runs share few cores.
const WITHIN: Duration = Duration::from_secs(120);

#[test]
fn three_hosts_are_led_from_version_to_version_by_puppet_and_the_balancer_follows_its_members() {
    let name = "puppet::steps::three_hosts_are_led_from_version_to_version_by_puppet_and_the_balancer_follows_its_members";
    if !process::in_own_network(name) {
        return;
    }
    let (network, etcd) = (Network::new(), Etcd::single_real());
    let (endpoints, store) = ([network.endpoint(&etcd.endpoint(0))], etcd.store());
    // The operator works on the machine of the store.
    let operator = Host::new("operator", &etcd.endpoints());
    let command = |arguments: &[&str]| operator.command(arguments, "");
    let host = |name: &str, role: &str, number: u8| {
        run_by_puppet(Host::new(name, &endpoints), role).at(&network.place(number))
    };
    let mut balancer = host("lb1", "balancer", 1)
        .with("[[requires]]\nservice = \"web\"\ncount = 1\nlevel = \"addressable\"\nphase = \"converge\"\n");
    let mut web = [host("w1", "web", 2), host("w2", "web", 3)];
    let settled = |host: &Host, version: &str| {
        let is = || (host.read("current_version").trim() == version).then_some(());
        wait::until_within(WITHIN, &format!("{} is at {version}", host.name), is, || host.describe());
    };
    let trigger = |version: &str| {
        let result = command(&["trigger_update", version]);
        assert_eq!(result.code, 0, "{result:?}");
    };

    // Version 1: the balancer waits for the only web host.
    trigger("1");
    balancer.start();
    web[0].start();
    settled(&web[0], "1");
    wait_for_text(&balancer, "backends", "server w1 10.77.0.2:80\n");
    settled(&balancer, "1");
    // The service files that Puppet wrote are read, and the services are checked.
    balancer.wait_for_name(&["v1.web.service.consul"], &["10.77.0.2"]);
    balancer.wait_for_name(&["balancer.service.consul"], &["10.77.0.1"]);
    let fact: Value = serde_json::from_str(&balancer.read("facts.d/orchestrate.json")).expect("JSON");
    let fact = &fact["orchestrate"];
    assert_eq!((&fact["role"], &fact["version"]["desired"]), (&json!("balancer"), &json!("1")));

    // Another host joins: only the tagged part is applied, and the file follows without an update.
    let runs = || balancer.read("runs").lines().count();
    let whole_runs = runs();
    web[1].start();
    wait_for_text(&balancer, "backends", "server w1 10.77.0.2:80\nserver w2 10.77.0.3:80\n");
    settled(&web[1], "1");
    assert_eq!(runs(), whole_runs, "only the tagged part was applied");

    // Version 2 does not compile on one host: that host fails with Puppet's own message, and the
    // others continue.
    web[1].write("puppet/site.pp", "this is no manifest {");
    trigger("2");
    settled(&balancer, "2");
    settled(&web[0], "2");
    let report = || store.get("/orchestrate/reports/w2").unwrap_or_default();
    let says = || report().contains("Syntax error").then_some(());
    wait::until_within(WITHIN, "the report has Puppet's words", says, || {
        format!("{}\n{}", report(), web[1].describe())
    });
    assert_eq!(web[1].read("current_version").trim(), "1");
    let hosts = ["verify_hosts", "2", "lb1", "w1", "w2"];
    assert_eq!(command(&hosts).code, 1);
    // The failed host works as before and stays in the balancer's file.
    assert_eq!(balancer.read("backends").lines().count(), 2);
    balancer.wait_for_name(&["v1.web.service.consul"], &["10.77.0.3"]);

    // The host recovers.
    web[1].write("puppet/site.pp", &site_of(&web[1]));
    assert_eq!(command(&["retry", "w2"]).code, 0);
    settled(&web[1], "2");
    balancer.wait_for_name(&["v1.web.service.consul"], &[]);
    let all = || (command(&hosts).code == 0).then_some(());
    wait::until_within(WITHIN, "all are at 2", all, || web[1].describe());

    // A host is decommissioned, and the file follows.
    web[1].stop();
    assert_eq!(command(&["hosts", "decommission", "w2", "--force"]).code, 0);
    wait_for_text(&balancer, "backends", "server w1 10.77.0.2:80\n");
}

/// Returns the files in the manual: a sample whose first line names a path is the file with that
/// path.
fn files_of_the_manual() -> Vec<(String, String)> {
    let text = include_str!("../../../docs/puppet.md");
    let blocks = text.split("\n```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'));
    let files = blocks.filter_map(|(_, text)| {
        let path = text.lines().next()?.strip_prefix("# ").filter(|path| path.starts_with('/'))?;
        Some((path.split(':').next()?.to_owned(), text.to_owned()))
    });
    files.collect()
}

#[test]
fn the_site_of_the_manual_is_a_web_host_and_then_a_balancer() {
    let name = "puppet::steps::the_site_of_the_manual_is_a_web_host_and_then_a_balancer";
    if let Err(why) = can_boot() {
        return skip(name, why);
    }
    if !process::in_own_network(name) {
        return;
    }
    let Some(mut machine) = Machine::new() else {
        return skip(name, "no file system can be laid over this machine's own");
    };
    // An interface other than loopback, at whose address other hosts reach this one.
    let link = "ip link add eth0 type veth peer name other && ip addr add 10.79.0.1/24 dev eth0 && ip link set eth0 up && ip link set other up";
    assert!(run(Command::new("sh").args(["-c", link]), "").status.success());
    let (etcd, operator) = (Etcd::single_real(), Host::new("operator", &[]));
    let store = etcd.store();
    let at = ["--endpoints", &etcd.endpoint(0)].map(str::to_owned);
    let command =
        |arguments: &[&str]| operator.command(&[&[at[0].as_str(), at[1].as_str()], arguments].concat(), "");
    for (program, path) in [
        ("orchestrate-agent", "/usr/sbin/orchestrate-agent"),
        ("orchestrate-hiera", "/usr/bin/orchestrate-hiera"),
    ] {
        fs::copy(binary(program), machine.file(path)).expect("copied");
    }
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/systemd/orchestrate-agent.service");
    let unit = fs::read_to_string(unit).expect("the packaged unit");
    machine.write("/etc/systemd/system/orchestrate-agent.service", &unit);
    for path in ["/var/log/journal", "/var/lib/orchestrate", "/etc/facter/facts.d", "/etc/orchestrate"] {
        // The container must not have these directories of this machine.
        let _ = fs::remove_dir_all(machine.file(path));
    }
    fs::create_dir_all(machine.file("/etc/facter/facts.d")).expect("made");
    fs::create_dir_all(machine.file("/etc/orchestrate/services.d")).expect("made");
    fs::create_dir_all(machine.file("/etc/puppet/code/modules")).expect("made");
    let copied = run(
        Command::new("cp").arg("-R").arg(module()).arg(machine.file("/etc/puppet/code/modules/orchestrate")),
        "",
    );
    assert!(copied.status.success());
    let files = files_of_the_manual();
    assert!(files.len() >= 4, "{files:?}");
    files.iter().for_each(|(path, text)| machine.write(path, text));
    machine.write(
        "/etc/orchestrate/agent.toml",
        &format!(
            "host = \"m1\"\n[http]\nsocket = \"/run/orchestrate/agent.sock\"\n[store]\nendpoints = [{:?}]\nbackstop = \"1s\"\n",
            etcd.endpoint(0)
        ),
    );
    // The requirements of the other role do not apply to this one.
    let other_role = "/etc/orchestrate/agent.d/zz-role.toml";
    machine.write(other_role, "role = \"web\"\nrequires = []\n");
    std::os::unix::fs::symlink("/dev/null", machine.file("/etc/systemd/system/etcd.service"))
        .expect("masked");
    machine.boot();
    machine.run(&["systemctl", "start", "orchestrate-agent"]);
    assert_eq!(command(&["trigger_update", "1"]).code, 0);
    let describe = || format!("{}\n{}", command(&["why", "m1"]).out, machine.describe());
    let verified = |version: &str| {
        let is = || (command(&["verify_hosts", version, "m1"]).code == 0).then_some(());
        wait::until_within(WITHIN, &format!("it is at {version}"), is, describe);
    };
    let page = |url: &str, expected: &str| {
        let is = || {
            machine
                .try_run(&["curl", "-sf", url])
                .filter(|(found, result)| *found && result.contains(expected))
        };
        wait::until_within(WITHIN, &format!("{url} says {expected:?}"), is, describe);
    };
    verified("1");
    page("http://127.0.0.1:8000/", "version 1");
    let works = || (command(&["wait_for", "web", "--timeout", "2s"]).code == 0).then_some(());
    wait::until_within(WITHIN, "it is found and works", works, describe);

    fs::remove_file(machine.file(other_role)).expect("removed");
    machine.run(&["systemctl", "restart", "orchestrate-agent"]);
    assert_eq!(command(&["trigger_update", "2"]).code, 0);
    verified("2");
    page("http://127.0.0.1:8080/", "version 1");
    let record =
        json!({ "format": 1, "host": "m2", "port": 8000, "addresses": ["10.79.0.2"], "interfaces": {} });
    store.put("/available_services/web/m2", &record.to_string());
    let follows = || {
        machine.run(&["cat", "/etc/haproxy/haproxy.cfg"]).contains("server m2 10.79.0.2:8000").then_some(())
    };
    wait::until_within(WITHIN, "the balancer follows", follows, describe);
}
