//! What an agent says of itself, for the laws about what waits.

use crate::agent::Agent;
use crate::waiting_laws::AgentView;
use planning::host::{Attempt, Target, store_view};
use schema::order::InstructionOrder;
use schema::store_trust::StoreTrust;

impl Agent {
    /// True if its journal has an attempt that has not started, and that nothing on the machine itself holds.
    pub(crate) fn wants_to_start(&self) -> bool {
        self.state.preparing().and_then(Attempt::prefetch).is_some_and(|prefetch| {
            prefetch.done.len() >= self.policy.steps.prefetch.len() && prefetch.failed.is_none()
        })
    }

    /// Returns what it says while this instruction is the current one.
    pub(crate) fn says(&self, order: InstructionOrder) -> AgentView {
        let state = &self.state;
        let is_member = !store_view::decommissioned(&self.followed, &state.host);
        let knows = matches!(&self.target, Target::Known(target) if target.order == order);
        let may_write = self.trust == StoreTrust::Trusted && self.is_connected && self.claim.held().is_some();
        let is_about_it = state.attempt.as_ref().is_some_and(|attempt| attempt.instruction.order == order);
        let has_version = match &self.target {
            Target::Known(target) => state.listing() == Some(&target.version),
            _ => false,
        };
        AgentView {
            host: state.host.clone(),
            process: self.process,
            is_able: may_write && is_member && knows,
            wants_to_start: is_about_it && self.wants_to_start(),
            looks: state.rollout.progress.is_some_and(|known| known.order == order),
            looks_again: state.rollout.progress.is_some_and(|known| known.order < order) && has_version,
            needs_claims: state.is_disturbed() || state.rollout.hold.is_some(),
        }
    }
}
