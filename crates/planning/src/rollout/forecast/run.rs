//! Runs a forecast: hosts start, end, fail and wait, on a clock that jumps from one event to the next.

use super::fleet::{Fleet, Host};
use super::types::ForecastInput;
use crate::host::{BACKOFF_SECONDS, SUSPECT_AFTER};
use crate::rollout::ClaimNeed;
use crate::rollout::failures::{Budget, failed_hosts};
use crate::rollout::results::HostResult;
use crate::rollout::stages::open_stage;
use crate::rollout::window::next_window;
use schema::keys::Key;
use schema::names::HostName;
use schema::time::{Backoff, EpochSeconds};
use schema::why_not::over_budget;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

/// Time from the release of a claim, or the opening of a stage, until the next host has noticed it and has started.
const NOTICED: Duration = Duration::from_millis(100);

/// Something that happens to a host, or to all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// The attempt of a host ends.
    Ends(usize),
    /// A host tries again after an attempt that failed.
    TriesAgain(usize),
    /// The time is over for which a host keeps its claims after its proof.
    HoldEnds(usize),
    /// A window opens for a host, or it has fetched what it needs.
    MayStart(usize),
    /// The time is over for which the hosts up to the open stage are observed.
    SoakEnds,
    /// The host with the mark looks at the fleet.
    Looks,
}

/// How far the soak of the open stage is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Soaking {
    /// There is none, or its hosts are not through.
    No,
    /// The soak has begun, and its timer has not.
    Begun,
    Timed,
    /// Its time is over.
    Over,
}

/// What a host is doing.
#[derive(Debug, Clone, Default)]
pub(super) struct Doing {
    pub(super) starts: Option<Duration>,
    pub(super) ends: Option<Duration>,
    pub(super) attempts: u32,
    /// The limit in whose queue it waits.
    pub(super) waits: Option<usize>,
    pub(super) held: Option<String>,
}

/// A forecast that runs.
pub(super) struct Run<'a> {
    pub(super) input: &'a ForecastInput<'a>,
    pub(super) fleet: Fleet,
    pub(super) doing: Vec<Doing>,
    /// The hosts that wait for each limit, in the order in which they go.
    queues: Vec<BTreeSet<(u32, usize)>>,
    events: BinaryHeap<Reverse<(Duration, u64, Event)>>,
    number: u64,
    pub(super) now: Duration,
    pub(super) open: u32,
    pub(super) rest: u32,
    pub(super) opened: BTreeMap<u32, Duration>,
    pub(super) soaking: Soaking,
    /// When the host with the mark looked last, and whether it looks again.
    pub(super) looked_at: Option<Duration>,
    pub(super) looks_again: bool,
    /// Number of hosts of each stage that are neither through nor off.
    pub(super) pending: Vec<usize>,
    failed: BTreeSet<HostName>,
    /// The hosts that had failed when the forecast began.
    pub(super) had_failed: BTreeSet<HostName>,
    pub(super) halt: Option<(Duration, String)>,
    pub(super) ends: Option<Duration>,
}

impl<'a> Run<'a> {
    pub(super) fn new(input: &'a ForecastInput<'a>) -> Self {
        let ForecastInput { order, record, found, .. } = *input;
        let fleet = Fleet::read(input);
        let rest = u32::try_from(record.stages.len()).unwrap_or(u32::MAX);
        let has_ended = found.get(&Key::Ended(order)).is_some();
        let open = if has_ended { rest } else { open_stage(order, &record.stages, found) };
        let mut pending = vec![0; rest as usize + 1];
        let is_pending = |result| matches!(result, HostResult::Pending | HostResult::Vanished);
        for host in fleet.hosts.iter().filter(|host| is_pending(host.result)) {
            pending[host.stage as usize] += 1;
        }
        let queues = fleet.limits.iter().map(|_| BTreeSet::new()).collect();
        let doing = fleet.hosts.iter().map(|_| Doing::default()).collect();
        let failed: BTreeSet<HostName> =
            failed_hosts(order, record.counted_from, found).map(|(host, _)| host).collect();
        let halted = found.get(&Key::Halt(order)).is_some();
        let halt = halted.then(|| (Duration::ZERO, "it is halted already".to_owned()));
        let halt = halt.or_else(|| Some((Duration::ZERO, record.refused.clone()?)));
        Self {
            input,
            fleet,
            doing,
            queues,
            events: BinaryHeap::new(),
            number: 0,
            now: Duration::ZERO,
            open,
            rest,
            opened: (0..=open).map(|stage| (stage, Duration::ZERO)).collect(),
            soaking: Soaking::No,
            looked_at: None,
            looks_again: false,
            pending,
            had_failed: failed.clone(),
            failed,
            halt,
            ends: None,
        }
    }

