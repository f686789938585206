//! The laws about limits (R1 and R4), checked against what hosts do, and not against what they claim: a
//! host counts from its start until it is listed, or until it gives up.

use crate::budget_laws::{BudgetLaws, has_failed};
use crate::machine::Machine;
use crate::starting::{Earlier, Starting};
use crate::store::{Change, Store};
use crate::violation::{Violation, broken};
use schema::keys::{self, Key, Prefix};
use schema::limit::Limit;
use schema::names::HostName;
use schema::order::InstructionOrder;
use schema::records::StoreIdentity;
use std::collections::{BTreeMap, BTreeSet};

/// Time within which a host that goes on with its update has taken its claims again, in milliseconds.
const TAKEN_AGAIN_WITHIN: u64 = 120_000;

/// A host between its start and its end.
#[derive(Debug, Clone)]
pub(crate) struct Disturbed {
    order: InstructionOrder,
    /// The limits that count the host; none if it needed no claims, or gave up.
    limits: BTreeSet<Limit>,
    /// The limits whose claims ended because the host was lost, or in a store that went back.
    excused: BTreeSet<Limit>,
    /// The limits that go on counting the host when it gave up.
    keeps: BTreeSet<Limit>,
    needed_nothing: bool,
    /// The machine that started, and how many apply steps had begun on it.
    machine_id: String,
    applies: u64,
}

impl Disturbed {
    /// True if no apply step has begun since the start.
    fn is_untouched(&self, machine: &Machine) -> bool {
        (&self.machine_id, self.applies) == (&machine.machine_id, machine.truth.applies)
    }
}

/// The agent that changed the store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostWriter<'a> {
    pub(crate) machine: &'a Machine,
    /// True if the change starts an update.
    pub(crate) starts: bool,
    /// True if an attempt had started and not ended when the agent sent the change.
    pub(crate) is_under_way: bool,
    /// True if it repairs a version that was proven before.
    pub(crate) is_repair: bool,
}

/// What the law about limits knows.
#[derive(Debug, Clone, Default)]
pub(crate) struct LimitLaws {
    disturbed: BTreeMap<HostName, Disturbed>,
    /// The last start of each machine that was not listed since.
    began: BTreeMap<String, InstructionOrder>,
    /// The host of each claim in the store.
    claims: BTreeMap<(Limit, u32), HostName>,
    /// The start that is being committed.
    starting: Option<Starting>,
    /// Since when the agents of hosts have not run; a host without an entry has a running one, or none ever.
    vanished: BTreeMap<HostName, u64>,
    /// After how many milliseconds each host that holds claims is lost.
    lost_after: BTreeMap<HostName, u64>,
    /// Since when a host that goes on with its update could have taken again the claims that it lacks.
    lacking_since: BTreeMap<HostName, u64>,
    /// Number of hosts that were lost.
    pub(crate) lost: u64,
    /// Number of starts that took claims.
    pub(crate) counted: u64,
    pub(crate) budgets: BudgetLaws,
}

impl LimitLaws {
    /// Forgets how often something happened, and a start that was refused.
    pub(crate) fn forget_counts(&mut self) {
        (self.lost, self.counted, self.budgets.halts, self.starting) = (0, 0, 0, None);
    }

    /// Notes what the store says before a start is committed.
    pub(crate) fn expect_start(&mut self, store: &Store, machine: &Machine, now: u64) {
        let earlier = |order| {
            let disturbed = self.disturbed.get(&machine.host);
            // A start that the host could not record before it was killed is committed again.
            let was_disturbed = disturbed.is_some_and(|disturbed| {
                let is_repeated = disturbed.needed_nothing && disturbed.is_untouched(machine);
                disturbed.order < order || disturbed.order == order && is_repeated
            });
            // The name may have been with another machine meanwhile.
            let began = self.began.get(&machine.machine_id).is_some_and(|began| *began < order);
            let has_started =
                disturbed.is_some_and(|disturbed| disturbed.order < order && disturbed.is_untouched(machine));
            Earlier { was_disturbed: was_disturbed || began, has_started }
        };
        if let Some(starting) = Starting::read(store, machine, now, &self.budgets, earlier) {
            self.starting = Some(starting);
        }
    }

