//! A stream of what is shown: its revision and its age (server-sent events, WHATWG HTML, section 9.2). A client requests a
//! view again when the revision has changed. There is no queue: each event is the present when it is sent.

use super::access::Granted;
use super::health::{HealthView, health_of};
use super::parameters::{Parameters, read_none, refused_for_now};
use super::shared::AppState;
use crate::observed::Moment;
use axum::Extension;
use axum::extract::Query;
use axum::http::{HeaderName, header};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use http_server::{Connection, ErrorResponse, Waiting};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

/// Longest time between two events, so that a client sees the age grow and notices that the observer is gone.
const PULSE: Duration = Duration::from_secs(5);
/// Longest time of a stream. A client connects again, and is checked again.
const LONGEST: Duration = Duration::from_secs(60 * 60);

/// Answers with a stream that ends when the client may not look any more.
pub(super) async fn stream(
    shared: AppState,
    Extension(connection): Extension<Arc<Connection>>,
    Extension(granted): Extension<Granted>,
    Query(parameters): Query<Parameters>,
) -> Result<Response, ErrorResponse> {
    read_none(&parameters)?;
    let waiting =
        connection.clone().wait().map_err(|_| refused_for_now("too many clients follow the stream"))?;
    let follower = Follower {
        moments: shared.fleet.follow_moments(),
        end: Instant::now() + LONGEST,
        waiting: Some(waiting),
        is_first: true,
        shared,
        connection,
        granted,
    };
    let events = unfold(follower, |mut follower| async {
        let event = follower.next().await?;
        Some((Ok::<_, Infallible>(event), follower))
    });
    // Proxies such as nginx would keep events until they have enough of them.
    let headers = [
        (header::CACHE_CONTROL, "no-store, no-transform"),
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    Ok((headers, Sse::new(events)).into_response())
}

/// A client that follows the stream.
struct Follower {
    shared: AppState,
    moments: watch::Receiver<Moment>,
    connection: Arc<Connection>,
    granted: Granted,
    /// Present while there is nothing to send. The rest counts as an answer, for which a client has limited time.
    waiting: Option<Waiting>,
    is_first: bool,
    end: Instant,
}

impl Follower {
    /// Waits for the next event. `None` is the end.
    async fn next(&mut self) -> Option<Event> {
        if !std::mem::take(&mut self.is_first) {
            if self.waiting.is_none() {
                self.waiting = Some(self.connection.clone().wait().ok()?);
            }
            let mut stop = self.shared.stop.clone();
            tokio::select! {
                // Its end means that the process ends.
                changed = timeout(PULSE, self.moments.changed()) => if let Ok(Err(_)) = changed { return None },
                () = self.granted.ended() => return None,
                _ = stop.wait_for(|stop| *stop) => return None,
                () = sleep_until(self.end) => return None,
            }
        }
        let moment = *self.moments.borrow_and_update();
        let view: HealthView = health_of(&self.shared.fleet, moment);
        self.waiting = None;
        let id = format!("{}-{}-{}", self.shared.instance, moment.history, moment.revision);
        Event::default().event("health").id(id).json_data(view).ok()
    }
}
