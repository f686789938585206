//! A balancer and its controllers, each configured with the addresses of the other side, in their
//! own network namespaces; and a host beside them that waits forever.

use serde_json::Value;
use tests::etcd::Etcd;
use tests::host::Host;
use tests::network::Network;
use tests::store::Store;
use tests::{process, wait};

/// Makes the first apply step configure the host with the file that a template renders from the
/// addresses of the other hosts.
fn configured_with(host: Host, other: &str, count: usize) -> Host {
    let at = |name: &str| host.path(name).display().to_string();
    let (template, others) = (at("others.j2"), at("others"));
    host.write(
        "others.j2",
        &format!(
            "{{% for i in service(\"{other}\", level=\"addressable\") %}}{{{{ i.address }}}} {{{{ i.port }}}}\n{{% endfor %}}"
        ),
    );
    host.write(
        "do-packages",
        &format!("[ $(wc -l < {others}) = {count} ] && cp {others} $D/configured || exit 75\n"),
    );
    host.with(&format!(
        "[[requires]]\nservice = \"{other}\"\ncount = {count}\nlevel = \"addressable\"\nphase = \"apply\"\n\
         [[requires]]\nservice = \"{other}\"\ncount = {count}\nphase = \"validate\"\n\
         [[template]]\nsource = {template:?}\ntarget = {others:?}\n"
    ))
}

/// Writes a service that passes its check once the host is configured and reaches all other hosts
/// at the addresses that it was configured with. The port of each service is the HTTP port of its
/// host's agent.
fn write_service_that_reaches_the_others(host: &Host, name: &str) {
    let configured = host.path("configured").display().to_string();
    let reaches = format!("while read -r a p; do exec 3<>/dev/tcp/$a/$p || exit 2; done < {configured}");
    host.write_service(
        &format!("{name}.json"),
        &format!(
            r#"{{"service": {{"name": "{name}", "port": {}, "check": {{"args": ["/bin/bash", "-c", {reaches:?}], "interval": "200ms"}}}}}}"#,
            host.http_port()
        ),
    );
}

fn settles(host: &Host, store: &Store) {
    host.wait_for_listing(store, "1");
    host.wait_for_verdict("ok");
}

#[test]
fn hosts_with_each_others_addresses_settle_and_one_that_cannot_start_its_apply_is_addressable() {
    let name = "catalog::circular::hosts_with_each_others_addresses_settle_and_one_that_cannot_start_its_apply_is_addressable";
    if !process::in_own_network(name) {
        return;
    }
    let (network, etcd) = (Network::new(), Etcd::single_real());
    let (endpoints, store) = ([network.endpoint(&etcd.endpoint(0))], etcd.store());
    store.put("/current_version", "1");
    let places: Vec<_> = (1..=4).map(|number| network.place(number)).collect();
    let mut balancer = configured_with(Host::new("lb1", &endpoints), "controller", 2).at(&places[0]);
    write_service_that_reaches_the_others(&balancer, "balancer");
    let mut controllers: Vec<Host> = (1..=2)
        .map(|number| {
            let host = Host::new(&format!("ct{number}"), &endpoints);
            let host = configured_with(host, "balancer", 1).at(&places[number]);
            write_service_that_reaches_the_others(&host, "controller");
            host
        })
        .collect();
    let stuck = Host::new("web1", &endpoints).with("[[requires]]\nservice = \"mysql\"\nphase = \"apply\"\n");
    let mut stuck = stuck.at(&places[3]);
    stuck.write_service(
        "web.json",
        &format!(r#"{{"service": {{"name": "web", "port": {}}}}}"#, stuck.http_port()),
    );

    // One controller does not exist yet: no host can be configured completely, and the balancer
    // reports what it waits for.
    balancer.start();
    stuck.start();
    controllers[0].start();
    let waits = |s: &Value| {
        s["detail"].as_str().is_some_and(|d| d.contains("waits for controller: 1 of 2 addressable"))
    };
    wait::until("the balancer waits", || balancer.status().filter(waits), || balancer.describe());
    controllers[1].start();
    settles(&balancer, &store);
    controllers.iter().for_each(|host| settles(host, &store));
    let port = balancer.http_port();
    assert_eq!(controllers[0].read("configured"), format!("{} {port}\n", places[0].address));
    assert_eq!(balancer.read("configured").lines().count(), 2);
    let addresses = [places[1].address.as_str(), &places[2].address];
    stuck.wait_for_name(&["controller.service.consul"], &addresses);
    stuck.wait_for_name(&["balancer.service.consul"], &[&places[0].address]);

    // Nothing is installed on this host, but its name and address are known and reachable.
    stuck.wait_for_verdict("waiting");
    assert_eq!(stuck.begins("packages", "1"), 0);
    for host in [&balancer, &controllers[0]] {
        host.wait_for_name(&["web1.node.consul"], &[&places[3].address]);
        host.wait_for_name(&["web.service.consul"], &[&places[3].address]);
    }
    let (address, port) = (&places[3].address, stuck.http_port());
    let reached =
        places[0].command("/bin/bash").args(["-c", &format!("exec 3<>/dev/tcp/{address}/{port}")]).status();
    assert!(reached.expect("it runs").success());
}
