//! The claim of a host's name: `/orchestrate/live/<host>` under the live lease.
//!
//! One task owns the lease: it claims the name, keeps the lease alive, notices its loss and claims
//! again. It resumes a lease only on the same boot and machine, and only if a transaction proves
//! that the claim under it is still ours. If another instance holds the claim, the task checks its
//! lease: while that lease is kept alive, another agent uses the name, so this agent does not claim
//! it and reports the conflict.
//!
//! A restored store holds the claim, the lease and the listing of the time of its backup. So a
//! lease is valid only in one history of the store. Before the lease is kept alive on a new
//! connection, one read proves that this is the store in which it was granted. In a store that went
//! back, the name is claimed under a new lease, and the old listing is deleted.
//!
//! This file is long because it is one state machine that owns the claim and its lease.

use crate::clash::{Clash, Ours};
use crate::contradiction::Contradictions;
use crate::error::StoreError;
use crate::pace::{refused_delay, write_backoff};
use crate::random::jitter;
use crate::request::Deadline;
use crate::session::Session;
use schema::keys::{self, Key};
use schema::names::HostName;
use schema::records::{LiveClaim, RosterEntry};
use schema::snapshot::{Entry, KeySnapshot};
use schema::store_marks::{Marks, store_seen, trust_keys};
use schema::store_trust::{StoreMemory, StoreTrust, assess};
use schema::writes::claim::ClaimWrite;
use schema::writes::respell::Respelling;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// Settings of a claim.
#[derive(Debug, Clone)]
pub struct PresenceConfig {
    /// Name of the host to claim.
    pub host: HostName,
    /// The same name with the capitals of the machine's name, if it has any. Older agents kept their keys
    /// under it; they are moved before the name is claimed.
    pub former: Option<HostName>,
    /// Value of the claim; it identifies this agent instance, machine and boot.
    pub claim: LiveClaim,
    /// Entry that is written to the roster if the host is not on it.
    pub roster: RosterEntry,
    /// Whether to resume the lease of a claim that this instance left behind in the same boot.
    pub resume: bool,
    /// Time to live of the lease, and thereby of the claim, without keep-alives; whole seconds.
    pub lease: Duration,
}

/// The host's judgement whether the store may be written, and its basis.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gate {
    /// True if the store may be written.
    pub open: bool,
    /// Revision of `/orchestrate/store`; 0 if the key does not exist.
    pub store_revision: i64,
    /// History of the store ([`Marks::history`]) in which the judgement was made.
    pub history: u64,
    /// What the host remembers of the store; `None` if it never had one.
    pub memory: Option<StoreMemory>,
}

impl Gate {
    /// True if a value changed that the claim task waits for. `memory` is not compared, because the
    /// task reads it only when it needs it.
    pub fn differs(&self, other: &Self) -> bool {
        let of = |gate: &Self| (gate.open, gate.store_revision, gate.history);
        of(self) != of(other)
    }

    fn went_back(&self) -> bool {
        self.memory.as_ref().is_some_and(|memory| memory.went_back.is_some())
    }

    /// True if a snapshot comes from the store for which this judgement was made.
    fn is_of(&self, snapshot: &KeySnapshot, host: &HostName, marks: Marks) -> bool {
        let regress = marks.regress(snapshot);
        let seen = store_seen(snapshot, host, regress);
        let store_trust = assess(self.memory.as_ref(), &seen);
        marks.history == self.history
            && regress.is_none()
            && (self.went_back() || matches!(store_trust, StoreTrust::Trusted | StoreTrust::Unclaimed))
    }
}

/// State of the claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PresenceState {
    /// The name is not claimed yet.
    NotYet,
    /// This agent holds the claim.
    Held {
        /// Id of the live lease.
        lease: i64,
        /// Revision of the claim. Every transaction of the host compares it.
        live_revision: i64,
    },
    /// Another live instance holds the name.
    Contested {
        /// Readable description of the other instance's claim.
        holder: String,
    },
}

