//! The catalog over HTTP.

use super::shared::{Connection, Shared};
use crate::catalog::CatalogSnapshot;
use crate::checks::CheckView;
use axum::Extension;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use catalog::{Claim, Instance};
use http_server::{ErrorResponse, json_body};
use schema::health::Level;
use schema::names::{ConfigName, HostName, ServiceName, Tag};
use schema::time::parse_duration;
use serde::Deserialize;
use serde_json::{Value, json};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Longest wait of a request for a change of the catalog.
const WAIT_MAX: Duration = Duration::from_secs(300);
/// How long the first request for a service waits for its health, and the first request for a value
/// of operators waits for the values.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);

/// The query parameters of a request.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ServiceQuery {
    level: Option<String>,
    tag: Option<String>,
    /// The index of an earlier answer: the request waits until the catalog differs from it.
    index: Option<u64>,
    /// The longest wait, as a duration.
    wait: Option<String>,
    /// The service, for `http_sd`.
    service: Option<String>,
}

fn refused(error: impl std::fmt::Display) -> ErrorResponse {
    ErrorResponse::Rejected(StatusCode::BAD_REQUEST, error.to_string())
}

impl ServiceQuery {
    fn level(&self, default: Level) -> Result<Level, ErrorResponse> {
        self.level.as_deref().map_or(Ok(default), str::parse).map_err(refused)
    }

    fn tag(&self) -> Result<Option<Tag>, ErrorResponse> {
        self.tag.clone().map(Tag::new).transpose().map_err(refused)
    }

    /// Returns the current snapshot. If the request asks for it, waits for a change first.
    async fn newest(
        &self,
        shared: &Shared,
        client: Arc<Connection>,
    ) -> Result<Arc<CatalogSnapshot>, ErrorResponse> {
        let wait = self.wait.as_deref().map(parse_duration).transpose().map_err(refused)?;
        let (Some(index), Some(wait)) = (self.index, wait) else { return Ok(shared.reader.snapshot()) };
        let mut changes = shared.reader.changes();
        // The revision is not compared, because the changes of one transaction may arrive in two
        // parts with the same revision.
        let is_newer = |shown: &Arc<CatalogSnapshot>| shown.generation != index;
        if !is_newer(&shared.reader.snapshot()) {
            let _waiting = client.wait()?;
            // If the time is over, the answer is the current snapshot as well.
            let _ = tokio::time::timeout(wait.min(WAIT_MAX), changes.wait_for(is_newer)).await;
        }
        Ok(shared.reader.snapshot())
    }
}

/// Returns the answer that is shared by all clients with the same request.
async fn answer(
    shared: &Shared,
    shown: &Arc<CatalogSnapshot>,
    question: String,
    name: &'static str,
    list: impl FnOnce(&CatalogSnapshot) -> Value + Send + 'static,
) -> Result<Response, ErrorResponse> {
    let (age, to_render) = (shared.reader.age().as_secs(), shown.clone());
    let moment = (shown.generation, shown.revision, age);
    let render = move || {
        let shown = to_render;
        let body = json!({
            name: list(&shown), "index": shown.generation, "revision": shown.revision, "age_seconds": age,
        });
        body.to_string().into_bytes()
    };
    let (body, _) = shared.answers.cached_body(moment, question, render).await?;
    Ok(with_age(shown, age, body))
}

fn with_age(shown: &CatalogSnapshot, age: u64, body: Bytes) -> Response {
    let headers = [
        (HeaderName::from_static("x-orchestrate-revision"), shown.revision.to_string()),
        (HeaderName::from_static("x-orchestrate-age-seconds"), age.to_string()),
    ];
    (headers, json_body(body)).into_response()
}

fn not_read_yet() -> ErrorResponse {
    ErrorResponse::Rejected(StatusCode::SERVICE_UNAVAILABLE, "the catalog has not been read yet".into())
}

fn unknown_service(name: &ServiceName) -> ErrorResponse {
    ErrorResponse::Rejected(StatusCode::NOT_FOUND, format!("no host has {name}"))
}

/// Lists every service with the numbers of its instances.
pub(super) async fn services(
    State(shared): State<Shared>,
    Extension(client): Extension<Arc<Connection>>,
    Query(wanted): Query<ServiceQuery>,
) -> Result<Response, ErrorResponse> {
    let shown = wanted.newest(&shared, client).await?;
    if !shown.view.records_known() {
        return Err(not_read_yet());
    }
    answer(&shared, &shown, "services".into(), "services", list_services).await
}

