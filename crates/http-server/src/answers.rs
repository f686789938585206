//! Bodies of answers. Each is rendered once for all clients that send the same request, and only
//! one is rendered at a time. Their total size is bounded, because a client that does not read
//! keeps its answer in memory until its connection is closed.

use crate::refusal::ErrorResponse;
use axum::body::Bytes;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Limit of the total size of all answers, those that are being sent and those that are cached, in
/// KiB.
const IN_FLIGHT_MAX_KIB: usize = 64 * 1024;
/// Maximum number of cached answers.
const KEPT_MAX: usize = 64;
/// Longest time for which an answer is given though the data has changed.
const LONGEST_REST: Duration = Duration::from_secs(10);
/// Limit of the total size of the cached answers, in KiB.
const CACHED_MAX_KIB: usize = 16 * 1024;

/// The cache of answers, one for all listeners; cheap to clone. `M` identifies the data that an answer was rendered
/// from; an answer from other data is rendered again, unless the cache rests.
#[derive(Debug, Clone)]
pub struct AnswerCache<M> {
    permits: Arc<Semaphore>,
    cached: Arc<Mutex<CachedBodies<M>>>,
    rest: u32,
}

type CachedBodies<M> = BTreeMap<String, CachedBody<M>>;

#[derive(Debug)]
struct CachedBody<M> {
    moment: M,
    body: Bytes,
    /// The time that rendering took.
    took: Duration,
    /// Until then the answer is given though the data may have changed.
    rests_until: Instant,
}

impl<M: PartialEq> CachedBody<M> {
    fn is_valid(&self, moment: &M) -> bool {
        self.moment == *moment || Instant::now() < self.rests_until
    }
}

/// Removes the answers that rest no longer or shortest, until there is room for one of this size.
fn make_room<M>(kept: &mut CachedBodies<M>, size: usize) {
    let held = |kept: &CachedBodies<M>| -> usize { kept.values().map(|cached| kib(cached.body.len())).sum() };
    while kept.len() >= KEPT_MAX || held(kept) + size > CACHED_MAX_KIB {
        let first = kept.iter().min_by_key(|(_, cached)| cached.rests_until);
        let Some(first) = first.map(|(question, _)| question.clone()) else { return };
        kept.remove(&first);
    }
}

/// A body with its share of the total size.
struct MeteredBody {
    bytes: Vec<u8>,
    _share: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for MeteredBody {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<M> Default for AnswerCache<M> {
    fn default() -> Self {
        Self { permits: Arc::new(Semaphore::new(IN_FLIGHT_MAX_KIB)), cached: Arc::default(), rest: 0 }
    }
}

impl<M> AnswerCache<M> {
    /// Returns a cache that does not render an answer again before so many times the time has passed that rendering it and
    /// the others that rest took, and at most 10 s, though the data changed. So the answers that are in use need a small
    /// share of a core, however often the data changes. That holds for as many as are cached, and if none takes long.
    pub fn with_rest(rest: u32) -> Self {
        Self { rest, ..Self::default() }
    }
}

fn kib(bytes: usize) -> usize {
    bytes.div_ceil(1024).min(IN_FLIGHT_MAX_KIB)
}

impl<M: PartialEq + Copy + Send + 'static> AnswerCache<M> {
    /// Returns the answer to a request about the data that `moment` identifies, and what identifies the data that it was
    /// rendered from. That is the same, unless the cache rests.
    ///
    /// # Errors
    /// Returns [`ErrorResponse::Busy`] if there is no room for the answer.
    pub async fn cached_body(
        &self,
        moment: M,
        question: String,
        render: impl FnOnce() -> Vec<u8> + Send + 'static,
    ) -> Result<(Bytes, M), ErrorResponse> {
        let mut kept = self.cached.clone().lock_owned().await;
        if let Some(cached) = kept.get(&question).filter(|cached| cached.is_valid(&moment)) {
            return Ok((cached.body.clone(), cached.moment));
        }
        let answers = self.clone();
        // The lock is held even if the client goes away, so that one answer is rendered at a time,
        // and rendering blocks no async task.
        let rendering = tokio::task::spawn_blocking(move || {
            kept.retain(|_, cached| cached.is_valid(&moment));
            let began = Instant::now();
            let bytes = render();
            let took = began.elapsed();
            let of_all = took + kept.values().map(|cached| cached.took).sum::<Duration>();
            let rests_until = began + of_all.saturating_mul(answers.rest).min(LONGEST_REST);
            let size = kib(bytes.len());
            make_room(&mut kept, size);
            let body = answers.metered(bytes).or_else(|bytes| {
                kept.clear();
                answers
                    .metered(bytes)
                    .map_err(|_| ErrorResponse::Busy("too much of other answers is still being read"))
            })?;
            if size <= CACHED_MAX_KIB {
                kept.insert(question, CachedBody { moment, body: body.clone(), took, rests_until });
            }
            Ok((body, moment))
        });
        rendering.await.unwrap_or_else(|_| Err(ErrorResponse::Busy("the answer could not be made")))
    }

    /// Returns an answer for one client, which is not cached.
    ///
    /// # Errors
    /// Returns [`ErrorResponse::Busy`] if there is no room for the answer.
    pub async fn body(&self, body: &serde_json::Value) -> Result<Bytes, ErrorResponse> {
        let bytes = body.to_string().into_bytes();
        match self.metered(bytes) {
            Ok(body) => Ok(body),
            Err(bytes) => {
                self.cached.lock().await.clear();
                self.metered(bytes)
                    .map_err(|_| ErrorResponse::Busy("too much of other answers is still being read"))
            }
        }
    }

    /// Counts the bytes as part of the total size; gives them back if there is no room for them.
    fn metered(&self, bytes: Vec<u8>) -> Result<Bytes, Vec<u8>> {
        // The share is at most `IN_FLIGHT_MAX_KIB`, which fits.
        let share = u32::try_from(kib(bytes.len())).unwrap_or(u32::MAX);
        match self.permits.clone().try_acquire_many_owned(share) {
            Ok(share) => Ok(Bytes::from_owner(MeteredBody { bytes, _share: share })),
            Err(_) => Err(bytes),
        }
    }
}

/// Returns an answer with this JSON.
pub fn json_body(body: Bytes) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const MIB: usize = 1024 * 1024;

