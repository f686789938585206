//! Where the store is, by the options and by default.

use crate::options::GlobalOptions;
use etcd_session::{DEFAULT_DISCOVERY_URL, EndpointSource};

const DEFAULT_HOST: &str = "127.0.0.1";
const DEFAULT_PORT: u16 = 2379;

/// Returns the endpoints that are used if none are given.
pub(crate) fn by_default() -> EndpointSource {
    EndpointSource::List(vec![default_endpoint()])
}

/// Returns the endpoint that is asked if none is given.
pub(crate) fn default_endpoint() -> String {
    format!("{DEFAULT_HOST}:{DEFAULT_PORT}")
}

/// True if something accepts connections at the default endpoint.
pub(crate) fn somebody_listens_here() -> bool {
    std::net::TcpStream::connect((DEFAULT_HOST, DEFAULT_PORT)).is_ok()
}

/// Reads endpoints that are separated by commas.
pub(crate) fn list(text: &str) -> EndpointSource {
    EndpointSource::List(
        text.split(',').map(str::trim).filter(|e| !e.is_empty()).map(str::to_owned).collect(),
    )
}

/// Returns the source of the endpoints that the options name, apart from `--host` and `--port`; `None` if they name
/// none. The options of the original tool come last.
pub(crate) fn named(options: &GlobalOptions) -> Option<EndpointSource> {
    if let Some(text) = &options.endpoints {
        return Some(list(text));
    }
    if let Some(path) = &options.endpoints_file {
        return Some(EndpointSource::File(path.clone()));
    }
    if let Some(domain) = &options.discovery_srv {
        return Some(EndpointSource::Srv(domain.clone()));
    }
    let port = options.store_port.unwrap_or(DEFAULT_PORT);
    if let Some(url) = &options.discovery_url {
        return Some(EndpointSource::Discovery { url: url.clone(), port });
    }
    let token = options.discovery_token.as_deref().map(str::trim).filter(|token| !token.is_empty())?;
    Some(EndpointSource::Discovery { url: format!("{DEFAULT_DISCOVERY_URL}{token}"), port })
}

/// Returns the host of the store by `--host`; `None` if it is not given or is empty.
pub(crate) fn host(options: &GlobalOptions) -> Option<&str> {
    options.store_host.as_deref().filter(|host| !host.is_empty())
}

/// Returns the endpoint by `--host` and `--port`; `None` if neither is given.
pub(crate) fn by_host_and_port(options: &GlobalOptions) -> Option<EndpointSource> {
    let (host, port) = (host(options), options.store_port);
    if host.is_none() && port.is_none() {
        return None;
    }
    let (host, port) = (host.unwrap_or(DEFAULT_HOST), port.unwrap_or(DEFAULT_PORT));
    let is_bare_ipv6 = host.parse::<std::net::Ipv6Addr>().is_ok();
    let endpoint = if is_bare_ipv6 { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    Some(EndpointSource::List(vec![endpoint]))
}
