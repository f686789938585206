//! The end of a simulation: all faults end. Mostly an operator insists on a last version that works;
//! otherwise the versions are mended, and the fleet settles at the desired one without an operator.

use crate::agent::Agent;
use crate::event::Event;
use crate::fleet::Fleet;
use crate::laws::Writer;
use crate::scenario::Quality;
use crate::violation::Violation;
use planning::rollout::resolve;
use schema::instruction::Instruction;
use schema::keys::{self, Key};
use schema::limit::LimitBy;
use schema::names::Version;
use schema::records::{LimitRule, LimitSize, RolloutPolicy, RolloutRecord};
use schema::time::Span;
use std::collections::BTreeMap;
use std::time::Duration;

/// Time within which every attempt at a version that works ends: a step takes at most 90 seconds.
const TIME_OF_ATTEMPT: Span = Span(Duration::from_secs(10 * 60));

impl Fleet {
    pub(crate) fn heal(&mut self) -> Result<(), Violation> {
        self.world.note(|| "-- all faults end".to_owned());
        let version = self.final_version.clone();
        self.world.scenario.versions.push((version, Quality::Good));
        let desired = self.world.rng.u32(0..6) == 0;
        let version = if desired { self.reachable_version() } else { None };
        match version {
            Some(version) => {
                self.world.note(|| format!("-- {version} is mended"));
                self.world.scenario.versions.iter_mut().for_each(|(_, quality)| *quality = Quality::Good);
                self.final_version = version;
                self.settles_alone = true;
            }
            None => self.loosen_limits()?,
        }
        self.world.scenario.network = Default::default();
        // Copies are switched off.
        for machine in self.originals..self.world.machines.len() {
            self.agents[machine] = None;
            self.world.machines[machine].turn_off();
            self.world.machines[machine].booted_at = u64::MAX;
        }
        // One machine dies for ever.
        self.dead = if self.world.rng.bool() { self.holder() } else { None };
        for machine in 0..self.originals {
            let host = self.world.machines[machine].host.clone();
            let back = self.add_host(&host);
            self.operate(back);
            if self.dead == Some(machine) {
                self.agents[machine] = None;
                self.world.machines[machine].turn_off();
                continue;
            }
            self.world.machines[machine].link.is_up = true;
            if !self.world.machines[machine].is_on {
                self.world.after(0, Event::Boots { machine });
            } else if self.agents[machine].is_none() {
                self.world.after(0, Event::AgentStarts { machine });
            }
        }
        self.world.after(0, Event::OperatorLooks);
        Ok(())
    }

    /// Returns the desired version, if there is one that every host may reach: no limit is 0 and every attempt
    /// has time enough, also by the policy, which counts when the store is accepted.
    fn reachable_version(&self) -> Option<Version> {
        let found = self.world.store.read(&[Key::Store, Key::CurrentVersion, Key::RolloutPolicy]);
        let instruction = Instruction::find(&found)?;
        let lets_all = |record: &RolloutRecord| {
            let mut sizes = record.limits.iter().flat_map(|limit| limit.values.values().chain([&limit.max]));
            let has_time = record.progress_deadline >= TIME_OF_ATTEMPT;
            record.refused.is_none() && record.windows.is_empty() && has_time && sizes.all(|max| *max > 0)
        };
        let record = self.world.store.entry(&Key::RolloutRecord(instruction.order).to_string());
        let record = record.map(|entry| keys::RolloutRecord::read(&entry.value)).transpose().ok()?;
        let next = resolve(&instruction, &found, self.world.wall());
        (record.is_none_or(|record| lets_all(&record)) && lets_all(&next)).then_some(instruction.version)
    }

    /// Writes a policy whose limits let all hosts go in time.
    fn loosen_limits(&mut self) -> Result<(), Violation> {
        let all = u32::try_from(self.originals).unwrap_or(u32::MAX);
        let limit = |rng: &mut fastrand::Rng, by| {
            let max = LimitSize::Hosts(rng.u32(all.div_ceil(4)..=all));
            LimitRule { by, max, values: BTreeMap::new(), keep_failed: Some(false) }
        };
        let by = [LimitBy::Fleet, LimitBy::Role, LimitBy::Group];
        let limits: Vec<LimitRule> = by.map(|by| limit(&mut self.world.rng, by)).into_iter().collect();
        let lost_after = Some(Span(Duration::from_secs(60)));
        let policy = RolloutPolicy { limits, lost_after, ..RolloutPolicy::default() };
        let has_policy = self.world.store.entry(&Key::RolloutPolicy.to_string()).is_some();
        if has_policy && let Some(change) = self.policy_change(&policy) {
            self.world.commit(&change, &Writer::Operator)?;
        }
        Ok(())
    }

    /// Accepts the store if a host says that it went back, and triggers the last version if it is not
    /// the desired one.
    pub(crate) fn insist(&mut self) {
        let version = self.final_version.clone();
        let current = self.world.store.entry(&Key::CurrentVersion.to_string());
        let is_desired = current.is_some_and(|entry| entry.value == version.as_str().as_bytes());
        let lineage = self.lineage();
        let needs_operator = |agent: &Agent| {
            agent.state.store.as_ref().is_some_and(|m| m.went_back.is_some()) || agent.is_in_other_store()
        };
        // A host that took another store for its own belongs to no fleet: it is installed again.
        for machine in 0..self.originals {
            let strays = |agent: &Agent| {
                agent.state.store.as_ref().is_some_and(|memory| Some(&memory.lineage) != lineage.as_ref())
            };
            if self.agents[machine].as_ref().is_some_and(strays) {
                self.reinstall(machine);
            }
        }
        self.unfreeze();
        self.resume();
        // What is left of a lost host under an earlier policy.
        if let Some(machine) = self.dead {
            self.excuse(machine);
            let key = Key::Claimed(self.world.machines[machine].host.clone());
            let found = self.world.store.read(std::slice::from_ref(&key));
            let claims = found.get(&key).and_then(|entry| keys::Claimed::read(&entry.value).ok());
            if claims.is_some_and(|claims| claims.lost) {
                self.release(machine);
            }
        }
        if self.agents.iter().flatten().any(needs_operator) {
            self.accept(&version);
        } else if !is_desired {
            self.trigger(&version);
        }
        self.world.after(20_000, Event::OperatorLooks);
    }
}