    /// Runs to the end.
    pub(super) fn finish(mut self) -> Self {
        let hosts: Vec<usize> = (0..self.fleet.hosts.len()).collect();
        for host in hosts {
            let Host { running_for, held_for, result, need, .. } = self.fleet.hosts[host];
            match (running_for, held_for) {
                _ if result != HostResult::Pending => {}
                (Some(elapsed), _) => self.goes_on(host, elapsed),
                (None, Some(elapsed)) => self.is_held(host, elapsed),
                (None, None) if need != ClaimNeed::Take => self.enter(host),
                (None, None) => {}
            }
        }
        self.enter_stages(0..=self.open);
        self.tell();
        while let Some(Reverse((time, _, event))) = self.events.pop() {
            self.now = time;
            match event {
                Event::Ends(host) => self.end_attempt(host),
                Event::TriesAgain(host) if self.halt.is_none() => self.attempt(host),
                Event::TriesAgain(_) => {}
                Event::HoldEnds(host) => self.settle(host, HostResult::Proven),
                Event::MayStart(host) => self.enter(host),
                Event::SoakEnds => self.soaking = Soaking::Over,
                Event::Looks => {
                    self.look();
                    continue;
                }
            }
            self.tell();
        }
        self
    }

    pub(super) fn after(&mut self, delay: Duration, event: Event) {
        self.number += 1;
        self.events.push(Reverse((self.now.saturating_add(delay), self.number, event)));
    }

    /// A host that was being updated when the forecast began.
    fn goes_on(&mut self, host: usize, elapsed: Duration) {
        let left = self.attempt_takes(host).saturating_sub(elapsed);
        self.doing[host].starts = Some(Duration::ZERO);
        self.after(left, Event::Ends(host));
    }

    /// A host that was proven when the forecast began, and keeps its claims for some time.
    fn is_held(&mut self, host: usize, elapsed: Duration) {
        self.doing[host].starts = Some(Duration::ZERO);
        let hold = self.holds_for(host).unwrap_or_default();
        self.after(hold.saturating_sub(elapsed), Event::HoldEnds(host));
    }

    /// Returns how long a host keeps its claims after its proof: until it has passed the validation that is due when
    /// the time of its rollout is over. `None` if it has none, or releases them at once.
    fn holds_for(&self, host: usize) -> Option<Duration> {
        let Host { held, validation, .. } = &self.fleet.hosts[host];
        if held.is_empty() {
            return None;
        }
        let hold = self.input.record.hold?;
        Some(hold.0.saturating_add(*validation))
    }

    /// Lets the hosts of these stages start that are available, in the order of their places.
    pub(super) fn enter_stages(&mut self, stages: std::ops::RangeInclusive<u32>) {
        let waits = |host: &Host| {
            let is_available =
                host.need == ClaimNeed::Take && host.running_for.is_none() && host.held_for.is_none();
            stages.contains(&host.stage) && is_available && host.result == HostResult::Pending
        };
        let all = self.fleet.hosts.iter().enumerate().filter(|(_, host)| waits(host));
        let mut hosts: Vec<_> = all.map(|(at, host)| (host.place, at)).collect();
        hosts.sort_unstable();
        hosts.into_iter().for_each(|(_, host)| self.enter(host));
    }

    /// A host starts, or waits for what keeps it from starting.
    fn enter(&mut self, host: usize) {
        if self.halt.is_some() || self.doing[host].starts.is_some() {
            return;
        }
        let Host { need, place, held_back, ready_after, .. } = &self.fleet.hosts[host];
        let (need, place, ready_after) = (*need, *place, *ready_after);
        if let Some(why) = held_back.clone() {
            self.doing[host].held = Some(why);
            return;
        }
        if self.now < ready_after {
            return self.after(ready_after - self.now, Event::MayStart(host));
        }
        if need == ClaimNeed::Take {
            let wall = self.input.now.0.saturating_add(i64::try_from(self.now.as_secs()).unwrap_or(i64::MAX));
            match next_window(&self.input.record.windows, place, EpochSeconds(wall)) {
                Ok(None) => self.doing[host].held = None,
                Ok(Some(next)) => {
                    self.doing[host].held = Some(format!("no window is open until {}", next.opens));
                    let delay = u64::try_from(next.starts.0.saturating_sub(wall)).unwrap_or(0).max(1);
                    self.after(Duration::from_secs(delay), Event::MayStart(host));
                    return;
                }
                Err(error) => {
                    self.doing[host].held = Some(error.to_string());
                    return;
                }
            }
            if let Some(full) = self.obstacle(host) {
                self.doing[host].waits = Some(full);
                self.queues[full].insert((place.0, host));
                return;
            }
            let limits = self.fleet.hosts[host].limits.clone();
            for at in &limits {
                if !self.fleet.hosts[host].held.contains(at) {
                    self.fleet.limits[*at].used += 1;
                }
            }
            self.fleet.hosts[host].held = limits;
        }
        self.doing[host].starts = Some(self.now);
        self.attempt(host);
    }

