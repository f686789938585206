//! The names by which clients may ask a server.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// What a client may call the server.
#[derive(Debug)]
pub struct OwnNames {
    /// The address on which it listens.
    pub address: IpAddr,
    /// Names besides `localhost`.
    pub names: Vec<String>,
    /// The answer to a request by another name.
    pub refusal: (StatusCode, &'static str),
}

/// Rejects a request unless its Host header is one of the server's own names. Otherwise a page in a browser could read
/// the answers by a name that it made point to this host (DNS rebinding).
pub async fn require_own_name(State(own): State<Arc<OwnNames>>, request: Request, next: Next) -> Response {
    if is_asked(request.headers(), request.version(), &own) {
        return next.run(request).await;
    }
    own.refusal.into_response()
}

/// True if a request uses no name of others. One of HTTP/1.0 need not have a Host header; load balancers check servers
/// in this way. No browser asks so.
fn is_asked(headers: &HeaderMap, version: Version, own: &OwnNames) -> bool {
    match headers.get(header::HOST) {
        Some(host) => host.to_str().is_ok_and(|host| is_own(host, own)),
        None => version <= Version::HTTP_10,
    }
}

/// True if the Host header is a local address or one of the names, alone or with a port.
fn is_own(host: &str, OwnNames { address: bound, names, .. }: &OwnNames) -> bool {
    let is_port = |text: &str| text.bytes().all(|b| b.is_ascii_digit()) && text.parse::<u16>().is_ok();
    let is_mine = |a: IpAddr| a.is_loopback() || a == *bound || bound.is_unspecified();
    if let Some((address, rest)) = host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        let has_port = rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port);
        return has_port && address.parse::<Ipv6Addr>().is_ok_and(|a| is_mine(a.into()));
    }
    let (name, has_port) = host.split_once(':').map_or((host, true), |(name, port)| (name, is_port(port)));
    let is_address = name.parse::<Ipv4Addr>().is_ok_and(|a| is_mine(a.into()));
    let is_name = |own: &str| name.eq_ignore_ascii_case(own);
    has_port && (is_address || is_name("localhost") || names.iter().any(|own| is_name(own)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_header_is_a_local_address_or_an_own_name_with_a_port_or_none() {
        let own = |address: [u8; 4]| {
            let names = ["web-1", "web-1.example.org"].map(str::to_owned);
            let refusal = (StatusCode::FORBIDDEN, "no");
            OwnNames { address: IpAddr::from(address), names: names.into(), refusal }
        };
        for (host, expected) in [
            ("localhost", true),
            ("LOCALHOST:8580", true),
            ("127.0.0.1", true),
            ("127.0.0.1:80", true),
            ("10.0.0.5:80", true),
            ("[::1]", true),
            ("[::1]:80", true),
            ("", false),
            ("evil.example", false),
            ("10.0.0.6", false),
            ("localhost:80@evil.com", false),
            ("localhost:99999", false),
            ("localhost:", false),
            ("localhost:+80", false),
            ("localhost:80:80", false),
            ("user@localhost", false),
            ("[::1]x", false),
            ("[::1]:x", false),
            ("[127.0.0.1]", false),
            ("[::1", false),
            ("localhost.", false),
            ("web-1", true),
            ("WEB-1:8580", true),
            ("web-1.example.org:8580", true),
            ("web-1.evil.example", false),
            ("web-2", false),
        ] {
            assert_eq!(is_own(host, &own([10, 0, 0, 5])), expected, "{host}");
        }
        assert!(is_own("10.0.0.6", &own([0, 0, 0, 0])), "bound to every address");
    }

    #[test]
    fn only_a_request_of_http_1_0_needs_no_host_header() {
        let refusal = (StatusCode::FORBIDDEN, "no");
        let own = OwnNames { address: IpAddr::from([127, 0, 0, 1]), names: Vec::new(), refusal };
        for (host, version, expected) in [
            (None, Version::HTTP_10, true),
            (None, Version::HTTP_11, false),
            (Some("localhost"), Version::HTTP_10, true),
            (Some("evil.example"), Version::HTTP_10, false),
            (Some(""), Version::HTTP_10, false),
        ] {
            let headers = host.map(|host| (header::HOST, host.parse().unwrap()));
            assert_eq!(
                is_asked(&headers.into_iter().collect(), version, &own),
                expected,
                "{host:?} {version:?}"
            );
        }
    }
}
