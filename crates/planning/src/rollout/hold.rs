//! The hosts of an open stage that are proven and keep their claims for some time: the next stage waits for them.

use super::opening::Members;
use super::stages::open_stage;
use schema::keys::{self, Key};
use schema::names::HostName;
use schema::order::InstructionOrder;
use schema::records::{ProgressState, RolloutRecord};
use schema::snapshot::KeySnapshot;
use schema::time::EpochSeconds;
use schema::why_not::StageHold;
use schema::writes::claims::FoundClaims;

/// Returns the hosts for which the stage after the open one waits, if all of them keep their claims. `found` holds
/// everything that [`end_reads`](super::end_reads) names; what an agent reads that waits for its stage is less, and
/// shows none.
pub(super) fn stage_hold(
    order: InstructionOrder,
    record: &RolloutRecord,
    found: &KeySnapshot,
) -> Option<StageHold> {
    let length = record.hold?;
    let open = open_stage(order, &record.stages, found);
    let members = Members::read(order, record, found);
    let proven_at = |host: &HostName| {
        let progress = found.value_of(keys::Progress(order, host.clone()))?;
        // The claims of a host that vanished end otherwise.
        let holds = found.get(&Key::Live(host.clone())).is_some()
            && FoundClaims::read(host, found).claims.is_some_and(|claims| claims.is_for_update());
        (holds && progress.state == ProgressState::Proven).then_some(progress.at)
    };
    let proven = members.unsettled(open).map(|(host, _)| Some((proven_at(host)?, host.clone())));
    let mut proven = proven.collect::<Option<Vec<_>>>()?;
    proven.sort();
    let (at, host) = proven.pop()?;
    let ends = EpochSeconds(at.0.saturating_add_unsigned(length.0.as_secs()));
    Some(StageHold { host, others: proven.len(), length, ends })
}
