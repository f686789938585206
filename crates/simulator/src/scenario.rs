//! What happens to a fleet, drawn from a seed. This file is long because all draws stand together: a seed means the same
//! fleet as long as none of them changes.

use crate::agent_policy::drawn_policy;
use crate::script::{NetworkFaults, Script, Wrong};
use planning::host::SiteConfig;
use schema::names::{StepName, Version};
use schema::steps::{StepEnd, StepPhase};
use std::collections::{BTreeMap, BTreeSet};

/// How the steps of a version behave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quality {
    Good,
    /// A step of this phase fails on every host.
    Fails(StepPhase),
    /// A step of this phase fails on this percentage of hosts.
    FailsOnSome(StepPhase, u64),
    /// Validation fails from this time of the simulation on.
    BreaksAt(u64),
    /// Steps of this phase say "not yet" until this time of the simulation.
    NotYetUntil(StepPhase, u64),
    /// Each run of a step fails with this percentage.
    Flaky(u64),
    /// So long after its proof it switches its machine off.
    Kills(u64),
    /// So long after its proof its machine starts again, and validation fails from then on.
    Reboots(u64),
    /// Validation fails in every second of these times.
    Flaps(u64),
}

/// What is wrong with a version of a script, and the machines on which it is; on all if there is none.
#[derive(Debug, Clone)]
pub(crate) struct MachineFlaw {
    pub(crate) what: Wrong,
    pub(crate) machines: BTreeSet<usize>,
}

/// Something that a person or a fault does to the fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Incident {
    /// The desired version becomes the one with this number.
    Trigger(usize),
    /// The desired version is deleted.
    Unset,
    Retry(usize),
    /// The agent of a machine is killed, and starts again after this time.
    KillAgent(usize, u64),
    /// A machine is off for this time.
    PowerOff(usize, u64),
    /// A machine cannot reach the store for this time.
    CutLink(usize, u64),
    /// Nobody can reach the store for this time.
    CutAll(u64),
    ChangeLeader,
    Backup,
    /// The store goes back to the last backup.
    Restore,
    /// An operator accepts the store as it is, with the version of this number.
    Accept(usize),
    /// A machine loses its disk and starts again.
    Reinstall(usize),
    /// A copy of a machine starts under the same name.
    Clone(usize),
    /// Hosts are frozen: the fleet (0), those of a role (1) or group (2), one host (3), or a pause (4);
    /// for this time, if it is given.
    Freeze(u32, usize, Option<u64>),
    /// The oldest freeze is removed.
    Unfreeze,
    /// An operator writes a rollout policy, drawn from this seed.
    SetPolicy(u64),
    /// An operator writes a policy with a limit for the fleet, and after how many seconds hosts are lost.
    LimitFleet(u32, u64),
    /// An operator writes a policy with a limit for the fleet, how many hosts may fail, and whether the fleet goes
    /// back then.
    LimitFailures(u32, u32, bool),
    /// An operator writes a policy with a limit for the fleet and how many hosts may fail, as percentages.
    LimitShare(u32, u32),
    /// An operator writes a policy with a limit for the fleet, how many hosts may fail, and stages, drawn from this
    /// seed.
    SetStages(u32, u32, u64),
    /// An operator excuses a host.
    Excuse(usize),
    /// An operator lets a halted rollout go on.
    Resume,
    /// An operator lets the fleet go back to the last version that worked.
    RollBack,
    /// An operator lets the fleet go back to the version of this number, whether it worked or not.
    RollBackTo(usize),
    /// An operator releases the claims of a host.
    ReleaseClaims(usize),
    /// A machine whose host holds claims is off for this time.
    PowerOffHolder(u64),
    /// The machine cannot reach the store for this time.
    CutHolder(u64),
    /// A host gets another role and group.
    ChangeRoster(usize),
    /// An operator triggers the version of this number with numbers of its own, drawn from this seed.
    TriggerWith(usize, u64),
    /// Something writes the desired version of this number, or the one in force again, and nothing else.
    Put(Option<usize>),
    /// An operator gives the present rollout other numbers, drawn from this seed.
    SetNumbers(u64),
    /// An operator writes a policy with a limit for each rack, and how many hosts may fail.
    LimitRacks(u32, u32),
    /// An operator writes a policy with a limit for the fleet and a window that opens after so many minutes, for so
    /// many.
    SetWindow(u32, u64, u64),
    /// A host is moved to this rack.
    MoveToRack(usize, u32),
    /// A host is decommissioned, and added again after this time.
    Decommission(usize, u64),
}