    /// The store went back.
    pub(crate) fn restored(&mut self, store: &Store, now: u64) {
        self.claims.clear();
        self.starting = None;
        self.budgets.restored(store);
        let found = store.read_all(&[], &[Prefix::Claims, Prefix::Claimed, Prefix::Lives]);
        for (key, entry) in &found.entries {
            self.take(key, Some(&entry.value), now);
        }
        let is_live = |host: &HostName| found.get(&Key::Live(host.clone())).is_some();
        let known: BTreeSet<HostName> =
            self.lost_after.keys().chain(self.disturbed.keys()).cloned().collect();
        let before = std::mem::take(&mut self.vanished);
        // A host that had vanished before is still gone.
        let since = |host: HostName| (host.clone(), before.get(&host).copied().unwrap_or(now));
        self.vanished = known.into_iter().filter(|host| !is_live(host)).map(since).collect();
        // Hosts take again what they have taken since the backup, if it knows limits.
        let identity = store.entry(&Key::Store.to_string()).and_then(|e| StoreIdentity::read(&e.value).ok());
        let has_brakes = identity.is_some_and(|identity| identity.has_brakes);
        for (host, disturbed) in &mut self.disturbed {
            disturbed.limits.retain(|_| has_brakes);
            let claims = &self.claims;
            let lacks = |limit: &&Limit| !claims.iter().any(|((of, _), by)| of == *limit && by == host);
            disturbed.excused = disturbed.limits.iter().filter(lacks).cloned().collect();
        }
    }

    fn take(&mut self, key: &str, value: Option<&[u8]>, now: u64) {
        match Key::parse(key) {
            Ok(Key::Claim(limit, number)) => match value.and_then(|value| keys::Claim::read(value).ok()) {
                Some(claim) => drop(self.claims.insert((limit, number), claim.host)),
                None => drop(self.claims.remove(&(limit, number))),
            },
            Ok(Key::Claimed(host)) => {
                if let Some(claims) = value.and_then(|value| keys::Claimed::read(value).ok()) {
                    self.lost_after.insert(host, claims.lost_after.0.as_millis() as u64);
                }
            }
            Ok(Key::Live(host)) if value.is_none() => drop(self.vanished.insert(host, now)),
            Ok(Key::Live(host)) => drop(self.vanished.remove(&host)),
            _ => {}
        }
    }

    /// R1: a host that goes on with its update takes again the claims that ended without its doing.
    /// `goes_on` is true if it does, and can write.
    pub(crate) fn look(&mut self, host: &HostName, goes_on: bool, now: u64) -> Result<(), Violation> {
        let lacks = self.disturbed.get(host).is_some_and(|disturbed| !disturbed.excused.is_empty());
        if !lacks || !goes_on {
            self.lacking_since.remove(host);
            return Ok(());
        }
        let since = *self.lacking_since.entry(host.clone()).or_insert(now);
        if now - since < TAKEN_AGAIN_WITHIN {
            return Ok(());
        }
        broken("R1", format!("{host} goes on with its update and does not take its claims again"))
    }

    /// R4: nobody but its host and operators ends a claim, unless the host is lost.
    fn check_end(&mut self, host: &HostName, now: u64) -> Result<(), Violation> {
        self.lost += 1;
        let lost_after = self.lost_after.get(host).copied().unwrap_or_default();
        match self.vanished.get(host) {
            Some(since) if now - since >= lost_after => Ok(()),
            Some(since) => broken(
                "R4",
                format!("the claims of {host} end {} ms after it vanished, not {lost_after}", now - since),
            ),
            None => broken("R4", format!("the claims of {host} end, and its agent runs")),
        }
    }

