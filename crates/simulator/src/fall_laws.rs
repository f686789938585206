//! The laws about hosts that stop working after their proof (R3 and R6), checked against what machines did. A host
//! that vanishes, or whose validation fails, counts against the version until the rollout has ended; and a failure ends
//! with a proof alone. `R11` is here too for the tickets of frozen hosts.

use crate::current::stage_number;
use crate::hold_laws::HoldLaws;
use crate::laws::Writer;
use crate::machine::Machine;
use crate::reality::Reality;
use crate::stage_laws::record_of;
use crate::store::{Change, Store};
use crate::violation::{Violation, broken};
use schema::instruction::Instruction;
use schema::keys::{self, Key, Prefix, StatusState};
use schema::names::{HostName, StatusType, Version};
use schema::order::InstructionOrder;
use schema::records::ProgressState;
use std::collections::BTreeMap;

/// How long a host can be gone before whoever changes the rollout must know: what was read is written a minute later
/// at the latest.
const KNOWN_WITHIN: u64 = 120_000;
/// Time within which a host that can write counts itself as failed when its validation fails.
const COUNTED_WITHIN: u64 = 240_000;
/// Time within which a frozen host that can write gives its ticket back.
const LEAVES_QUEUE_WITHIN: u64 = 240_000;

/// A proof of a machine in a rollout with a failure budget.
#[derive(Debug, Clone)]
struct Proof {
    order: InstructionOrder,
    /// When it was proven, by its own clock in milliseconds.
    at: u64,
}

/// What the laws about hosts know that stop working.
#[derive(Debug, Clone, Default)]
pub(crate) struct FallLaws {
    /// Since when the agents of hosts have not run.
    vanished: BTreeMap<HostName, u64>,
    /// The machines whose failures count in the rollout that they started in last.
    counts: BTreeMap<usize, InstructionOrder>,
    proofs: BTreeMap<usize, Proof>,
    failing_since: BTreeMap<usize, u64>,
    frozen_since: BTreeMap<HostName, u64>,
    holds: HoldLaws,
}

impl FallLaws {
    /// The store went back.
    pub(crate) fn restored(&mut self, store: &Store, now: u64) {
        let roster = store.list(&Prefix::Hosts).entries.into_keys();
        let hosts = roster.filter_map(|key| match Key::parse(&key) {
            Ok(Key::Host(host)) => Some(host),
            _ => None,
        });
        let is_live = |host: &HostName| store.entry(&Key::Live(host.clone()).to_string()).is_some();
        let vanished = hosts.filter(|host| !is_live(host)).map(|host| (host, now));
        *self = Self { vanished: vanished.collect(), ..Self::default() };
    }