/// What happens to a fleet.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) hosts: usize,
    pub(crate) policy: SiteConfig,
    pub(crate) network: NetworkFaults,
    /// Probability that an agent is killed at a boundary: before or after it writes its journal,
    /// the version file or the store.
    pub(crate) crashes: f64,
    /// Longest duration of a step, in milliseconds.
    pub(crate) step_millis: u64,
    pub(crate) versions: Vec<(Version, Quality)>,
    /// The incidents, by time in milliseconds.
    pub(crate) incidents: Vec<(u64, Incident)>,
    /// When all faults end, in milliseconds.
    pub(crate) heals_at: u64,
    /// The seed of the behaviour of steps.
    pub(crate) seed: u64,
    /// What is wrong with the versions of a script; `None` if the fleet is drawn.
    pub(crate) flaws: Option<BTreeMap<Version, MachineFlaw>>,
    /// When the times of a script begin.
    pub(crate) began: u64,
}

fn version(number: usize) -> Version {
    let text = format!("v{number}");
    Version::new(&text).unwrap_or_else(|_| unreachable!("{text} is a version"))
}

const MINUTE: u64 = 60_000;

/// Makes other numbers of a seed.
const ROSTER: u64 = 0x524f_5354_4552;
const STAGES: u64 = 0x5354_4147_4553;
const SHARES: u64 = 0x0053_4841_5245;
const FALLS: u64 = 0x0046_414c_4c53;
const OPERATORS: u64 = 0x0041_4354_5300;

/// How long a machine is off that its version has switched off, and how long one that starts again.
const KILLED_FOR: u64 = 24 * 60 * MINUTE;
const REBOOTS_FOR: u64 = 5_000;

impl Scenario {
    /// Returns the scenario of a seed.
    pub(crate) fn of_seed(seed: u64, rng: &mut fastrand::Rng) -> Self {
        let hosts = match rng.u32(0..100) {
            0..60 => rng.usize(3..7),
            60..85 => rng.usize(7..16),
            85..97 => rng.usize(16..31),
            _ => rng.usize(31..61),
        };
        let heals_at = rng.u64(3..25) * MINUTE;
        let rate = |rng: &mut fastrand::Rng, most: f64| if rng.bool() { 0.0 } else { rng.f64() * most };
        let network = NetworkFaults {
            loses_request: rate(rng, 0.05),
            loses_answer: rate(rng, 0.1),
            delays_request: rate(rng, 0.1),
            is_slow: rate(rng, 0.2),
        };
        let mut scenario = Self {
            hosts,
            policy: drawn_policy(rng),
            network,
            crashes: rate(rng, 0.03),
            step_millis: rng.u64(100..90_000),
            versions: Vec::new(),
            incidents: Vec::new(),
            heals_at,
            seed,
            flaws: None,
            began: 0,
        };
        for number in 0..rng.usize(3..7) {
            scenario.versions.push((version(number + 1), quality(rng, heals_at)));
        }
        for _ in 0..rng.usize(2..8 + hosts / 2) {
            let at = rng.u64(0..heals_at);
            let incident = scenario.incident(rng);
            scenario.incidents.push((at, incident));
        }
        // Without an instruction nothing happens.
        let first = Incident::Trigger(rng.usize(0..scenario.versions.len()));
        scenario.incidents.push((rng.u64(0..heals_at / 3), first));
        if rng.u32(0..5) == 0 {
            scenario.add_restore(rng);
        }
        if rng.u32(0..4) == 0 {
            scenario.add_vanishing(rng);
        }
        if rng.u32(0..4) == 0 {
            scenario.add_failures(rng);
        }
        // From numbers of its own, so that the other fleets stay what they are.
        let mut roster_rng = fastrand::Rng::with_seed(seed ^ ROSTER);
        if roster_rng.u32(0..6) == 0 {
            scenario.add_roster_changes(&mut roster_rng);
        }
        let mut stage_rng = fastrand::Rng::with_seed(seed ^ STAGES);
        if stage_rng.u32(0..4) == 0 {
            scenario.add_stages(&mut stage_rng);
        }
        let mut fall_rng = fastrand::Rng::with_seed(seed ^ FALLS);
        if fall_rng.u32(0..6) == 0 {
            scenario.add_falls(&mut fall_rng);
        }
        let mut share_rng = fastrand::Rng::with_seed(seed ^ SHARES);
        if share_rng.u32(0..12) == 0 {
            scenario.add_shares(&mut share_rng);
        }
        let mut operator_rng = fastrand::Rng::with_seed(seed ^ OPERATORS);
        if operator_rng.u32(0..6) == 0 {
            scenario.add_operators(&mut operator_rng);
        }
        scenario.incidents.sort_by_key(|(at, _)| *at);
        scenario
    }