    /// Takes over changes of one revision. `writer` is the agent that made them.
    pub(crate) fn note(
        &mut self,
        changes: &[Change],
        writer: Option<HostWriter<'_>>,
        now: u64,
    ) -> Result<(), Violation> {
        let ranges = [Prefix::Claims, Prefix::Claimed].map(|range| range.to_string());
        let is_of_claims = |change: &Change| ranges.iter().any(|range| change.key.starts_with(range));
        let matters = changes.iter().any(is_of_claims) || writer.is_some_and(|writer| writer.starts);
        let pair = |((limit, _), host): (&(Limit, u32), &HostName)| (host.clone(), limit.clone());
        let before = if matters { self.claims.iter().map(pair).collect() } else { BTreeSet::new() };
        for change in changes {
            let value = change.entry.as_ref().map(|entry| entry.value.as_slice());
            self.take(&change.key, value, now);
        }
        if let Some(writer) = writer.filter(|writer| writer.starts && !changes.is_empty()) {
            self.check_start(writer, &before)?;
        }
        for change in changes {
            match Key::parse(&change.key) {
                Ok(Key::RunningVersion(_, host)) if change.entry.is_some() => {
                    self.disturbed.remove(&host);
                    // A host that keeps its claims can still fail before another one takes its place.
                    if !self.claims.values().any(|by| *by == host) {
                        self.budgets.forget(&host);
                    }
                    if let Some(writer) = writer {
                        self.began.remove(&writer.machine.machine_id);
                    }
                }
                Ok(Key::Claimed(host)) => {
                    self.note_claims(&host, &before, writer, now)?;
                    let is_free = !self.claims.values().any(|by| *by == host);
                    let is_own = writer.is_some_and(|writer| writer.machine.host == host);
                    // One that was killed before it noted its start has changed nothing, and one that was
                    // restarted with its proof is listed later.
                    let is_changed = self.disturbed.get(&host).is_some_and(|disturbed| {
                        !writer.is_some_and(|HostWriter { machine, .. }| {
                            disturbed.is_untouched(machine) || machine.truth.proven.is_some()
                        })
                    });
                    if is_free && is_own && !is_changed && !has_failed(changes) {
                        self.budgets.forget(&host);
                    }
                }
                Ok(key) => {
                    self.budgets.note(&key, change.entry.as_ref());
                }
                Err(_) => {}
            }
        }
        if matters { self.check_claims() } else { Ok(()) }
    }

    /// The claims of a host have changed. `before` are those of all hosts before.
    fn note_claims(
        &mut self,
        host: &HostName,
        before: &BTreeSet<(HostName, Limit)>,
        writer: Option<HostWriter<'_>>,
        now: u64,
    ) -> Result<(), Violation> {
        let held: BTreeSet<&Limit> =
            self.claims.iter().filter(|(_, by)| *by == host).map(|((limit, _), _)| limit).collect();
        let ended = before.iter().any(|(by, limit)| by == host && !held.contains(limit));
        if writer.is_none() && ended {
            // An operator takes it upon himself.
            self.budgets.forget(host);
        }
        if let Some(writer) = writer {
            self.check_kept(host, before, writer)?;
        }
        let disturbed = self.disturbed.get_mut(host);
        match writer {
            Some(writer) if writer.machine.host != *host => {
                if let Some(disturbed) = disturbed {
                    disturbed.excused =
                        disturbed.limits.iter().filter(|l| !held.contains(l)).cloned().collect();
                }
                return if ended { self.check_end(host, now) } else { Ok(()) };
            }
            // A host under way keeps its claims.
            Some(writer) if writer.is_under_way => {
                if let Some(disturbed) = disturbed {
                    disturbed.excused.retain(|limit| !held.contains(limit));
                }
            }
            // A host that gave up releases its claims, and an operator may at any time.
            _ => {
                if let Some(disturbed) = disturbed {
                    disturbed.excused.retain(|limit| !held.contains(limit));
                    let excused = &disturbed.excused;
                    disturbed.limits.retain(|limit| held.contains(limit) || excused.contains(limit));
                }
            }
        }
        Ok(())
    }

    /// R4: a host that failed goes on holding the claims that count failed hosts, until it works or an operator ends
    /// them.
    fn check_kept(
        &self,
        host: &HostName,
        before: &BTreeSet<(HostName, Limit)>,
        HostWriter { machine, starts, .. }: HostWriter<'_>,
    ) -> Result<(), Violation> {
        if starts {
            return Ok(());
        }
        let Some(disturbed) = self.disturbed.get(host) else { return Ok(()) };
        let is_own = machine.host == *host;
        // One that works is listed in a moment.
        if is_own && (disturbed.is_untouched(machine) || machine.truth.proven.is_some()) {
            return Ok(());
        }
        let is_held = |limit: &Limit| self.claims.iter().any(|((of, _), by)| of == limit && by == host);
        let was_held = |limit: &Limit| before.contains(&(host.clone(), limit.clone()));
        match disturbed.keeps.iter().find(|limit| was_held(limit) && !is_held(limit)) {
            Some(limit) => {
                broken("R4", format!("the claim of {limit} of {host} ends, and it counts failed hosts"))
            }
            None => Ok(()),
        }
    }

