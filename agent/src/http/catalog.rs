//! The catalog over HTTP.

use super::Shared;
use crate::catalog::Shown;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderName, StatusCode};
use axum::response::{IntoResponse, Json, Response};
use model::catalog::{Claim, Instance, Level};
use model::names::{ConfigName, HostName, ServiceName, Tag};
use model::time::parse_duration;
use serde::Deserialize;
use serde_json::{Value, json};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// A question waits at most this long.
const WAIT_MAX: Duration = Duration::from_secs(300);
/// How long a first question waits for the health of its service.
const HEALTH_WITHIN: Duration = Duration::from_secs(5);

/// What a client may ask for.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Wanted {
    level: Option<String>,
    tag: Option<String>,
    /// Answer when the catalog differs from the one of this index,
    index: Option<u64>,
    /// or when so much time is over.
    wait: Option<String>,
    /// For `http_sd`: this service.
    service: Option<String>,
}

type Refusal = (StatusCode, String);

fn refused(error: impl std::fmt::Display) -> Refusal {
    (StatusCode::BAD_REQUEST, format!("{error}\n"))
}

impl Wanted {
    fn level(&self, default: Level) -> Result<Level, Refusal> {
        self.level.as_deref().map_or(Ok(default), str::parse).map_err(refused)
    }

    fn tag(&self) -> Result<Option<Tag>, Refusal> {
        self.tag.clone().map(Tag::new).transpose().map_err(refused)
    }

    /// Waits for something newer, if that is asked for.
    async fn newest(&self, shared: &Shared) -> Result<Arc<Shown>, Refusal> {
        let wait = self.wait.as_deref().map(parse_duration).transpose().map_err(refused)?;
        let (Some(index), Some(wait)) = (self.index, wait) else { return Ok(shared.reader.shown()) };
        let mut changes = shared.reader.changes();
        // Not the revision: what one transaction wrote may come in two parts, and both have the same.
        let is_newer = |shown: &Arc<Shown>| shown.generation != index;
        // In time or not, what there is then is the answer.
        let _ = tokio::time::timeout(wait.min(WAIT_MAX), changes.wait_for(is_newer)).await;
        Ok(shared.reader.shown())
    }
}

fn answer(shared: &Shared, shown: &Shown, name: &'static str, value: Value) -> Response {
    let age = shared.reader.age().as_secs();
    let headers = [
        (HeaderName::from_static("x-orchestrate-revision"), shown.revision.to_string()),
        (HeaderName::from_static("x-orchestrate-age-seconds"), age.to_string()),
    ];
    let body = json!({
        name: value, "index": shown.generation, "revision": shown.revision, "age_seconds": age,
    });
    (headers, Json(body)).into_response()
}

fn not_known_yet() -> Refusal {
    (StatusCode::SERVICE_UNAVAILABLE, "the catalog has not been read yet\n".into())
}

/// Every service with how many instances it has.
pub(super) async fn services(
    State(shared): State<Shared>,
    Query(wanted): Query<Wanted>,
) -> Result<Response, Refusal> {
    let shown = wanted.newest(&shared).await?;
    if !shown.view.records_known() {
        return Err(not_known_yet());
    }
    let services: Vec<Value> = shown
        .view
        .services()
        .iter()
        .map(|(name, service)| {
            // Whose health is not followed here cannot be counted.
            let functional =
                shown.view.health_known(name).then(|| service.at(Level::Functional, None).count());
            let addressable = service.at(Level::Addressable, None).count();
            json!({ "service": name, "addressable": addressable, "functional": functional })
        })
        .collect();
    Ok(answer(&shared, &shown, "services", services.into()))
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
        "health": instance.word(),
        "withheld": instance.withheld,
    })
}

/// The instances of one service.
pub(super) async fn service(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    Query(wanted): Query<Wanted>,
) -> Result<Response, Refusal> {
    let name = ServiceName::new(name).map_err(refused)?;
    let (level, tag) = (wanted.level(Level::Addressable)?, wanted.tag()?);
    let is_there = |shown: &Shown| !shown.view.records_known() || shown.view.service(&name).is_some();
    if !is_there(&shared.reader.shown()) {
        // What nobody has is not followed: anybody on this machine may ask for any name.
        return Err((StatusCode::NOT_FOUND, format!("no host has {name}\n")));
    }
    shared.reader.with_health(&name, HEALTH_WITHIN).await;
    let shown = wanted.newest(&shared).await?;
    if !shown.view.records_known() || !shown.view.health_known(&name) {
        return Err(not_known_yet());
    }
    let Some(service) = shown.view.service(&name) else {
        return Err((StatusCode::NOT_FOUND, format!("no host has {name}\n")));
    };
    let instances: Vec<Value> =
        service.at(level, tag.as_ref()).map(|(host, found)| instance(host, found)).collect();
    Ok(answer(&shared, &shown, "instances", instances.into()))
}

