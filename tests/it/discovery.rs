//! Endpoints that are discovered instead of configured: from SRV records of a real DNS server, and
//! from a real discovery service.

use std::process::Command;
use tests::etcd::Etcd;
use tests::host::{CommandOutput, Host};
use tests::process::{Running, binary, free_ports, in_own_network, run};
use tests::{skip, wait};

fn orchestrate(arguments: &[&str]) -> CommandOutput {
    CommandOutput::from(run(Command::new(binary("orchestrate")).env_clear().args(arguments), ""))
}

fn port(endpoint: &str) -> &str {
    endpoint.rsplit(':').next().expect("a port")
}

#[test]
fn srv_records_name_the_members_to_the_command_and_the_agent() {
    let name = "discovery::srv_records_name_the_members_to_the_command_and_the_agent";
    if Command::new("dnsmasq").arg("--version").output().is_err() {
        return skip(name, "no dnsmasq on the PATH");
    }
    if !in_own_network(name) {
        return;
    }
    let etcd = Etcd::cluster();
    let directory = tempfile::tempdir().expect("a directory");
    let resolver = directory.path().join("resolv.conf");
    std::fs::write(&resolver, "nameserver 127.0.0.1\n").expect("written");
    let mounted = Command::new("mount").arg("--bind").arg(&resolver).arg("/etc/resolv.conf").status();
    assert!(mounted.expect("mount").success());
    let mut server = Command::new("dnsmasq");
    server.args(["--no-daemon", "--no-resolv", "--no-hosts", "--conf-file=/dev/null", "--pid-file"]);
    server.args(["--user=root", "--listen-address=127.0.0.1", "--bind-interfaces", "--local=/site.test/"]);
    server.arg("--host-record=store.site.test,127.0.0.1");
    for endpoint in etcd.endpoints() {
        server.arg(format!("--srv-host=_etcd-client._tcp.site.test,store.site.test,{}", port(&endpoint)));
    }
    let _server = Running::start(&mut server, &directory.path().join("dnsmasq.log"));
    let ping = || orchestrate(&["--discovery-srv", "site.test", "ping"]);
    wait::until("the store is found", || (ping().code == 0).then_some(()), || format!("{:?}", ping()));
    let missing = orchestrate(&["--discovery-srv", "nowhere.test", "--timeout", "5s", "ping"]);
    assert_eq!(missing.code, 1, "{missing:?}");
    assert!(missing.err.contains("_etcd-client._tcp.nowhere.test"), "{missing:?}");
    let mut host = Host::new("h1", &[]).with("[store]\nbackstop = \"1s\"\ndiscovery_srv = \"site.test\"\n");
    host.start();
    let store = etcd.store();
    store.put("/current_version", "1");
    host.wait_for_listing(&store, "1");
}

#[test]
fn a_discovery_url_names_the_members_to_the_command_and_the_agent() {
    // The discovery service is an etcd that still supports the v2 protocol.
    let directory = tempfile::tempdir().expect("a directory");
    let [client, peer] = free_ports();
    let service = format!("http://127.0.0.1:{client}");
    let mut command = Command::new("etcd");
    command.arg("--data-dir").arg(directory.path().join("data")).arg("--enable-v2");
    command.args(["--listen-client-urls", &service, "--advertise-client-urls", &service]);
    command.args(["--listen-peer-urls", &format!("http://127.0.0.1:{peer}")]);
    let _service = Running::start(&mut command, &directory.path().join("log"));
    let token = format!("{service}/v2/keys/_etcd/registry/T1");
    let etcd = Etcd::single();
    let member = format!("{token}/m0");
    let register = || {
        let value = format!("value=m0={}", etcd.endpoint(0));
        run(Command::new("curl").args(["-sS", "-X", "PUT", &member, "-d", &value]), "").status.success()
    };
    wait::until("a member is registered", || register().then_some(()), || format!("{directory:?}"));
    let endpoint = etcd.endpoint(0);
    let result = orchestrate(&["--discovery-url", &token, "--port", port(&endpoint), "ping"]);
    assert_eq!(result.code, 0, "{result:?}");
    let empty = format!("{service}/v2/keys/_etcd/registry/T2");
    let result = orchestrate(&["--discovery-url", &empty, "--timeout", "2s", "ping"]);
    assert_eq!(result.code, 1, "{result:?}");
    assert!(result.err.contains("T2"), "{result:?}");
    let mut host = Host::new("h1", &[]).with(&format!(
        "[store]\nbackstop = \"1s\"\ndiscovery_url = {token:?}\ndiscovery_port = {}\n",
        port(&endpoint)
    ));
    host.start();
    let store = etcd.store();
    store.put("/current_version", "1");
    host.wait_for_listing(&store, "1");
}