fn list_services(shown: &CatalogSnapshot) -> Value {
    let services = shown.view.services().iter().map(|(name, service)| {
        // Functional instances cannot be counted if the health of the service is not followed here.
        let functional = shown.view.health_known(name).then(|| service.at(Level::Functional, None).count());
        let addressable = service.at(Level::Addressable, None).count();
        json!({ "service": name, "addressable": addressable, "functional": functional })
    });
    services.collect()
}

fn instance(host: &HostName, instance: &Instance) -> Value {
    let record = &instance.record;
    let interfaces: serde_json::Map<String, Value> =
        record.interfaces.iter().map(|(name, list)| (name.to_string(), json!(list))).collect();
    json!({
        "host": host,
        "addresses": record.addresses,
        "interfaces": interfaces,
        "port": record.port,
        "tags": record.tags,
        "meta": record.meta,
        "health": instance.health_str(),
        "retained": instance.retained,
    })
}

/// Lists the instances of one service.
pub(super) async fn service(
    State(shared): State<Shared>,
    Extension(client): Extension<Arc<Connection>>,
    Path(name): Path<String>,
    Query(wanted): Query<ServiceQuery>,
) -> Result<Response, ErrorResponse> {
    let name = ServiceName::new(name).map_err(refused)?;
    let (level, tag) = (wanted.level(Level::Addressable)?, wanted.tag()?);
    let is_there =
        |shown: &CatalogSnapshot| !shown.view.records_known() || shown.view.service(&name).is_some();
    if !is_there(&shared.reader.snapshot()) {
        // A service that no host has is not followed, because any user of this machine may ask for
        // any name.
        return Err(unknown_service(&name));
    }
    shared.reader.with_health(&name, HEALTH_TIMEOUT).await;
    let shown = wanted.newest(&shared, client).await?;
    if !shown.view.records_known() || !shown.view.health_known(&name) {
        return Err(not_read_yet());
    }
    if shown.view.service(&name).is_none() {
        return Err(unknown_service(&name));
    }
    let list = {
        let (name, tag) = (name.clone(), tag.clone());
        move |shown: &CatalogSnapshot| -> Value {
            let found = shown.view.service(&name).into_iter();
            let found = found.flat_map(|service| service.at(level, tag.as_ref()));
            found.map(|(host, found)| instance(host, found)).collect()
        }
    };
    answer(&shared, &shown, question("instances", &name, level, tag.as_ref()), "instances", list).await
}

fn question(what: &str, name: &ServiceName, level: Level, tag: Option<&Tag>) -> String {
    // Names contain no blanks. A tag may contain them, so it comes last.
    format!("{what} {name} {level:?} {tag:?}")
}

/// Lists every host that has a service, with its addresses.
pub(super) async fn nodes(
    State(shared): State<Shared>,
    Extension(client): Extension<Arc<Connection>>,
    Query(wanted): Query<ServiceQuery>,
) -> Result<Response, ErrorResponse> {
    let shown = wanted.newest(&shared, client).await?;
    if !shown.view.records_known() {
        return Err(not_read_yet());
    }
    answer(&shared, &shown, "nodes".into(), "nodes", list_nodes).await
}

fn list_nodes(shown: &CatalogSnapshot) -> Value {
    let nodes = shown.view.nodes();
    let hosts = nodes.hosts().into_iter();
    hosts
        .map(|host| json!({ "host": host, "addresses": nodes.addresses(host).collect::<Vec<_>>() }))
        .collect()
}

/// Shows one host with its addresses, even if it has no service.
pub(super) async fn node(
    State(shared): State<Shared>,
    Path(name): Path<String>,
) -> Result<Response, ErrorResponse> {
    let host = HostName::folded(name).map_err(refused)?;
    let shown = shared.reader.snapshot();
    let mut addresses: Vec<IpAddr> = shown.view.nodes().addresses(&host).collect();
    if addresses.is_empty() {
        match shared.reader.claim(&host).await {
            Claim::Of(claimed) => addresses = claimed.to_vec(),
            Claim::Nobody if shown.view.records_known() => {
                let why = format!("{host} has no service, and no agent runs there");
                return Err(ErrorResponse::Rejected(StatusCode::NOT_FOUND, why));
            }
            Claim::Nobody => return Err(not_read_yet()),
            Claim::Unknown => {
                let why = format!("{host} has no service, and its claim cannot be read");
                return Err(ErrorResponse::Rejected(StatusCode::SERVICE_UNAVAILABLE, why));
            }
        }
    }
    // The claim is not part of the catalog and changes independently of it, so the answer is not
    // shared.
    let age = shared.reader.age().as_secs();
    let body = json!({
        "node": { "host": host, "addresses": addresses },
        "index": shown.generation,
        "revision": shown.revision,
        "age_seconds": age,
    });
    Ok(with_age(&shown, age, body.to_string().into_bytes().into()))
}

