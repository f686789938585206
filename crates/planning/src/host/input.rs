//! What a decision is made from, and what it gives.

use crate::host::state::HostState;
use crate::policy::Policy;
use schema::keys::StatusState;
use schema::names::{StatusType, Version};
use schema::plan::{HostVerdict, Plan};
use schema::records::{
    CHECKS_IN_REPORT, FailingCheck, MachineInfo, Report, StatusRecord, UNPUBLISHED_IN_REPORT,
    UnpublishedService, Wait,
};
use schema::store_trust::{Instruction, InstructionOrder, StoreTrust};
use schema::time::BootMillis;
use std::collections::BTreeMap;

/// What `/current_version` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// It has not been read.
    Unread,
    /// It is not there, or older than the store's epoch: no instruction.
    NotSet,
    /// It is not a version.
    Invalid {
        /// The rule that it breaks.
        why: String,
    },
    /// An instruction.
    Known(Instruction),
}

/// What operators and the site want of a host.
#[derive(Debug, Clone)]
pub struct Desired<'a> {
    /// The version.
    pub target: Target,
    /// Since when this target is known.
    pub target_since: BootMillis,
    /// The newest request that this host try again.
    pub retry: Option<InstructionOrder>,
    /// The site's configuration.
    pub policy: &'a Policy,
}

/// Who holds the host's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// Not settled yet.
    NotYet,
    /// This agent.
    Held,
    /// Another agent, which lives.
    Contested {
        /// Its claim, in words.
        holder: String,
        /// Ours, in words.
        ours: String,
    },
}

/// What is true on a host and around it.
#[derive(Debug, Clone)]
pub struct Observed<'a> {
    /// Its own past.
    pub state: &'a HostState,
    /// The store.
    pub store_trust: StoreTrust,
    /// The store can be written now: connected, no back-off running.
    pub store_ready: bool,
    /// The name.
    pub claim: Claim,
    /// An operator took the host out.
    pub decommissioned: bool,
    /// What the version file says.
    pub version_file: Option<Version>,
    /// Why local state cannot be recorded, if it cannot; and when to try again.
    pub cannot_record: Option<(String, BootMillis)>,
    /// Why the settings may be somebody else's, who would decide what runs here.
    pub settings_untrusted: Option<String>,
    /// What the store says of this host; `None` if that is not known.
    pub published: Option<Published>,
    /// About the machine.
    pub facts: &'a MachineInfo,
    /// The needs of the host that are not met.
    pub waits: &'a [Wait],
    /// What the host sees of the services that it needs; `None` if it needs none, or that is not known.
    pub services_seen: Option<u64>,
    /// What the catalog makes addressable, if that is known.
    pub addressable: Option<Addressable>,
    /// What is wrong with its own services.
    pub problems: &'a ServiceProblems,
}

/// A number that stands for what the catalog makes addressable: every address and port of every service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addressable {
    /// The number.
    pub digest: u64,
    /// Since when it is known.
    pub since: BootMillis,
}

/// A plan and the verdict that goes with it.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// What happens next.
    pub plan: Plan,
    /// The host's verdict about itself.
    pub verdict: HostVerdict,
}

/// What the store says of a host.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Published {
    /// The version that it is listed under.
    pub listing: Option<Version>,
    /// Its results.
    pub statuses: BTreeMap<(StatusType, StatusState), StatusRecord>,
    /// Its report.
    pub report: Option<Report>,
}

/// What is wrong with the services of a host.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ServiceProblems {
    /// The checks that do not pass.
    pub checks: Vec<FailingCheck>,
    /// The services that are not published.
    pub unpublished: Vec<UnpublishedService>,
}

impl ServiceProblems {
    pub(super) fn reported_checks(&self) -> impl Iterator<Item = &FailingCheck> {
        self.checks.iter().take(CHECKS_IN_REPORT)
    }

    pub(super) fn reported_unpublished(&self) -> impl Iterator<Item = &UnpublishedService> {
        self.unpublished.iter().take(UNPUBLISHED_IN_REPORT)
    }
}
