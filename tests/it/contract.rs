//! The contract of the command line as a table: the output and exit code of every verb, with an
//! empty, a filled, an unreachable and a slow store.
//!
//! A row is one invocation on its own host: arguments, standard input and the host's files, and the
//! expected standard output, exit code and store entries. Every row also checks that the command
//! does not panic and takes at most its time-out plus one second.

use etcd_client::{DeleteOptions, Txn, TxnOp};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tests::etcd::Etcd;
use tests::host::CommandOutput;
use tests::process::{binary, run};
use tests::proxy::{Behaviour, Proxy};
use tests::store::Store;
use tests::wait;

/// Time-out that is sufficient for every answer.
const AMPLE: Duration = Duration::from_secs(20);
/// Time-out for commands that get no answer.
const SHORT: Duration = Duration::from_millis(400);
/// Time that a command may take beyond its time-out.
const MARGIN: Duration = Duration::from_secs(1);

// -------------------------------------------------------------------------------------------------
// Rows
// -------------------------------------------------------------------------------------------------

/// One invocation and its expected results.
#[derive(Clone)]
struct Row {
    name: &'static str,
    arguments: Vec<String>,
    input: String,
    environment: Vec<(&'static str, String)>,
    installed: Option<&'static str>,
    remembered: Option<&'static str>,
    code: i32,
    out: Out,
    err: Vec<&'static str>,
    stands: Vec<(&'static str, Stands)>,
}

/// Expected standard output.
#[derive(Clone)]
enum Out {
    Exactly(String),
    Contains(&'static str),
    /// This JSON value; a number in the field `revision` counts as "any".
    Json(Value),
    /// Any JSON value that follows the rules for all verbs.
    AnyJson,
}

/// Expected value of a key.
#[derive(Clone)]
enum Stands {
    Text(&'static str),
    Something,
    Nothing,
}

fn row(name: &'static str, line: &str, code: i32, out: &str) -> Row {
    Row {
        name,
        arguments: line.split_whitespace().map(str::to_owned).collect(),
        input: String::new(),
        environment: Vec::new(),
        installed: None,
        remembered: None,
        code,
        out: Out::Exactly(out.to_owned()),
        err: Vec::new(),
        stands: Vec::new(),
    }
}

impl Row {
    /// Adds one argument without splitting it.
    fn argument(mut self, text: &str) -> Self {
        self.arguments.push(text.to_owned());
        self
    }

    fn input(mut self, text: &str) -> Self {
        text.clone_into(&mut self.input);
        self
    }

    fn with(mut self, variable: &'static str, value: &str) -> Self {
        self.environment.push((variable, value.to_owned()));
        self
    }

    fn first_generation(self) -> Self {
        self.with("ORCHESTRATE_FLAVOUR", "etcd")
    }

    /// Sets the version in the host's version file.
    fn installed(mut self, text: &'static str) -> Self {
        self.installed = Some(text);
        self
    }

    /// Sets the desired version that a command on the host read earlier.
    fn remembered(mut self, text: &'static str) -> Self {
        self.remembered = Some(text);
        self
    }

    fn contains(mut self, part: &'static str) -> Self {
        self.out = Out::Contains(part);
        self
    }

    fn json(mut self, value: Value) -> Self {
        self.out = Out::Json(value);
        self
    }

    fn any_json(mut self) -> Self {
        self.out = Out::AnyJson;
        self
    }

    /// Adds an expected part of standard error.
    fn says(mut self, part: &'static str) -> Self {
        self.err.push(part);
        self
    }

    fn stands(mut self, key: &'static str, value: &'static str) -> Self {
        self.stands.push((key, Stands::Text(value)));
        self
    }

    fn something_stands(mut self, key: &'static str) -> Self {
        self.stands.push((key, Stands::Something));
        self
    }

    fn gone(mut self, key: &'static str) -> Self {
        self.stands.push((key, Stands::Nothing));
        self
    }

    fn verb(&self) -> &str {
        self.arguments.iter().find(|a| !a.starts_with('-')).expect("a verb")
    }
}

/// The store and the services with which rows run.
struct World {
    endpoint: String,
    /// Endpoint of a discovery service, for the one verb that uses one.
    discovery: String,
    timeout: Duration,
}

/// Name of the host of every row.
const HERE: &str = "web-1";

impl World {
    fn new(endpoint: &str) -> Self {
        Self { endpoint: endpoint.to_owned(), discovery: NOWHERE.to_owned(), timeout: AMPLE }
    }

    fn within(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    fn command(&self, directory: &std::path::Path) -> Command {
        let mut command = Command::new(binary("orchestrate"));
        command
            .env_clear()
            .env("ORCHESTRATE_ENDPOINTS", &self.endpoint)
            .env("ORCHESTRATE_HOSTNAME", HERE)
            .env("ORCHESTRATE_STATE_DIR", directory.join("state"))
            .env("ORCHESTRATE_LOCAL_VERSION_FILE", directory.join("current_version"))
            .env("ORCHESTRATE_TIMEOUT", format!("{}ms", self.timeout.as_millis()));
        command
    }
}

const NOWHERE: &str = "http://127.0.0.1:1";

/// Runs a row and checks all of its expectations. Returns the differences as text, so that a table
/// shows all of them.
fn check(world: &World, store: Option<&Store>, row: &Row) -> Result<(), String> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    std::fs::create_dir(path("state")).expect("made");
    for (file, text) in [("current_version", row.installed), ("state/current_version", row.remembered)] {
        if let Some(text) = text {
            std::fs::write(path(file), text).expect("written");
        }
    }
    let mut command = world.command(directory.path());
    for argument in &row.arguments {
        command.arg(
            argument
                .replace("@DISCOVERY", &world.discovery)
                .replace("@HOST", &path("").display().to_string()),
        );
    }
    command.envs(
        row.environment
            .iter()
            .map(|(name, value)| (name, value.replace("@HOST", &path("").display().to_string()))),
    );
    let before = Instant::now();
    let result: CommandOutput = run(&mut command, &row.input).into();
    let took = before.elapsed();
    let mut wrong = Vec::new();
    if result.code != row.code {
        wrong.push(format!("ended with {}, not {}", result.code, row.code));
    }
    match &row.out {
        Out::Exactly(text) if result.out != *text => wrong.push(format!("wanted on stdout:\n{text}")),
        Out::Contains(part) if !result.out.contains(part) => wrong.push(format!("stdout lacks {part:?}")),
        Out::Json(wanted) => wrong.extend(wrong_json(&result.out).or_else(|| differs(&result.out, wanted))),
        Out::AnyJson => wrong.extend(wrong_json(&result.out)),
        _ => {}
    }
    wrong.extend(row.err.iter().filter(|p| !result.err.contains(**p)).map(|p| format!("stderr lacks {p:?}")));
    if result.err.contains("panicked") {
        wrong.push("it panicked".into());
    }
    if result.out.chars().any(|c| c.is_control() && c != '\n') {
        wrong.push("control characters on stdout".into());
    }
    if took > world.timeout + MARGIN {
        wrong.push(format!("it took {took:?} with a time-out of {:?}", world.timeout));
    }
    for (key, stands) in &row.stands {
        let found = store.expect("a store to look into").get(key);
        let fine = match (stands, &found) {
            (Stands::Text(text), Some(found)) => found == text,
            (Stands::Something, Some(_)) | (Stands::Nothing, None) => true,
            _ => false,
        };
        if !fine {
            wrong.push(format!("under {key} stands {found:?}"));
        }
    }
    if wrong.is_empty() {
        return Ok(());
    }
    Err(format!(
        "== {}: orchestrate {}\n{}\n-- exit {} stdout\n{}-- stderr\n{}",
        row.name,
        row.arguments.join(" "),
        wrong.join("\n"),
        result.code,
        result.out,
        result.err
    ))
}

/// Runs a table, four rows at a time, because most rows wait.
fn check_all(world: &World, rows: &[Row]) {
    let left = Mutex::new(rows.iter());
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let Some(row) = left.lock().expect("not poisoned").next() else { return };
                    if let Err(text) = check(world, None, row) {
                        wrong.lock().expect("not poisoned").push(text);
                    }
                }
            });
        }
    });
    report(&wrong.into_inner().expect("not poisoned"));
}

/// Runs rows that write, each on a store that was cleared and filled again.
fn check_writes(world: &World, store: &Store, facts: &[(&str, &str)], rows: &[Row]) {
    let mut wrong = Vec::new();
    for row in rows {
        clear(store);
        fill(store, facts);
        wrong.extend(check(world, Some(store), row).err());
    }
    report(&wrong);
}

fn report(wrong: &[String]) {
    assert!(wrong.is_empty(), "{} rows are wrong\n{}", wrong.len(), wrong.join("\n"));
}

// -------------------------------------------------------------------------------------------------
// JSON
// -------------------------------------------------------------------------------------------------

/// Fields that are lists, or the number of entries of the list with that name.
const LISTS: [&str; 18] = [
    "alarms",
    "failing",
    "failures",
    "hosts",
    "lines",
    "listed_under",
    "members",
    "missing",
    "not_ok",
    "plan",
    "statuses",
    "unaccounted",
    "unconfirmed",
    "unpublished",
    "unwanted",
    "versions",
    "warnings",
    "labels",
];
const TIMES: [&str; 5] = ["at", "decommissioned", "last_report", "reported_at", "since"];

/// Returns a violation of the rules for all printed JSON.
fn wrong_json(text: &str) -> Option<String> {
    match serde_json::from_str::<Value>(text) {
        Ok(value) if value.is_object() => wrong_in(&value),
        Ok(_) => Some("not an object".into()),
        Err(error) => Some(format!("not one JSON value: {error}")),
    }
}

