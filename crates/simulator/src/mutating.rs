//! Small changes of transactions and of what is read, of which planted bugs consist.

use schema::codec;
use schema::keys::{self, Key, Prefix};
use schema::plan::{Action, Effect};
use schema::records::ProgressState;
use schema::snapshot::KeySnapshot;
use schema::steps::StepPhase;
use schema::transaction::{Compare, Operation, Transaction};

/// Replaces the values below a prefix by what `new` returns for them.
pub(crate) fn change(found: &mut KeySnapshot, range: &Prefix, new: impl Fn(&[u8]) -> Option<String>) {
    let range = range.to_string();
    for (_, entry) in found.entries.iter_mut().filter(|(key, _)| key.starts_with(&range)) {
        if let Some(value) = new(&entry.value) {
            entry.value = value.into_bytes();
        }
    }
}

pub(crate) fn forget_keep_failed(claims: &[u8]) -> Option<String> {
    let mut claims = keys::Claimed::read(claims).ok()?;
    claims.claims.iter_mut().for_each(|claim| claim.keep_failed = false);
    Some(codec::write(&claims))
}

/// Lets keys stay that should end.
pub(crate) fn without_lease(transaction: &mut Transaction, is: fn(&Key) -> bool) {
    for operation in &mut transaction.operations {
        if let Operation::Put { key, lease, .. } = operation
            && is(key)
        {
            *lease = 0;
        }
    }
}

pub(crate) fn says_started(progress: &[u8]) -> bool {
    keys::Progress::read(progress).is_ok_and(|progress| progress.state == ProgressState::Started)
}

/// True for the transaction by which hosts halt a rollout and go back.
pub(crate) fn rolls_back(transaction: &Transaction) -> bool {
    let writes = |wanted: fn(&Key) -> bool| {
        transaction.operations.iter().any(|o| matches!(o, Operation::Put { key, .. } if wanted(key)))
    };
    writes(|key| matches!(key, Key::Halt(_))) && writes(|key| *key == Key::CurrentVersion)
}

pub(crate) fn is_target(compare: &Compare) -> bool {
    matches!(compare, Compare::Revision(Key::CurrentVersion, _) | Compare::Value(Key::CurrentVersion, _))
}

/// True for the transaction of a host, which always writes its report.
pub(crate) fn is_of_host(transaction: &Transaction) -> bool {
    transaction.operations.iter().any(|o| matches!(o, Operation::Put { key: Key::Report(_), .. }))
}

pub(crate) fn is_step(action: &Action, of: StepPhase) -> bool {
    matches!(action, Action::Do(Effect::RunStep { phase, .. }) if *phase == of)
}