    #[tokio::test]
    async fn an_answer_is_rendered_once_for_each_catalog_and_all_together_are_bounded() {
        let answers = AnswerCache::default();
        let rendered = Arc::new(AtomicUsize::new(0));
        let ask = |generation: u64, question: &str, size: usize| {
            let rendered = rendered.clone();
            let render = move || {
                rendered.fetch_add(1, Ordering::Relaxed);
                vec![b'x'; size]
            };
            answers.cached_body((generation, 0, 0), question.to_owned(), render)
        };
        let mut read_slowly = Vec::new();
        for (generation, question, size, renderings) in [
            (1, "a", MIB, Some(1)),
            (1, "a", MIB, Some(1)),
            (1, "b", MIB, Some(2)),
            (1, "a", MIB, Some(2)),
            // The catalog changed.
            (2, "a", MIB, Some(3)),
            // The answer is too large to be cached, but it is sent.
            (2, "large", 40 * MIB, Some(4)),
            (2, "large", 40 * MIB, None),
            (2, "a", MIB, Some(6)),
        ] {
            let answer = ask(generation, question, size).await;
            assert_eq!(answer.is_ok(), renderings.is_some(), "{generation} {question}");
            if let Some(renderings) = renderings {
                assert_eq!(rendered.load(Ordering::Relaxed), renderings, "{generation} {question}");
            }
            read_slowly.extend(answer.ok().map(|(body, _)| body));
        }
        // Answers that clients no longer hold make room, and so do answers that are only cached.
        read_slowly.clear();
        assert!(ask(2, "b", 15 * MIB).await.is_ok());
        let all = ask(2, "all", 70 * MIB).await.expect("when nothing else is being sent");
        assert!(answers.body(&serde_json::Value::Null).await.is_err());
        drop(all);
        assert!(answers.body(&serde_json::Value::Null).await.is_ok());
    }

    #[tokio::test]
    async fn a_cache_that_rests_gives_the_earlier_answer_and_says_which_it_is() {
        // Rendering takes so little time that only a large factor shows.
        let answers = AnswerCache::<u64>::with_rest(u32::MAX);
        let render = |text: &'static str| {
            move || {
                std::thread::sleep(std::time::Duration::from_millis(1));
                text.into()
            }
        };
        let body = answers.cached_body(1, "a".into(), render("one")).await.unwrap();
        assert_eq!((&body.0[..], body.1), (&b"one"[..], 1));
        let body = answers.cached_body(2, "a".into(), render("two")).await.unwrap();
        assert_eq!((&body.0[..], body.1), (&b"one"[..], 1));
        let body = answers.cached_body(2, "b".into(), render("other")).await.unwrap();
        assert_eq!((&body.0[..], body.1), (&b"other"[..], 2));
    }
}
