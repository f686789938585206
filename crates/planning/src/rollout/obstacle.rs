//! What keeps a host from starting, though nothing on the host itself does.

use super::failures;
use super::soak::{StageHold, StageSoak};
use super::window::NextWindow;
use schema::frozen::FrozenBy;
use schema::limit::{HEADS, Limit};
use schema::names::HostName;
use schema::time::EpochSeconds;
use std::fmt;

/// Why a host does not start, though nothing on the host itself keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// A freeze stands.
    Frozen(FrozenBy),
    /// The rollout has not been read since it refused the host.
    NotRead,
    /// The record of the rollout is not written yet.
    NoRecord,
    /// The record lets no host start.
    Refused(String),
    /// What the store says about the host itself cannot be used: its roster entry, a label or its claims.
    Unusable(String),
    /// The rollout is halted.
    Halted(String),
    /// More hosts failed than the rollout tolerates. Whoever sees it halts the rollout.
    OverBudget {
        /// How many hosts failed.
        failed: usize,
        /// How many are tolerated.
        budget: u32,
    },
    /// The stage of the host is not open.
    StageClosed {
        /// The stage.
        stage: String,
        /// The last one that is open.
        open: String,
        /// The soak of that stage, if its hosts are through.
        soak: Option<StageSoak>,
        /// The hosts of that stage, if the next one waits only because they keep their claims. An agent that waits does
        /// not read that.
        hold: Option<Box<StageHold>>,
    },
    /// No update window is open, by the clock of the host.
    OutsideWindow(NextWindow),
    /// As many hosts are unavailable as the limit allows.
    Full {
        /// The limit.
        limit: Limit,
        /// How many hosts may be unavailable.
        max: u32,
        /// How many others hold a claim of it.
        used: usize,
        /// Those of them whose claims can be read.
        holders: Vec<HostName>,
    },
    /// Other hosts wait for the same limit and come first.
    NotItsTurn {
        /// The limit.
        limit: Limit,
        /// How many of them there are; more than a few are not counted.
        ahead: usize,
    },
}

impl Obstacle {
    /// Returns when it is expected to be out of the way, if it goes by itself at a known time.
    pub fn ends(&self) -> Option<EpochSeconds> {
        match self {
            Self::StageClosed { soak: Some(soak), .. } => soak.ends,
            Self::StageClosed { hold, .. } => hold.as_ref().map(|hold| hold.ends),
            Self::OutsideWindow(next) => Some(next.starts),
            _ => None,
        }
    }
}

/// Number of holders that a message names.
const HOLDERS_NAMED: usize = 3;

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frozen(by) => by.fmt(f),
            Self::NotRead => f.write_str("the limits of the rollout are being read"),
            Self::NoRecord => f.write_str("the record of the rollout is not written yet"),
            Self::Refused(why) | Self::Unusable(why) => f.write_str(why),
            Self::Halted(why) => write!(f, "the rollout is halted: {why}"),
            Self::OverBudget { failed, budget } => {
                write!(f, "the rollout is halted: {}", failures::over_budget(*failed, *budget))
            }
            Self::StageClosed { stage, open, soak: Some(_), .. } => {
                write!(f, "stage {stage} is not open: the hosts of stage {open} are observed first")
            }
            Self::StageClosed { stage, hold: Some(hold), .. } => {
                let StageHold { host, others, length, .. } = &**hold;
                write!(f, "stage {stage} is not open: {host} ")?;
                match others {
                    0 => write!(f, "is proven and holds its claims for {length}"),
                    others => write!(f, "and {others} more are proven and hold their claims for {length}"),
                }
            }
            Self::StageClosed { stage, open, .. } => {
                write!(f, "stage {stage} is not open: not all hosts of stage {open} are proven")
            }
            Self::OutsideWindow(next) => {
                write!(f, "no update window is open; the next one opens {}", next.opens)
            }
            Self::Full { limit, max: 0, .. } => write!(f, "the limit of {limit} is 0"),
            Self::Full { limit, max, used, holders } => {
                write!(f, "{used} of at most {max} hosts of {limit} are unavailable: ")?;
                let named: Vec<&str> = holders.iter().take(HOLDERS_NAMED).map(HostName::as_str).collect();
                f.write_str(&named.join(", "))?;
                match used - named.len() {
                    0 => Ok(()),
                    more if named.is_empty() => write!(f, "{more} whose claims cannot be read"),
                    more => write!(f, " and {more} more"),
                }
            }
            Self::NotItsTurn { limit, ahead } => {
                let hosts = match *ahead {
                    0 => {
                        return write!(
                            f,
                            "it takes its place among the hosts that wait for the limit of {limit}"
                        );
                    }
                    1 => "1 host waits".to_owned(),
                    ahead if ahead < HEADS as usize => format!("{ahead} hosts wait"),
                    ahead => format!("at least {ahead} hosts wait"),
                };
                write!(f, "{hosts} for the limit of {limit} before it")
            }
        }
    }
}
