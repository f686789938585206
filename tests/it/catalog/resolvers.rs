//! Names through the common resolvers, set up as the documentation describes.

use std::path::PathBuf;
use std::process::Command;
use tests::etcd::Etcd;
use tests::host::Host;
use tests::process::{Running, binary, in_own_network, run};
use tests::wait;

/// Returns the samples about resolvers in docs/discovery.md, in their order.
fn samples() -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/discovery.md");
    let text = std::fs::read_to_string(path).expect("the document");
    let about = text.split("### Resolvers").nth(1).expect("the chapter");
    let about = about.split("\n## ").next().expect("the chapter");
    let blocks = about.split("```").skip(1).step_by(2);
    blocks.map(|block| block.split_once('\n').expect("a sample").1.to_owned()).collect()
}

fn say(command: &mut Command) -> Vec<String> {
    String::from_utf8_lossy(&run(command, "").stdout).lines().map(str::to_owned).collect()
}

/// Asks once; a slow machine takes its time for the answer.
fn ask(server: &str, question: &str) -> Vec<String> {
    ask_with(["+tries=3", "+time=10"], server, question)
}

fn ask_with(patience: [&str; 2], server: &str, question: &str) -> Vec<String> {
    let (address, port) = server.split_once('#').unwrap_or((server, "53"));
    let mut dig = Command::new("dig");
    say(dig.args([address, "-p", port, "+short"]).args(patience).args(question.split(' ')))
}

fn wait_for_answer(server: &str, name: &str, expected: &str, describe: impl Fn() -> String) {
    // One that does not listen yet is soon asked again.
    let answer = || ask_with(["+tries=1", "+time=2"], server, name);
    let is = || (answer() == [expected]).then_some(());
    let state = || format!("{:?}\n{}", answer(), describe());
    wait::until(&format!("{server} knows {name}"), is, state);
}

