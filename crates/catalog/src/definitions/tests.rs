use super::*;
use schema::health::CheckStatus;
use schema::names::Tag;
use std::time::Duration;

fn consul(text: &str) -> Parsed {
    parse_consul("web.json", text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn consul_refuses(text: &str, expected: &str) {
    let error = parse_consul("web.json", text).expect_err(text).to_string();
    assert!(error.contains(expected), "{text}\nsaid: {error}\nexpected: {expected}");
}

fn with_check(check: &str) -> String {
    format!(r#"{{"service": {{"name": "web", "check": {check}}}}}"#)
}

fn only_check(text: &str) -> CheckDefinition {
    consul(&with_check(text)).services.remove(0).checks.remove(0)
}

#[test]
fn a_service_as_consul_documents_it() {
    let parsed = consul(
        r#"{"service": {"id": "redis", "name": "redis", "tags": ["primary"], "address": "10.0.0.9",
            "meta": {"version": "4.0"}, "port": 8000, "enable_tag_override": false, "token": "x",
            "weights": {"passing": 1, "warning": 1}, "kind": "", "tagged_addresses": {},
            "checks": [{"args": ["/usr/local/bin/check_redis.py"], "interval": "10s"},
                       {"http": "http://localhost/health", "interval": "1m", "name": "web"}]}}"#,
    );
    let service = &parsed.services[0];
    assert_eq!((service.name.as_str(), service.port), ("redis", Some(8000)));
    assert_eq!(service.address, Some(ServiceAddress::Ip("10.0.0.9".parse().unwrap())));
    assert!(service.tags.contains(&Tag::new("primary").unwrap()));
    assert_eq!(service.meta["version"], "4.0");
    let ids: Vec<&str> = service.checks.iter().map(|c| c.id.as_str()).collect();
    assert_eq!(ids, ["service:redis:1", "service:redis:2"]);
    assert_eq!(service.checks[1].name, "web");
    assert!(parsed.notes[0].contains("token"), "what counts for nothing is named: {:?}", parsed.notes);
}

#[test]
fn several_services_and_checks_in_one_file() {
    let parsed = consul(
        r#"{"services": [{"name": "a", "port": 1}, {"name": "b", "Tags": ["x", "y"]}],
            "checks": [{"id": "mem", "args": ["/bin/true"], "interval": "10s"},
                       {"id": "of-a", "service_id": "a", "tcp": "localhost:1", "interval": "5s"}],
            "check": {"name": "the disk", "script": "df | grep -q x", "interval": "10s"},
            "datacenter": "east", "server": true}"#,
    );
    assert_eq!(parsed.services.len(), 2);
    let (all, errors) = assemble([("f", &parsed)]);
    assert_eq!(errors, []);
    assert_eq!(all.services[&ServiceName::new("a").unwrap()].checks[0].id.as_str(), "of-a");
    let mut ids: Vec<&str> = all.host_checks.iter().map(|c| c.id.as_str()).collect();
    ids.sort();
    assert_eq!(ids, ["mem", "the-disk"]);
}

