//! Which host opens the stages of a rollout and notices its end: the one that holds the mark `closing`. The mark has a
//! lease of its own, which the host keeps alive only after it has looked. So whatever keeps the host from looking, the
//! mark soon ends, and another host takes over. Agents and simulated agents have the delays from here.

use super::rules::{governs, record_of};
use schema::keys::{self, Key, Prefix};
use schema::names::HostName;
use schema::order::InstructionOrder;
use schema::records::Closing;
use schema::snapshot::KeySnapshot;
use std::time::Duration;

/// How long the mark stays after its host has looked for the last time, in seconds.
pub const MARK_SECONDS: i64 = 20;

/// Interval at which the host with the mark keeps it alive.
pub const MARK_INTERVAL: Duration = Duration::from_secs(5);

/// Delay after a change that the host with the mark has noticed: others that belong to it arrive meanwhile.
pub const NEWS_DELAY: Duration = Duration::from_millis(100);

/// Mean time between two questions of the fleet whether the mark is still there, whatever the number of hosts is.
const ASKED_EVERY: Duration = Duration::from_secs(5);
/// Shortest and longest mean interval at which one host asks.
const ASK_INTERVALS: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(3_600)];
/// The same if the number of hosts is not known.
const ASK_INTERVAL: Duration = Duration::from_secs(60);
/// Longest delay of a host that does not know of a mark: mostly another host has taken it by then.
const FIRST_ASK_SPREAD: Duration = Duration::from_secs(1);

/// Longest delay of a host after its stage may have been opened, for each host of the fleet.
const STAGE_SPREAD: Duration = Duration::from_millis(5);
/// The same for the whole fleet.
const STAGE_SPREAD_MAX: Duration = Duration::from_secs(5);

/// Whether some host looks for the end of a rollout, as far as another host saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriverSeen {
    /// Not known.
    Unknown,
    /// Nobody looks, and a host that waits for its stage needs a host that does.
    Missing,
    /// This host itself did, before it was restarted.
    Own,
    /// Another host looked when the rollout was read last. So many agents ran; 0 if that is not known.
    Other(u32),
}

impl DriverSeen {
    /// Returns who looks by what a host read.
    pub(super) fn read(host: &HostName, order: InstructionOrder, found: &KeySnapshot) -> Self {
        match found.get(&Key::Closing(order)).map(|mark| Closing::read(&mark.value)) {
            None => Self::Missing,
            Some(mark) if mark.by == host.as_str() => Self::Own,
            Some(mark) => Self::Other(mark.hosts),
        }
    }

    /// Returns after which time the host asks for the first time. `random` is from 0 to 1.
    pub fn first_ask_delay(self, random: f64) -> Duration {
        match self {
            Self::Unknown | Self::Missing => FIRST_ASK_SPREAD.mul_f64(random),
            Self::Own => Duration::ZERO,
            Self::Other(hosts) => ask_delay(hosts, random),
        }
    }
}

/// Returns after which time a host asks again whether the mark of another one is still there. The more agents run, the
/// less often each of them asks, so that all of them together ask equally often. `random` is from 0 to 1.
pub fn ask_delay(hosts: u32, random: f64) -> Duration {
    let [shortest, longest] = ASK_INTERVALS;
    let mean =
        if hosts == 0 { ASK_INTERVAL } else { ASKED_EVERY.saturating_mul(hosts).clamp(shortest, longest) };
    mean.mul_f64(0.5 + random)
}

/// Returns after which time a host reads its rollout again when its stage may have been opened: the hosts of a large
/// fleet do not read at the same moment. `random` is from 0 to 1.
pub fn stage_delay(hosts: u32, random: f64) -> Duration {
    let spread = if hosts == 0 { STAGE_SPREAD_MAX } else { STAGE_SPREAD.saturating_mul(hosts) };
    spread.min(STAGE_SPREAD_MAX).mul_f64(random)
}

/// Returns the longest delay of a host after a stage was opened, by the number of agents that the opening names. A host
/// that waits may have read the rollout before there was a mark, which names them too. `None` if this is no opening, or
/// names no number.
pub fn opened_delay(key: &str, value: &[u8]) -> Option<Duration> {
    let is_opening = matches!(Key::parse(key), Ok(Key::StageOpened(..)));
    let opening = keys::StageOpened::read(value).ok().filter(|opening| is_opening && opening.hosts > 0)?;
    Some(stage_delay(opening.hosts, 1.0))
}

/// What a host does that looks after a rollout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClosingTask {
    /// Nothing more: the rollout has ended, or no policy governs it.
    Stop,
    /// Nothing now: another host looks, or writes the record. So many agents run; 0 if that is not known.
    Wait(u32),
    /// The host writes the record, which nobody else does if every host has the version already.
    WriteRecord,
    /// The host takes the mark, if the mark still has this revision: 0 if there is none. So many agents ran when it was
    /// written.
    Begin(i64, u32),
    /// The host holds the mark, and looks.
    Look,
}

/// Returns what a host reads that does not hold the mark.
pub fn closing_reads(order: InstructionOrder) -> [Key; 5] {
    let of_rollout = [Key::RolloutRecord, Key::Ended, Key::Closing, Key::Resolving].map(|key| key(order));
    let [record, ended, closing, resolving] = of_rollout;
    [Key::RolloutPolicy, record, ended, closing, resolving]
}

/// Returns what a host does that looks after a rollout. `lease` is the one of its mark, if it has written one.
pub fn closing_task(
    order: InstructionOrder,
    host: &HostName,
    lease: Option<i64>,
    found: &KeySnapshot,
) -> ClosingTask {
    if found.get(&Key::Ended(order)).is_some() {
        return ClosingTask::Stop;
    }
    match (record_of(order, found), found.get(&Key::Closing(order))) {
        (None, _) if governs(order, found) && is_resolved_by_other(order, host, found) => {
            ClosingTask::Wait(0)
        }
        (None, _) if governs(order, found) => ClosingTask::WriteRecord,
        (None, _) => ClosingTask::Stop,
        (Some(_), None) => ClosingTask::Begin(0, 0),
        (Some(_), Some(mark)) if lease == Some(mark.lease) => ClosingTask::Look,
        (Some(_), Some(mark)) => {
            let Closing { by, hosts, .. } = Closing::read(&mark.value);
            // Before it was restarted, it looked: nobody else does.
            if by == host.as_str() {
                ClosingTask::Begin(mark.mod_revision, hosts)
            } else {
                ClosingTask::Wait(hosts)
            }
        }
    }
}

/// Returns how many agents run.
pub(super) fn live_hosts(found: &KeySnapshot) -> u32 {
    u32::try_from(found.in_range(&Prefix::Lives).count()).unwrap_or(u32::MAX)
}

/// True if another host writes the record. The answer to the own mark may have been lost.
fn is_resolved_by_other(order: InstructionOrder, host: &HostName, found: &KeySnapshot) -> bool {
    found.get(&Key::Resolving(order)).is_some_and(|mark| mark.value != host.as_str().as_bytes())
}

/// Returns how many agents run, if the mark says another number. `found` holds everything that
/// [`end_reads`](super::end_reads) names.
pub(super) fn hosts_to_tell(order: InstructionOrder, found: &KeySnapshot) -> Option<u32> {
    let mark = Closing::read(&found.get(&Key::Closing(order))?.value);
    let live = live_hosts(found);
    // A mark that is written again is read by hosts that wait.
    let differs = mark.hosts.abs_diff(live).saturating_mul(2) > mark.hosts;
    differs.then_some(live)
}
