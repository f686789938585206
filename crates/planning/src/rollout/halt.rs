//! Halts a rollout in which too many hosts failed.

use super::author::Author;
use super::failures::Failures;
use super::rules::Rules;
use schema::instruction::Instruction;
use schema::records::Halt;
use schema::transaction::Transaction;
use schema::writes::rollout::{add_rollback, halt};

/// Returns the transactions that halt the rollout, if too many hosts failed and nobody has halted it. The first
/// one that the store permits counts: under a policy that says so, the first also makes the fleet go back to the
/// last version that worked, which not every host may.
pub(super) fn halts(
    rollout: &Instruction,
    rules: &Rules,
    failures: &Failures,
    author: Author,
) -> Vec<Transaction> {
    let Author { by, at } = author;
    let Rules::Record { revision, good, .. } = rules else { return Vec::new() };
    let Some(why) = failures.reason_to_halt() else { return Vec::new() };
    let halt = |halted: &Halt| halt(rollout.order, *revision, halted);
    let good = if failures.blame_version() { good.as_ref() } else { None };
    let Some(good) = good else {
        return vec![halt(&Halt { at, by, why, rolled_back_to: None })];
    };
    let with = Halt { at, by: by.clone(), why: why.clone(), rolled_back_to: Some(good.clone()) };
    let without = Halt { why: format!("{why}; {by} may not roll back"), at, by, rolled_back_to: None };
    let mut rolls_back = halt(&with);
    add_rollback(&mut rolls_back, rollout, good, &with);
    vec![rolls_back, halt(&without)]
}