/// When the live lease ends unless it is kept alive until then. While the store cannot be reached, the claim stays
/// [`PresenceState::Held`], because the agent resumes its lease if the store still has it; but other hosts may see
/// this one as gone from that time on.
#[derive(Debug, Clone)]
pub struct LeaseEnd(watch::Receiver<Instant>);

impl LeaseEnd {
    /// True if the lease was not kept alive in time.
    pub fn has_passed(&self) -> bool {
        Instant::now() > *self.0.borrow()
    }
}

/// The claim, as other tasks see it.
pub struct Presence {
    states: watch::Receiver<PresenceState>,
    lease_end: watch::Receiver<Instant>,
    contradictions: Contradictions,
    check: mpsc::Sender<()>,
}

/// Time between two attempts to revoke a lease that must not go on.
const REVOKE_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// Time between two looks at the remaining time of another instance's lease.
const CONTEST_POLL_INTERVAL: Duration = Duration::from_secs(3);

impl Presence {
    /// Prepares to claim the name once the gate is open. Returns the claim and its task, which runs
    /// until it is dropped. The lease is not revoked then: it expires or is resumed.
    pub fn new(
        session: Session,
        config: PresenceConfig,
        gate: watch::Receiver<Gate>,
    ) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let (sender, states) = watch::channel(PresenceState::NotYet);
        let (lease_ends, lease_end) = watch::channel(Instant::now());
        let (check, checks) = mpsc::channel(1);
        let (held, clash) = (None, Clash::default());
        let contradictions = Contradictions::default();
        let untrue = contradictions.clone();
        let task = Claimant { session, config, gate, sender, lease_ends, checks, untrue, held, clash };
        (Self { states, lease_end, contradictions, check }, task.run())
    }

    /// Returns a receiver of the state, which can also wait for the next one.
    pub fn states(&self) -> watch::Receiver<PresenceState> {
        self.states.clone()
    }

    /// Returns when the live lease ends.
    pub fn lease_end(&self) -> LeaseEnd {
        LeaseEnd(self.lease_end.clone())
    }

    /// Returns where the host notes what the store says of it although it is not true.
    pub fn contradictions(&self) -> Contradictions {
        self.contradictions.clone()
    }

    /// Requests a check of the claim now, because a transaction was refused: the claim may be lost.
    pub fn check_now(&self) {
        // A full queue already holds the same request.
        let _ = self.check.try_send(());
    }
}

struct Claimant {
    session: Session,
    config: PresenceConfig,
    gate: watch::Receiver<Gate>,
    sender: watch::Sender<PresenceState>,
    lease_ends: watch::Sender<Instant>,
    checks: mpsc::Receiver<()>,
    /// What the store says of the host although it is not true.
    untrue: Contradictions,
    /// Lease that this process held last, and the history of the store in which it held it.
    held: Option<(i64, u64)>,
    /// What the fleet is told while another agent holds the name.
    clash: Clash,
}

/// A claim that this process made.
#[derive(Debug, Clone, Copy)]
struct NameClaim {
    lease: i64,
    live_revision: i64,
    history: u64,
}

enum ClaimOutcome {
    Held(NameClaim),
    Contested {
        /// The claimed name, as it is spelled in the store.
        host: HostName,
        holder: String,
        lease: i64,
        live_revision: i64,
    },
    /// Something changed between read and write, or the store is not the one that the host judged.
    Raced,
}

/// What the holder of a claim waits for.
enum KeepInput {
    /// A keep-alive is due.
    Due,
    /// A check of the claim was requested.
    Check,
    /// The judgement about the store changed, or the channel was closed.
    Gate { exists: bool },
    /// The store began or ceased to say what is not true.
    Untrue,
    /// The store has said for too long what is not true.
    Revoke,
}

/// How the holder of a claim gets on with its lease.
struct Keeping {
    last_success: Instant,
    /// Number of keep-alives in a row that failed.
    failures: u32,
    /// When to revoke the lease again; `None` if that was not tried.
    revoke_again_at: Option<Instant>,
}

