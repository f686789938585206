//! Freezes of some hosts, as one that decides for others sees them.

use schema::freeze::FreezeScope;
use schema::frozen::FrozenBy;
use schema::names::HostName;
use schema::records::RosterEntry;
use schema::snapshot::KeySnapshot;

/// The freezes of single hosts, roles and groups. Those of the whole fleet end some time, and no host is better off than
/// another one.
pub(super) struct FrozenHosts(Vec<FrozenBy>);

impl FrozenHosts {
    /// `found` holds all freezes.
    pub(super) fn read(found: &KeySnapshot) -> Self {
        let is_of_some = |frozen: &FrozenBy| !matches!(frozen.scope, FreezeScope::Fleet | FreezeScope::Pause);
        Self(FrozenBy::all(found).filter(is_of_some).collect())
    }

    /// Returns the first freeze that matches a host.
    pub(super) fn of(&self, host: &HostName, roster: &RosterEntry) -> Option<&FrozenBy> {
        let scopes = FreezeScope::of_host(host, roster.role.as_ref(), roster.group.as_ref());
        self.0.iter().find(|frozen| scopes.contains(&frozen.scope))
    }
}
