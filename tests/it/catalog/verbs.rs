//! The verbs of the command for the catalog.

use tests::etcd::Etcd;
use tests::host::Host;
use tests::proxy::Proxy;
use tests::wait;

#[test]
fn the_original_verbs_publish_print_and_cache() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let mut host = Host::new("h1", &etcd.endpoints());
    let at = |host: &Host, name: &str| host.path(name).display().to_string();
    let (list, hiera) = (at(&host, "list.txt"), at(&host, "services.yaml"));
    host.set_environment("ORCHESTRATE_PROFILE_LIST", &list);
    host.set_environment("ORCHESTRATE_HIERA_FILE", &hiera);
    let result = host.command(&["publish_service"], "");
    assert_eq!((result.code, result.out.as_str()), (0, ""), "no list, no roles: {result:?}");
    host.write("list.txt", "glance\n\nkeystone\n");
    let result = host.command(&["publish_service"], "");
    assert_eq!((result.code, result.out.as_str()), (0, "glance\nkeystone\n"), "{result:?}");
    assert_eq!(store.list("/available_services/").len(), 2);
    let result = host.command(&["get_services"], "");
    assert_eq!(result.code, 0);
    assert!(result.out.contains("services::glance::lo: [127.0.0.1"), "{}", result.out);
    let result = host.command(&["cache_services"], "");
    assert_eq!((result.code, result.out.as_str()), (0, ""), "{result:?}");
    assert_eq!(host.read("services.yaml"), host.command(&["get_services"], "").out);
    // Hosts without an agent count as working, and are shown as unchecked.
    let result = host.command(&["services", "show", "glance"], "");
    assert!(result.code == 0 && result.out.contains("unchecked"), "{result:?}");
    let result = host.command(&["services", "list"], "");
    assert!(result.out.contains("glance"), "{result:?}");
    // The file is kept if too many entries disappear at once.
    for number in 0..9 {
        store.put(
            &format!("/available_services/glance/w{number}"),
            &format!(r#"{{"eth0": "10.5.0.{number}"}}"#),
        );
    }
    assert_eq!(host.command(&["cache_services"], "").code, 0);
    let before = host.read("services.yaml");
    for number in 0..9 {
        store.delete(&format!("/available_services/glance/w{number}"));
    }
    let result = host.command(&["cache_services"], "");
    assert_eq!(result.code, 2, "{result:?}");
    assert!(result.err.contains("glance 9 of"), "{result:?}");
    assert_eq!(host.read("services.yaml"), before);
    assert_eq!(host.command(&["release-view"], "").code, 0);
    assert_eq!(host.command(&["cache_services"], "").code, 0);
    assert!(!host.read("services.yaml").contains("10.5.0.1"));
}

