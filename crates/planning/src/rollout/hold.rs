//! The hosts of an open stage that are proven and keep their claims for some time: the next stage waits for them.

use super::opening::Members;
use super::stages::open_stage;
use schema::codec;
use schema::keys::Key;
use schema::names::HostName;
use schema::order::InstructionOrder;
use schema::records::{HostProgress, ProgressState, RolloutRecord};
use schema::snapshot::KeySnapshot;
use schema::time::{EpochSeconds, Span};
use schema::writes::claims::FoundClaims;

/// The hosts that a stage waits for all keep their claims after their proof.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageHold {
    /// The one that was proven last.
    pub host: HostName,
    /// Number of the others.
    pub others: usize,
    /// How long they keep their claims.
    pub length: Span,
    /// When that is over for the last one, by its clock. Then it validates once more.
    pub ends: EpochSeconds,
}

impl StageHold {
    /// Returns the hosts for which the stage after the open one waits, if all of them keep their claims. `found` holds
    /// everything that [`end_reads`](super::end_reads) names; what an agent reads that waits for its stage is less, and
    /// shows none.
    pub(super) fn read(order: InstructionOrder, record: &RolloutRecord, found: &KeySnapshot) -> Option<Self> {
        let length = record.hold?;
        let open = open_stage(order, &record.stages, found);
        let members = Members::read(order, record, found);
        let proven_at = |host: &HostName| {
            let progress = found.get(&Key::Progress(order, host.clone()))?;
            let progress = codec::read::<HostProgress>(&progress.value).ok()?;
            let holds = FoundClaims::read(host, found).claims.is_some_and(|claims| claims.is_for_update());
            (holds && progress.state == ProgressState::Proven).then_some(progress.at)
        };
        let proven = members.unsettled(open).map(|(host, _)| Some((proven_at(host)?, host.clone())));
        let mut proven = proven.collect::<Option<Vec<_>>>()?;
        proven.sort();
        let (at, host) = proven.pop()?;
        let ends = EpochSeconds(at.0.saturating_add_unsigned(length.0.as_secs()));
        Some(Self { host, others: proven.len(), length, ends })
    }
}
