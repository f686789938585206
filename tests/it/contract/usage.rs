//! Wrong usage, help, and options before the verb.

use super::fleet::{FLEET, fill, verbs};
use super::rows::{NOWHERE, Row, World, check_all, row};
use tests::etcd::Etcd;
use tests::proxy::Proxy;

const NAME_RULE: &str = "must be 1 to 128 of A-Z a-z 0-9 . _ + ~ : - and begin with a letter or a digit";
const HOST_RULE: &str = "must be DNS labels";

/// Returns rows with wrong arguments, and the part of the message that names the error.
fn wrong_usage() -> Vec<Row> {
    let mut rows = Vec::new();
    for verb in verbs() {
        let unknown = row("an unknown option", &format!("{verb} --no-such-option"), 64, "");
        rows.push(unknown.says("--no-such-option"));
    }
    for line in [
        "",
        "nonsense",
        "trigger_update",
        "trigger_update 43 44",
        "current_version 43",
        "ping pong",
        "pending_update 43",
        "local_version 43 44",
        "ui --listen 70000",
        "with-claim",
        "with-claim --for soon true",
        "with-claim --wait soon true",
        "update_own_status",
        "update_own_status puppet",
        "update_own_status puppet 0 0",
        "update_own_info 43",
        "update_own_info --interval soon",
        "running_versions 43",
        "verify_hosts",
        "check_single_version",
        "check_single_version -v",
        "get_failures 43",
        "new_discovery_token 3",
        "hosts_at_version",
        "local_health web-1",
        "debug_timeout",
        "status web-1",
        "hosts list web-1",
        "hosts --verdict dead",
        "hosts --label rack",
        "verify_hosts 43 web-1 --wait-anyway",
        "hosts add",
        "hosts decommission",
        "unaccounted web-1",
        "why web-1 web-2",
        "services",
        "services show",
        "services list web",
        "publish_service web",
        "get_services web",
        "cache_services web",
        "wait_for",
        "wait_for web --count many",
        "wait_for web --level some",
        "maintenance",
        "maintenance maybe",
        "freeze",
        "freeze --reason",
        "freeze --reason disk --role a --group b",
        "freeze --reason disk --role a/b",
        "freeze --reason disk --hostname web_9",
        "freeze --reason disk --for soon",
        "freeze --reason disk --for 1s",
        "unfreeze --id a --all",
        "unfreeze --id a/b",
        "freezes web",
        "policy",
        "policy show 1",
        "policy set",
        "policy check",
        "claims web",
        "claims release",
        "claims release web-1",
        "claims release web_9 --reason x",
        "manage_config state global",
        "manage_config state global a b c",
        "manage_config state global a=b -a paint",
        "manage_config state role a=b -n a/b",
        "manage_config state host a=b -n web_9",
        "set_config a=b",
        "set_config a b global d",
        "enable_puppet False",
        "host_data",
        "host_data state -n web_9",
        "check_puppet web-1",
        "check_puppet -n a/b",
        "check_config a",
        "check_config a/b global",
        "rolling_upgrade",
        "rolling_upgrade upgrade",
        "rolling_upgrade upgrade 4/3",
        "rolling_upgrade upgrade 43 --instructions {",
        "rolling_upgrade status 43",
        "rolling_upgrade global_disable_puppet now",
        "rollout",
        "rollout pause disk",
        "rollout resume now",
        "rollout rollback 42",
        "rollout status 42",
        "rollout history 42",
        "rollout queue 42",
        "events web/1",
        "get_failures --group --hosts",
        "events --since soon",
        "events --by",
        "rollout status --watch --wait 1m",
        "rollout status --wait soon",
        "rollout set",
        "rollout set --max rack=1",
        "rollout set --budget 5%",
        "plan",
        "plan 43 --duration packages",
        "plan 43 --duration packages=long",
        "plan 43 --assume-fail a/b",
        "trigger_update 43 --max 200%",
        "trigger_update 43 --soak long",
        "trigger_update 43 --on-halt explode",
        "rollout excuse web-1",
        "rollout excuse a/b --reason x",
        "rollout rollback --to a/b",
        "drop-stale web",
        "lint",
        "dns",
        "dns a.b MX",
        "logs",
        "bundle",
        "bundle a/b --from file:///srv",
        "bundle web-1 --from ftp://srv",
        "logs web-1 --from ftp://srv",
        "logs --this-host --from file:///srv",
        "logs web-1 --step install --from file:///srv",
        "retry",
        "recording",
        "recording list",
        "recording list --recording s3://b",
        "recording check web-1 --recording /srv",
        "recording prune --recording /srv",
        "recording prune --older-than soon --recording /srv",
        "recording prune --older-than 1d --recorder a/b --recording /srv",
        "recording erase --recording /srv",
        "recording erase /a",
        "status --recording /srv",
        "status --at 5",
        "status --now 2026-11-27T02:14:00Z",
        "store",
        "store show 1",
        "store accept",
        "completion",
        "completion tcl",
        "manual",
        "bootstrap --first",
        "bootstrap --hostname web_9",
        "bootstrap --role a/b",
        "bootstrap --label rack",
        "enroll web-9",
        "enroll web_9 --print-etcdctl",
        "enroll web-9 --service a/b --print-etcdctl",
        "enroll alice --as operator --service web --print-etcdctl",
        "enroll alice --as root --print-etcdctl",
        "status -o yaml",
        "status --port many",
        "status --endpoints a --discovery-srv b",
    ] {
        rows.push(row("wrong arguments", line, 64, ""));
    }
    let reason = "x".repeat(257);
    rows.push(row("a long reason", "freeze --reason", 64, "").argument(&reason).says("256 bytes"));
    for code in ["x", "", "1.5", "0x1", "99999999999999999999"] {
        rows.push(row("a code that is no integer", "update_own_status puppet", 64, "").argument(code));
    }
    for kind in ["nonsense", "", "../puppet", "puppet/failed"] {
        rows.push(
            row("a type that is none", "update_own_status", 64, "")
                .argument(kind)
                .argument("0")
                .says("status type"),
        );
    }
    let long = "v".repeat(129);
    for version in
        ["", " ", "4 3", "../43", "-43", "43\n", "4/3", "43;reboot", "\u{1b}[2J", "é", ".43", &long]
    {
        for line in [
            "trigger_update --",
            "local_version --",
            "verify_hosts --",
            "check_single_version --",
            "hosts_at_version --",
            "debug_timeout --",
        ] {
            rows.push(row("a version that is none", line, 64, "").argument(version).says(NAME_RULE));
        }
        rows.push(
            row("a version that is none", "store accept", 64, "")
                .argument(&format!("--version={version}"))
                .says(NAME_RULE),
        );
        if !version.is_empty() {
            rows.push(
                row("a version that is none", "update_own_info", 64, "")
                    .argument(&format!("--version={version}"))
                    .says(NAME_RULE),
            );
        }
    }
    for host in ["", "a b", "a_b", "-a", "a-", "a..b", "a/b", "../a", "\u{1b}[2J", &"a".repeat(64)] {
        for line in ["why --", "logs --", "retry --", "hosts add --", "hosts decommission --"] {
            rows.push(row("a host that is none", line, 64, "").argument(host).says(HOST_RULE));
        }
        for line in ["update_own_status puppet 0", "update_own_info --version 43"] {
            rows.push(
                row("a host that is none", line, 64, "")
                    .argument(&format!("--hostname={host}"))
                    .says(HOST_RULE),
            );
        }
    }
    let name_missing = "name must be passed if scope is not global\nFalse\n";
    rows.extend([
        row(
            "a type that is none",
            "manage_config color global a=b",
            64,
            "Invalid action type: color\nFalse\n",
        ),
        row("a scope that is none", "manage_config state rack a=b", 64, "Invalid scope type: rack\nFalse\n"),
        row("no name", "manage_config state role a=b", 64, name_missing),
        row("no value", "manage_config state global a", 64, "data should be of form key=value\nFalse\n"),
        row("a type that is none", "host_data color", 64, "Invalid action type: color\nFalse\n"),
        row("no name", "enable_puppet False host", 64, name_missing),
        row("no name", "check_config a role", 64, name_missing),
        row(
            "a type that is none",
            "set_config a b global -c color",
            64,
            "Invalid action type: color\nFalse\n",
        ),
        row("a key that is none", "manage_config state global a=b c", 64, "").says("name of a value"),
        row("a value that would steer a terminal", "set_config a", 64, "")
            .argument("\u{1b}[2J")
            .argument("global")
            .says("control characters"),
        row("a value that is too long", "set_config a", 64, "")
            .argument(&"x".repeat(16 * 1024 + 1))
            .argument("global")
            .says("16 KiB"),
        row("rules that are unknown", "rolling_upgrade upgrade 43 --instructions", 64, "")
            .argument("{\"rollin_rules\":1}")
            .says("--instructions: \"rollin_rules\": unknown key"),
        row("a file with rules that are unknown", "rolling_upgrade upgrade 43", 64, "")
            .with("ORCHESTRATE_UPGRADE_FILE", concat!(env!("CARGO_MANIFEST_DIR"), "/it/wire/store.json"))
            .says("/it/wire/store.json: \"/available_services/"),
        row("this host has no name", "local_health", 64, "")
            .with("ORCHESTRATE_HOSTNAME", "web_1")
            .says(HOST_RULE),
        row("a role that is none", "hosts add web-1 --role a/b", 64, "").says("role"),
        row("a label that is none", "hosts add web-1 --label rack", 64, "").says("NAME=VALUE"),
        row("a lineage that is none", "store accept --version 43 --lineage a/b", 64, ""),
        row("a time to wait that is none", "verify_hosts 43 web-1 --wait soon", 64, "").says("--wait"),
        row("a time-out that is none", "status --timeout soon", 64, "").says("--timeout"),
        row("no time at all", "status", 64, "").with("ORCHESTRATE_TIMEOUT", "0s"),
        row("a time-out in the environment that is none", "status", 64, "").with("ORCHESTRATE_TIMEOUT", "10"),
        row("a time-out for connecting that is none", "status --dial-timeout 1", 64, ""),
        row("a flavour that is none", "status", 64, "").with("ORCHESTRATE_FLAVOUR", "vanilla"),
        row("a namespace that is none", "status --namespace site", 64, ""),
        row("half a certificate", "status --cert c", 64, ""),
        row("a user without a password", "status --user a", 64, ""),
    ]);
    rows
}

