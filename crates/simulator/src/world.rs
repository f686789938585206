//! The world around the agents: time, the network, the store and the machines.

use crate::end_laws::EndLaws;
use crate::event::{Answer, Call, Event, Sender, Task};
use crate::fall_laws::FallLaws;
use crate::history::Notes;
use crate::laws::{Intent, Laws, Writer};
use crate::machine::Machine;
use crate::mutation::Mutation;
use crate::reality::Reality;
use crate::record_laws::check_records;
use crate::scenario::Scenario;
use crate::stage_laws::StageLaws;
use crate::standing_laws::StandingLaws;
use crate::store::{Change, Committed, Store};
use crate::violation::Violation;
use crate::waiting_laws::WaitingLaws;
use crate::watching::Watching;
use planning::rollout::{first_reads, second_reads};
use schema::names::Token;
use schema::time::{BootMillis, EpochSeconds, Now};
use schema::transaction::Transaction;
use std::collections::BTreeMap;
use std::fmt::Display;

/// Time after which a client gives up a request, in milliseconds.
pub(crate) const REQUEST_MILLIS: u64 = 8_000;

/// The world around the agents.
pub(crate) struct World {
    /// Milliseconds since the simulation began.
    pub(crate) now: u64,
    pub(crate) rng: fastrand::Rng,
    pub(crate) store: Store,
    pub(crate) machines: Vec<Machine>,
    pub(crate) scenario: Scenario,
    pub(crate) laws: Laws,
    pub(crate) ends: EndLaws,
    pub(crate) stages: StageLaws,
    pub(crate) falls: FallLaws,
    pub(crate) waiting: WaitingLaws,
    pub(crate) stalled: StandingLaws,
    pub(crate) mutation: Option<&'static Mutation>,
    pub(crate) watching: Watching,
    /// What happened, if the fleet is that of a script.
    pub(crate) notes: Option<Notes>,
    queue: BTreeMap<(u64, u64), Event>,
    scheduled: u64,
    numbers: u64,
    /// When the next lease check is in the queue.
    checks_leases: Option<u64>,
    /// The trace, if one is kept.
    trace: Option<Vec<String>>,
}

impl World {
    pub(crate) fn new(
        scenario: Scenario,
        rng: fastrand::Rng,
        mutation: Option<&'static Mutation>,
        traces: bool,
    ) -> Self {
        Self {
            now: 0,
            rng,
            store: Store::new(),
            machines: Vec::new(),
            scenario,
            laws: Laws::default(),
            ends: EndLaws::default(),
            stages: StageLaws::default(),
            falls: FallLaws::default(),
            waiting: WaitingLaws::default(),
            stalled: StandingLaws::default(),
            mutation,
            watching: Watching::default(),
            notes: None,
            queue: BTreeMap::new(),
            scheduled: 0,
            numbers: 0,
            checks_leases: None,
            trace: traces.then(Vec::new),
        }
    }

