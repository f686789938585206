//! Encoded answers by the bytes of their questions. A catalog changes seldom and is asked often: what was
//! encoded for one client serves the next with its id in front. Answers are made anew after a few uses, so that
//! their order goes on changing, and all of them when the catalog differs.

use super::codec::{Asked, Reply, Transport, read};
use crate::catalog::{Reader, Shown};
use model::catalog::Zone;
use model::names::ServiceName;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Questions that are kept; clients that spell each one anew push out what is kept, and no more.
const KEPT_MAX: usize = 4096;
/// So many orders of one answer,
const ORDERS: usize = 8;
/// each so often.
const USES: u32 = 32;
/// A service that is asked for is said to be at most this often.
const SAY_EVERY: Duration = Duration::from_secs(20);

struct Kept {
    orders: Vec<(Vec<u8>, u32)>,
    next: usize,
    service: Option<(ServiceName, Instant)>,
}

/// One thread's way from packets to answers.
pub(super) struct Answers {
    zone: Arc<Zone>,
    forwards: bool,
    reader: Reader,
    changes: watch::Receiver<Arc<Shown>>,
    shown: Arc<Shown>,
    kept: HashMap<Box<[u8]>, Kept>,
    seed: u64,
}

impl Answers {
    pub(super) fn new(zone: Arc<Zone>, forwards: bool, reader: Reader) -> Self {
        let changes = reader.changes();
        let shown = reader.shown();
        // The order of answers is no secret.
        let seed = (etcd_session::draw() * f64::from(u32::MAX)) as u64 + 1;
        Self { zone, forwards, reader, changes, shown, kept: HashMap::new(), seed }
    }

    fn look(&mut self) {
        // The sender is gone when the agent stops; what was shown last is answered until then.
        if self.changes.has_changed().unwrap_or(false) {
            self.shown = self.changes.borrow_and_update().clone();
            self.kept.clear();
        }
    }

    /// Answers a packet that came by UDP into a buffer; `None` if the buffer holds the answer.
    pub(super) fn answer(&mut self, packet: &[u8], out: &mut Vec<u8>) -> Option<Reply> {
        self.look();
        let question = packet.get(2..)?;
        if let Some(kept) = self.kept.get_mut(question) {
            kept.next = (kept.next + 1) % ORDERS;
            if let Some((bytes, uses)) = kept.orders.get_mut(kept.next).filter(|(_, uses)| *uses > 0) {
                *uses -= 1;
                out.clear();
                out.extend_from_slice(bytes);
                out[..2].copy_from_slice(&packet[..2]);
                if let Some((service, said)) = &mut kept.service
                    && said.elapsed() > SAY_EVERY
                {
                    *said = Instant::now();
                    self.reader.ask(service);
                }
                return None;
            }
        }
        let (reply, service) = self.make(packet, Transport::Udp, true);
        let Reply::Bytes(bytes) = &reply else { return Some(reply) };
        out.clear();
        out.extend_from_slice(bytes);
        self.keep(question.into(), bytes.clone(), service);
        None
    }

    /// Answers a packet without keeping anything.
    pub(super) fn make(
        &mut self,
        packet: &[u8],
        transport: Transport,
        can_wait: bool,
    ) -> (Reply, Option<ServiceName>) {
        self.look();
        let asked: Asked = match read(packet, transport) {
            Ok(asked) => asked,
            Err(reply) => return (reply, None),
        };
        let serial = self.shown.revision as u32;
        let Self { shown, zone, seed, forwards, .. } = self;
        let (reply, service) = asked.answer(&shown.view, zone, serial, seed, can_wait, *forwards);
        if let Some(service) = &service {
            self.reader.ask(service);
        }
        (reply, service)
    }

    fn keep(&mut self, question: Box<[u8]>, bytes: Vec<u8>, service: Option<ServiceName>) {
        if self.kept.len() >= KEPT_MAX && !self.kept.contains_key(&question) {
            self.kept.clear();
        }
        let service = service.map(|service| (service, Instant::now()));
        let kept = self.kept.entry(question).or_insert_with(|| Kept { orders: Vec::new(), next: 0, service });
        if kept.orders.len() < ORDERS {
            kept.orders.push((bytes, USES));
        } else {
            kept.orders[kept.next] = (bytes, USES);
        }
    }
}
