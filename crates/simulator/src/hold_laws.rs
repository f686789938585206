//! The law about `hold` (R3): a host that was proven keeps its claims for as long as the record of its rollout says, so
//! that a version which fails soon reaches no further host.

use crate::machine::Machine;
use crate::violation::{Violation, broken};
use schema::names::HostName;
use schema::records::{HostClaims, HostProgress, ProgressState, RolloutRecord};
use std::collections::{BTreeMap, BTreeSet};

/// The time of the simulation at the beginning, in seconds of the wall clock.
const BEGAN: i64 = 1_700_000_000;

/// State of the law about `hold`.
#[derive(Debug, Clone, Default)]
pub(crate) struct HoldLaws {
    /// How long the machines that started keep their claims, in milliseconds.
    holds: BTreeMap<usize, u64>,
    /// Until when the machines that were proven keep them.
    until: BTreeMap<usize, u64>,
    /// The hosts that hold claims for their update.
    holding: BTreeSet<HostName>,
}

impl HoldLaws {
    /// A machine starts in the rollout of a record.
    pub(crate) fn started(&mut self, machine: usize, record: Option<&RolloutRecord>, is_repair: bool) {
        self.until.remove(&machine);
        self.holds.remove(&machine);
        // A repair proves nothing new.
        let hold = if is_repair { None } else { record.and_then(|record| record.hold) };
        let millis = hold.and_then(|hold| u64::try_from(hold.0.as_millis()).ok());
        self.holds.extend(millis.map(|millis| (machine, millis)));
    }

    /// A machine says how far it got.
    pub(crate) fn got(&mut self, machine: usize, progress: &HostProgress) {
        if progress.state == ProgressState::Started {
            return;
        }
        let held = self.holds.remove(&machine);
        let hold = if progress.state == ProgressState::Proven { held } else { None };
        let at = u64::try_from(progress.at.0 - BEGAN).unwrap_or(0) * 1_000;
        self.until.extend(hold.map(|hold| (machine, at + hold)));
    }

    /// The claims of a host change. `by` is its own machine, if that changed them without a start.
    pub(crate) fn claims(
        &mut self,
        host: &HostName,
        claims: Option<&HostClaims>,
        by: Option<(usize, &Machine)>,
        now: u64,
    ) -> Result<(), Violation> {
        if claims.is_some_and(HostClaims::is_for_update) {
            self.holding.insert(host.clone());
            return Ok(());
        }
        let was_holding = self.holding.remove(host);
        let Some((number, machine)) = by else { return Ok(()) };
        let until = self.until.remove(&number);
        // A host that fails releases its claims, and counts as failed.
        match until.filter(|until| was_holding && now < *until && machine.truth.fails == 0) {
            Some(until) => {
                let early = until - now;
                broken("R3", format!("{host} gives its claims back {early} ms before its hold is over"))
            }
            None => Ok(()),
        }
    }
}
