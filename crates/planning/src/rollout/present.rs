//! The rollout of the desired version, as a whole.

use super::failures::failed_hosts;
use super::outlook::{Outlook, RolloutState};
use super::rules::governs;
use super::summary::{RolloutSummary, StageSummary, summary};
use super::window::next_window;
use crate::calendar::{as_rfc3339, rfc3339};
use crate::rollout::FailedHostView;
use schema::instruction::Instruction;
use schema::keys::{self, Key, Prefix};
use schema::limit::Place;
use schema::names::{HostName, Version};
use schema::order::InstructionOrder;
use schema::records::{Closing, FailedHost, ResolvedLimit, RolloutRecord};
use schema::snapshot::KeySnapshot;
use schema::time::EpochSeconds;
use schema::why_not::WhyNot;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

/// The rollout of the desired version, and its record.
#[derive(Debug, Clone, PartialEq)]
pub struct PresentRollout {
    /// The instruction that began it.
    pub instruction: Instruction,
    /// What holds for it.
    pub record: RolloutRecord,
}

/// Why nothing can be said about a rollout of the desired version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoRollout {
    /// The fleet has no desired version.
    #[error("the fleet has no desired version")]
    NoVersion,
    /// No rollout policy holds for it.
    #[error("no rollout policy governs {0}; `orchestrate status` shows the hosts")]
    NotGoverned(Version),
    /// A host is going to write the record.
    #[error("the record of the rollout of {0} is not written yet")]
    NotWritten(Version),
    /// The record cannot be read.
    #[error("{0}")]
    Unreadable(String),
}

impl PresentRollout {
    /// Finds the rollout in a snapshot that holds everything that [`forecast_reads`](super::forecast_reads) names,
    /// and the desired version.
    ///
    /// # Errors
    /// Returns why there is none, or why it is not known.
    pub fn find(found: &KeySnapshot) -> Result<Self, NoRollout> {
        let instruction = Instruction::find(found).ok_or(NoRollout::NoVersion)?;
        let order = instruction.order;
        let Some(record) = found.get(&Key::RolloutRecord(order)) else {
            return Err(if governs(order, found) {
                NoRollout::NotWritten(instruction.version)
            } else {
                NoRollout::NotGoverned(instruction.version)
            });
        };
        match keys::RolloutRecord::read(&record.value) {
            Ok(record) => Ok(Self { instruction, record }),
            Err(error) => Err(NoRollout::Unreadable(format!("{}: {error}", Key::RolloutRecord(order)))),
        }
    }

    /// Returns how the rollout goes on.
    pub fn outlook(&self, found: &KeySnapshot, now: EpochSeconds) -> Outlook {
        let order = self.instruction.order;
        Outlook::new(order, &self.record, found, &summary(order, &self.record, found), now)
    }
}

/// How far the rollout of the desired version is.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct RolloutStatus {
    /// The version.
    pub version: Version,
    /// What identifies the rollout.
    pub rollout_id: String,
    /// The version that was desired before, if somebody said so.
    pub from_version: Option<Version>,
    /// Who triggered it.
    pub by: Option<String>,
    /// The reason that was given.
    pub reason: Option<String>,
    /// When (RFC 3339).
    #[serde(serialize_with = "as_time")]
    #[schemars(with = "Option<String>")]
    pub at: EpochSeconds,
    /// The version to which the fleet would go back.
    pub good_version: Option<Version>,
    /// True if it leads back to an earlier version.
    pub rollback: bool,
    /// Whether it goes on.
    pub state: RolloutWord,
    /// Why it does not go on, if it does not.
    pub why: Option<String>,
    /// Its stages.
    pub stages: Vec<StageSummary>,
    /// How many hosts may be unavailable at the same time.
    #[schemars(with = "Vec<serde_json::Map<String, serde_json::Value>>")]
    pub limits: Vec<ResolvedLimit>,
    /// Number of hosts that may fail before it is halted.
    pub failure_budget: Option<u32>,
    /// Number of failed hosts that count.
    pub failure_count: usize,
    /// All hosts that failed.
    #[serde(serialize_with = "as_failed_hosts")]
    #[schemars(with = "Vec<FailedHostView<'_>>")]
    pub failed: Vec<(HostName, Option<FailedHost>)>,
    /// The hosts for which it waits.
    pub waits_for: Vec<HostName>,
    /// The time until its end in seconds, if it is known.
    pub to_go_seconds: Option<u64>,
    /// How long a host takes in seconds, if one is proven.
    pub host_takes_seconds: Option<u64>,
    /// The revision of the store at which it was read.
    pub revision: i64,
    /// How it goes on.
    #[serde(skip)]
    pub outlook: Outlook,
}

/// Whether a rollout goes on, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RolloutWord {
    /// The rollout has ended.
    Ended,
    /// The rollout was refused.
    Refused,
    /// The rollout is halted.
    Halted,
    /// A pause or a freeze of the fleet holds.
    Frozen,
    /// The rollout goes on.
    GoesOn,
}

impl RolloutWord {
    /// All words.
    pub const ALL: [Self; 5] = [Self::Ended, Self::Refused, Self::Halted, Self::Frozen, Self::GoesOn];

