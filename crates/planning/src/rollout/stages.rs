//! The stages of a rollout: which hosts update first. A stage opens when the hosts before it are proven.

use super::frozen::FrozenHosts;
use super::limits::place;
use super::soak::read_soak;
use schema::keys::Key;
use schema::limit::Place;
use schema::names::{HostName, Role, StageName, Version};
use schema::order::InstructionOrder;
use schema::records::{ResolvedStage, RosterEntry, StageRule};
use schema::snapshot::KeySnapshot;
use schema::why_not::{StageHold, StageSoak};
use std::collections::{BTreeMap, BTreeSet};

/// Returns the number of the stage that a host belongs to; that of the last one is the number of `stages`.
pub fn stage_of(stages: &[ResolvedStage], host: &HostName, roster: &RosterEntry, place: Place) -> u32 {
    let is_in = |stage: &ResolvedStage| {
        let in_share = |percent: u32| u64::from(place.0) * 100 < u64::from(percent) << 32;
        match stage.rule.count {
            // Chosen by name, whatever its role is now.
            Some(_) => stage.hosts.contains(host),
            None => stage.rule.selects(roster) && stage.rule.share.is_none_or(in_share),
        }
    };
    let number = stages.iter().position(is_in).unwrap_or(stages.len());
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Returns the name of a stage.
pub fn stage_name(stages: &[ResolvedStage], number: u32) -> StageName {
    stages.get(number as usize).map_or_else(StageName::rest, |stage| stage.rule.name.clone())
}

/// Returns the last stage that is open.
pub fn open_stage(order: InstructionOrder, stages: &[ResolvedStage], found: &KeySnapshot) -> u32 {
    let last = u32::try_from(stages.len()).unwrap_or(u32::MAX);
    let is_open = |stage: &u32| found.get(&Key::StageOpened(order, *stage)).is_some();
    (1..=last).rev().find(is_open).unwrap_or(0)
}

/// Returns the stages of a rollout that begins now. `found` holds the roster and the claims of host names.
pub(super) fn resolve_stages(
    rules: &[StageRule],
    version: &Version,
    hosts: &BTreeMap<HostName, RosterEntry>,
    found: &KeySnapshot,
) -> Vec<ResolvedStage> {
    let mut stages: Vec<ResolvedStage> = Vec::new();
    for rule in rules {
        let number = stages.len() as u32;
        let is_left = |host: &HostName, roster: &RosterEntry| {
            stage_of(&stages, host, roster, place(host, version)) == number
        };
        let chosen = match rule.count {
            None => BTreeSet::new(),
            Some(count) => {
                let left =
                    hosts.iter().filter(|(host, roster)| rule.selects(roster) && is_left(host, roster));
                choose(count, left, version, found)
            }
        };
        stages.push(ResolvedStage { rule: rule.clone(), hosts: chosen });
    }
    stages
}

/// Returns so many hosts of each role, by place. A host that is frozen, or whose agent does not run, is chosen only if
/// there is no other one at all: a stage is not skipped because its hosts are off for a moment.
fn choose<'a>(
    count: u32,
    hosts: impl Iterator<Item = (&'a HostName, &'a RosterEntry)>,
    version: &Version,
    found: &KeySnapshot,
) -> BTreeSet<HostName> {
    let mut hosts: Vec<_> = hosts.collect();
    hosts.sort_by_key(|(host, _)| (place(host, version), (*host).clone()));
    let frozen = FrozenHosts::read(found);
    let is_live = |host: &HostName| found.get(&Key::Live(host.clone())).is_some();
    let mut counts: BTreeMap<Option<&Role>, u32> = BTreeMap::new();
    let mut chosen = BTreeSet::new();
    for (host, roster) in &hosts {
        let count_of_role = counts.entry(roster.role.as_ref()).or_default();
        if *count_of_role < count && is_live(host) && frozen.of(host, roster).is_none() {
            *count_of_role += 1;
            chosen.insert((*host).clone());
        }
    }
    if chosen.is_empty() {
        let first = hosts.iter().find(|(host, _)| is_live(host)).or(hosts.first());
        chosen.extend(first.map(|(host, _)| (*host).clone()));
    }
    chosen
}

/// What a host knows of its stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StageView {
    /// The stage is open: this key says so, and has this revision. The first stage needs no key.
    Open(Option<(Key, i64)>),
    Closed {
        stage: StageName,
        /// The last stage that is open.
        open: StageName,
        /// The soak of that stage, if it has begun.
        soak: Option<StageSoak>,
        /// True while the timer of the soak runs.
        is_timed: bool,
        /// The hosts of that stage, if the next one waits only because they keep their claims.
        hold: Option<Box<StageHold>>,
    },
}

impl StageView {
    pub(super) fn read(
        order: InstructionOrder,
        stages: &[ResolvedStage],
        number: u32,
        found: &KeySnapshot,
    ) -> Self {
        let says_so = [Key::StageOpened(order, number), Key::Ended(order)];
        let key = says_so.into_iter().find_map(|key| {
            let revision = found.revision_of(&key);
            (revision != 0).then_some((key, revision))
        });
        if number == 0 {
            return Self::Open(None);
        }
        if key.is_some() {
            return Self::Open(key);
        }
        let open = open_stage(order, stages, found);
        Self::Closed {
            stage: stage_name(stages, number),
            open: stage_name(stages, open),
            soak: read_soak(order, stages, open, found),
            is_timed: found.get(&Key::SoakTimer(order, open)).is_some(),
            hold: None,
        }
    }
}
