//! The time for which the hosts of a stage are observed before the next stage opens.

use schema::codec;
use schema::keys::Key;
use schema::order::InstructionOrder;
use schema::records::{ResolvedStage, Soak};
use schema::snapshot::KeySnapshot;
use schema::time::EpochSeconds;

/// A soak that has begun: all hosts up to a stage are through, and are observed before the next stage opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StageSoak {
    /// When it ends, by the clock of the host that started its timer; `None` before that. A failure ends it earlier,
    /// and a new leader of the store delays it: it grants each lease anew.
    pub ends: Option<EpochSeconds>,
}

impl StageSoak {
    /// Returns the soak of a stage; `None` if it has not begun.
    pub(super) fn read(
        order: InstructionOrder,
        stages: &[ResolvedStage],
        number: u32,
        found: &KeySnapshot,
    ) -> Option<Self> {
        let entry = found.get(&Key::Soak(order, number))?;
        let begun = codec::read::<Soak>(&entry.value).ok().filter(|soak| soak.timed);
        let length = stages.get(number as usize).and_then(|stage| stage.rule.soak);
        let ends = begun
            .zip(length)
            .map(|(soak, length)| EpochSeconds(soak.at.0.saturating_add_unsigned(length.0.as_secs())));
        Some(Self { ends })
    }
}
