//! What the first host of a queue does about the hosts that hold the claims it waits for: one whose agent
//! does not run is marked and later lost, and one with a number above the limit gets a lower number.

use super::limits::LimitView;
use super::view::RolloutView;
use schema::codec;
use schema::keys::{Key, Prefix};
use schema::limit::Limit;
use schema::names::HostName;
use schema::records::LostMark;
use schema::snapshot::KeySnapshot;
use schema::time::{EpochSeconds, Span};
use schema::transaction::Transaction;
use schema::writes::claims::FoundClaims;
use schema::writes::lost::{end_claims, mark_lost, move_claim, time_lost};
use std::collections::BTreeSet;

/// Holders of claims that a host looks after, because it is the first that waits for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holders {
    hosts: BTreeSet<HostName>,
    moves: Option<Move>,
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
        Some(Holders { hosts, moves: claim_to_move(view, own) })
    }
}

/// Returns the claim that keeps hosts from starting though fewer than the limit are unavailable: the one
/// with the highest number.
fn claim_to_move(view: &LimitView, own: &HostName) -> Option<Move> {
    let to = (0..view.max).find(|number| !view.holders.contains_key(number))?;
    let above = view.holders.range(view.max..).rev();
    let of_others = above.filter_map(|(number, host)| Some((*number, host.as_ref()?)));
    let (from, host) = of_others.into_iter().find(|(_, host)| *host != own)?;
    Some(Move { host: host.clone(), limit: view.limit.clone(), from, to })
}

impl Holders {
    /// Returns the task to look after these hosts.
    pub(super) fn of_hosts(hosts: BTreeSet<HostName>) -> Self {
        Self { hosts, moves: None }
    }

    /// Returns what is read first: which agents run, and which hosts are marked.
    pub fn first_reads(&self) -> (Vec<Key>, Vec<Prefix>) {
        let live = self.hosts.iter().cloned().map(Key::Live);
        (live.chain([Key::Store]).collect(), vec![Prefix::Lost])
    }

    /// Returns what is read then, at the same revision.
    pub fn second_reads(&self, found: &KeySnapshot) -> Vec<Key> {
        let vanished = self.vanished(found).chain(self.moves.iter().map(|claim| &claim.host));
        vanished.cloned().map(Key::Claimed).collect()
    }

    fn vanished<'a>(&'a self, found: &'a KeySnapshot) -> impl Iterator<Item = &'a HostName> {
        self.hosts.iter().filter(|host| found.get(&Key::Live((*host).clone())).is_none())
    }

    /// Returns what is to be done. `found` holds everything that was read; `by` says who marks a host, and when.
    pub fn tasks(&self, found: &KeySnapshot, by: &(String, EpochSeconds)) -> Vec<HolderTask> {
        let moved = self.moves.iter().filter_map(|claim| {
            let Move { host, limit, from, to } = claim;
            move_claim(host, (limit, *from), *to, found).map(HolderTask::Commit)
        });
        let is_moved = |host: &HostName| self.moves.as_ref().is_some_and(|claim| claim.host == *host);
        let vanished = self.vanished(found).filter(|host| !is_moved(host));
        moved.chain(vanished.filter_map(|host| task(host, found, by))).collect()
    }
}

/// Returns what is to be done about a holder whose agent does not run.
fn task(host: &HostName, found: &KeySnapshot, (by, at): &(String, EpochSeconds)) -> Option<HolderTask> {
    let claims = FoundClaims::read(host, found).claims?;
    // What is left of a lost host counts until somebody releases it.
    if claims.lost && claims.claims.iter().all(|claim| claim.keep_failed) {
        return None;
    }
    // A store that was accepted may have lost what the host wrote since the mark.
    let accepted_at = found.revision_of(&Key::Store);
    let entry = found.get(&Key::LostMark(host.clone())).filter(|mark| mark.mod_revision > accepted_at);
    let mark = entry.and_then(|entry| codec::read::<LostMark>(&entry.value).ok());
    let Some(mark) = mark.filter(|mark| mark.is_about(&claims)) else {
        let (claimed_since, rollout) = (claims.since, claims.rollout);
        let mark = LostMark { by: by.clone(), at: *at, claimed_since, rollout, timed: false };
        return Some(HolderTask::Commit(mark_lost(host, &mark, found)));
    };
    if !mark.timed {
        return Some(HolderTask::Time(host.clone(), claims.lost_after));
    }
    let is_time_over = found.get(&Key::LostTimer(host.clone())).is_none();
    is_time_over.then(|| end_claims(host, found).map(HolderTask::Commit)).flatten()
}

/// Returns the transaction that starts the timer of a marked holder. `timer` is a lease that was granted after
/// `found` was read; the task follows from `found`.
pub fn start_timer(host: &HostName, timer: i64, found: &KeySnapshot) -> Option<Transaction> {
    let entry = found.get(&Key::LostMark(host.clone()))?;
    let mark = codec::read(&entry.value).ok()?;
    Some(time_lost(host, mark, timer, found))
}