fn wrong_in(value: &Value) -> Option<String> {
    match value {
        Value::Array(items) => items.iter().find_map(wrong_in),
        Value::Object(fields) => fields.iter().find_map(|(name, value)| {
            let snake = name.starts_with(|c: char| c.is_ascii_lowercase())
                && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
            if !snake {
                return Some(format!("{name:?} is not lower_snake"));
            }
            if LISTS.contains(&name.as_str()) && value.is_null() {
                return Some(format!("{name:?} is null"));
            }
            if TIMES.contains(&name.as_str()) && !value.is_null() && !value.as_str().is_some_and(is_rfc3339) {
                return Some(format!("{name:?} is no time: {value}"));
            }
            wrong_in(value)
        }),
        _ => None,
    }
}

fn is_rfc3339(text: &str) -> bool {
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    shape == "0000-00-00T00:00:00Z"
}

fn differs(text: &str, wanted: &Value) -> Option<String> {
    let mut found: Value = serde_json::from_str(text).expect("checked");
    // Only the presence of a revision is compared, not its value.
    if let Some(revision) = found.get_mut("revision").filter(|revision| revision.is_i64()) {
        *revision = json!("any");
    }
    (found != *wanted).then(|| format!("wanted {wanted:#}"))
}

// -------------------------------------------------------------------------------------------------
// The store
// -------------------------------------------------------------------------------------------------

/// The entries of a fleet with one of everything: from old tools (bare text) and from new ones
/// (JSON).
const FLEET: [(&str, &str); 21] = [
    // The value that `echo 43 | etcdctl put` writes.
    ("/current_version", "43\n"),
    ("/running_version/43/web-1", "1416300000"),
    ("/running_version/43/web-2", "1416300000.25"),
    ("/running_version/42/db-1", "1416300000"),
    ("/status/puppet/success/web-1", "1416300000"),
    ("/status/puppet/failed/db-1", "1416300000.25"),
    ("/status/puppet/pending/db-2", "1416300000\n"),
    (
        "/status/validation/success/web-1",
        r#"{"format":1,"at":1416300000,"version":"43","code":0,"reason":""}"#,
    ),
    (
        "/status/validation/failed/web-2",
        r#"{"format":1,"at":1416300000,"version":"43","code":1,"reason":"http does not answer"}"#,
    ),
    ("/status/provisioned/success/web-1", r#"{"format":1,"at":1416300000,"a_later_field":[1]}"#),
    ("/orchestrate/store", r#"{"format":1,"lineage":"abc","epoch":3}"#),
    (
        "/orchestrate/hosts/web-1",
        r#"{"format":1,"role":"web","group":"front","labels":{"rack":"r1"},"since":1416300000}"#,
    ),
    ("/orchestrate/hosts/web-2", r#"{"format":1,"role":"web","since":1416300000}"#),
    ("/orchestrate/hosts/db-1", r#"{"since":1416300000}"#),
    ("/orchestrate/hosts/lost-1", r#"{"format":1,"since":1416300000}"#),
    ("/orchestrate/hosts/gone-1", r#"{"format":1,"since":1416300000,"decommissioned":1416300060}"#),
    ("/orchestrate/announced/db-1", "42"),
    ("/orchestrate/reporting/validation/db-1", "1416300000"),
    ("/orchestrate/reporting/validation/web-1", "1416300000"),
    (
        "/orchestrate/reports/lost-1",
        r#"{"format":1,"at":1416300000,"write_id":"w1","phase":"apply","verdict":{"verdict":"running","version":"43"},
            "target":{"version":"43","revision":2},"installed":"42",
            "plan":{"phase":"apply","actions":[],"because":{"reason":"attempt_under_way"}},
            "store":{"lineage":"abc","epoch":3},"log":["apply: first","apply: second"]}"#,
    ),
    ("/elsewhere/than/ours", "nothing to us"),
];

/// Writes the entries; up to 128 of them are one transaction, so that all keys have the same
/// revision.
fn fill(store: &Store, facts: &[(&str, &str)]) {
    fill_bytes(store, facts.iter().map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec())));
}

fn fill_bytes(store: &Store, facts: impl Iterator<Item = (Vec<u8>, Vec<u8>)>) {
    let (runtime, mut client) = store.parts();
    let puts: Vec<TxnOp> = facts.map(|(key, value)| TxnOp::put(key, value, None)).collect();
    for some in puts.chunks(128) {
        runtime.block_on(client.txn(Txn::new().and_then(some))).expect("filled");
    }
}

fn clear(store: &Store) {
    let (runtime, mut client) = store.parts();
    let all = DeleteOptions::new().with_prefix();
    runtime.block_on(client.delete("", Some(all))).expect("cleared");
}

/// Starts a discovery service that answers every request with a new token.
fn discovery_service() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            // The buffer is large enough for the head of a GET request.
            let _ = client.read(&mut [0; 4096]);
            let body = "https://discovery.etcd.io/3e86b59982e49066c5d813af1c2e2579cbf573de\n";
            let _ = write!(
                client,
                "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
        }
    });
    format!("http://{address}")
}

/// Returns the verbs that the program's help lists.
fn verbs() -> BTreeSet<String> {
    let result: CommandOutput = run(Command::new(binary("orchestrate")).arg("--help"), "").into();
    let section = result.out.split("\nVerbs:\n").nth(1).and_then(|t| t.split("\n\n").next()).expect("verbs");
    let names = section.lines().filter(|l| l.starts_with("  ") && !l.starts_with("   "));
    names.filter_map(|l| l.split_whitespace().next()).filter(|v| *v != "help").map(str::to_owned).collect()
}

fn assert_every_verb(rows: &[&[Row]]) {
    let covered: BTreeSet<String> =
        rows.iter().flat_map(|rows| rows.iter()).map(|row| row.verb().to_owned()).collect();
    assert_eq!(covered, verbs());
}

// -------------------------------------------------------------------------------------------------
// An empty store
// -------------------------------------------------------------------------------------------------

fn reads_of_an_empty_store() -> Vec<Row> {
    vec![
        row("no desired version", "current_version", 0, "None\n"),
        row("no desired version, whatever was known once", "current_version", 0, "None\n").remembered("41"),
        row("no desired version, first generation", "current_version", 1, "").first_generation(),
        row("a member answers", "ping", 0, "Connection succesful\n"),
        row("nothing desired, nothing installed", "pending_update", 3, NEITHER),
        row("nothing desired, something installed", "pending_update", 2, NOT_READ).installed("42"),
        row("nothing desired, first generation", "pending_update", 2, NOT_READ)
            .installed("42")
            .first_generation(),
        row("looking only", "pending_update --peek", 3, NEITHER),
        row("nothing installed", "local_version", 0, "\n"),
        row("nobody runs anything", "running_versions", 0, "\n"),
        row("hosts are not there", "verify_hosts 43", 1, "")
            .input("web-1\nweb-2\n")
            .says("not at 43 (2): web-1 web-2"),
        row("hosts as arguments are not there", "verify_hosts 43 web-1", 1, ""),
        row("hosts do not come", "verify_hosts 43 web-1 --wait 300ms", 1, ""),
        row("no hosts are no yes", "verify_hosts 43", 1, "").says("no hosts given"),
        row("no version at all", "check_single_version 43", 1, ""),
        row(
            "no version at all, in words",
            "check_single_version -v 43",
            1,
            "Wanted version found: False\nUnwanted versions found: \n",
        ),
        row("nothing failed", "get_failures", 0, "Validation failures :0\nPuppet failures :0\n"),
        row("nothing failed, by host", "get_failures --hosts", 0, ""),
        row("nothing failed or pending", "get_failures --hosts --show_warnings", 0, ""),
        row("nothing failed, first generation", "get_failures --hosts", 0, "").first_generation(),
        row("nobody runs it", "hosts_at_version 43", 0, ""),
        row("nothing is known of this host", "local_health -v", 0, "").says("no result of web-1 is known"),
        row("nobody is registered", "debug_timeout 43", 0, "No Hosts registered!\n"),
        row("nobody can tell", "status", 2, "fleet: unknown\ndesired: none\nhosts: 0, not ok: 0\n")
            .says("no version has been triggered"),
        row("everybody is accounted for", "unaccounted", 0, ""),
        row("an empty roster", "hosts list", 0, ""),
        row("no such host", "why web-1", 1, "").says("web-1 is not known"),
        row("nobody waits", "why", 0, "").says("no host waits for a service"),
        row("no services", "services list", 0, ""),
        row("no such service", "services show web", 1, "").says("no host has web"),
        row("no addresses", "get_services", 0, "{}\n"),
        // The time-out is long enough for "no" on a busy machine; with less the answer is "cannot
        // tell".
        row("a service that does not come", "wait_for web --timeout 2s", 1, "")
            .says("web: 0 of 1 functional"),
        row("nothing to wait for", "wait_for web --count 0", 0, ""),
        row("no such name", "dns web.service.consul", 1, "").says("NoSuchName"),
        row("a name of others", "dns example.org", 1, "").says("Refused"),
        row("no roles", "publish_service", 0, "").with("ORCHESTRATE_PROFILE_LIST", "@HOST/none"),
        row("an empty file", "cache_services", 0, "").with("ORCHESTRATE_HIERA_FILE", "@HOST/services.yaml"),
        row("a file that cannot be written", "cache_services", 2, "")
            .with("ORCHESTRATE_HIERA_FILE", "@HOST/none/services.yaml"),
        row("nobody to work on", "maintenance on", 1, "").says("web-1 is not known"),
        row("nobody to drain", "drain --hostname db-9", 1, "").says("db-9 is not known"),
        row("lint needs no store", "lint @HOST", 0, "").says("kinds of host: 1, errors: 0"),
        row("no report", "logs web-1", 1, "").says("has not reported"),
        row("nobody to try again", "retry web-1", 1, "").says("web-1 is not known"),
        row("nobody to take out", "hosts decommission web-1", 1, "").says("web-1 is not known"),
        row("nobody to report for", "update_own_info", 0, "").says("nothing was changed"),
        row("a new token", "new_discovery_token --endpoint @DISCOVERY/", 0, TOKEN),
        row("a new token, without a slash", "new_discovery_token --endpoint @DISCOVERY", 0, TOKEN),
        row("no token without a service", "new_discovery_token", 2, "")
            .says("the public etcd discovery service is gone, and --endpoint URL names another"),
        row("no token where nobody is", "new_discovery_token --endpoint http://127.0.0.1:1", 2, "")
            .says("http://127.0.0.1:1/new: "),
        row("a store without an identity", "store show", 0, "").contains("lineage:  none\nepoch:    none\n"),
        row("a first host of a fleet", "bootstrap --directory @HOST/etc", 0, "")
            .contains("orchestrate-agent --config '")
            .says("00-bootstrap.toml: written")
            .says("nothing is triggered yet"),
        row("completion needs no store", "completion bash", 0, "").contains("complete"),
        row("a host that is enrolled", "enroll web-9 --service web --print-etcdctl", 0, "")
            .contains("grant-permission orchestrate-agent-web-9 readwrite '/orchestrate/live/web-9'"),
    ]
}