    /// Returns the first limit that keeps a host from starting: it is full, or others wait for it and come first.
    fn obstacle(&self, host: usize) -> Option<usize> {
        let Host { limits, held, place, .. } = &self.fleet.hosts[host];
        let is_full = |at: &&usize| {
            let limit = &self.fleet.limits[**at];
            let free = limit.max.saturating_sub(limit.used) as usize;
            free == 0 || self.queues[**at].range(..(place.0, host)).take(free).count() >= free
        };
        limits.iter().filter(|at| !held.contains(at)).find(is_full).copied()
    }

    fn fails(&self, host: usize) -> bool {
        self.input.failing.contains(&self.fleet.hosts[host].name) || self.is_too_slow(host)
    }

    fn is_too_slow(&self, host: usize) -> bool {
        self.fleet.hosts[host].takes > self.input.record.progress_deadline.0
    }

    fn attempt_takes(&self, host: usize) -> Duration {
        self.fleet.hosts[host].takes.min(self.input.record.progress_deadline.0).saturating_add(NOTICED)
    }

    fn attempt(&mut self, host: usize) {
        self.after(self.attempt_takes(host), Event::Ends(host));
    }

    fn end_attempt(&mut self, host: usize) {
        if !self.fails(host) {
            return match self.holds_for(host) {
                // Nobody counts it as proven before.
                Some(hold) => self.after(hold, Event::HoldEnds(host)),
                None => self.settle(host, HostResult::Proven),
            };
        }
        self.doing[host].attempts += 1;
        self.count_failure(host);
        let attempts = self.doing[host].attempts;
        if attempts >= SUSPECT_AFTER || self.is_too_slow(host) {
            return self.settle(host, HostResult::Failed);
        }
        let [least, most] = BACKOFF_SECONDS.map(Duration::from_secs);
        self.after(Backoff::new(least, most).delay(attempts, 0.5), Event::TriesAgain(host));
    }

    /// Counts a host that failed, and halts the rollout if there are too many. One that never had a version harms only
    /// itself.
    fn count_failure(&mut self, host: usize) {
        let Host { name, need, .. } = &self.fleet.hosts[host];
        if *need == ClaimNeed::FirstInstall {
            return;
        }
        let Some(budget) = Budget::of_record(self.input.record) else {
            return;
        };
        if !self.failed.insert(name.clone()) {
            return;
        }
        if budget.is_exceeded_by(self.failed.len()) && self.halt.is_none() {
            self.halt = Some((self.now, over_budget(self.failed.len(), budget.hosts())));
        }
    }

    /// A host is through: it releases its claims, and the next ones start.
    fn settle(&mut self, host: usize, result: HostResult) {
        let found = &mut self.fleet.hosts[host];
        if found.result == HostResult::Pending {
            self.pending[found.stage as usize] -= 1;
        }
        found.result = result;
        self.doing[host].ends = Some(self.now);
        let is_kept = |at: &usize| result == HostResult::Failed && self.fleet.limits[*at].keep_failed;
        let (kept, released): (Vec<usize>, Vec<usize>) =
            std::mem::take(&mut self.fleet.hosts[host].held).into_iter().partition(is_kept);
        self.fleet.hosts[host].held = kept;
        for at in &released {
            self.fleet.limits[*at].used -= 1;
        }
        released.into_iter().for_each(|at| self.serve(at));
    }

    /// Lets hosts start that wait for a limit, as long as it has room.
    fn serve(&mut self, at: usize) {
        while self.halt.is_none() && self.fleet.limits[at].used < self.fleet.limits[at].max {
            let Some((_, host)) = self.queues[at].pop_first() else { return };
            self.doing[host].waits = None;
            self.enter(host);
        }
    }
}
