//! Claims that programs of this machine ask for: FleetLock's clients before a reboot, and
//! `orchestrate with-claim` for a command. The loop of the host holds the claims of updates; both write
//! `/orchestrate/claimed/<host>` and compare its revision, so that neither overwrites the other.

use crate::catalog::Fencing;
use crate::clock;
use crate::command_locks::CommandLocks;
use crate::handles::Handles;
use crate::rollout::{HOLDERS_INTERVAL, JudgedStore, look_after};
use etcd_session::{Deadline, PresenceState, Session, StoreError};
use planning::rollout::{
    ClaimAnswer, ClaimRequest, Holders, RolloutView, limit_reads, rollout_reads, store_reads, view_for_claims,
};
use schema::names::{HostName, Token};
use schema::reads::Read;
use schema::records::{HeldClaim, Purpose};
use schema::snapshot::KeySnapshot;
use schema::why_not::WhyNot;
use schema::writes::Fence;
use schema::writes::claims::FoundClaims;
use schema::writes::purpose::end_purpose;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;

/// Number of times that a transaction is tried if others change the claims at the same time.
const TRIES: u32 = 5;

/// Why claims were not taken or given back.
#[derive(Debug)]
pub(crate) enum ClaimRefusal {
    /// The rollout holds the host back.
    HeldBack(WhyNot),
    /// Nobody holds the lock of the command, which is at this path.
    NotLocked(PathBuf),
    /// The store cannot be written by this host now.
    Away(String),
}

impl From<StoreError> for ClaimRefusal {
    fn from(error: StoreError) -> Self {
        Self::Away(error.to_string())
    }
}

/// Takes claims for programs of this machine.
#[derive(Clone)]
pub(crate) struct LocalClaims {
    parts: Arc<Parts>,
}

struct Parts {
    session: Session,
    host: HostName,
    instance: Token,
    presence: watch::Receiver<PresenceState>,
    fencing: watch::Receiver<Fencing>,
    locks: Arc<CommandLocks>,
    /// One request at a time.
    waits: Mutex<Waits>,
}

/// What is known of a wait for claims.
struct Waits {
    /// When the holders of claims are looked after again.
    looks_after_at: Instant,
    /// What was read last.
    view: Option<RolloutView>,
}

impl LocalClaims {
    pub(crate) fn new(
        handles: &Handles,
        instance: Token,
        presence: watch::Receiver<PresenceState>,
        fencing: watch::Receiver<Fencing>,
        locks: Arc<CommandLocks>,
    ) -> Self {
        let (session, host) = (handles.session.clone(), handles.host.clone());
        let waits = Mutex::new(Waits { looks_after_at: Instant::now(), view: None });
        Self { parts: Arc::new(Parts { session, host, instance, presence, fencing, locks, waits }) }
    }

    /// Takes claims for a command whose lock somebody holds. Returns the path of the lock.
    pub(crate) async fn take_for_command(&self, run: &Token) -> Result<PathBuf, ClaimRefusal> {
        let locks = &self.parts.locks;
        let path = locks.create(run).map_err(|error| ClaimRefusal::Away(error.to_string()))?;
        if !locks.is_held(run) {
            return Err(ClaimRefusal::NotLocked(path));
        }
        let claims = self.take(&Purpose::Command(run.clone())).await?;
        if let Some(claims) = claims {
            // Without this, they are not taken again if the host is lost meanwhile.
            locks.note_claims(run, &claims).map_err(|error| ClaimRefusal::Away(error.to_string()))?;
        }
        Ok(path)
    }

    /// Gives the claims of a command back.
    pub(crate) async fn end_command(&self, run: &Token) -> Result<(), ClaimRefusal> {
        self.end(&Purpose::Command(run.clone())).await?;
        self.parts.locks.remove(run);
        Ok(())
    }