const YES: &str = "Yes, there is an update pending\n";
const NO: &str = "No updates pending\n";
const NOT_READ: &str = "Could not get current_version\n";
const NEITHER: &str = "Could not get current_version, but there's also no local version set\n";
const TOKEN: &str = "3e86b59982e49066c5d813af1c2e2579cbf573de\n";

/// Returns the rows that write to an empty store.
fn writes_to_an_empty_store() -> Vec<Row> {
    vec![
        row("retained instances are dropped", "drop-stale", 0, "")
            .something_stands("/orchestrate/release_view"),
        row("a first trigger", "trigger_update 43", 0, "").stands("/current_version", "43"),
        row("a first trigger waits for nobody", "trigger_update 43 --require-settled", 0, "")
            .stands("/current_version", "43"),
        row("a success", "update_own_status puppet 0", 0, "")
            .something_stands("/status/puppet/success/web-1")
            .something_stands("/orchestrate/reporting/puppet/web-1"),
        row("a failure", "update_own_status --hostname db-1 puppet_service 4", 0, "")
            .something_stands("/status/puppet/failed/db-1")
            .gone("/status/puppet/success/db-1"),
        row("a listing", "update_own_info", 0, "")
            .installed("42\n")
            .something_stands("/running_version/42/web-1"),
        row("a listing as told", "update_own_info --interval 60 --hostname db-1 --version 43", 0, "")
            .something_stands("/running_version/43/db-1")
            .stands("/orchestrate/announced/db-1", "43"),
        row("a host on the roster", "hosts add web-1 --role web --label rack=r1", 0, "")
            .something_stands("/orchestrate/hosts/web-1"),
        row("a store is accepted", "store accept --version 43 --lineage abc", 0, "")
            .stands("/current_version", "43")
            .stands("/orchestrate/store", r#"{"format":1,"lineage":"abc","epoch":1}"#),
        row("local_version needs no store", "local_version 43", 0, "43\n"),
    ]
}

#[test]
fn every_verb_on_an_empty_store() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let world = World { discovery: discovery_service(), ..World::new(&etcd.endpoint(0)) };
    let (reads, writes) = (reads_of_an_empty_store(), writes_to_an_empty_store());
    assert_every_verb(&[&reads, &writes]);
    check_all(&world, &reads);
    assert!(store.list("/").is_empty(), "questions write nothing");
    check_writes(&world, &store, &[], &writes);
}

// -------------------------------------------------------------------------------------------------
// A filled store
// -------------------------------------------------------------------------------------------------

const FAILURES: &str = "Failures:
  Node: db-1, Check: puppet
  Node: db-1, Check: validation (stale)
  Node: lost-1, Check: liveness
  Node: web-2, Check: validation
";

fn reads_of_a_filled_store() -> Vec<Row> {
    let with = |text: &str| format!("{FAILURES}{text}");
    vec![
        row("the desired version, without its newline", "current_version", 0, "43\n").installed("42"),
        row("the desired version, first generation", "current_version", 0, "43\n").first_generation(),
        row("a member answers", "ping", 0, "Connection succesful\n"),
        row("another version is desired", "pending_update", 0, YES).installed("42\n"),
        row("nothing is installed", "pending_update", 0, YES),
        row("the desired version is installed", "pending_update", 1, NO).installed("43\n"),
        row("the desired version, by an old tool without newline", "pending_update", 1, NO).installed("43"),
        row("looking only", "pending_update --peek", 0, YES).installed("42"),
        row("the installed version, stripped", "local_version", 0, "42\n").installed(" 42 \n"),
        row("each version once", "running_versions", 0, "42\n43\n"),
        row("all there", "verify_hosts 43", 0, "").input("web-1\nweb-2\n"),
        row("all there, as sent from elsewhere", "verify_hosts 43", 0, "")
            .input("\n  web-1\r\nweb-2\n web-1\n\n"),
        row("all there, as arguments", "verify_hosts 43 web-2 web-1", 0, ""),
        row("all there at once", "verify_hosts --wait 10s 43", 0, "").input("web-1"),
        row("arguments win over standard input", "verify_hosts 43 web-1", 0, "").input("db-1\n"),
        row("one is elsewhere", "verify_hosts 43", 1, "").input("web-1\ndb-1\n").says("not at 43 (1): db-1"),
        row("one stays elsewhere", "verify_hosts --wait 300ms 43 db-1", 1, "").says("not at 43 (1): db-1"),
        row("a part of a name is no name", "verify_hosts 43", 1, "").input("web\n"),
        row("a part of a version is no version", "verify_hosts 4 web-1", 1, ""),
        row("no hosts", "verify_hosts 43", 1, "").input(" \n\n\t\n").says("no hosts given"),
        row("a line that is no host", "verify_hosts 43", 1, "").input("web-1\nweb_2\n").says("\"web_2\""),
        row("a line that would steer a terminal", "verify_hosts 43", 1, "")
            .input("web-1\n\u{1b}[2J\n")
            .says("u{1b}"),
        row("two versions run", "check_single_version 43", 1, ""),
        row(
            "two versions run, in words",
            "check_single_version -v 43",
            1,
            "Wanted version found: True\nUnwanted versions found: 42\n",
        ),
        row(
            "neither is wanted",
            "check_single_version --verbose 44",
            1,
            "Wanted version found: False\nUnwanted versions found: 42, 43\n",
        ),
        row("counts of failures", "get_failures", 1, "Validation failures :1\nPuppet failures :1\n")
            .says("validation (stale) (1): db-1")
            .says("liveness (1): lost-1"),
        row("counts, first generation", "get_failures", 1, "Validation failures :1\nPuppet failures :1\n")
            .first_generation(),
        row("failures by host", "get_failures --hosts", 1, FAILURES),
        row(
            "with what is pending",
            "get_failures --hosts --show_warnings",
            1,
            &with("Warnings:\n  Node: db-2, Check: puppet\n"),
        ),
        row(
            "failures by host, first generation",
            "get_failures --hosts",
            1,
            "Validation failure:web-2\nPuppet failure:db-1\n",
        )
        .first_generation(),
        row("hosts of a version", "hosts_at_version 43", 0, "web-1\nweb-2\n"),
        row("hosts of a version that nobody runs", "hosts_at_version 4", 0, ""),
        row("this host is healthy", "local_health -v", 0, ""),
        row("a result failed", "local_health", 1, "").with("ORCHESTRATE_HOSTNAME", "web-2"),
        row("a result failed, in words", "local_health -v", 1, "validation: http does not answer\n")
            .with("ORCHESTRATE_HOSTNAME", "web-2"),
        row("a result failed, by an old tool", "local_health --verbose", 1, "puppet: failed\n")
            .with("ORCHESTRATE_HOSTNAME", "db-1"),
        row("pending is no failure", "local_health -v", 0, "").with("ORCHESTRATE_HOSTNAME", "db-2"),
        row(
            "what may explain it",
            "debug_timeout 43",
            0,
            &with("Registered hosts in consul with key name Running_Versions are:\n   web-1\n   web-2\n"),
        ),
        row("what may explain that nobody runs it", "debug_timeout 44", 0, &with("No Hosts registered!\n")),
        row(
            "the files of this machine are no part of the answer's code",
            "debug_timeout 44 --debug_hosts",
            0,
            "",
        )
        .contains("No Hosts registered!\n"),
        row("the fleet", "status", 1, FLEET_STATUS),
        row(
            "nobody knows of one",
            "unaccounted",
            1,
            "HOST    HOW   REASON                                   LAST REPORT
lost-1  lost  neither live nor listed under a version  2014-11-18T08:40:00Z
",
        ),
        row("the roster", "hosts list", 0, ROSTER),
        row("the roster with tombstones", "hosts list --all", 0, "")
            .contains("gone-1  -     -      -        2014-11-18T08:40:00Z  decommissioned\n"),
        row("why a host is ok", "why web-1", 0, "").contains("verdict:      ok\n"),
        row("why a host failed", "why web-2", 0, "")
            .contains("because:      validation failed with code 1: http does not answer\n"),
        row("why a host failed, by an old tool", "why db-1", 0, "").contains("because:      puppet failed\n"),
        row("why a host waits", "why db-2", 0, "").contains("because:      puppet said \"not yet\"\n"),
        row("why a lost host is lost", "why lost-1", 0, "")
            .contains("verdict:      lost\nbecause:      neither live nor listed under a version\n"),
        row("why a host is none any more", "why gone-1", 1, "").says("decommissioned"),
        row("no such host", "why nobody", 1, "").says("nobody is not known"),
        row("nobody waits for a service", "why", 0, ""),
        row("no services", "services list", 0, ""),
        row("no addresses", "get_services", 0, "{}\n"),
        row("no such service", "services show mysql", 1, ""),
        // The time-out is long enough for "no" on a busy machine; with less the answer is "cannot
        // tell".
        row("a service that does not come", "wait_for mysql --timeout 2s", 1, ""),
        row("no such name", "dns web-1.node.consul", 1, ""),
        row("no roles", "publish_service", 0, "").with("ORCHESTRATE_PROFILE_LIST", "@HOST/none"),
        row("an empty file", "cache_services", 0, "").with("ORCHESTRATE_HIERA_FILE", "@HOST/services.yaml"),
        row("lint needs no store", "lint @HOST", 0, ""),
        row("the last lines of a host that is gone", "logs lost-1", 0, "apply: first\napply: second\n"),
        row("no report", "logs web-1", 1, ""),
        row("a new token", "new_discovery_token --endpoint @DISCOVERY/", 0, TOKEN),
        row("the store", "store show", 0, "").contains("lineage:  abc\nepoch:    3\n"),
        row("a host that joins", "bootstrap --directory @HOST/etc --hostname web-9 --role web", 0, "")
            .contains("/etc/agent.toml'")
            .says("the fleet shall run 43"),
        row("completion needs no store", "completion fish", 0, "").contains("complete"),
        row("an operator", "enroll alice --as operator --print-etcdctl", 0, "")
            .contains("grant-permission orchestrate-operator readwrite '/current_version'"),
    ]
}

