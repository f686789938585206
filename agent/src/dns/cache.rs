//! Encoded answers by the bytes of their questions. A catalog changes seldom and is asked often: what was
//! encoded for one client serves the next with its id in front. Several orders of each answer take turns, and each
//! is made anew after a moment, so that no instance is the first for long; all are when the catalog differs.

use super::codec::{AnswerSource, ParsedQuery, Reply, Transport, read};
use crate::catalog::{CatalogSnapshot, Reader};
use catalog::Zone;
use schema::names::{HostName, ServiceName};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Memory for what is kept; clients that spell each question anew push out what is kept, and no more.
const KEPT_MAX_BYTES: usize = 4 * 1024 * 1024;
/// What a question costs beside its bytes, about.
const KEPT_OVERHEAD_BYTES: usize = 128;
/// So many orders of one answer,
const ORDERS: usize = 8;
/// each for so long. Who asks seldom always gets a new one, and busy servers encode little.
const FRESH_FOR: Duration = Duration::from_millis(100);
/// A service that is asked for is said to be at most this often.
const SAY_EVERY: Duration = Duration::from_secs(20);

struct CachedAnswer {
    orders: Vec<(Vec<u8>, Instant)>,
    next: usize,
    service: Option<(ServiceName, Instant)>,
}

/// What became of a packet at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CacheResult {
    /// The answer is written.
    Written,
    /// It is none that is answered.
    Never,
    /// Something has to be waited for.
    Later,
    /// None of our names.
    Foreign,
}

/// The way from packets that came by one transport to answers.
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
        // The order of answers is no secret.
        let seed = (etcd_session::jitter() * f64::from(u32::MAX)) as u64 + 1;
        let (kept, kept_bytes) = (HashMap::new(), 0);
        Self { zone, transport, forwards, reader, changes, snapshot: shown, kept, kept_bytes, seed }
    }

    fn refresh(&mut self) {
        // The sender is gone when the agent stops; what was shown last is answered until then.
        if self.changes.has_changed().unwrap_or(false) {
            self.snapshot = self.changes.borrow_and_update().clone();
            self.clear();
        }
    }

    fn clear(&mut self) {
        self.kept.clear();
        self.kept_bytes = 0;
    }

    /// Answers a packet into a buffer, behind what is in it.
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
                    && now.duration_since(*refreshed_at) > SAY_EVERY
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

    /// Answers a packet without keeping anything.
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
                // The orders come to be one after the other.
                kept.next = kept.orders.len();
                kept.orders.push((bytes, now));
            }
        }
    }
}