/// What became of a keep-alive.
enum Kept {
    /// The lease was kept alive.
    Alive,
    /// The lease was not kept alive, because the store says what is not true.
    LeftOut,
    /// The lease must not be kept alive: the claim or the store changed.
    NotOurs,
}

impl Claimant {
    async fn run(mut self) {
        let backoff = write_backoff();
        let mut failures = 0u32;
        // Lease of the other instance, and its remaining seconds at the last look.
        let mut contest: Option<(i64, i64)> = None;
        loop {
            if self.gate.wait_for(|gate| gate.open).await.is_err() {
                return;
            }
            let gate = self.gate.borrow_and_update().clone();
            let requested_at = Instant::now();
            match self.claim(&gate).await {
                Ok(ClaimOutcome::Held(held)) => {
                    failures = 0;
                    contest = None;
                    let NameClaim { lease, live_revision, history } = held;
                    self.held = Some((lease, history));
                    self.lease_ends.send_replace(requested_at + self.config.lease);
                    self.clash.end(&self.session).await;
                    self.publish(PresenceState::Held { lease, live_revision });
                    self.keep(held).await;
                    self.publish(PresenceState::NotYet);
                    // Nobody judges the store any more.
                    if self.gate.has_changed().is_err() {
                        return;
                    }
                }
                Ok(ClaimOutcome::Raced) => {
                    failures += 1;
                    self.pause(backoff.delay(failures, jitter())).await;
                }
                Ok(ClaimOutcome::Contested { host, holder, lease, live_revision }) => {
                    let left = self.time_left(lease).await;
                    let rose = matches!((contest, left), (Some((l, before)), Some(now)) if l == lease && now > before);
                    if rose || contest.is_some_and(|(l, _)| l != lease) {
                        self.publish(PresenceState::Contested { holder: holder.clone() });
                    }
                    if matches!(*self.sender.borrow(), PresenceState::Contested { .. }) {
                        let PresenceConfig { claim, lease, .. } = &self.config;
                        let ours = Ours { host: &host, claim, lease: *lease };
                        self.clash.keep(&self.session, ours, holder, live_revision).await;
                    }
                    contest = left.map(|left| (lease, left));
                    self.pause(CONTEST_POLL_INTERVAL.mul_f64(0.8 + 0.4 * jitter())).await;
                }
                Err(error) => {
                    failures += 1;
                    self.log_refusal(&error);
                    self.pause(backoff.delay(failures, jitter()).max(refused_delay(&error))).await;
                }
            }
        }
    }

    /// Logs why the name cannot be claimed. Without the permission to move keys, only an operator can help.
    fn log_refusal(&self, error: &StoreError) {
        match &self.config.former {
            Some(former) if matches!(error, StoreError::PermissionDenied { .. }) => {
                tracing::warn!(%error, %former, host = %self.config.host, "the name cannot be claimed, or the keys of its former spelling cannot be moved");
            }
            _ => tracing::debug!(%error, "presence: the name cannot be claimed now"),
        }
    }

    fn publish(&self, state: PresenceState) {
        self.sender.send_if_modified(|old| {
            let changes = *old != state;
            *old = state;
            changes
        });
    }

    async fn pause(&mut self, delay: Duration) {
        tokio::select! {
            // Neither arm holds data that is lost when it is dropped.
            () = tokio::time::sleep(delay) => {}
            Some(()) = self.checks.recv() => {}
        }
    }

    async fn time_left(&self, lease: i64) -> Option<i64> {
        self.session.lease_seconds_left(lease, Deadline::of_request()).await.ok()
    }

