//! Finding endpoints: a list, a file, DNS SRV records, or an etcd discovery URL.

use crate::config::EndpointSource;
use crate::error::StoreError;
use std::time::Duration;

/// The public etcd discovery service, where the original tool looked for tokens. It is gone.
pub const DEFAULT_DISCOVERY_URL: &str = "https://discovery.etcd.io/";
const HTTP_TIMEOUT: Duration = Duration::from_secs(10);
const ANSWER_MAX_BYTES: u64 = 1024 * 1024;
const ENDPOINT_FILE_MAX_BYTES: u64 = 64 * 1024;

fn error(detail: String) -> StoreError {
    StoreError::Endpoints { detail }
}

/// Looks the endpoints up. Each comes with its scheme; a list entry without one gets that of `tls`.
pub(crate) async fn endpoints(source: &EndpointSource, tls: bool) -> Result<Vec<String>, StoreError> {
    let found = match source {
        EndpointSource::List(list) => list.clone(),
        EndpointSource::File(path) => {
            let size = std::fs::metadata(path).map_err(|e| error(format!("{}: {e}", path.display())))?.len();
            if size > ENDPOINT_FILE_MAX_BYTES {
                return Err(error(format!(
                    "{}: larger than {ENDPOINT_FILE_MAX_BYTES} bytes",
                    path.display()
                )));
            }
            let text =
                std::fs::read_to_string(path).map_err(|e| error(format!("{}: {e}", path.display())))?;
            parse_file(&text)
        }
        EndpointSource::Srv(domain) => srv(domain).await?,
        EndpointSource::Discovery { url, port } => {
            let (url, port) = (url.clone(), *port);
            let answer = tokio::task::spawn_blocking(move || http_get(&url).map(|text| (url, text)))
                .await
                .map_err(|e| error(e.to_string()))?;
            let (url, text) = answer?;
            parse_discovery(&text, port).map_err(|e| error(format!("{url}: {e}")))?
        }
    };
    if found.is_empty() {
        return Err(error(format!("none found in {source:?}")));
    }
    with_scheme(found, tls)
}

/// Whoever answers for a name, or writes the file, must not turn an encrypted connection into plain text.
fn with_scheme(found: Vec<String>, tls: bool) -> Result<Vec<String>, StoreError> {
    let scheme = if tls { "https" } else { "http" };
    let found = found.into_iter().map(|e| if e.contains("://") { e } else { format!("{scheme}://{e}") });
    let (usable, plain): (Vec<String>, Vec<String>) = found.partition(|e| !tls || e.starts_with("https://"));
    match plain.first() {
        Some(first) if usable.is_empty() => {
            Err(error(format!("TLS files are configured, but {first} is plain text; it is not tried")))
        }
        _ => Ok(usable),
    }
}

fn parse_file(text: &str) -> Vec<String> {
    let meaning = |line: &str| line.split('#').next().unwrap_or("").trim().to_owned();
    text.lines().map(meaning).filter(|line| !line.is_empty()).collect()
}

/// SRV names as etcdctl's `--discovery-srv` looks them up.
async fn srv(domain: &str) -> Result<Vec<String>, StoreError> {
    let resolver = hickory_resolver::TokioResolver::builder_tokio()
        .and_then(|builder| builder.build())
        .map_err(|e| error(format!("DNS: {e}")))?;
    let mut found = Vec::new();
    let mut last = String::new();
    for (service, scheme) in [("_etcd-client-ssl._tcp", "https"), ("_etcd-client._tcp", "http")] {
        match resolver.srv_lookup(format!("{service}.{domain}")).await {
            Ok(lookup) => {
                for record in lookup.answers() {
                    if let hickory_resolver::proto::rr::RData::SRV(srv) = &record.data {
                        let target = srv.target.to_utf8();
                        found.push(format!("{scheme}://{}:{}", target.trim_end_matches('.'), srv.port));
                    }
                }
            }
            Err(e) => last = e.to_string(),
        }
    }
    if found.is_empty() {
        return Err(error(format!("no SRV record _etcd-client._tcp.{domain}: {last}")));
    }
    Ok(found)
}