#[test]
fn the_resolvers_of_the_documentation_find_names_of_services_and_others() {
    if !in_own_network(
        "catalog::resolvers::the_resolvers_of_the_documentation_find_names_of_services_and_others",
    ) {
        return;
    }
    let samples = samples();
    let [_, dnsmasq, unbound, agent, resolv_conf] = samples.as_slice() else { panic!("{samples:?}") };
    let directory = tempfile::tempdir().expect("a directory");
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).expect("written");
        path
    };
    let log = |name: &str| directory.path().join(name);
    // A DNS server for the rest of the world: it knows one name and has its own address.
    run(Command::new("ip").args(["addr", "add", "192.0.2.53/32", "dev", "lo"]), "");
    let mut world = Command::new("dnsmasq");
    world.args(["-k", "-C", "/dev/null", "--no-resolv", "--no-hosts", "--user=root", "--bind-interfaces"]);
    world.args(["--listen-address=192.0.2.53", "--except-interface=lo0", "--address=/example.org/192.0.2.7"]);
    let _world = Running::start(&mut world, &log("world"));

    let etcd = Etcd::single();
    let store = etcd.store();
    store.put("/available_services/web/h9", r#"{"addresses": ["10.9.0.9"], "port": 80, "tags": ["v1"]}"#);
    for number in 1..=100 {
        let record = format!(r#"{{"addresses": ["10.8.0.{number}"], "port": 80}}"#);
        store.put(&format!("/available_services/many/m{number}"), &record);
    }
    let mut host = Host::new("h1", &etcd.endpoints()).with(&format!("{agent}datacenter = \"dc1\"\n"));
    host.start();
    let host_says = || host.describe();
    wait_for_answer("@127.0.0.2", "example.org", "192.0.2.7", host_says);
    wait_for_answer("@127.0.0.2", "web.service.consul", "10.9.0.9", host_says);
    // The first question about a service waits for its health at most 2 s.
    let many = || (ask("@127.0.0.2", "many.service.consul").len() == 100).then_some(());
    wait::until("the agent knows the health of many", many, host_says);

    // The C library, with a real resolv.conf.
    let path = file("resolv.conf", resolv_conf);
    let mut mount = Command::new("mount");
    assert!(run(mount.arg("--bind").arg(path).arg("/etc/resolv.conf"), "").status.success());
    for (database, name, expected, count) in [
        ("ahostsv4", "web.service.consul", "10.9.0.9", 1),
        ("ahostsv4", "web", "10.9.0.9", 1),
        ("ahostsv4", "many.service.consul", "10.8.0.", 100),
        ("ahostsv4", "example.org", "192.0.2.7", 1),
        ("ahostsv4", "nothing.service.consul", "", 0),
        ("hosts", "10.9.0.9", "h9.node.consul", 1),
    ] {
        let lines = say(Command::new("getent").args([database, name]));
        let found = lines.iter().filter(|line| line.contains(expected));
        let found = found.filter(|line| database == "hosts" || line.contains("STREAM")).count();
        assert_eq!(found, count, "{database} {name}: {lines:?}\n{}", host.describe());
    }

    let rest =
        "port=5301\nlisten-address=127.0.0.4\nbind-interfaces\nno-resolv\nuser=root\nserver=192.0.2.53\n";
    let path = file("dnsmasq.conf", &format!("{dnsmasq}{rest}"));
    let _dnsmasq = Running::start(Command::new("dnsmasq").arg("-k").arg("-C").arg(path), &log("dnsmasq"));
    let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap_or_default();
    wait_for_answer("@127.0.0.4#5301", "web.service.consul", "10.9.0.9", || read("dnsmasq"));
    wait_for_answer("@127.0.0.4#5301", "example.org", "192.0.2.7", || read("dnsmasq"));

    // A resolver that queries label by label (RFC 9156), and takes "no such name" as the answer for
    // all names below (RFC 8020).
    let rest = "server:\n    interface: 127.0.0.5@5302\n    username: \"\"\n    chroot: \"\"\n    pidfile: \"\"\n    use-syslog: no\n    qname-minimisation-strict: yes\n";
    let path = file("unbound.conf", &format!("{unbound}{rest}"));
    let _unbound = Running::start(Command::new("unbound").arg("-d").arg("-c").arg(path), &log("unbound"));
    let unbound = "@127.0.0.5#5302";
    wait_for_answer(unbound, "web.service.consul", "10.9.0.9", || read("unbound"));
    for (question, expected) in [
        ("h9.node.consul", "10.9.0.9"),
        ("v1.web.service.consul", "10.9.0.9"),
        ("web.service.dc1.consul", "10.9.0.9"),
        ("h9.node.dc1.consul", "10.9.0.9"),
        ("_web._tcp.service.consul SRV", "1 1 80 h9.node.consul."),
        ("_web._v1.service.consul SRV", "1 1 80 h9.node.consul."),
        ("_web._tcp.service.dc1.consul SRV", "1 1 80 h9.node.consul."),
        ("_web._v1.service.dc1.consul SRV", "1 1 80 h9.node.consul."),
    ] {
        // Only the first query is a test: for a second one the resolver would already know the
        // names above.
        assert_eq!(ask(unbound, question), [expected], "{question}\n{}", read("unbound"));
    }
}

/// Returns the path of systemd-resolved: installed, or unpacked by `make test`, because installing
/// its package would replace the machine's resolver.
fn resolved() -> Option<PathBuf> {
    let program = "lib/systemd/systemd-resolved";
    let unpacked = binary("orchestrate").ancestors().nth(2)?.join("systemd-resolved").join(program);
    [PathBuf::from("/").join(program), unpacked].into_iter().find(|path| path.exists())
}

#[test]
fn systemd_resolved_finds_names_of_services_by_the_agent_and_others_by_the_server_of_its_link() {
    let name = "catalog::resolvers::systemd_resolved_finds_names_of_services_by_the_agent_and_others_by_the_server_of_its_link";
    let Some(program) = resolved() else {
        return tests::skip(name, "systemd-resolved is not installed and could not be unpacked");
    };
    if !in_own_network(name) {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let (at, sample) = (directory.path().display(), &samples()[0]);
    std::fs::write(directory.path().join("orchestrate.conf"), sample).expect("written");
    // A link with its own DNS server, in the form in which network configuration leaves it for
    // resolved; and the user of resolved.
    let prepare = format!(
        "ip link add up0 type veth peer name up1 && ip link set up1 up
         ip addr add 192.0.2.53/24 dev up0 && ip link set up0 up
         mount -t tmpfs tmpfs /run
         mkdir -p /run/systemd/resolved.conf.d /run/systemd/resolve /run/systemd/netif/links
         cp {at}/orchestrate.conf /run/systemd/resolved.conf.d/
         printf 'ADMIN_STATE=configured\\nOPER_STATE=routable\\nDNS=192.0.2.53\\n' > /run/systemd/netif/links/$(ip -o link show up0 | cut -d: -f1)
         (grep -v ^systemd-resolve: /etc/passwd; echo systemd-resolve:x:64999:64999::/:/bin/false) > {at}/passwd
         (grep -v ^systemd-resolve: /etc/group; echo systemd-resolve:x:64999:) > {at}/group
         mount --bind {at}/passwd /etc/passwd && mount --bind {at}/group /etc/group
         chown 64999:64999 /run/systemd/resolve"
    );
    let done = run(Command::new("sh").args(["-ec", &prepare]), "");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let mut world = Command::new("dnsmasq");
    world.args(["-k", "-C", "/dev/null", "--no-resolv", "--no-hosts", "--user=root", "--bind-interfaces"]);
    world.args(["--listen-address=192.0.2.53", "--except-interface=lo", "--address=/org/192.0.2.7"]);
    let _world = Running::start(&mut world, &directory.path().join("world"));
    let etcd = Etcd::single();
    etcd.store().put("/available_services/web/h9", r#"{"addresses": ["10.9.0.9"], "port": 80}"#);
    let mut host = Host::new("h1", &etcd.endpoints()).with("[dns]\nlisten = [\"127.0.0.1:8600\"]");
    host.start();
    wait_for_answer("@127.0.0.1#8600", "web.service.consul", "10.9.0.9", || host.describe());
    let _resolved = Running::start(&mut Command::new(program), &directory.path().join("resolved"));
    let log = || std::fs::read_to_string(directory.path().join("resolved")).unwrap_or_default();
    for number in 1..=5 {
        wait_for_answer("@127.0.0.53", "web.service.consul", "10.9.0.9", log);
        wait_for_answer("@127.0.0.53", "h9.node.consul", "10.9.0.9", log);
        wait_for_answer("@127.0.0.53", &format!("name{number}.example.org"), "192.0.2.7", log);
    }
}