/// The tools of the later generations send their results to checks of the agent on the same host
/// (legacy contract).
#[test]
fn results_that_scripts_report_are_told_to_the_checks_of_the_agent() {
    let etcd = Etcd::single();
    let mut host = Host::new("h1", &etcd.endpoints()).with("driver = \"external\"");
    for name in ["puppet", "validation", "db"] {
        let text = format!(r#"{{"service": {{"name": "{name}", "port": 80, "check": {{"ttl": "600s"}}}}}}"#);
        host.write_service(&format!("{name}.json"), &text);
    }
    host.write_service("host.json", r#"{"check": {"id": "puppet", "name": "puppet", "ttl": "600s"}}"#);
    let result = host.command(&["update_own_status", "service:db", "0"], "");
    assert!(result.code == 64 && result.err.contains("no agent listens"), "{result:?}");
    host.start();
    let checks = || -> Vec<(String, String)> {
        let body = host.http_get("/v1/checks").map(|(_, body)| body).unwrap_or_default();
        let list: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
        let list = list["checks"].as_array().cloned().unwrap_or_default();
        let word = |check: &serde_json::Value, name: &str| check[name].as_str().unwrap_or("").to_owned();
        list.iter().map(|check| (word(check, "id"), word(check, "status"))).collect()
    };
    wait::until("the checks are known", || (checks().len() == 4).then_some(()), || host.describe());
    // Before its claim the host is new to the store, and the command warns about that.
    let store = etcd.store();
    wait::until("the host has its claim", || store.get("/orchestrate/live/h1").map(drop), || host.describe());
    for (line, check, status) in [
        ("puppet 0", "puppet", "passing"),
        ("puppet 6", "puppet", "warning"),
        ("puppet_service -1", "service:puppet", "critical"),
        ("puppet_service 2", "service:puppet", "passing"),
        ("validation_service 1", "service:validation", "critical"),
        ("service:db 0", "service:db", "passing"),
        ("service:db 1", "service:db", "warning"),
        ("service:db 2", "service:db", "critical"),
    ] {
        let arguments: Vec<&str> = ["update_own_status"].into_iter().chain(line.split(' ')).collect();
        let result = host.command(&arguments, "");
        assert_eq!((result.code, result.err.as_str()), (0, ""), "{line}: {result:?}");
        let found = checks().into_iter().find(|(name, _)| name == check);
        assert_eq!(found.map(|(_, status)| status).as_deref(), Some(status), "{line}");
    }
    let result = host.command(&["update_own_status", "nonsense", "0"], "");
    assert!(result.code == 64 && result.err.contains("there is no check nonsense"), "{result:?}");
    let result = host.command(&["update_own_status", "--hostname", "h2", "service:db", "0"], "");
    assert!(result.code == 64 && result.err.contains("on the host that runs them"), "{result:?}");
}

#[test]
fn whoever_waits_for_a_service_is_told_yes_no_or_that_nobody_can_tell() {
    let mut etcd = Etcd::single();
    let store = etcd.store();
    let proxy = Proxy::start(&etcd.endpoint(0));
    let host = Host::new("h1", &[proxy.endpoint()]);
    let wait_for = |extra: &[&str]| {
        let mut arguments = vec!["wait_for", "web"];
        arguments.extend(extra);
        host.command(&arguments, "").code
    };
    assert_eq!(wait_for(&["--timeout", "5s"]), 1);
    store.put("/available_services/web/a", r#"{"addresses": ["10.4.0.1"]}"#);
    assert_eq!(wait_for(&["--timeout", "5s"]), 0);
    assert_eq!(wait_for(&["--timeout", "5s", "--count", "2"]), 1);
    assert_eq!(wait_for(&["--level", "some"]), 64);
    // The service appears while the command waits.
    let waiting = std::thread::scope(|scope| {
        let before = proxy.accepted();
        let waiting = scope.spawn(|| wait_for(&["--timeout", "30s", "--count", "2"]));
        let asks = || (proxy.accepted() > before).then_some(());
        tests::wait::until("it asks", asks, String::new);
        store.put("/available_services/web/b", r#"{"addresses": ["10.4.0.2"]}"#);
        waiting.join().unwrap()
    });
    assert_eq!(waiting, 0);
    drop(store);
    etcd.kill_member(0);
    assert_eq!(wait_for(&["--timeout", "5s"]), 2);
}

#[test]
fn names_are_answered_from_the_store_as_the_agent_answers_them() {
    let etcd = Etcd::single();
    let store = etcd.store();
    store.put("/available_services/web/a", r#"{"addresses": ["10.4.0.1"], "port": 80}"#);
    let host = Host::started("h1", &etcd.endpoints());
    host.wait_for_name(&["web.service.consul"], &["10.4.0.1"]);
    for (name, kind, code, out) in [
        ("web.service.consul", "A", 0, "10.4.0.1\n"),
        ("WEB.service.consul.", "srv", 0, "1 1 80 a.node.consul.\n"),
        ("1.0.4.10.in-addr.arpa", "PTR", 0, "a.node.consul.\n"),
        ("none.service.consul", "A", 1, ""),
        ("example.org", "A", 1, ""),
        ("web.service.consul", "MX", 64, ""),
    ] {
        let result = host.command(&["dns", name, kind], "");
        assert_eq!((result.code, result.out.as_str()), (code, out), "{name} {kind}: {result:?}");
    }
}

#[test]
fn lint_finds_what_cannot_work_before_it_runs() {
    let etcd = Etcd::single();
    let host = Host::new("h1", &etcd.endpoints());
    let role = |name: &str, other: &str, level: &str| {
        let directory = host.path(name);
        std::fs::create_dir_all(directory.join("services.d")).unwrap();
        std::fs::write(
            directory.join("agent.toml"),
            format!("role = \"{name}\"\n[[requires]]\nservice = \"{other}\"\nlevel = \"{level}\"\nphase = \"apply\"\n"),
        )
        .unwrap();
        let service = format!(r#"{{"service": {{"name": "{name}", "check": {{"ttl": "30s"}}}}}}"#);
        std::fs::write(directory.join("services.d/own.json"), service).unwrap();
        directory.display().to_string()
    };
    let (balancer, controller) =
        (role("balancer", "controller", "functional"), role("controller", "balancer", "functional"));
    let result = host.command(&["lint", &balancer, &controller], "");
    assert_eq!(result.code, 1, "{result:?}");
    assert!(result.out.contains("a deadlock: balancer waits for controller on controller"), "{}", result.out);
    role("controller", "balancer", "addressable");
    let result = host.command(&["lint", &balancer, &controller], "");
    assert_eq!((result.code, result.out.as_str()), (0, ""), "{result:?}");
    // Who can command a store without users is said of settings, and of nothing else.
    let open = "no user of the store is named";
    assert!(result.err.contains(&format!("{balancer}, {controller}: {open}")), "{result:?}");
    std::fs::create_dir_all(host.path("balancer/agent.d")).unwrap();
    host.write("balancer/agent.d/store.toml", "[store]\nuser = \"balancer\"\npassword_file = \"/p\"\n");
    let result = host.command(&["lint", &balancer, &controller], "");
    assert!(result.err.contains(&format!("{controller}: {open}")), "{result:?}");
    assert!(!result.err.contains(&balancer), "{result:?}");
    host.write("broken.json", "{\n\"service\": {\"name\": \"x\", \"grpc\": 1, \"kind\": \"y\"}}");
    let broken = host.path("broken.json").display().to_string();
    let result = host.command(&["lint", &broken], "");
    assert!(result.code == 1 && result.out.contains("broken.json:2: kind is not supported"), "{result:?}");
    assert!(!result.err.contains(open), "{result:?}");
    // A file that Consul would read but the agent does not is reported instead of being ignored.
    let directory = role("balancer", "controller", "functional");
    host.write("balancer/services.d/web.hcl", "service {}");
    host.write("balancer/services.d/typo.json", "{\"sevice\": {\"name\": \"web\"}}");
    let result = host.command(&["lint", &directory], "");
    assert!(
        result.code == 1 && result.out.contains("web.hcl: HCL is not read; write it as JSON"),
        "{result:?}"
    );
    assert!(result.out.contains("typo.json:1: \"sevice\": Consul has no such key; did you mean service?"));
    assert_eq!(host.command(&["lint"], "").code, 64);
    assert_eq!(host.command(&["lint", "/nonexistent"], "").code, 1);
}
