//! What agents do for a rollout as a whole, done by commands where no agent does: a rollout of a fleet that only
//! scripts drive goes on and ends by their old verbs. Every write compares what was read, so any number of commands
//! may do this at the same time.

use super::record::write_record;
use crate::commands::context::{Store, now};
use crate::output;
use etcd_session::{Counted, StoreError, jitter};
use planning::rollout::{
    Author, ClosingTask, EndTask, HolderTask, Holders, closing_reads, closing_task, end_reads, end_task,
    start_timer,
};
use schema::instruction::Instruction;
use schema::keys::{Key, Prefix};
use schema::names::HostName;
use schema::order::InstructionOrder;
use schema::records::{Ended, StageOpening};
use schema::writes::stage::{RolloutStage, time_soak};

/// How many scripts of a fleet look after its rollout in the minute in which each of them asks once. More would read
/// the whole fleet in vain.
const LOOKERS: f64 = 20.0;
/// How many changes one command makes.
const CHANGES: u32 = 5;

/// Looks after the rollout of the desired version from a host that has nothing to start, unless an agent does. The
/// answer of the verb does not depend on it.
pub(crate) async fn rollout(host: &HostName, store: &Store<'_>) {
    match try_rollout(host, store).await {
        // A user whom nobody gave the rights of an agent leaves it to others.
        Ok(()) | Err(StoreError::PermissionDenied { .. }) => {}
        Err(error) => output::warn(&format!("the rollout could not be looked after: {error}")),
    }
}

async fn try_rollout(host: &HostName, store: &Store<'_>) -> Result<(), StoreError> {
    let (session, deadline) = (&store.session, store.deadline);
    let keys = [Key::CurrentVersion, Key::Store];
    let (found, counts) =
        session.read_and_count(&keys, &[Counted::Range(&Prefix::Hosts)], None, deadline).await?;
    let Some(instruction) = Instruction::find(&found) else { return Ok(()) };
    let hosts = counts.first().map_or(1, |count| u32::try_from(*count).unwrap_or(u32::MAX));
    if jitter() * f64::from(hosts) >= LOOKERS {
        return Ok(());
    }
    let order = instruction.order;
    let found = session.read_keys(&closing_reads(order), deadline).await?;
    // A command holds no mark.
    match closing_task(order, host, None, &found) {
        ClosingTask::Stop | ClosingTask::Wait(_) | ClosingTask::Look => return Ok(()),
        ClosingTask::WriteRecord => drop(write_record(&instruction, None, store).await?),
        ClosingTask::Begin(..) => {}
    }
    for _ in 0..CHANGES {
        if !go_on(host, order, store).await? {
            break;
        }
    }
    Ok(())
}

/// Does what the host does that looks after a rollout: opens the next stage, or prepares that, halts the rollout, or
/// writes that it has ended. Returns true if it changed something.
pub(crate) async fn go_on(
    host: &HostName,
    order: InstructionOrder,
    store: &Store<'_>,
) -> Result<bool, StoreError> {
    let (session, deadline) = (&store.session, store.deadline);
    let (keys, ranges) = end_reads(order);
    let found = session.read_all(&keys, &ranges, None, deadline).await?;
    let (at, by) = (now(), host.to_string());
    let transaction = match end_task(order, &found, &Ended { at, by: by.clone() }) {
        EndTask::Stage(transaction) | EndTask::End(transaction) => Some(transaction),
        // A script does not roll back.
        EndTask::Halt(halts) => halts.into_iter().next_back(),
        EndTask::Soak(stage, length) => {
            let timer = session.grant_lease(length.0.as_secs().cast_signed(), deadline).await?;
            Some(time_soak(RolloutStage { order, stage }, timer, &StageOpening { at, by, hosts: 0 }, &found))
        }
        EndTask::LookAfter(found) => {
            holders(host, &found, store).await?;
            return Ok(false);
        }
        EndTask::Stop | EndTask::Wait(_) | EndTask::Tell(_) => return Ok(false),
    };
    match transaction {
        Some(transaction) => Ok(session.commit(&transaction, deadline).await?.applied),
        None => Ok(false),
    }
}

/// Writes that the present rollout has ended, if it has and nobody has written it yet: what comes next must know
/// which version worked.
pub(crate) async fn note_end(store: &Store<'_>) -> Result<(), StoreError> {
    let (session, deadline) = (&store.session, store.deadline);
    let found = session.read_keys(&[Key::CurrentVersion, Key::Store], deadline).await?;
    let Some(Instruction { order, .. }) = Instruction::find(&found) else { return Ok(()) };
    let known = session.read_keys(&[Key::RolloutRecord(order), Key::Ended(order)], deadline).await?;
    if known.get(&Key::RolloutRecord(order)).is_none() || known.get(&Key::Ended(order)).is_some() {
        return Ok(());
    }
    let (keys, ranges) = end_reads(order);
    let mut found = session.read_all(&keys, &ranges, None, deadline).await?;
    // What a mark says about the number of agents is the business of its holder.
    found.entries.remove(&Key::Closing(order).to_string());
    let ended = Ended { at: now(), by: store.settings.author.name.clone() };
    if let EndTask::End(transaction) = end_task(order, &found, &ended) {
        session.commit(&transaction, deadline).await?;
    }
    Ok(())
}

/// Looks after the hosts whose claims keep this one waiting, as an agent does: one that vanished is marked and
/// timed, and a later call ends its claims.
pub(crate) async fn holders(host: &HostName, holders: &Holders, store: &Store<'_>) -> Result<(), StoreError> {
    if change_holders(host, holders, store).await? {
        // The timer of a host is started after its mark was written.
        change_holders(host, holders, store).await?;
    }
    Ok(())
}

/// Returns true if it did something.
async fn change_holders(host: &HostName, holders: &Holders, store: &Store<'_>) -> Result<bool, StoreError> {
    let (session, deadline) = (&store.session, store.deadline);
    let (keys, ranges) = holders.first_reads();
    let mut found = session.read_all(&keys, &ranges, None, deadline).await?;
    let more = holders.second_reads(&found);
    found.entries.extend(session.read_all(&more, &[], Some(found.revision), deadline).await?.entries);
    let tasks = holders.tasks(&found, &Author { by: host.to_string(), at: now() });
    let has_tasks = !tasks.is_empty();
    for task in tasks {
        let transaction = match task {
            HolderTask::Time(vanished, lost_after) => {
                let timer = session.grant_lease(lost_after.0.as_secs().cast_signed(), deadline).await?;
                start_timer(&vanished, timer, &found)
            }
            HolderTask::Commit(transaction) => Some(transaction),
        };
        if let Some(transaction) = transaction {
            // Refused if somebody else did it, or if the host is back.
            session.commit(&transaction, deadline).await?;
        }
    }
    Ok(has_tasks)
}
