//! What the user of one stolen host can do in a store with users, as docs/security.md says it. The etcd of the
//! distribution has none of the fixes that the manual names, so this shows what they are for.

use crate::alerts::has;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::process::Command;
use tests::etcd::Etcd;
use tests::host::Host;
use tests::process::{Running, free_ports};
use tests::wait;

const MANUAL: &str = include_str!("../../docs/security.md");

fn base64(text: &str) -> String {
    STANDARD.encode(text)
}

/// A user of the store who asks over etcd's JSON gateway, without any program of this workspace.
struct User {
    agent: ureq::Agent,
    base: String,
    token: String,
}

impl User {
    fn new(etcd: &Etcd, name: &str) -> Self {
        let config = ureq::Agent::config_builder().http_status_as_error(false).build();
        let agent = ureq::Agent::new_with_config(config);
        let mut user = Self { agent, base: format!("{}/v3", etcd.endpoint(0)), token: String::new() };
        let answer = user.ask("auth/authenticate", &json!({ "name": name, "password": name }));
        user.token = answer["token"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
        user
    }

    fn ask(&self, path: &str, request: &Value) -> Value {
        let mut post = self.agent.post(format!("{}/{path}", self.base));
        if !self.token.is_empty() {
            post = post.header("Authorization", &self.token);
        }
        let mut answer = post.send(request.to_string()).expect("an answer");
        let text = answer.body_mut().read_to_string().expect("text");
        // A stream answers by one line of JSON for each message.
        serde_json::from_str(text.lines().next().unwrap_or_default())
            .unwrap_or_else(|e| panic!("{e}: {text}"))
    }

    fn may(&self, path: &str, request: &Value) -> bool {
        let answer = self.ask(path, request);
        assert!(
            answer.get("error").is_none() || answer.to_string().contains("permission denied"),
            "{path}: {answer}"
        );
        answer.get("error").is_none()
    }

    fn may_put(&self, key: &str) -> bool {
        self.may("kv/put", &json!({ "key": base64(key), "value": base64("x") }))
    }

    fn may_delete(&self, key: &str) -> bool {
        self.may("kv/deleterange", &json!({ "key": base64(key) }))
    }

    fn alarm(&self, action: &str) -> bool {
        self.may("maintenance/alarm", &json!({ "action": action, "alarm": "NOSPACE" }))
    }
}

/// Starts an etcd whose users are those that the manual enrolls, each with its name as its password.
fn with_users(etcd: &Etcd) {
    let etcdctl = |arguments: &[&str]| etcd.etcdctl(arguments, "");
    for name in ["root", "h1", "ops", "look"] {
        etcdctl(&["user", "add", &format!("{name}:{name}")]);
    }
    etcdctl(&["user", "grant-role", "root", "root"]);
    for arguments in
        [&["h1", "--service", "web"][..], &["ops", "--as", "operator"], &["look", "--as", "verifier"]]
    {
        let printed =
            Host::new("h1", &[]).command(&[&["enroll"], arguments, &["--print-etcdctl"]].concat(), "");
        let mut shell = Command::new("sh");
        shell.args(["-c", &printed.out]).env("ETCDCTL_ENDPOINTS", etcd.endpoint(0)).env("ETCDCTL_API", "3");
        let output = shell.output().expect("sh");
        assert!(output.status.success(), "{output:?}");
    }
    etcdctl(&["auth", "enable"]);
}

#[test]
fn one_stolen_host_can_do_what_the_manual_says() {
    let etcd = Etcd::single_real();
    with_users(&etcd);
    let [h1, ops, look] = ["h1", "ops", "look"].map(|name| User::new(&etcd, name));
    let version =
        look.ask("maintenance/status", &json!({}))["version"].as_str().unwrap_or_default().to_owned();
    if !version.starts_with("3.4.2") {
        tests::skip("stolen_host::one_stolen_host_can_do_what_the_manual_says", &format!("etcd {version}"));
        return;
    }
    let lease = ops.ask("lease/grant", &json!({ "TTL": 60 }))["ID"].as_str().expect("a lease").to_owned();
    let live = json!({ "key": base64("/orchestrate/live/h2"), "value": base64("x"), "lease": lease });
    assert!(ops.may("kv/put", &live));
    let row =
        |what: &str| assert!(MANUAL.contains(&format!("| {what} | ")), "the manual has no row {what:?}");

    row("write its own keys, the listings, claims, queues and records of rollouts");
    for key in ["/orchestrate/hosts/h1", "/running_version/1/h2", "/orchestrate/claims/fleet/0"] {
        assert!(h1.may_put(key), "{key}");
    }
    row("write a key of another host, a freeze or the desired version");
    for key in ["/orchestrate/announced/h2", "/orchestrate/freezes/fleet/x", "/current_version"] {
        assert!(!h1.may_put(key) && !h1.may_delete(key), "{key}");
    }
    row("end the lease of another host");
    assert!(!h1.may("lease/revoke", &json!({ "ID": lease })));
    row("keep the lease of a dead host or of a freeze alive");
    let kept = h1.ask("lease/keepalive", &json!({ "ID": lease }));
    assert_eq!(kept["result"]["TTL"], "60", "{kept}");
    row("compact the history");
    assert!(h1.may("kv/compaction", &json!({ "revision": "2" })));
    row("write any key by a transaction within a transaction");
    let put = json!({ "requestPut": { "key": base64("/current_version"), "value": base64("2") } });
    let within = |operation: &Value| json!({ "success": [{ "requestTxn": { "success": [operation] } }] });
    assert!(h1.may("kv/txn", &within(&put)));
    // So nothing that another host, or an operator, renews would be better than a lease.
    let own = json!({ "requestPut": { "key": base64("/orchestrate/announced/h2"), "value": base64("1"), "lease": lease } });
    assert!(h1.may("kv/txn", &within(&own)), "what only h2 may write");
    row("raise and clear alarms, so that the store accepts no writes");
    // Who only reads may do it too, and so may whoever has a certificate.
    assert!(
        look.alarm("ACTIVATE")
            && !ops.ask("kv/put", &json!({ "key": base64("/current_version") }))["error"].is_null()
    );
    row("delete any key, end any lease and switch the users off while the store is full");
    assert!(h1.may_delete("/current_version") && h1.may("lease/revoke", &json!({ "ID": lease })));
    assert!(h1.alarm("DEACTIVATE") && !h1.may_delete("/current_version") && h1.alarm("ACTIVATE"));
    assert!(h1.may("auth/disable", &json!({})));
}

/// Writes the filter of the manual for this store to `nginx.conf`, and returns its port.
pub(crate) fn filter(directory: &std::path::Path, etcd: &Etcd) -> u16 {
    let begin = MANUAL.find("```nginx\n").expect("the filter") + "```nginx\n".len();
    let server = MANUAL[begin..].split("```").next().expect("its end");
    let [port] = free_ports();
    let store = etcd.endpoint(0).replace("http://", "");
    let server = server.replace("grpcs://127.0.0.1:2378", &format!("grpc://{store}"));
    let is_tls =
        |line: &&str| !line.trim_start().starts_with("ssl_") && !line.trim_start().starts_with("grpc_ssl_");
    let server: Vec<&str> = server.lines().filter(is_tls).collect();
    let server =
        server.join("\n").replace("listen 2379 ssl http2", &format!("listen 127.0.0.1:{port} http2"));
    let paths: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {}/{name};\n", directory.display()))
        .concat();
    let at = directory.display();
    let text = format!(
        "daemon off;\npid {at}/pid;\nerror_log {at}/errors;\nevents {{}}\nhttp {{\naccess_log off;\n{paths}{server}\n}}\n"
    );
    std::fs::write(directory.join("nginx.conf"), text).expect("written");
    port
}

#[test]
fn a_filter_in_front_of_the_store_takes_the_dangerous_calls_away_and_agents_work_through_it() {
    if !has("stolen_host::a_filter_in_front_of_the_store", "nginx") {
        return;
    }
    let etcd = Etcd::single_real();
    let store = etcd.store();
    let directory = tempfile::tempdir().expect("a directory");
    let port = filter(directory.path(), &etcd);
    let mut command = Command::new("nginx");
    command.arg("-c").arg(directory.path().join("nginx.conf"));
    let _nginx = Running::start(&mut command, &directory.path().join("log"));
    let through = format!("http://127.0.0.1:{port}");
    let etcdctl = |arguments: &[&str]| {
        let mut command = Command::new("etcdctl");
        let output =
            command.args(arguments).env("ETCDCTL_API", "3").env("ETCDCTL_ENDPOINTS", &through).output();
        let output = output.expect("etcdctl");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), text)
    };
    let listens = || etcdctl(&["get", "/"]).0.then_some(());
    wait::until("the filter listens", listens, || {
        std::fs::read_to_string(directory.path().join("log")).unwrap_or_default()
    });
    let mut host = Host::new("h1", std::slice::from_ref(&through));
    host.write_switched_service("web", 80);
    host.write("web-works", "");
    host.start();
    store.put("/current_version", "1");
    host.wait_for_listing(&store, "1");
    host.wait_for_name(&["web.service.consul"], &["127.0.0.1"]);
    let settled = || (host.command(&["status"], "").code == 0).then_some(());
    wait::until("the command asks through it", settled, || host.describe());
    for call in [
        &["alarm", "list"][..],
        &["alarm", "disarm"],
        &["compact", "2"],
        &["auth", "disable"],
        &["user", "list"],
        &["member", "add", "x", "--peer-urls=http://127.0.0.1:1"],
    ] {
        let (done, result) = etcdctl(call);
        assert!(!done && result.contains("PermissionDenied"), "{call:?}: {result}");
    }
}