    /// Returns the scenario of a script. Until the fleet has settled there are no faults.
    pub(crate) fn of_script(script: &Script, flaws: BTreeMap<Version, MachineFlaw>) -> Self {
        Self {
            hosts: script.hosts.len(),
            policy: script.agent.clone(),
            network: NetworkFaults::default(),
            crashes: 0.0,
            step_millis: script.step_millis,
            versions: Vec::new(),
            incidents: Vec::new(),
            heals_at: u64::MAX,
            seed: script.seed,
            flaws: Some(flaws),
            began: 0,
        }
    }

    /// True if a script gives the fleet, and no seed.
    pub(crate) fn is_scripted(&self) -> bool {
        self.flaws.is_some()
    }

    fn incident(&self, rng: &mut fastrand::Rng) -> Incident {
        let host = rng.usize(0..self.hosts);
        let lasts = match rng.u32(0..3) {
            0 => rng.u64(100..5_000),
            1 => rng.u64(5_000..60_000),
            _ => rng.u64(MINUTE..10 * MINUTE),
        };
        match rng.u32(0..41) {
            0..8 => Incident::Trigger(rng.usize(0..self.versions.len())),
            8 => Incident::Unset,
            9..11 => Incident::Retry(host),
            11..14 => Incident::KillAgent(host, lasts),
            14..17 => Incident::PowerOff(host, lasts),
            17..19 => Incident::CutLink(host, lasts),
            19 => Incident::CutAll(lasts),
            20 => Incident::ChangeLeader,
            21 => Incident::Reinstall(host),
            22 => Incident::Clone(host),
            23..27 => {
                let lasts = rng.bool().then_some(lasts);
                Incident::Freeze(rng.u32(0..5), host, lasts)
            }
            27..30 => Incident::Unfreeze,
            30 => Incident::ChangeRoster(host),
            31..35 => Incident::SetPolicy(rng.u64(..)),
            35 => Incident::ReleaseClaims(host),
            36..38 => Incident::PowerOffHolder(lasts),
            38..40 => Incident::CutHolder(lasts),
            _ => Incident::Decommission(host, lasts),
        }
    }

    /// The store is restored from a backup, and mostly accepted later.
    fn add_restore(&mut self, rng: &mut fastrand::Rng) {
        let backup = rng.u64(0..self.heals_at);
        let restore = rng.u64(backup..self.heals_at);
        self.incidents.push((backup, Incident::Backup));
        self.incidents.push((restore, Incident::Restore));
        if rng.u32(0..3) > 0 {
            let accept = rng.u64(restore..self.heals_at);
            self.incidents.push((accept, Incident::Accept(rng.usize(0..self.versions.len()))));
        }
    }

