//! The past: `at=MOMENT` in the query of a view. What was recorded of the moment becomes a fleet that does not change, and
//! the same handlers show it.

use super::asked_past::{AskedPast, PastFleet};
use super::pages;
use super::parameters::{refused, refused_for_now};
use super::shared::Shared;
use crate::clock::now;
use crate::observed::{Moment, Observed, SharedFleet};
use crate::recorded::{NoAnswer, Recorded};
use archive::recording::{At, RecordingError};
use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use etcd_session::Assembly;
use form_urlencoded::Serializer;
use http_server::ErrorResponse;
use std::sync::Arc;
use tokio::sync::{Mutex, Semaphore};

/// Number of requests that wait for a moment, with the one that reads it.
const WAITING_MAX: usize = 8;
/// The name of the parameter.
const AT: &str = "at";

/// The moment that was shown last. There is room for one fleet of the past.
pub(super) struct PastMoments {
    recording: Option<Arc<Recorded>>,
    places: Arc<Semaphore>,
    last: Arc<Mutex<Option<LastAsked>>>,
}

/// The moment as it was named, and the fleet.
type LastAsked = (At, Arc<PastFleet>);

impl PastMoments {
    /// Returns the moments of a recording; of none, if the observer does not record.
    pub(super) fn new(recording: Option<Recorded>) -> Self {
        Self {
            recording: recording.map(Arc::new),
            places: Arc::new(Semaphore::new(WAITING_MAX)),
            last: Arc::default(),
        }
    }

    /// True if there is a recording.
    pub(super) fn exist(&self) -> bool {
        self.recording.is_some()
    }

    async fn open(&self, at: &str) -> Result<Arc<PastFleet>, Refusal> {
        let Some(recording) = self.recording.clone() else {
            return Err(refused("this observer does not record the store (recorder.directory)").into());
        };
        let at = At::read(at, now().0.saturating_mul(1000)).map_err(refused)?;
        let busy = |_| refused_for_now("too many requests wait for a moment of the past");
        let place = self.places.clone().try_acquire_owned().map_err(busy)?;
        let mut last = self.last.clone().lock_owned().await;
        // A moment that follows from a time may say more than the moment itself.
        let is_same = |(wanted, past): &&LastAsked| {
            *wanted == at || past.view.moment == at.to_string() && past.view.next_revision.is_none()
        };
        if let Some((_, past)) = last.as_ref().filter(is_same) {
            return Ok(past.clone());
        }
        // It is read to the end even if the client goes away, so that one is read at a time.
        let reading = tokio::task::spawn_blocking(move || {
            let _place = place;
            // The memory of the one before is free before the next one is read.
            *last = None;
            let past = Arc::new(read(&recording, &at)?);
            *last = Some((at, past.clone()));
            Ok::<_, NoAnswer>(past)
        });
        Ok(reading.await.map_err(refused)??)
    }
}

/// Why a moment is not shown.
struct Refusal {
    response: ErrorResponse,
    /// The moments that were meant, if there are several.
    choices: Vec<String>,
}

impl From<ErrorResponse> for Refusal {
    fn from(response: ErrorResponse) -> Self {
        Self { response, choices: Vec::new() }
    }
}

impl From<NoAnswer> for Refusal {
    fn from(why: NoAnswer) -> Self {
        let (code, choices) = match &why {
            NoAnswer::Unknown(RecordingError::Ambiguous { moments, .. }) => {
                (StatusCode::MULTIPLE_CHOICES, moments.iter().map(ToString::to_string).collect())
            }
            NoAnswer::Unknown(RecordingError::NotRecorded(why)) if !why.is_unreadable => {
                (StatusCode::NOT_FOUND, Vec::new())
            }
            NoAnswer::Unknown(_) | NoAnswer::Unreadable(_) => (StatusCode::INTERNAL_SERVER_ERROR, Vec::new()),
        };
        Self { response: ErrorResponse::Rejected(code, why.to_string()), choices }
    }
}