/// Every host that has a service, with its addresses.
pub(super) async fn nodes(
    State(shared): State<Shared>,
    Query(wanted): Query<Wanted>,
) -> Result<Response, Refusal> {
    let shown = wanted.newest(&shared).await?;
    if !shown.view.records_known() {
        return Err(not_known_yet());
    }
    let nodes = shown.view.nodes();
    let list: Vec<Value> = nodes
        .hosts()
        .into_iter()
        .map(|host| json!({ "host": host, "addresses": nodes.addresses(host).collect::<Vec<_>>() }))
        .collect();
    Ok(answer(&shared, &shown, "nodes", list.into()))
}

/// One host with its addresses; also one that has no service.
pub(super) async fn node(
    State(shared): State<Shared>,
    Path(name): Path<String>,
) -> Result<Response, Refusal> {
    let host = HostName::new(name).map_err(refused)?;
    let shown = shared.reader.shown();
    let mut addresses: Vec<IpAddr> = shown.view.nodes().addresses(&host).collect();
    if addresses.is_empty() {
        match shared.reader.claim(&host).await {
            Claim::Of(claimed) => addresses = claimed.to_vec(),
            Claim::Nobody if shown.view.records_known() => {
                return Err((StatusCode::NOT_FOUND, format!("{host} has no service and does not live\n")));
            }
            Claim::Nobody => return Err(not_known_yet()),
            Claim::Unknown => {
                let why = format!("{host} has no service, and its claim cannot be read\n");
                return Err((StatusCode::SERVICE_UNAVAILABLE, why));
            }
        }
    }
    Ok(answer(&shared, &shown, "node", json!({ "host": host, "addresses": addresses })))
}

/// A value that operators keep in the store.
pub(super) async fn config(
    State(shared): State<Shared>,
    Path(name): Path<String>,
) -> Result<Response, Refusal> {
    let name = ConfigName::new(name).map_err(refused)?;
    let shown = shared.reader.with_config(HEALTH_WITHIN).await;
    match shown.config.as_ref().ok_or_else(not_known_yet)?.get(&name) {
        Some(Ok(value)) => Ok(answer(&shared, &shown, "value", value.as_str().into())),
        // With its age, which tells whether there is none or none is known.
        None => Ok(answer(&shared, &shown, "value", Value::Null)),
        Some(Err(error)) => Err((StatusCode::BAD_GATEWAY, format!("the value of {name}: {error}\n"))),
    }
}

/// The checks of this host.
pub(super) async fn checks(State(shared): State<Shared>) -> Json<Value> {
    Json(json!({ "checks": shared.board.shown() }))
}

/// Targets for Prometheus (its HTTP service discovery): always the whole list; where the list is not known, an
/// error, because then Prometheus keeps what it has.
pub(super) async fn http_sd(
    State(shared): State<Shared>,
    Query(wanted): Query<Wanted>,
) -> Result<Json<Value>, Refusal> {
    let name = wanted.service.as_deref().ok_or_else(|| refused("service=NAME is missing"))?;
    let name = ServiceName::new(name).map_err(refused)?;
    let (level, tag) = (wanted.level(Level::Addressable)?, wanted.tag()?);
    let shown = shared.reader.shown();
    if shown.view.records_known() && shown.view.service(&name).is_none() {
        return Ok(Json(Value::Array(Vec::new())));
    }
    let shown = shared.reader.with_health(&name, HEALTH_WITHIN).await;
    if !shown.view.records_known() || !shown.view.health_known(&name) {
        return Err(not_known_yet());
    }
    let service = shown.view.service(&name);
    let groups = service.into_iter().flat_map(|service| service.at(level, tag.as_ref()));
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
                "__meta_orchestrate_health": found.word(),
                // As Prometheus does it: a separator at both ends makes a tag easy to match.
                "__meta_orchestrate_tags": format!(",{},", tags.join(",")),
            },
        }))
    });
    Ok(Json(Value::Array(groups.collect())))
}
