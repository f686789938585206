//! What the store says about the hosts when a forecast begins.

use super::types::ForecastInput;
use crate::rollout::frozen::FrozenHosts;
use crate::rollout::opening::hosts_of;
use crate::rollout::results::{HostResult, results};
use crate::rollout::stages::stage_of;
use crate::rollout::{ClaimNeed, place};
use schema::keys::{self, Key, StatusState};
use schema::limit::{Limit, Place};
use schema::names::{HostName, StatusType};
use schema::records::{ProgressState, ResolvedLimit, RosterEntry};
use schema::snapshot::KeySnapshot;
use schema::time::EpochSeconds;
use std::collections::BTreeMap;
use std::time::Duration;

/// Time from a trigger until the record of the rollout is written, and hosts have read it.
const HEARD: Duration = Duration::from_millis(500);

/// A host when a forecast begins.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) name: HostName,
    pub(super) place: Place,
    pub(super) stage: u32,
    /// The limits that count it, as positions in [`Fleet::limits`].
    pub(super) limits: Vec<usize>,
    /// The limits of which it holds a claim.
    pub(super) held: Vec<usize>,
    pub(super) need: ClaimNeed,
    pub(super) takes: Duration,
    /// How long it validates.
    pub(super) validation: Duration,
    /// When it knows of the rollout, and has fetched what it needs.
    pub(super) ready_after: Duration,
    /// How long ago it started; `None` if it did not.
    pub(super) running_for: Option<Duration>,
    /// How long ago it was proven, though it still holds its claims; `None` if it does not.
    pub(super) held_for: Option<Duration>,
    /// Why it does not start at all; `None` if it does when its turn has come.
    pub(super) held_back: Option<String>,
    pub(super) result: HostResult,
}

/// A limit of the rollout.
#[derive(Debug)]
pub(super) struct LimitOfFleet {
    pub(super) limit: Limit,
    pub(super) max: u32,
    pub(super) keep_failed: bool,
    /// How many hosts hold a claim of it.
    pub(super) used: u32,
}

/// The fleet when a forecast begins.
#[derive(Debug)]
pub(super) struct Fleet {
    pub(super) hosts: Vec<Host>,
    pub(super) limits: Vec<LimitOfFleet>,
}

impl Fleet {
    pub(super) fn read(input: &ForecastInput<'_>) -> Self {
        let ForecastInput { order, record, found, durations, now, .. } = *input;
        let roster = hosts_of(found);
        let results = results(order, record, found);
        let freezes = FrozenHosts::read(found);
        let heard = passed(record.at, now);
        let mut limits = Limits::default();
        let hosts = results.into_iter().map(|(name, result)| {
            let unknown = RosterEntry::default();
            let entry = roster.get(&name).unwrap_or(&unknown);
            let place = place(&name, &record.version);
            let progress = found.value_of(keys::Progress(order, name.clone()));
            let since = |state: ProgressState| {
                let since = progress.filter(|progress| progress.state == state)?;
                Some(passed(since.at, now))
            };
            Host {
                place,
                stage: stage_of(&record.stages, &name, entry, place),
                limits: limits.of_host(&record.limits, entry),
                held: Vec::new(),
                need: need(&name, found),
                takes: durations.of(&name, entry.role.as_ref()),
                validation: durations.validation_of(&name, entry.role.as_ref()),
                ready_after: durations
                    .prefetch_of(&name, entry.role.as_ref())
                    .max(HEARD)
                    .saturating_sub(heard),
                running_for: since(ProgressState::Started),
                held_for: since(ProgressState::Proven),
                held_back: freezes.of(&name, entry).map(ToString::to_string),
                result,
                name,
            }
        });
        let mut hosts: Vec<Host> = hosts.collect();
        let positions: BTreeMap<HostName, usize> =
            hosts.iter().enumerate().map(|(at, host)| (host.name.clone(), at)).collect();
        for (key, entry) in &found.entries {
            let Ok(Key::Claim(limit, _)) = Key::parse(key) else { continue };
            let Some(at) = limits.positions.get(&limit).copied() else { continue };
            limits.all[at].used += 1;
            let holder = keys::Claim::read(&entry.value).ok().map(|claim| claim.host);
            if let Some(host) = holder.and_then(|holder| positions.get(&holder)) {
                hosts[*host].held.push(at);
            }
        }
        Self { hosts, limits: limits.all }
    }
}

/// Returns the time since a time that another clock said.
pub(super) fn passed(since: EpochSeconds, now: EpochSeconds) -> Duration {
    Duration::from_secs(u64::try_from(now.0.saturating_sub(since.0)).unwrap_or(0))
}

/// Returns whether a host needs claims, as far as the store shows.
fn need(host: &HostName, found: &KeySnapshot) -> ClaimNeed {
    let is_listed = found.get(&Key::Announced(host.clone())).is_some();
    let provisioned = Key::Status(StatusType::provisioned(), StatusState::Success, host.clone());
    match (is_listed, found.get(&provisioned).is_some()) {
        (true, _) => ClaimNeed::Take,
        (false, true) => ClaimNeed::Nothing,
        (false, false) => ClaimNeed::FirstInstall,
    }
}

#[derive(Debug, Default)]
struct Limits {
    all: Vec<LimitOfFleet>,
    positions: BTreeMap<Limit, usize>,
}

impl Limits {
    fn of_host(&mut self, resolved: &[ResolvedLimit], roster: &RosterEntry) -> Vec<usize> {
        let limits = resolved.iter().filter_map(|resolved| {
            let limit = resolved.by.of_host(roster).ok().flatten()?;
            Some((resolved.max_of(&limit.value), resolved.keeps_failed(&limit.value), limit))
        });
        let positions = limits.map(|(max, keep_failed, limit)| {
            *self.positions.entry(limit.clone()).or_insert_with(|| {
                self.all.push(LimitOfFleet { limit, max, keep_failed, used: 0 });
                self.all.len() - 1
            })
        });
        positions.collect()
    }
}