const FLEET_STATUS: &str = "fleet: failing
desired: 43 (revision 2)
hosts: 5, not ok: 4

VERSION  HOSTS
42       1
43       2

HOST    VERDICT  REASON
db-1    failed   puppet failed
db-2    waiting  puppet said \"not yet\"
lost-1  lost     neither live nor listed under a version
web-2   failed   validation failed with code 1: http does not answer

UNACCOUNTED  HOW
lost-1       lost
";

const ROSTER: &str = "HOST    ROLE  GROUP  LABELS   SINCE                 STATE
db-1    -     -      -        2014-11-18T08:40:00Z  no agent
lost-1  -     -      -        2014-11-18T08:40:00Z  no agent
web-1   web   front  rack=r1  2014-11-18T08:40:00Z  no agent
web-2   web   -      -        2014-11-18T08:40:00Z  no agent
";

/// Returns the rows that write to a filled store.
fn writes_to_a_filled_store() -> Vec<Row> {
    vec![
        row("a host is worked on", "maintenance on --reason disk", 0, "")
            .something_stands("/orchestrate/maintenance/web-1"),
        row("a host was not worked on", "maintenance off", 0, "").gone("/orchestrate/maintenance/web-1"),
        row("a service takes nothing new", "drain web --hostname web-2", 0, "")
            .something_stands("/orchestrate/maintenance/web-2"),
        row("retained instances are dropped", "drop-stale", 0, "").something_stands("/orchestrate/release_view"),
        row("the next version", "trigger_update 44", 0, "").stands("/current_version", "44").says("4 of 5 hosts were unsettled"),
        row("the same version again", "trigger_update 43", 0, "").stands("/current_version", "43"),
        row("not while others are on their way", "trigger_update --require-settled 44", 3, "")
            .stands("/current_version", "43\n")
            .says("unsettled (4): db-1 db-2 lost-1 web-2"),
        row("a failure replaces a success", "update_own_status puppet 6", 0, "")
            .something_stands("/status/puppet/failed/web-1")
            .gone("/status/puppet/success/web-1"),
        row("a success replaces a failure", "update_own_status --hostname db-1 puppet_service 2", 0, "")
            .something_stands("/status/puppet/success/db-1")
            .gone("/status/puppet/failed/db-1"),
        row("not yet", "update_own_status puppet -1", 0, "")
            .something_stands("/status/puppet/pending/web-1")
            .gone("/status/puppet/success/web-1"),
        row("an odd code of the old tool is a success", "update_own_status puppet 255", 0, "")
            .something_stands("/status/puppet/success/web-1"),
        row("any code but 0 fails a validation", "update_own_status validation_service -1", 0, "")
            .something_stands("/status/validation/failed/web-1")
            .gone("/status/validation/success/web-1"),
        row("a success leaves a trace", "update_own_status --hostname web-2 validation 0", 0, "")
            .something_stands("/status/validation/success/web-2")
            .something_stands("/orchestrate/reporting/validation/web-2")
            .gone("/status/validation/failed/web-2"),
        row("the old listing goes", "update_own_info --hostname db-1 --version 43", 0, "")
            .something_stands("/running_version/43/db-1")
            .gone("/running_version/42/db-1")
            .something_stands("/running_version/43/web-1"),
        row("the old listing of an old tool goes", "update_own_info", 0, "")
            .installed("44")
            .something_stands("/running_version/44/web-1")
            .gone("/running_version/43/web-1"),
        row("a file that holds no version is not announced", "update_own_info", 2, "")
            .installed("4 4")
            .something_stands("/running_version/43/web-1"),
        row("a host tries again", "retry web-1", 0, "").something_stands("/orchestrate/retry/web-1").says("no agent lives"),
        row("a host without an entry is not known", "retry db-2", 1, "").gone("/orchestrate/retry/db-2"),
        row("what is not said stays", "hosts add web-1 --label zone=a", 0, "").stands(
            "/orchestrate/hosts/web-1",
            r#"{"format":1,"role":"web","group":"front","labels":{"rack":"r1","zone":"a"},"since":1416300000}"#,
        ),
        row("a host is taken out with all it wrote", "hosts decommission db-1", 0, "")
            .something_stands("/orchestrate/hosts/db-1")
            .gone("/running_version/42/db-1")
            .gone("/status/puppet/failed/db-1")
            .gone("/orchestrate/announced/db-1")
            .gone("/orchestrate/reporting/validation/db-1")
            .something_stands("/running_version/43/web-1"),
        row("a store is accepted", "store accept --version 44", 0, "")
            .stands("/current_version", "44")
            .stands("/orchestrate/store", r#"{"format":1,"lineage":"abc","epoch":4}"#),
        row("another fleet's store is not", "store accept --version 44 --lineage other", 3, "")
            .stands("/current_version", "43\n")
            .stands("/orchestrate/store", r#"{"format":1,"lineage":"abc","epoch":3}"#),
        row("local_version writes the file alone", "local_version 44", 0, "44\n").stands("/current_version", "43\n"),
    ]
}

#[test]
fn every_verb_on_a_filled_store() {
    let etcd = Etcd::single();
    let store = etcd.store();
    fill(&store, &FLEET);
    let world = World { discovery: discovery_service(), ..World::new(&etcd.endpoint(0)) };
    let (reads, writes) = (reads_of_a_filled_store(), writes_to_a_filled_store());
    assert_every_verb(&[&reads, &writes]);
    check_all(&world, &reads);
    assert_eq!(store.revision(), 2, "questions write nothing");
    check_writes(&world, &store, &FLEET, &writes);
}

#[test]
fn a_slow_store_gives_the_same_answers() {
    let etcd = Etcd::single();
    let store = etcd.store();
    fill(&store, &FLEET);
    let proxy = Proxy::start(&etcd.endpoint(0));
    proxy.set(Behaviour::Delay(Duration::from_millis(15)));
    let world = World { discovery: discovery_service(), ..World::new(&proxy.endpoint()) };
    check_all(&world, &reads_of_a_filled_store());
    check_writes(&world, &store, &FLEET, &writes_to_a_filled_store());
}

// -------------------------------------------------------------------------------------------------
// A store that is unreachable, or too slow
// -------------------------------------------------------------------------------------------------

/// Returns the rows whose result is the same whatever prevents the answer.
fn without_an_answer() -> Vec<Row> {
    vec![
        row("a trigger is not taken for done", "trigger_update 44", 2, ""),
        row("a guard cannot tell", "trigger_update --require-settled 44", 2, ""),
        row("a configuration run gets the last version", "current_version", 0, "43\n")
            .remembered("43")
            .says("warning"),
        row("a configuration run gets a word", "current_version", 0, "None\n").says("warning"),
        row("what is remembered is checked", "current_version", 0, "None\n").remembered("a b"),
        row("the same in the first generation", "current_version", 0, "43\n")
            .remembered("43")
            .first_generation(),
        row("no member answers", "ping", 1, "Connection failed\n"),
        row("nothing desired is known, something installed", "pending_update", 2, NOT_READ).installed("42"),
        row("nothing desired is known, nothing installed", "pending_update", 3, NEITHER),
        row("what is remembered is no instruction", "pending_update", 2, NOT_READ)
            .installed("42")
            .remembered("43"),
        row("looking only", "pending_update --peek", 2, NOT_READ).installed("42"),
        row("the file is here", "local_version", 0, "42\n").installed("42"),
        row("the file is written here", "local_version 43", 0, "43\n").installed("42"),
        row("a result cannot be told", "update_own_status puppet 0", 2, ""),
        row("a listing cannot be told", "update_own_info", 2, "").installed("42"),
        row("there is no listing to tell", "update_own_info", 0, ""),
        row("versions cannot be told", "running_versions", 2, ""),
        row("hosts cannot be verified", "verify_hosts 43", 2, "").input("web-1\n"),
        row("hosts cannot be waited for", "verify_hosts --wait 300ms 43 web-1", 2, ""),
        row("no hosts are no, whoever answers", "verify_hosts 43", 1, ""),
        row("a single version cannot be told", "check_single_version -v 43", 2, ""),
        row("no answer is not 'no failures'", "get_failures", 2, ""),
        row("no answer is not 'no failures', by host", "get_failures --hosts", 2, ""),
        row("no answer is not 'no failures', first generation", "get_failures --hosts", 2, "")
            .first_generation(),
        row("no token", "new_discovery_token --endpoint @DISCOVERY/", 2, ""),
        row("hosts of a version cannot be told", "hosts_at_version 43", 2, ""),
        row("health is not known, which starts no run", "local_health -v", 0, "").says("warning"),
        row("no explanation", "debug_timeout 43", 2, ""),
        row("the fleet cannot be told", "status", 2, ""),
        row("nobody can account", "unaccounted", 2, ""),
        row("no roster", "hosts list", 2, ""),
        row("nothing is added", "hosts add web-3", 2, ""),
        row("nothing is taken out", "hosts decommission web-1 --force", 2, ""),
        row("why cannot be told", "why web-1", 2, ""),
        row("who waits cannot be told", "why", 2, ""),
        row("services cannot be told", "services list", 2, ""),
        row("a service cannot be told", "services show web", 2, ""),
        row("addresses cannot be told", "get_services", 2, ""),
        row("nobody can tell what came", "wait_for web", 2, ""),
        row("a name cannot be told", "dns web.service.consul", 2, ""),
        row("no file without an answer", "cache_services", 2, "")
            .with("ORCHESTRATE_HIERA_FILE", "@HOST/services.yaml"),
        row("roles cannot be told", "publish_service", 2, "")
            .with("ORCHESTRATE_PROFILE_LIST", "/etc/hostname"),
        row("no roles, nothing to tell", "publish_service", 0, "")
            .with("ORCHESTRATE_PROFILE_LIST", "@HOST/none"),
        row("nothing is worked on", "maintenance on", 2, ""),
        row("nothing is drained", "drain", 2, ""),
        row("nothing is dropped", "drop-stale", 2, ""),
        row("lint needs no store", "lint @HOST", 0, ""),
        row("no log", "logs web-1", 2, ""),
        row("no retry", "retry web-1", 2, ""),
        row("no store to show", "store show", 2, ""),
        row("no store to accept", "store accept --version 43", 2, ""),
        row("nothing is written that may not work", "bootstrap --directory @HOST/etc", 2, ""),
        row("completion needs no store", "completion zsh", 0, "").contains("compdef"),
        row("enrolling needs no store", "enroll ci --as verifier --print-etcdctl", 0, "")
            .contains("grant-permission orchestrate-verifier read --prefix=true"),
    ]
}

/// Runs these rows with the store and the discovery service behind proxies with this behaviour.
fn check_without_an_answer(behaviour: Behaviour) {
    let etcd = Etcd::single();
    let store = etcd.store();
    fill(&store, &FLEET);
    let (proxy, discovery) = (Proxy::start(&etcd.endpoint(0)), Proxy::start(&discovery_service()));
    proxy.set(behaviour);
    discovery.set(behaviour);
    let world = World { discovery: discovery.endpoint(), ..World::new(&proxy.endpoint()).within(SHORT) };
    let rows = without_an_answer();
    check_all(&world, &rows);
    assert!(proxy.accepted() > 0 && discovery.accepted() > 0);
    assert_eq!(store.revision(), 2, "nothing was written");
}

#[test]
fn nobody_listens() {
    let rows = without_an_answer();
    assert_every_verb(&[&rows]);
    check_all(&World::new(NOWHERE).within(SHORT), &rows);
}

#[test]
fn the_store_is_slower_than_the_time_out() {
    check_without_an_answer(Behaviour::Delay(Duration::from_secs(3600)));
}

#[test]
fn the_store_is_silent() {
    check_without_an_answer(Behaviour::Swallow);
}

#[test]
fn the_store_hears_and_is_not_heard() {
    check_without_an_answer(Behaviour::SwallowAnswers);
}

#[test]
fn the_store_hangs_up() {
    check_without_an_answer(Behaviour::Refuse);
}

#[test]
fn the_store_talks_nonsense() {
    check_without_an_answer(Behaviour::Garbage);
}

#[test]
fn the_time_out_bounds_everything_that_is_waited_for() {
    let proxy = Proxy::start(NOWHERE);
    proxy.set(Behaviour::Swallow);
    let silent = proxy.endpoint();
    let ways = [
        row("by the environment", "status", 2, ""),
        row("by an option, which wins", "--timeout 200ms status", 2, "").with("ORCHESTRATE_TIMEOUT", "1h"),
        row("by its other name", "--command-timeout 200ms status", 2, "").with("ORCHESTRATE_TIMEOUT", "1h"),
        row("finding endpoints", "status --discovery-url", 2, "").argument(&format!("{silent}/token")),
        row("finding endpoints by a name", "status --endpoints http://store.invalid:1", 2, ""),
        row("more endpoints", "status --endpoints", 2, "").argument(&format!("{silent},{silent},{NOWHERE}")),
    ];
    check_all(&World::new(&silent).within(SHORT), &ways);
}

#[test]
fn one_silent_member_leaves_time_for_another() {
    let etcd = Etcd::single();
    fill(&etcd.store(), &FLEET);
    let proxy = Proxy::start(NOWHERE);
    proxy.set(Behaviour::Swallow);
    // A command may start with any of the members, so each row is run several times.
    let rows = |name, line, out: &str| vec![row(name, line, 0, out); 6];
    let members = format!("{},{}", proxy.endpoint(), etcd.endpoint(0));
    let world = World::new(&members).within(Duration::from_secs(3));
    check_all(&world, &rows("ping", "ping", "Connection succesful\n"));
    check_all(&world, &rows("another verb", "running_versions", "42\n43\n"));
    assert!(proxy.accepted() > 0);
}

#[test]
fn without_a_quorum_nothing_is_verified_and_a_command_that_waits_gets_its_answer() {
    let mut etcd = Etcd::cluster();
    fill(&etcd.store(), &FLEET);
    etcd.kill_member(0);
    etcd.kill_member(1);
    // This member still has all the data, but must not answer without a quorum.
    let proxy = Proxy::start(&etcd.endpoint(2));
    let rows = [
        row("hosts", "verify_hosts 43 web-1 web-2", 2, ""),
        row("a version", "check_single_version 42", 2, ""),
        row("failures", "get_failures --hosts", 2, ""),
        row("the fleet", "status", 2, ""),
        row("a trigger", "trigger_update 44", 2, ""),
    ];
    check_all(&World::new(&proxy.endpoint()).within(SHORT), &rows);
    let before = proxy.accepted();
    std::thread::scope(|scope| {
        let world = World::new(&proxy.endpoint());
        let waiting = row("a question that is asked again", "verify_hosts --wait 20s 43 web-1 web-2", 0, "");
        let command = scope.spawn(move || check(&world, None, &waiting));
        wait::until("it asks", || (proxy.accepted() > before).then_some(()), String::new);
        etcd.start_member(0);
        etcd.start_member(1);
        report(&Vec::from_iter(command.join().expect("joined").err()));
    });
    assert_eq!(etcd.store().get("/current_version").as_deref(), Some("43\n"));
}

// -------------------------------------------------------------------------------------------------
// A trigger whose answer is lost
// -------------------------------------------------------------------------------------------------

/// Triggers `v44-new` while the proxy applies this behaviour to the request; the proxy forwards
/// everything again as soon as `seen` holds.
fn trigger_with_trouble(behaviour: Behaviour, seen: impl Fn(&Store, &Proxy) -> bool) {
    let etcd = Etcd::single();
    let store = etcd.store();
    fill(&store, &FLEET);
    let proxy = Proxy::start(&etcd.endpoint(0));
    // The requests before the write do not contain this version.
    proxy.set_on(b"v44-new", behaviour);
    let world = World::new(&proxy.endpoint());
    std::thread::scope(|scope| {
        let command = scope.spawn(|| check(&world, None, &row("a trigger", "trigger_update v44-new", 0, "")));
        wait::until("the trouble", || seen(&store, &proxy).then_some(()), String::new);
        proxy.set(Behaviour::Pass);
        report(&Vec::from_iter(command.join().expect("joined").err()));
    });
    assert_eq!(store.get("/current_version").as_deref(), Some("v44-new"));
}

#[test]
fn a_trigger_whose_answer_is_lost_reads_back_and_finds_it() {
    trigger_with_trouble(Behaviour::SwallowAnswers, |store, proxy| {
        proxy.lost() > 0 && store.get("/current_version").as_deref() == Some("v44-new")
    });
}

#[test]
fn a_trigger_that_is_lost_is_sent_again() {
    trigger_with_trouble(Behaviour::Swallow, |_, proxy| proxy.lost() > 0);
}

#[test]
fn a_trigger_that_is_cut_off_is_sent_again() {
    // The first connection is that of the earlier requests; a later one is refused.
    trigger_with_trouble(Behaviour::Refuse, |_, proxy| proxy.accepted() > 1);
}

#[test]
fn a_trigger_whose_answer_is_lost_never_overwrites_a_newer_one() {
    let etcd = Etcd::single();
    let store = etcd.store();
    fill(&store, &FLEET);
    let proxy = Proxy::start(&etcd.endpoint(0));
    proxy.set_on(b"v44-new", Behaviour::SwallowAnswers);
    let world = World::new(&proxy.endpoint());
    let trigger = row("a trigger", "trigger_update v44-new", 2, "").says("another instruction stands there");
    std::thread::scope(|scope| {
        let command = scope.spawn(|| check(&world, None, &trigger));
        let stands = || store.get("/current_version").filter(|v| v == "v44-new");
        wait::until("it was applied", stands, String::new);
        store.put("/current_version", "v45");
        proxy.set(Behaviour::Pass);
        report(&Vec::from_iter(command.join().expect("joined").err()));
    });
    assert_eq!(store.get("/current_version").as_deref(), Some("v45"));
}

#[test]
fn a_trigger_whose_answer_stays_lost_cannot_be_told() {
    let etcd = Etcd::single();
    let store = etcd.store();
    for behaviour in [Behaviour::SwallowAnswers, Behaviour::Swallow, Behaviour::Refuse, Behaviour::Garbage] {
        clear(&store);
        fill(&store, &FLEET);
        let proxy = Proxy::start(&etcd.endpoint(0));
        proxy.set_on(b"v44-new", behaviour);
        let world = World::new(&proxy.endpoint()).within(Duration::from_millis(1500));
        report(&Vec::from_iter(
            check(&world, None, &row("a trigger", "trigger_update v44-new", 2, "")).err(),
        ));
        let stands = store.get("/current_version").expect("something");
        assert_eq!(stands == "v44-new", behaviour == Behaviour::SwallowAnswers, "{behaviour:?}");
    }
}

// -------------------------------------------------------------------------------------------------
// Usage
// -------------------------------------------------------------------------------------------------

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
        "hosts",
        "hosts list web-1",
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
        "drop-stale web",
        "lint",
        "dns",
        "dns a.b MX",
        "logs",
        "retry",
        "store",
        "store show 1",
        "store accept",
        "completion",
        "completion tcl",
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
    rows.extend([
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
        row("version", "--version", 0, "").contains("orchestrate "),
    ];
    for verb in verbs() {
        rows.push(row("help for a verb", &format!("help {verb}"), 0, "").contains("Usage: orchestrate"));
        rows.push(row("help behind a verb", &format!("{verb} --help"), 0, "").contains("Usage: orchestrate"));
    }
    check_all(&World::new(NOWHERE), &rows);
}

#[test]
fn words_are_completed_from_the_definition_and_the_catalog_on_this_host() {
    let world = World::new(NOWHERE);
    let directory = tempfile::tempdir().expect("a directory");
    let script: CommandOutput = run(world.command(directory.path()).args(["completion", "bash"]), "").into();
    let programs = binary("orchestrate").parent().expect("a directory").to_owned();
    let path = format!("{}:/usr/bin:/bin", programs.display());
    // Runs the completion as bash does for the last of these words.
    let completed = |line: &str| -> BTreeSet<String> {
        let words: Vec<&str> = line.split(' ').collect();
        let ask = format!(
            "COMP_WORDS=({}); COMP_CWORD={}; COMP_TYPE=9; _clap_complete_orchestrate orchestrate {:?} x
            for word in \"${{COMPREPLY[@]}}\"; do echo \"$word\"; done",
            words.iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(" "),
            words.len() - 1,
            words.last().expect("a word"),
        );
        let mut bash = Command::new("bash");
        bash.env_clear().env("PATH", &path).env("ORCHESTRATE_STATE_DIR", directory.path().join("state"));
        let output = run(bash.args(["-c", &format!("{}\n{ask}", script.out)]), "");
        assert!(output.stderr.is_empty(), "{output:?}");
        String::from_utf8(output.stdout).expect("text").lines().map(str::to_owned).collect()
    };
    let set = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<BTreeSet<String>>();
    let among = |line: &str, words: &[&str]| {
        let found = completed(line);
        assert!(set(words).is_subset(&found), "{line}: {found:?}");
        found
    };
    assert!(verbs().iter().all(|verb| verb == "help" || completed("orchestrate ").contains(verb)));
    among("orchestrate ho", &["hosts", "hosts_at_version"]);
    among("orchestrate trigger_update --req", &["--require-settled"]);
    assert_eq!(completed("orchestrate wait_for w"), set(&[]), "there is no catalog");
    let instance =
        |host: &str| json!({ "record": { "host": host, "addresses": ["10.0.0.1"] }, "leased": true });
    let services = json!({ "web": [instance("web-1"), instance("web-2")], "mysql": [instance("db-1")] });
    let catalog = json!({ "revision": 7, "services": services });
    std::fs::create_dir_all(directory.path().join("state")).expect("made");
    std::fs::write(directory.path().join("state/catalog.json"), catalog.to_string()).expect("written");
    assert_eq!(completed("orchestrate wait_for w"), set(&["web"]));
    among("orchestrate services show ", &["web", "mysql"]);
    assert_eq!(completed("orchestrate why web"), set(&["web-1", "web-2"]));
    among("orchestrate verify_hosts 43 web-1 ", &["db-1", "web-1", "web-2"]);
    among("orchestrate maintenance on mysql --hostname d", &["db-1"]);
    std::fs::write(directory.path().join("state/catalog.json"), "{").expect("written");
    assert_eq!(completed("orchestrate wait_for w"), set(&[]), "a damaged catalog is none");
    // The variable alone does not request a completion.
    let mut verb = world.command(directory.path());
    let result: CommandOutput =
        run(verb.args(["trigger_update"]).env("_ORCHESTRATE_COMPLETE", ""), "").into();
    assert_eq!(result.code, 64, "{result:?}");
}

#[test]
fn completion_scripts_are_read_by_their_shell() {
    let world = World::new(NOWHERE);
    let directory = tempfile::tempdir().expect("a directory");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let result: CommandOutput =
            run(world.command(directory.path()).args(["completion", shell]), "").into();
        assert_eq!((result.code, result.err.as_str()), (0, ""), "{shell}");
        let script = directory.path().join(shell);
        std::fs::write(&script, &result.out).expect("written");
        let reads = Command::new(shell).arg("-n").arg(&script).output();
        // Not every machine has every shell, but bash is always installed.
        if let Ok(output) = reads.inspect_err(|e| assert_ne!(shell, "bash", "{e}")) {
            assert!(output.status.success(), "{shell}: {output:?}");
        }
    }
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

// -------------------------------------------------------------------------------------------------
// JSON
// -------------------------------------------------------------------------------------------------

#[test]
fn json_is_one_value_in_one_form() {
    let etcd = Etcd::single_real();
    let store = etcd.store();
    let world = World { discovery: discovery_service(), ..World::new(&etcd.endpoint(0)) };
    // Every answer in text is also an answer in JSON, with the same exit code. Commands
    // without an answer only print an error, so their rows are left out.
    let as_json = |rows: Vec<Row>| -> Vec<Row> {
        let has_json = |row: &Row| {
            let script = ["completion", "enroll"].contains(&row.verb());
            let failed = matches!(row.code, 1..=3)
                && matches!(&row.out, Out::Exactly(text) if text.is_empty())
                && !row.err.iter().any(|part| part.starts_with("not at"));
            let health = row.verb() == "local_health";
            !script && (!failed || health) && !row.err.contains(&"nothing was changed")
        };
        let json_row = |row: Row| {
            let arguments = [row.arguments.clone(), vec!["-o".into(), "json".into()]].concat();
            Row { arguments, out: Out::AnyJson, err: Vec::new(), ..row }
        };
        rows.into_iter().filter(has_json).map(json_row).collect()
    };
    check_all(&world, &as_json(reads_of_an_empty_store()));
    check_writes(&world, &store, &[], &as_json(writes_to_an_empty_store()));
    check_writes(&world, &store, &FLEET, &as_json(writes_to_a_filled_store()));
    clear(&store);
    fill(&store, &FLEET);
    check_all(&world, &as_json(reads_of_a_filled_store()));
    let problem = |host: &str, check: &str, of: Value| {
        let mut value = json!({ "host": host, "check": check, "at": null, "version": null, "code": null, "reason": null });
        value.as_object_mut().expect("an object").extend(of.as_object().expect("an object").clone());
        value
    };
    let at = "2014-11-18T08:40:00Z";
    let failures = json!([
        problem("db-1", "puppet", json!({ "at": at })),
        problem("db-1", "validation (stale)", json!({})),
        problem("lost-1", "liveness", json!({})),
        problem(
            "web-2",
            "validation",
            json!({ "at": at, "version": "43", "code": 1, "reason": "http does not answer" })
        ),
    ]);
    let warnings = json!([problem("db-2", "puppet", json!({ "at": at }))]);
    let json_row = |line: &str, code: i32, value: Value| row("exact JSON", line, code, "").json(value);
    let rows = [
        json_row("-o json current_version", 0, json!({ "version": "43", "revision": "any", "from_store": true })),
        json_row("ping -w json", 0, json!({ "connected": true, "members": ["m0"] })),
        json_row(
            "pending_update --output json",
            0,
            json!({ "pending": true, "desired": "43", "installed": "42", "agent_drives": false }),
        )
        .installed("42"),
        json_row("local_version -o=json", 0, json!({ "version": null })),
        json_row(
            "running_versions -o json",
            0,
            json!({ "versions": [{ "version": "42", "hosts": 1 }, { "version": "43", "hosts": 2 }], "revision": "any" }),
        ),
        json_row(
            "verify_hosts -o json 43 web-1 db-1",
            1,
            json!({
                "version": "43", "wanted": 2, "present": 1, "missing": ["db-1"], "unconfirmed": ["web-1"], "revision": "any",
            }),
        ),
        json_row(
            "check_single_version -o json 42",
            1,
            json!({
                "version": "42", "wanted_found": true, "unwanted": ["43"], "revision": "any",
                "versions": [{ "version": "42", "hosts": 1 }, { "version": "43", "hosts": 2 }],
            }),
        ),
        json_row(
            "get_failures -o json --show_warnings",
            1,
            json!({ "failures": failures, "warnings": warnings, "revision": "any" }),
        ),
        json_row("get_failures -o json", 1, json!({ "failures": failures, "warnings": [], "revision": "any" })),
        json_row("hosts_at_version -o json 9", 0, json!({ "version": "9", "hosts": [], "revision": "any" })),
        json_row(
            "local_health -o json",
            1,
            json!({ "host": "web-2", "known": true, "failing": [{ "check": "validation", "output": "http does not answer" }] }),
        )
        .with("ORCHESTRATE_HOSTNAME", "web-2"),
        json_row(
            "logs -o json lost-1",
            0,
            json!({ "host": "lost-1", "lines": ["apply: first", "apply: second"], "reported_at": at }),
        ),
        json_row(
            "unaccounted -o json",
            1,
            json!({
                "unaccounted": [{
                    "host": "lost-1", "how": "lost", "reason": "neither live nor listed under a version", "last_report": at,
                }],
                "revision": "any",
            }),
        ),
        json_row("new_discovery_token -o json --endpoint @DISCOVERY/", 0, json!({ "token": TOKEN.trim() })),
    ];
    check_all(&world, &rows);
    let away = [
        json_row(
            "current_version -o json",
            0,
            json!({ "version": "43", "revision": null, "from_store": false }),
        )
        .remembered("43"),
        json_row("ping -o json", 1, json!({ "connected": false, "members": [] })),
        json_row(
            "pending_update -o json",
            3,
            json!({ "pending": null, "desired": null, "installed": null, "agent_drives": false }),
        ),
        json_row("local_health -o json", 0, json!({ "host": "web-1", "known": false, "failing": [] })),
    ];
    check_all(&World::new(NOWHERE).within(SHORT), &away);
}

// -------------------------------------------------------------------------------------------------
// A store with an agent's claim of this host
// -------------------------------------------------------------------------------------------------

#[test]
fn beside_an_agent_that_drives_nothing_is_reported_and_nothing_begins() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let world = World::new(&etcd.endpoint(0));
    let claim = |driver: &str| {
        format!(r#"{{"format":1,"instance":"i1","machine_id":"m","boot_id":"b","driver":"{driver}"}}"#)
    };
    let refused = || {
        vec![
            row("it reports results", "update_own_status puppet 4", 3, "")
                .gone("/status/puppet/failed/web-1"),
            row("it reports results, by the old name", "update_own_status validation_service 1", 3, "")
                .gone("/status/validation/failed/web-1"),
            row("what it does not report is reported", "update_own_status provisioned 1", 0, "")
                .something_stands("/status/provisioned/failed/web-1"),
            row("it announces", "update_own_info --version 9", 3, "").gone("/running_version/9/web-1"),
            row("another host has no agent", "update_own_info --hostname db-1 --version 9", 0, "")
                .something_stands("/running_version/9/db-1"),
            row("it applies", "pending_update", 2, YES).installed("42").says("agent"),
            row("it applies, nothing to do", "pending_update", 2, NO).installed("43"),
            row("looking only", "pending_update --peek", 0, YES).installed("42"),
            row("looking only, nothing to do", "pending_update --peek", 1, NO).installed("43"),
            row("it lives", "hosts decommission web-1", 3, "").something_stands("/running_version/43/web-1"),
            row("it lives, but must go", "hosts decommission web-1 --force", 0, "")
                .gone("/running_version/43/web-1"),
        ]
    };
    // An unknown or unreadable claim may be from a newer program; it counts as that of an agent
    // that drives.
    for value in [claim("agent"), claim("something new"), r#"{"format":99}"#.into(), "garbage".into()] {
        let facts: Vec<_> = FLEET.into_iter().chain([("/orchestrate/live/web-1", value.as_str())]).collect();
        check_writes(&world, &store, &facts, &refused());
    }
    let external = claim("external");
    let facts: Vec<_> = FLEET.into_iter().chain([("/orchestrate/live/web-1", external.as_str())]).collect();
    let rows = [
        row("a script reports", "update_own_status puppet 4", 0, "")
            .something_stands("/status/puppet/failed/web-1"),
        row("a script announces", "update_own_info --version 9", 0, "")
            .something_stands("/running_version/9/web-1"),
        row("a script applies", "pending_update", 0, YES).installed("42"),
        row("a script has nothing to apply", "pending_update", 1, NO).installed("43"),
    ];
    check_writes(&world, &store, &facts, &rows);
}

// -------------------------------------------------------------------------------------------------
// This host's files
// -------------------------------------------------------------------------------------------------

#[test]
fn files_that_are_not_as_they_should_be() {
    let etcd = Etcd::single();
    fill(&etcd.store(), &FLEET);
    let directory = "ORCHESTRATE_LOCAL_VERSION_FILE";
    let long = "x".repeat(100_000);
    let rows = [
        row("a file that is a directory", "local_version", 1, "").with(directory, "@HOST"),
        row("a file that is a directory is not written", "local_version 43", 1, "")
            .with(directory, "@HOST/state"),
        row("its directory is not there", "local_version 43", 0, "\n")
            .with(directory, "@HOST/none/current_version"),
        row("nothing there to read", "local_version", 0, "\n").with(directory, "@HOST/none/current_version"),
        row("unreadable is never 'no', nor 'nothing is installed'", "pending_update", 2, NOT_READ)
            .with(directory, "@HOST"),
        row("unreadable is not announced", "update_own_info", 2, "").with(directory, "@HOST"),
        row("whatever is installed, it is not that", "pending_update", 0, YES).installed("43 44"),
        row("white space is nothing", "pending_update", 0, YES).installed(" \n"),
        row("a state directory that is not there costs the memory alone", "current_version", 0, "43\n")
            .with("ORCHESTRATE_STATE_DIR", "/proc/none"),
    ];
    check_all(&World::new(&etcd.endpoint(0)), &rows);
    let memory = [
        row("a memory of nonsense", "current_version", 0, "None\n").remembered("\u{1b}[31m"),
        row("an empty memory", "current_version", 0, "None\n").remembered(""),
    ];
    check_all(&World::new(NOWHERE).within(SHORT), &memory);
    // A file that is larger than any version is not read.
    let large: &'static str = Box::leak(long.into_boxed_str());
    let rows = [
        row("a file too large", "local_version", 1, "").installed(large),
        row("a file too large is never 'no'", "pending_update", 2, NOT_READ).installed(large),
    ];
    check_all(&World::new(&etcd.endpoint(0)), &rows);
}

#[test]
fn the_last_version_read_by_any_verb_is_remembered() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(directory.path().join("state")).expect("made");
    let say = |world: World, arguments: &[&str]| -> CommandOutput {
        run(world.command(directory.path()).args(arguments), "").into()
    };
    let here = || World::new(&etcd.endpoint(0));
    let away = || World::new(NOWHERE).within(SHORT);
    store.put("/running_version/v0/web-1", "1416300000");
    let reading = [
        &["pending_update"][..],
        &["current_version"],
        &["status"],
        &["unaccounted"],
        &["why", "web-1"],
        &["store", "show"],
    ];
    for (number, arguments) in reading.into_iter().enumerate() {
        let version = format!("v{number}");
        store.put("/current_version", &version);
        assert_ne!(say(here(), arguments).code, 2, "{arguments:?}");
        assert_eq!(say(away(), &["current_version"]).out, format!("{version}\n"), "{arguments:?}");
    }
    assert_eq!(say(here(), &["trigger_update", "v9"]).code, 0);
    assert_eq!(say(away(), &["current_version"]).out, "v9\n");
    assert_eq!(say(here(), &["store", "accept", "--version", "v10"]).code, 0);
    assert_eq!(say(away(), &["current_version"]).out, "v10\n");
}

// -------------------------------------------------------------------------------------------------
// Standard input and output
// -------------------------------------------------------------------------------------------------

#[test]
fn a_list_of_hosts_that_never_ends_is_not_waited_for() {
    let etcd = Etcd::single();
    fill(&etcd.store(), &FLEET);
    let directory = tempfile::tempdir().expect("a directory");
    for (arguments, code) in [
        (&["verify_hosts", "43"][..], 2),
        (&["verify_hosts", "43", "--wait", "100ms"], 2),
        // With hosts as arguments, standard input is not read.
        (&["verify_hosts", "43", "web-1"], 0),
        // No other verb reads standard input.
        (&["check_single_version", "42"], 1),
    ] {
        let world = World::new(&etcd.endpoint(0)).within(Duration::from_millis(800));
        let before = Instant::now();
        let mut child = world.command(directory.path());
        let mut child =
            child.args(arguments).stdin(Stdio::piped()).stderr(Stdio::null()).spawn().expect("started");
        let mut input = child.stdin.take().expect("piped");
        // The command may have ended without reading its input.
        let _ = input.write_all(b"web-1\nweb-2\n");
        let limit = world.timeout + MARGIN;
        let status = wait::until_within(
            limit.saturating_sub(before.elapsed()),
            "it ends with its input open",
            || child.try_wait().expect("waiting"),
            || format!("{arguments:?}"),
        );
        assert_eq!(status.code(), Some(code), "{arguments:?}");
        drop(input);
    }
}

#[test]
fn a_terminal_counts_as_no_hosts() {
    let etcd = Etcd::single();
    let directory = tempfile::tempdir().expect("a directory");
    if Command::new("script").arg("--version").output().is_err() {
        tests::skip("contract::a_terminal_counts_as_no_hosts", "no script(1) on the PATH");
        return;
    }
    let world = World::new(&etcd.endpoint(0));
    let own = world.command(directory.path());
    let mut command = Command::new("script");
    for (name, value) in own.get_envs() {
        command.env(name, value.expect("set"));
    }
    let line = format!("'{}' verify_hosts 43", binary("orchestrate").display());
    command.args(["-q", "-e", "-c", &line, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = command.spawn().expect("started");
    // Nothing is typed, and the input stays open.
    let input = child.stdin.take();
    let status = wait::until("it ends", || child.try_wait().expect("waiting"), String::new);
    assert_eq!(status.code(), Some(1));
    drop(input);
}

#[test]
fn a_reader_that_went_away_is_no_trouble_and_a_full_disk_is() {
    let etcd = Etcd::single();
    fill(&etcd.store(), &FLEET);
    let world = World::new(&etcd.endpoint(0));
    let directory = tempfile::tempdir().expect("a directory");
    for (arguments, code) in [
        (&["hosts_at_version", "43"][..], 0),
        (&["get_failures", "--hosts"], 1),
        (&["status", "-o", "json"], 1),
        (&["completion", "bash"], 0),
        (&["--help"], 0),
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = world.command(directory.path());
        let output = command.args(arguments).stdout(writer).output().expect("run");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
        assert!(!errors.contains("panicked") && !errors.contains("roken pipe"), "{arguments:?}: {errors}");
    }
    for arguments in [&["hosts_at_version", "43"][..], &["get_failures", "--hosts"], &["completion", "bash"]]
    {
        let full = File::options().write(true).open("/dev/full").expect("Linux has it");
        let mut command = world.command(directory.path());
        let output = command.args(arguments).stdout(full).stderr(Stdio::piped()).output().expect("run");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: an answer that did not arrive is none");
    }
    // The same holds for a closed reader of standard error.
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let status =
        world.command(directory.path()).args(["why", "nobody"]).stderr(writer).status().expect("run");
    assert_eq!(status.code(), Some(1));
}

// -------------------------------------------------------------------------------------------------
// Garbage and size
// -------------------------------------------------------------------------------------------------

const STEERING: &str = "\u{1b}[2J\u{7}";

/// Returns keys and values that no program of this project writes.
fn garbage() -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut facts = Vec::new();
    let long = "x".repeat(300);
    let names: [&[u8]; 9] =
        [b"a b", b"../x", b"", b"\xff\xfe", STEERING.as_bytes(), b"a/b/c", b"-a", b"a\n", long.as_bytes()];
    for name in names {
        for prefix in [
            "/running_version/43/",
            "/running_version/",
            "/status/puppet/failed/",
            "/status/puppet/pending/",
            "/status/validation/failed/",
            "/status/puppet/",
            "/status/",
            "/orchestrate/hosts/",
            "/orchestrate/live/",
            "/orchestrate/reports/",
            "/orchestrate/announced/",
            "/orchestrate/retry/",
            "/orchestrate/reporting/validation/",
            "/orchestrate/reporting/",
        ] {
            facts.push(([prefix.as_bytes(), name].concat(), b"garbage".to_vec()));
        }
        facts.push(([b"/running_version/", name, b"/web-1"].concat(), b"1".to_vec()));
        facts.push(([b"/status/", name, b"/failed/web-1"].concat(), b"1".to_vec()));
    }
    facts
}

#[test]
fn garbage_keys_become_no_part_of_an_answer() {
    let etcd = Etcd::single();
    let store = etcd.store();
    fill(&store, &FLEET);
    fill_bytes(&store, garbage().into_iter());
    let world = World { discovery: discovery_service(), ..World::new(&etcd.endpoint(0)) };
    check_all(&world, &reads_of_a_filled_store());
}

#[test]
fn a_claim_without_a_host_hides_no_lost_one() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let world = World::new(&etcd.endpoint(0));
    let lost = "Failures:\n  Node: lost-1, Check: liveness\n";
    let entry = ("/orchestrate/hosts/lost-1", r#"{"format":1,"since":1}"#);
    for claim in ["/orchestrate/live/not a host", "/orchestrate/live/on-no-roster"] {
        check_writes(
            &world,
            &store,
            &[entry, (claim, "{}")],
            &[row("as many claims as entries", "get_failures --hosts", 1, lost)],
        );
    }
}

#[test]
fn garbage_values_are_no_answer_and_no_crash() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let world = World::new(&etcd.endpoint(0));
    let values: [&[u8]; 8] = [
        b"",
        b"\xff\xfe\x00",
        STEERING.as_bytes(),
        b"\"43\"",
        b"[1]",
        br#"{"format":99}"#,
        br#"{"format":1,"at":"yesterday","since":"then"}"#,
        b"{\"format\":1,",
    ];
    for value in values {
        clear(&store);
        let facts = [
            "/running_version/43/web-1",
            "/running_version/43/web-2",
            "/status/validation/failed/web-1",
            "/status/puppet/pending/web-1",
            "/orchestrate/hosts/web-1",
            "/orchestrate/hosts/web-2",
            "/orchestrate/live/web-2",
            "/orchestrate/reports/web-1",
            "/orchestrate/reports/web-2",
            "/orchestrate/announced/web-1",
            "/orchestrate/reporting/puppet/web-1",
            "/orchestrate/retry/web-1",
            "/orchestrate/store",
            "/current_version",
        ];
        fill_bytes(&store, facts.iter().map(|key| (key.as_bytes().to_vec(), value.to_vec())));
        let failures = "Failures:\n  Node: web-1, Check: validation\n";
        let rows = [
            row("no version", "current_version", 0, "None\n"),
            row("no version, first generation", "current_version", 1, "").first_generation(),
            row("no version is not 'no update'", "pending_update", 2, NOT_READ).installed("42"),
            row("no version is not 'an update'", "pending_update", 3, NEITHER),
            row("keys say who runs what", "running_versions", 0, "43\n"),
            row("keys say who runs what", "verify_hosts 43 web-1 web-2", 0, ""),
            row("keys say who runs what", "check_single_version 43", 0, ""),
            row("keys say who failed", "get_failures --hosts", 1, failures),
            row("keys say who failed, in JSON", "get_failures -o json --show_warnings", 1, "").any_json(),
            row("keys say that it failed", "local_health -v", 1, "validation: failed\n"),
            row("the fleet is not settled", "status", 1, "")
                .contains("fleet: failing\ndesired: not a version"),
            row("the fleet in JSON", "status -o json", 1, "").any_json(),
            row("no report", "logs web-1", 2, ""),
            row("why", "why web-1", 0, "").contains("verdict:      failed\n"),
            row("why, in JSON", "why -o json web-2", 0, "").any_json(),
            row("the roster", "hosts list", 0, "").contains("web-1"),
            row("the roster in JSON", "hosts list -o json", 0, "").any_json(),
            row("no identity", "store show", 2, "").contains("lineage:  none\n"),
            row("no identity to go on from", "store accept --version 43", 2, "").says("--lineage"),
            row("an entry is not overwritten", "hosts add web-1 --role web", 2, ""),
            row("nobody says that all are settled", "trigger_update --require-settled 43", 3, ""),
        ];
        check_all(&world, &rows);
        let mended = row("whatever stood there", "trigger_update 43", 0, "").stands("/current_version", "43");
        report(&Vec::from_iter(check(&world, Some(&store), &mended).err()));
    }
}

/// Hosts are checked one by one, or with the whole list of the version: both ways name the host
/// that does not confirm its listing, and the answer stays the same.
#[test]
fn a_listing_that_the_host_does_not_confirm_is_named_and_the_answer_stays() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let hosts: Vec<String> = (0..300).map(|number| format!("host-{number:03}")).collect();
    let put = |key: String, value: &str| (key.into_bytes(), value.as_bytes().to_vec());
    let facts = hosts.iter().flat_map(|host| {
        [
            put(format!("/running_version/43/{host}"), "1416300000"),
            put(format!("/orchestrate/announced/{host}"), "43"),
        ]
    });
    fill_bytes(&store, facts);
    store.put("/current_version", "43");
    let world = World::new(&etcd.endpoint(0));
    let directory = tempfile::tempdir().expect("a directory");
    let check = |arguments: &[&str], listed: &[String], code: i32, expected: &str| {
        let result: CommandOutput =
            run(world.command(directory.path()).args(arguments), &listed.join("\n")).into();
        assert_eq!((result.code, result.err.as_str()), (code, expected), "{arguments:?} {}", listed.len());
    };
    let (all, few, verify) = (&hosts[..], &hosts[..9], ["verify_hosts", "43"]);
    check(&verify, all, 0, "");
    check(&verify, few, 0, "");
    check(&["status"], &[], 0, "");
    let named = "warning: listed under 43, but not by a key of their own (1): host-003\n";
    let says = "/orchestrate/announced/host-003";
    // Somebody listed the host under 43, but the host announces 42.
    store.put(says, "42");
    store.put("/running_version/42/host-003", "1416300000");
    for fleet in [1, 0] {
        check(&verify, all, 0, named);
        check(&verify, few, 0, named);
        check(&["status"], &[], fleet, named);
        check(&["why", "host-003"], &[], 0, named);
        check(&["verify_hosts", "43", "--strict"], all, 1, "not at 43 (1): host-003\n");
        // The agent of the host is gone.
        store.delete(says);
        store.delete("/running_version/42/host-003");
    }
}

