//! The moments of the past that requests are about, and what is read from the recording for them: for one at a time.

use super::parameters::{refused, refused_for_now};
use crate::clock::now;
use crate::observed::{Moment, Observed, SharedFleet};
use crate::recorded::{NoAnswer, Recorded};
use archive::recording::{self, At, PastView, RecordingError};
use axum::http::StatusCode;
use etcd_session::Assembly;
use fleet::views::{PastEvent, host_changes, tells_of_hosts};
use form_urlencoded::Serializer;
use http_server::ErrorResponse;
use schema::time::EpochSeconds;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};

/// Number of requests that wait for a moment, with the one that reads it.
const WAITING_MAX: usize = 8;

/// The fleet at a moment of the past.
pub(super) struct PastFleet {
    pub(super) fleet: Arc<SharedFleet>,
    pub(super) view: PastView,
    moment: recording::Moment,
    pub(super) present: EpochSeconds,
}

/// What a request about the past is about.
#[derive(Clone)]
pub(super) struct AskedPast {
    pub(super) past: Arc<PastFleet>,
    /// The address of the same view of the present.
    pub(super) present_address: Arc<str>,
    pub(super) moments: Arc<PastMoments>,
}

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

    /// Returns the fleet at a moment.
    pub(super) async fn open(&self, at: &str) -> Result<Arc<PastFleet>, Refusal> {
        let Some(recording) = self.recording.clone() else {
            return Err(refused("this observer does not record the store (recorder.directory)").into());
        };
        let at = At::read(at, now().0.saturating_mul(1000)).map_err(refused)?;
        let (place, mut last) = self.turn().await?;
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

    /// Waits until no other request reads the recording. The last moment stays as it is if nothing else is put there.
    async fn turn(
        &self,
    ) -> Result<(OwnedSemaphorePermit, OwnedMutexGuard<Option<LastAsked>>), ErrorResponse> {
        let busy = |_| refused_for_now("too many requests wait for a moment of the past");
        let place = self.places.clone().try_acquire_owned().map_err(busy)?;
        Ok((place, self.last.clone().lock_owned().await))
    }
}

impl AskedPast {
    /// Returns the moment as a parameter of a query.
    pub(super) fn parameter(&self) -> String {
        Serializer::new(String::new()).append_pair("at", &self.past.view.moment).finish()
    }

    /// Returns what changed about hosts by itself in this time before the moment, and what is not recorded of it.
    ///
    /// # Errors
    /// Returns an error if too many requests wait, or if the recording does not say it.
    pub(super) async fn host_changes(&self, within: Duration) -> Result<HostChanges, ErrorResponse> {
        let Some(recording) = self.moments.recording.clone() else { return Ok(HostChanges::default()) };
        let turn = self.moments.turn().await?;
        let past = self.past.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let from = past.present.before(within);
            let history = recording.history(from, &past.moment, tells_of_hosts)?;
            let not_recorded = history.gaps.clone();
            let changes =
                history.into_changes().flat_map(|step| host_changes(step.revision, step.at, &step.changes));
            Ok::<_, NoAnswer>(HostChanges { events: changes.collect(), not_recorded })
        });
        reading.await.map_err(refused)?.map_err(|why| Refusal::from(why).response)
    }
}

/// What changed about hosts by itself before a moment.
#[derive(Default)]
pub(super) struct HostChanges {
    pub(super) events: Vec<PastEvent>,
    /// What is not recorded of that time, for people.
    pub(super) not_recorded: Vec<String>,
}

/// Why a moment is not shown.
pub(super) struct Refusal {
    pub(super) response: ErrorResponse,
    /// The moments that were meant, if there are several.
    pub(super) choices: Vec<String>,
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
    let recorded = past.moment.clone();
    let mut observed = Observed::new(Assembly::of(past.into_snapshot()));
    observed.find_deadlocks(present);
    let moment = Moment { history: 0, revision: observed.found().revision, fresh_at: None };
    let fleet = SharedFleet::default();
    fleet.change(|shown| *shown = Some(observed));
    fleet.set_moment(moment);
    Ok(PastFleet { fleet: Arc::new(fleet), view, moment: recorded, present })
}