    /// Hosts vanish while they hold claims that others wait for.
    fn add_vanishing(&mut self, rng: &mut fastrand::Rng) {
        let begin = rng.u64(MINUTE..2 * MINUTE);
        self.incidents.push((begin, Incident::LimitFleet(rng.u32(1..3), rng.u64(10..120))));
        for _ in 0..rng.u32(1..4) {
            let trigger = rng.u64(begin..self.heals_at);
            self.incidents.push((trigger, Incident::Trigger(rng.usize(0..self.versions.len()))));
            let vanishes = trigger + rng.u64(500..2 * MINUTE);
            let lasts = rng.u64(MINUTE / 2..8 * MINUTE);
            let incident =
                if rng.bool() { Incident::PowerOffHolder(lasts) } else { Incident::CutHolder(lasts) };
            self.incidents.push((vanishes, incident));
        }
    }

    /// Hosts change their roles and groups all the time, while some of these are limited or frozen.
    fn add_roster_changes(&mut self, rng: &mut fastrand::Rng) {
        let time = |rng: &mut fastrand::Rng, end| rng.u64(0..end);
        for _ in 0..rng.usize(5..8 + 4 * self.hosts) {
            self.incidents.push((time(rng, self.heals_at), Incident::ChangeRoster(rng.usize(0..self.hosts))));
        }
        for _ in 0..3 {
            let freeze = Incident::Freeze(rng.u32(1..3), 0, None);
            self.incidents.push((time(rng, self.heals_at), freeze));
            self.incidents.push((time(rng, self.heals_at), Incident::SetPolicy(rng.u64(..))));
            let trigger = Incident::Trigger(rng.usize(0..self.versions.len()));
            self.incidents.push((time(rng, self.heals_at), trigger));
        }
    }

    /// Versions are rolled out in stages.
    fn add_stages(&mut self, rng: &mut fastrand::Rng) {
        let begin = rng.u64(MINUTE..2 * MINUTE);
        self.incidents.push((begin, Incident::SetStages(rng.u32(1..5), rng.u32(0..3), rng.u64(..))));
        self.versions.push((version(self.versions.len() + 1), Quality::Good));
        for _ in 0..rng.u32(1..3) {
            let trigger = Incident::Trigger(rng.usize(0..self.versions.len()));
            self.incidents.push((rng.u64(begin..self.heals_at), trigger));
        }
        let other = match rng.u32(0..3) {
            0 => Incident::Excuse(rng.usize(0..self.hosts)),
            1 => Incident::ChangeLeader,
            _ => Incident::Resume,
        };
        self.incidents.push((rng.u64(begin..self.heals_at), other));
    }

    /// A limit and a failure budget are percentages of a fleet of which a host was decommissioned, and mostly another
    /// one is frozen while it waits.
    fn add_shares(&mut self, rng: &mut fastrand::Rng) {
        let gone = rng.usize(0..self.hosts);
        self.incidents.push((rng.u64(0..MINUTE), Incident::Decommission(gone, self.heals_at)));
        let policy = Incident::LimitShare(rng.u32(20..100), rng.u32(0..60));
        self.incidents.push((rng.u64(MINUTE..MINUTE + MINUTE / 2), policy));
        let trigger = rng.u64(2 * MINUTE..3 * MINUTE);
        self.incidents.push((trigger, Incident::Trigger(rng.usize(0..self.versions.len()))));
        if rng.u32(0..3) > 0 {
            let frozen = Incident::Freeze(3, rng.usize(0..self.hosts), None);
            self.incidents.push((trigger + rng.u64(0..2 * MINUTE), frozen));
        }
    }

    /// A version is triggered under a failure budget, mostly in stages, that works until some time after its proof: then
    /// it switches its machine off, or does not work any more after a restart.
    fn add_falls(&mut self, rng: &mut fastrand::Rng) {
        let begin = rng.u64(MINUTE..2 * MINUTE);
        let (max, budget) = (rng.u32(1..4), rng.u32(0..3));
        let policy = match rng.u32(0..3) {
            0 => Incident::LimitFailures(max, budget, rng.bool()),
            _ => Incident::SetStages(max, budget, rng.u64(..)),
        };
        self.incidents.push((begin, policy));
        let after = rng.u64(1_000..2 * MINUTE);
        let falls = if rng.bool() { Quality::Kills(after) } else { Quality::Reboots(after) };
        self.versions.push((version(self.versions.len() + 1), falls));
        let trigger = begin + rng.u64(0..MINUTE);
        self.incidents.push((trigger, Incident::Trigger(self.versions.len() - 1)));
        let host = rng.usize(0..self.hosts);
        for _ in 0..rng.u32(0..3) {
            let at = rng.u64(trigger..trigger.max(self.heals_at) + 1);
            let incident = match rng.u32(0..5) {
                0 => Incident::Resume,
                4 => Incident::RollBackTo(rng.usize(0..self.versions.len())),
                1 => Incident::Excuse(host),
                2 => Incident::Trigger(rng.usize(0..self.versions.len())),
                _ => Incident::PowerOff(host, rng.u64(MINUTE..10 * MINUTE)),
            };
            self.incidents.push((at, incident));
        }
    }