    /// Takes over changes of one revision.
    pub(crate) fn note(
        &mut self,
        changes: &[Change],
        writer: &Writer,
        reality: Reality<'_>,
        now: u64,
    ) -> Result<(), Violation> {
        let Reality { store, machines } = reality;
        for change in changes {
            let Ok(key) = Key::parse(&change.key) else { continue };
            let value = change.entry.as_ref().map(|entry| entry.value.as_slice());
            match (key, value) {
                (Key::Live(host), Some(_)) => drop(self.vanished.remove(&host)),
                (Key::Live(host), None) => drop(self.vanished.insert(host, now)),
                (Key::StageOpened(order, stage), Some(_)) => {
                    self.check_alive(order, Some(stage), store, now)?;
                }
                (Key::Ended(order), Some(_)) => self.check_alive(order, None, store, now)?,
                (Key::Failed(order, host), value) => {
                    let is_failed =
                        value.is_some_and(|value| keys::Failed::read(value).is_ok_and(|f| !f.healed));
                    if !is_failed {
                        check_healed(order, &host, writer, reality)?;
                    }
                }
                (Key::Progress(order, host), Some(value)) => {
                    let Writer::Host(machine, intent) = writer else { continue };
                    let Ok(progress) = keys::Progress::read(value) else { continue };
                    self.proofs.remove(machine);
                    self.holds.got(*machine, &progress);
                    match progress.state {
                        ProgressState::Started if intent.starts.is_some() => {
                            let provisioned = (StatusType::provisioned(), StatusState::Success);
                            let provisioned = Key::Status(provisioned.0, provisioned.1, host);
                            let is_new = store.entry(&provisioned.to_string()).is_none();
                            let record = record_of(store, order).map(|(record, _)| record);
                            self.holds.started(*machine, record.as_ref(), intent.is_repair);
                            let has_budget = record.is_some_and(|record| record.budget.is_some());
                            self.counts.remove(machine);
                            if has_budget && !is_new && !intent.is_repair {
                                self.counts.insert(*machine, order);
                            }
                        }
                        ProgressState::Proven if self.counts.get(machine) == Some(&order) => {
                            let at = u64::try_from(progress.at.0 - 1_700_000_000).unwrap_or(0) * 1_000;
                            self.proofs.insert(*machine, Proof { order, at });
                        }
                        _ => drop(self.counts.remove(machine)),
                    }
                }
                (Key::Claimed(host), value) => {
                    let claims = value.and_then(|value| keys::Claimed::read(value).ok());
                    let by = match writer {
                        Writer::Host(machine, intent) if intent.starts.is_none() => {
                            let found = &machines[*machine];
                            (found.host == host).then_some((*machine, found))
                        }
                        _ => None,
                    };
                    self.holds.claims(&host, claims.as_ref(), by, now)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// R6: no host that was proven has vanished, unless it counts as failed or an operator excused it. `stage` is the
    /// one that opens; `None` if the rollout ends.
    fn check_alive(
        &self,
        order: InstructionOrder,
        stage: Option<u32>,
        store: &Store,
        now: u64,
    ) -> Result<(), Violation> {
        let Some((record, written_at)) = record_of(store, order) else { return Ok(()) };
        for (host, since) in self.vanished.iter().filter(|(_, since)| now - **since > KNOWN_WITHIN) {
            let entry = |key: Key| store.entry(&key.to_string());
            let progress = entry(Key::Progress(order, host.clone()));
            let progress = progress.and_then(|entry| keys::Progress::read(&entry.value).ok());
            let was_proven = progress.is_some_and(|progress| progress.state == ProgressState::Proven);
            if !was_proven {
                continue;
            }
            let Some(roster) = entry(Key::Host(host.clone())) else { continue };
            let is_late = roster.create_revision >= written_at;
            let roster = keys::Host::read(&roster.value).unwrap_or_default();
            let is_later = stage.is_some_and(|stage| stage_number(&record, host, &roster) >= stage);
            let failed = entry(Key::Failed(order, host.clone()));
            let failed = failed.is_some_and(|e| keys::Failed::read(&e.value).is_ok_and(|f| !f.healed));
            let is_excused = entry(Key::Excused(order, host.clone())).is_some();
            if is_late || is_later || roster.decommissioned.is_some() || failed || is_excused {
                continue;
            }
            let what =
                stage.map_or_else(|| "the rollout ends".into(), |stage| format!("stage {stage} opens"));
            let gone = (now - since) / 1_000;
            return broken("R6", format!("{what}, and {host}, which was proven, has been gone for {gone} s"));
        }
        Ok(())
    }

    /// R3: a host whose validation fails after its proof counts as failed, also after a reboot. R11: a frozen host keeps
    /// nobody waiting. `can_write` is true if the agent can write.
    pub(crate) fn look(
        &mut self,
        number: usize,
        machine: &Machine,
        can_write: bool,
        store: &Store,
        now: u64,
    ) -> Result<(), Violation> {
        self.check_counted(number, machine, can_write, store, now)?;
        self.check_ticket(&machine.host, can_write, store, now)
    }

    fn check_counted(
        &mut self,
        number: usize,
        machine: &Machine,
        can_write: bool,
        store: &Store,
        now: u64,
    ) -> Result<(), Violation> {
        let order = self.proofs.get(&number).map(|proof| proof.order);
        let current = Instruction::find(&store.read(&[Key::Store, Key::CurrentVersion]));
        let is_failing = order.is_some()
            && current.is_some_and(|current| {
                Some(current.order) == order && machine.truth.proven == Some(current.version)
            })
            && machine.truth.validated.is_none();
        let (Some(proof), true) = (self.proofs.get(&number), is_failing && machine.is_on) else {
            self.failing_since.remove(&number);
            return Ok(());
        };
        let since = *self.failing_since.entry(number).or_insert(now);
        let entry = |key: Key| store.entry(&key.to_string());
        let Some((record, _)) = record_of(store, proof.order) else { return Ok(()) };
        let charge_for = record.charge_for.0.as_millis() as u64;
        let has_ended = entry(Key::Ended(proof.order)).is_some();
        // Only a host that could say so all the time is late.
        if !can_write && now - since < COUNTED_WITHIN {
            self.failing_since.insert(number, now);
        }
        if has_ended || !can_write || now - since < COUNTED_WITHIN || since + 2_000 > proof.at + charge_for {
            return Ok(());
        }
        let failed = entry(Key::Failed(proof.order, machine.host.clone()));
        let counts = failed.is_some_and(|e| keys::Failed::read(&e.value).is_ok_and(|f| !f.healed));
        if counts {
            return Ok(());
        }
        broken("R3", format!("{} was proven, does not work any more, and does not count", machine.host))
    }

    /// R11: a host whose role, group or name is frozen has no ticket.
    fn check_ticket(
        &mut self,
        host: &HostName,
        can_write: bool,
        store: &Store,
        now: u64,
    ) -> Result<(), Violation> {
        let roster = store.entry(&Key::Host(host.clone()).to_string());
        let roster = roster.and_then(|e| keys::Host::read(&e.value).ok()).unwrap_or_default();
        let mut ranges = vec![format!("{}host/{host}/", Prefix::Freezes)];
        ranges.extend(roster.role.map(|role| format!("{}role/{role}/", Prefix::Freezes)));
        ranges.extend(roster.group.map(|group| format!("{}group/{group}/", Prefix::Freezes)));
        let freezes = store.list(&Prefix::Freezes).entries;
        let is_frozen = freezes.keys().any(|key| ranges.iter().any(|range| key.starts_with(range)));
        let has_all = freezes.len();
        let own = |key: &String| matches!(Key::parse(key), Ok(Key::Ticket(_, _, _, of)) if of == *host);
        let has_ticket = || store.list(&Prefix::Queues).entries.keys().any(own);
        // A pause or a freeze of the fleet may have been seen first: then nothing more is read.
        if !(can_write && is_frozen && has_all == 1 && has_ticket()) {
            self.frozen_since.remove(host);
            return Ok(());
        }
        let since = *self.frozen_since.entry(host.clone()).or_insert(now);
        if now - since < LEAVES_QUEUE_WITHIN {
            return Ok(());
        }
        broken("R11", format!("{host} is frozen and keeps its ticket"))
    }
}

/// R3: a failure ends because its host works.
fn check_healed(
    order: InstructionOrder,
    host: &HostName,
    writer: &Writer,
    reality: Reality<'_>,
) -> Result<(), Violation> {
    let Reality { store, machines } = reality;
    let (Writer::Host(machine, intent), Some((record, _))) = (writer, record_of(store, order)) else {
        return Ok(());
    };
    let works = |version: &Version| {
        intent.validated.as_ref() == Some(version)
            || machines[*machine].truth.proven.as_ref() == Some(version)
    };
    if machines[*machine].host != *host || works(&record.version) {
        return Ok(());
    }
    broken("R3", format!("{host} counts as failed no longer, and does not have {}", record.version))
}