    /// Reads the claim and the keys from which the store is judged, all on one connection. Returns
    /// the generation of that connection and the marks taken before the read as well.
    async fn read_claim(&self, deadline: Deadline) -> Result<(KeySnapshot, u64, Marks), StoreError> {
        let host = &self.config.host;
        let (_, generation) = self.session.client().await?;
        let marks = self.session.marks();
        let mut keys = vec![Key::Live(host.clone()), Key::Announced(host.clone())];
        keys.extend(trust_keys(host));
        let snapshot = self.session.read_keys(&keys, deadline).await?;
        let (_, after) = self.session.client().await?;
        if after != generation {
            // A read on another connection proves nothing about this one.
            let detail = "the connection changed during the request".into();
            return Err(StoreError::Unreachable { operation: "read", detail });
        }
        Ok((snapshot, generation, marks))
    }

    async fn claim(&self, gate: &Gate) -> Result<ClaimOutcome, StoreError> {
        let config = &self.config;
        let deadline = Deadline::of_request();
        let (snapshot, generation, marks) = self.read_claim(deadline).await?;
        if !gate.is_of(&snapshot, &config.host, marks) {
            return Ok(ClaimOutcome::Raced);
        }
        let live = snapshot.get(&Key::Live(config.host.clone()));
        if let Some(contested) = self.contested(&config.host, live) {
            return Ok(contested);
        }
        self.session.note_proven(generation);
        if let Some(former) = &config.former
            && let Some(outcome) = self.move_keys(former, gate, deadline).await?
        {
            return Ok(outcome);
        }
        let held = live.and_then(|e| keys::Live::read(&e.value).ok());
        let same_boot = held.as_ref().is_some_and(|c| c.boot_id == config.claim.boot_id);
        if let Some(live) = live
            && same_boot
            && self.may_resume(live.lease, gate)
            && self.session.keep_own_lease(live.lease, deadline).await.is_ok()
        {
            return self.write_claim(live.lease, true, gate, &snapshot, deadline).await;
        }
        let lease = self.session.grant_lease(config.lease.as_secs().cast_signed(), deadline).await?;
        let outcome = self.write_claim(lease, false, gate, &snapshot, deadline).await;
        if !matches!(outcome, Ok(ClaimOutcome::Held(_))) {
            // A lease without keys has no use.
            self.session.give_up_lease(lease, deadline).await;
        }
        outcome
    }

    /// Returns the outcome if the claim is another instance's.
    fn contested(&self, host: &HostName, live: Option<&Entry>) -> Option<ClaimOutcome> {
        let (live, ours) = (live?, &self.config.claim);
        let held = keys::Live::read(&live.value).ok();
        let is_ours =
            |held: &LiveClaim| (&held.instance, &held.machine_id) == (&ours.instance, &ours.machine_id);
        if held.as_ref().is_some_and(is_ours) {
            return None;
        }
        Some(ClaimOutcome::Contested {
            host: host.clone(),
            holder: held.map_or("an unreadable claim".into(), |held| held.to_string()),
            lease: live.lease,
            live_revision: live.mod_revision,
        })
    }

    /// Moves the keys of the spelling with capitals to the name. Returns an outcome if the name cannot be
    /// claimed yet. Two machines with one name in two spellings are a name clash.
    async fn move_keys(
        &self,
        former: &HostName,
        gate: &Gate,
        deadline: Deadline,
    ) -> Result<Option<ClaimOutcome>, StoreError> {
        let respelling = Respelling { former, host: &self.config.host };
        let (keys, ranges) = respelling.first_look();
        let first = self.session.read_all(&keys, &ranges, None, deadline).await?;
        if first.entries.is_empty() {
            return Ok(None);
        }
        let found = self.session.read_all(&respelling.keys(&first), &ranges, None, deadline).await?;
        let live = found.get(&Key::Live(former.clone()));
        if let Some(contested) = self.contested(former, live) {
            return Ok(Some(contested));
        }
        for transaction in respelling.moves(gate.store_revision, &found) {
            if !self.session.commit(&transaction, deadline).await?.applied {
                return Ok(Some(ClaimOutcome::Raced));
            }
        }
        tracing::info!(%former, host = %self.config.host, "the keys of the host were moved to its name in lower case");
        if let Some(live) = live {
            self.session.give_up_lease(live.lease, deadline).await;
        }
        Ok(None)
    }

