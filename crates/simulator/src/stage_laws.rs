//! The laws about stages (R2 and R6), checked against what machines did: no host starts before its stage is open, and
//! a stage opens only when the hosts before it have the version, and kept it for the time of the soak.

use crate::current::{is_in_window, stage_number};
use crate::machine::Machine;
use crate::reality::Reality;
use crate::store::{Change, Store};
use crate::violation::{Violation, broken};
use schema::codec;
use schema::keys::{self, Key, Prefix};
use schema::names::{HostName, Version};
use schema::order::InstructionOrder;
use schema::records::{HostClaims, ProgressState, RolloutRecord};
use schema::time::Span;
use schema::writes::stage::RolloutStage;
use std::collections::BTreeMap;

/// How much earlier a lease can end than its time says, in milliseconds.
const LEASE_SLACK: u64 = 1_500;

/// What the laws about stages know.
#[derive(Debug, Clone, Default)]
pub(crate) struct StageLaws {
    /// When a host last failed, or a soak began, in each rollout.
    last_news: BTreeMap<InstructionOrder, u64>,
    /// Number of stages that were opened.
    pub(crate) opened: u64,
}

/// How long a start can be on its way to the store, in seconds.
const START_LASTS: i64 = 70;

/// True if the host waits for its stage or for a window, by what the store says. `now` is in milliseconds.
pub(crate) fn is_closed(store: &Store, machine: &Machine, order: InstructionOrder, now: u64) -> bool {
    let host = &machine.host;
    let has = |key: Key| store.entry(&key.to_string()).is_some();
    let Some((record, _)) = record_of(store, order) else { return false };
    let roster = store.entry(&Key::Host(host.clone()).to_string());
    let roster = roster.and_then(|entry| keys::Host::read(&entry.value).ok()).unwrap_or_default();
    let stage = stage_number(&record, host, &roster);
    let wall = 1_700_000_000 + i64::try_from(now / 1_000).unwrap_or(0);
    let is_in_window = [wall, wall - START_LASTS].iter().any(|at| is_in_window(&record, *at));
    let is_open = stage == 0 || has(Key::StageOpened(order, stage)) || has(Key::Ended(order));
    // A further attempt in the same rollout: the host is not available.
    let has_begun = has(Key::Progress(order, host.clone())) || is_left_over(store, machine);
    !(has_begun || is_open && is_in_window)
}

/// True if the name of the machine is not available: it is not listed, and it holds the claims that another
/// installation took.
fn is_left_over(store: &Store, machine: &Machine) -> bool {
    let is_own =
        |key: &String| matches!(Key::parse(key), Ok(Key::RunningVersion(_, host)) if host == machine.host);
    let is_listed = store.list(&Prefix::RunningVersions).entries.keys().any(is_own);
    let claimed = store.entry(&Key::Claimed(machine.host.clone()).to_string());
    let claimed = claimed.and_then(|entry| keys::Claimed::read(&entry.value).ok());
    let is_of_other = |held: &HostClaims| Some(&held.instance) != machine.disk.instance.as_ref();
    !is_listed && claimed.is_some_and(|held| !held.claims.is_empty() && is_of_other(&held))
}

/// Returns the record of a rollout, and the revision at which it was written.
pub(crate) fn record_of(store: &Store, order: InstructionOrder) -> Option<(RolloutRecord, i64)> {
    let entry = store.entry(&Key::RolloutRecord(order).to_string())?;
    Some((keys::RolloutRecord::read(&entry.value).ok()?, entry.create_revision))
}

impl StageLaws {
    /// The store went back.
    pub(crate) fn restored(&mut self) {
        self.last_news.clear();
    }

    /// Takes over changes of one revision.
    pub(crate) fn note(
        &mut self,
        changes: &[Change],
        reality: Reality<'_>,
        now: u64,
    ) -> Result<(), Violation> {
        let written = |change: &Change| change.entry.as_ref().and_then(|_| Key::parse(&change.key).ok());
        let keys: Vec<Key> = changes.iter().filter_map(written).collect();
        for key in &keys {
            match key {
                Key::StageOpened(order, stage) => {
                    self.opened += 1;
                    let opened = RolloutStage { order: *order, stage: *stage };
                    self.check_opening(opened, &keys, reality, now)?;
                }
                Key::Soak(order, stage) if !keys.contains(&Key::SoakTimer(*order, *stage)) => {
                    check_members(RolloutStage { order: *order, stage: *stage }, reality)?;
                    self.last_news.insert(*order, now);
                }
                Key::Failed(order, _) => drop(self.last_news.insert(*order, now)),
                _ => {}
            }
        }
        Ok(())
    }

    fn check_opening(
        &self,
        opens: RolloutStage,
        keys: &[Key],
        reality: Reality<'_>,
        now: u64,
    ) -> Result<(), Violation> {
        let (RolloutStage { order, stage: opened }, store) = (opens, reality.store);
        let before = opened - 1;
        let is_next = before == 0 || store.entry(&Key::StageOpened(order, before).to_string()).is_some();
        if !is_next || store.entry(&Key::Halt(order).to_string()).is_some() {
            return broken("R6", format!("stage {opened} opens before {before}, or in a halted rollout"));
        }
        let (members, soak) = check_members(RolloutStage { order, stage: before }, reality)?;
        // The stages that one transaction opens besides are empty.
        let is_first = before == 0 || !keys.contains(&Key::StageOpened(order, before));
        if !is_first && members > 0 {
            return broken("R6", format!("stage {opened} opens together with {before}, which has hosts"));
        }
        let quiet = self.last_news.get(&order).map_or(u64::MAX, |at| now - at);
        let is_early = |soak: Span| quiet.saturating_add(LEASE_SLACK) < soak.0.as_millis() as u64;
        match soak {
            Some(soak) if members > 0 && is_early(soak) => {
                broken("R6", format!("stage {opened} opens {quiet} ms after news; the soak takes {soak}"))
            }
            _ => Ok(()),
        }
    }
}

