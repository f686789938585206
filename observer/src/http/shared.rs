//! What all handlers share, and how they answer.

use super::past_moments::AskedPast;
use crate::clock::now;
use crate::observed::{Moment, Observed, SharedFleet};
use archive::recording::AboutPast;
use axum::body::Bytes;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use catalog::View;
use fleet::Fleet;
use http_server::{AnswerCache, ErrorResponse, json_body};
use prometheus_client::registry::Registry;
use schema::snapshot::KeySnapshot;
use schema::time::EpochSeconds;
use serde::Serialize;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::sync::watch;

/// The data that the handlers show.
#[derive(Clone)]
pub(super) struct AppState {
    pub(super) fleet: Arc<SharedFleet>,
    pub(super) answers: AnswerCache<Moment>,
    /// True when the server ends.
    pub(super) stop: watch::Receiver<bool>,
    /// Tells this process from one before and from other observers.
    pub(super) instance: Arc<str>,
    pub(super) shown_metrics: Arc<Registry>,
    /// True if moments of the past can be shown.
    pub(super) has_past: bool,
    /// The moment of the past that is shown; `None` for the present.
    pub(super) past: Option<AskedPast>,
}

impl FromRequestParts<AppState> for AppState {
    type Rejection = Infallible;

    /// Returns the present, or the moment of the past that the request is about.
    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Infallible> {
        Ok(parts.extensions.get::<AskedPast>().map_or_else(|| state.clone(), |wanted| state.at(wanted)))
    }
}

/// What a view is made of.
pub(super) struct ViewInput<'a> {
    observed: &'a Observed,
    pub(super) now: EpochSeconds,
    /// True if moments of the past can be shown.
    pub(super) has_past: bool,
}

impl ViewInput<'_> {
    /// Returns everything in the store.
    pub(super) fn found(&self) -> &KeySnapshot {
        self.observed.found()
    }

    /// Returns the revision of the store.
    pub(super) fn revision(&self) -> i64 {
        self.found().revision
    }

    pub(super) fn fleet(&self) -> &Fleet {
        &self.observed.fleet
    }

    pub(super) fn catalog(&self) -> &View {
        self.observed.catalog()
    }
}

/// The first byte of an answer that stands for what is shown, or for the reason why there is nothing to show.
const IS_VIEW: u8 = b'v';
const IS_NOTHING: u8 = b'n';

impl AppState {
    /// Returns the same data at a moment of the past.
    fn at(&self, wanted: &AskedPast) -> Self {
        Self { fleet: wanted.past.fleet.clone(), past: Some(wanted.clone()), ..self.clone() }
    }

    /// Answers with a view of the fleet, or with 404 and the reason why there is none.
    ///
    /// The header `Age` is the time in whole seconds for which changes of the store may be missing in the answer (RFC 9111,
    /// section 5.1). It is absent until a read of the store has confirmed that the answer is the present.
    pub(super) async fn answer<V: Serialize>(
        &self,
        question: String,
        view: impl FnOnce(ViewInput<'_>) -> Result<V, String> + Send + 'static,
    ) -> Result<Response, ErrorResponse> {
        let past = self.past.clone();
        let json = move |seen: ViewInput<'_>| {
            let answer = view(seen)?;
            let json = match &past {
                Some(wanted) => serde_json::to_vec(&AboutPast { past: &wanted.past.view, answer: &answer }),
                None => serde_json::to_vec(&answer),
            };
            json.map_err(|error| error.to_string())
        };
        let (body, moment) = self.rendered(question, json).await?;
        Ok(with_age(moment, json_body(body)))
    }

    /// Returns what is shown of the fleet, and what identifies the state that it was made from. It is made once for all
    /// clients that ask the same while nothing changes.
    ///
    /// # Errors
    /// Returns 404 with the reason why there is nothing to show, or 503 before the store was read.
    pub(super) async fn rendered(
        &self,
        question: String,
        render: impl FnOnce(ViewInput<'_>) -> Result<Vec<u8>, String> + Send + 'static,
    ) -> Result<(Bytes, Moment), ErrorResponse> {
        let moment = self.fleet.moment();
        if moment.revision == 0 {
            return Err(self.not_read_yet());
        }
        let (fleet, has_past) = (self.fleet.clone(), self.has_past);
        let present = self.past.as_ref().map(|wanted| wanted.past.present);
        // The answer may be newer than its moment, but never older.
        let render = move || {
            let observed = fleet.read();
            let view = match &*observed {
                Some(observed) => render(ViewInput { observed, now: present.unwrap_or_else(now), has_past }),
                None => Err("the store has not been read yet".into()),
            };
            let (mut bytes, body) = match view {
                Ok(view) => (vec![IS_VIEW], view),
                Err(why) => (vec![IS_NOTHING], why.into_bytes()),
            };
            bytes.extend(body);
            bytes
        };
        // An answer does not outlast the history that it is about.
        let past = self.past.as_ref().map(|wanted| &wanted.past.view);
        let question = format!("{} {past:?} {question}", moment.history);
        let (mut body, moment): (Bytes, Moment) = self.answers.cached_body(moment, question, render).await?;
        let kind = body.split_to(1);
        if kind[..] == [IS_NOTHING] {
            let why = String::from_utf8_lossy(&body).into_owned();
            return Err(ErrorResponse::Rejected(StatusCode::NOT_FOUND, why));
        }
        Ok((body, moment))
    }

    /// Returns the refusal of a request before the store was read.
    pub(super) fn not_read_yet(&self) -> ErrorResponse {
        let why = self.fleet.problem().map(|why| format!(": {why}")).unwrap_or_default();
        let text = format!("the store has not been read yet{why}");
        ErrorResponse::Rejected(StatusCode::SERVICE_UNAVAILABLE, text)
    }
}

/// Returns an answer with the age of what it was made from.
pub(super) fn with_age(moment: Moment, answer: impl IntoResponse) -> Response {
    let age = moment.fresh_at.map(|at| [(header::AGE, at.elapsed().as_secs().to_string())]);
    (age, answer).into_response()
}