    /// True if the lease may be resumed, which is allowed only in the history in which it was
    /// granted: this process held it in this history, or an earlier process left it and no new
    /// history has begun since.
    fn may_resume(&self, lease: i64, gate: &Gate) -> bool {
        let as_left = self.config.resume && gate.history == 0 && !gate.went_back();
        lease != 0 && (as_left || self.held == Some((lease, gate.history)))
    }

    /// Writes the claim under the lease, if the claim is still as it was read.
    async fn write_claim(
        &self,
        lease: i64,
        resumed: bool,
        gate: &Gate,
        snapshot: &KeySnapshot,
        deadline: Deadline,
    ) -> Result<ClaimOutcome, StoreError> {
        let write = ClaimWrite {
            host: &self.config.host,
            claim: &self.config.claim,
            roster: &self.config.roster,
            lease,
            resumed,
            store_revision: gate.store_revision,
        };
        let transaction = write.transaction(snapshot);
        let committed = self.session.commit(&transaction, deadline).await?;
        if !committed.applied {
            return Ok(ClaimOutcome::Raced);
        }
        let unchanged = transaction.operations.is_empty();
        let found = snapshot.revision_of(&Key::Live(self.config.host.clone()));
        let live_revision = if unchanged { found } else { committed.revision };
        Ok(ClaimOutcome::Held(NameClaim { lease, live_revision, history: gate.history }))
    }

    /// Keeps the lease alive until it is lost, the claim is not ours any more, or a new history of
    /// the store begins.
    async fn keep(&mut self, held: NameClaim) {
        let mut keeping = Keeping { last_success: Instant::now(), failures: 0, revoke_again_at: None };
        let (mut generations, proven) = (self.session.generations(), self.session.proven());
        let mut untrue = self.untrue.changes();
        let mut due_at = Instant::now() + self.keep_alive_delay(0);
        loop {
            let untrue_since = self.untrue.since(held.lease);
            let revoke_at = untrue_since.map(|since| {
                let patience = since + self.config.lease / 3;
                keeping.revoke_again_at.map_or(patience, |again| again.max(patience))
            });
            let due = async {
                tokio::select! {
                    () = tokio::time::sleep_until(due_at) => {}
                    // A new connection is checked at once, because other leases of the host wait
                    // for this check.
                    _ = generations.wait_for(|new| *new != *proven.borrow()), if keeping.failures == 0 => {}
                }
            };
            let input = tokio::select! {
                // No arm holds data that is lost when it is dropped.
                () = due => KeepInput::Due,
                Some(()) = self.checks.recv() => KeepInput::Check,
                changed = self.gate.changed() => KeepInput::Gate { exists: changed.is_ok() },
                Ok(()) = untrue.changed() => KeepInput::Untrue,
                () = tokio::time::sleep_until(revoke_at.unwrap_or(due_at)), if revoke_at.is_some() => {
                    KeepInput::Revoke
                }
            };
            let is_kept = match input {
                KeepInput::Due => {
                    let is_kept = self.keep_due(held, untrue_since.is_none(), &mut keeping).await;
                    due_at = Instant::now() + self.keep_alive_delay(keeping.failures);
                    is_kept
                }
                KeepInput::Check => {
                    let is_ours = self.is_still_ours(held.live_revision).await;
                    if !is_ours {
                        tracing::warn!("the claim of the host name is not valid any more, claiming it again");
                    }
                    is_ours
                }
                KeepInput::Gate { exists } => exists && self.gate.borrow().history == held.history,
                KeepInput::Untrue => {
                    // Keep-alives that were left out are made up for.
                    if self.untrue.since(held.lease).is_none() {
                        due_at = Instant::now();
                    }
                    true
                }
                KeepInput::Revoke => self.revoke(held, &mut keeping).await,
            };
            if !is_kept {
                return;
            }
        }
    }