/// Shows a value that operators keep in the store.
pub(super) async fn config(
    State(shared): State<Shared>,
    Path(name): Path<String>,
) -> Result<Response, ErrorResponse> {
    let name = ConfigName::new(name).map_err(refused)?;
    let shown = shared.reader.with_config(HEALTH_TIMEOUT).await;
    // The answer includes the age of the catalog. If there is no value, the age tells whether none
    // exists or none is known.
    let value = match shown.config.as_ref().ok_or_else(not_read_yet)?.get(&name) {
        Some(Err(error)) => {
            return Err(ErrorResponse::Rejected(
                StatusCode::BAD_GATEWAY,
                format!("the value of {name}: {error}"),
            ));
        }
        found => found.and_then(|value| value.as_ref().ok()),
    };
    let age = shared.reader.age().as_secs();
    let body = json!({
        "value": value, "index": shown.generation, "revision": shown.revision, "age_seconds": age,
    });
    Ok(with_age(&shown, age, shared.answers.body(&body).await?))
}

/// Lists the checks of this host without their output, because any user of the machine may ask on
/// TCP.
pub(super) async fn checks(State(shared): State<Shared>) -> Result<Response, ErrorResponse> {
    list_checks(&shared, |_| None).await
}

/// Lists the checks of this host with their output, from which secrets are removed.
pub(super) async fn checks_with_output(State(shared): State<Shared>) -> Result<Response, ErrorResponse> {
    list_checks(&shared, |output| Some(shared.secrets.redact_check(output))).await
}

async fn list_checks(
    shared: &Shared,
    output: impl Fn(&str) -> Option<String>,
) -> Result<Response, ErrorResponse> {
    let show = |check: CheckView| {
        let mut value = json!({
            "id": check.id, "name": check.name, "service": check.service,
            "status": check.state.status, "is_known": check.state.is_known,
        });
        if let Some(output) = output(&check.state.output) {
            value["output"] = output.into();
        }
        value
    };
    let checks: Vec<Value> = shared.registry.all().into_iter().map(show).collect();
    Ok(json_body(shared.answers.body(&json!({ "checks": checks })).await?))
}

/// Lists targets for Prometheus (HTTP service discovery). The answer is always the complete list.
/// If the list is not known, the answer is an error, because Prometheus then keeps the list that it
/// has.
pub(super) async fn http_sd(
    State(shared): State<Shared>,
    Query(wanted): Query<ServiceQuery>,
) -> Result<Response, ErrorResponse> {
    let name = wanted.service.as_deref().ok_or_else(|| refused("service=NAME is missing"))?;
    let name = ServiceName::new(name).map_err(refused)?;
    let (level, tag) = (wanted.level(Level::Addressable)?, wanted.tag()?);
    let shown = shared.reader.snapshot();
    if shown.view.records_known() && shown.view.service(&name).is_none() {
        return Ok(json_body(Bytes::from_static(b"[]")));
    }
    let shown = shared.reader.with_health(&name, HEALTH_TIMEOUT).await;
    if !shown.view.records_known() || !shown.view.health_known(&name) {
        return Err(not_read_yet());
    }
    // The answer does not contain the age, so it is the same at every age.
    let moment = (shown.generation, shown.revision, 0);
    let question = question("targets", &name, level, tag.as_ref());
    let render = move || targets(&shown, &name, level, tag.as_ref()).to_string().into_bytes();
    Ok(json_body(shared.answers.cached_body(moment, question, render).await?.0))
}

fn targets(shown: &CatalogSnapshot, name: &ServiceName, level: Level, tag: Option<&Tag>) -> Value {
    let service = shown.view.service(name);
    let groups = service.into_iter().flat_map(|service| service.at(level, tag));
    let groups = groups.filter_map(|(host, found)| {
        let (port, address) = (found.record.port?, found.record.addresses.first()?);
        let target = match address {
            IpAddr::V4(ip) => format!("{ip}:{port}"),
            IpAddr::V6(ip) => format!("[{ip}]:{port}"),
        };
        let tags: Vec<&str> = found.record.tags.iter().map(Tag::as_str).collect();
        Some(json!({
            "targets": [target],
            "labels": {
                "__meta_orchestrate_service": name,
                "__meta_orchestrate_host": host,
                "__meta_orchestrate_health": found.health_str(),
                // As in Prometheus itself, a separator at both ends makes a tag easy to match.
                "__meta_orchestrate_tags": format!(",{},", tags.join(",")),
            },
        }))
    });
    groups.collect()
}
