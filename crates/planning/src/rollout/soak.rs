//! The time for which the hosts of a stage are observed before the next one opens.

use schema::keys::{self, Key};
use schema::order::InstructionOrder;
use schema::records::ResolvedStage;
use schema::snapshot::KeySnapshot;
use schema::time::EpochSeconds;
use schema::why_not::StageSoak;

/// Returns the soak of a stage; `None` if it has not begun.
pub(super) fn read_soak(
    order: InstructionOrder,
    stages: &[ResolvedStage],
    number: u32,
    found: &KeySnapshot,
) -> Option<StageSoak> {
    let entry = found.get(&Key::Soak(order, number))?;
    let begun = keys::Soak::read(&entry.value).ok().filter(|soak| soak.timed);
    let length = stages.get(number as usize).and_then(|stage| stage.rule.soak);
    let ends = begun
        .zip(length)
        .map(|(soak, length)| EpochSeconds(soak.at.0.saturating_add_unsigned(length.0.as_secs())));
    Some(StageSoak { ends })
}
