//! Client of the agent on this host, over the agent's Unix socket.

use schema::names::CheckId;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Longest wait for one read or write. The agent answers from memory, so it never needs this long.
const AGENT_TIMEOUT: Duration = Duration::from_secs(3);
/// Longest answer that is read, in bytes.
const ANSWER_MAX_BYTES: u64 = 4096;

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
    let mut stream = match UnixStream::connect(socket) {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
            return Ok(CheckAck::NoAgent);
        }
        Err(error) => return Err(error),
    };
    stream.set_read_timeout(Some(AGENT_TIMEOUT))?;
    stream.set_write_timeout(Some(AGENT_TIMEOUT))?;
    let result = match result {
        CheckResult::Pass => "pass",
        CheckResult::Warn => "warn",
        CheckResult::Fail => "fail",
    };
    let path = format!("/v1/agent/check/{result}/{}?note={}", escaped(check.as_str()), escaped(note));
    write!(stream, "PUT {path} HTTP/1.0\r\nHost: agent\r\nContent-Length: 0\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(ANSWER_MAX_BYTES).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let code = answer.split(' ').nth(1).unwrap_or_default();
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body.trim());
    match code {
        "200" => Ok(CheckAck::Accepted),
        "404" | "409" => Ok(CheckAck::Unknown(body.to_owned())),
        _ => {
            let shown = schema::names::quoted(body);
            Err(io::Error::new(ErrorKind::InvalidData, format!("the agent answered {code:?}: {shown}")))
        }
    }
}

/// Returns text escaped as a part of a URL (RFC 3986, section 2.1).
fn escaped(text: &str) -> String {
    let escaped = text.bytes().map(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    });
    escaped.collect()
}