#[test]
fn wrong_usage_ends_with_64_before_anybody_is_asked() {
    let proxy = Proxy::start(NOWHERE);
    let world = World { discovery: proxy.endpoint(), ..World::new(&proxy.endpoint()) };
    check_all(&world, &wrong_usage());
    assert_eq!(proxy.accepted(), 0, "no connection was made");
}

#[test]
fn help_and_version_are_answers() {
    let mut rows = vec![
        row("help", "--help", 0, "").contains("Exit codes: 0 yes, 1 no, 2 cannot tell"),
        row("short help", "-h", 0, "").contains("trigger_update"),
        row("help of the store's options", "help store", 0, "").contains("ORCHESTRATE_ENDPOINTS"),
        row("version", "--version", 0, "").contains("orchestrate "),
    ];
    for verb in verbs() {
        rows.push(row("help for a verb", &format!("help {verb}"), 0, "").contains("Usage: orchestrate"));
        rows.push(row("help behind a verb", &format!("{verb} --help"), 0, "").contains("Usage: orchestrate"));
    }
    check_all(&World::new(NOWHERE), &rows);
}

#[test]
fn options_of_the_original_tool_stand_before_the_verb() {
    let etcd = Etcd::single();
    let store = etcd.store();
    fill(&store, &FLEET);
    let endpoint = etcd.endpoint(0);
    let port = endpoint.rsplit(':').next().expect("a port");
    let old = |line: &str| row("the store of the old options", &line.replace("PORT", port), 0, "43\n");
    let rows = [
        old("--host 127.0.0.1 --port PORT current_version"),
        old("--host=127.0.0.1 --port=PORT current_version"),
        old("--port PORT --host localhost current_version"),
        old("--port PORT current_version"),
        old("--discovery_token= --host 127.0.0.1 --port PORT current_version"),
        old("current_version --port PORT"),
        old("--endpoints http://127.0.0.1:PORT current_version"),
        old("--endpoints 127.0.0.1:PORT --host nowhere.invalid current_version"),
        row("an empty token means none", "--discovery_token", 0, "43\n")
            .argument("")
            .argument(&format!("--port={port}"))
            .argument("current_version"),
        row("a verb with options of its own", &format!("--port {port} check_single_version -v 43"), 1, "")
            .contains("Wanted version found: True\n"),
        row(
            "the host of the store is not this host",
            &format!("--host 127.0.0.1 --port {port} local_health -v"),
            1,
            "",
        )
        .contains("validation: http does not answer\n")
        .with("ORCHESTRATE_HOSTNAME", "web-2"),
    ];
    check_all(&World::new(NOWHERE), &rows);
    let by_environment = [
        row("by the environment", "current_version", 0, "43\n").with("ORCHESTRATE_ENDPOINTS", &endpoint),
        row("as of etcdctl", "current_version", 0, "43\n")
            .with("ORCHESTRATE_ENDPOINTS", "")
            .with("ETCDCTL_ENDPOINTS", &endpoint),
        row("ours wins over that of etcdctl", "current_version", 0, "43\n")
            .with("ORCHESTRATE_ENDPOINTS", &endpoint)
            .with("ETCDCTL_ENDPOINTS", NOWHERE),
        row("in a namespace of its own there is nothing", "current_version", 0, "None\n")
            .with("ORCHESTRATE_ENDPOINTS", &endpoint)
            .with("ORCHESTRATE_NAMESPACE", "/site"),
    ];
    check_all(&World::new(NOWHERE), &by_environment);
}
