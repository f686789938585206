//! Which host looks whether a rollout has ended: the one that holds the mark `closing`.

use super::rules::{governs, record_of};
use schema::keys::Key;
use schema::order::InstructionOrder;
use schema::snapshot::KeySnapshot;
use schema::time::BootMillis;
use std::time::Duration;

/// How long the mark stays with one host. Then the next host that asks takes it over, because nobody can see
/// whether the host that holds it really looks: a restored store brings back a mark whose host has found the end
/// and looks no more. It is long beside a look of 30 seconds, and short beside the patience of an operator.
const MARK_KEPT: Duration = Duration::from_secs(3_600);

/// What a host does that is through with its rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClosingTask {
    /// Nothing more: the rollout has ended, or no policy governs it.
    Stop,
    /// Nothing now: another host looks, or writes the record.
    Wait,
    /// It writes the record, which nobody else does if every host has the version already.
    WriteRecord,
    /// It takes the mark of the host that looks, if the mark still has this revision: 0 if there is none.
    Begin(i64),
    /// It holds the mark, and looks.
    Look,
}

/// The mark of another host, as this host saw it last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeenMark {
    revision: i64,
    since: BootMillis,
}

/// Returns what a host reads that is through with its rollout.
pub fn closing_reads(order: InstructionOrder) -> [Key; 5] {
    let of_rollout = [Key::RolloutRecord, Key::Ended, Key::Closing, Key::Resolving].map(|key| key(order));
    let [record, ended, closing, resolving] = of_rollout;
    [Key::RolloutPolicy, record, ended, closing, resolving]
}

/// Returns what a host does that is through with its rollout. `live_lease` is the lease of its agent, `seen` the
/// mark of another host that it saw before; this mark is noted there.
pub fn closing_task(
    order: InstructionOrder,
    live_lease: i64,
    found: &KeySnapshot,
    (seen, now): (&mut Option<SeenMark>, BootMillis),
) -> ClosingTask {
    if found.get(&Key::Ended(order)).is_some() {
        return ClosingTask::Stop;
    }
    match (record_of(order, found), found.get(&Key::Closing(order))) {
        (None, _) if governs(order, found) && found.get(&Key::Resolving(order)).is_some() => {
            ClosingTask::Wait
        }
        (None, _) if governs(order, found) => ClosingTask::WriteRecord,
        (None, _) => ClosingTask::Stop,
        (Some(_), None) => ClosingTask::Begin(0),
        (Some(_), Some(mark)) if mark.lease == live_lease => ClosingTask::Look,
        (Some(_), Some(mark)) => {
            let revision = mark.mod_revision;
            let since = seen.filter(|seen| seen.revision == revision).map_or(now, |seen| seen.since);
            *seen = Some(SeenMark { revision, since });
            let is_kept = now.since(since) < MARK_KEPT;
            if is_kept { ClosingTask::Wait } else { ClosingTask::Begin(revision) }
        }
    }
}
