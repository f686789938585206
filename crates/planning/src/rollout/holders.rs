//! What the first host of a queue does about the hosts that hold the claims it waits for: one whose agent
//! does not run is marked and later lost, and one with a number above the limit gets a lower number. The host that
//! looks for the end of a rollout does the same about all holders, and about hosts that vanished after their proof.

use super::author::Author;
use super::limits::LimitView;
use super::view::RolloutView;
use schema::keys::{self, Key, Prefix};
use schema::limit::Limit;
use schema::names::HostName;
use schema::order::InstructionOrder;
use schema::records::{HostClaims, LostMark};
use schema::snapshot::KeySnapshot;
use schema::time::{EpochSeconds, Span};
use schema::transaction::Transaction;
use schema::writes::claims::FoundClaims;
use schema::writes::lost::{charge_vanished, end_claims, judged_by, mark_lost, move_claim, time_lost};
use std::collections::BTreeSet;

/// Holders of claims that a host looks after, because it is the first that waits for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holders {
    /// The rollout of the host that looks after them.
    order: InstructionOrder,
    hosts: BTreeSet<HostName>,
    moves: Option<Move>,
    proven: Option<Proven>,
}

/// Hosts that vanished after their proof in a rollout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Proven {
    pub(super) order: InstructionOrder,
    /// How long they may be away.
    pub(super) lost_after: Span,
    pub(super) hosts: BTreeSet<HostName>,
}

/// A claim above the limit, and a free number below it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Move {
    host: HostName,
    limit: Limit,
    from: u32,
    to: u32,
}

/// What is done about one holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HolderTask {
    /// A lease of this time is granted. [`start_timer`] is the transaction with it.
    Time(HostName, Span),
    /// This transaction marks a host that vanished, ends the claims of a lost one, or moves a claim.
    Commit(Transaction),
}

impl RolloutView {
    /// Returns the holders that keep this host waiting, if it is the one that looks after them.
    pub fn holders(&self) -> Option<Holders> {
        let view = self.waits_for().filter(|view| view.ahead.is_empty())?;
        let own = self.host();
        let hosts = view.holders.values().flatten().filter(|host| *host != own).cloned().collect();
        Some(Holders { order: self.order, hosts, moves: claim_to_move(view, own), proven: None })
    }
}

/// Returns the claim that keeps hosts from starting though fewer than the limit are unavailable: that of another host
/// with the highest number, else the own one.
fn claim_to_move(view: &LimitView, own: &HostName) -> Option<Move> {
    let to = (0..view.max).find(|number| !view.holders.contains_key(number))?;
    let above = view.holders.range(view.max..).rev();
    let above: Vec<_> = above.filter_map(|(number, host)| Some((*number, host.as_ref()?))).collect();
    let (from, host) = *above.iter().find(|(_, host)| *host != own).or(above.first())?;
    Some(Move { host: host.clone(), limit: view.limit.clone(), from, to })
}

impl Holders {
    /// Returns the task to look after these holders of claims, and these hosts that were proven.
    pub(super) fn of_rollout(holders: BTreeSet<HostName>, proven: Proven) -> Self {
        Self { order: proven.order, hosts: &holders | &proven.hosts, moves: None, proven: Some(proven) }
    }

    /// True if there is nobody to look after.
    pub(super) fn is_empty(&self) -> bool {
        self.hosts.is_empty() && self.moves.is_none()
    }

    /// Returns what is read first: which agents run, and which hosts are marked.
    pub fn first_reads(&self) -> (Vec<Key>, Vec<Prefix>) {
        let live = self.hosts.iter().cloned().map(Key::Live);
        (live.chain([Key::Store]).collect(), vec![Prefix::Lost])
    }

    /// Returns what is read then, at the same revision.
    pub fn second_reads(&self, found: &KeySnapshot) -> Vec<Key> {
        let claimed = self.vanished(found).chain(self.moves.iter().map(|claim| &claim.host));
        let claimed = claimed.cloned().map(Key::Claimed);
        let proven = self.proven.iter().flat_map(|proven| {
            let vanished = self.vanished(found).filter(|host| proven.hosts.contains(*host));
            vanished.flat_map(|host| judged_by(proven.order, host))
        });
        let failures = self.vanished(found).map(|host| Key::Failed(self.order, host.clone()));
        let keys: BTreeSet<Key> = claimed.chain(proven).chain(failures).collect();
        keys.into_iter().collect()
    }

