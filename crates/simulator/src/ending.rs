//! What an agent knows of the end of its rollout.

use planning::host::RolloutDriver;
use planning::rollout::Holders;
use schema::names::HostName;
use schema::snapshot::KeySnapshot;
use schema::store_marks::Marks;

/// What the task of the end waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EndWait {
    Nothing,
    Asks,
    /// The lease of a mark is granted, which takes the place of one with this revision. So many agents ran.
    GrantsMark(i64, u32),
    Begins(HeldMark),
    KeepsMark,
    Reads,
    Ends,
    /// The host marks that it writes the record, reads what that follows from, and writes it.
    BeginsRecord,
    ReadsRecord {
        is_marked: bool,
    },
    WritesRecord,
    ReadsHolders(Holders),
    /// The lease of a soak is granted.
    GrantsSoak(u32, KeySnapshot),
    /// The lease of a lost host's timer is granted.
    GrantsTimer(HostName, KeySnapshot),
    ChangesHolder,
}

/// What an agent does to find out that its rollout has ended.
#[derive(Debug, Clone)]
pub(crate) struct Ending {
    pub(crate) wait: EndWait,
    /// Number of the request whose answer is awaited.
    pub(crate) request: u64,
    /// The marks when it was sent.
    pub(crate) marks: Marks,
    pub(crate) timer: u64,
    /// The rollout that it looks at.
    pub(crate) search: Option<RolloutDriver>,
    /// The mark while this host holds it, or may do so.
    pub(crate) mark: Option<HeldMark>,
    /// The ranges that it watches while it holds the mark.
    pub(crate) follows: Vec<String>,
    /// True while the task stands still, though the agent runs.
    pub(crate) stands_still: bool,
}

/// The mark of the host that looks for the end. Times are milliseconds of the simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeldMark {
    pub(crate) lease: i64,
    pub(crate) history: u64,
    /// When it is kept alive again.
    pub(crate) keep_at: u64,
    /// The revision at which the fleet was read last; 0 before that.
    pub(crate) read_at: i64,
    /// When the fleet may be read again, and when it is.
    pub(crate) read_again: [u64; 2],
}

impl Default for Ending {
    fn default() -> Self {
        Self {
            wait: EndWait::Nothing,
            request: 0,
            marks: Marks::default(),
            timer: 0,
            search: None,
            mark: None,
            follows: Vec::new(),
            stands_still: false,
        }
    }
}