    /// R1: no start leaves more hosts unavailable than the record allows.
    fn check_start(
        &mut self,
        HostWriter { machine, is_repair, .. }: HostWriter<'_>,
        held_before: &BTreeSet<(HostName, Limit)>,
    ) -> Result<(), Violation> {
        let host = &machine.host;
        let Some(starting) = self.starting.take().filter(|starting| starting.host == *host) else {
            return Ok(());
        };
        let Starting { order, limits, keeps, is_forbidden, needs_nothing, is_closed, budget, .. } = starting;
        if is_closed && !needs_nothing {
            return broken("R2", format!("{host} starts before its stage is open, or outside the windows"));
        }
        self.budgets.started(host, &budget, !needs_nothing && !is_repair)?;
        if is_forbidden {
            return broken("R1", format!("{host} starts, and its rollout has no record that lets it"));
        }
        let holds = |limit: &Limit| self.claims.iter().any(|((of, _), by)| of == limit && by == host);
        let is_counted = limits.iter().all(|(limit, _)| holds(limit));
        if !is_counted && !needs_nothing {
            return broken("R1", format!("{host} starts without a claim of every limit of its rollout"));
        }
        let before = self.disturbed.get(host);
        let kept_before = before.map(|before| before.keeps.clone()).unwrap_or_default();
        let counted_before: BTreeSet<Limit> = before
            .map(|before| before.limits.difference(&before.excused).cloned().collect())
            .unwrap_or_default();
        let counted = if is_counted && !needs_nothing {
            self.counted += u64::from(!limits.is_empty());
            limits.iter().map(|(limit, _)| limit.clone()).collect()
        } else {
            // It keeps the claims that it has. It may have been done with the update of the others, and
            // nobody was told.
            counted_before.clone()
        };
        // A host that was not available may have kept its claims as they are, or taken them again.
        let keeps = if is_counted && !needs_nothing { keeps } else { &keeps & &kept_before };
        self.began.insert(machine.machine_id.clone(), order);
        self.disturbed.insert(
            host.clone(),
            Disturbed {
                order,
                limits: counted,
                excused: BTreeSet::new(),
                keeps,
                needed_nothing: needs_nothing,
                machine_id: machine.machine_id.clone(),
                applies: machine.truth.applies,
            },
        );
        // A host that was counted already goes on counting, and so does one that kept its claim and does not work
        // any more.
        let is_broken = machine.truth.validated.is_none();
        let was_held = |limit: &Limit| held_before.contains(&(host.clone(), limit.clone()));
        let is_new = |limit: &Limit| !(counted_before.contains(limit) || is_broken && was_held(limit));
        for (limit, max) in limits.iter().filter(|(limit, _)| !needs_nothing && is_new(limit)) {
            let unavailable: Vec<&HostName> = self
                .disturbed
                .iter()
                .filter(|(_, disturbed)| {
                    disturbed.limits.contains(limit) && !disturbed.excused.contains(limit)
                })
                .map(|(host, _)| host)
                .collect();
            if unavailable.len() > *max as usize {
                return broken(
                    "R1",
                    format!(
                        "{host} starts, and {unavailable:?} of {limit} are unavailable; the limit is {max}"
                    ),
                );
            }
        }
        Ok(())
    }

    /// R1: every host between its start and its end holds its claims.
    fn check_claims(&self) -> Result<(), Violation> {
        let held: BTreeSet<(&Limit, &HostName)> =
            self.claims.iter().map(|((limit, _), host)| (limit, host)).collect();
        for (host, disturbed) in &self.disturbed {
            for limit in disturbed.limits.difference(&disturbed.excused) {
                if !held.contains(&(limit, host)) {
                    return broken("R1", format!("{host} is unavailable and holds no claim of {limit}"));
                }
            }
        }
        Ok(())
    }
}
