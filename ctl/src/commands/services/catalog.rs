//! Reads the catalog of services from the store.

use crate::commands::context::Store;
use crate::output;
use catalog::{View, catalog_from_store};
use etcd_session::StoreError;
use schema::keys::Prefix;
use schema::names::ServiceName;
use schema::snapshot::KeySnapshot;

/// Returns the catalog that a snapshot holds.
pub(crate) fn view_of(snapshot: &KeySnapshot) -> View {
    let entries =
        snapshot.entries.iter().map(|(key, entry)| (key.as_str(), entry.value.as_slice(), entry.lease != 0));
    let (view, refused) = catalog_from_store(entries);
    warn_of_refused(refused);
    view
}

/// Warns of records that do not become part of an answer.
pub(crate) fn warn_of_refused(refused: usize) {
    if refused > 0 {
        output::warn(&format!("{refused} records of services cannot be read, or are not of their host"));
    }
}

/// Reads the catalog of all services, or of one, at one revision. Also returns the revision.
pub(crate) async fn read(
    store: &Store<'_>,
    service: Option<&ServiceName>,
    at: Option<i64>,
) -> Result<(View, i64), StoreError> {
    let prefixes = match service {
        None => [Prefix::Services, Prefix::HealthAll],
        Some(service) => [Prefix::Service(service.clone()), Prefix::Health(service.clone())],
    };
    let snapshot = store.session.read_all(&[], &prefixes, at, store.deadline).await?;
    Ok((view_of(&snapshot), snapshot.revision))
}
