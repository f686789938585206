//! The laws about hosts that wait (R7 and R11): whoever waits has an obstacle that the store names, and one that ends by
//! itself does end in time. They are checked against what the store says and what hosts say about themselves, and
//! not against why the hosts think that they wait.

use crate::current::{Current, is_in_window, stage_number};
use crate::violation::{Violation, broken};
use schema::limit::Limit;
use schema::names::HostName;
use std::collections::BTreeMap;

/// Time in milliseconds within which a host starts if it has no obstacle. It covers a running validation, the interval
/// between two reads, and the repetition of a lost request.
const STARTS_WITHIN: u64 = 240_000;
/// The same time if other hosts come first. A host that does not use its turn is passed over after a minute. At most four
/// hosts are passed over one after the other.
const STARTS_LATER_WITHIN: u64 = STARTS_WITHIN + 6 * 60_000;
/// Time after its opening in which hosts do not use a window at once, in seconds.
const WINDOW_SPREAD: i64 = 60;
/// Time in milliseconds within which one of several hosts does a shared task: it writes the record, halts the rollout, or
/// ends the claims of a lost host.
pub(crate) const DONE_WITHIN: u64 = 240_000;

/// State of an agent, as the agent reports it.
#[derive(Debug, Clone)]
pub(crate) struct AgentView {
    pub(crate) host: HostName,
    /// The number of its process.
    pub(crate) process: u64,
    /// True if it can write to its store, and knows the desired version.
    pub(crate) is_able: bool,
    /// True if it has fetched the desired version, and wants to start.
    pub(crate) wants_to_start: bool,
    /// True if it has the desired version from an earlier rollout, so that it looks for the end of the current one.
    pub(crate) looks_again: bool,
    /// True if it started in the current rollout, so that it looks for its end.
    pub(crate) looks: bool,
    /// True if its old version is gone, or if it keeps its claims for some time after its proof.
    pub(crate) needs_claims: bool,
}

/// Values by key, each with the time since which it has not changed.
#[derive(Debug, Clone)]
pub(crate) struct Lasting<K, T>(BTreeMap<K, (T, u64)>);

impl<K, T> Default for Lasting<K, T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Clone, T: PartialEq> Lasting<K, T> {
    /// Takes over what is so now, and forgets what is gone. Returns what has been the same for longest, among
    /// that for which `limit` is over.
    pub(crate) fn look(
        &mut self,
        found: impl IntoIterator<Item = (K, T)>,
        limit: impl Fn(&T) -> u64,
        now: u64,
    ) -> Option<(K, u64)> {
        let mut before = std::mem::take(&mut self.0);
        for (key, what) in found {
            let since = before.remove(&key).filter(|(same, _)| *same == what).map_or(now, |(_, since)| since);
            self.0.insert(key, (what, since));
        }
        let over = self.0.iter().filter(|(_, (what, since))| now - since >= limit(what));
        over.min_by_key(|(_, (_, since))| *since).map(|(key, (_, since))| (key.clone(), now - since))
    }
}

/// State of a host without an obstacle.
#[derive(Debug, Clone, PartialEq)]
struct Free {
    process: u64,
    /// Holders of the other claims of its limits.
    holders: Vec<(u32, HostName)>,
    is_first: bool,
}

/// A host of which the agent does not run, whose claims keep another one waiting.
#[derive(Debug, Clone, PartialEq)]
struct Vanished {
    waits: HostName,
    process: u64,
    claimed_at: i64,
    raft_term: u64,
    lost_after: u64,
}

/// State of the laws about waiting hosts.
#[derive(Debug, Clone, Default)]
pub(crate) struct WaitingLaws {
    free: Lasting<HostName, Free>,
    without_record: Lasting<HostName, u64>,
    over_budget: Lasting<(), (i64, usize)>,
    vanished: Lasting<HostName, Vanished>,
    unused: Lasting<HostName, (u64, i64)>,
}

