//! The record of a rollout, which commands write for the hosts.

use crate::commands::context::{Store, now};
use etcd_session::StoreError;
use planning::rollout::{RECORD_RANGES, resolve};
use schema::instruction::Instruction;
use schema::reads::Read;
use schema::records::RolloutRecord;
use schema::snapshot::KeySnapshot;
use schema::writes::rollout;

/// Returns what is read with a new version, so that its record can be written before the hosts ask for it.
pub(crate) fn reads() -> Vec<Read> {
    Read::all(&rollout::RECORD_KEYS, &RECORD_RANGES)
}

/// Writes the record of the rollout of an instruction, unless there is one. `found` is what [`reads`] found when the
/// version was written. Returns the record as this command would write it.
pub(crate) async fn write_record(
    instruction: &Instruction,
    found: Option<KeySnapshot>,
    store: &Store<'_>,
) -> Result<RolloutRecord, StoreError> {
    let order = instruction.order;
    let found = match found {
        Some(found) => found,
        None => {
            let (keys, ranges) = (rollout::record_keys(order), RECORD_RANGES);
            store.session.read_all(&keys, &ranges, None, store.deadline).await?
        }
    };
    let record = resolve(instruction, &found, now());
    let rollouts = found.entries.keys().map(String::as_str);
    store.commit(&rollout::write_record(order, &record, &found, rollouts)).await?;
    Ok(record)
}
