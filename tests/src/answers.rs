//! Checks answers of the command against the schemas that its users read.

use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{LazyLock, Mutex};

/// Returns the directory of the schemas.
pub fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/schema")
}

/// Returns the name of the schema for a command line: that of its first words that have one.
fn schema_of(arguments: &[String]) -> Option<String> {
    let exists = |name: &str| directory().join(format!("{name}.json")).exists();
    (0..arguments.len()).find_map(|at| {
        let word = arguments[at].as_str();
        let names = [
            arguments.get(at + 1).map(|next| format!("{word}-{next}")),
            Some(word.to_owned()),
            // Short for its first form, and the old name of another verb.
            (word == "hosts").then(|| "hosts-list".to_owned()),
            ["release-view", "release_view", "drop_stale"].contains(&word).then(|| "drop-stale".to_owned()),
        ];
        names.into_iter().flatten().find(|name| exists(name))
    })
}

/// Returns what is wrong with the answer to a command line, according to the schema of its verb. Standard output
/// of several values, one after the other, is that of `--watch`.
pub fn wrong(arguments: &[String], output: &str) -> Option<String> {
    let values: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(output).into_iter().collect();
    let values = match values {
        Ok(values) if values.is_empty() => return Some("no answer".into()),
        Ok(values) => values,
        Err(error) => return Some(format!("not JSON: {error}")),
    };
    let ask = |name: &str, value: &Value| VALIDATOR.lock().expect("not poisoned").ask(name, value);
    values.iter().find_map(|value| {
        if value.get("error").is_some() {
            return ask("error", value);
        }
        let Some(name) = schema_of(arguments) else {
            return Some(format!("{arguments:?} has no schema in docs/schema"));
        };
        // An answer about the past contains that of its verb.
        match arguments.iter().any(|word| word == "--at") {
            true => ask("past", value).or_else(|| ask(&name, &value["answer"])),
            false => ask(&name, value),
        }
    })
}

static VALIDATOR: LazyLock<Mutex<Validator>> = LazyLock::new(|| Mutex::new(Validator::start()));

/// A program of its own, because the check is to be independent of the libraries that write the answers.
struct Validator {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    _child: Child,
}

impl Validator {
    fn start() -> Self {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("checker/answers.py");
        // The library is a package of the system, which other Pythons on the PATH do not see.
        let mut command = Command::new("/usr/bin/python3");
        command.arg("-B").arg(program).arg(directory());
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the validator starts");
        let input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Self { input, output, _child: child }
    }

    fn ask(&mut self, name: &str, value: &Value) -> Option<String> {
        let question = json!({ "schema": name, "answer": value });
        writeln!(self.input, "{question}").expect("the validator reads");
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the validator answers");
        let found: Option<String> = serde_json::from_str(&line)
            .unwrap_or_else(|error| panic!("the validator said {line:?}: {error}"));
        found.map(|wrong| format!("not as in docs/schema/{name}.json: {wrong}"))
    }
}
