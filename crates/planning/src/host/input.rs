//! The inputs and the result of a decision.

use crate::host::brakes::Brakes;
use crate::host::record::{Fact, Start};
use crate::host::site_config::SiteConfig;
use crate::rollout::Permit;
use schema::instruction::Instruction;
use schema::keys::StatusState;
use schema::names::{StatusType, Token, Version};
use schema::order::InstructionOrder;
use schema::plan::Plan;
use schema::records::{
    CHECKS_IN_REPORT, FailingCheck, FileProblem, HeldClaim, HostClaims, MachineInfo, PROBLEMS_IN_REPORT,
    Report, StatusRecord, UNPUBLISHED_IN_REPORT, UnpublishedService, Wait,
};
use schema::store_trust::StoreTrust;
use schema::time::BootMillis;
use schema::verdict::HostVerdict;
use schema::writes::claims::FoundClaims;
use std::collections::BTreeMap;

/// The desired version, as read from `/current_version`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// `/current_version` has not been read.
    Unread,
    /// There is no instruction: `/current_version` does not exist, or is older than the epoch of
    /// the store.
    NotSet,
    /// The value of `/current_version` is not a version.
    Invalid {
        /// The naming rule that the value breaks.
        why: String,
    },
    Known(Instruction),
}

/// What operators and the site want of a host.
#[derive(Debug, Clone)]
pub struct Desired<'a> {
    pub target: Target,
    /// Since when this target is known.
    pub target_since: BootMillis,
    /// The newest request of an operator that this host tries again.
    pub retry: Option<InstructionOrder>,
    /// The configuration of the site.
    pub policy: &'a SiteConfig,
}

/// Who holds the claim on the host name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// The claim is not decided yet.
    NotYet,
    /// This agent holds the claim.
    Held,
    /// Another agent, which is alive, holds the claim.
    Contested {
        /// The claim of the other agent, as text.
        holder: String,
        /// The claim of this agent, as text.
        ours: String,
    },
}

/// What is true on a host and around it.
#[derive(Debug, Clone)]
pub struct Observed<'a> {
    /// Whether the host acts on what the store says.
    pub store_trust: StoreTrust,
    /// True if the store can be written now: no back-off is running, and the store is connected.
    /// For a store that went back the connection is not required.
    pub store_ready: bool,
    /// Who holds the claim on the host name.
    pub claim: Claim,
    /// True if an operator decommissioned the host.
    pub decommissioned: bool,
    /// What the version file says.
    pub version_file: VersionFile,
    /// Why local state cannot be recorded, if it cannot, and when to try again.
    pub cannot_record: Option<(String, BootMillis)>,
    /// Why the settings are not trusted, if they are not: somebody else may be able to write them
    /// and would then decide what runs on this host.
    pub settings_untrusted: Option<String>,
    /// Revision at which the store was marked or accepted last; `None` if it is not marked: then it contains
    /// neither freezes nor a rollout policy.
    pub marked_at: Option<i64>,
    /// What the host knows of freezes and limits.
    pub brakes: Brakes<'a>,
    /// Why the roster entry of the host cannot be read, if that matters: freezes and limits follow from
    /// it.
    pub bad_roster: Option<String>,
    /// What the store contains about this host; `None` if that is not known.
    pub published: Option<Published>,
    /// Facts about the machine.
    pub facts: &'a MachineInfo,
    /// The needs of the host that are not met.
    pub waits: &'a [Wait],
    /// Digest of the instances of the services that the host needs, as the host sees them; `None`
    /// if the host needs no services, or if the instances are not known.
    pub services_seen: Option<u64>,
    /// Digest of what the catalog makes addressable, if that is known.
    pub addressable: Option<Addressable>,
    /// The problems of the services and files of this host.
    pub problems: &'a HostProblems,
    /// Random token by which the host recognises its next write.
    pub write_id: Token,
    /// Token of the state directory, by which claims of limits are told apart from those of an earlier
    /// life of the host.
    pub instance: &'a Token,
    /// Lease of the claim of the host name; 0 without one.
    pub live_lease: i64,
    /// The commands that hold claims of this host, or did.
    pub commands: Commands,
}

/// The commands that run under claims of the host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Commands {
    /// Commands that run, with the claims that they took.
    pub running: BTreeMap<Token, Vec<HeldClaim>>,
    /// Ended commands that still hold claims, with the time at which that was first seen, outside of a
    /// validation.
    pub ended: BTreeMap<Token, BootMillis>,
}

/// What the version file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VersionFile {
    /// The version in the file; `None` if there is no file, or no version in it.
    Content(Option<Version>),
    /// The file cannot be read. That does not mean that the host has another version.
    Unreadable,
}

/// What the catalog makes addressable: a digest of the addresses and ports of all services of all
/// other hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addressable {
    pub digest: u64,
    /// Since when the digest has this value.
    pub since: BootMillis,
}

/// A plan and the verdict that belongs to it.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// What the host does next.
    pub plan: Plan,
    /// The verdict of the host about itself.
    pub verdict: HostVerdict,
    /// The report that belongs to the decision, whether it is due or not.
    pub report: Report,
    /// The claims and the ticket that the host has from now on; `None` if the store holds them already.
    pub claims: Option<HostClaims>,
    /// What the host takes, if the plan begins with the start transaction.
    pub permit: Option<Permit>,
    /// True if the store is told whether the host failed and how far it got. It is not told while the journal
    /// cannot say so first.
    pub tells_outcome: bool,
    /// True if the journal must be saved before a report: others rely on what it says.
    pub needs_journal: bool,
}

impl Decision {
    /// Returns the fact that the start transaction with which the plan begins was committed.
    pub fn started(&self) -> Fact {
        Fact::Started(Start {
            claims: self.claims.clone(),
            times: self.permit.as_ref().and_then(|permit| permit.times),
            counts_failure: self.permit.as_ref().is_some_and(|permit| permit.counts_failure),
        })
    }
}

/// What the store contains about a host.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Published {
    /// The version that the host is listed under.
    pub listing: Option<Version>,
    /// The results of the host, by type and state.
    pub statuses: BTreeMap<(StatusType, StatusState), StatusRecord>,
    /// The report of the host.
    pub report: Option<Report>,
    /// The revision of the report; 0 if there is none.
    pub report_revision: i64,
    /// The claims of limits of the host, and its ticket.
    pub claims: FoundClaims,
}

/// The problems of the services and files of a host.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HostProblems {
    /// The checks that do not pass.
    pub checks: Vec<FailingCheck>,
    /// The services that are not published.
    pub unpublished: Vec<UnpublishedService>,
    /// The files that cannot be used.
    pub files: Vec<FileProblem>,
}

impl HostProblems {
    pub(super) fn reported_checks(&self) -> impl Iterator<Item = &FailingCheck> {
        self.checks.iter().take(CHECKS_IN_REPORT)
    }

    pub(super) fn reported_unpublished(&self) -> impl Iterator<Item = &UnpublishedService> {
        self.unpublished.iter().take(UNPUBLISHED_IN_REPORT)
    }

    pub(super) fn reported_files(&self) -> impl Iterator<Item = &FileProblem> {
        self.files.iter().take(PROBLEMS_IN_REPORT)
    }
}