fn read(recording: &Recorded, at: &At) -> Result<PastFleet, NoAnswer> {
    let (past, place) = recording.at(at)?;
    past.problems.iter().for_each(|problem| tracing::warn!("the recording: {problem}"));
    let present = past.present();
    let view = past.view(present, &place, env!("CARGO_PKG_VERSION"));
    let mut observed = Observed::new(Assembly::of(past.into_snapshot()));
    observed.find_deadlocks(present);
    let moment = Moment { history: 0, revision: observed.found().revision, fresh_at: None };
    let fleet = SharedFleet::default();
    fleet.change(|shown| *shown = Some(observed));
    fleet.set_moment(moment);
    Ok(PastFleet { fleet: Arc::new(fleet), view, present })
}

/// Has a view show the past, if its query names a moment.
pub(super) async fn show_past(
    State((moments, shared)): State<(Arc<PastMoments>, Shared)>,
    mut request: Request,
    next: Next,
) -> Response {
    let Some((at, uri)) = without_moment(request.uri()).filter(|_| is_view(request.uri().path())) else {
        return next.run(request).await;
    };
    match moments.open(&at).await {
        Ok(past) => {
            let present_address = uri.path_and_query().map_or("/", |address| address.as_str()).into();
            request.extensions_mut().insert(AskedPast { past, present_address });
            *request.uri_mut() = uri;
            next.run(request).await
        }
        Err(refusal) if pages::wants_page(request.headers()) => {
            let to = |moment: &String| {
                let query = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
                let query =
                    Serializer::new(String::new()).extend_pairs(query).append_pair(AT, moment).finish();
                format!("{}?{query}", uri.path())
            };
            let addresses: Vec<String> = refusal.choices.iter().map(to).collect();
            let choices = refusal.choices.into_iter().zip(addresses).collect();
            pages::refusal(shared, refusal.response, choices)
        }
        Err(refusal) => refusal.response.into_response(),
    }
}

/// Returns the moment of a query, and the address without it.
fn without_moment(uri: &Uri) -> Option<(String, Uri)> {
    let query = uri.query()?;
    let pairs: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let at = pairs.iter().rev().find(|(name, _)| name == AT).map(|(_, at)| at.clone())?;
    let rest = pairs.iter().filter(|(name, _)| name != AT);
    let rest = Serializer::new(String::new()).extend_pairs(rest).finish();
    let address = if rest.is_empty() { uri.path().to_owned() } else { format!("{}?{rest}", uri.path()) };
    Some((at, address.parse().ok()?))
}

/// True if a path shows the fleet. Others are about the observer itself, and refuse the parameter.
fn is_view(path: &str) -> bool {
    const OF_OBSERVER: [&str; 6] =
        ["/metrics", "/v1/health", "/v1/incidents", "/v1/openapi.json", "/v1/session", "/v1/stream"];
    !OF_OBSERVER.contains(&path) && !path.starts_with("/v1/schema/") && !pages::is_public(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_moment_is_taken_out_of_the_address() {
        let check = |address: &str, expected: Option<(&str, &str)>| {
            let found = without_moment(&address.parse().unwrap()).map(|(at, uri)| (at, uri.to_string()));
            let found = found.as_ref().map(|(at, uri)| (at.as_str(), uri.as_str()));
            assert_eq!(found, expected, "{address}");
        };
        check("/", None);
        check("/hosts?role=web", None);
        check("/?at=12", Some(("12", "/")));
        check("/hosts?role=a%2Bb&at=l%2F1%2F0%2F12&all=", Some(("l/1/0/12", "/hosts?role=a%2Bb&all=")));
        check("/?at=1&at=2", Some(("2", "/")));
        for (path, expected) in [
            ("/", true),
            ("/v1/hosts/h", true),
            ("/v1/stream", false),
            ("/page.css", false),
            ("/metrics", false),
        ] {
            assert_eq!(is_view(path), expected, "{path}");
        }
    }
}
