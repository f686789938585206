//! Encoded answers, by the bytes of their queries. A catalog changes rarely and is queried often,
//! so an answer that was encoded for one client serves the next one, with its own id in front. Each
//! query has several answers with different orders of the records. They are used in turn, and each
//! is encoded again after a short time, so that no instance is the first for long. All answers are
//! dropped when the catalog changes.

use super::codec::{AnswerSource, ParsedQuery, Reply, Transport, read};
use crate::catalog::{CatalogSnapshot, Reader};
use catalog::Zone;
use schema::names::{HostName, ServiceName};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Memory for cached answers, in bytes. Clients that spell each query differently evict cached
/// answers, and do no other harm.
const KEPT_MAX_BYTES: usize = 4 * 1024 * 1024;
/// Approximate memory of a cached query besides its bytes, in bytes.
const KEPT_OVERHEAD_BYTES: usize = 128;
/// Maximum number of orders of one answer.
const ORDERS: usize = 8;
/// How long one encoded order is used before a new one replaces it. A client that asks rarely
/// always gets a new order, and a busy server encodes little.
const FRESH_FOR: Duration = Duration::from_millis(100);
/// Minimum time between two registrations of interest in one service.
const INTEREST_INTERVAL: Duration = Duration::from_secs(20);

struct CachedAnswer {
    orders: Vec<(Vec<u8>, Instant)>,
    next: usize,
    service: Option<(ServiceName, Instant)>,
}

/// The result for a packet without waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CacheResult {
    /// The answer has been written.
    Written,
    /// The packet gets no answer.
    Never,
    /// The answer has to wait for a read.
    Later,
    /// The name is not one that this server answers for.
    Foreign,
}

/// Answers the packets of one transport.
pub(super) struct AnswerCache {
    zone: Arc<Zone>,
    transport: Transport,
    forwards: bool,
    reader: Reader,
    changes: watch::Receiver<Arc<CatalogSnapshot>>,
    snapshot: Arc<CatalogSnapshot>,
    kept: HashMap<Box<[u8]>, CachedAnswer>,
    kept_bytes: usize,
    seed: u64,
}

impl AnswerCache {
    pub(super) fn new(zone: Arc<Zone>, transport: Transport, forwards: bool, reader: Reader) -> Self {
        let changes = reader.changes();
        let shown = reader.snapshot();
        // The order of answers is no secret, so the seed need not be unpredictable.
        let seed = (etcd_session::jitter() * f64::from(u32::MAX)) as u64 + 1;
        let (kept, kept_bytes) = (HashMap::new(), 0);
        Self { zone, transport, forwards, reader, changes, snapshot: shown, kept, kept_bytes, seed }
    }

    fn refresh(&mut self) {
        // The sender is gone when the agent stops; the last snapshot is used until then.
        if self.changes.has_changed().unwrap_or(false) {
            self.snapshot = self.changes.borrow_and_update().clone();
            self.clear();
        }
    }

    fn clear(&mut self) {
        self.kept.clear();
        self.kept_bytes = 0;
    }

    /// Answers a packet; appends the answer to the buffer.
    pub(super) fn answer(&mut self, packet: &[u8], out: &mut Vec<u8>) -> CacheResult {
        self.refresh();
        let Some((id, question)) = packet.split_first_chunk::<2>() else { return CacheResult::Never };
        let now = Instant::now();
        if let Some(kept) = self.kept.get_mut(question) {
            kept.next = (kept.next + 1) % ORDERS;
            let order = kept.orders.get(kept.next);
            if let Some((bytes, _)) = order.filter(|(_, made)| now.duration_since(*made) < FRESH_FOR) {
                out.extend_from_slice(id);
                out.extend_from_slice(&bytes[2..]);
                if let Some((service, refreshed_at)) = &mut kept.service
                    && now.duration_since(*refreshed_at) > INTEREST_INTERVAL
                {
                    *refreshed_at = now;
                    self.reader.follow(service);
                }
                return CacheResult::Written;
            }
        }
        let (reply, service) = self.compute(packet, true);
        match reply {
            Reply::Bytes(bytes) => {
                out.extend_from_slice(&bytes);
                self.insert(question, bytes, service, now);
                CacheResult::Written
            }
            Reply::Silence => CacheResult::Never,
            Reply::Later(_) => CacheResult::Later,
            Reply::Foreign => CacheResult::Foreign,
        }
    }

    /// Answers a packet without caching the answer.
    pub(super) fn compute(&mut self, packet: &[u8], can_wait: bool) -> (Reply, Option<ServiceName>) {
        self.refresh();
        let parsed: ParsedQuery = match read(packet, self.transport) {
            Ok(parsed) => parsed,
            Err(reply) => return (reply, None),
        };
        let serial = self.snapshot.revision as u32;
        let Self { snapshot: shown, zone, seed, forwards, reader, .. } = self;
        let claim = |host: &HostName| reader.known_claim(host);
        let known = AnswerSource { view: &shown.view, zone, serial, claim: &claim };
        let (reply, service) = parsed.answer(&known, seed, can_wait, *forwards);
        if let Some(service) = &service {
            self.reader.follow(service);
        }
        (reply, service)
    }

    fn insert(&mut self, question: &[u8], bytes: Vec<u8>, service: Option<ServiceName>, now: Instant) {
        let is_new = !self.kept.contains_key(question);
        let more = bytes.len() + if is_new { question.len() + KEPT_OVERHEAD_BYTES } else { 0 };
        if self.kept_bytes + more > KEPT_MAX_BYTES {
            self.clear();
        }
        self.kept_bytes += more;
        let service = service.map(|service| (service, now));
        let kept = self.kept.entry(question.into()).or_insert_with(|| CachedAnswer {
            orders: Vec::new(),
            next: 0,
            service,
        });
        match kept.orders.get_mut(kept.next) {
            Some(order) => {
                self.kept_bytes -= order.0.len();
                *order = (bytes, now);
            }
            None => {
                // The orders are added one after the other.
                kept.next = kept.orders.len();
                kept.orders.push((bytes, now));
            }
        }
    }
}