    /// Operators change the numbers of rollouts, the windows and the labels of hosts, while a version works only now and
    /// then; and something writes the desired version past all commands.
    fn add_operators(&mut self, rng: &mut fastrand::Rng) {
        let begin = rng.u64(MINUTE..2 * MINUTE);
        let (max, budget) = (rng.u32(1..4), rng.u32(0..3));
        let policy = match rng.u32(0..4) {
            0 => Incident::LimitRacks(max, budget),
            1 => Incident::SetWindow(max, rng.u64(1..5), rng.u64(2..8)),
            2 => Incident::SetStages(max, budget, rng.u64(..)),
            _ => Incident::LimitFailures(max, budget, rng.bool()),
        };
        self.incidents.push((begin, policy));
        for host in 0..self.hosts {
            self.incidents.push((rng.u64(0..MINUTE), Incident::MoveToRack(host, rng.u32(0..2))));
        }
        self.versions.push((version(self.versions.len() + 1), Quality::Flaps(rng.u64(20_000..5 * MINUTE))));
        let flapping = self.versions.len() - 1;
        for _ in 0..rng.u32(3..8) {
            let number = rng.usize(0..self.versions.len());
            let incident = match rng.u32(0..8) {
                0 | 1 => Incident::TriggerWith(number, rng.u64(..)),
                2 => Incident::Put(Some(number)),
                3 => Incident::Put(None),
                4 => Incident::SetNumbers(rng.u64(..)),
                5 => Incident::MoveToRack(rng.usize(0..self.hosts), rng.u32(0..3)),
                6 => Incident::Resume,
                _ => Incident::Trigger(flapping),
            };
            self.incidents.push((rng.u64(begin..self.heals_at), incident));
        }
    }

    /// Returns how long after its proof a version makes its machine fall, and how long the machine is off then.
    pub(crate) fn falls(&self, machine: usize, version: &Version) -> Option<(u64, u64)> {
        let quality = match &self.flaws {
            Some(flaws) => {
                let flaw = flaws.get(version);
                let flaw =
                    flaw.filter(|flaw| flaw.machines.is_empty() || flaw.machines.contains(&machine))?;
                match flaw.what {
                    Wrong::Kills(after) => Quality::Kills(after),
                    Wrong::Reboots(after) => Quality::Reboots(after),
                    _ => return None,
                }
            }
            None => self.versions.iter().find(|(of, _)| of == version)?.1,
        };
        match quality {
            Quality::Kills(after) => Some((after, KILLED_FOR)),
            Quality::Reboots(after) => Some((after, REBOOTS_FOR)),
            _ => None,
        }
    }

