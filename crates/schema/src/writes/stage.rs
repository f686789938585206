//! The transactions of the stages of a rollout. The host that looks whether the rollout has ended writes them.

use super::act::Act;
use crate::codec;
use crate::keys::{Key, Prefix};
use crate::names::HostName;
use crate::order::InstructionOrder;
use crate::records::{Excuse, RolloutRecord, Soak, StageOpening};
use crate::snapshot::KeySnapshot;
use crate::transaction::{Compare, Transaction};
use std::ops::RangeInclusive;

/// A stage of a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RolloutStage {
    /// The instruction of the rollout.
    pub order: InstructionOrder,
    /// The number of the stage.
    pub stage: u32,
}

/// Returns a transaction that is applied only if nothing changed since what was found: the rollout goes on, the
/// stage is the last one that is open, and no host failed, joined, came back, or got further.
fn of_stage(name: &'static str, of: RolloutStage, found: &KeySnapshot) -> Transaction {
    let RolloutStage { order, stage: open } = of;
    let mut transaction = Transaction::idempotent(name);
    let keys =
        [Key::Store, Key::CurrentVersion, Key::RolloutRecord(order), Key::Halt(order), Key::Ended(order)];
    let of_stage = [Key::StageOpened(order, open), Key::StageOpened(order, open + 1), Key::Soak(order, open)];
    for key in keys.into_iter().chain(of_stage) {
        let revision = found.revision_of(&key);
        transaction.compares.push(Compare::Revision(key, revision));
    }
    for range in [Prefix::Hosts, Prefix::Lives, Prefix::FailedOf(order), Prefix::ProgressOf(order)] {
        transaction.compares.push(Compare::NoneNewer(range, found.revision));
    }
    transaction
}

/// Returns the transaction that opens the stages after `open`, if the time of its soak is over.
pub fn open_stages(
    open: RolloutStage,
    stages: RangeInclusive<u32>,
    opening: &StageOpening,
    found: &KeySnapshot,
) -> Transaction {
    let mut transaction = of_stage("open the next stage of the rollout", open, found);
    let order = open.order;
    transaction.compares.push(Compare::absent(Key::SoakTimer(order, open.stage)));
    for stage in stages {
        transaction.put(Key::StageOpened(order, stage), codec::write(opening), 0);
    }
    transaction
}

/// Returns the transaction that begins to observe the hosts up to a stage.
pub fn begin_soak(of: RolloutStage, opening: &StageOpening, found: &KeySnapshot) -> Transaction {
    let RolloutStage { order, stage } = of;
    let mut transaction = of_stage("observe the hosts before the next stage opens", of, found);
    let soak = Soak { at: opening.at, by: opening.by.clone(), timed: false };
    transaction.put(Key::Soak(order, stage), codec::write(&soak), 0);
    transaction
}

/// Returns the transaction that starts the timer of a soak that has begun. `timer` is a lease of the time that it
/// takes.
pub fn time_soak(of: RolloutStage, timer: i64, opening: &StageOpening, found: &KeySnapshot) -> Transaction {
    let RolloutStage { order, stage } = of;
    // What fails meanwhile restarts the soak, and who is not proven is asked for when the time is over.
    let mut transaction = Transaction::idempotent("start the timer of the stage");
    let keys = [Key::Store, Key::CurrentVersion, Key::RolloutRecord(order), Key::Halt(order)];
    for key in keys.into_iter().chain([Key::Soak(order, stage)]) {
        let revision = found.revision_of(&key);
        transaction.compares.push(Compare::Revision(key, revision));
    }
    let soak = Soak { at: opening.at, by: opening.by.clone(), timed: true };
    transaction.put(Key::Soak(order, stage), codec::write(&soak), 0);
    transaction.put(Key::SoakTimer(order, stage), opening.by.as_str(), timer);
    transaction
}

/// Returns the transaction that ends a soak: a host is not proven any more.
pub fn end_soak(of: RolloutStage, found: &KeySnapshot) -> Transaction {
    let RolloutStage { order, stage } = of;
    let mut transaction = of_stage("wait for a host again", of, found);
    transaction.delete(Key::Soak(order, stage));
    transaction.delete(Key::SoakTimer(order, stage));
    transaction
}

/// Returns the transaction that replaces the record of a rollout: other hosts are chosen for a stage, and are observed
/// as well.
pub fn choose_hosts(of: RolloutStage, record: &RolloutRecord, found: &KeySnapshot) -> Transaction {
    let RolloutStage { order, stage: open } = of;
    let mut transaction = of_stage("choose another host for a stage", of, found);
    transaction.put(Key::RolloutRecord(order), codec::write(record), 0);
    for key in [Key::Soak(order, open), Key::SoakTimer(order, open)] {
        if found.get(&key).is_some() {
            transaction.delete(key);
        }
    }
    transaction
}

/// Returns the transaction by which an operator excuses a host. `record` is what the record of the rollout says
/// from then on.
pub fn excuse(
    host: &HostName,
    order: InstructionOrder,
    excuse: &Excuse,
    record: &RolloutRecord,
    found: &KeySnapshot,
    act: &Act,
) -> Transaction {
    let (key, of_record) = (Key::Excused(order, host.clone()), Key::RolloutRecord(order));
    let mut transaction = Transaction::once("excuse the host")
        .when(Compare::Revision(of_record.clone(), found.revision_of(&of_record)))
        .when(Compare::Revision(Key::CurrentVersion, found.revision_of(&Key::CurrentVersion)))
        .when(Compare::absent(Key::Ended(order)));
    // Whoever was chosen for a stage that is settled meanwhile stays.
    let stages = (1..).take(record.stages.len()).map(|stage| Key::StageOpened(order, stage));
    if let Some(next) = stages.into_iter().find(|key| found.get(key).is_none()) {
        transaction = transaction.when(Compare::absent(next));
    }
    transaction.put(key.clone(), codec::write(excuse), 0);
    transaction.put(of_record, codec::write(record), 0);
    act.add_event(transaction, &key, found)
}
