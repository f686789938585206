//! Client of the agent, for what only the agent knows: HTTP/1.0 over its Unix socket, with one
//! connection for each question.

use crate::question::{Answer, Which};
use catalog::Claim;
use schema::health::{Health, Level};
use schema::names::{ConfigName, HostName, ServiceName};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// Longest wait for one read or write. The agent waits up to 5 s for the health of a service that
/// nobody asked for before.
const AGENT_TIMEOUT: Duration = Duration::from_secs(8);
/// Longest answer that is read, in bytes.
const ANSWER_MAX_BYTES: u64 = 64 * 1024 * 1024;

pub(crate) struct Agent {
    socket: PathBuf,
}

/// A list or value from the agent, with its age.
#[derive(Deserialize)]
struct AgentReply<T> {
    #[serde(alias = "instances", alias = "services", alias = "node")]
    value: T,
    revision: i64,
    age_seconds: u64,
}

#[derive(Deserialize)]
struct Instance {
    host: HostName,
    health: String,
}

#[derive(Deserialize)]
struct Node {
    addresses: Vec<IpAddr>,
}

impl Agent {
    pub(crate) fn new(socket: PathBuf) -> Self {
        Self { socket }
    }

    /// Returns the health of every instance of a service. From then on the agent follows the
    /// service.
    pub(crate) fn health(&self, service: &ServiceName) -> Result<BTreeMap<HostName, Health>, String> {
        let reply: Option<AgentReply<Vec<Instance>>> = self.get(&format!("/v1/services/{service}"))?;
        // The other two words, unknown and unchecked, mean that there is no health.
        let health_of = |reply: Instance| Some((reply.host, Health::read(reply.health.as_bytes())?));
        Ok(reply.into_iter().flat_map(|reply| reply.value).filter_map(health_of).collect())
    }

    /// Returns whether the service has at least `count` instances now.
    pub(crate) fn is_ready(&self, which: &Which, count: usize) -> Result<Answer, String> {
        let tag = which.tag.as_ref().map(|tag| format!("&tag={}", escaped(tag.as_str()))).unwrap_or_default();
        let level = which.level.unwrap_or(Level::Functional);
        let path = format!("/v1/services/{}?level={level}{tag}", which.name);
        let reply: AgentReply<Vec<Instance>> = match self.get(&path)? {
            Some(reply) => reply,
            // No host has the service. The list of all services gives the revision and age of this
            // answer.
            None => {
                let all: Option<AgentReply<Value>> = self.get("/v1/services")?;
                let all = all.ok_or_else(of_another_version)?;
                AgentReply { value: Vec::new(), revision: all.revision, age_seconds: all.age_seconds }
            }
        };
        let is_ready = reply.value.len() >= count;
        Ok(Answer { value: Some(is_ready.into()), revision: reply.revision, age_seconds: reply.age_seconds })
    }

    /// Returns the claim of a host that is not in the catalog.
    pub(crate) fn claim(&self, host: &HostName) -> Result<Claim, String> {
        let reply: Option<AgentReply<Node>> = self.get(&format!("/v1/nodes/{host}"))?;
        Ok(reply.map_or(Claim::Nobody, |reply| Claim::Of(reply.value.addresses.into())))
    }

    /// Returns a value that operators keep in the store.
    pub(crate) fn key(&self, name: &ConfigName) -> Result<Answer, String> {
        let reply: Option<AgentReply<Option<String>>> =
            self.get(&format!("/v1/config/{}", escaped(name.as_str())))?;
        let reply = reply.ok_or_else(of_another_version)?;
        let value = reply.value.map(Value::from);
        Ok(Answer { value, revision: reply.revision, age_seconds: reply.age_seconds })
    }

    /// Sends a question and returns the answer; `None` if the agent answers with 404.
    fn get<T: serde::de::DeserializeOwned>(&self, path: &str) -> Result<Option<T>, String> {
        let wrong = |error: &dyn std::fmt::Display| {
            format!("the agent could not be reached on {}: {error}", self.socket.display())
        };
        let answer = self.exchange(path).map_err(|error| wrong(&error))?;
        let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
        let (head, body) = answer.split_at(end.ok_or_else(|| wrong(&"it gave no answer"))?);
        let body = &body[4..];
        let status = head.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
        match status {
            b"200" => serde_json::from_slice(body).map(Some).map_err(|error| wrong(&error)),
            b"404" => Ok(None),
            _ => Err(wrong(&String::from_utf8_lossy(body).trim())),
        }
    }

    fn exchange(&self, path: &str) -> std::io::Result<Vec<u8>> {
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(AGENT_TIMEOUT))?;
        stream.set_write_timeout(Some(AGENT_TIMEOUT))?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        let mut answer = Vec::new();
        stream.take(ANSWER_MAX_BYTES).read_to_end(&mut answer)?;
        Ok(answer)
    }
}

fn of_another_version() -> String {
    "the agent is of another version".to_owned()
}

/// Returns text escaped as a part of a URL (RFC 3986, section 2): all bytes but unreserved
/// characters are percent-encoded.
fn escaped(text: &str) -> String {
    let mut url = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => url.push(byte.into()),
            _ => url.push_str(&format!("%{byte:02X}")),
        }
    }
    url
}
