//! TLS, users and permissions, on a real etcd that requires them.
//!
//! This file is long because its tests share one store with TLS, users and permissions.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tests::authority::Authority;
use tests::etcd::{Etcd, Tls};
use tests::host::Host;
use tests::observer::Observer;
use tests::wait;

fn store_settings(authority: &Authority, etcd: &Etcd, cert: &Path, key: &Path) -> String {
    format!(
        "[store]\nbackstop = \"1s\"\nendpoints = {:?}\ncacert = {:?}\ncert = {cert:?}\nkey = {key:?}\n",
        etcd.endpoints(),
        authority.path("ca.crt")
    )
}

#[test]
fn an_agent_with_its_certificate_updates_and_takes_a_new_one_without_a_restart() {
    let authority = Authority::new();
    let etcd = Etcd::with_tls(authority.server());
    let (cert, key) = authority.issue("h1", 30);
    let mut host = Host::new("h1", &[]).with(&store_settings(&authority, &etcd, &cert, &key));
    host.start();
    etcd.etcdctl(&["put", "/current_version", "1"], "");
    host.wait_for_verdict("ok");
    wait::until("installed", || (host.read("current_version") == "1").then_some(()), || host.describe());
    // Rotation replaces the files; the restart of a member forces a new connection.
    authority.issue("h1", 60);
    let mut etcd = etcd;
    etcd.kill_member(0);
    etcd.start_member(0);
    etcd.wait_until_serving();
    etcd.etcdctl(&["put", "/current_version", "2"], "");
    wait::until("installed", || (host.read("current_version") == "2").then_some(()), || host.describe());
}

#[test]
fn without_the_right_certificate_nothing_is_written_and_plain_text_is_never_tried() {
    let authority = Authority::new();
    let etcd = Etcd::with_tls(authority.server());
    let stranger = Authority::new();
    let (cert, key) = stranger.issue("h1", 30);
    let mut host = Host::new("h1", &[]).with(&store_settings(&authority, &etcd, &cert, &key));
    host.start();
    let problem = |s: &serde_json::Value| s["store"]["trouble"].is_string();
    wait::until("the trouble is shown", || host.status().filter(problem), || host.describe());
    assert_eq!(host.http_get("/ready").expect("an answer").0, 503);
    assert!(etcd.etcdctl(&["get", "--prefix", "/", "--keys-only"], "").trim().is_empty());
    let plain = etcd.endpoints()[0].replace("https://", "http://");
    let settings = format!("[store]\nendpoints = [{plain:?}]\ncacert = {:?}\n", authority.path("ca.crt"));
    let path = host.path("plain.toml");
    std::fs::write(&path, settings).expect("written");
    let mut command = Command::new(tests::process::binary("orchestrate-agent"));
    let output = tests::process::run(command.arg("--check-config").arg("--config").arg(&path), "");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("write https://"), "{output:?}");
}

#[test]
fn a_certificate_that_ends_soon_is_spoken_of_and_one_that_has_ended_is_named() {
    let authority = Authority::new();
    let etcd = Etcd::with_tls(authority.server());
    let (cert, key) = authority.issue("h1", 9);
    let mut host = Host::new("h1", &[]).with(&store_settings(&authority, &etcd, &cert, &key));
    host.start();
    etcd.etcdctl(&["put", "/current_version", "1"], "");
    host.wait_for_verdict("ok");
    let metrics = host.http_get("/metrics").expect("an answer").1;
    assert!(metrics.contains("certificate_end_timestamp_seconds"), "{metrics}");
    let (operator, operator_key) = authority.issue("operator", 30);
    let mut command = Command::new(tests::process::binary("orchestrate"));
    command
        .env_clear()
        .env("ORCHESTRATE_ENDPOINTS", etcd.endpoints().join(","))
        .env("ORCHESTRATE_CACERT", authority.path("ca.crt"))
        .env("ORCHESTRATE_CERT", &operator)
        .env("ORCHESTRATE_KEY", &operator_key)
        .arg("status");
    // The agent has its verdict before the store has it.
    let settled = || {
        let result = tests::host::CommandOutput::from(tests::process::run(&mut command, ""));
        (result.code == 0).then_some(result)
    };
    let result = wait::until("the host is settled", settled, || host.describe());
    // During the first second nine whole days are left.
    assert!(
        result.err.contains("h1: the certificate")
            && (result.err.contains("ends in 8d23h") || result.err.contains("ends in 9d")),
        "{result:?}"
    );
    assert!(!result.err.contains("operator.crt"), "{result:?}");

    // The certificate expires and is not replaced: the next connection fails with that reason.
    authority.issue("h1", 0);
    let mut etcd = etcd;
    etcd.kill_member(0);
    etcd.start_member(0);
    etcd.wait_until_serving();
    let named = |status: &serde_json::Value| {
        status["store"]["trouble"].as_str().is_some_and(|t| t.contains("h1.crt") && t.contains("ended"))
    };
    wait::until("the trouble is named", || host.status().filter(named), || host.describe());
    assert_eq!(host.status().expect("an answer")["verdict"], "ok", "{}", host.describe());
}

#[test]
fn the_command_reads_the_same_names_as_etcdctl() {
    let authority = Authority::new();
    let etcd = Etcd::with_tls(authority.server());
    let (cert, key) = authority.issue("operator", 30);
    let run = |environment: &[(&str, &Path)], arguments: &[&str]| {
        let mut command = Command::new(tests::process::binary("orchestrate"));
        command.env_clear().env("ETCDCTL_ENDPOINTS", etcd.endpoints().join(",")).args(arguments);
        environment.iter().for_each(|(name, path)| {
            command.env(name, path);
        });
        tests::host::CommandOutput::from(tests::process::run(&mut command, ""))
    };
    let ca = authority.path("ca.crt");
    let result = run(
        &[("ETCDCTL_CACERT", &ca), ("ETCDCTL_CERT", &cert), ("ETCDCTL_KEY", &key)],
        &["trigger_update", "5"],
    );
    assert_eq!(result.code, 0, "{result:?}");
    let text = |path: &Path| path.display().to_string();
    let result =
        run(&[], &["--cacert", &text(&ca), "--cert", &text(&cert), "--key", &text(&key), "current_version"]);
    assert_eq!((result.code, result.out.as_str()), (0, "5\n"), "{result:?}");
    let result = run(&[("ETCDCTL_CACERT", &ca)], &["--timeout", "2s", "verify_hosts", "5", "h1"]);
    assert_eq!(result.code, 2, "no client certificate: {result:?}");
}

