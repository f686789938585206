//! A simulated machine: its disk, the steps that run on it, and what they really did. Agents come and
//! go on it.

use planning::host::{HostState, store_view};
use schema::names::{HostName, StepName, Token, Version};
use schema::steps::{StepEnd, StepPhase};
use std::collections::BTreeMap;
use std::collections::BTreeSet;

/// What outlives the agent and, except for running steps, a reboot.
#[derive(Debug, Clone, Default)]
pub(crate) struct Disk {
    pub(crate) journal: Option<HostState>,
    pub(crate) version_file: Option<Version>,
    /// Token of the state directory, by which the store tells two agents apart.
    pub(crate) instance: Option<Token>,
    /// The last runs, with their results.
    pub(crate) runs: BTreeMap<Token, Run>,
}

/// One run of a step.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    pub(crate) phase: StepPhase,
    pub(crate) step: StepName,
    pub(crate) version: Option<Version>,
    /// How the run will end if nothing cuts it off.
    pub(crate) ends_with: StepEnd,
    /// How the run ended; `None` while it goes on.
    pub(crate) end: Option<StepEnd>,
}

/// What steps really did on the machine. Laws are checked against this, not against what the agent
/// believes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Truth {
    /// The version whose apply steps ran last.
    pub(crate) applied: Option<Version>,
    /// The apply steps of that version that have succeeded since it was begun.
    pub(crate) done: BTreeSet<StepName>,
    /// How many apply steps have begun.
    pub(crate) applies: u64,
    /// The apply steps that make a version whole.
    pub(crate) apply_steps: BTreeSet<StepName>,
    /// The version for which validation succeeded last, with no apply step and no failed validation
    /// since.
    pub(crate) validated: Option<Version>,
    /// The version that was validated while it was whole, with no apply step since.
    pub(crate) proven: Option<Version>,
    /// How often validation has failed since an apply step ran.
    pub(crate) fails: u64,
}

impl Truth {
    pub(crate) fn new(apply_steps: BTreeSet<StepName>) -> Self {
        Self { apply_steps, ..Self::default() }
    }

    /// True if every apply step of this version has succeeded since it was begun.
    pub(crate) fn is_whole(&self, version: &Version) -> bool {
        self.applied.as_ref() == Some(version) && self.done.is_superset(&self.apply_steps)
    }
}

/// The connection of a machine to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) is_up: bool,
    /// Number of the connection; it increases when the connection breaks.
    pub(crate) connection: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub(crate) host: HostName,
    pub(crate) machine_id: String,
    /// Number of the boot.
    pub(crate) boot: u64,
    /// When this boot began.
    pub(crate) booted_at: u64,
    pub(crate) is_on: bool,
    pub(crate) disk: Disk,
    pub(crate) truth: Truth,
    pub(crate) link: Link,
    /// Process and connection of the agent that watches the store.
    pub(crate) watch: Option<(u64, u64)>,
    /// The keys that the agent of this host watches.
    pub(crate) watched: BTreeSet<String>,
    /// Arrival of the last event of that watch; events stay in order.
    pub(crate) last_delivery: u64,
    /// True if the agent of this machine is of a time in which there were no brakes.
    pub(crate) is_older: bool,
    /// The version that makes this machine fall soon after it was proven, and the boot in which it was.
    pub(crate) falls: Option<(Version, u64)>,
}

impl Machine {
    pub(crate) fn new(host: HostName, machine_id: String, truth: Truth, now: u64) -> Self {
        let watched = store_view::scope(&host).watched.iter().map(ToString::to_string).collect();
        Self {
            host,
            machine_id,
            watched,
            boot: 1,
            // No machine was started when the simulation begins.
            booted_at: now.saturating_sub(60_000),
            is_on: true,
            disk: Disk::default(),
            truth,
            link: Link { is_up: true, connection: 1 },
            watch: None,
            last_delivery: 0,
            is_older: false,
            falls: None,
        }
    }

    /// True if the machine was started again since a version was proven that makes it fall.
    pub(crate) fn fell_by(&self, version: Option<&Version>) -> bool {
        self.falls.as_ref().is_some_and(|(of, boot)| Some(of) == version && *boot != self.boot)
    }

    pub(crate) fn boot_id(&self) -> String {
        format!("{}-{}", self.machine_id, self.boot)
    }

    /// Turns the machine off: its steps are cut off.
    pub(crate) fn turn_off(&mut self) {
        self.is_on = false;
        self.break_connection();
        for run in self.disk.runs.values_mut() {
            run.end.get_or_insert(StepEnd::Interrupted);
        }
    }

    pub(crate) fn boot(&mut self, now: u64) {
        self.is_on = true;
        self.boot += 1;
        self.booted_at = now;
    }

    /// Breaks the connection to the store.
    pub(crate) fn break_connection(&mut self) {
        self.link.connection += 1;
        self.watch = None;
    }

    pub(crate) fn begin_run(&mut self, id: Token, run: Run) {
        if run.phase == StepPhase::Apply {
            self.truth.applies += 1;
            self.truth.validated = None;
            self.truth.proven = None;
            self.truth.fails = 0;
            if self.truth.applied != run.version {
                self.truth.applied.clone_from(&run.version);
                self.truth.done.clear();
            }
        }
        self.disk.runs.retain(|_, run| run.end.is_none());
        self.disk.runs.insert(id, run);
    }

    /// A step ends. Returns false if it was cut off before.
    pub(crate) fn end_run(&mut self, id: &Token) -> bool {
        let Some(run) = self.disk.runs.get_mut(id).filter(|run| run.end.is_none()) else { return false };
        let end = run.ends_with.clone();
        let is_done = end == StepEnd::Exited { code: 0 };
        match run.phase {
            StepPhase::Apply if is_done && self.truth.applied == run.version => {
                self.truth.done.insert(run.step.clone());
            }
            StepPhase::Validate if is_done => {
                self.truth.validated.clone_from(&run.version);
                if run.version.as_ref().is_some_and(|version| self.truth.is_whole(version)) {
                    self.truth.proven.clone_from(&run.version);
                }
            }
            // "Not yet" is no result.
            StepPhase::Validate if end != (StepEnd::Exited { code: 75 }) => {
                self.truth.validated = None;
                self.truth.fails += 1;
            }
            _ => {}
        }
        run.end = Some(end);
        true
    }
}
