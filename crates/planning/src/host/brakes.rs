//! What a host knows of the brakes of the fleet: freezes, and the limits of its rollout. A host that may
//! start, or has nothing to start, does not look at them: the start transaction compares them. One that
//! was refused reads them, and follows them until it may start.

use crate::host::state::HostState;
use crate::rollout::{ClaimNeed, DriverSeen, Permit, RolloutView, possible_reads};
use schema::instruction::Instruction;
use schema::names::HostName;
use schema::order::InstructionOrder;
use schema::reads::Read;
use schema::records::RosterEntry;
use schema::time::{BootMillis, Now};
use schema::why_not::WhyNot;
use schema::writes::claims::{FoundClaims, RolloutGuard};

/// What a host knows of the brakes.
#[derive(Debug, Clone, Copy)]
pub enum Brakes<'a> {
    /// The host has not asked: the start transaction finds out.
    Unasked,
    /// A start was refused by this, then, and nothing was read since.
    Refused(&'a WhyNot, BootMillis),
    /// What was read since a start was refused.
    Known(&'a RolloutView),
}

impl Brakes<'_> {
    /// Returns what a host takes when it starts this instruction, or what keeps it from starting. `held`
    /// are its claims, if they are known.
    pub(super) fn permit(
        self,
        instruction: &Instruction,
        held: Option<&FoundClaims>,
        need: ClaimNeed,
        now: Now,
    ) -> Result<Permit, WhyNot> {
        match self {
            Self::Unasked => {
                let order = instruction.order;
                let (record_revision, policy_revision) = (0, 0);
                let (limits, checks_halt, failures_read_at) = (Vec::new(), false, None);
                let guard = RolloutGuard {
                    order,
                    record_revision,
                    policy_revision,
                    limits,
                    checks_halt,
                    failures_read_at,
                    stage: None,
                };
                let (need, counts_failure) = (ClaimNeed::Nothing, false);
                Ok(Permit { need, guard, claims: None, times: None, counts_failure })
            }
            Self::Refused(obstacle, _) => Err(obstacle.clone()),
            Self::Known(view) => match held {
                Some(held) if view.order == instruction.order => {
                    let permit = view.permit(held, need, now)?;
                    // Many hosts want to start at once. Those that come first go; the others order themselves.
                    view.queues_first(need).map_or(Ok(permit), Err)
                }
                Some(_) | None => Err(WhyNot::NotRead),
            },
        }
    }
}

impl Brakes<'_> {
    /// Returns what the host reads of the rollout of an instruction, as far as it knows which limits count it.
    pub(super) fn reads(self, host: &HostName, of: &Instruction, roster: &RosterEntry) -> Vec<Read> {
        match self {
            Self::Known(view) if view.order == of.order => view.reads(),
            _ => possible_reads(host, of, roster),
        }
    }
}

/// What a host keeps of the brakes between two decisions.
#[derive(Debug, Clone, Default)]
pub struct BrakesMemory {
    refused: Option<RefusedStart>,
    view: Option<RolloutView>,
    /// The rollout that was read last, and who looked for its end then.
    driver_seen: Option<(InstructionOrder, DriverSeen)>,
}

/// A rollout whose end the host looks for. Whoever looks for the end also opens the stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RolloutDriver {
    pub order: InstructionOrder,
    /// Whether another host looks, as far as this one saw.
    pub driver_seen: DriverSeen,
}

/// A start that was refused.
#[derive(Debug, Clone)]
struct RefusedStart {
    obstacle: WhyNot,
    /// The revision at which it was refused.
    revision: i64,
    /// When it was refused.
    at: BootMillis,
    /// The instruction that was to be started.
    order: Option<InstructionOrder>,
}

impl BrakesMemory {
    /// Notes that a start of this host was refused at a revision. What was read before may lack what
    /// refused it.
    pub fn refuse(&mut self, state: &HostState, obstacle: WhyNot, revision: i64, at: BootMillis) {
        self.view.take_if(|view| view.revision < revision);
        self.refused = Some(RefusedStart { obstacle, revision, at, order: order_to_start(state) });
    }

    /// Notes the ticket that the store has of this host. What was read before it was written does not say who
    /// comes first. Returns true if it was not noted before. A host may not know that it wrote the ticket, because
    /// the answer was lost.
    pub fn queued(&mut self, claims: impl FnOnce() -> FoundClaims) -> bool {
        let Some(refused) = &mut self.refused else { return false };
        let claims = claims();
        let is_queued = claims.ticket().is_some_and(|ticket| Some(ticket.rollout) == refused.order);
        let is_new = is_queued && refused.revision < claims.revision;
        if is_new {
            refused.revision = claims.revision;
        }
        is_new
    }

    /// Forgets what is known if the host has nothing to start any more, or something else.
    pub fn follow(&mut self, state: &HostState) {
        let order = order_to_start(state);
        if self.refused.as_ref().is_some_and(|refused| order.is_none() || refused.order != order) {
            *self = Self { driver_seen: self.driver_seen, ..Self::default() };
        }
    }

    /// Takes over what was read. Returns false if it is older than what is known.
    pub fn take(&mut self, view: RolloutView) -> bool {
        let Some(refused) = &self.refused else { return false };
        let newest = self.view.as_ref().map_or(0, |known| known.revision).max(refused.revision);
        if view.revision < newest {
            return false;
        }
        self.driver_seen = Some((view.order, view.driver_seen()));
        self.view = Some(view.after(self.view.as_ref()));
        true
    }

    /// Forgets everything: the next start finds out. The agent calls it when the store went back.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// Returns the revision since which the brakes are to be followed; `None` if they are not.
    pub fn wanted_since(&self) -> Option<i64> {
        self.refused.as_ref().map(|refused| refused.revision)
    }

    /// Returns how the host looks after the rollout of this instruction; `None` if it does not.
    pub fn drives_rollout(&self, state: &HostState, instruction: &Instruction) -> Option<RolloutDriver> {
        let view = self.view.as_ref().filter(|view| view.order == instruction.order);
        let waits = view.is_some_and(RolloutView::has_stages);
        let known = self.driver_seen.filter(|(order, _)| *order == instruction.order);
        let driver_seen = match known.map(|(_, driver_seen)| driver_seen) {
            // It may be long ago.
            Some(DriverSeen::Missing) if !waits => DriverSeen::Unknown,
            Some(driver_seen) => driver_seen,
            None => DriverSeen::Unknown,
        };
        let search = RolloutDriver { order: instruction.order, driver_seen };
        (waits || state.drives_rollout(instruction)).then_some(search)
    }

    /// Returns what is known.
    pub fn known(&self) -> Brakes<'_> {
        match (&self.view, &self.refused) {
            (Some(view), _) => Brakes::Known(view),
            (None, Some(refused)) => Brakes::Refused(&refused.obstacle, refused.at),
            (None, None) => Brakes::Unasked,
        }
    }
}

/// Returns the instruction that a host is about to start.
fn order_to_start(state: &HostState) -> Option<InstructionOrder> {
    state.preparing().map(|attempt| attempt.instruction.order)
}
