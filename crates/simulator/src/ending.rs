//! What an agent knows of the end of its rollout.

use planning::host::EndSearch;
use planning::rollout::{Holders, SeenMark};
use schema::names::HostName;
use schema::snapshot::KeySnapshot;
use schema::store_marks::Marks;

/// What the task of the end waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EndWait {
    Nothing,
    Asks,
    Begins,
    Reads,
    Ends,
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
    pub(crate) search: Option<EndSearch>,
    /// True while the host holds the mark, or may do so.
    pub(crate) holds: bool,
    /// The mark of another host.
    pub(crate) seen: Option<SeenMark>,
}

impl Default for Ending {
    fn default() -> Self {
        Self {
            wait: EndWait::Nothing,
            request: 0,
            marks: Marks::default(),
            timer: 0,
            search: None,
            holds: false,
            seen: None,
        }
    }
}
