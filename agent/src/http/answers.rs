//! Bodies of answers: rendered once for everybody who asks the same, one at a time, and bounded in what all of them
//! hold together, because a client that does not read holds its answer until it is let go.

use super::refusal::Refusal;
use axum::body::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};

/// What all answers hold together, in KiB: those that are being sent, and those that are kept.
const IN_FLIGHT_MAX_KIB: usize = 64 * 1024;
/// Answers that are kept for whoever asks the same.
const KEPT_MAX: usize = 64;
/// What they hold together, in KiB.
const CACHED_MAX_KIB: usize = 16 * 1024;

/// The catalog at which an answer was rendered: generation, revision, and its age in seconds.
pub(super) type CatalogVersion = (u64, i64, u64);

/// One for all listeners; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct AnswerCache {
    permits: Arc<Semaphore>,
    cached: Arc<Mutex<CachedBodies>>,
}

#[derive(Debug, Default)]
struct CachedBodies {
    moment: CatalogVersion,
    bodies: BTreeMap<String, Bytes>,
}

/// A body with its share of the room.
struct MeteredBody {
    bytes: Vec<u8>,
    _share: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for MeteredBody {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Default for AnswerCache {
    fn default() -> Self {
        Self { permits: Arc::new(Semaphore::new(IN_FLIGHT_MAX_KIB)), cached: Arc::default() }
    }
}

fn kib(bytes: usize) -> usize {
    bytes.div_ceil(1024).min(IN_FLIGHT_MAX_KIB)
}

impl AnswerCache {
    /// The answer to a question about the catalog of a moment.
    pub(super) async fn cached_body(
        &self,
        moment: CatalogVersion,
        question: String,
        render: impl FnOnce() -> Vec<u8> + Send + 'static,
    ) -> Result<Bytes, Refusal> {
        let mut kept = self.cached.clone().lock_owned().await;
        if kept.moment == moment
            && let Some(body) = kept.bodies.get(&question)
        {
            return Ok(body.clone());
        }
        let answers = self.clone();
        // It keeps the lock though the client goes away: one is rendered at a time, and no task waits for that.
        let rendering = tokio::task::spawn_blocking(move || {
            if kept.moment != moment {
                *kept = CachedBodies { moment, ..CachedBodies::default() };
            }
            let bytes = render();
            let size = kib(bytes.len());
            let held: usize = kept.bodies.values().map(|body| kib(body.len())).sum();
            if kept.bodies.len() >= KEPT_MAX || held + size > CACHED_MAX_KIB {
                kept.bodies.clear();
            }
            let body = answers.metered(bytes).or_else(|bytes| {
                kept.bodies.clear();
                answers
                    .metered(bytes)
                    .map_err(|_| Refusal::Busy("too much of other answers is still being read"))
            })?;
            if size <= CACHED_MAX_KIB {
                kept.bodies.insert(question, body.clone());
            }
            Ok(body)
        });
        rendering.await.unwrap_or_else(|_| Err(Refusal::Busy("the answer could not be made")))
    }

    /// An answer of one client.
    pub(super) async fn body(&self, body: &serde_json::Value) -> Result<Bytes, Refusal> {
        let bytes = body.to_string().into_bytes();
        match self.metered(bytes) {
            Ok(body) => Ok(body),
            Err(bytes) => {
                self.cached.lock().await.bodies.clear();
                self.metered(bytes)
                    .map_err(|_| Refusal::Busy("too much of other answers is still being read"))
            }
        }
    }

    /// Gives the bytes back if there is no room for them.
    fn metered(&self, bytes: Vec<u8>) -> Result<Bytes, Vec<u8>> {
        // At most `HELD_MAX_KIB`, which fits.
        let share = u32::try_from(kib(bytes.len())).unwrap_or(u32::MAX);
        match self.permits.clone().try_acquire_many_owned(share) {
            Ok(share) => Ok(Bytes::from_owner(MeteredBody { bytes, _share: share })),
            Err(_) => Err(bytes),
        }
    }
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
            // The catalog is another.
            (2, "a", MIB, Some(3)),
            // Too large to be kept, and sent all the same.
            (2, "large", 40 * MIB, Some(4)),
            (2, "large", 40 * MIB, None),
            (2, "a", MIB, Some(6)),
        ] {
            let answer = ask(generation, question, size).await;
            assert_eq!(answer.is_ok(), renderings.is_some(), "{generation} {question}");
            if let Some(renderings) = renderings {
                assert_eq!(rendered.load(Ordering::Relaxed), renderings, "{generation} {question}");
            }
            read_slowly.extend(answer.ok());
        }
        // What is let go makes room; what is only kept makes room as well.
        read_slowly.clear();
        assert!(ask(2, "b", 15 * MIB).await.is_ok());
        let all = ask(2, "all", 70 * MIB).await.expect("when nothing else is being sent");
        assert!(answers.body(&serde_json::Value::Null).await.is_err());
        drop(all);
        assert!(answers.body(&serde_json::Value::Null).await.is_ok());
    }
}
