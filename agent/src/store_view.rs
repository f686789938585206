//! From a snapshot of the store to what the host makes of it: its standing, the target, what is published.

use etcd_session::{Entry, Regress, Scope, Snapshot, store_seen};
use planning::host::{Published, Target};
use schema::codec;
use schema::keys::{Key, StatusState};
use schema::names::{HostName, StatusType, Version};
use schema::records::{RosterEntry, StatusRecord};
use schema::store_trust::{Instruction, InstructionOrder, StoreMemory, StoreSeen};

/// The keys that an agent looks at: the target, the store's identity and its own keys.
pub(crate) fn scope(host: &HostName, listing: Option<&Version>) -> Scope {
    let watched = vec![
        Key::CurrentVersion,
        Key::Store,
        Key::Live(host.clone()),
        Key::Host(host.clone()),
        Key::Retry(host.clone()),
        Key::Maintenance(host.clone()),
        Key::DropStale,
    ];
    let mut polled = vec![Key::Announced(host.clone()), Key::Report(host.clone())];
    for kind in StatusType::of_agents() {
        polled.extend(StatusState::ALL.map(|state| Key::Status(kind.clone(), state, host.clone())));
    }
    Scope { watched, polled, polled_also: listing_keys(host, listing) }
}

/// Every agent may write the list: that the host still stands there is looked at where it ought to stand.
pub(crate) fn listing_keys(host: &HostName, listing: Option<&Version>) -> Vec<Key> {
    listing.map(|version| Key::RunningVersion(version.clone(), host.clone())).into_iter().collect()
}

fn revision(entry: Option<&Entry>) -> Option<i64> {
    entry.map(|e| e.mod_revision)
}

/// The marks by which a store is judged. The own report is known as of the last read alone: what was
/// written since is taken as remembered. A read that was judged by marks of an earlier history falls behind nothing.
pub(crate) fn seen(
    snapshot: &Snapshot,
    host: &HostName,
    memory: Option<&StoreMemory>,
    history: u64,
) -> StoreSeen {
    let regress = if snapshot.regress.history == history { snapshot.regress } else { Regress::default() };
    let mut seen = store_seen(&snapshot.keys, host, regress);
    let written = memory.and_then(|m| m.report_revision);
    // In a store that went back this holds as well; its revision shows it.
    if written.is_some_and(|w| w > snapshot.read_revision) {
        seen.report_revision = written;
    }
    seen
}

/// What `/current_version` says. After `store accept` an older instruction does not count.
pub(crate) fn target(snapshot: &Snapshot, epoch: u64) -> Target {
    let keys = &snapshot.keys;
    if snapshot.reads == 0 {
        return Target::Unread;
    }
    let Some(entry) = keys.get(&Key::CurrentVersion) else { return Target::NotSet };
    if predates_epoch(snapshot, entry, epoch) {
        return Target::NotSet;
    }
    match codec::read_version(&entry.value) {
        Ok(version) => {
            let order = InstructionOrder { epoch, revision: entry.mod_revision };
            Target::Known(Instruction { version, order })
        }
        Err(why) => Target::Invalid { why },
    }
}

/// True if this was written before the store was accepted: it does not count in the new epoch.
fn predates_epoch(snapshot: &Snapshot, entry: &Entry, epoch: u64) -> bool {
    let accepted_at = revision(snapshot.keys.get(&Key::Store)).unwrap_or(0);
    schema::store_trust::predates_epoch(epoch, accepted_at, entry.mod_revision)
}

/// The newest request that the host try again.
pub(crate) fn retry(snapshot: &Snapshot, host: &HostName, epoch: u64) -> Option<InstructionOrder> {
    let entry = snapshot.keys.get(&Key::Retry(host.clone()))?;
    if predates_epoch(snapshot, entry, epoch) {
        return None;
    }
    Some(InstructionOrder { epoch, revision: entry.mod_revision })
}

/// True if an operator took the host out.
pub(crate) fn decommissioned(snapshot: &Snapshot, host: &HostName) -> bool {
    let entry = snapshot.keys.get(&Key::Host(host.clone()));
    entry
        .and_then(|e| codec::read::<RosterEntry>(&e.value).ok())
        .is_some_and(|roster| roster.decommissioned.is_some())
}

/// What the store says of the host. Values that cannot be read count as missing: they are written anew.
pub(crate) fn published(snapshot: &Snapshot, host: &HostName) -> Published {
    let keys = &snapshot.keys;
    let mut statuses = std::collections::BTreeMap::new();
    for kind in StatusType::of_agents() {
        for state in StatusState::ALL {
            let entry = keys.get(&Key::Status(kind.clone(), state, host.clone()));
            if let Some(record) = entry.and_then(|e| StatusRecord::read(&e.value).ok()) {
                statuses.insert((kind.clone(), state), record);
            }
        }
    }
    let read = |key: Key| keys.get(&key);
    Published {
        listing: listing(snapshot, host),
        statuses,
        report: read(Key::Report(host.clone())).and_then(|e| codec::read(&e.value).ok()),
    }
}

/// The version that the host is listed under: by its own key, unless a look at the list shows that it is not there,
/// or there under a lease that does not end with the host.
fn listing(snapshot: &Snapshot, host: &HostName) -> Option<Version> {
    let announced = snapshot.keys.get(&Key::Announced(host.clone()))?;
    let version = codec::read_version(&announced.value).ok()?;
    let key = Key::RunningVersion(version.clone(), host.clone());
    let is_listed = || snapshot.keys.get(&key).is_some_and(|listed| listed.lease == announced.lease);
    (!snapshot.polled_also.contains(&key) || is_listed()).then_some(version)
}
