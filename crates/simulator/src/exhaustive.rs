//! The search over all orders of events of a small fleet.

use crate::agent_policy::usual_policy;
use crate::digest::digest;
use crate::model::{Model, Move, Setting};
use crate::mutation::Mutation;
use crate::script::Script;
use crate::violation::Violation;
use planning::host::SiteConfig;
use schema::limit::LimitBy;
use schema::names::Version;
use schema::records::{LimitRule, LimitSize, RolloutPolicy};
use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;
use std::time::Duration;

/// The fleet of a search, and what may happen to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    pub hosts: usize,
    /// How many of them may be unavailable.
    pub limit: u32,
    /// How many may fail.
    pub budget: u32,
    /// How many agents are killed, at any boundary.
    pub kills: u32,
    /// True if an operator may freeze the fleet, at any time.
    pub freezes: bool,
    /// True if an operator may trigger another version, at any time.
    pub triggers: bool,
}

impl std::fmt::Display for Bounds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { hosts, limit, budget, kills, freezes, triggers } = *self;
        write!(f, "{hosts} hosts, limit {limit}, budget {budget}")?;
        if kills > 0 {
            write!(f, ", {kills} killed")?;
        }
        if freezes {
            f.write_str(", a freeze")?;
        }
        if triggers {
            f.write_str(", another version")?;
        }
        Ok(())
    }
}

/// What a search has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Searched {
    pub states: u64,
    /// Events that lead from one to another.
    pub transitions: u64,
    /// States in which nothing more happens.
    pub ends: u64,
}

impl std::ops::AddAssign for Searched {
    fn add_assign(&mut self, other: Self) {
        self.states += other.states;
        self.transitions += other.transitions;
        self.ends += other.ends;
    }
}

fn version(text: &str) -> Version {
    Version::new(text).unwrap_or_else(|_| unreachable!("{text} is a version"))
}

impl Bounds {
    /// Returns what is searched with every test run.
    pub fn everyday() -> Vec<Self> {
        let plain = Self { hosts: 3, limit: 1, budget: 0, kills: 0, freezes: false, triggers: false };
        let fleets = [(1, 0), (1, 1), (2, 0), (2, 1)].map(|(limit, budget)| Self { limit, budget, ..plain });
        let two = [0, 1].map(|budget| Self { hosts: 2, budget, ..plain });
        let disturbed = two.map(|two| Self { kills: 1, freezes: true, ..two });
        let triggered = two.map(|two| Self { triggers: true, ..two });
        [&fleets[..], &disturbed, &triggered].concat()
    }

    /// Returns what is searched in the long run.
    pub fn long() -> Vec<Self> {
        let mut all = Vec::new();
        for fleet in &Self::everyday()[..4] {
            all.push(Self { freezes: true, ..*fleet });
            all.push(Self { kills: 1, ..*fleet });
            all.push(Self { triggers: true, ..*fleet });
        }
        let two = Self { hosts: 2, limit: 1, budget: 0, kills: 1, freezes: true, triggers: true };
        all.extend([0, 1].map(|budget| Self { budget, ..two }));
        all
    }

    fn script(self) -> Script {
        let (max, values) = (LimitSize::Hosts(self.limit), BTreeMap::new());
        let limit = LimitRule { by: LimitBy::Fleet, max, values, keep_failed: Some(false) };
        let failure_budget = Some(LimitSize::Hosts(self.budget));
        let policy = RolloutPolicy { limits: vec![limit], failure_budget, ..RolloutPolicy::default() };
        // A host that failed once does not try again; time stands still.
        let agent =
            SiteConfig { suspect_after: 1, validate_every: Duration::from_secs(36_000), ..usual_policy() };
        Script { policy: Some(policy), agent, ..Script::of_hosts(self.hosts) }
    }
}

/// How a state was reached.
struct Step {
    next: Move,
    before: Path,
}

type Path = Option<Rc<Step>>;

/// A state from which the search goes on.
struct Open {
    model: Model,
    digest: u64,
    path: Path,
}

struct Search {
    setting: Setting,
    known: HashSet<u64>,
    open: Vec<Open>,
    searched: Searched,
}

/// Searches all orders of events.
///
/// # Errors
/// Returns the first law that was broken, and the events that lead there.
pub fn search(
    bounds: Bounds,
    mutation: Option<&'static Mutation>,
) -> Result<Searched, (Violation, Vec<String>)> {
    let none = |violation| (violation, Vec::new());
    let (first, next) = (version("v2"), version("v3"));
    let (mut model, setting) = Model::of_script(&bounds.script(), &first, next, mutation).map_err(none)?;
    model.kills_left = bounds.kills;
    (model.may_freeze, model.may_trigger) = (bounds.freezes, bounds.triggers);
    let digest = digest(&model);
    let searched = Searched { states: 1, ..Searched::default() };
    let open = vec![Open { model, digest, path: None }];
    let mut search = Search { setting, known: HashSet::from([digest]), open, searched };
    while let Some(open) = search.open.pop() {
        search.expand(&open)?;
    }
    Ok(search.searched)
}

impl Search {
    fn expand(&mut self, open: &Open) -> Result<(), (Violation, Vec<String>)> {
        let before = self.searched.transitions;
        for next in open.model.moves() {
            let Move::Go { host, .. } = next else {
                self.follow(open, next)?;
                continue;
            };
            for fails in [false, true] {
                let (boundaries, applies) = self.follow(open, Move::Go { host, fails, killed_at: None })?;
                let kills = if open.model.kills_left > 0 { boundaries } else { 0 };
                for at in 1..=kills {
                    self.follow(open, Move::Go { host, fails, killed_at: Some(at) })?;
                }
                // Nothing else fails.
                if !applies {
                    break;
                }
            }
        }
        if self.searched.transitions == before {
            self.searched.ends += 1;
            open.model.check_end().map_err(|violation| (violation, lines(&open.path)))?;
        }
        Ok(())
    }

    /// Follows a move. Returns how many boundaries it passed, and whether it met an apply step.
    fn follow(&mut self, open: &Open, next: Move) -> Result<(u32, bool), (Violation, Vec<String>)> {
        let mut model = open.model.clone();
        if matches!(next, Move::Go { killed_at: Some(_), .. }) {
            model.kills_left -= 1;
        }
        let path = Some(Rc::new(Step { next, before: open.path.clone() }));
        let done = model.step(&self.setting, next).map_err(|violation| (violation, lines(&path)))?;
        let digest = digest(&model);
        if digest == open.digest {
            return Ok(done);
        }
        self.searched.transitions += 1;
        if self.known.insert(digest) {
            self.searched.states += 1;
            self.open.push(Open { model, digest, path });
        }
        Ok(done)
    }
}

fn lines(path: &Path) -> Vec<String> {
    let steps = std::iter::successors(path.as_ref(), |step| step.before.as_ref());
    let mut lines: Vec<String> = steps.map(|step| format!("{:?}", step.next)).collect();
    lines.reverse();
    lines
}
