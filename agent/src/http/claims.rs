//! Claims of limits for programs of this machine: the FleetLock protocol, which zincati and other clients
//! speak before they reboot, and the requests of `orchestrate with-claim`.
//!
//! FleetLock: <https://coreos.github.io/zincati/development/fleetlock/protocol/>. Every answer but 200 means
//! no, with `kind` and `value` as JSON. The group of a client is checked and not used: the limits of the
//! rollout policy say who counts together.

use super::shared::Shared;
use crate::local_claims::ClaimRefusal;
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use schema::names::Token;
use schema::records::Purpose;
use schema::why_not::{LimitDetail, WhyNot};
use serde::Deserialize;
use serde_json::json;

/// The header that every request of the protocol has.
const HEADER: &str = "fleet-lock-protocol";

#[derive(Debug)]
pub(super) struct Refused {
    code: StatusCode,
    /// One of few words, for metrics of clients.
    kind: &'static str,
    value: String,
    /// The lock that the client is to take.
    lock: Option<String>,
}

impl Refused {
    fn bad_request(kind: &'static str, value: impl Into<String>) -> Self {
        Self { code: StatusCode::BAD_REQUEST, kind, value: value.into(), lock: None }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let mut body = json!({ "kind": self.kind, "value": self.value });
        if let Some(lock) = self.lock {
            body["lock"] = lock.into();
        }
        (self.code, Json(body)).into_response()
    }
}

impl From<ClaimRefusal> for Refused {
    fn from(refusal: ClaimRefusal) -> Self {
        let (code, kind, value, lock) = match refusal {
            ClaimRefusal::HeldBack(obstacle) => {
                let kind = match &obstacle {
                    WhyNot::Limit { detail: LimitDetail::Queue { .. }, .. } => "failed_lock_not_its_turn",
                    WhyNot::Limit { .. } => "failed_lock_semaphore_full",
                    WhyNot::Frozen(_) => "failed_lock_frozen",
                    WhyNot::NotRead | WhyNot::NoRecord => "failed_lock_try_again",
                    // Halts, stages and windows are about the version: no request meets one.
                    _ => "failed_lock_unusable",
                };
                (StatusCode::CONFLICT, kind, obstacle.detail(), None)
            }
            ClaimRefusal::NotLocked(path) => {
                let value = "nobody holds the lock of the command".to_owned();
                (StatusCode::CONFLICT, "not_locked", value, Some(path.display().to_string()))
            }
            ClaimRefusal::Away(why) => (StatusCode::SERVICE_UNAVAILABLE, "store_away", why, None),
        };
        Self { code, kind, value, lock }
    }
}

#[derive(Debug, Deserialize)]
struct Request {
    client_params: ClientParams,
}

#[derive(Debug, Deserialize)]
struct ClientParams {
    id: String,
    group: String,
}

/// Returns who sent a request of the protocol.
fn client(headers: &HeaderMap, body: &[u8]) -> Result<Purpose, Refused> {
    if headers.get(HEADER).is_none_or(|value| value != "true") {
        return Err(Refused::bad_request("missing_header", format!("the header {HEADER}: true is missing")));
    }
    let request: Request = serde_json::from_slice(body).map_err(|error| {
        let right = r#"{"client_params": {"id": "NODE", "group": "default"}}"#;
        Refused::bad_request("bad_body", format!("the body is not like {right}: {error}"))
    })?;
    let ClientParams { id, group } = request.client_params;
    let is_group = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'-';
    if group.is_empty() || !group.bytes().all(is_group) {
        let shown = schema::names::quoted(&group);
        return Err(Refused::bad_request(
            "bad_group",
            format!("the group {shown} must be of A-Z a-z 0-9 . -"),
        ));
    }
    Token::new(&id).map(Purpose::Reboot).map_err(|error| Refused::bad_request("bad_id", error.to_string()))
}

/// Takes claims of this host for a reboot.
pub(super) async fn pre_reboot(
    State(shared): State<Shared>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<&'static str, Refused> {
    shared.claims.take(&client(&headers, &body)?).await.map(drop)?;
    Ok("")
}

/// Gives back the claims that this client took.
pub(super) async fn steady_state(
    State(shared): State<Shared>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<&'static str, Refused> {
    shared.claims.end(&client(&headers, &body)?).await?;
    Ok("")
}

fn run_of(run: &str) -> Result<Token, Refused> {
    Token::new(run).map_err(|error| Refused::bad_request("bad_id", error.to_string()))
}

/// Takes claims of this host for a command.
pub(super) async fn take_for_command(
    State(shared): State<Shared>,
    Path(run): Path<String>,
) -> Result<&'static str, Refused> {
    shared.claims.take_for_command(&run_of(&run)?).await?;
    Ok("")
}

/// Gives back the claims of a command.
pub(super) async fn end_command(
    State(shared): State<Shared>,
    Path(run): Path<String>,
) -> Result<&'static str, Refused> {
    shared.claims.end_command(&run_of(&run)?).await?;
    Ok("")
}
