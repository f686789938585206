//! Rows of the contract, and how one is checked.

use super::fleet::{clear, fill};
use super::json::differs;
use schema::keys::{self, Key, Prefix};
use schema::records::Event;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tests::answers;
use tests::host::CommandOutput;
use tests::process::{binary, run};
use tests::store::Store;

/// Time-out that is sufficient for every answer.
const AMPLE: Duration = Duration::from_secs(20);
/// Time-out for commands that get no answer.
pub(super) const SHORT: Duration = Duration::from_millis(400);
/// Time that a command may take beyond its time-out, on a slow machine. A command that does not heed
/// [`SHORT`] takes the default of 10 s.
pub(super) const MARGIN: Duration = Duration::from_secs(8);

/// A check of the sample settings, in which nothing is wrong.
pub(super) const SAMPLE_LINT: &str =
    concat!("lint ", env!("CARGO_MANIFEST_DIR"), "/../packaging/etc/orchestrate");

/// One invocation and its expected results.
#[derive(Clone)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) arguments: Vec<String>,
    pub(super) input: String,
    pub(super) environment: Vec<(&'static str, String)>,
    pub(super) installed: Option<&'static str>,
    pub(super) remembered: Option<&'static str>,
    pub(super) code: i32,
    pub(super) out: Out,
    pub(super) err: Vec<&'static str>,
    pub(super) stands: Vec<(&'static str, Stands)>,
}

/// Expected standard output.
#[derive(Clone)]
pub(super) enum Out {
    Exactly(String),
    Contains(&'static str),
    /// This JSON value; a number in the field `revision` counts as "any".
    Json(Value),
    /// Any JSON value that follows the rules for all verbs.
    AnyJson,
}

/// Expected value of a key.
#[derive(Clone)]
pub(super) enum Stands {
    Text(&'static str),
    Something,
    Nothing,
}

pub(super) fn row(name: &'static str, line: &str, code: i32, out: &str) -> Row {
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
    pub(super) fn argument(mut self, text: &str) -> Self {
        self.arguments.push(text.to_owned());
        self
    }

    pub(super) fn input(mut self, text: &str) -> Self {
        text.clone_into(&mut self.input);
        self
    }

    pub(super) fn with(mut self, variable: &'static str, value: &str) -> Self {
        self.environment.push((variable, value.to_owned()));
        self
    }

    pub(super) fn first_generation(self) -> Self {
        self.with("ORCHESTRATE_FLAVOUR", "etcd")
    }

    /// Sets the version in the host's version file.
    pub(super) fn installed(mut self, text: &'static str) -> Self {
        self.installed = Some(text);
        self
    }

    /// Sets the desired version that a command on the host read earlier.
    pub(super) fn remembered(mut self, text: &'static str) -> Self {
        self.remembered = Some(text);
        self
    }

    pub(super) fn contains(mut self, part: &'static str) -> Self {
        self.out = Out::Contains(part);
        self
    }

    pub(super) fn json(mut self, value: Value) -> Self {
        self.out = Out::Json(value);
        self
    }

    pub(super) fn any_json(mut self) -> Self {
        self.out = Out::AnyJson;
        self
    }

    /// Expects that there is no answer.
    pub(super) fn cannot_be_told(mut self) -> Self {
        self.name = "it cannot be told";
        (self.code, self.out) = (2, Out::Exactly(String::new()));
        (self.err, self.stands) = (Vec::new(), Vec::new());
        self
    }

    /// Adds an expected part of standard error.
    pub(super) fn says(mut self, part: &'static str) -> Self {
        self.err.push(part);
        self
    }

    pub(super) fn stands(mut self, key: &'static str, value: &'static str) -> Self {
        self.stands.push((key, Stands::Text(value)));
        self
    }

    pub(super) fn something_stands(mut self, key: &'static str) -> Self {
        self.stands.push((key, Stands::Something));
        self
    }

    pub(super) fn gone(mut self, key: &'static str) -> Self {
        self.stands.push((key, Stands::Nothing));
        self
    }

    pub(super) fn verb(&self) -> &str {
        self.arguments.iter().find(|a| !a.starts_with('-')).expect("a verb")
    }
}

/// The store and the services with which rows run.
pub(super) struct World {
    pub(super) endpoint: String,
    /// Endpoint of a discovery service, for the one verb that uses one.
    pub(super) discovery: String,
    pub(super) timeout: Duration,
}

/// Name of the host of every row.
const HERE: &str = "web-1";

impl World {
    pub(super) fn new(endpoint: &str) -> Self {
        Self { endpoint: endpoint.to_owned(), discovery: NOWHERE.to_owned(), timeout: AMPLE }
    }

    pub(super) fn within(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    pub(super) fn command(&self, directory: &std::path::Path) -> Command {
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

pub(super) const NOWHERE: &str = "http://127.0.0.1:1";

/// Runs a row and checks all of its expectations. Returns the differences as text, so that a table
/// shows all of them.
pub(super) fn check(world: &World, store: Option<&Store>, row: &Row) -> Result<(), String> {
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
        Out::Json(wanted) => {
            wrong.extend(answers::wrong(&row.arguments, &result.out).or_else(|| differs(&result.out, wanted)))
        }
        Out::AnyJson => wrong.extend(answers::wrong(&row.arguments, &result.out)),
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
pub(super) fn check_all(world: &World, rows: &[Row]) {
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
pub(super) fn check_writes(world: &World, store: &Store, facts: &[(&str, &str)], rows: &[Row]) {
    let mut wrong = Vec::new();
    for row in rows {
        clear(store);
        fill(store, facts);
        let before = store.list("/");
        wrong.extend(check(world, Some(store), row).err());
        wrong.extend(wrong_event(row, &before, &store.list("/")));
    }
    report(&wrong);
}

/// Checks that the verb left one event if it changed more than what a host says of itself, and none
/// otherwise. Returns what is wrong.
fn wrong_event(
    row: &Row,
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
) -> Option<String> {
    // What a host says of itself: keys that end in its name, after something else, announcements, and that it is on the
    // roster.
    let of_host = |key: &&String| {
        let parsed = Key::parse(key).expect("a key");
        let is_before_host = Prefix::before_host().iter().any(|prefix| key.starts_with(&prefix.to_string()));
        let joins = || after.get(*key).is_some_and(|entry| entry.contains(r#""from_script":true"#));
        is_before_host || matches!(parsed, Key::Announced(_)) || matches!(parsed, Key::Host(_)) && joins()
    };
    let keys = before.keys().chain(after.keys()).filter(|key| before.get(*key) != after.get(*key));
    let (events, changed): (BTreeSet<&String>, BTreeSet<&String>) =
        keys.filter(|key| !of_host(key)).partition(|key| key.starts_with("/orchestrate/events/"));
    let read = |key: &String| keys::Event::read(after[key].as_bytes()).expect("an event");
    let events: Vec<Event> = events.into_iter().map(read).collect();
    let fits = match &events[..] {
        [] => changed.is_empty(),
        [event] => {
            changed.contains(&event.what)
                && event.from.as_ref() == before.get(&event.what)
                && event.to.as_ref() == after.get(&event.what)
                && row.arguments.join(" ").starts_with(&event.verb)
                && event.client.starts_with(HERE)
                && event.by.as_ref().is_some_and(|by| !by.is_empty())
        }
        _ => false,
    };
    (!fits).then(|| format!("== {}: changed {changed:?}, events {events:#?}", row.name))
}

pub(super) fn report(wrong: &[String]) {
    assert!(wrong.is_empty(), "{} rows are wrong\n{}", wrong.len(), wrong.join("\n"));
}
