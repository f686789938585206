//! Finds endpoints: from a list, a file, DNS SRV records, or an etcd discovery URL.

use crate::config::EndpointSource;
use crate::error::StoreError;
use std::time::Duration;

/// Public etcd discovery service, which the legacy tool used for tokens. The service no longer
/// exists.
pub const DEFAULT_DISCOVERY_URL: &str = "https://discovery.etcd.io/";
const HTTP_TIMEOUT: Duration = Duration::from_secs(10);
const ANSWER_MAX_BYTES: u64 = 1024 * 1024;
const ENDPOINT_FILE_MAX_BYTES: u64 = 64 * 1024;

fn error(detail: String) -> StoreError {
    StoreError::Endpoints { detail }
}

/// Looks up the endpoints and returns each with a scheme. An endpoint without a scheme gets `https`
/// if `tls` is true, else `http`.
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
        let place = match source {
            EndpointSource::File(path) => format!("{} has none", path.display()),
            EndpointSource::Srv(domain) => format!("{domain} has none"),
            EndpointSource::List(_) | EndpointSource::Discovery { .. } => "there is none".to_owned(),
        };
        return Err(error(place));
    }
    with_scheme(found, tls)
}

/// Adds missing schemes and, with TLS, drops plain-text endpoints: neither a DNS server nor the
/// author of an endpoint file may turn an encrypted connection into a plain-text one.
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

/// Looks up the SRV names that etcdctl uses for `--discovery-srv`.
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
    // This fails only if a provider is already installed.
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

/// Parses the answer of the discovery service, in which members are registered as `NAME=PEER_URL`
/// under the token. Returns the hosts with the given port.
fn parse_discovery(text: &str, port: u16) -> Result<Vec<String>, String> {
    #[derive(serde::Deserialize)]
    struct DiscoveryAnswer {
        node: Node,
    }
    #[derive(serde::Deserialize)]
    struct Node {
        #[serde(default)]
        value: String,
        #[serde(default)]
        nodes: Vec<Node>,
    }
    let answer: DiscoveryAnswer =
        serde_json::from_str(text).map_err(|e| format!("not the answer of a discovery service: {e}"))?;
    let hosts: Vec<String> = answer.node.nodes.iter().filter_map(|n| host_of(&n.value)).collect();
    Ok(hosts.into_iter().map(|host| format!("{host}:{port}")).collect())
}

/// Returns the host part of `NAME=scheme://host:port/…` or `scheme://host:port/…`, including
/// brackets.
fn host_of(value: &str) -> Option<String> {
    let (_, rest) = value.split_once("://")?;
    let authority = rest.split(['/', ',']).next()?;
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
        _ => authority,
    };
    (!host.is_empty()).then(|| host.to_owned())
}

/// Requests a new token from a discovery service by GET `<endpoint>/new`. The token is the last
/// path segment of the answer.
///
/// # Errors
/// Returns an error if the service cannot be reached or its answer is not a discovery URL.
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