    pub(crate) fn note(&mut self, text: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>10.3} {}", self.now as f64 / 1000.0, text()));
        }
    }

    pub(crate) fn take_trace(&mut self) -> Vec<String> {
        self.trace.take().unwrap_or_default()
    }

    pub(crate) fn at(&mut self, time: u64, event: Event) {
        self.scheduled += 1;
        self.queue.insert((time.max(self.now), self.scheduled), event);
    }

    /// Schedules an event after a delay.
    pub(crate) fn after(&mut self, millis: u64, event: Event) {
        self.at(self.now + millis, event);
    }

    /// Takes the next event and moves the time to it.
    pub(crate) fn next(&mut self) -> Option<Event> {
        let ((time, _), event) = self.queue.pop_first()?;
        self.now = time;
        Some(event)
    }

    /// Discards the requests that are still on their way after their clients gave up: the connections on which they
    /// travel end with the store's processes.
    pub(crate) fn drop_late_requests(&mut self) {
        self.queue.retain(|_, event| !matches!(event, Event::Arrives { answers: false, .. }));
    }

    /// Returns a number that was not returned before.
    pub(crate) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Returns a token that was not returned before.
    pub(crate) fn token(&mut self, kind: impl Display) -> Token {
        let text = format!("{kind}{}", self.number());
        Token::new(&text).unwrap_or_else(|_| unreachable!("{text} is a token"))
    }

    /// True with this probability.
    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.rng.f64() < probability
    }

    pub(crate) fn wall(&self) -> EpochSeconds {
        EpochSeconds(1_700_000_000 + i64::try_from(self.now / 1000).unwrap_or_default())
    }

    /// Returns the time on the clocks of a machine.
    pub(crate) fn clock(&self, machine: usize) -> Now {
        let boot = self.now.saturating_sub(self.machines[machine].booted_at);
        Now { boot: BootMillis(boot), wall: self.wall() }
    }

    /// Sends a request on the present connection. The answer comes as an event.
    pub(crate) fn send(&mut self, machine: usize, process: u64, task: Task, call: Call) -> Sender {
        let request = self.number();
        let link = self.machines[machine].link;
        let sender = Sender { machine, process, task, request, connection: link.connection };
        if !link.is_up || !self.machines[machine].is_on {
            // A refused connection is noticed at once, a silent one when the time limit has passed.
            let delay =
                if self.rng.bool() { self.rng.u64(1..50) } else { self.rng.u64(2_000..REQUEST_MILLIS) };
            self.after(delay, Event::Answers { sender, answer: Answer::NotSent });
            return sender;
        }
        let faults = self.scenario.network;
        let delay = self.latency();
        if self.chance(faults.loses_request) {
            let lost = self.rng.u64(100..REQUEST_MILLIS);
            self.after(lost, Event::Answers { sender, answer: Answer::Lost });
        } else if self.chance(faults.delays_request) {
            // The client gives up; the store executes the request when it arrives at last.
            let late = self.rng.u64(1_000..60_000);
            self.after(late, Event::Arrives { sender, call, answers: false });
            let lost = self.rng.u64(100..REQUEST_MILLIS);
            self.after(lost, Event::Answers { sender, answer: Answer::Lost });
        } else {
            self.after(delay, Event::Arrives { sender, call, answers: true });
        }
        sender
    }

    /// A step of a machine has ended: its version may make it fall soon, if it was proven by that.
    pub(crate) fn let_fall(&mut self, machine: usize) {
        let found = &self.machines[machine];
        let Some(version) = found.truth.proven.clone() else { return };
        if found.falls.as_ref().is_some_and(|(of, _)| *of == version) {
            return;
        }
        if let Some((after, lasts)) = self.scenario.falls(machine, &version) {
            let boot = found.boot;
            self.machines[machine].falls = Some((version, boot));
            self.after(after, Event::Falls { machine, boot, lasts });
        }
    }

    fn latency(&mut self) -> u64 {
        if self.chance(self.scenario.network.is_slow) { self.rng.u64(100..2_000) } else { self.rng.u64(1..8) }
    }

    /// A request reaches the store.
    pub(crate) fn execute(&mut self, sender: Sender, call: Call, answers: bool) -> Result<(), Violation> {
        let machine = &mut self.machines[sender.machine];
        if answers && machine.link.connection != sender.connection {
            // The connection broke under way.
            let lost = self.rng.u64(1..REQUEST_MILLIS);
            self.after(lost, Event::Answers { sender, answer: Answer::Lost });
            return Ok(());
        }
        if sender.task == Task::Mirror && answers {
            machine.watch = Some((sender.process, sender.connection));
        }
        let answer = self.answer(sender, call)?;
        if !answers {
            return Ok(());
        }
        if self.chance(self.scenario.network.loses_answer) {
            let lost = self.rng.u64(10..REQUEST_MILLIS);
            self.after(lost, Event::Answers { sender, answer: Answer::Lost });
        } else {
            let delay = self.latency();
            self.after(delay, Event::Answers { sender, answer });
        }
        Ok(())
    }

    fn answer(&mut self, sender: Sender, call: Call) -> Result<Answer, Violation> {
        let now = self.now;
        Ok(match call {
            Call::Read(keys) => Answer::Read(self.store.read(&keys)),
            Call::ReadAll(keys, ranges) => Answer::Read(self.store.read_all(&keys, &ranges)),
            Call::Rollout(host, instruction) => {
                let mut found = self.store.read_together(&first_reads(&host, instruction.order));
                let more = second_reads(&host, &instruction, &found);
                found.entries.extend(self.store.read_together(&more).entries);
                Answer::Read(found)
            }
            Call::Holders(holders) => {
                let (mut keys, ranges) = holders.first_reads();
                keys.extend(holders.second_reads(&self.store.read_all(&keys, &ranges)));
                Answer::Read(self.store.read_all(&keys, &ranges))
            }
            Call::Grant(seconds) => {
                let lease = self.store.grant(seconds, now);
                self.check_leases();
                Answer::Granted(lease)
            }
            Call::KeepAlive(lease) => Answer::KeptAlive(self.store.keep_alive(lease, now)),
            Call::SecondsLeft(lease) => Answer::SecondsLeft(self.store.seconds_left(lease, now)),
            Call::Commit { transaction, intent } => {
                let writer = Writer::Host(sender.machine, intent);
                match self.commit(&transaction, &writer)? {
                    Some(committed) => {
                        let revision = self.store.revision();
                        Answer::Committed(committed, revision)
                    }
                    // The lease is gone; the client cannot tell this from other refusals.
                    None => Answer::NotSent,
                }
            }
        })
    }

    /// Applies a transaction and checks the laws. Returns `None` if the store refused it.
    pub(crate) fn commit(
        &mut self,
        transaction: &Transaction,
        writer: &Writer,
    ) -> Result<Option<Committed>, Violation> {
        let mut transaction = transaction.clone();
        if let Some(mutation) = self.mutation {
            mutation.transaction(&mut transaction);
        }
        if let Writer::Host(machine, Intent { starts: Some(version), .. }) = writer {
            self.laws.expect_start(&self.store, &self.machines[*machine], self.now, version);
        }
        let Ok(committed) = self.store.commit(&transaction, self.now) else { return Ok(None) };
        let is_applied = committed.applied;
        self.note(|| {
            let what = if is_applied { "applied" } else { "refused" };
            let keys = transaction.operations.iter().filter_map(|o| o.key().map(ToString::to_string));
            let keys: Vec<String> = keys.collect();
            format!("    {what}: {} by {writer}: {}", transaction.name, keys.join(" "))
        });
        if is_applied {
            self.publish(&committed.changes, writer)?;
        }
        Ok(Some(committed))
    }

    /// Checks the laws after changes, and delivers these to the watches.
    pub(crate) fn publish(&mut self, changes: &[Change], writer: &Writer) -> Result<(), Violation> {
        self.laws.note(changes, writer, &self.machines, self.now)?;
        let reality = Reality { store: &self.store, machines: &self.machines };
        self.ends.note(changes, writer, reality)?;
        self.stages.note(changes, reality, self.now)?;
        check_records(changes, writer, &self.store)?;
        self.falls.note(changes, writer, reality, self.now)?;
        if let Some(notes) = &mut self.notes {
            notes.note(changes, writer, &self.machines, self.now);
        }
        for machine in self.watching.of_keys(changes) {
            let Some((process, connection)) = self.machines[machine].watch else { continue };
            let watched = &self.machines[machine].watched;
            let is_watched = |change: &&Change| watched.contains(&change.key);
            let seen: Vec<Change> = changes.iter().filter(is_watched).cloned().collect();
            let delay = if self.chance(self.scenario.network.is_slow) {
                self.rng.u64(1_000..60_000)
            } else {
                self.rng.u64(1..20)
            };
            let time = (self.now + delay).max(self.machines[machine].last_delivery);
            self.machines[machine].last_delivery = time;
            self.at(time, Event::Delivers { machine, process, connection, changes: seen });
        }
        self.tell_of_rollouts(changes);
        Ok(())
    }

    /// Schedules the next look at the leases.
    pub(crate) fn check_leases(&mut self) {
        let Some(end) = self.store.next_lease_end() else { return };
        let check = end.max(self.now + 500);
        // A lease that is shorter than those before it is noticed as soon. Drawn fleets stay what they are.
        let is_soon = |at: u64| at <= check || !self.scenario.is_scripted();
        if !self.checks_leases.is_some_and(is_soon) {
            self.checks_leases = Some(check);
            self.at(check, Event::LeasesEnd);
        }
    }

    /// Ends the leases whose time is over.
    pub(crate) fn end_leases(&mut self) -> Result<(), Violation> {
        self.checks_leases = None;
        while let Some(changes) = self.store.end_lease(self.now) {
            self.note(|| {
                format!("    a lease ends: {:?}", changes.iter().map(|c| &c.key).collect::<Vec<_>>())
            });
            self.publish(&changes, &Writer::Lease)?;
        }
        self.check_leases();
        Ok(())
    }
}
