//! Which hosts a freeze matches. While one that matches a host stands in the store, the host starts no
//! update.

use crate::names::{HostName, Role};
use std::fmt;

/// The hosts that a freeze matches.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FreezeScope {
    Fleet,
    /// The hosts of a role.
    Role(Role),
    /// The hosts of a group.
    Group(Role),
    Host(HostName),
    /// Every host. Only `rollout resume` removes it.
    Pause,
}

impl fmt::Display for FreezeScope {
    /// Writes the scope as operators read it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fleet => f.write_str("the fleet"),
            Self::Role(role) => write!(f, "role {role}"),
            Self::Group(group) => write!(f, "group {group}"),
            Self::Host(host) => write!(f, "host {host}"),
            Self::Pause => f.write_str("pause"),
        }
    }
}

impl FreezeScope {
    /// Returns the part of a key that names the scope. Programs use it too.
    pub fn path(&self) -> String {
        match self {
            Self::Fleet => "fleet".into(),
            Self::Role(role) => format!("role/{role}"),
            Self::Group(group) => format!("group/{group}"),
            Self::Host(host) => format!("host/{host}"),
            Self::Pause => "pause".into(),
        }
    }

    /// Returns the scopes that match a host. Role and group are those of its roster entry.
    pub fn of_host(host: &HostName, role: Option<&Role>, group: Option<&Role>) -> Vec<Self> {
        let mut scopes = vec![Self::Fleet, Self::Pause, Self::Host(host.clone())];
        scopes.extend(role.cloned().map(Self::Role));
        scopes.extend(group.cloned().map(Self::Group));
        scopes
    }
}
