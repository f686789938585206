//! Planted bugs: small changes of the transactions and plans that a fleet uses, of what hosts read of a rollout, and of
//! what is left of their state after a reboot. The simulation must find each of them.

use crate::mutating::{
    change, forget_keep_failed, is_of_host, is_step, is_target, rolls_back, says_started, without_lease,
};
use planning::host::HostState;
use schema::codec;
use schema::keys::{self, Key, Prefix, StatusState};
use schema::limit::CLAIM_NUMBERS;
use schema::names::StatusType;
use schema::plan::{Action, Effect, Plan};
use schema::records::{HostProgress, RolloutRecord, RosterEntry};
use schema::snapshot::KeySnapshot;
use schema::steps::StepPhase;
use schema::transaction::{Compare, Operation, Transaction};

/// How the life of an agent began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    /// Its process was started again.
    Restarted,
    Rebooted,
    /// The agent found no journal.
    New,
}

#[derive(Clone, Copy)]
pub struct Mutation {
    /// What the bug does.
    pub name: &'static str,
    transaction: fn(&mut Transaction),
    plan: fn(&mut Plan),
    read: fn(&mut KeySnapshot),
    rebooted: fn(&mut HostState),
    follows: fn(Life, &mut KeySnapshot),
    looks_again: fn(u64) -> u64,
}

impl std::fmt::Debug for Mutation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

const fn nowhere(name: &'static str) -> Mutation {
    Mutation {
        name,
        transaction: |_| {},
        plan: |_| {},
        read: |_| {},
        rebooted: |_| {},
        follows: |_, _| {},
        looks_again: |millis| millis,
    }
}

const fn in_transaction(name: &'static str, transaction: fn(&mut Transaction)) -> Mutation {
    Mutation { transaction, ..nowhere(name) }
}

const fn in_plan(name: &'static str, plan: fn(&mut Plan)) -> Mutation {
    Mutation { plan, ..nowhere(name) }
}

const fn in_read(name: &'static str, read: fn(&mut KeySnapshot)) -> Mutation {
    Mutation { read, ..nowhere(name) }
}

const fn after_reboot(name: &'static str, rebooted: fn(&mut HostState)) -> Mutation {
    Mutation { rebooted, ..nowhere(name) }
}

