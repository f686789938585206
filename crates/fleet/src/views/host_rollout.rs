//! What freezes and the limits of the rollout mean for one host.

use super::claim::{ClaimView, HeldClaimView};
use crate::verdict::FleetVerdict;
use planning::calendar::as_rfc3339;
use planning::rollout::{ClaimNeed, RolloutView};
use schema::instruction::Instruction;
use schema::keys;
use schema::limit::Limit;
use schema::names::HostName;
use schema::plan::Phase;
use schema::snapshot::KeySnapshot;
use schema::time::{BootMillis, EpochSeconds, Now};
use schema::verdict::{HostVerdict, VerdictKind};
use schema::why_not::{LimitDetail, WhyNot};
use schema::writes::claims::FoundClaims;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeSet;

/// Number of holders of a limit that are shown.
pub const HOLDERS_SHOWN: usize = 10;

/// What the limits of the rollout mean for a host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct HostRollout {
    /// Why the host cannot start now; `None` if it can, or has nothing to start.
    pub held_back_by: Option<String>,
    /// When that is expected to end, if it ends by itself.
    #[serde(serialize_with = "as_rfc3339")]
    #[schemars(with = "Option<String>")]
    pub held_until: Option<EpochSeconds>,
    /// The claims of other hosts that keep it waiting.
    pub held_by: Vec<ClaimView>,
    /// The claims that it holds.
    pub claims: Vec<HeldClaimView>,
}

/// A limit of which no number is free, and the hosts that hold its numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FullLimit {
    /// The limit.
    pub limit: Limit,
    /// The hosts.
    pub holders: Vec<HostName>,
}

impl FullLimit {
    fn of(reason: &WhyNot) -> Option<Self> {
        match reason {
            WhyNot::Limit { limit, detail: LimitDetail::Full { holders, .. } } => {
                Some(Self { limit: limit.clone(), holders: holders.clone() })
            }
            _ => None,
        }
    }

    /// True if all these hosts still hold a number. `found` has the claims of the limit.
    pub fn is_current(&self, found: &KeySnapshot) -> bool {
        let claims = ClaimView::of_limit(&self.limit, found).filter_map(|view| view.claim);
        let hosts: BTreeSet<HostName> = claims.map(|claim| claim.host).collect();
        self.holders.iter().all(|holder| hosts.contains(holder))
    }
}

impl HostRollout {
    /// Returns the instruction on which a host waits at the limits of the rollout; `None` if it does not. `found`
    /// holds the keys of the host, and those of the instruction.
    pub fn waits_at_limits(host: &HostName, found: &KeySnapshot) -> Option<Instruction> {
        let report = found.value_of(keys::Report(host.clone()))?;
        // A host that waits for a service is not at the limits yet.
        let waits = match report.verdict {
            HostVerdict::Held(reason) if reason.kind() == VerdictKind::Waiting => reason.depends_on_halt(),
            _ => report.phase == Phase::Start,
        };
        if waits { Instruction::find(found) } else { None }
    }

    /// Returns what it means for a host that waits for nothing in the rollout.
    pub fn of_claims(held: &FoundClaims) -> Self {
        Self { claims: held.held().iter().map(HeldClaimView::from).collect(), ..Self::default() }
    }

    /// Returns what the verdict about a host that waits at the limits says, without the claims of others, and the limit
    /// that is full, if one is. `None` if the rollout has to be read for that: an earlier agent did not report it, or
    /// it changes while the host reports the same.
    pub fn of_verdict(
        verdict: Option<&FleetVerdict>,
        held: &FoundClaims,
    ) -> Option<(Self, Option<FullLimit>)> {
        let reason = verdict?.why_not()?;
        match reason {
            WhyNot::Limit { detail: LimitDetail::Full { .. }, .. }
            | WhyNot::Window { starts: Some(_), .. }
            | WhyNot::Frozen(_)
            | WhyNot::Halted { .. }
            | WhyNot::OverBudget { .. }
            | WhyNot::Rollout { .. } => Some((Self::held_back(reason, held), FullLimit::of(reason))),
            _ => None,
        }
    }

    fn held_back(reason: &WhyNot, held: &FoundClaims) -> Self {
        Self { held_back_by: Some(reason.detail()), held_until: reason.ends(), ..Self::of_claims(held) }
    }

    /// Returns what it means for a host that waits on this instruction, without the claims of others, and the limit that
    /// is full, if one is. `found` holds what [`first_reads`](planning::rollout::first_reads) and
    /// [`second_reads`](planning::rollout::second_reads) name.
    pub fn new(
        host: &HostName,
        held: &FoundClaims,
        instruction: &Instruction,
        found: &KeySnapshot,
        now: EpochSeconds,
    ) -> (Self, Option<FullLimit>) {
        let now = Now { boot: BootMillis(0), wall: now };
        let view = RolloutView::new(host, instruction, found, now);
        // The report does not say whether the host needs claims; one that waits does.
        match view.permit(held, ClaimNeed::Take, now) {
            Err(reason) => (Self::held_back(&reason, held), FullLimit::of(&reason)),
            Ok(_) => (Self::of_claims(held), None),
        }
    }

    /// Returns what it means for a host, from the whole store.
    pub fn of(host: &HostName, found: &KeySnapshot, now: EpochSeconds) -> Self {
        let held = FoundClaims::read(host, found);
        let Some(instruction) = Self::waits_at_limits(host, found) else { return Self::of_claims(&held) };
        let (rollout, full) = Self::new(host, &held, &instruction, found, now);
        let held_by = full.iter().flat_map(|full| ClaimView::of_limit(&full.limit, found));
        Self { held_by: held_by.take(HOLDERS_SHOWN).collect(), ..rollout }
    }
}