    /// Takes claims, and returns all that the host holds then. Does nothing if the host holds them for this
    /// purpose already, or if no limit counts it.
    pub(crate) async fn take(&self, purpose: &Purpose) -> Result<Option<Vec<HeldClaim>>, ClaimRefusal> {
        let Parts { session, host, instance, waits, .. } = &*self.parts;
        let mut waits = waits.lock().await;
        for _ in 0..TRIES {
            let judged @ JudgedStore { history, fence } = self.judged()?;
            let found = self.read(history).await?;
            let now = clock::now();
            let view = view_for_claims(host, &found, waits.view.as_ref(), now.boot);
            let request = ClaimRequest { host, instance, purpose, fence, now };
            match request.answer(&view, &found) {
                ClaimAnswer::Nothing => {
                    let held = FoundClaims::read(host, &found).claims;
                    let held = held.filter(|held| held.purposes.contains(purpose));
                    return Ok(held.map(|held| held.claims));
                }
                ClaimAnswer::Take(transaction, claims) => {
                    if session.commit(&transaction, Deadline::of_request()).await?.applied {
                        tracing::info!(%purpose, "claims taken");
                        waits.view = None;
                        return Ok(Some(claims));
                    }
                }
                ClaimAnswer::Waits(obstacle) => {
                    if let Some(holders) = view.holders() {
                        self.look_after(&holders, judged, &mut waits.looks_after_at).await;
                    }
                    waits.view = Some(view);
                    return Err(ClaimRefusal::HeldBack(obstacle));
                }
            }
        }
        Err(ClaimRefusal::HeldBack(WhyNot::NotRead))
    }

    /// Looks after the hosts that keep this one waiting, now and then.
    async fn look_after(&self, holders: &Holders, judged: JudgedStore, due: &mut Instant) {
        if *due > Instant::now() {
            return;
        }
        *due = Instant::now() + HOLDERS_INTERVAL;
        let Parts { session, host, .. } = &*self.parts;
        // The answer does not depend on it.
        if let Err(error) = look_after(session, host, holders, judged).await {
            tracing::warn!(%error, "the holders of claims could not be looked after");
        }
    }

    /// Gives claims back. Does nothing if the host does not hold them for this purpose.
    pub(crate) async fn end(&self, purpose: &Purpose) -> Result<(), ClaimRefusal> {
        let Parts { session, host, waits, .. } = &*self.parts;
        let _one_at_a_time = waits.lock().await;
        for _ in 0..TRIES {
            let JudgedStore { history, fence } = self.judged()?;
            let reads = Read::all(&store_reads(host), &[]);
            let found = session.read_judged(history, &reads, None, Deadline::of_request()).await?;
            let Some(transaction) = end_purpose(host, fence, purpose, &found) else { return Ok(()) };
            if session.commit(&transaction, Deadline::of_request()).await?.applied {
                tracing::info!(%purpose, "claims given back");
                return Ok(());
            }
        }
        Err(ClaimRefusal::Away("the claims of the host keep changing".into()))
    }

    /// Returns the store that the host has judged.
    fn judged(&self) -> Result<JudgedStore, ClaimRefusal> {
        let Parts { presence, fencing, session, .. } = &*self.parts;
        let fencing = fencing.borrow().clone();
        let is_usable = !fencing.decommissioned && fencing.history == session.marks().history;
        match (&*presence.borrow(), fencing.store_revision) {
            (PresenceState::Held { lease, live_revision }, Some(store_revision)) if is_usable => {
                let fence = Fence { live_revision: *live_revision, live_lease: *lease, store_revision };
                Ok(JudgedStore { history: fencing.history, fence })
            }
            _ => Err(ClaimRefusal::Away(
                "the agent does not hold the name of this host, or does not trust the store; `/status` says why".into(),
            )),
        }
    }

    /// Reads everything that a claim depends on, at one revision.
    async fn read(&self, history: u64) -> Result<KeySnapshot, StoreError> {
        let Parts { session, host, .. } = &*self.parts;
        let deadline = Deadline::of_request();
        let reads = Read::all(&store_reads(host), &[]);
        let mut found = session.read_judged(history, &reads, None, deadline).await?;
        let at = Some(found.revision);
        let rollout = session.read_judged(history, &rollout_reads(host, &found), at, deadline).await?;
        found.entries.extend(rollout.entries);
        let limits = limit_reads(host, &found);
        if !limits.is_empty() {
            let limits = session.read_judged(history, &limits, at, deadline).await?;
            found.entries.extend(limits.entries);
        }
        Ok(found)
    }
}