    fn vanished<'a>(&'a self, found: &'a KeySnapshot) -> impl Iterator<Item = &'a HostName> {
        self.hosts.iter().filter(|host| found.get(&Key::Live((*host).clone())).is_none())
    }

    /// Returns what is to be done. `found` holds everything that was read; `author` marks a host.
    pub fn tasks(&self, found: &KeySnapshot, author: &Author) -> Vec<HolderTask> {
        let moved = self.moves.iter().filter_map(|claim| {
            let Move { host, limit, from, to } = claim;
            move_claim(host, limit, *from, *to, found).map(HolderTask::Commit)
        });
        let is_moved = |host: &HostName| self.moves.as_ref().is_some_and(|claim| claim.host == *host);
        let vanished = self.vanished(found).filter(|host| !is_moved(host));
        moved.chain(vanished.filter_map(|host| self.task(host, found, author))).collect()
    }

    /// Returns what is to be done about a host whose agent does not run.
    fn task(&self, host: &HostName, found: &KeySnapshot, author: &Author) -> Option<HolderTask> {
        let claims = FoundClaims::read(host, found).claims;
        // What is left of a lost host counts until somebody releases it.
        let is_left =
            |claims: &HostClaims| claims.lost && claims.claims.iter().all(|claim| claim.keep_failed);
        if let Some(claims) = claims.filter(|claims| !claims.claims.is_empty() && !is_left(claims)) {
            let absence =
                Absence { since: claims.since, rollout: claims.rollout, ends_after: claims.lost_after };
            return absence.task(host, found, author, || end_claims(host, found));
        }
        let Proven { order, lost_after, hosts } = self.proven.as_ref()?;
        if !hosts.contains(host) {
            return None;
        }
        let failed = found.value_of(keys::Failed(*order, host.clone()));
        if failed.is_some_and(|failed| !failed.healed) {
            return None;
        }
        let progress = found.value_of(keys::Progress(*order, host.clone()))?;
        let absence = Absence { since: progress.at, rollout: *order, ends_after: *lost_after };
        absence.task(host, found, author, || charge_vanished(host, *order, *lost_after, found))
    }
}

/// The absence of an agent that ends with something.
struct Absence {
    /// Since when the host had what it is about: its claims, or its proof.
    since: EpochSeconds,
    rollout: InstructionOrder,
    ends_after: Span,
}

impl Absence {
    /// Returns the next step: the mark, the timer, or the end of the absence.
    fn task(
        &self,
        host: &HostName,
        found: &KeySnapshot,
        author: &Author,
        end: impl FnOnce() -> Option<Transaction>,
    ) -> Option<HolderTask> {
        // A store that was accepted may have lost what the host wrote since the mark.
        let accepted_at = found.revision_of(&Key::Store);
        let entry = found.get(&Key::LostMark(host.clone())).filter(|mark| mark.mod_revision > accepted_at);
        let mark = entry.and_then(|entry| keys::LostMark::read(&entry.value).ok());
        let Some(mark) = mark.filter(|mark| mark.is_about(self.since, self.rollout)) else {
            let (claimed_since, rollout) = (self.since, self.rollout);
            let Author { by, at } = author.clone();
            let mark = LostMark { by, at, claimed_since, rollout, timed: false };
            return Some(HolderTask::Commit(mark_lost(host, &mark, found)));
        };
        if !mark.timed {
            return Some(HolderTask::Time(host.clone(), self.ends_after));
        }
        let is_time_over = found.get(&Key::LostTimer(host.clone())).is_none();
        if is_time_over { end().map(HolderTask::Commit) } else { None }
    }
}

/// Returns the transaction that starts the timer of a marked holder. `timer` is a lease that was granted after
/// `found` was read; the task follows from `found`.
pub fn start_timer(host: &HostName, timer: i64, found: &KeySnapshot) -> Option<Transaction> {
    let mark = found.value_of(keys::LostMark(host.clone()))?;
    Some(time_lost(host, mark, timer, found))
}
