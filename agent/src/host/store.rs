//! Follows the store: assesses whether it is the store of this host, applies what follows from that,
//! and notes the target.

use super::Reconciler;
use super::context::{Away, Context};
use crate::catalog::{Fencing, Trust};
use crate::clock;
use etcd_session::{Deadline, Gate, PresenceState, StoreError};
use planning::host::{Target, TrustChange, reassess, store_view};
use schema::instruction::Instruction;
use schema::keys::{self, Key};
use schema::store_trust::StoreTrust;
use schema::time::format_duration;
use std::time::Duration;

/// Time without the store after which that is logged.
const AWAY_LOGGED_AFTER: Duration = Duration::from_secs(5);

/// Name of the file that holds the last known target. The `orchestrate` command reads it too.
const LAST_TARGET: &str = "current_version";

impl Reconciler {
    /// Assesses the store by the newest snapshot of its keys, and notes the target.
    pub(super) async fn observe_store(&mut self, context: &mut Context) {
        let host = context.state.host.clone();
        let listing = context.state.listing();
        self.store.mirror.poll_also(&store_view::polled_also(&context.snapshot.followed, &host, listing));
        log_contact(context);
        if context.snapshot.followed.reads == 0 {
            return;
        }
        let marks = self.executor.session.marks();
        let memory = context.state.store.as_ref();
        let seen = store_view::seen(&context.snapshot.followed, &host, memory, marks.history);
        let decommissioned = store_view::decommissioned(&context.snapshot.followed, &host);
        let change = reassess(memory, &seen, (marks.revision, marks.raft_term), decommissioned);
        self.apply_trust(context, change).await;
        self.open_gate(context);
        self.publish_trust(context);
        self.check_claim(context);
        let target = store_view::target(&context.snapshot.followed, context.epoch());
        if target != context.target {
            log_target(&target);
            context.target = target;
            context.target_since = clock::boot_millis();
        }
        if context.store_trust == StoreTrust::Trusted {
            self.remember_target(context);
        }
    }

    /// Applies what follows from an assessment of the store.
    async fn apply_trust(&self, context: &mut Context, change: TrustChange) {
        if let Some(epoch) = change.accepted {
            tracing::info!(epoch, "the store was accepted by an operator");
        }
        if change.trust != context.store_trust {
            match &change.trust {
                StoreTrust::WentBack { by } => {
                    tracing::error!(%by, "the store went back: nothing starts until `orchestrate store accept`");
                }
                StoreTrust::Unreadable { why } => {
                    tracing::error!(%why, "the store's identity cannot be read: nothing is written");
                }
                StoreTrust::OtherLineage { ours, theirs } => {
                    tracing::error!(%ours, %theirs, "this is another fleet's store: nothing is written to it");
                }
                StoreTrust::Unread
                | StoreTrust::Unclaimed
                | StoreTrust::Trusted
                | StoreTrust::Accepted { .. } => {}
            }
        }
        if let Some((revision, raft_term)) = change.new_history {
            self.executor.session.begin_history(revision, raft_term);
            // The next start finds out what stands in this history.
            context.brakes.forget();
        }
        if change.resyncs {
            self.store.mirror.request_resync();
        }
        context.state.store = change.memory;
        context.unsaved |= change.must_record;
        if change.forgets_write {
            context.written = None;
        }
        context.store_trust = change.trust;
        if change.claims_store {
            self.claim_store(context).await;
        }
    }

    /// Writes the last known target to its file. `orchestrate current_version` answers from this
    /// file when the store is unreachable, so that a configuration run does not abort.
    fn remember_target(&self, context: &mut Context) {
        let Target::Known(instruction) = &context.target else { return };
        let version = &instruction.version;
        if context.remembered_target.as_ref() == Some(version) {
            return;
        }
        if let Err(error) = self.executor.directory.replace(LAST_TARGET, version.as_str().as_bytes(), 0o644) {
            tracing::warn!(%error, "the last known target could not be written");
        }
        context.remembered_target = Some(version.clone());
    }

