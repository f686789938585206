//! The record of a rollout, which commands write for the hosts.

use super::context::{Store, now};
use etcd_session::StoreError;
use planning::rollout::{RECORD_RANGES, resolve};
use schema::instruction::Instruction;
use schema::records::RolloutRecord;
use schema::writes::rollout;

/// Writes the record of the rollout of an instruction, unless there is one. Returns it as this command would write it.
pub(super) async fn write_record(
    instruction: &Instruction,
    store: &Store<'_>,
) -> Result<RolloutRecord, StoreError> {
    let order = instruction.order;
    let (keys, ranges) = (rollout::record_keys(order), RECORD_RANGES);
    let found = store.session.read_all(&keys, &ranges, None, store.deadline).await?;
    let record = resolve(instruction, &found, now());
    let rollouts = found.entries.keys().map(String::as_str);
    store.commit(&rollout::write_record(order, &record, &found, rollouts)).await?;
    Ok(record)
}
