//! What the followed keys of a host say: the marks by which it judges the store, the target, and what
//! the store holds for this host.

use crate::host::brakes::Brakes;
use crate::host::input::{Published, Target};
use schema::codec;
use schema::followed::{FollowedKeys, Scope};
use schema::freeze::FreezeScope;
use schema::instruction::Epoch;
use schema::keys::{self, Key, StatusState};
use schema::names::{HostName, Role, StatusType, Version};
use schema::order::InstructionOrder;
use schema::records::{RosterEntry, StatusRecord, StoreIdentity};
use schema::store_marks::{Regress, store_seen};
use schema::store_trust::{StoreMemory, StoreSeen};
use schema::writes::claims::{FoundClaims, RolloutGuard};
use schema::writes::host::StartGuard;

/// Returns the keys that an agent mirrors: the target, the store's identity and its own keys.
pub fn scope(host: &HostName) -> Scope {
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
    polled.extend(StatusType::of_agents().iter().flat_map(|kind| Key::statuses(kind, host)));
    Scope { watched, polled, polled_also: Vec::new() }
}

/// Returns the keys that are polled as well: that of the listing that the host should have, because every
/// agent may write listings and the host's own could be missing; and in a store with brakes the claims of
/// the host, which others may release.
pub fn polled_also(followed: &FollowedKeys, host: &HostName, listing: Option<&Version>) -> Vec<Key> {
    let listing = listing.map(|version| Key::RunningVersion(version.clone(), host.clone()));
    let claims = has_brakes(followed).then(|| Key::Claimed(host.clone()));
    listing.into_iter().chain(claims).collect()
}

/// Returns the marks by which the store is judged.
///
/// The snapshot shows the host's report as of the last read, so for a report written since then the
/// remembered revision is used. A [`Regress`] from an earlier history is ignored.
pub fn seen(
    followed: &FollowedKeys,
    host: &HostName,
    memory: Option<&StoreMemory>,
    history: u64,
) -> StoreSeen {
    let regress = if followed.regress.history == history { followed.regress } else { Regress::default() };
    let mut seen = store_seen(&followed.keys, host, regress);
    let written = memory.and_then(|m| m.report_revision);
    // This is also true in a store that went back, but there the lower revision is noticed.
    if written.is_some_and(|w| w > followed.read_revision) {
        seen.report_revision = written;
    }
    seen
}

/// Returns the target in `/current_version`. Instructions older than `store accept` do not count.
pub fn target(followed: &FollowedKeys, epoch: u64) -> Target {
    if followed.reads == 0 {
        return Target::Unread;
    }
    match epoch_of(followed, epoch).instruction(followed.keys.get(&Key::CurrentVersion)) {
        Ok(Some(instruction)) => Target::Known(instruction),
        Ok(None) => Target::NotSet,
        Err(error) => Target::Invalid { why: error.to_string() },
    }
}

/// Returns the order of an operator's request that the host tries again, if there is one.
pub fn retry(followed: &FollowedKeys, host: &HostName, epoch: u64) -> Option<InstructionOrder> {
    epoch_of(followed, epoch).order(followed.keys.get(&Key::Retry(host.clone()))?)
}

/// Returns the epoch that the host has accepted, and since when it counts in the store.
fn epoch_of(followed: &FollowedKeys, number: u64) -> Epoch {
    let accepted_at = Epoch::read(followed.keys.get(&Key::Store)).map(|epoch| epoch.accepted_at);
    Epoch { number, accepted_at: accepted_at.unwrap_or_else(|_| followed.keys.revision_of(&Key::Store)) }
}

/// True if an operator decommissioned the host.
pub fn decommissioned(followed: &FollowedKeys, host: &HostName) -> bool {
    roster(followed, host).is_some_and(|roster| roster.decommissioned.is_some())
}

/// Returns the roster entry of the host; `None` if it has none that can be read.
pub(super) fn roster(followed: &FollowedKeys, host: &HostName) -> Option<RosterEntry> {
    followed.keys.value_of(keys::Host(host.clone()))
}

/// Returns why the roster entry of the host cannot be read, in a store with brakes: it says which freezes
/// match the host and which limits count it.
pub fn bad_roster(followed: &FollowedKeys, host: &HostName) -> Option<String> {
    if !has_brakes(followed) {
        return None;
    }
    let entry = followed.keys.get(&Key::Host(host.clone()))?;
    let error = keys::Host::read(&entry.value).err()?;
    Some(format!("the roster entry of the host cannot be read: {error}"))
}

/// Returns what differs between the role and the group in the settings and those on the roster, in words. Steps get
/// the role of the settings; limits, stages and freezes count that of the roster.
pub fn roster_difference(
    followed: &FollowedKeys,
    host: &HostName,
    role: Option<&Role>,
    group: Option<&Role>,
) -> Option<String> {
    let roster = roster(followed, host)?;
    let pairs = [("role", role, roster.role.as_ref()), ("group", group, roster.group.as_ref())];
    let (what, ours, theirs) =
        pairs.into_iter().find(|(_, ours, theirs)| ours.is_some() && ours != theirs)?;
    let text = |name: Option<&Role>| name.map_or("none".to_owned(), ToString::to_string);
    Some(format!(
        "the {what} in the settings is {}, the {what} on the roster is {}: change the settings, or run `orchestrate hosts add {host} --{what} {}`",
        text(ours),
        text(theirs),
        text(ours)
    ))
}

/// True if freezes or a rollout policy may stand in the store.
fn has_brakes(followed: &FollowedKeys) -> bool {
    marked_at(followed).is_some()
}