    async fn claim_store(&self, context: &mut Context) {
        if clock::boot_millis() < context.store_retry_at {
            return;
        }
        match self.executor.session.claim_store(Deadline::of_request()).await {
            Ok(()) => self.store.mirror.request_resync(),
            Err(error @ StoreError::PermissionDenied { .. }) => {
                tracing::warn!(%error, "the store has no identity yet; an operator must create it: orchestrate store accept --version V");
            }
            Err(error) => tracing::debug!(%error, "the store's identity could not be written"),
        }
        // Even after success, so that the next attempt waits until a snapshot shows the identity.
        context.store_failed();
    }

    /// Opens the gate for the store of this host, even if that store went back: the name may be
    /// claimed and the report written there. Closes it otherwise.
    fn open_gate(&self, context: &Context) {
        let open = matches!(context.store_trust, StoreTrust::Trusted | StoreTrust::WentBack { .. });
        let store_revision = context.snapshot.followed.keys.revision_of(&Key::Store);
        let history = self.executor.session.marks().history;
        let gate = Gate { open, store_revision, history, memory: context.state.store.clone() };
        self.store.gate.send_if_modified(|old| {
            let differs = old.differs(&gate);
            *old = gate;
            differs
        });
    }

    /// Sends trust and fencing to the tasks of the catalog. The catalog of a store that went back
    /// or belongs to another fleet does not count, and nothing is published there.
    fn publish_trust(&self, context: &Context) {
        let (keys, host) = (&context.snapshot.followed.keys, &context.state.host);
        let is_trusted = context.store_trust == StoreTrust::Trusted;
        let trust =
            Trust { epoch: is_trusted.then(|| context.epoch()), release: keys.revision_of(&Key::DropStale) };
        self.catalog.trust.send_if_modified(|old| std::mem::replace(old, trust) != trust);
        let maintenance = keys.get(&Key::Maintenance(host.clone()));
        let maintenance = maintenance.map(|entry| keys::Maintenance::read(&entry.value));
        let maintenance = match maintenance {
            // The last maintenance marks that could be read stay in effect.
            Some(Err(error)) => {
                tracing::warn!(%error, "the maintenance marks of this host cannot be read");
                self.catalog.fencing.borrow().maintenance.clone()
            }
            found => found.and_then(Result::ok).unwrap_or_default(),
        };
        let fencing = Fencing {
            store_revision: is_trusted.then(|| keys.revision_of(&Key::Store)),
            history: self.executor.session.marks().history,
            decommissioned: store_view::decommissioned(&context.snapshot.followed, host),
            maintenance,
        };
        self.catalog.fencing.send_if_modified(|old| {
            let differs = *old != fencing;
            if differs {
                *old = fencing;
            }
            differs
        });
    }

    /// Asks presence to check the claim and the roster entry if the snapshot shows that the claim
    /// changed or the entry is missing.
    fn check_claim(&self, context: &Context) {
        let PresenceState::Held { live_revision, .. } = context.presence else { return };
        let (keys, host) = (&context.snapshot.followed.keys, &context.state.host);
        let is_held = keys.revision_of(&Key::Live(host.clone())) == live_revision;
        let enlisted = keys.get(&Key::Host(host.clone())).is_some();
        if keys.revision > live_revision && !(is_held && enlisted) {
            self.store.presence.check_now();
        }
    }
}

/// Logs once that the store cannot be read, and once that it can be read again.
fn log_contact(context: &mut Context) {
    let Some(error) = &context.snapshot.error else {
        if let Some(Away { since, logged: true }) = context.store_away.take() {
            let took = format_duration(clock::boot_millis().since(since));
            tracing::info!(after = took, "the store can be read again");
        }
        return;
    };
    let now = clock::boot_millis();
    let away = context.store_away.get_or_insert(Away { since: now, logged: false });
    // A change of the leader takes less.
    if !away.logged && now.since(away.since) >= AWAY_LOGGED_AFTER {
        away.logged = true;
        tracing::warn!(%error, "the store cannot be read; no update starts until it can");
    }
}

fn log_target(target: &Target) {
    match target {
        Target::Known(Instruction { version, order }) => {
            tracing::info!(%version, revision = order.revision, epoch = order.epoch, "the desired version");
        }
        Target::Invalid { why } => tracing::warn!(%why, "the desired version is not valid"),
        Target::NotSet | Target::Unread => tracing::info!("there is no desired version"),
    }
}
