//! The laws about the end of rollouts and about rollbacks: a rollout ends only when no host is on its way, and
//! hosts go back only to a version whose rollout ended. They are checked against what machines did.

use crate::laws::Writer;
use crate::machine::Machine;
use crate::reality::Reality;
use crate::stage_laws::{has_version, record_of};
use crate::store::{Change, Store};
use crate::violation::{Violation, broken};
use schema::codec;
use schema::keys::{self, Key, Prefix};
use schema::names::{HostName, Version};
use schema::order::InstructionOrder;
use schema::records::{FailedHost, FailureKind, OnHalt, ProgressState};
use schema::snapshot::Entry;
use std::collections::BTreeSet;

/// What the laws about ends know.
#[derive(Debug, Clone, Default)]
pub(crate) struct EndLaws {
    /// The versions whose rollouts ended.
    ended: BTreeSet<Version>,
    /// Revision of the desired version.
    target: i64,
    /// Number of rollouts that ended.
    pub(crate) ends: u64,
    /// Number of rollbacks by hosts.
    pub(crate) rollbacks: u64,
}

impl EndLaws {
    /// The store went back.
    pub(crate) fn restored(&mut self, store: &Store) {
        let target = store.entry(&Key::CurrentVersion.to_string());
        self.target = target.map_or(0, |entry| entry.mod_revision);
    }

    /// Takes over changes of one revision.
    pub(crate) fn note(
        &mut self,
        changes: &[Change],
        writer: &Writer,
        reality: Reality<'_>,
    ) -> Result<(), Violation> {
        let written = |change: &Change| change.entry.as_ref().and_then(|_| Key::parse(&change.key).ok());
        let keys: Vec<Key> = changes.iter().filter_map(written).collect();
        for key in &keys {
            if let Key::Ended(order) = key {
                self.check_end(*order, reality)?;
            }
        }
        let is_host = matches!(writer, Writer::Host(..));
        let wrote = |change: &&Change| change.key == Key::CurrentVersion.to_string();
        let written = changes.iter().find(wrote).map(|change| change.revision);
        let before = written.map(|revision| std::mem::replace(&mut self.target, revision));
        if let Some(before) = before
            && is_host
            && keys.contains(&Key::CurrentVersion)
        {
            let halted =
                keys.iter().find_map(|key| if let Key::Halt(order) = key { Some(*order) } else { None });
            if halted.is_some_and(|order| order.revision != before) {
                return broken("rollback", "hosts go back, and another version was triggered since");
            }
            return self.check_rollback(halted, reality.store);
        }
        Ok(())
    }

    /// R6, R7: every host of the rollout is through with it.
    fn check_end(&mut self, order: InstructionOrder, reality: Reality<'_>) -> Result<(), Violation> {
        let Reality { store, machines } = reality;
        let Some((record, written_at)) = record_of(store, order) else {
            return broken("R7", "a rollout without a record ends");
        };
        let has_version = |host: &HostName| has_version(host, order, &record.version, reality);
        let members = store.list(&Prefix::Hosts).entries.into_iter().filter_map(|(key, entry)| {
            let is_member = |entry: &Entry| {
                let roster = keys::Host::read(&entry.value);
                entry.create_revision < written_at
                    && roster.is_ok_and(|roster| roster.decommissioned.is_none())
            };
            match Key::parse(&key) {
                Ok(Key::Host(host)) if is_member(&entry) => Some(host),
                _ => None,
            }
        });
        let members: Vec<HostName> = members.collect();
        if !machines.iter().any(|machine| has_version(&machine.host)) {
            return broken("R6", format!("the rollout of {} ends, and no host has it", record.version));
        }
        let is_open = |stage: u32| store.entry(&Key::StageOpened(order, stage).to_string()).is_some();
        if !(1..).take(record.stages.len()).all(is_open) {
            return broken("R6", "the rollout ends, and a stage is not open");
        }
        for host in &members {
            let live = store.entry(&Key::Live(host.clone()).to_string());
            let live = live.and_then(|entry| keys::Live::read(&entry.value).ok());
            // The store does not know yet that a machine was installed again.
            let is_of = |machine: &&Machine| {
                machine.host == *host
                    && machine.disk.instance == live.as_ref().map(|live| live.instance.clone())
            };
            if live.is_some() && !machines.iter().any(|machine| is_of(&machine)) {
                continue;
            }
            let is_live = live.is_some();
            let claims = store.entry(&Key::Claimed(host.clone()).to_string());
            let claims = claims.and_then(|entry| keys::Claimed::read(&entry.value).ok());
            let is_held = claims.is_some_and(|claims| claims.is_for_update() && !claims.lost);
            let is_excused = store.entry(&Key::Excused(order, host.clone()).to_string()).is_some();
            if is_excused {
                continue;
            }
            let is_through = has_version(host) || has_failed(host, order, store);
            if is_live && !is_through || !is_live && is_held {
                return broken("R6", format!("the rollout ends, and {host} is not through with it"));
            }
        }
        self.ended.insert(record.version);
        self.ends += 1;
        Ok(())
    }

    /// Hosts go back only if the policy says so, and to a version that worked.
    fn check_rollback(&mut self, halted: Option<InstructionOrder>, store: &Store) -> Result<(), Violation> {
        let record = halted.and_then(|order| Some((order, record_of(store, order)?.0)));
        let Some((order, record)) = record else { return broken("rollback", "hosts trigger without a halt") };
        if record.on_halt != OnHalt::RollBack || record.rollback {
            return broken("rollback", "hosts go back though the record does not say so");
        }
        let failed = store.list(&Prefix::FailedOf(order)).entries.into_values().filter(|entry| {
            let failed = keys::Failed::read(&entry.value);
            let counts = |failed: FailedHost| !failed.healed && failed.kind != FailureKind::Lost;
            entry.create_revision > record.counted_from && failed.is_ok_and(counts)
        });
        if record.budget.is_none_or(|budget| failed.count() <= budget as usize) {
            return broken("rollback", "hosts go back though few hosts failed");
        }
        let desired = store.entry(&Key::CurrentVersion.to_string());
        let desired = desired.and_then(|entry| codec::read_version(&entry.value).ok());
        match desired {
            Some(version) if self.ended.contains(&version) => {
                self.rollbacks += 1;
                Ok(())
            }
            other => broken("rollback", format!("hosts go back to {other:?}, which never ended a rollout")),
        }
    }
}

/// True if a host failed in a rollout and does not try again by itself.
fn has_failed(host: &HostName, order: InstructionOrder, store: &Store) -> bool {
    let progress = store.entry(&Key::Progress(order, host.clone()).to_string());
    let progress = progress.and_then(|entry| keys::Progress::read(&entry.value).ok());
    progress.is_some_and(|progress| progress.state == ProgressState::GaveUp)
}
