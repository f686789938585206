//! `orchestrate-hiera`: answers Puppet from the catalog that the agent keeps on disk. One process
//! serves a whole compile: it reads one question per line and writes one answer per line, both as
//! JSON. What only the agent knows is asked on the agent's Unix socket; the network is never used.

mod agent;
mod answer;
mod catalogs;
mod question;

use catalogs::Catalogs;
use clap::Parser;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{self, BufRead, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use question::{Answer, Question};

const EX_USAGE: u8 = 64;
const EX_CANNOT: u8 = 2;
/// Longest question, in bytes.
const QUESTION_MAX_BYTES: u64 = 64 * 1024;

/// Answers questions about the catalog, one JSON object per line:
/// {"ask": "addresses", "name": "web"}
///
/// Questions: services, addresses, hosts, ready, dns, srv, reverse, entry, entries, key. An answer
/// holds a value, a mark that there is none, or an error. A value and a mark come with the revision
/// of the store and the age of the catalog in seconds.
#[derive(Parser)]
#[command(name = "orchestrate-hiera", version)]
struct Arguments {
    /// The catalog that the agent keeps
    #[arg(long, value_name = "FILE", default_value = "/var/lib/orchestrate/catalog.json")]
    file: PathBuf,
    /// The agent's Unix socket
    #[arg(long, value_name = "FILE", default_value = "/run/orchestrate/agent.sock")]
    socket: PathBuf,
}

/// A question with its compile.
#[derive(Deserialize)]
struct Request {
    /// Name of the compile. All questions with the same name are answered from the same catalog.
    compile: Option<String>,
    #[serde(flatten)]
    question: Question,
}

/// Returns the answer to a line.
fn reply(line: &[u8], catalogs: &mut Catalogs, agent: &agent::Agent) -> Value {
    let request: Request = match serde_json::from_slice(line) {
        Ok(request) => request,
        Err(error) => return json!({ "error": format!("not a question: {error}") }),
    };
    let answered = match &request.question {
        // The answers to these must be current, so the agent is asked.
        Question::Key { name } => agent.key(name),
        Question::Ready { live: true, which, count } => agent.is_ready(which, *count),
        question => catalogs.of(request.compile.as_deref()).and_then(|held| {
            let value = answer::answer(question, held, agent)?;
            Ok(Answer { value, revision: held.revision(), age_seconds: held.age_seconds()? })
        }),
    };
    match answered {
        Ok(Answer { value: Some(value), revision, age_seconds }) => {
            json!({ "value": value, "revision": revision, "age_seconds": age_seconds })
        }
        Ok(Answer { value: None, revision, age_seconds }) => {
            json!({ "missing": true, "revision": revision, "age_seconds": age_seconds })
        }
        Err(error) => json!({ "error": error }),
    }
}

fn converse(arguments: Arguments) -> io::Result<()> {
    let mut catalogs = Catalogs::new(arguments.file);
    let agent = agent::Agent::new(arguments.socket);
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    loop {
        let mut line = Vec::new();
        input.by_ref().take(QUESTION_MAX_BYTES).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(());
        }
        if line.len() as u64 == QUESTION_MAX_BYTES && !line.ends_with(b"\n") {
            // The rest would be read as the next question, and every later answer would be taken
            // for the answer to the question before.
            let why = format!("a question has more than {QUESTION_MAX_BYTES} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        let mut answer = serde_json::to_vec(&reply(&line, &mut catalogs, &agent))?;
        answer.push(b'\n');
        output.write_all(&answer)?;
        output.flush()?;
    }
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Nothing can be done if standard error is gone.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(EX_USAGE) } else { ExitCode::SUCCESS };
        }
    };
    match converse(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        // Puppet ended before it had read the answer.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing can be done if standard error is gone.
            let _ = writeln!(io::stderr(), "orchestrate-hiera: {error}");
            ExitCode::from(EX_CANNOT)
        }
    }
}
