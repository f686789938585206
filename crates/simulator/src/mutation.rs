//! Planted bugs: small changes of the transactions and plans that a fleet uses. The simulation must
//! find each of them.

use schema::keys::Key;
use schema::limit::CLAIM_NUMBERS;
use schema::plan::{Action, Effect, Plan};
use schema::steps::StepPhase;
use schema::transaction::{Compare, Operation, Transaction};

/// A planted bug.
#[derive(Clone, Copy)]
pub struct Mutation {
    /// What the bug does.
    pub name: &'static str,
    transaction: fn(&mut Transaction),
    plan: fn(&mut Plan),
}

impl std::fmt::Debug for Mutation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

const fn in_transaction(name: &'static str, transaction: fn(&mut Transaction)) -> Mutation {
    Mutation { name, transaction, plan: |_| {} }
}

const fn in_plan(name: &'static str, plan: fn(&mut Plan)) -> Mutation {
    Mutation { name, transaction: |_| {}, plan }
}

impl Mutation {
    /// All planted bugs.
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
    ];

    pub(crate) fn transaction(&self, transaction: &mut Transaction) {
        (self.transaction)(transaction);
    }

    pub(crate) fn plan(&self, plan: &mut Plan) {
        (self.plan)(plan);
    }
}

/// True for the transaction by which hosts halt a rollout and go back.
fn rolls_back(transaction: &Transaction) -> bool {
    let writes = |wanted: fn(&Key) -> bool| {
        transaction.operations.iter().any(|o| matches!(o, Operation::Put { key, .. } if wanted(key)))
    };
    writes(|key| matches!(key, Key::Halt(_))) && writes(|key| *key == Key::CurrentVersion)
}

fn is_target(compare: &Compare) -> bool {
    matches!(compare, Compare::Revision(Key::CurrentVersion, _) | Compare::Value(Key::CurrentVersion, _))
}

/// True for the transaction of a host, which always writes its report.
fn is_of_host(transaction: &Transaction) -> bool {
    transaction.operations.iter().any(|o| matches!(o, Operation::Put { key: Key::Report(_), .. }))
}

fn is_step(action: &Action, of: StepPhase) -> bool {
    matches!(action, Action::Do(Effect::RunStep { phase, .. }) if *phase == of)
}
