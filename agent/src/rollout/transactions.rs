//! What several tasks write about a rollout: its record, that it is halted, and what becomes of hosts that vanished while they
//! hold claims.

use crate::clock;
use etcd_session::{Deadline, Session, StoreError};
use planning::rollout::{Author, HolderTask, Holders, RECORD_RANGES, resolve, start_timer};
use schema::instruction::Instruction;
use schema::keys::Key;
use schema::names::HostName;
use schema::order::InstructionOrder;
use schema::reads::Read;
use schema::snapshot::{Entry, KeySnapshot};
use schema::transaction::Transaction;
use schema::writes::Fence;
use schema::writes::rollout::{self, begin_resolving, record_keys};

/// A store that this host trusts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JudgedStore {
    /// The history of the store that was judged.
    pub(crate) history: u64,
    /// What each write of the host compares.
    pub(crate) fence: Fence,
}

/// Writes the record of the rollout of an instruction, unless there is one. Returns true if it was written.
///
/// # Errors
/// Returns the store's error.
pub(crate) async fn write_record(
    session: &Session,
    history: u64,
    instruction: &Instruction,
) -> Result<bool, StoreError> {
    let (deadline, order) = (Deadline::of_request(), instruction.order);
    let reads = Read::all(&record_keys(order), &RECORD_RANGES);
    let found = session.read_judged(history, &reads, None, deadline).await?;
    let record = resolve(instruction, &found, clock::now().wall);
    let rollouts = found.entries.keys().map(String::as_str);
    let transaction = rollout::write_record(order, &record, &found, rollouts);
    let written = session.commit(&transaction, deadline).await?;
    tracing::info!(rollout = %order, applied = written.applied, "the record of the rollout");
    Ok(written.applied)
}

/// Writes the record of a rollout that no host starts, because every host has the version already. One host of the
/// fleet does: the one that marks so first. Returns true if this one did.
///
/// # Errors
/// Returns the store's error.
pub(crate) async fn write_missing_record(
    session: &Session,
    host: &HostName,
    judged: JudgedStore,
    order: InstructionOrder,
) -> Result<bool, StoreError> {
    let JudgedStore { history, fence } = judged;
    let deadline = Deadline::of_request();
    let is_marked = session.commit(&begin_resolving(host, fence, order), deadline).await?.applied;
    let reads = Read::all(&[Key::CurrentVersion, Key::Store, Key::Resolving(order)], &[]);
    let found = session.read_judged(history, &reads, None, deadline).await?;
    // It may have marked so before it was restarted, or the answer was lost.
    let is_own = |mark: &Entry| mark.value == host.as_str().as_bytes();
    if !is_marked && !found.get(&Key::Resolving(order)).is_some_and(is_own) {
        return Ok(false);
    }
    match Instruction::find(&found).filter(|instruction| instruction.order == order) {
        Some(instruction) => write_record(session, history, &instruction).await,
        None => Ok(false),
    }
}

/// Halts the rollout by the first of these transactions that the store permits. Returns true if somebody halted
/// it, so that what was read before is out of date.
///
/// # Errors
/// Returns the store's error.
pub(crate) async fn halt(
    session: &Session,
    own: &HostName,
    halts: Vec<Transaction>,
    fence: Fence,
) -> Result<bool, StoreError> {
    let last = halts.len().saturating_sub(1);
    for (number, mut halt) in halts.into_iter().enumerate() {
        fence.add_to(&mut halt, own);
        match session.commit(&halt, Deadline::of_request()).await {
            Ok(halted) => {
                tracing::warn!(applied = halted.applied, "the rollout is halted");
                return Ok(true);
            }
            Err(StoreError::PermissionDenied { .. }) if number < last => {
                tracing::warn!("this host may not roll back: `orchestrate enroll --may-roll-back`");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// Looks after the hosts whose claims keep this one waiting. Returns true if it did something, so that what
/// was read before is out of date.
///
/// # Errors
/// Returns the store's error.
pub(crate) async fn look_after(
    session: &Session,
    own: &HostName,
    holders: &Holders,
    judged: JudgedStore,
) -> Result<bool, StoreError> {
    let changed = change_holders(session, own, holders, judged).await?;
    if changed {
        // The timer of a host is started after its mark was written.
        change_holders(session, own, holders, judged).await?;
    }
    Ok(changed)
}

async fn change_holders(
    session: &Session,
    own: &HostName,
    holders: &Holders,
    judged: JudgedStore,
) -> Result<bool, StoreError> {
    let JudgedStore { history, fence } = judged;
    let deadline = Deadline::of_request();
    let (keys, ranges) = holders.first_reads();
    let mut found = session.read_judged(history, &Read::all(&keys, &ranges), None, deadline).await?;
    let more = holders.second_reads(&found);
    if more.is_empty() {
        return Ok(false);
    }
    let more = Read::all(&more, &[]);
    let KeySnapshot { entries, .. } =
        session.read_judged(history, &more, Some(found.revision), deadline).await?;
    found.entries.extend(entries);
    let tasks = holders.tasks(&found, &Author { by: own.to_string(), at: clock::now().wall });
    let has_tasks = !tasks.is_empty();
    for task in tasks {
        let mut transaction = match task {
            HolderTask::Time(host, lost_after) => {
                let seconds = lost_after.0.as_secs().cast_signed();
                let timer = session.grant_lease(seconds, deadline).await?;
                tracing::info!(%host, %lost_after, "the agent of a host that holds claims does not run");
                let Some(transaction) = start_timer(&host, timer, &found) else { continue };
                transaction
            }
            HolderTask::Commit(transaction) => transaction,
        };
        fence.add_to(&mut transaction, own);
        let committed = session.commit(&transaction, deadline).await?;
        tracing::info!(applied = committed.applied, "{}", transaction.name);
    }
    Ok(has_tasks)
}
