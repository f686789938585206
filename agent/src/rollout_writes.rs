//! What several tasks write about a rollout: that it is halted, and what becomes of hosts that vanished while they
//! hold claims.

use crate::clock;
use etcd_session::{Deadline, Session, StoreError};
use planning::rollout::{HolderTask, Holders, start_timer};
use schema::names::HostName;
use schema::reads::Read;
use schema::snapshot::KeySnapshot;
use schema::transaction::Transaction;
use schema::writes::Fence;

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
/// was read before is out of date. The store was judged in this history of it.
///
/// # Errors
/// Returns the store's error.
pub(crate) async fn look_after(
    session: &Session,
    own: &HostName,
    holders: &Holders,
    judged: (u64, Fence),
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
    (history, fence): (u64, Fence),
) -> Result<bool, StoreError> {
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
    let tasks = holders.tasks(&found, &(own.to_string(), clock::now().wall));
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