/// R6: all hosts up to a stage are through. Returns how many hosts the stage has, and its soak.
fn check_members(of: RolloutStage, reality: Reality<'_>) -> Result<(u32, Option<Span>), Violation> {
    let (RolloutStage { order, stage: before }, store) = (of, reality.store);
    let Some((record, written_at)) = record_of(store, order) else {
        return broken("R6", "a stage is through, and its rollout has no record");
    };
    let Some(stage_before) = record.stages.get(before as usize) else {
        return broken("R6", "a stage opens that the rollout does not have");
    };
    let mut members = 0;
    let mut proven = 0;
    for (key, entry) in store.list(&Prefix::Hosts).entries {
        let roster = keys::Host::read(&entry.value).unwrap_or_default();
        let Ok(Key::Host(host)) = Key::parse(&key) else { continue };
        let stage = stage_number(&record, &host, &roster);
        if stage > before || roster.decommissioned.is_some() {
            continue;
        }
        let has_version = has_version(&host, order, &record.version, reality);
        let is_excused = store.entry(&Key::Excused(order, host.clone()).to_string()).is_some();
        // These hosts count only when the store knows that they are proven: a store that went back may not.
        let is_known = || is_known_as_proven(&host, order, &record.version, store);
        if (is_excused || entry.create_revision >= written_at) && !(has_version && is_known()) {
            continue;
        }
        let is_chosen = stage == before && stage_before.hosts.contains(&host);
        members += u32::from(stage == before);
        proven += u32::from(stage == before && has_version);
        if !has_version && (is_chosen || !has_failed_or_is_absent(&host, order, store)) {
            return broken("R6", format!("stage {before} is through, and {host} of stage {stage} is not"));
        }
    }
    if members > 0 && proven == 0 {
        return broken("R6", format!("stage {before} is through, and none of its hosts has the version"));
    }
    Ok((members, stage_before.rule.soak))
}

/// True if the store says that a host has the version, or had it when its agent ran last.
fn is_known_as_proven(host: &HostName, order: InstructionOrder, version: &Version, store: &Store) -> bool {
    let entry = |key: Key| store.entry(&key.to_string()).map(|entry| entry.value);
    let announced = entry(Key::Announced(host.clone())).and_then(|value| codec::read_version(&value).ok());
    let progress = entry(Key::Progress(order, host.clone()));
    let progress = progress.and_then(|value| keys::Progress::read(&value).ok());
    let is_live = entry(Key::Live(host.clone())).is_some();
    announced.as_ref() == Some(version)
        || !is_live && progress.is_some_and(|progress| progress.state == ProgressState::Proven)
}

/// True if the host has the version, or had it when its agent ran last. `fall_laws` has what follows when it does not run
/// any more.
pub(crate) fn has_version(
    host: &HostName,
    order: InstructionOrder,
    version: &Version,
    reality: Reality<'_>,
) -> bool {
    let Reality { store, machines } = reality;
    let live = store.entry(&Key::Live(host.clone()).to_string());
    let live = live.and_then(|entry| keys::Live::read(&entry.value).ok());
    let is_of = |machine: &Machine| {
        machine.host == *host && machine.disk.instance == live.as_ref().map(|live| live.instance.clone())
    };
    // The store does not know yet that a machine was installed again. A host that had the version before
    // this rollout has no progress in it, but it is listed until its lease ends.
    let is_live = live.is_some() && machines.iter().any(is_of);
    let progress = store.entry(&Key::Progress(order, host.clone()).to_string());
    let progress = progress.and_then(|entry| keys::Progress::read(&entry.value).ok());
    let announced = store.entry(&Key::Announced(host.clone()).to_string());
    let announced = announced.and_then(|entry| codec::read_version(&entry.value).ok());
    let was_proven = announced.as_ref() == Some(version)
        || progress.is_some_and(|progress| progress.state == ProgressState::Proven);
    let has = |machine: &Machine| machine.host == *host && machine.truth.proven.as_ref() == Some(version);
    machines.iter().any(has) || !is_live && was_proven
}

/// True if a host failed, or does not run and never started. Nobody waits for it then.
fn has_failed_or_is_absent(host: &HostName, order: InstructionOrder, store: &Store) -> bool {
    let entry = |key: Key| store.entry(&key.to_string()).map(|entry| entry.value);
    let failed = entry(Key::Failed(order, host.clone())).and_then(|value| keys::Failed::read(&value).ok());
    let progress = entry(Key::Progress(order, host.clone()));
    let progress = progress.and_then(|value| keys::Progress::read(&value).ok());
    let gave_up = progress.is_some_and(|progress| progress.state == ProgressState::GaveUp);
    let claims = entry(Key::Claimed(host.clone())).and_then(|value| keys::Claimed::read(&value).ok());
    let is_held = claims.is_some_and(|claims| claims.is_for_update() && !claims.lost);
    let is_live = entry(Key::Live(host.clone())).is_some();
    failed.is_some_and(|failed| !failed.healed) || gave_up || !is_live && !is_held
}