    /// A version that fails on every host is triggered under a failure budget, and mostly another one later.
    fn add_failures(&mut self, rng: &mut fastrand::Rng) {
        let begin = rng.u64(MINUTE..2 * MINUTE);
        let limit = Incident::LimitFailures(rng.u32(1..4), rng.u32(0..3), rng.bool());
        self.incidents.push((begin, limit));
        // Hosts go back to a version whose rollout has ended.
        if rng.bool() {
            self.versions.push((version(self.versions.len() + 1), Quality::Good));
            let good = self.versions.len() - 1;
            self.incidents.push((rng.u64(begin..self.heals_at), Incident::Trigger(good)));
        }
        let phase = if rng.bool() { StepPhase::Apply } else { StepPhase::Validate };
        let bad = match rng.u32(0..3) {
            0 => Quality::FailsOnSome(phase, rng.u64(30..100)),
            1 => Quality::BreaksAt(rng.u64(begin..self.heals_at)),
            _ => Quality::Fails(phase),
        };
        self.versions.push((version(self.versions.len() + 1), bad));
        let trigger = rng.u64(begin..self.heals_at);
        self.incidents.push((trigger, Incident::Trigger(self.versions.len() - 1)));
        for _ in 0..rng.u32(0..3) {
            self.incidents.push((rng.u64(trigger..self.heals_at), Incident::Resume));
            self.incidents.push((rng.u64(trigger..self.heals_at), Incident::RollBack));
        }
        if rng.bool() {
            let next = rng.usize(0..self.versions.len());
            self.incidents.push((rng.u64(trigger..self.heals_at), Incident::Trigger(next)));
        }
    }

    /// Returns the names of the apply steps.
    pub(crate) fn apply_steps(&self) -> BTreeSet<StepName> {
        self.policy.steps.apply.iter().map(|step| step.name.clone()).collect()
    }

    /// Returns how long a run of a step takes, in milliseconds, and how it ends.
    pub(crate) fn run_of(
        &self,
        rng: &mut fastrand::Rng,
        host: usize,
        now: u64,
        has_fallen: bool,
        phase: StepPhase,
        version: Option<&Version>,
    ) -> (u64, StepEnd) {
        if let Some(flaws) = &self.flaws {
            let flaw = version.and_then(|version| flaws.get(version));
            let flaw = flaw.filter(|flaw| flaw.machines.is_empty() || flaw.machines.contains(&host));
            let code = match flaw.map(|flaw| flaw.what) {
                Some(Wrong::Fails(of)) if of == phase => 1,
                Some(Wrong::NotYet(of)) if of == phase => 75,
                Some(Wrong::BreaksAt(at)) if phase == StepPhase::Validate && now >= self.began + at => 1,
                Some(Wrong::Reboots(_)) if phase == StepPhase::Validate && has_fallen => 1,
                _ => 0,
            };
            return (self.step_millis, StepEnd::Exited { code });
        }
        let millis = rng.u64(10..self.step_millis.max(20));
        let end = |code| (millis, StepEnd::Exited { code });
        let quality = self.versions.iter().find(|(v, _)| Some(v) == version).map(|(_, quality)| *quality);
        match quality {
            Some(Quality::Fails(of)) if of == phase => end(1),
            Some(Quality::FailsOnSome(of, percent)) if of == phase && self.number_of(host) < percent => {
                end(1)
            }
            Some(Quality::BreaksAt(at)) if phase == StepPhase::Validate && now >= at => end(1),
            Some(Quality::Reboots(_)) if phase == StepPhase::Validate && has_fallen => end(1),
            Some(Quality::Flaps(time)) if phase == StepPhase::Validate && now / time % 2 == 1 => end(1),
            Some(Quality::NotYetUntil(of, at)) if of == phase && now < at => end(75),
            Some(Quality::Flaky(percent)) if rng.u64(0..100) < percent => end(1),
            _ => end(0),
        }
    }

    /// Returns a number below 100 that stays the same for a host.
    fn number_of(&self, host: usize) -> u64 {
        fastrand::Rng::with_seed(self.seed ^ (host as u64 + 1)).u64(0..100)
    }
}

fn quality(rng: &mut fastrand::Rng, heals_at: u64) -> Quality {
    let phase = *[StepPhase::Prefetch, StepPhase::Apply, StepPhase::Converge, StepPhase::Validate]
        .get(rng.usize(0..4))
        .unwrap_or(&StepPhase::Apply);
    match rng.u32(0..10) {
        0 => Quality::Fails(phase),
        1 => Quality::FailsOnSome(phase, rng.u64(10..80)),
        2 => Quality::BreaksAt(rng.u64(0..heals_at)),
        3 => Quality::NotYetUntil(phase, rng.u64(0..heals_at)),
        4 => Quality::Flaky(rng.u64(5..40)),
        _ => Quality::Good,
    }
}
