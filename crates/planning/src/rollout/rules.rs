//! The rules of a rollout: what its record says, and whether it needs one.

use super::failures::Budget;
use super::window::{NextWindow, WindowError, next_window};
use schema::codec;
use schema::keys::{self, Key};
use schema::limit::Place;
use schema::names::Version;
use schema::order::InstructionOrder;
use schema::records::{
    CHARGE_FOR, LOST_AFTER, OnHalt, PROGRESS_DEADLINE, ResolvedLimit, RolloutRecord, Window,
};
use schema::snapshot::KeySnapshot;
use schema::time::{Now, Span};

/// The times that a rollout gives to a host that starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// Time without a running agent after which the host is lost.
    pub lost_after: Span,
    /// Time within which the attempt ends.
    pub progress_deadline: Span,
    /// Time after its proof in which a host that stops working counts as failed.
    pub charge_for: Span,
    /// Time after its proof for which the host keeps its claims; `None` if it releases them at once.
    pub hold: Option<Span>,
}

/// The rules of a rollout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Rules {
    /// No policy governs the rollout.
    None,
    /// A policy does, and the record is not written yet.
    NoRecord,
    /// The record, or what it would say: then the revision is 0. `good` is the version to which the hosts let
    /// the fleet go back when it is halted.
    Record {
        revision: i64,
        refused: Option<String>,
        times: Times,
        budget: Option<Budget>,
        good: Option<Version>,
        windows: Vec<Window>,
    },
}

impl Times {
    /// The times where no policy says others.
    pub(super) const USUAL: Self = Self {
        lost_after: LOST_AFTER,
        progress_deadline: PROGRESS_DEADLINE,
        charge_for: CHARGE_FOR,
        hold: None,
    };
}

impl Rules {
    /// Returns what a record says.
    pub(super) fn of_record(record: Decoded<RolloutRecord>, revision: i64) -> (Self, Vec<ResolvedLimit>) {
        match record {
            Ok(record) => {
                let budget = Budget::of_record(&record);
                let rolls_back = record.on_halt == OnHalt::RollBack;
                let good = record.good.clone().filter(|good| rolls_back && *good != record.version);
                let RolloutRecord {
                    refused,
                    limits,
                    windows,
                    lost_after,
                    progress_deadline,
                    charge_for,
                    hold,
                    ..
                } = record;
                let times = Times { lost_after, progress_deadline, charge_for, hold };
                (Self::Record { revision, refused, times, budget, good, windows }, limits)
            }
            Err(error) => {
                let why = format!("the record of the rollout cannot be read: {error}");
                let (refused, times) = (Some(why), Times::USUAL);
                (Self::only(revision, refused, times), Vec::new())
            }
        }
    }

    /// Returns the rules of a record without budget and windows.
    pub(super) fn only(revision: i64, refused: Option<String>, times: Times) -> Self {
        Self::Record { revision, refused, times, budget: None, good: None, windows: Vec::new() }
    }

    /// Returns the window that a host waits for; `None` if one is open, or none is needed.
    pub(super) fn next_window(&self, place: Place, now: Now) -> Result<Option<NextWindow>, WindowError> {
        match self {
            Self::Record { windows, .. } => next_window(windows, place, now.wall),
            Self::None | Self::NoRecord => Ok(None),
        }
    }

    /// Returns the rules without those that are about the version: the budget for failures and the windows.
    pub(super) fn without_version(self) -> Self {
        match self {
            Self::Record { revision, refused, times, .. } => Self::only(revision, refused, times),
            other => other,
        }
    }
}

/// What a host does about the record of its rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordTask {
    /// Nothing: there is a record, or none is needed, or another host writes it.
    None,
    /// The host marks that it writes the record.
    Begin,
    /// The host writes the record.
    Write,
}

pub(super) type Decoded<T> = Result<T, codec::ValueError>;

pub(super) fn record_of(
    order: InstructionOrder,
    found: &KeySnapshot,
) -> Option<(Decoded<RolloutRecord>, i64)> {
    let entry = found.get(&Key::RolloutRecord(order))?;
    Some((keys::RolloutRecord::read(&entry.value), entry.mod_revision))
}

/// True if a policy stood when the instruction was written; one that was created later waits for the next
/// instruction. What it says when the record is written counts. As long as it is empty, there is no
/// record.
pub fn governs(order: InstructionOrder, found: &KeySnapshot) -> bool {
    let Some(entry) = found.get(&Key::RolloutPolicy) else { return false };
    let is_empty = keys::RolloutPolicy::read(&entry.value).is_ok_and(|policy| policy.is_empty());
    entry.create_revision <= order.revision && !is_empty
}