#[test]
fn every_kind_of_check_that_is_supported() {
    let shell =
        |script: &str| CheckKind::Command { arguments: vec!["/bin/sh".into(), "-c".into(), script.into()] };
    assert_eq!(only_check(r#"{"script": "true", "interval": "10s"}"#).kind, shell("true"));
    let args = only_check(r#"{"args": ["/bin/true", "-x"], "interval": "10s", "timeout": "1s"}"#);
    assert_eq!(args.kind, CheckKind::Command { arguments: vec!["/bin/true".into(), "-x".into()] });
    assert_eq!(args.timeout, Duration::from_secs(1));
    let named = only_check(r#"{"args": ["curl", "localhost"], "interval": "10s"}"#);
    assert_eq!(named.kind, CheckKind::Command { arguments: vec!["curl".into(), "localhost".into()] });
    let http = only_check(
        r#"{"http": "https://localhost/", "method": "POST", "header": {"X": ["a", "b"]}, "body": "{}",
            "tls_skip_verify": true, "interval": "10s"}"#,
    );
    assert_eq!(
        http.kind,
        CheckKind::Http {
            url: "https://localhost/".into(),
            method: "POST".into(),
            headers: vec![("X".into(), "a".into()), ("X".into(), "b".into())],
            body: "{}".into(),
            skip_verify: true,
        }
    );
    assert_eq!(http.timeout, Duration::from_secs(10));
    let tcp = only_check(r#"{"tcp": "localhost:22", "interval": "1.5s", "status": "passing"}"#);
    assert_eq!(tcp.kind, CheckKind::Tcp { address: "localhost:22".into() });
    assert_eq!((tcp.interval, tcp.initial), (Duration::from_millis(1500), CheckStatus::Passing));
    let ttl = only_check(
        r#"{"TTL": "30s", "CheckID": "x", "successBeforePassing": 3, "failures_before_critical": 4,
            "deregister_critical_service_after": "90m", "notes": "n"}"#,
    );
    assert_eq!((ttl.kind, ttl.interval), (CheckKind::Ttl, Duration::from_secs(30)));
    assert_eq!((ttl.good_after, ttl.critical_after), (3, 4));
    assert_eq!(ttl.withdraw_after, Some(Duration::from_secs(5400)));
    assert_eq!(ttl.id.as_str(), "x");
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    let document = include_str!("../../../../docs/discovery.md");
    let check = |text: String, folded: &str, instead: &str| {
        consul_refuses(&text, &format!("is not supported: {instead}"));
        let is_named = document.split('`').any(|name| name.replace('_', "") == folded);
        assert!(is_named, "docs/discovery.md says nothing of {folded}");
    };
    for (field, instead) in consul::REFUSED_OF_CHECKS {
        let given = format!(r#"{{"{field}": "x", "args": ["/bin/true"], "interval": "10s"}}"#);
        check(with_check(&given), field, instead);
    }
    for (field, instead) in consul::REFUSED_OF_SERVICES {
        check(format!(r#"{{"service": {{"name": "web", "{field}": "x"}}}}"#), field, instead);
    }
    for nothing in [r#""namespace": "default""#, r#""kind": """#, r#""ports": []"#] {
        consul(&format!(r#"{{"service": {{"name": "web", {nothing}}}}}"#));
    }
    for (field, value) in [
        ("kind", r#""connect-proxy""#),
        ("proxy", r#"{"destination_service_name": "x"}"#),
        ("connect", r#"{"native": true}"#),
        ("tagged_addresses", r#"{"lan": {"address": "10.0.0.1"}}"#),
        ("enable_tag_override", "true"),
        ("enableTagOverride", "true"),
    ] {
        let text = format!(r#"{{"service": {{"name": "web", "{field}": {value}}}}}"#);
        consul_refuses(&text, &format!("{field} is not supported"));
    }
    consul_refuses(
        r#"{"service": {"name": "a", "weights": {"passing": 5, "warning": 1}}}"#,
        "weights other than 1",
    );
    consul_refuses(r#"{"service": {"name": "a", "prot": 80}}"#, "prot: a service has no such field");
    consul_refuses(&with_check(r#"{"ttl": "1s", "colour": "red"}"#), "colour: a check has no such field");
    let with = |field: &str| format!(r#"{{"service": {{"name": "web", {field}}}}}"#);
    consul_refuses(&with(r#""port": "80""#), "port must be a whole number, without quotes");
    consul_refuses(&with(r#""meta": {"version": 4}"#), "meta must be an object of strings; quote");
    for (key, meant) in [("sevice", "service"), ("cheks", "checks"), ("datacentre", "datacenter")] {
        let text = format!("{{\n\"{key}\": {{\"name\": \"web\"}}}}");
        let expected = format!("web.json:2: \"{key}\": Consul has no such key; did you mean {meant}?");
        consul_refuses(&text, &expected);
    }
    let hcl = parse_file("web.hcl", "service {}").unwrap_err().to_string();
    assert_eq!(hcl, "web.hcl: HCL is not read; write it as JSON");
}

#[test]
fn an_address_is_one_or_a_name() {
    for (text, expected) in [
        ("fd00::1", Ok("Ip(fd00::1)")),
        ("db.example.org", Ok("Name(HostName(\"db.example.org\"))")),
        ("localhost", Ok("Name(HostName(\"localhost\"))")),
        ("10.0.0.999", Err(())),
        ("a b", Err(())),
        ("db_1", Err(())),
        ("10.0.0.1:80", Err(())),
    ] {
        let json = format!(r#"{{"service": {{"name": "web", "address": "{text}"}}}}"#);
        let toml = format!("[[service]]\nname = \"web\"\naddress = \"{text}\"\n");
        for parsed in [parse_consul("web.json", &json), parse_toml("web.toml", &toml)] {
            match (parsed, expected) {
                (Ok(parsed), Ok(expected)) => {
                    let address = parsed.services[0].address.as_ref().unwrap();
                    assert_eq!(format!("{address:?}"), expected);
                }
                (Err(error), Err(())) => {
                    assert!(error.to_string().contains("is neither an IP address"), "{error}")
                }
                (other, _) => panic!("{text}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_mistake_is_named_with_its_line() {
    consul_refuses(
        "{\n\"service\": {\n\"name\": \"web\",\n\"port\": 70000}}",
        "web.json:4: 70000 is no port",
    );
    consul_refuses("{\n\"service\": {}}", "web.json:2: a service needs a name");
    consul_refuses("{\n\"service\": {\"name\": \"a b\"}}", "web.json:2: service \"a b\": must be 1 to 128");
    consul_refuses("{\n\n", "web.json:3:");
    consul_refuses("[]", "web.json:1: the file must hold one JSON object");
    consul_refuses(
        &with_check(r#"{"interval": "10s"}"#),
        "one of script, args, http, tcp and ttl; found none",
    );
    consul_refuses(&with_check(r#"{"ttl": "1s", "tcp": "a:1", "interval": "1s"}"#), "found tcp and ttl");
    consul_refuses(&with_check(r#"{"args": ["/bin/true"]}"#), "interval is missing");
    consul_refuses(
        &with_check(r#"{"args": ["bin/true"], "interval": "1s"}"#),
        "must be an absolute path, or",
    );
    consul_refuses(&with_check(r#"{"args": [""], "interval": "1s"}"#), "must be an absolute path, or");
    consul_refuses(&with_check(r#"{"tcp": "localhost", "interval": "1s"}"#), "host:port");
    consul_refuses(&with_check(r#"{"ttl": 10}"#), "ttl must be a text with its unit");
    consul_refuses(&with_check(r#"{"args": ["/bin/true"], "interval": "10"}"#), "is no duration");
    consul_refuses(r#"{"check": {"args": ["/bin/true"], "interval": "1s"}}"#, "needs an id or a name");
}

#[test]
fn our_own_files_say_the_same() {
    let parsed = parse_toml(
        "web.toml",
        "[[service]]\nname = \"web\"\nport = 80\ntags = [\"v1\"]\ninterface = \"eth0\"\n\
         [[service.check]]\nhttp = \"http://127.0.0.1/\"\ninterval = \"5s\"\ncritical_after = 3\n\
         [[check]]\nname = \"disk\"\ncommand = [\"/bin/true\"]\ninterval = \"1m\"\n",
    )
    .unwrap();
    assert_eq!(parsed.services[0].interface.as_ref().unwrap().as_str(), "eth0");
    assert_eq!(parsed.services[0].checks[0].id.as_str(), "service:web");
    assert_eq!(parsed.services[0].checks[0].critical_after, 3);
    assert_eq!(parsed.checks[0].1.id.as_str(), "disk");
    for (text, expected) in [
        (
            "[[service]]\nname = \"web\"\nprot = 1\n",
            "web.toml:3: unknown setting `prot`; did you mean `port`?",
        ),
        ("[[service]]\nname = \"a b\"\n", "web.toml:2: service.name: service \"a b\""),
        (
            "[[service]]\nname = \"a\"\naddress = \"1.1.1.1\"\ninterface = \"e\"\n",
            "address or interface, not both",
        ),
        (
            "[[service]]\nname = \"a\"\n[[service.check]]\ninterval = \"1s\"\n",
            "one of command, http, tcp and ttl",
        ),
        (
            "[[service]]\nname = \"a\"\n[[service.check]]\ncommand = [\"x\"]\ninterval = \"1s\"\n",
            "absolute path",
        ),
        ("[[check]]\ncommand = [\"/x\"]\ninterval = \"1s\"\n", "needs an id or a name"),
    ] {
        let error = parse_toml("web.toml", text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}\nsaid: {error}");
    }
}

#[test]
fn files_are_put_together_and_what_does_not_fit_is_named() {
    let list = parse_profile_list("profile_list.txt", "web\n\n db \nweb\n../x\n");
    assert_eq!(list.services.len(), 2);
    assert!(list.notes[0].starts_with("profile_list.txt:5:"), "{:?}", list.notes);
    let one = consul(r#"{"service": {"name": "web", "port": 80, "check": {"ttl": "1s"}}}"#);
    let two = consul(
        r#"{"services": [{"name": "web", "port": 81}], "check": {"id": "x", "service_id": "nobody", "ttl": "1s"}}"#,
    );
    let (all, errors) = assemble([("one", &one), ("two", &two), ("list", &list)]);
    assert_eq!(all.services[&ServiceName::new("web").unwrap()].port, Some(80));
    assert_eq!(all.services.len(), 2, "db comes from the list");
    let messages: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert!(messages[0].contains("two: service web is defined in one already"), "{messages:?}");
    assert!(messages[1].contains("there is no service with id \"nobody\""), "{messages:?}");
    let both = consul(
        r#"{"services": [{"name": "web", "id": "web-1", "port": 8080}, {"name": "web", "id": "web-2", "port": 8081}]}"#,
    );
    let (all, errors) = assemble([("both", &both)]);
    assert_eq!(all.services[&ServiceName::new("web").unwrap()].port, Some(8080), "the first stays");
    let messages: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(messages.len(), 1);
    assert!(messages[0].contains("give the one with id \"web-2\" a name of its own"), "{messages:?}");
}

#[test]
fn what_is_there_twice_and_programs_that_are_empty_are_refused() {
    for (text, expected) in [
        (
            "{\"service\": {\"name\": \"a\"},\n \"service\": {\"name\": \"b\"}}",
            "web.json:2: \"service\" is there twice in one object",
        ),
        (
            &with_check(r#"{"args": ["/bin/true"], "interval": "1s", "interval": "9s"}"#),
            "\"interval\" is there twice",
        ),
        (
            r#"{"service": {"name": "web", "check": {"ttl": "5s"}, "check": {"ttl": "9s"}}}"#,
            "\"check\" is there twice",
        ),
        (r#"{"service": {"name": "web", "meta": {"a": "1", "a": "2"}}}"#, "\"a\" is there twice"),
        // Names are compared without case and underscores.
        (
            &with_check(r#"{"args": ["/bin/true"], "Interval": "1s", "interval": "9s"}"#),
            "are one field; give one of them",
        ),
        (
            &with_check(r#"{"ServiceID": "a", "service_id": "b", "args": ["/bin/true"], "interval": "1s"}"#),
            "check: ServiceID and service_id are one field",
        ),
        (&with_check(r#"{"script": "", "interval": "1s"}"#), "found none"),
        (&with_check(r#"{"script": " \n", "interval": "1s"}"#), "found none"),
        (&with_check(r#"{"args": [], "interval": "1s"}"#), "found none"),
        (&with_check(r#"{"args": [""], "interval": "1s"}"#), "the program \"\" must be"),
    ] {
        consul_refuses(text, expected);
    }
    let check = only_check(r#"{"script": "", "args": [], "http": "http://localhost/", "interval": "1s"}"#);
    assert!(matches!(check.kind, CheckKind::Http { .. }), "{check:?}");
}
