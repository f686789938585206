//! How an agent claims the name of its host and keeps the claim.

use crate::agent::{Agent, Step};
use crate::claim::{Held, Keeping, LEASE_SECONDS, Stage};
use crate::event::{Answer, Call, Event, Sender, Task};
use crate::world::{REQUEST_MILLIS, World};
use schema::keys::{self, Key};
use schema::snapshot::KeySnapshot;
use schema::store_marks::{Marks, store_seen, trust_keys};
use schema::store_trust::{StoreTrust, assess};
use schema::time::Backoff;
use schema::writes::claim::ClaimWrite;
use std::time::Duration;

impl Agent {
    /// Follows the judgement whether the store may be written.
    pub(crate) fn follow_gate(&mut self, world: &mut World) -> Step {
        match &self.claim.stage {
            Stage::Closed if self.may_claim() => self.read_claim(world),
            Stage::Holds { held, .. } if held.history != self.marks.history => self.lose_claim(world),
            Stage::Holds { .. } => {
                let (keys, host) = (&self.followed.keys, &self.state.host);
                let live_revision = self.claim.held().map_or(0, |(_, revision)| revision);
                let is_held = keys.revision_of(&Key::Live(host.clone())) == live_revision;
                let enlisted = keys.get(&Key::Host(host.clone())).is_some();
                if keys.revision > live_revision && !(is_held && enlisted) {
                    self.check_claim(world);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn ask(&mut self, world: &mut World, call: Call) {
        self.claim.sender = Some(world.send(self.machine, self.process, Task::Claim, call));
    }

    fn read_claim(&mut self, world: &mut World) {
        self.claim.stage = Stage::Reads { marks: self.marks, history: self.marks.history };
        self.ask(world, Call::Read(self.claim_keys()));
    }

    fn claim_keys(&self) -> Vec<Key> {
        let host = &self.state.host;
        let mut keys = vec![Key::Live(host.clone()), Key::Announced(host.clone())];
        keys.extend(trust_keys(host));
        keys
    }

    /// True if a snapshot comes from the store that the host has judged.
    fn is_of_judged_store(&self, found: &KeySnapshot, marks: Marks) -> bool {
        let regress = marks.regress(found);
        let memory = self.state.store.as_ref();
        let trust = assess(memory, &store_seen(found, &self.state.host, regress));
        let went_back = memory.is_some_and(|memory| memory.went_back.is_some());
        marks.history == self.marks.history
            && regress.is_none()
            && (went_back || matches!(trust, StoreTrust::Trusted | StoreTrust::Unclaimed))
    }

    fn pause_claim(&mut self, world: &mut World) {
        self.claim.failures += 1;
        let backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));
        let delay = backoff.delay(self.claim.failures, world.rng.f64());
        self.claim.stage = Stage::Pauses;
        self.claim_due_in(world, delay.as_millis() as u64);
    }

    fn claim_due_in(&mut self, world: &mut World, millis: u64) {
        self.claim.timer = world.number();
        let (machine, process, timer) = (self.machine, self.process, self.claim.timer);
        world.after(millis, Event::Due { machine, process, task: Task::Claim, timer });
    }

    /// A time that the task waits for has come.
    pub(crate) fn claim_due(&mut self, world: &mut World, timer: u64) -> Step {
        if timer != self.claim.timer {
            return Ok(());
        }
        let may_claim = self.may_claim();
        match &mut self.claim.stage {
            Stage::Pauses if may_claim => self.read_claim(world),
            Stage::Pauses => self.claim.stage = Stage::Closed,
            Stage::Holds { held, keeps: keeps @ Keeping::Waits } => {
                let lease = held.lease;
                if self.claim.proven == world.machines[self.machine].link.connection {
                    *keeps = Keeping::RenewsLease;
                    self.ask(world, Call::KeepAlive(lease));
                } else {
                    *keeps = Keeping::Proves { marks: self.marks };
                    self.ask(world, Call::Read(self.claim_keys()));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Looks whether the claim is still ours, because a transaction was refused.
    pub(crate) fn check_claim(&mut self, world: &mut World) {
        if let Stage::Holds { keeps: keeps @ Keeping::Waits, .. } = &mut self.claim.stage {
            *keeps = Keeping::Checks;
            let keys = vec![Key::Live(self.state.host.clone()), Key::Host(self.state.host.clone())];
            self.ask(world, Call::Read(keys));
        }
    }

    fn lose_claim(&mut self, world: &mut World) {
        world.note(|| format!("{}: loses its claim", self.state.host));
        self.claim.stage = Stage::Closed;
        if self.may_claim() {
            self.read_claim(world);
        }
    }

    /// The answer that the task waits for has come.
    pub(crate) fn claim_answer(&mut self, world: &mut World, sender: Sender, answer: Answer) -> Step {
        if self.claim.sender.take_if(|awaited| awaited.request == sender.request).is_none() {
            return Ok(());
        }
        match std::mem::take(&mut self.claim.stage) {
            Stage::Reads { marks, history } => match answer {
                Answer::Read(found) => self.claim_read(world, sender, marks, history, found),
                _ => self.pause_claim(world),
            },
            Stage::Resumes { lease, found } => match answer {
                Answer::KeptAlive(true) => self.write_claim(world, lease, true, found),
                _ => self.grant_lease(world, found),
            },
            Stage::Grants { found } => match answer {
                Answer::Granted(lease) => self.write_claim(world, lease, false, found),
                _ => self.pause_claim(world),
            },
            Stage::Writes { held, resumed, found, transaction, until } => match answer {
                Answer::Committed(committed, revision) if committed.applied => {
                    let unchanged = transaction.operations.is_empty();
                    let live_revision = if unchanged { found } else { revision };
                    self.marks.raise(revision, 0);
                    self.hold(world, Held { live_revision, ..held });
                }
                // The transaction is idempotent, so it is sent again after a lost answer.
                Answer::Lost if world.now < until => {
                    self.claim.sender =
                        Some(self.commit(world, Task::Claim, transaction.clone(), self.intent(world)));
                    self.claim.stage = Stage::Writes { held, resumed, found, transaction, until };
                }
                _ => self.pause_claim(world),
            },
            Stage::Looks { lease, holder } => {
                if let Answer::SecondsLeft(left) = answer {
                    let rose = matches!((self.claim.contest, left), (Some((l, before)), Some(now)) if l == lease && now > before);
                    if rose || self.claim.contest.is_some_and(|(l, _)| l != lease) {
                        self.claim.contested_by = Some(holder);
                    }
                    self.claim.contest = left.map(|left| (lease, left));
                }
                self.claim.stage = Stage::Pauses;
                let delay = world.rng.u64(2_400..3_600);
                self.claim_due_in(world, delay);
            }
            Stage::Holds { held, keeps } => self.kept(world, sender, held, keeps, answer),
            other @ (Stage::Closed | Stage::Pauses) => self.claim.stage = other,
        }
        self.run(world)
    }

    fn claim_read(
        &mut self,
        world: &mut World,
        sender: Sender,
        marks: Marks,
        history: u64,
        found: KeySnapshot,
    ) {
        self.marks.raise(found.revision, found.raft_term);
        if history != self.marks.history || !self.may_claim() || !self.is_of_judged_store(&found, marks) {
            self.pause_claim(world);
            return;
        }
        let ours = self.live_claim(world);
        let live = found.get(&Key::Live(self.state.host.clone())).cloned();
        let holder = live.as_ref().and_then(|e| keys::Live::read(&e.value).ok());
        let is_ours =
            holder.as_ref().is_some_and(|c| c.instance == ours.instance && c.machine_id == ours.machine_id);
        let Some(live) = live else {
            self.claim.proven = sender.connection;
            self.grant_lease(world, found);
            return;
        };
        if !is_ours {
            // The lease of a claim that nobody keeps alive ends, and then the name is free.
            let holder = holder.map_or_else(String::new, |claim| claim.to_string());
            self.claim.stage = Stage::Looks { lease: live.lease, holder };
            self.ask(world, Call::SecondsLeft(live.lease));
            return;
        }
        self.claim.proven = sender.connection;
        let is_same_boot = holder.is_some_and(|c| c.boot_id == ours.boot_id);
        if is_same_boot && self.may_resume(live.lease) {
            self.claim.stage = Stage::Resumes { lease: live.lease, found };
            self.ask(world, Call::KeepAlive(live.lease));
        } else {
            self.grant_lease(world, found);
        }
    }

    fn may_resume(&self, lease: i64) -> bool {
        let went_back = self.state.store.as_ref().is_some_and(|memory| memory.went_back.is_some());
        let as_left = self.marks.history == 0 && !went_back;
        lease != 0 && (as_left || self.claim.held_last == Some((lease, self.marks.history)))
    }

    fn grant_lease(&mut self, world: &mut World, found: KeySnapshot) {
        self.claim.stage = Stage::Grants { found };
        self.ask(world, Call::Grant(LEASE_SECONDS));
    }

    fn write_claim(&mut self, world: &mut World, lease: i64, resumed: bool, found: KeySnapshot) {
        let (claim, roster) = (self.live_claim(world), self.roster_entry(world));
        let write = ClaimWrite {
            host: &self.state.host,
            claim: &claim,
            roster: &roster,
            lease,
            resumed,
            store_revision: self.followed.keys.revision_of(&Key::Store),
        };
        let transaction = write.transaction(&found);
        let found = found.revision_of(&Key::Live(self.state.host.clone()));
        let held = Held { lease, live_revision: found, history: self.marks.history };
        self.claim.sender = Some(self.commit(world, Task::Claim, transaction.clone(), self.intent(world)));
        let until = world.now + REQUEST_MILLIS;
        self.claim.stage = Stage::Writes { held, resumed, found, transaction, until };
    }

    fn hold(&mut self, world: &mut World, held: Held) {
        world.note(|| format!("{}: holds its name, claim {}", self.state.host, held.live_revision));
        self.claim.failures = 0;
        self.claim.contest = None;
        self.claim.contested_by = None;
        self.claim.held_last = Some((held.lease, held.history));
        self.claim.stage = Stage::Holds { held, keeps: Keeping::Waits };
        let delay = world.rng.u64(9_000..11_000);
        self.claim_due_in(world, delay);
    }

    /// An answer has come while the claim is held.
    fn kept(&mut self, world: &mut World, sender: Sender, held: Held, keeps: Keeping, answer: Answer) {
        let host = self.state.host.clone();
        let waits = Stage::Holds { held, keeps: Keeping::Waits };
        match (keeps, answer) {
            (Keeping::Proves { marks }, Answer::Read(found)) => {
                self.marks.raise(found.revision, found.raft_term);
                let is_ours = found.revision_of(&Key::Live(host)) == held.live_revision;
                if !is_ours || self.marks.history != held.history || !self.is_of_judged_store(&found, marks) {
                    return self.lose_claim(world);
                }
                self.claim.proven = sender.connection;
                self.claim.stage = Stage::Holds { held, keeps: Keeping::RenewsLease };
                self.ask(world, Call::KeepAlive(held.lease));
            }
            (Keeping::RenewsLease, Answer::KeptAlive(true)) => {
                self.claim.failures = 0;
                self.claim.stage = waits;
                let delay = world.rng.u64(9_000..11_000);
                self.claim_due_in(world, delay);
            }
            (Keeping::RenewsLease, Answer::KeptAlive(false)) => self.lose_claim(world),
            (Keeping::Checks, Answer::Read(found)) => {
                let is_ours = found.revision_of(&Key::Live(host.clone())) == held.live_revision;
                if !is_ours || found.get(&Key::Host(host)).is_none() {
                    return self.lose_claim(world);
                }
                self.claim.stage = waits;
                self.claim_due_in(world, 5_000);
            }
            _ => {
                self.claim.failures += 1;
                self.claim.stage = waits;
                let delay = world.rng.u64(1..5_000);
                self.claim_due_in(world, delay);
            }
        }
    }
}
