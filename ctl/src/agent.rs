//! Client of the agent on this host, over the agent's Unix socket.

use schema::names::{CheckId, Token};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest wait for one read or write. The agent answers from memory, so it never needs this long.
const AGENT_TIMEOUT: Duration = Duration::from_secs(3);
/// Time limit of a request for which the agent asks the store.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit of a request for the whole output of a step: the agent removes secrets from it.
const WHOLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest answer that is read, in bytes. The output of a step that is kept has at most 4 MiB and 64 KiB, and an escaped
/// byte six.
const ANSWER_MAX_BYTES: u64 = 32 * 1024 * 1024;

/// The result of a check that runs outside of the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CheckResult {
    Pass,
    Warn,
    Fail,
}

/// The agent's response to a result.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CheckAck {
    /// The agent accepted the result.
    Accepted,
    /// No agent listens on the socket.
    NoAgent,
    /// The agent has no such check, or the check does not take results; with the message of the
    /// agent.
    Unknown(String),
}

/// Sends the result of a TTL check to the agent.
///
/// # Errors
/// The socket cannot be used, the agent does not answer in time, or its answer is not understood.
pub(crate) fn report_result(
    socket: &Path,
    check: &CheckId,
    result: CheckResult,
    note: &str,
) -> io::Result<CheckAck> {
    let result = match result {
        CheckResult::Pass => "pass",
        CheckResult::Warn => "warn",
        CheckResult::Fail => "fail",
    };
    let path = format!("/v1/agent/check/{result}/{}?note={}", escaped(check.as_str()), escaped(note));
    let Some(answer) = request(socket, "PUT", &path, AGENT_TIMEOUT)? else { return Ok(CheckAck::NoAgent) };
    match answer.code.as_str() {
        "200" => Ok(CheckAck::Accepted),
        "404" | "409" => Ok(CheckAck::Unknown(answer.body)),
        _ => Err(answer.unknown()),
    }
}

/// The agent's response to a request for claims.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ClaimAck {
    /// The host holds the claims, or they are given back.
    Done,
    /// No agent listens on the socket.
    NoAgent,
    /// The lock of the command, at this path, must be held first.
    Lock(PathBuf),
    /// Not now, for this reason.
    NotNow(String),
    /// Not for this user, or not by this agent.
    Never(String),
}

/// Asks the agent to take claims for a command, or to give them back.
///
/// # Errors
/// The socket cannot be used, the agent does not answer in time, or its answer is not understood.
pub(crate) fn claim_for_command(socket: &Path, run: &Token, takes: bool) -> io::Result<ClaimAck> {
    #[derive(Deserialize)]
    struct Refused {
        value: String,
        lock: Option<PathBuf>,
    }
    let method = if takes { "PUT" } else { "DELETE" };
    let path = format!("/v1/claims/commands/{}", escaped(run.as_str()));
    let Some(answer) = request(socket, method, &path, CLAIM_TIMEOUT)? else { return Ok(ClaimAck::NoAgent) };
    match (answer.code.as_str(), serde_json::from_str(&answer.body)) {
        ("200", _) => Ok(ClaimAck::Done),
        ("409" | "503", Ok(Refused { lock: Some(lock), .. })) => Ok(ClaimAck::Lock(lock)),
        ("409" | "503", Ok(Refused { value, .. })) => Ok(ClaimAck::NotNow(value)),
        // The agent has no room for the request.
        ("503", Err(_)) => Ok(ClaimAck::NotNow(answer.body)),
        ("403", _) => Ok(ClaimAck::Never(answer.body)),
        ("404" | "405", _) => Ok(ClaimAck::Never("the agent of this host is older than this command".into())),
        _ => Err(answer.unknown()),
    }
}

/// A run of a step, as the agent shows it.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
pub(crate) struct Run {
    /// The id of the run.
    pub(crate) run: String,
    /// The phase of the step.
    pub(crate) phase: String,
    /// The name of the step.
    pub(crate) step: String,
    /// The version that the step was given.
    pub(crate) version: Option<String>,
    /// The number of the attempt at that version.
    pub(crate) attempt: u32,
    /// When the step began (RFC 3339).
    pub(crate) began_at: Option<String>,
    /// `running`, or how it ended.
    pub(crate) state: String,
    /// How it ended, in words.
    pub(crate) end: Option<String>,
}

/// A run, and its output from a line on.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
pub(crate) struct RunOutput {
    #[serde(flatten)]
    pub(crate) run: Run,
    /// The number of the first of these lines, from 0.
    pub(crate) first_line: u64,
    /// The lines.
    pub(crate) log: Vec<String>,
}

/// The runs that the agent of this host keeps.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
pub(crate) struct Runs {
    pub(crate) runs: Vec<Run>,
}

/// Lists the runs that the agent keeps, the newest first; `None` if no agent listens.
///
/// # Errors
/// The socket cannot be used, the agent does not answer in time, or its answer is not understood.
pub(crate) fn runs(socket: &Path) -> io::Result<Option<Vec<Run>>> {
    let runs = read::<Runs>(socket, "/v1/runs", AGENT_TIMEOUT)?;
    Ok(runs.map(|Runs { runs }| runs))
}

/// Returns a run and its output from a line on; `None` if no agent listens.
///
/// # Errors
/// As [`runs`].
pub(crate) fn run_output(socket: &Path, run: &str, from: u64) -> io::Result<Option<RunOutput>> {
    read(socket, &format!("/v1/runs/{}?from={from}", escaped(run)), AGENT_TIMEOUT)
}

/// Returns a run and its output from its start, as far as it is kept; `None` if no agent listens.
///
/// # Errors
/// As [`runs`].
pub(crate) fn whole_output(socket: &Path, run: &str) -> io::Result<Option<RunOutput>> {
    read(socket, &format!("/v1/runs/{}?whole=true", escaped(run)), WHOLE_TIMEOUT)
}

fn read<T: DeserializeOwned>(socket: &Path, path: &str, timeout: Duration) -> io::Result<Option<T>> {
    let Some(answer) = request(socket, "GET", path, timeout)? else { return Ok(None) };
    match (answer.code.as_str(), serde_json::from_str(&answer.body)) {
        ("200", Ok(found)) => Ok(Some(found)),
        ("404", _) if answer.body.is_empty() => {
            Err(io::Error::new(ErrorKind::Unsupported, "the agent of this host is older than this command"))
        }
        ("404", _) => Err(io::Error::new(ErrorKind::NotFound, answer.body)),
        _ => Err(answer.unknown()),
    }
}

/// An answer of the agent.
struct Answer {
    code: String,
    body: String,
}

impl Answer {
    fn unknown(&self) -> io::Error {
        let shown = schema::names::quoted(&self.body);
        io::Error::new(ErrorKind::InvalidData, format!("the agent answered {:?}: {shown}", self.code))
    }
}

/// Sends a request without a body; `None` if no agent listens.
fn request(socket: &Path, method: &str, path: &str, limit: Duration) -> io::Result<Option<Answer>> {
    let mut stream = match UnixStream::connect(socket) {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
    write!(stream, "{method} {path} HTTP/1.0\r\nHost: agent\r\nContent-Length: 0\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(ANSWER_MAX_BYTES).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let code = answer.split(' ').nth(1).unwrap_or_default().to_owned();
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body.trim()).to_owned();
    Ok(Some(Answer { code, body }))
}

/// Returns text escaped as a part of a URL (RFC 3986, section 2.1).
fn escaped(text: &str) -> String {
    let escaped = text.bytes().map(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    });
    escaped.collect()
}