    /// Sends the keep-alive that is due. Returns false if the claim is lost.
    async fn keep_due(&self, held: NameClaim, is_true: bool, keeping: &mut Keeping) -> bool {
        let requested_at = Instant::now();
        match self.keep_alive(held, is_true).await {
            Ok(Kept::Alive) => {
                self.lease_ends.send_replace(requested_at + self.config.lease);
                (keeping.last_success, keeping.failures) = (Instant::now(), 0);
            }
            Ok(Kept::LeftOut) => keeping.failures = 0,
            Ok(Kept::NotOurs) => {
                tracing::warn!(
                    "the claim or the store changed since the name was claimed, giving up the live lease"
                );
                return false;
            }
            Err(StoreError::LeaseGone { .. }) => {
                tracing::warn!("the live lease is gone, claiming the name again");
                return false;
            }
            Err(error) => {
                keeping.failures += 1;
                tracing::debug!(%error, since = ?keeping.last_success.elapsed(), "the live lease could not be kept alive");
            }
        }
        true
    }

    /// Returns the time until the next keep-alive.
    fn keep_alive_delay(&self, failures: u32) -> Duration {
        if failures == 0 {
            (self.config.lease / 3).mul_f64(0.9 + 0.2 * jitter())
        } else {
            // After an interruption keep-alives reconnect first, spread over five seconds.
            Duration::from_secs(5).mul_f64(jitter())
        }
    }

    /// Revokes the live lease, so that the store does not go on saying what is not true. Returns false if the lease
    /// is gone. If the store does not revoke it, it ends by itself, because it is not kept alive.
    async fn revoke(&self, held: NameClaim, keeping: &mut Keeping) -> bool {
        if keeping.revoke_again_at.is_none() {
            tracing::warn!(
                "what the store says of this host is not true, and the store does not let it be corrected: the live lease is revoked"
            );
        }
        let revoked = self.session.revoke_lease(held.lease, Deadline::of_request()).await;
        keeping.revoke_again_at = Some(Instant::now() + REVOKE_AGAIN_AFTER);
        match revoked {
            Ok(()) | Err(StoreError::LeaseGone { .. }) => false,
            Err(error) => {
                tracing::debug!(%error, "the live lease could not be revoked; it is left to expire");
                self.is_still_ours(held.live_revision).await
            }
        }
    }

    /// Sends one keep-alive, unless what hangs on the lease is untrue. On a new connection the store is checked
    /// first.
    async fn keep_alive(&self, held: NameClaim, is_true: bool) -> Result<Kept, StoreError> {
        let deadline = Deadline::of_request();
        let (_, generation) = self.session.client().await?;
        if *self.session.proven().borrow() != generation {
            // Copied before the read: what the host remembers by now must be found in what is read
            // afterwards.
            let gate = self.gate.borrow().clone();
            let (snapshot, generation, marks) = self.read_claim(deadline).await?;
            let host = &self.config.host;
            let live = snapshot.get(&Key::Live(host.clone()));
            if live.is_none_or(|live| live.mod_revision != held.live_revision) {
                return Ok(Kept::NotOurs);
            }
            if gate.history != held.history || !gate.is_of(&snapshot, host, marks) {
                return Ok(Kept::NotOurs);
            }
            self.session.note_proven(generation);
        }
        if !is_true {
            return Ok(Kept::LeftOut);
        }
        self.session.keep_own_lease(held.lease, deadline).await.map(|()| Kept::Alive)
    }

    /// True if the claim is as it was written and the host is on the roster. Readers rely on a
    /// roster entry for every claim, so an entry that was deleted by hand is written again with the
    /// claim.
    async fn is_still_ours(&self, live_revision: i64) -> bool {
        let keys = [Key::Live(self.config.host.clone()), Key::Host(self.config.host.clone())];
        match self.session.read_keys(&keys, Deadline::of_request()).await {
            Ok(snapshot) => {
                let is_ours = snapshot.get(&keys[0]).is_some_and(|e| e.mod_revision == live_revision);
                is_ours && snapshot.get(&keys[1]).is_some()
            }
            // The state is not known; the next keep-alive will show it.
            Err(_) => true,
        }
    }
}