impl WaitingLaws {
    /// The store went back, or nothing waits.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Checks who waits. `views` is what the agents say.
    pub(crate) fn look(
        &mut self,
        current: &Current,
        views: &[AgentView],
        raft_term: u64,
        now: u64,
    ) -> Result<(), Violation> {
        let waiting = || views.iter().filter(|agent| agent.is_able && agent.wants_to_start);
        let free = waiting().filter_map(|agent| Some((agent.host.clone(), free(current, agent)?)));
        let within = |free: &Free| if free.is_first { STARTS_WITHIN } else { STARTS_LATER_WITHIN };
        if let Some((host, lasted)) = self.free.look(free, within, now) {
            let what = format!("nothing has kept {host} from starting for {} s, and it waits", lasted / 1000);
            return broken("R7", what);
        }
        let looks = |agent: &&AgentView| {
            current.lacks_record && agent.is_able && (agent.wants_to_start || agent.looks_again)
        };
        let lacks = views.iter().filter(looks).map(|agent| (agent.host.clone(), agent.process));
        if let Some((host, lasted)) = self.without_record.look(lacks, |_| DONE_WITHIN, now) {
            let what = format!("{host} waits for the record of its rollout for {} s", lasted / 1000);
            return broken("R7", what);
        }
        let is_over = current.is_over_budget() && !current.is_halted && !current.has_ended;
        let somebody = views.iter().any(|agent| agent.is_able && (agent.wants_to_start || agent.looks));
        let counted_from = current.record.as_ref().map_or(0, |(record, _)| record.counted_from);
        let over = (is_over && somebody).then_some(((), (counted_from, current.failures.len())));
        if let Some(((), lasted)) = self.over_budget.look(over, |_| DONE_WITHIN, now) {
            let what =
                format!("more hosts failed than are tolerated, and nobody halts for {} s", lasted / 1000);
            return broken("R7", what);
        }
        let vanished = waiting().filter_map(|agent| vanished(current, agent, raft_term));
        let vanished: BTreeMap<HostName, Vanished> = vanished.flatten().collect();
        if let Some((host, lasted)) = self.vanished.look(vanished, |v| v.lost_after + DONE_WITHIN, now) {
            let what = format!(
                "{host} has been gone for {} s, and its claims keep another host waiting",
                lasted / 1000
            );
            return broken("R7", what);
        }
        let unused = views.iter().filter_map(|agent| {
            let (claims, revision) = current.claimed.get(&agent.host)?;
            let is_update = claims.is_for_update() && claims.purposes.len() == 1;
            let is_unused = is_update && !agent.needs_claims && current.announced.contains_key(&agent.host);
            (agent.is_able && is_unused).then(|| (agent.host.clone(), (agent.process, *revision)))
        });
        if let Some((host, lasted)) = self.unused.look(unused, |_| DONE_WITHIN, now) {
            let what = format!("{host} is available for {} s, and keeps its claims", lasted / 1000);
            return broken("R4", what);
        }
        Ok(())
    }
}

/// True if nothing but its limits can keep a host from starting.
fn is_held_by_limits_alone(current: &Current, host: &HostName) -> bool {
    let wall = current.wall;
    let Some(member) = current.members.get(host) else { return false };
    let is_held = current.is_frozen(host, &member.roster)
        || current.lacks_record
        || current.is_halted
        || current.is_over_budget();
    let is_kept = current.record.as_ref().is_some_and(|(record, _)| {
        let stage = stage_number(record, host, &member.roster);
        // A host may start before its stage is open if it is unavailable. If it is installed again after that, it waits
        // for the stage.
        let is_open = stage <= current.open || current.has_ended;
        // Hosts that wait for a window start over half a minute.
        let is_in_window = [wall, wall - WINDOW_SPREAD].iter().all(|at| is_in_window(record, *at));
        record.refused.is_some() || !is_in_window || !is_open
    });
    !is_held && !is_kept
}

/// Returns how many hosts that wait for a limit come before a host.
fn ahead(current: &Current, limit: &Limit, host: &HostName) -> usize {
    let tickets = current.tickets.get(limit);
    let own = tickets.and_then(|tickets| tickets.iter().find(|(_, of)| of == host));
    let others = tickets.into_iter().flatten().filter(|(_, of)| of != host);
    others.filter(|ticket| own.is_none_or(|own| *ticket < own)).count()
}

/// Returns what is so while nothing keeps a host from starting; `None` if something does.
fn free(current: &Current, agent: &AgentView) -> Option<Free> {
    let host = &agent.host;
    if !is_held_by_limits_alone(current, host) {
        return None;
    }
    let (mut holders, mut is_first) = (Vec::new(), true);
    for (limit, max) in current.limits_of(&current.members.get(host)?.roster) {
        let of_limit = current.holders.get(&limit).into_iter().flatten();
        let others: Vec<(u32, HostName)> =
            of_limit.filter(|(_, of)| *of != host).map(|(number, of)| (*number, of.clone())).collect();
        if others.len() >= max as usize || others.iter().any(|(number, _)| *number >= max) {
            return None;
        }
        is_first &= ahead(current, &limit, host) == 0;
        holders.extend(others);
    }
    Some(Free { process: agent.process, holders, is_first })
}

/// Returns the holders of claims whose agents do not run and for which a host waits that comes first.
fn vanished(current: &Current, agent: &AgentView, raft_term: u64) -> Option<Vec<(HostName, Vanished)>> {
    let host = &agent.host;
    let roster = &current.members.get(host)?.roster;
    if !is_held_by_limits_alone(current, host) {
        return None;
    }
    let full = current.limits_of(roster).into_iter().find(|(limit, max)| {
        let others = current.holders.get(limit).into_iter().flatten().filter(|(_, of)| *of != host);
        others.count() >= *max as usize
    });
    let (limit, _) = full.filter(|(limit, max)| *max > 0 && ahead(current, limit, host) == 0)?;
    let gone = current.holders.get(&limit)?.values().filter(|of| !current.live.contains(*of));
    let gone = gone.filter_map(|of| {
        let (claims, claimed_at) = current.claimed.get(of).filter(|(claims, _)| !claims.lost)?;
        let lost_after = u64::try_from(claims.lost_after.0.as_millis()).unwrap_or(u64::MAX);
        let (waits, process) = (host.clone(), agent.process);
        Some((of.clone(), Vanished { waits, process, claimed_at: *claimed_at, raft_term, lost_after }))
    });
    Some(gone.collect())
}
