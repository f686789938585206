//! The laws about stalled rollouts (R6 and R7): when every host of the open stages is through, the next stage opens or the
//! rollout ends in time. The laws about hosts that are not through are in `waiting_laws`.

use crate::current::{Current, stage_number};
use crate::violation::{Violation, broken};
use crate::waiting_laws::{AgentView, DONE_WITHIN, Lasting};
use schema::names::HostName;
use schema::records::{ProgressState, RolloutRecord};

/// Number of hosts that the version has not reached and that are gone, from which on nobody counts hosts that vanished
/// after their proof, if more of them are gone than there.
const MASS_LOSS: usize = 3;

/// What became of a host.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Part {
    Proven,
    /// Nobody waits for it.
    Settled,
    /// Its agent does not run. It counts as failed after this time, in milliseconds.
    Vanished(u64),
}

/// A rollout that could go on.
#[derive(Debug, Clone, PartialEq)]
struct Stalled {
    open: u32,
    parts: Vec<(HostName, Part)>,
    /// The revisions of the record, and of the last failure.
    written_at: [i64; 2],
    soaks: Vec<(String, i64)>,
    /// The agents that can look for what is next.
    lookers: Vec<u64>,
    raft_term: u64,
    within: u64,
}

/// State of the laws about stalled rollouts.
#[derive(Debug, Clone, Default)]
pub(crate) struct StandingLaws {
    stalled: Lasting<(), Stalled>,
}

impl StandingLaws {
    /// The store went back, or no rollout stands.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Checks whether the current rollout goes on.
    pub(crate) fn look(
        &mut self,
        current: &Current,
        views: &[AgentView],
        raft_term: u64,
        now: u64,
    ) -> Result<(), Violation> {
        let lookers = views.iter().filter(|agent| agent.is_able && agent.looks).map(|agent| agent.process);
        let stalled = stalled(current, lookers.collect(), raft_term);
        let stalled = stalled.map(|stalled| ((), stalled));
        match self.stalled.look(stalled, |stalled| stalled.within, now) {
            Some(((), lasted)) => {
                let (open, seconds) = (current.open, lasted / 1000);
                broken(
                    "R7",
                    format!("all hosts up to stage {open} are through, and nothing happens for {seconds} s"),
                )
            }
            None => Ok(()),
        }
    }
}

fn stalled(current: &Current, lookers: Vec<u64>, raft_term: u64) -> Option<Stalled> {
    let (record, [created_at, written_at]) = current.record.as_ref()?;
    let is_held = current.is_halted || current.has_ended || current.is_over_budget();
    if is_held || record.refused.is_some() || lookers.is_empty() {
        return None;
    }
    let mut parts = Vec::new();
    let mut is_reached = false;
    let mut has_hosts = false;
    for (host, member) in &current.members {
        let stage = stage_number(record, host, &member.roster);
        // A host that joined later keeps nobody waiting, and can let a stage open that waits for one that works.
        let is_member = member.roster.decommissioned.is_none() && member.joined_at <= *created_at;
        if !is_member || stage > current.open {
            continue;
        }
        let part = part(current, record, host)?;
        has_hosts |= stage == current.open;
        is_reached |= stage == current.open && part == Part::Proven;
        parts.push((host.clone(), part));
    }
    let is_last = current.open as usize == record.stages.len();
    let works = parts.iter().any(|(_, part)| *part == Part::Proven);
    if !(works && is_last || !is_last && (is_reached || !has_hosts)) || is_mass_loss(current, record) {
        return None;
    }
    let soak = record.stages.get(current.open as usize).and_then(|stage| stage.rule.soak);
    let soak = soak.map_or(0, |soak| u64::try_from(soak.0.as_millis()).unwrap_or(u64::MAX));
    let longest = |(_, part): &(HostName, Part)| match part {
        Part::Vanished(after) => Some(*after),
        Part::Proven | Part::Settled => None,
    };
    let vanished = parts.iter().filter_map(longest).max().unwrap_or(0);
    let last_failure = current.failures.values().map(|failure| failure.written_at).max().unwrap_or(0);
    Some(Stalled {
        open: current.open,
        parts,
        written_at: [*written_at, last_failure],
        soaks: current.soaks.clone(),
        lookers,
        raft_term,
        within: DONE_WITHIN + soak + vanished,
    })
}

/// Returns what became of a host; `None` if it is not through.
fn part(current: &Current, record: &RolloutRecord, host: &HostName) -> Option<Part> {
    let is_live = current.live.contains(host);
    let is_updating = current.is_updating(host);
    let failure = current.failure(host);
    let announced = current.announced.get(host);
    let progress = current.progress.get(host).map(|progress| progress.state);
    let is_chosen = record.stages.iter().any(|stage| stage.hosts.contains(host));
    let millis = |span: schema::time::Span| u64::try_from(span.0.as_millis()).unwrap_or(u64::MAX);
    if is_live && announced == Some(&record.version) && !is_updating && failure.is_none() {
        return Some(Part::Proven);
    }
    if !is_live && is_updating {
        let (claims, _) = current.claimed.get(host)?;
        return Some(Part::Vanished(millis(claims.lost_after)));
    }
    if current.excused.contains(host) {
        return Some(Part::Settled);
    }
    let is_absent = !is_live && progress.is_none() && announced.is_none();
    let has_failed = progress == Some(ProgressState::GaveUp)
        || failure.is_some() && progress == Some(ProgressState::Proven)
        || !is_live && current.is_lost(host)
        || !is_live && progress == Some(ProgressState::Started);
    if is_absent || has_failed {
        // A named host must be proven, or an operator excuses it.
        return (!is_chosen).then_some(Part::Settled);
    }
    let has_vanished = !is_live && progress == Some(ProgressState::Proven);
    has_vanished.then(|| Part::Vanished(millis(record.lost_after)))
}

/// True if most of the hosts that the version has not reached are gone too: then the network is at fault.
fn is_mass_loss(current: &Current, record: &RolloutRecord) -> bool {
    let untouched = current.members.keys().filter(|host| {
        !current.progress.contains_key(*host) && current.announced.get(*host) != Some(&record.version)
    });
    let (gone, there): (Vec<_>, Vec<_>) = untouched.partition(|host| !current.live.contains(*host));
    gone.len() >= MASS_LOSS && gone.len() > there.len()
}