    /// Returns the word as it is in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ended => "ended",
            Self::Refused => "refused",
            Self::Halted => "halted",
            Self::Frozen => "frozen",
            Self::GoesOn => "goes_on",
        }
    }
}

impl RolloutStatus {
    /// Returns its limits and its failure budget in words; `None` if it has neither.
    pub fn numbers(&self) -> Option<String> {
        numbers(&self.limits, self.failure_budget, self.failure_count)
    }

    /// Returns how far a rollout is. `found` holds everything that [`forecast_reads`](super::forecast_reads) names,
    /// the desired version and its trigger.
    pub fn new(
        PresentRollout { instruction, record }: &PresentRollout,
        found: &KeySnapshot,
        now: EpochSeconds,
    ) -> Self {
        let order = instruction.order;
        let RolloutSummary { stages, waits_for, why: held } = summary(order, record, found);
        let (state, why) = match RolloutState::of(order, record, found) {
            RolloutState::Ended => (RolloutWord::Ended, None),
            RolloutState::Refused(why) => (RolloutWord::Refused, Some(why)),
            RolloutState::Halted(why) => (RolloutWord::Halted, Some(why)),
            RolloutState::Frozen(why) => (RolloutWord::Frozen, Some(why)),
            RolloutState::GoesOn => {
                let stands = || stands_still(order, &stages, &waits_for, found, now);
                (RolloutWord::GoesOn, held.clone().or_else(|| closed(record, now)).or_else(stands))
            }
        };
        let summary = RolloutSummary { stages, waits_for, why: held };
        let outlook = Outlook::new(order, record, found, &summary, now);
        // Somebody may have put the version without a word about it.
        let trigger = found.get(&Key::Trigger).filter(|entry| entry.mod_revision == order.revision);
        let trigger = trigger.and_then(|entry| keys::Trigger::read(&entry.value).ok());
        Self {
            version: instruction.version.clone(),
            rollout_id: order.to_string(),
            from_version: trigger.and_then(|trigger| trigger.from),
            by: record.by.clone(),
            reason: record.reason.clone(),
            at: record.at,
            good_version: record.good.clone(),
            rollback: record.rollback,
            state,
            why,
            stages: summary.stages,
            limits: record.limits.clone(),
            failure_budget: record.budget,
            failure_count: failed_hosts(order, record.counted_from, found).count(),
            failed: failed_hosts(order, 0, found).collect(),
            waits_for: summary.waits_for,
            to_go_seconds: outlook.to_go_seconds(),
            host_takes_seconds: outlook.host_takes_seconds(),
            revision: found.revision,
            outlook,
        }
    }
}

/// Returns how many hosts may be unavailable at the same time, and how much of the failure budget is used; `None` if the
/// rollout has neither limits nor a budget. `counted` is the number of failed hosts that count.
pub(super) fn numbers(limits: &[ResolvedLimit], budget: Option<u32>, counted: usize) -> Option<String> {
    let limits: Vec<String> = limits.iter().map(ToString::to_string).collect();
    let limits = (!limits.is_empty())
        .then(|| format!("at most {} are unavailable at the same time", limits.join(", ")));
    let budget = budget.map(|budget| format!("failure budget: {counted} of {budget} used"));
    let parts: Vec<String> = limits.into_iter().chain(budget).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Says that no window is open, and when the next one opens.
fn closed(record: &RolloutRecord, now: EpochSeconds) -> Option<String> {
    let next = next_window(&record.windows, Place(0), now).transpose()?;
    Some(next.map_or_else(|error| error.to_string(), |next| WhyNot::from(next).detail()))
}

/// Time without a change after which a rollout that waits for no host stands still. Usually it goes on within seconds.
const STANDS_STILL_AFTER: i64 = 15;

/// Says which host has to open the next stage or to end the rollout, if nothing has happened for some time though the
/// rollout waits for no host.
fn stands_still(
    order: InstructionOrder,
    stages: &[StageSummary],
    waits_for: &[HostName],
    found: &KeySnapshot,
    now: EpochSeconds,
) -> Option<String> {
    let mark = found.get(&Key::Closing(order)).map(|mark| Closing::read(&mark.value));
    let progress = found.in_range(&Prefix::ProgressOf(order));
    let progress = progress.filter_map(|(_, entry)| keys::Progress::read(&entry.value).ok());
    let soaks = stages.iter().filter_map(|stage| stage.soak_ends_at);
    let changed = progress.map(|known| known.at).chain(soaks).max()?;
    if !waits_for.is_empty() || now.0.saturating_sub(changed.0) < STANDS_STILL_AFTER {
        return None;
    }
    Some(match mark {
        Some(Closing { by, at, .. }) => {
            let since = match rfc3339(at) {
                Some(text) if at.0 != 0 => format!(", since {text}"),
                _ => String::new(),
            };
            format!("it waits for no host; {by} has to open the next stage or to end the rollout{since}")
        }
        None => "it waits for no host, and no host looks after it; one does within a minute".into(),
    })
}

fn as_time<S: Serializer>(at: &EpochSeconds, serializer: S) -> Result<S::Ok, S::Error> {
    as_rfc3339(&Some(*at), serializer)
}

fn as_failed_hosts<S: Serializer>(
    failed: &[(HostName, Option<FailedHost>)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(failed.iter().map(FailedHostView::from))
}