#[test]
fn an_enrolled_agent_does_its_work_and_cannot_speak_for_another_host() {
    let authority = Authority::new();
    let etcd = Etcd::with_tls(authority.server());
    let issue = |name: &str| authority.issue(name, 30);
    let text = |path: &Path| path.display().to_string();
    // Runs a script as the holder of this certificate.
    let shell = |(cert, key): &(PathBuf, PathBuf), script: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", script]).env("ETCDCTL_ENDPOINTS", etcd.endpoints().join(","));
        command
            .env("ETCDCTL_CACERT", authority.path("ca.crt"))
            .env("ETCDCTL_CERT", cert)
            .env("ETCDCTL_KEY", key);
        let output = command.output().expect("sh");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let root = issue("root");
    let must = |script: &str| {
        let (done, result) = shell(&root, script);
        assert!(done, "{script}: {result}");
    };
    let printed = |arguments: &[&str]| {
        let result =
            Host::new("h1", &[]).command(&[&["enroll"], arguments, &["--print-etcdctl"]].concat(), "");
        assert_eq!((result.code, result.err.as_str()), (0, ""), "{arguments:?}");
        result.out
    };
    must("etcdctl user add root --no-password && etcdctl role add root && etcdctl user grant-role root root");
    for arguments in [
        &["h1", "--service", "web"][..],
        &["h2"],
        &["ops", "--as", "operator"],
        &["look", "--as", "verifier"],
        // Printing the commands again with another service must give commands that still succeed.
        &["h1", "--service", "web", "--service", "db"],
    ] {
        must(&printed(arguments));
    }
    must("etcdctl auth enable");
    let [h1, ops, look] = ["h1", "ops", "look"].map(issue);
    let ask = |(cert, key): &(PathBuf, PathBuf), arguments: &[&str]| {
        let (cacert, cert, key) = (text(&authority.path("ca.crt")), text(cert), text(key));
        let tls = ["--cacert", &cacert, "--cert", &cert, "--key", &key];
        Host::new("ops", &etcd.endpoints()).command(&[&tls, arguments].concat(), "")
    };
    // No agent may decide which store is the right one.
    let result = ask(&ops, &["store", "accept", "--version", "1"]);
    assert_eq!(result.code, 0, "{result:?}");
    let settings = store_settings(&authority, &etcd, &h1.0, &h1.1);
    let mut host = Host::new("h1", &[]).with(&settings);
    host.write_switched_service("web", 80);
    host.write("web-works", "");
    host.start();
    let verified = |arguments: &[&str]| ask(&look, &[&["verify_hosts", "1"], arguments].concat()).code;
    wait::until("installed", || (host.read("current_version") == "1").then_some(()), || host.describe());
    wait::until(
        "listed",
        || (verified(&["h1"]) == 0 && verified(&["h1", "--strict"]) == 0).then_some(()),
        || host.describe(),
    );
    let works = || (ask(&look, &["wait_for", "web"]).code == 0).then_some(());
    wait::until("its service works", works, || host.describe());
    assert!(!host.read("agent.log").contains("permission denied"), "{}", host.read("agent.log"));
    // Who only reads sees the hosts, and why one of them is missing; an operator takes a service out of use.
    let result = ask(&look, &["hosts"]);
    assert!(result.code == 0 && result.out.contains("h1 "), "{result:?}");
    assert_eq!(ask(&ops, &["hosts", "add", "h9"]).code, 0);
    let result = ask(&look, &["verify_hosts", "1", "h9", "--wait", "1s"]);
    assert!(result.code == 1 && result.err.contains("h9: lost: "), "{result:?}");
    let files = [&authority.path("ca.crt"), &look.0, &look.1].map(|path| text(path));
    let [cacert, cert, key] = &files;
    let endpoints = etcd.endpoints();
    let observer = Observer::start(&format!(
        "endpoints = {endpoints:?}\ncacert = {cacert:?}\ncert = {cert:?}\nkey = {key:?}"
    ));
    observer.wait_for_health("fresh");
    let works = |shown: &serde_json::Value| shown["services"][0]["functional_count"] == 1;
    observer.wait_for("/v1/services", "the observer sees the service", works);
    assert_eq!(observer.get("/v1/hosts/h1").json()["installed"], "1");
    drop(observer);
    assert_eq!(ask(&look, &["drain", "h1", "--force"]).code, 2);
    for (arguments, code) in
        [(&["drain", "h1"][..], 3), (&["drain", "h1", "--force"], 0), (&["drain", "h1", "--off"], 0)]
    {
        let result = ask(&ops, arguments);
        assert_eq!(result.code, code, "{result:?}");
    }
    assert_eq!(ask(&ops, &["hosts", "decommission", "h9"]).code, 0);
    let events = ask(&look, &["events", "-o", "json"]);
    assert!(events.out.contains(r#""store_user": "ops""#), "{events:?}");
    drains_in_a_step(&etcd, [&authority.path("ca.crt"), &h1.0, &h1.1].map(|path| text(path)));

    for key in [
        "/current_version",
        "/orchestrate/store",
        "/orchestrate/live/h2",
        "/orchestrate/announced/h2",
        "/orchestrate/reports/h2",
        "/orchestrate/hosts/h2",
        "/orchestrate/retry/h1",
        "/orchestrate/maintenance/h2",
        "/orchestrate/events/1-a",
        "/orchestrate/events/host/h2/1-a",
        "/orchestrate/config/motd",
        "/orchestrate/health/web/h2",
        "/orchestrate/health/other/h1",
        "/available_services/web/h2",
        "/status/validation/success/h2",
    ] {
        let (done, result) = shell(&h1, &format!("etcdctl put {key} x"));
        assert!(!done && result.contains("permission denied"), "{key}: {result}");
        assert!(!shell(&look, &format!("etcdctl put {key} x")).0, "{key}");
    }
    // The agent may read where other hosts are; without that permission it logs once what
    // is missing.
    let claim = r#"{"instance":"0123456789abcdef","machine_id":"m","boot_id":"b","addresses":["10.9.0.2"]}"#;
    assert!(shell(&ops, &format!("etcdctl put /orchestrate/live/h2 '{claim}'")).0);
    host.wait_for_name(&["h2.node.consul"], &["10.9.0.2"]);
    must("etcdctl role revoke-permission orchestrate-agent /orchestrate/live/ --prefix");
    for name in ["h2", "h3", "h4"].map(|name| format!("{name}.node.consul")) {
        let result = || {
            let mut dig = host.program("dig");
            dig.args(["@127.0.0.1", "-p", &host.dns_port().to_string(), &name]);
            String::from_utf8_lossy(&tests::process::run(&mut dig, "").stdout).into_owned()
        };
        let refused = || result().contains("status: SERVFAIL").then_some(());
        wait::until("nobody can tell", refused, || host.describe());
    }
    let result = host.read("agent.log");
    assert_eq!(result.matches("may not read /orchestrate/live/").count(), 1, "{result}");

    // The listing keys themselves cannot be protected, but `--strict` detects the false listing.
    assert!(shell(&h1, "etcdctl put /running_version/1/h2 1").0);
    assert_eq!((verified(&["h1", "h2"]), verified(&["h1", "h2", "--strict"])), (0, 1));
    let result = ask(&look, &["trigger_update", "2"]);
    assert_eq!(result.code, 2, "{result:?}");
    assert!(result.err.contains("permission denied for look"), "{result:?}");

    // An operator freezes; the agent heeds that, and can neither freeze nor unfreeze.
    let must_ask = |arguments: &[&str]| {
        let result = ask(&ops, arguments);
        assert_eq!(result.code, 0, "{arguments:?}: {result:?}");
    };
    assert!(shell(&ops, "etcdctl del /orchestrate/live/h2").0);
    must_ask(&["freeze", "--reason", "moving"]);
    must_ask(&["trigger_update", "2"]);
    let is_frozen = || ask(&look, &["why", "h1", "-o", "json"]).out.contains(r#""verdict": "frozen""#);
    wait::until("frozen", || is_frozen().then_some(()), || host.describe());
    for script in ["etcdctl put /orchestrate/freezes/fleet/x y", "etcdctl del --prefix /orchestrate/freezes/"]
    {
        let (done, result) = shell(&h1, script);
        assert!(!done && result.contains("permission denied"), "{script}: {result}");
    }
    assert_eq!(host.read("current_version"), "1");
    must_ask(&["unfreeze"]);
    wait::until("installed", || (host.read("current_version") == "2").then_some(()), || host.describe());
    follows_a_policy(&host, &must_ask, &|script| shell(&h1, script));
    must(&printed(&["h1", "--service", "web", "--service", "db"]));
    let rolls_back = || must(&printed(&["h1", "--may-roll-back"]));
    rolls_back_only_if_it_may(&host, (&must_ask, &rolls_back), &|script| shell(&h1, script));

    // A tombstone takes no rights away, but what such a host lists does not count.
    host.kill();
    let result = ask(&ops, &["hosts", "decommission", "h1", "--force"]);
    assert!(result.code == 0 && result.err.contains("enroll h1 --remove --print-etcdctl"), "{result:?}");
    for key in ["/orchestrate/live/h1", "/orchestrate/announced/h1", "/running_version/1/h1"] {
        let value = if key.contains("/live/") { claim } else { "1" };
        let (done, result) = shell(&h1, &format!("etcdctl put {key} '{value}'"));
        assert!(done, "{key}: {result}");
    }
    assert_eq!((verified(&["h1"]), verified(&["h1", "--strict"])), (1, 1));
    assert!(shell(&h1, r#"etcdctl put /orchestrate/hosts/h1 '{"format":1,"since":1}'"#).0);
    assert_eq!(verified(&["h1", "--strict"]), 0, "it can put itself on the roster again");
    for _ in 0..2 {
        must(&printed(&["h1", "--remove"]));
    }
    for script in [
        "etcdctl put /orchestrate/live/h1 x",
        "etcdctl del /orchestrate/hosts/h1",
        "etcdctl get /current_version",
    ] {
        let (done, result) = shell(&h1, script);
        assert!(!done && result.contains("permission denied"), "{script}: {result}");
    }
    assert!(shell(&ops, "etcdctl get /current_version").0, "others keep theirs");
    must(&printed(&["ops", "--as", "operator", "--remove"]));
    assert!(!shell(&ops, "etcdctl get /current_version").0);
}

/// A command in a step acts as its host with the rights of the agent. Without that, the user may not write the event.
fn drains_in_a_step(etcd: &Etcd, [cacert, cert, key]: [String; 3]) {
    let tls = ["--cacert", &cacert, "--cert", &cert, "--key", &key];
    let mut step = Host::new("h1", &etcd.endpoints());
    let drain = |step: &Host, words: &[&str]| step.command(&[&tls[..], &["drain"], words].concat(), "");
    let refused = drain(&step, &["--this-host", "--force"]);
    assert!(refused.code == 2 && refused.err.contains("permission denied"), "{refused:?}");
    step.set_environment("ORCHESTRATE_STEP_HOST", "h1");
    for words in [&["--this-host", "--force"][..], &["--this-host", "--off"]] {
        let result = drain(&step, words);
        assert_eq!(result.code, 0, "{words:?}: {result:?}");
    }
}

/// The only host of a fleet fails in a rollout. It always halts the rollout, and goes back if it has the right to
/// write the desired version.
fn rolls_back_only_if_it_may(
    host: &Host,
    (must_ask, enroll): (&impl Fn(&[&str]), &impl Fn()),
    as_agent: &impl Fn(&str) -> (bool, String),
) {
    assert!(as_agent("etcdctl del --prefix /orchestrate/claims/").0, "others must not hold the only place");
    let rollouts = || as_agent("etcdctl get --prefix /orchestrate/rollouts/ >&2").1;
    let ended = || rollouts().contains("/ended").then_some(());
    wait::until_within(Duration::from_secs(60), "the rollout of 3 ends", ended, rollouts);
    let policy = "failure_budget = 0\non_halt = \"roll_back\"\n[[limit]]\nby = \"fleet\"\nmax = 1\n";
    host.write("policy.toml", policy);
    must_ask(&["policy", "set", &host.path("policy.toml").display().to_string()]);
    for version in ["4", "5"] {
        host.write(&format!("code-packages-{version}"), "1\n");
    }
    must_ask(&["trigger_update", "4"]);
    let halted = || rollouts().contains("1 host failed, 0 tolerated; h1 may not roll back").then_some(());
    wait::until_within(Duration::from_secs(60), "it is halted", halted, rollouts);
    let desired = || as_agent("etcdctl get --print-value-only /current_version >&2").1;
    assert_eq!(desired().trim(), "4");
    enroll();
    must_ask(&["trigger_update", "5"]);
    let back = || (desired().trim() == "3" && host.read("current_version") == "3").then_some(());
    wait::until_within(Duration::from_secs(60), "the host goes back", back, || host.describe());
    assert!(rollouts().contains(r#""rolled_back_to":"3""#), "{}", rollouts());
}

/// An operator sets a policy. The agent takes its claims and cannot change the policy; what it could do if
/// it were stolen is in the security manual: hold places, end the claims of others, and write the record of a
/// rollout.
fn follows_a_policy(host: &Host, must_ask: &impl Fn(&[&str]), as_agent: &impl Fn(&str) -> (bool, String)) {
    host.write("policy.toml", "[[limit]]\nby = \"fleet\"\nmax = 1\n");
    must_ask(&["policy", "set", &host.path("policy.toml").display().to_string()]);
    host.write("hold-packages", "");
    must_ask(&["trigger_update", "3"]);
    wait::until("begun", || (host.begins("packages", "3") > 0).then_some(()), || host.describe());
    let (_, claims) = as_agent("etcdctl get --prefix /orchestrate/claims/ >&2");
    assert!(claims.contains(r#""host":"h1""#), "{claims}");
    let (done, result) = as_agent("etcdctl put /orchestrate/rollout_policy x");
    assert!(!done && result.contains("permission denied"), "{result}");
    host.remove("hold-packages");
    wait::until("installed", || (host.read("current_version") == "3").then_some(()), || host.describe());
    let left = || as_agent("etcdctl get --prefix /orchestrate/claims/ >&2").1;
    wait::until("released", || (!left().contains("h1")).then_some(()), left);
    // It looks after hosts that vanished, so it can also end the claims of others.
    for key in ["claims/fleet/all/00000", "claimed/h2", "lost/mark/h2", "lost/timer/h2"] {
        let (done, result) = as_agent(&format!("etcdctl put /orchestrate/{key} x"));
        assert!(done, "{key}: {result}");
    }
}

#[test]
fn the_commands_of_the_manual_make_certificates_with_which_etcd_lets_in_who_has_one() {
    let manual = include_str!("../../docs/security.md");
    let blocks: Vec<&str> =
        manual.split("```sh\n").skip(1).map(|block| block.split("```").next().expect("an end")).collect();
    let directory = tempfile::tempdir().expect("a directory");
    let made = Command::new("sh").args(["-ec", blocks[0]]).current_dir(&directory).output().expect("sh");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let [client, peer] = tests::process::free_ports();
    let script = format!(
        "exec {} --data-dir data --listen-peer-urls http://127.0.0.1:{peer}",
        blocks[1].replace("2379", &client.to_string()).trim()
    );
    let mut etcd = Command::new("sh");
    etcd.args(["-ec", &script]).current_dir(&directory);
    let _etcd = tests::process::Running::start(&mut etcd, &directory.path().join("log"));
    let ask = |name: Option<&str>| {
        let mut command = Command::new("etcdctl");
        command.args(["--endpoints", &format!("https://127.0.0.1:{client}"), "--cacert", "ca.crt"]);
        if let Some(name) = name {
            command.args(["--cert", &format!("{name}.crt"), "--key", &format!("{name}.key")]);
        }
        let get = command.args(["--command-timeout=3s", "get", "/"]).current_dir(&directory).output();
        get.expect("etcdctl").status.success().then_some(())
    };
    let log = || std::fs::read_to_string(directory.path().join("log")).unwrap_or_default();
    wait::until("root is let in", || ask(Some("root")), log);
    assert!(ask(Some("web-1")).is_some());
    assert!(ask(None).is_none(), "who has no certificate is let in");

    let path = |name: &str| directory.path().join(name).display().to_string();
    let endpoint = format!("https://127.0.0.1:{client}");
    let orchestrate = |arguments: &[&str]| {
        let (cacert, cert, key) = (path("ca.crt"), path("root.crt"), path("root.key"));
        let tls = ["--cacert", &cacert, "--cert", &cert, "--key", &key];
        Host::new("operator", std::slice::from_ref(&endpoint)).command(&[&tls, arguments].concat(), "")
    };
    for (arguments, expected) in
        [(&["ping"][..], "Connection succesful"), (&["store", "accept", "--version", "1"], "")]
    {
        let result = orchestrate(arguments);
        assert!(result.code == 0 && result.out.contains(expected), "{arguments:?}: {result:?}");
    }
    let settings = format!(
        "[store]\nbackstop = \"1s\"\nendpoints = [{endpoint:?}]\ncacert = {:?}\ncert = {:?}\nkey = {:?}\n",
        path("ca.crt"),
        path("web-1.crt"),
        path("web-1.key")
    );
    let mut host = Host::new("web-1", &[]).with(&settings);
    host.start();
    let settled = || (orchestrate(&["status"]).code == 0).then_some(());
    wait::until("the host is settled", settled, || host.describe());
}

/// A combination of TLS files that cannot work, and the expected parts of the message.
struct Unusable {
    ca: PathBuf,
    cert: PathBuf,
    key: PathBuf,
    result: Vec<String>,
}

/// Creates two certificates for the same key: one of X.509 version 1, which openssl makes from a
/// request without extensions, and one that becomes valid only in many years.
fn odd_certificates(authority: &Authority) -> [PathBuf; 2] {
    authority.openssl(&["req", "-new", "-key", "h1.key", "-out", "odd.csr", "-subj", "/CN=h1"]);
    let sign = ["x509", "-req", "-in", "odd.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial"];
    authority.openssl(&[&sign[..], &["-out", "v1.crt"]].concat());
    let settings = "[ca]\ndefault_ca=d\n[d]\ndatabase=index.txt\nserial=number\nnew_certs_dir=.\ndefault_md=sha256\n\
        policy=p\nx509_extensions=x\n[p]\ncommonName=supplied\n[x]\nbasicConstraints=CA:FALSE\n";
    for (name, text) in [("ca.cnf", settings), ("index.txt", ""), ("number", "1000\n")] {
        std::fs::write(authority.path(name), text).expect("written");
    }
    let sign =
        ["ca", "-batch", "-config", "ca.cnf", "-cert", "ca.crt", "-keyfile", "ca.key", "-in", "odd.csr"];
    let times = ["-startdate", "20900101000000Z", "-enddate", "20910101000000Z", "-notext"];
    authority.openssl(&[&sign[..], &times, &["-out", "later.crt"]].concat());
    ["v1.crt", "later.crt"].map(|name| authority.path(name))
}

fn unusable(authority: &Authority) -> Vec<Unusable> {
    let ca = &authority.path("ca.crt");
    let (cert, key) = &authority.issue("h1", 30);
    let (_, other_key) = &authority.issue("other", 30);
    let (ended, ended_key) = &authority.issue("ended", 0);
    let [v1, later] = &odd_certificates(authority);
    let encrypted = &authority.path("encrypted.key");
    authority.openssl(&["ec", "-in", "h1.key", "-aes128", "-passout", "pass:x", "-out", "encrypted.key"]);
    authority.openssl(&["ecparam", "-name", "secp521r1", "-genkey", "-noout", "-out", "p521.key"]);
    let request = ["req", "-x509", "-key", "p521.key", "-days", "9", "-subj", "/CN=h1"];
    authority.openssl(&[&request[..], &["-out", "p521.crt"]].concat());
    let (p521, p521_key) = (&authority.path("p521.crt"), &authority.path("p521.key"));
    let (nowhere, empty, cut) =
        (&authority.path("nowhere.pem"), &authority.path("empty.pem"), &authority.path("cut.crt"));
    std::fs::write(empty, "no PEM\n").expect("written");
    let whole = std::fs::read_to_string(cert).expect("read");
    std::fs::write(cut, whole.replace("-----END", "-----")).expect("written");
    let row = |ca: &Path, cert: &Path, key: &Path, wrong: &Path, result: &[&str]| Unusable {
        ca: ca.to_owned(),
        cert: cert.to_owned(),
        key: key.to_owned(),
        result: result.iter().map(|text| text.replace("FILE", &wrong.display().to_string())).collect(),
    };
    vec![
        row(ca, v1, key, v1, &["certificate FILE is X.509 version 1; version 3 is needed", "-extfile"]),
        row(ca, nowhere, key, nowhere, &["the certificate FILE cannot be read: No such file"]),
        row(ca, cert, nowhere, nowhere, &["the key FILE cannot be read: No such file"]),
        row(nowhere, cert, key, nowhere, &["(cacert) FILE cannot be read: No such file"]),
        row(ca, empty, key, empty, &["the certificate FILE: it contains no PEM certificate"]),
        row(ca, cut, key, cut, &["the certificate FILE: its PEM data is invalid"]),
        row(ca, cert, empty, empty, &["the key FILE: no key in PEM is in it"]),
        row(ca, cert, encrypted, encrypted, &["the key FILE: it is encrypted"]),
        row(empty, cert, key, empty, &["(cacert) FILE: it contains no PEM certificate"]),
        row(ca, cert, other_key, other_key, &["the key FILE does not belong to the certificate", "h1.crt"]),
        row(ca, ended, ended_key, ended, &["FILE\" ended", "check the clock of this machine"]),
        row(ca, p521, p521_key, p521_key, &["the key FILE: this kind of key is not supported", "P-384"]),
        row(p521, cert, key, p521, &["(cacert) FILE", "the curve P-521 is not supported", "P-384"]),
        row(ca, later, key, later, &["FILE is not good before 2090-01-01T00:00:00Z", "check the clock"]),
    ]
}

#[test]
fn files_that_cannot_be_used_are_named_before_anything_is_tried() {
    let authority = Authority::new();
    let host = Host::new("h1", &[]);
    for Unusable { ca, cert, key, result: expected } in unusable(&authority) {
        let text = |path: &Path| path.display().to_string();
        // Nobody listens on this port, so an attempted connection would be reported as such.
        let (ca_text, cert_text, key_text) = (text(&ca), text(&cert), text(&key));
        let tls = ["--cacert", &ca_text, "--cert", &cert_text, "--key", &key_text];
        let store = ["--endpoints", "https://127.0.0.1:1", "--timeout", "60s"];
        let begun = std::time::Instant::now();
        let result = host.command(&[&store[..], &tls, &["status"]].concat(), "");
        assert!(begun.elapsed() < std::time::Duration::from_secs(30), "it waits: {result:?}");
        assert_eq!(result.code, 2, "{result:?}");
        assert!(expected.iter().all(|part| result.err.contains(part)), "{result:?} has not {expected:?}");
        assert!(!result.err.contains("no answer"), "{result:?}");

        let settings = format!(
            "[store]\nendpoints = [\"https://127.0.0.1:1\"]\ncacert = {ca:?}\ncert = {cert:?}\nkey = {key:?}\n"
        );
        let path = host.path("checked.toml");
        std::fs::write(&path, settings).expect("written");
        let mut command = Command::new(tests::process::binary("orchestrate-agent"));
        let output = tests::process::run(command.arg("--check-config").arg("--config").arg(&path), "");
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{err}");
        assert!(expected.iter().all(|part| err.contains(part)), "{err} has not {expected:?}");
    }
}

#[test]
fn signatures_are_supported_as_the_manual_says() {
    let manual = include_str!("../../docs/security.md");
    assert!(manual.contains("and P-256 or P-384 with SHA-512, are not, though etcdctl takes them."));
    for (curve, digest, is_supported) in [
        ("prime256v1", "-sha384", true),
        ("prime256v1", "-sha512", false),
        ("secp384r1", "-sha256", true),
        ("secp384r1", "-sha512", false),
    ] {
        let authority = Authority::new();
        let curve_option = format!("ec_paramgen_curve:{curve}");
        let make = ["req", "-x509", "-newkey", "ec", "-pkeyopt", &curve_option, "-nodes", "-days", "9"];
        let of_authority = ["-subj", "/CN=authority", "-addext", "basicConstraints=critical,CA:TRUE"];
        authority.openssl(&[&make[..], &of_authority, &["-keyout", "ca.key", "-out", "ca.crt"]].concat());
        let Tls { cacert, cert, key } = authority.server();
        // The same request, signed with the digest.
        let sign =
            ["x509", "-req", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial"];
        let more = ["-days", "9", "-copy_extensions", "copy", digest, "-out", "server.crt"];
        authority.openssl(&[&sign[..], &more].concat());
        let [ca_text, cert_text, key_text] = [&cacert, &cert, &key].map(|path| path.display().to_string());
        let etcd = Etcd::with_tls(Tls { cacert, cert, key });
        etcd.etcdctl(&["put", "/current_version", "1"], "");
        let endpoints = etcd.endpoints().join(",");
        let tls = ["--endpoints", &endpoints, "--cacert", &ca_text, "--cert", &cert_text, "--key", &key_text];
        let result = Host::new("h1", &[]).command(&[&tls[..], &["store", "show"]].concat(), "");
        let refused =
            "has a key or a signature that is not supported; RSA, Ed25519, and ECDSA with P-256 or P-384";
        let found = (result.code == 0, result.err.contains(refused));
        assert_eq!(found, (is_supported, !is_supported), "{curve} {digest}: {result:?}");
    }
}

#[test]
fn an_agent_names_a_file_that_it_cannot_use_once_and_goes_on_when_it_is_mended() {
    let authority = Authority::new();
    let etcd = Etcd::with_tls(authority.server());
    let (cert, key) = authority.issue("h1", 30);
    let good = std::fs::read(&cert).expect("read");
    let (other, _) = authority.issue("other", 30);
    std::fs::copy(&other, &cert).expect("copied");
    let mut host = Host::new("h1", &[]).with(&store_settings(&authority, &etcd, &cert, &key));
    host.start();
    let troubled = |s: &serde_json::Value| {
        s["store"]["trouble"]
            .as_str()
            .is_some_and(|problem| problem.contains("does not belong to the certificate"))
    };
    wait::until("the trouble is shown", || host.status().filter(troubled), || host.describe());
    std::fs::write(&cert, good).expect("written");
    etcd.etcdctl(&["put", "/current_version", "1"], "");
    host.wait_for_verdict("ok");
    // Only the first attempt logs an ERROR line; later attempts log at a lower level.
    let log = host.read("agent.log");
    let warnings = log
        .lines()
        .filter(|line| line.contains("ERROR") && line.contains("does not belong to the certificate"));
    assert_eq!(warnings.count(), 1, "{log}");
}

#[test]
fn a_connection_that_was_not_made_is_told_with_endpoint_and_cause_and_not_as_a_lost_answer() {
    let authority = Authority::new();
    let etcd = Etcd::with_tls(authority.server());
    let stranger = Authority::new();
    let (own, own_key) = authority.issue("operator", 30);
    let (strange, strange_key) = stranger.issue("operator", 30);
    let text = |path: &Path| path.display().to_string();
    let (ca, strange_ca) = (text(&authority.path("ca.crt")), text(&stranger.path("ca.crt")));
    let own = ["--cert", &text(&own), "--key", &text(&own_key)].map(str::to_owned);
    let strange_pair = ["--cert", &text(&strange), "--key", &text(&strange_key)].map(str::to_owned);
    let host = Host::new("operator", &[]);
    let endpoint = etcd.endpoints()[0].clone();
    // What is told at once has ample time. What is tried until the time is over has less.
    let (ample, limited) = (["20s", "10s"], ["5s", "500ms"]);
    let check =
        |[timeout, dial]: [&str; 2], endpoint: &str, ca: &str, identity: &[String], expected: &[&str]| {
            let identity: Vec<&str> = identity.iter().map(String::as_str).collect();
            for verb in [&["status"][..], &["trigger_update", "1"]] {
                let to =
                    ["--endpoints", endpoint, "--cacert", ca, "--timeout", timeout, "--dial-timeout", dial];
                let result = host.command(&[&to[..], &identity, verb].concat(), "");
                assert_eq!(result.code, 2, "{result:?}");
                assert!(result.err.contains(endpoint), "{result:?}");
                assert!(
                    expected.iter().any(|text| result.err.contains(text)),
                    "{result:?} has none of {expected:?}"
                );
                assert!(!result.err.contains("may have been applied"), "{result:?}");
            }
        };
    check(limited, "https://127.0.0.1:1", &ca, &own, &["connection refused"]);
    check(ample, "https://no-such-name.invalid:1", &ca, &own, &["the name is not found"]);
    check(ample, &endpoint, &strange_ca, &own, &[&format!("is not trusted by {strange_ca}")]);
    // The reason may be lost with the connection; the message then names a likely reason and
    // marks it as a guess.
    check(ample, &endpoint, &ca, &[], &["wants a client certificate"]);
    let strange = text(&strange);
    check(
        ample,
        &endpoint,
        &ca,
        &strange_pair,
        &[
            &format!("does not accept the client certificate {strange}"),
            &format!("may not accept the client certificate {strange}"),
        ],
    );
    // A server that accepts the connection and sends nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let silent = format!("https://{}", silent.local_addr().expect("bound"));
    check(limited, &silent, &ca, &own, &["TLS handshake timeout"]);
}

fn with_users() -> Etcd {
    adding_users(Etcd::single_real())
}

fn adding_users(etcd: Etcd) -> Etcd {
    for arguments in [
        &["user", "add", "root:root-password"][..],
        &["user", "grant-role", "root", "root"],
        &["role", "add", "agent"],
        &["role", "grant-permission", "agent", "--prefix=true", "readwrite", "/"],
        &["user", "add", "agent:canary-7741"],
        &["user", "grant-role", "agent", "agent"],
        &["auth", "enable"],
    ] {
        etcd.etcdctl(arguments, "");
    }
    etcd
}

fn as_root(etcd: &Etcd, arguments: &[&str]) -> String {
    etcd.etcdctl(&[&["--user", "root:root-password"], arguments].concat(), "")
}

#[test]
fn an_agent_with_a_user_goes_on_when_its_token_is_dropped_and_never_shows_its_password() {
    let mut etcd = with_users();
    let host = Host::new("h1", &[]);
    host.write("password", "canary-7741\n");
    let settings = format!(
        "[store]\nbackstop = \"1s\"\nendpoints = {:?}\nuser = \"agent\"\npassword_file = {:?}\n",
        etcd.endpoints(),
        host.path("password")
    );
    let mut host = host.with(&settings);
    host.start();
    as_root(&etcd, &["put", "/current_version", "1"]);
    wait::until("installed", || (host.read("current_version") == "1").then_some(()), || host.describe());
    // Tokens exist only in the memory of the member.
    etcd.kill_member(0);
    etcd.start_member(0);
    wait::until(
        "etcd serves",
        || std::panic::catch_unwind(|| as_root(&etcd, &["put", "/current_version", "2"])).ok(),
        String::new,
    );
    wait::until("installed", || (host.read("current_version") == "2").then_some(()), || host.describe());
    let everything = host.read("agent.log")
        + &host.status().expect("status").to_string()
        + &as_root(&etcd, &["get", "--prefix", "/"]);
    assert!(!everything.contains("canary-7741"));
}

#[test]
fn a_changed_password_is_taken_from_its_file_without_a_restart() {
    for etcd in [adding_users(Etcd::with_signed_tokens()), with_users()] {
        let host = Host::new("h1", &[]);
        host.write("password", "canary-7741\n");
        let (endpoints, file) = (etcd.endpoints(), host.path("password"));
        let store = format!("endpoints = {endpoints:?}\nuser = \"agent\"\npassword_file = {file:?}\n");
        let mut host = host.with(&format!("[store]\nbackstop = \"1s\"\n{store}"));
        host.start();
        let observer = Observer::start(&store);
        as_root(&etcd, &["put", "/current_version", "1"]);
        host.wait_for_verdict("ok");
        observer.wait_for_health("fresh");
        etcd.etcdctl(
            &["--user", "root:root-password", "user", "passwd", "agent", "--interactive=false"],
            "canary-8852\n",
        );
        let refused = |status: &serde_json::Value| {
            status["store"]["trouble"]
                .as_str()
                .is_some_and(|why| why.contains("does not accept the user agent"))
        };
        wait::until("the old password is refused", || host.status().filter(refused), || host.describe());
        host.write("password", "canary-8852\n");
        as_root(&etcd, &["put", "/current_version", "2"]);
        wait::until("installed", || (host.read("current_version") == "2").then_some(()), || host.describe());
        observer.wait_for("/v1/status", "the new version", |status| status.to_string().contains("\"2\""));
        assert!(!(host.read("agent.log") + &observer.log()).contains("canary"), "{}", host.describe());
    }
}

#[test]
fn a_user_that_cannot_log_in_is_named_at_once_with_what_would_be_right() {
    let etcd = with_users();
    as_root(&etcd, &["user", "add", "nopassword", "--no-password"]);
    let without = Etcd::single_real();
    let check = |etcd: &Etcd, user: &str, parts: &[&str]| {
        let mut host = Host::new("h1", &etcd.endpoints());
        host.set_environment("ORCHESTRATE_USER", user);
        let begun = std::time::Instant::now();
        let result = host.command(&["status"], "");
        assert!(result.code == 2 && parts.iter().all(|part| result.err.contains(part)), "{user}: {result:?}");
        assert!(begun.elapsed() < Duration::from_secs(8), "{user}: {:?}", begun.elapsed());
    };
    check(&etcd, "nopassword:x", &["user nopassword", "created without a password", "--password-file"]);
    check(&etcd, "agent:x", &["user agent", "another password", "--user"]);
    check(&etcd, "stranger:x", &["user stranger", "no such user"]);
    check(&without, "agent:x", &["user agent", "has no users yet"]);
}

#[test]
fn users_with_passwords_are_made_by_the_commands_of_the_manual() {
    let etcd = with_users();
    let host = Host::new("h1", &etcd.endpoints());
    let run = |script: &str| {
        let mut shell = Command::new("sh");
        shell.arg("-euc").arg(script).current_dir(host.path("")).env("ETCDCTL_API", "3");
        shell.env("ETCDCTL_ENDPOINTS", etcd.endpoints().join(",")).env("ETCDCTL_USER", "root:root-password");
        let output = tests::process::run(&mut shell, "");
        assert!(output.status.success(), "{script}: {output:?}");
    };
    for (user, kind) in [("viewer", "verifier"), ("alice", "operator")] {
        let file = format!("{user}.password");
        run(&format!("umask 077; openssl rand -hex 24 >{file}"));
        let enroll = ["enroll", user, "--as", kind, "--password-file", &file, "--print-etcdctl"];
        let script = host.command(&enroll, "");
        assert!(script.code == 0 && !script.out.contains(host.read(&file).trim()), "{script:?}");
        run(&script.out);
        // The commands may be run again.
        run(&script.out);
    }
    let observer = Observer::start(&format!(
        "endpoints = {:?}\nuser = \"viewer\"\npassword_file = {:?}\n",
        etcd.endpoints(),
        host.path("viewer.password")
    ));
    observer.wait_for_health("fresh");
    let mut operator = Host::new("h2", &etcd.endpoints());
    operator.set_environment("ORCHESTRATE_USER", "alice");
    operator.set_environment("ORCHESTRATE_PASSWORD", host.read("alice.password").trim());
    let done = operator.command(&["store", "accept", "--version", "1"], "");
    assert_eq!(done.code, 0, "{done:?}");
    let mut ui = operator.start_command(&["ui"], "ui");
    let url = || operator.read("ui").lines().find_map(|line| line.strip_prefix("http://").map(str::to_owned));
    let url = wait::until("an address", url, || operator.read("ui"));
    let (address, token) = url.split_once("/#t=").expect("a token");
    let token = format!("Bearer {token}");
    let health = || {
        let headers = [("Host", address), ("Authorization", token.as_str())];
        tests::observer::ask(address, "/v1/health", &headers).ok().filter(|answer| answer.code == 200)
    };
    wait::until("an operator sees the fleet", health, || operator.read("ui"));
    ui.kill();
    // An operator that was enrolled for less is told at once.
    as_root(&etcd, &["role", "revoke-permission", "orchestrate-operator", "--prefix=true", "/orchestrate/"]);
    as_root(&etcd, &["role", "grant-permission", "orchestrate-operator", "readwrite", "/orchestrate/store"]);
    let denied = operator.command(&["ui"], "");
    assert!(denied.code == 2 && denied.err.contains("permission denied for alice"), "{denied:?}");
}

#[test]
fn a_revoked_permission_is_named_with_its_user_and_local_work_goes_on() {
    let etcd = with_users();
    let host = Host::new("h1", &[]);
    host.write("password", "canary-7741");
    let settings = format!(
        "[store]\nbackstop = \"1s\"\nendpoints = {:?}\nuser = \"agent\"\npassword_file = {:?}\n",
        etcd.endpoints(),
        host.path("password")
    );
    let mut host = host.with(&settings);
    host.start();
    as_root(&etcd, &["put", "/current_version", "1"]);
    wait::until("installed", || (host.read("current_version") == "1").then_some(()), || host.describe());
    as_root(&etcd, &["role", "revoke-permission", "agent", "--prefix=true", "/"]);
    as_root(&etcd, &["role", "grant-permission", "agent", "--prefix=true", "read", "/"]);
    host.write("code-check", "1\n");
    let result = || host.read("agent.log").contains("permission denied for agent").then_some(());
    wait::until("the refusal is named", result, || host.describe());
    let before = host.runs("check", "1");
    wait::until(
        "validation goes on",
        || (host.runs("check", "1") > before + 1).then_some(()),
        || host.describe(),
    );
    // The host cannot take its listing back, and may not revoke its lease, so it does not keep it alive.
    let listing = || as_root(&etcd, &["get", "/running_version/1/h1"]);
    let gone = || listing().trim().is_empty().then_some(());
    wait::until_within(Duration::from_secs(45), "the listing is gone with its lease", gone, || {
        host.describe()
    });
    as_root(&etcd, &["role", "grant-permission", "agent", "--prefix=true", "readwrite", "/"]);
    let failed = || as_root(&etcd, &["get", "/status/validation/failed/h1"]).contains("code").then_some(());
    wait::until_within(std::time::Duration::from_secs(60), "it is told afterwards", failed, || {
        host.describe()
    });
}

#[test]
fn values_that_may_not_be_read_leave_their_file_waiting_and_the_catalog_goes_on() {
    let etcd = with_users();
    as_root(&etcd, &["role", "revoke-permission", "agent", "--prefix=true", "/"]);
    // The agent may access everything except the values of operators.
    for (from, end) in [("/", "/orchestrate/config/"), ("/orchestrate/config0", "0")] {
        as_root(&etcd, &["role", "grant-permission", "agent", "readwrite", from, end]);
    }
    let host = Host::new("h1", &[]);
    host.write("password", "canary-7741");
    host.write("motd.j2", "{{ key(\"motd\", default=\"none\") }}\n");
    let settings = format!(
        "[store]\nbackstop = \"1s\"\nendpoints = {:?}\nuser = \"agent\"\npassword_file = {:?}\n\
         [[template]]\nsource = {:?}\ntarget = {:?}\n",
        etcd.endpoints(),
        host.path("password"),
        host.path("motd.j2"),
        host.path("motd"),
    );
    let mut host = host.with(&settings);
    host.start();
    let target = host.path("motd").display().to_string();
    let waits = |s: &serde_json::Value| {
        s["templates"][&target]["trouble"]
            .as_str()
            .is_some_and(|problem| problem.contains("/orchestrate/config/"))
    };
    wait::until("the file waits", || host.status().filter(waits), || host.describe());
    for addresses in [&["10.4.0.1"][..], &["10.4.0.1", "10.4.0.2"]] {
        let newest = addresses.last().expect("one");
        let record = format!(r#"{{"addresses": ["{newest}"]}}"#);
        as_root(&etcd, &["put", &format!("/available_services/web/a{}", addresses.len()), &record]);
        host.wait_for_name(&["web.service.consul"], addresses);
    }
    let connected = host.status().expect("status")["catalog"]["connected"].clone();
    assert_eq!(connected, true, "{}", host.describe());
    assert!(!host.path("motd").exists());
}
