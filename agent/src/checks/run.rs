//! One run of one check.

use crate::environment::CommandEnvironment;
use catalog::checks::OUTPUT_MAX_BYTES;
use catalog::definitions::{CheckDefinition, CheckKind};
use commands::End;
use schema::health::CheckStatus;
use std::io::Read;
use std::time::Duration;

/// Runs a check and returns its status and output; `None` for a TTL check, whose results are
/// reported from outside.
pub(super) async fn run(
    definition: &CheckDefinition,
    environment: &CommandEnvironment,
) -> Option<(CheckStatus, String)> {
    let limit = definition.timeout;
    match &definition.kind {
        CheckKind::Ttl => None,
        CheckKind::Command { arguments } => {
            let environment = environment.with([("ORCHESTRATE_CHECK", definition.id.to_string())]).await;
            let outcome = commands::run(arguments, &environment, b"", limit, OUTPUT_MAX_BYTES).await;
            let status = match outcome.end {
                End::Exited(0) => CheckStatus::Passing,
                End::Exited(1) => CheckStatus::Warning,
                _ => CheckStatus::Critical,
            };
            let output = match outcome.end {
                End::Exited(_) => outcome.output,
                _ => outcome.describe(),
            };
            Some((status, output))
        }
        CheckKind::Tcp { address } => {
            let connecting = tokio::net::TcpStream::connect(address.as_str());
            Some(match tokio::time::timeout(limit, connecting).await {
                Ok(Ok(_)) => (CheckStatus::Passing, format!("connected to {address}")),
                Ok(Err(error)) => (CheckStatus::Critical, format!("{address}: {error}")),
                Err(_) => (CheckStatus::Critical, format!("{address}: no connection within {limit:?}")),
            })
        }
        CheckKind::Http { .. } => {
            let kind = definition.kind.clone();
            let asking = tokio::task::spawn_blocking(move || ask(&kind, limit));
            Some(asking.await.unwrap_or_else(|error| (CheckStatus::Critical, error.to_string())))
        }
    }
}

/// Sends the request of an HTTP check: status 2xx is passing, 429 is warning, everything else is
/// critical.
fn ask(kind: &CheckKind, limit: Duration) -> (CheckStatus, String) {
    let CheckKind::Http { url, method, headers, body, skip_verify } = kind else {
        return (CheckStatus::Critical, "not a check of this kind".into());
    };
    let tls = ureq::tls::TlsConfig::builder()
        .provider(ureq::tls::TlsProvider::Rustls)
        .unversioned_rustls_crypto_provider(std::sync::Arc::new(rustls::crypto::ring::default_provider()))
        .disable_verification(*skip_verify)
        .build();
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_global(Some(limit))
        .http_status_as_error(false)
        .tls_config(tls)
        .build()
        .into();
    let mut request = ureq::http::Request::builder().method(method.as_str()).uri(url.as_str());
    for (name, value) in headers {
        request = request.header(name.as_str(), value.as_str());
    }
    let request = match request.body(body.clone()) {
        Ok(request) => request,
        Err(error) => return (CheckStatus::Critical, format!("{url}: {error}")),
    };
    match agent.run(request) {
        Ok(mut answer) => {
            let code = answer.status().as_u16();
            let mut text = Vec::new();
            // The status code counts even if the body cannot be read.
            let _ = answer.body_mut().as_reader().take(OUTPUT_MAX_BYTES as u64).read_to_end(&mut text);
            let status = match code {
                200..=299 => CheckStatus::Passing,
                429 => CheckStatus::Warning,
                _ => CheckStatus::Critical,
            };
            (status, format!("HTTP {method} {url}: {code}\n{}", String::from_utf8_lossy(&text)))
        }
        Err(error) => (CheckStatus::Critical, format!("{url}: {error}")),
    }
}