/// Number of hosts; more than a page of any read.
const MANY: usize = 2500;

#[test]
fn a_big_fleet_is_answered_whole() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let host = |number: usize| format!("host-{number:05}");
    let put = |key: String, value: &str| (key.into_bytes(), value.as_bytes().to_vec());
    // The values are long, so that pages are also needed because of their size.
    let label = "y".repeat(400);
    let entry = format!(r#"{{"format":1,"labels":{{"note":"{label}"}},"since":1416300000}}"#);
    let facts = (0..MANY).flat_map(|number| {
        let host = host(number);
        let state = if number % 2 == 0 { "failed" } else { "success" };
        [
            put(format!("/running_version/43/{host}"), "1416300000"),
            put(format!("/orchestrate/hosts/{host}"), &entry),
            put(format!("/status/validation/{state}/{host}"), r#"{"format":1,"at":1416300000,"code":1}"#),
        ]
    });
    fill_bytes(&store, facts);
    store.put("/current_version", "43");
    let all: Vec<String> = (0..MANY).map(host).collect();
    let lines = |hosts: &[String]| hosts.iter().map(|h| format!("{h}\n")).collect::<String>();
    let failed: String = all.iter().step_by(2).map(|h| format!("  Node: {h}, Check: validation\n")).collect();
    let first: String = all.iter().step_by(2).map(|h| format!("Validation failure:{h}\n")).collect();
    let rows = [
        row("everybody", "hosts_at_version 43", 0, &lines(&all)),
        row("everybody is there", "verify_hosts 43", 0, "").input(&lines(&all)),
        row("a page of hosts is there", "verify_hosts 43", 0, "").input(&lines(&all[..1000])),
        row("more hosts than one transaction holds", "verify_hosts 43", 0, "")
            .input(&lines(&all[1200..1400])),
        row("all but one", "verify_hosts 43", 1, "")
            .input(&format!("{}nobody\n", lines(&all)))
            .says("(1): nobody"),
        row("all but one of a few", "verify_hosts 43", 1, "")
            .input(&format!("{}nobody\n", lines(&all[..900]))),
        row("one version", "check_single_version 43", 0, ""),
        row("half of them failed", "get_failures --hosts", 1, &format!("Failures:\n{failed}")),
        row("half of them failed, first generation", "get_failures --hosts", 1, &first).first_generation(),
        row(
            "half of them, counted",
            "get_failures",
            1,
            &format!("Validation failures :{}\nPuppet failures :0\n", MANY / 2),
        ),
        row("half of them, in JSON", "get_failures -o json", 1, "").any_json(),
        row("what may explain it", "debug_timeout 43", 0, "").contains("   host-02499\n"),
        row("the fleet", "status", 1, "")
            .contains("hosts: 2500, not ok: 1250\n\nVERSION  HOSTS\n43       2500\n"),
        row("the roster", "hosts list -o json", 0, "").contains("host-02499"),
    ];
    check_all(&World::new(&etcd.endpoint(0)), &rows);
}
