//! A fleet that is given and not drawn: its hosts, its versions, and what happens to it at which time.

use crate::agent_policy::usual_policy;
use planning::host::SiteConfig;
use schema::freeze::FreezeScope;
use schema::names::{HostName, Role, Version};
use schema::records::{RolloutPolicy, RosterEntry};
use schema::steps::StepPhase;
use std::collections::BTreeMap;

/// A fleet, and what happens to it. The fleet first settles on the version `base`, without a policy and without
/// faults; all times count from then on, in milliseconds.
#[derive(Debug, Clone)]
pub struct Script {
    pub hosts: Vec<ScriptHost>,
    /// The rollout policy that stands from the beginning; `None` if none was ever written.
    pub policy: Option<RolloutPolicy>,
    /// What is wrong with versions. All others are good.
    pub flaws: BTreeMap<Version, Flaw>,
    /// What happens, and when.
    pub acts: Vec<(u64, Act)>,
    /// How long each step takes.
    pub step_millis: u64,
    /// The steps and intervals of all hosts.
    pub agent: SiteConfig,
    /// Probability that an agent is killed at a boundary: before or after it writes its journal, the version
    /// file or the store.
    pub crashes: f64,
    /// How the network misbehaves.
    pub network: NetworkFaults,
    /// Time after which the simulation ends.
    pub lasts: u64,
    /// True if it ends earlier: as soon as all acts are over and the last rollout has ended.
    pub ends_with_rollout: bool,
    /// The seed of delays of messages and of the spread of deadlines.
    pub seed: u64,
}

impl Default for Script {
    /// Returns a fleet without hosts, in which nothing happens for two hours.
    fn default() -> Self {
        Self {
            hosts: Vec::new(),
            policy: None,
            flaws: BTreeMap::new(),
            acts: Vec::new(),
            step_millis: 10_000,
            agent: usual_policy(),
            crashes: 0.0,
            network: NetworkFaults::default(),
            lasts: 2 * 60 * 60_000,
            ends_with_rollout: true,
            seed: 1,
        }
    }
}

impl Script {
    /// Returns so many hosts, named h0 and so on.
    pub fn of_hosts(count: usize) -> Self {
        let hosts = (0..count).map(|number| ScriptHost::new(&format!("h{number}"))).collect();
        Self { hosts, ..Self::default() }
    }
}

/// How the network misbehaves, as probabilities of one message.
#[derive(Debug, Clone, Copy, Default)]
pub struct NetworkFaults {
    /// The request never reaches the store, and nobody says so.
    pub loses_request: f64,
    /// The request is executed, and its answer never arrives.
    pub loses_answer: f64,
    /// The request is executed long after its client gave up.
    pub delays_request: f64,
    /// The message takes much longer than others.
    pub is_slow: f64,
}

/// A host of a script.
#[derive(Debug, Clone)]
pub struct ScriptHost {
    pub host: HostName,
    /// Its role, group and labels.
    pub roster: RosterEntry,
    /// True if its agent is of a time in which there were no brakes.
    pub is_older: bool,
}

fn name<T, E: std::fmt::Debug>(text: &str, read: impl FnOnce(&str) -> Result<T, E>) -> T {
    read(text).unwrap_or_else(|error| panic!("{text} is no name: {error:?}"))
}

impl ScriptHost {
    /// Returns a host with this name.
    ///
    /// # Panics
    /// Panics if this is no host name.
    pub fn new(host: &str) -> Self {
        Self { host: name(host, |text| HostName::new(text)), roster: RosterEntry::default(), is_older: false }
    }

    /// Gives the host a role.
    ///
    /// # Panics
    /// Panics if this is no role.
    #[must_use]
    pub fn role(mut self, role: &str) -> Self {
        self.roster.role = Some(name(role, |text| Role::new(text)));
        self
    }

    /// Gives the host a label.
    #[must_use]
    pub fn label(mut self, label: &str, value: &str) -> Self {
        self.roster.labels.insert(label.to_owned(), value.to_owned());
        self
    }
}

/// What is wrong with a version.
#[derive(Debug, Clone)]
pub struct Flaw {
    pub what: Wrong,
    /// The hosts on which it does; on all if there is none.
    pub hosts: Vec<HostName>,
}

/// What goes wrong with a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    /// The steps of this phase fail.
    Fails(StepPhase),
    /// The steps of this phase say "not yet", for ever.
    NotYet(StepPhase),
    /// Validation fails from this time on.
    BreaksAt(u64),
    /// The machine is switched off so long after its proof, for ever.
    Kills(u64),
    /// The machine starts again so long after its proof, and validation fails from then on.
    Reboots(u64),
}

/// What a person or a fault does.
#[derive(Debug, Clone)]
pub enum Act {
    /// `orchestrate trigger_update`, which also writes the record of the rollout.
    Trigger(Version),
    /// Something writes `/current_version`, and nothing else.
    Put(Version),
    /// `orchestrate policy set`.
    SetPolicy(RolloutPolicy),
    /// `orchestrate rollout resume`.
    Resume,
    /// `orchestrate rollout rollback`.
    RollBack,
    /// `orchestrate rollout excuse`.
    Excuse(HostName),
    /// `orchestrate claims release`.
    ReleaseClaims(HostName),
    /// `orchestrate freeze`.
    Freeze(FreezeScope),
    /// `orchestrate unfreeze`: the oldest freeze is removed.
    Unfreeze,
    /// `orchestrate store accept`.
    Accept(Version),
    /// The agent of a host is killed, and starts again after this time.
    KillAgent(HostName, u64),
    /// A machine is off for this time.
    PowerOff(HostName, u64),
    /// A machine cannot reach the store for this time.
    CutLink(HostName, u64),
    /// The task of a host that looks for the end of the rollout stands still for this time, though its agent runs.
    StandStill(HostName, u64),
    /// Another member of the store leads.
    ChangeLeader,
    /// The content of the store is kept in [`History::looks`](crate::History::looks).
    Look,
}