fn http_get(url: &str) -> Result<String, StoreError> {
    // Fails only if a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let agent: ureq::Agent = ureq::Agent::config_builder().timeout_global(Some(HTTP_TIMEOUT)).build().into();
    let mut answer = agent.get(url).call().map_err(|e| error(format!("{url}: {e}")))?;
    answer
        .body_mut()
        .with_config()
        .limit(ANSWER_MAX_BYTES)
        .read_to_string()
        .map_err(|e| error(format!("{url}: {e}")))
}

/// The answer of the discovery service: members register as `NAME=PEER_URL` under the token.
fn parse_discovery(text: &str, port: u16) -> Result<Vec<String>, String> {
    #[derive(serde::Deserialize)]
    struct Answer {
        node: Node,
    }
    #[derive(serde::Deserialize)]
    struct Node {
        #[serde(default)]
        value: String,
        #[serde(default)]
        nodes: Vec<Node>,
    }
    let answer: Answer =
        serde_json::from_str(text).map_err(|e| format!("not the answer of a discovery service: {e}"))?;
    let hosts: Vec<String> = answer.node.nodes.iter().filter_map(|n| host_of(&n.value)).collect();
    Ok(hosts.into_iter().map(|host| format!("{host}:{port}")).collect())
}

/// The host part of `NAME=scheme://host:port/…` or `scheme://host:port/…`, brackets kept.
fn host_of(value: &str) -> Option<String> {
    let (_, rest) = value.split_once("://")?;
    let authority = rest.split(['/', ',']).next()?;
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
        _ => authority,
    };
    (!host.is_empty()).then(|| host.to_owned())
}

/// Asks a discovery service for a new token: GET `<endpoint>/new`; the token is the last segment of the answer.
///
/// # Errors
/// The service cannot be reached or answers something else.
pub fn new_discovery_token(endpoint: &str) -> Result<String, StoreError> {
    let url = format!("{}/new", endpoint.trim_end_matches('/'));
    let text = http_get(&url)?;
    let token = text.trim().rsplit('/').next().unwrap_or("").to_owned();
    if token.is_empty() || !token.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Err(error(format!(
            "{url}: the answer {} is not a discovery URL",
            schema::names::quoted(&text)
        )));
    }
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_file_has_one_per_line() {
        assert_eq!(parse_file("# ours\nhttp://a:1\n\n b:2 # second\n"), ["http://a:1", "b:2"]);
    }

    #[test]
    fn plain_text_is_never_tried_where_there_are_tls_files() {
        let check = |found: &[&str], tls, expected: Option<&[&str]>| {
            let answer = with_scheme(found.iter().map(|e| (*e).to_owned()).collect(), tls).ok();
            assert_eq!(answer, expected.map(|e| e.iter().map(|e| (*e).to_owned()).collect()), "{found:?}");
        };
        check(
            &["a:1", "http://b:1", "https://c:1"],
            false,
            Some(&["http://a:1", "http://b:1", "https://c:1"]),
        );
        check(&["a:1", "http://b:1", "https://c:1"], true, Some(&["https://a:1", "https://c:1"]));
        check(&["http://b:1"], true, None);
    }

    #[test]
    fn a_discovery_answer_gives_the_hosts_on_our_port() {
        let text = r#"{"action":"get","node":{"key":"/_etcd/registry/T","dir":true,"nodes":[
            {"key":"a","value":"n1=http://10.0.0.1:2380"},
            {"key":"b","value":"http://10.0.0.2:7001/path"},
            {"key":"c","value":"n3=https://[fd00::3]:2380,https://10.0.0.3:2380"}]}}"#;
        assert_eq!(
            parse_discovery(text, 2379).unwrap(),
            ["10.0.0.1:2379", "10.0.0.2:2379", "[fd00::3]:2379"]
        );
        parse_discovery("<html>", 2379).unwrap_err();
    }
}
