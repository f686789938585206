//! The times for which a stage stays closed: its hosts are observed, or keep their claims.
use schema::keys::{self, Key};
use schema::names::HostName;
use schema::order::InstructionOrder;
use schema::records::ResolvedStage;
use schema::snapshot::KeySnapshot;
use schema::time::{EpochSeconds, Span};

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
        let begun = keys::Soak::read(&entry.value).ok().filter(|soak| soak.timed);
        let length = stages.get(number as usize).and_then(|stage| stage.rule.soak);
        let ends = begun
            .zip(length)
            .map(|(soak, length)| EpochSeconds(soak.at.0.saturating_add_unsigned(length.0.as_secs())));
        Some(Self { ends })
    }
}

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
