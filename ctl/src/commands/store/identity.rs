//! The identity of the store, for verbs that mark it: the first freeze and the first policy.

use crate::commands::context::Store;
use crate::exit::Failure;
use etcd_session::random_token;
use schema::keys::{self, Key, Prefix};
use schema::names::Token;
use schema::records::{ReportedStore, StoreIdentity};
use schema::snapshot::KeySnapshot;
use std::collections::BTreeSet;

/// Returns the identity of the store, which the first freeze or policy marks. A store without one gets it in the
/// same transaction: hosts that scripts drive start without it, so brakes must not wait for the first agent.
///
/// If hosts of the store know a lineage, the store lost its identity. It gets the same lineage again, because
/// agents refuse another one for ever.
pub(crate) async fn of_store(found: &KeySnapshot, store: &Store<'_>) -> Result<StoreIdentity, Failure> {
    if let Some(entry) = found.get(&Key::Store) {
        return StoreIdentity::read(&entry.value)
            .map_err(|error| Failure::cannot_tell(format!("{}: {error}", Key::Store)));
    }
    let reports = store.session.read_ranges(&[Prefix::Reports], store.deadline).await?;
    let lineage = lineage_of(&reported(&reports))?.unwrap_or_else(random_token);
    Ok(StoreIdentity::new(lineage, 0))
}

/// True if the store had no identity when it was read. Then the transaction that gives it one is refused only because
/// an agent, or another command, was first, and is tried again.
pub(crate) fn is_new(found: &KeySnapshot) -> bool {
    found.get(&Key::Store).is_none()
}

/// Returns the stores that the hosts know.
pub(crate) fn reported(found: &KeySnapshot) -> Vec<ReportedStore> {
    let reports = found.entries.iter().filter(|(key, _)| matches!(Key::parse(key), Ok(Key::Report(_))));
    reports.filter_map(|(_, entry)| keys::Report::read(&entry.value).ok()?.store).collect()
}

/// Returns the lineage that the hosts know; `None` if they know none.
pub(crate) fn lineage_of(reported: &[ReportedStore]) -> Result<Option<Token>, Failure> {
    let known: BTreeSet<&Token> = reported.iter().map(|reported| &reported.lineage).collect();
    if known.len() > 1 {
        let names: Vec<&str> = known.iter().map(|token| token.as_str()).collect();
        let names = names.join(", ");
        return Err(Failure::refused(format!(
            "hosts report several lineages ({names}); choose one by `orchestrate store accept --lineage`"
        )));
    }
    Ok(known.first().map(|token| (*token).clone()))
}

/// True if freezes or a rollout policy may stand in the store.
pub(crate) fn has_brakes(snapshot: &KeySnapshot) -> bool {
    let identity = snapshot.value_of(keys::Store);
    identity.is_some_and(|identity| identity.has_brakes)
}