/// Returns the revision at which the store was marked or accepted last; `None` if it is not marked.
pub fn marked_at(followed: &FollowedKeys) -> Option<i64> {
    let entry = followed.keys.get(&Key::Store)?;
    StoreIdentity::read(&entry.value).ok().filter(|identity| identity.has_brakes).map(|_| entry.mod_revision)
}

/// Returns the freezes that would match the host; none in a store without brakes. Role and group are
/// those of the roster.
fn freeze_scopes(followed: &FollowedKeys, host: &HostName) -> Vec<FreezeScope> {
    if !has_brakes(followed) {
        return Vec::new();
    }
    let roster = roster(followed, host).unwrap_or_default();
    FreezeScope::of_host(host, roster.role.as_ref(), roster.group.as_ref())
}

/// Returns what the start transaction compares. `brakes` is what the host knows of freezes and limits,
/// and `rollout` follows from it.
pub fn start_guard(
    followed: &FollowedKeys,
    host: &HostName,
    target_revision: i64,
    brakes: Brakes<'_>,
    rollout: Option<RolloutGuard>,
) -> StartGuard {
    let target = followed.keys.get(&Key::CurrentVersion);
    let (scopes, roster_revision) = match brakes {
        // Scopes and limits must follow from the same roster entry.
        Brakes::Known(view) => (view.scopes.clone(), view.roster_revision),
        Brakes::Unasked | Brakes::Refused(..) => {
            (freeze_scopes(followed, host), followed.keys.revision_of(&Key::Host(host.clone())))
        }
    };
    StartGuard {
        target_revision,
        target_value: target.map(|entry| entry.value.clone()).unwrap_or_default(),
        rollout: if scopes.is_empty() { None } else { rollout },
        scopes,
        roster_revision,
    }
}

/// Returns what the store holds for the host: what the host last wrote, or what was read since.
/// `written` is the last write and its revision. `None` if both are older than the host's claim, because an
/// earlier claim may have written since, and in a store with brakes until the claims were read.
pub fn published(
    followed: &FollowedKeys,
    host: &HostName,
    written: Option<&(i64, Published)>,
    live_revision: i64,
) -> Option<Published> {
    match written {
        Some((at, published)) if *at > followed.read_revision && *at > live_revision => {
            Some(published.clone())
        }
        _ => {
            let has_claims =
                !has_brakes(followed) || followed.polled_also.contains(&Key::Claimed(host.clone()));
            let is_known = followed.read_revision >= live_revision && has_claims;
            is_known.then(|| read(followed, host))
        }
    }
}

/// Returns the claims and the ticket of the host: what it last wrote, or what was read since.
pub fn claims(followed: &FollowedKeys, host: &HostName, written: Option<&(i64, Published)>) -> FoundClaims {
    match written {
        Some((at, published)) if *at > followed.read_revision => published.claims.clone(),
        _ => FoundClaims::read(host, &followed.keys),
    }
}

/// Returns what a snapshot shows of the host's keys. Values that cannot be read count as missing, so
/// they are written again.
fn read(followed: &FollowedKeys, host: &HostName) -> Published {
    let keys = &followed.keys;
    let mut statuses = std::collections::BTreeMap::new();
    for kind in StatusType::of_agents() {
        for state in StatusState::ALL {
            let entry = keys.get(&Key::Status(kind.clone(), state, host.clone()));
            if let Some(record) = entry.and_then(|e| StatusRecord::read(&e.value).ok()) {
                statuses.insert((kind.clone(), state), record);
            }
        }
    }
    let report = keys.get(&Key::Report(host.clone()));
    Published {
        listing: listing(followed, host),
        statuses,
        report: report.and_then(|e| keys::Report::read(&e.value).ok()),
        report_revision: report.map_or(0, |e| e.mod_revision),
        claims: FoundClaims::read(host, keys),
    }
}

/// Returns the version that the host is listed under.
///
/// This is the version that the host announces, unless the last read polled the listing and showed
/// that it is missing or has another lease, which would not end with the host.
fn listing(followed: &FollowedKeys, host: &HostName) -> Option<Version> {
    let announced = followed.keys.get(&Key::Announced(host.clone()))?;
    let version = codec::read_version(&announced.value).ok()?;
    let key = Key::RunningVersion(version.clone(), host.clone());
    let is_listed = || followed.keys.get(&key).is_some_and(|listed| listed.lease == announced.lease);
    (!followed.polled_also.contains(&key) || is_listed()).then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::snapshot::Entry;

    fn check(read_at: i64, written_at: Option<i64>, live_revision: i64, expected: Option<&str>) {
        let host = HostName::new("h").unwrap();
        let (read, written) = (Version::new("read").unwrap(), Version::new("written").unwrap());
        let mut followed = FollowedKeys { read_revision: read_at, ..FollowedKeys::default() };
        let entry =
            Entry { value: read.as_str().into(), create_revision: 1, mod_revision: 1, lease: 1, version: 1 };
        followed.keys.entries.insert(Key::Announced(host.clone()).to_string(), entry);
        let written =
            written_at.map(|at| (at, Published { listing: Some(written.clone()), ..Published::default() }));
        let found = published(&followed, &host, written.as_ref(), live_revision);
        let found = found.map(|published| published.listing.expect("listed").to_string());
        assert_eq!(
            found.as_deref(),
            expected,
            "read {read_at}, written {written_at:?}, claim {live_revision}"
        );
    }

    #[test]
    fn the_newer_of_read_and_written_counts_unless_both_are_older_than_the_claim() {
        check(10, None, 5, Some("read"));
        check(10, Some(8), 5, Some("read"));
        check(10, Some(12), 5, Some("written"));
        // The name was claimed again since the write, under which another one may have written.
        check(10, Some(12), 14, None);
        check(15, Some(12), 14, Some("read"));
        check(10, None, 14, None);
        check(10, Some(16), 14, Some("written"));
    }
}