impl Mutation {
    pub const ALL: &[Self] = &[
        in_transaction("the start does not compare the desired version", |t| {
            t.compares.retain(|c| !is_target(c));
        }),
        in_transaction("the start does not compare the freezes", |t| {
            t.compares.retain(|c| !matches!(c, Compare::NoneIn(_)));
        }),
        in_transaction("the start takes a number that another host holds", |t| {
            t.compares.retain(|c| !matches!(c, Compare::Revision(Key::Claim(..), 0)));
        }),
        in_transaction("the start does not compare the record of its rollout", |t| {
            t.compares
                .retain(|c| !matches!(c, Compare::Revision(Key::RolloutRecord(_) | Key::RolloutPolicy, _)));
        }),
        in_transaction("a policy does not mark the store", |t| {
            if t.operations.iter().any(|o| matches!(o, Operation::Put { key: Key::RolloutPolicy, .. })) {
                t.operations.retain(|o| o.key() != Some(&Key::Store));
            }
        }),
        in_transaction("a start takes no claims", |t| {
            t.operations
                .retain(|o| !matches!(o, Operation::Put { key: Key::Claim(..) | Key::Claimed(_), .. }));
        }),
        in_transaction("the start does not compare the failures", |t| {
            if is_of_host(t) {
                t.compares.retain(|c| !matches!(c, Compare::NoneNewer(..)));
            }
        }),
        in_transaction("a soak takes no time", |t| {
            t.operations.retain(|o| !matches!(o, Operation::Put { key: Key::SoakTimer(..), .. }));
        }),
        in_transaction("all stages open together", |t| {
            let opened = t.operations.iter().find_map(|o| match o {
                Operation::Put { key: Key::StageOpened(order, stage), value, .. } => {
                    Some((*order, *stage, value.clone()))
                }
                _ => None,
            });
            if let Some((order, stage, value)) = opened {
                t.put(Key::StageOpened(order, stage + 1), value, 0);
            }
        }),
        in_transaction("hosts roll back to a version that never worked", |t| {
            if rolls_back(t) {
                t.operations.retain(|o| o.key() != Some(&Key::CurrentVersion));
                t.put(Key::CurrentVersion, "v1", 0);
            }
        }),
        in_transaction("the start does not compare the halt", |t| {
            if is_of_host(t) {
                t.compares.retain(|c| !matches!(c, Compare::Revision(Key::Halt(_), _)));
            }
        }),
        in_transaction("a failure is not counted", |t| {
            t.operations.retain(|o| !matches!(o, Operation::Put { key: Key::Failed(..), .. }));
        }),
        in_transaction("a host that is lost is not counted as failed", |t| {
            if !is_of_host(t) {
                t.operations.retain(|o| !matches!(o, Operation::Put { key: Key::Failed(..), .. }));
            }
        }),
        in_transaction("a vanished host is lost at once", |t| {
            t.operations.retain(|o| !matches!(o, Operation::Put { key: Key::LostTimer(_), .. }));
        }),
        in_transaction("a host that is back stays marked as vanished", |t| {
            if t.operations.iter().any(|o| matches!(o, Operation::Put { key: Key::Live(_), .. })) {
                t.operations.retain(|o| !matches!(o, Operation::Delete(Key::LostMark(_))));
            }
        }),
        in_transaction("a lost host that is back takes no claims", |t| {
            let is_again = |key: &Key| matches!(key, Key::Claim(_, number) if *number >= CLAIM_NUMBERS / 2);
            if t.operations.iter().any(|o| o.key().is_some_and(is_again)) {
                t.operations.retain(|o| !matches!(o.key(), Some(Key::Claim(..) | Key::Claimed(_))));
            }
        }),
        in_transaction("the start does not compare the roster entry", |t| {
            if is_of_host(t) {
                t.compares.retain(|c| !matches!(c, Compare::Revision(Key::Host(_), _)));
            }
        }),
        in_transaction("a freeze does not mark the store", |t| {
            // Accepting the store is a change of the store itself.
            let accepts = t.operations.iter().any(|o| o.key() == Some(&Key::CurrentVersion));
            let freezes =
                t.operations.iter().any(|o| matches!(o, Operation::Put { key: Key::Freeze(..), .. }));
            if freezes && !accepts {
                t.operations.retain(|o| o.key() != Some(&Key::Store));
            }
        }),
        in_transaction("a write does not compare the claim", |t| {
            if is_of_host(t) {
                t.compares.retain(|c| !matches!(c, Compare::Revision(Key::Live(_), _) | Compare::Lease(..)));
            }
        }),
        in_transaction("a late write is not refused", |t| {
            t.compares.retain(|c| !matches!(c, Compare::Revision(Key::Report(_), _)));
        }),
        in_transaction("a result leaves the other states of its type", |t| {
            t.operations.retain(|o| !matches!(o, Operation::Delete(Key::Status(..))));
        }),
        in_transaction("the old listing stays", |t| {
            t.operations.retain(|o| !matches!(o, Operation::Delete(Key::RunningVersion(..))));
        }),
        in_transaction("a new claim keeps the old listing", |t| {
            if t.operations.iter().any(|o| matches!(o, Operation::Put { key: Key::Live(_), .. })) {
                t.operations.retain(|o| !matches!(o, Operation::Delete(_)));
            }
        }),
        in_transaction("a listing outlives the agent", |t| {
            for operation in &mut t.operations {
                if let Operation::Put { key: Key::RunningVersion(..) | Key::Announced(_), lease, .. } =
                    operation
                {
                    *lease = 0;
                }
            }
        }),
        in_transaction("a listing is not announced", |t| {
            t.operations.retain(|o| !matches!(o, Operation::Put { key: Key::Announced(_), .. }));
        }),
        in_transaction("a name is claimed over another claim", |t| {
            if t.operations.iter().any(|o| matches!(o, Operation::Put { key: Key::Live(_), .. })) {
                t.compares.retain(|c| !matches!(c, Compare::Revision(Key::Live(_), _)));
            }
        }),
        in_plan("a version is announced before it is validated", |plan| {
            let validates = plan.actions.first().is_some_and(|p| is_step(&p.action, StepPhase::Validate));
            let announces =
                plan.actions.iter().position(|p| matches!(p.action, Action::Do(Effect::Announce { .. })));
            if let (true, Some(at)) = (validates, announces) {
                plan.actions.swap(0, at);
            }
        }),
        in_plan("the version file is written before validation", |plan| {
            let validates = plan.actions.first().is_some_and(|p| is_step(&p.action, StepPhase::Validate));
            let writes = plan
                .actions
                .iter()
                .position(|p| matches!(p.action, Action::Do(Effect::WriteVersionFile { .. })));
            if let (true, Some(at)) = (validates, writes) {
                plan.actions.swap(0, at);
            }
        }),
        in_plan("apply runs before the start", |plan| {
            let starts = matches!(
                plan.actions.first().map(|p| &p.action),
                Some(Action::Do(Effect::CommitStart { .. }))
            );
            let applies = plan.actions.iter().position(|p| is_step(&p.action, StepPhase::Apply));
            if let (true, Some(at)) = (starts, applies) {
                plan.actions.swap(0, at);
            }
        }),
        in_plan("a version whose proof is lost stays listed", |plan| {
            plan.actions.retain(|p| p.action != Action::Do(Effect::Withdraw));
        }),
        in_transaction("a charge is healed by the next start", |t| {
            let failed = t.operations.iter().find_map(|o| match o {
                Operation::Put { key: Key::Progress(order, host), value, .. } if says_started(value) => {
                    Some(Key::Failed(*order, host.clone()))
                }
                _ => None,
            });
            failed.into_iter().for_each(|failed| t.delete(failed));
        }),
        in_transaction("a frozen host keeps its ticket", |t| {
            let starts = t.operations.iter().any(
                |o| matches!(o, Operation::Put { key: Key::Progress(..), value, .. } if says_started(value)),
            );
            if !starts {
                t.operations.retain(|o| !matches!(o, Operation::Delete(Key::Ticket(..))));
            }
        }),
        in_transaction("every rollback goes back to a version that worked", |t| {
            for operation in &mut t.operations {
                if let Operation::Put { key: Key::RolloutRecord(_), value, .. } = operation
                    && let Ok(record) = keys::RolloutRecord::read(value)
                    && record.rollback
                {
                    let good = Some(record.version.clone());
                    *value = codec::write(&RolloutRecord { good, ..record }).into_bytes();
                }
            }
        }),
        in_read("a percentage counts decommissioned hosts", |found| {
            change(found, &Prefix::Hosts, |value| {
                let roster = keys::Host::read(value).ok()?;
                Some(codec::write(&RosterEntry { decommissioned: None, ..roster }))
            });
        }),
        in_read("the share of a stage is doubled", |found| {
            change(found, &Prefix::Rollouts, |value| {
                let mut record = keys::RolloutRecord::read(value).ok()?;
                for stage in &mut record.stages {
                    stage.rule.share = stage.rule.share.map(|share| share * 2);
                }
                Some(codec::write(&record))
            });
        }),
        in_read("a host that vanishes after its proof has the version", |found| {
            change(found, &Prefix::Progress, |value| {
                let progress = keys::Progress::read(value).ok()?;
                Some(codec::write(&HostProgress { agent: false, ..progress }))
            });
        }),
        after_reboot("a reboot washes the charge away", |state| state.rollout.proven_in = None),
        Mutation {
            rebooted: |state| {
                let claims = state.rollout.claims.iter_mut().flat_map(|held| &mut held.claims);
                claims.for_each(|claim| claim.keep_failed = false);
            },
            follows: |life, found| {
                if life == Life::Rebooted {
                    change(found, &Prefix::Claimed, forget_keep_failed);
                }
            },
            ..nowhere("keep_failed is forgotten after a reboot")
        },
        Mutation {
            follows: |life, found| {
                let provisioned = Prefix::Status(StatusType::provisioned(), StatusState::Success).to_string();
                found.entries.retain(|key, _| life != Life::New || !key.starts_with(&provisioned));
            },
            ..nowhere("a reinstalled host needs no claims")
        },
        in_read("a host keeps its claims for no time after its proof", |found| {
            change(found, &Prefix::Rollouts, |value| {
                let record = keys::RolloutRecord::read(value).ok()?;
                Some(codec::write(&RolloutRecord { hold: None, ..record }))
            });
        }),
        Mutation {
            looks_again: |millis| millis.max(15 * 60_000),
            ..nowhere("a host that was refused its start looks again after a quarter of an hour")
        },
        in_transaction("nobody takes over the mark of a host that looks no more", |t| {
            without_lease(t, |key| matches!(key, Key::Closing(_)));
        }),
        in_transaction("the timer of a host that vanished does not end", |t| {
            without_lease(t, |key| matches!(key, Key::LostTimer(_)));
        }),
        in_transaction("a soak does not end", |t| {
            without_lease(t, |key| matches!(key, Key::SoakTimer(..)));
        }),
        in_transaction("nobody opens a stage", |t| {
            t.operations.retain(|o| !matches!(o, Operation::Put { key: Key::StageOpened(..), .. }));
        }),
        in_transaction("nobody halts", |t| {
            if t.operations.iter().any(|o| matches!(o, Operation::Put { key: Key::Halt(_), .. })) {
                t.operations.clear();
            }
        }),
    ];

    pub(crate) fn transaction(&self, transaction: &mut Transaction) {
        (self.transaction)(transaction);
    }

    pub(crate) fn plan(&self, plan: &mut Plan) {
        (self.plan)(plan);
    }

    pub(crate) fn read(&self, found: &mut KeySnapshot) {
        (self.read)(found);
    }

    pub(crate) fn rebooted(&self, state: &mut HostState) {
        (self.rebooted)(state);
    }

    /// Changes what an agent reads of its own host.
    pub(crate) fn follows(&self, life: Life, found: &mut KeySnapshot) {
        (self.follows)(life, found);
    }

    /// Returns after how many milliseconds a host that waits reads its rollout again.
    pub(crate) fn looks_again(&self, millis: u64) -> u64 {
        (self.looks_again)(millis)
    }
}
