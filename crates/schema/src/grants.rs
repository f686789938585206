//! The keys that each kind of store user may read and write. The command that enrolls users prints
//! exactly these permissions, so that the manual and the program cannot differ. Those of agents come from the table of
//! keys.

use crate::keys::{Agents, DocumentedKey, Key, Prefix, documented};
use crate::names::{HostName, ServiceName, StatusType};
use crate::reads::Keys;
use std::collections::BTreeSet;
use std::fmt;

/// What a grant permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Read,
    /// Read, watch, put and delete.
    ReadWrite,
}

impl fmt::Display for Access {
    /// Writes the name that etcdctl uses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::ReadWrite => "readwrite",
        })
    }
}

/// One permission of a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// What the grant permits.
    pub access: Access,
    /// The keys that the grant covers.
    pub keys: Keys,
}

fn grant(access: Access, keys: impl IntoIterator<Item = Keys>) -> Vec<Grant> {
    keys.into_iter().map(|keys| Grant { access, keys }).collect()
}

/// Returns the grants that all agents share. The listing cannot be granted host by host, because
/// the version comes before the host in its key. `verify_hosts --strict` therefore compares the
/// listing with the key under which the host itself announces its version.
pub fn every_agent() -> Vec<Grant> {
    let (mut read, mut written) = (Vec::new(), Vec::new());
    for DocumentedKey { path, row } in documented() {
        let of_kind = match (row.agents_read, row.agents_write) {
            (_, Agents::All) => &mut written,
            (Agents::All, _) => &mut read,
            _ => continue,
        };
        let single = Key::singles().into_iter().find(|key| key.to_string() == path).map(Keys::One);
        let keys = single.or_else(|| Prefix::holding(&path).map(Keys::Below));
        of_kind.extend(keys.filter(|keys| !of_kind.contains(keys)));
    }
    [grant(Access::Read, read), grant(Access::ReadWrite, written)].concat()
}

/// Returns the grants that only the agent of this host, and commands in its steps, need. Every service of the host
/// has two keys of its own.
pub fn agent(host: &HostName, services: &BTreeSet<ServiceName>) -> Vec<Grant> {
    let mut own = Key::of_host(host);
    for kind in StatusType::of_agents() {
        own.extend(Key::statuses(&kind, host));
        own.push(Key::Reporting(kind, host.clone()));
    }
    for service in services {
        own.push(Key::Service(service.clone(), host.clone()));
        own.push(Key::Health(service.clone(), host.clone()));
    }
    let (mut read, mut written) = (Vec::new(), Vec::new());
    for key in own {
        let row = key.row();
        match (row.agents_read, row.agents_write) {
            (_, Agents::Own) => written.push(Keys::One(key)),
            (Agents::Own, _) => read.push(Keys::One(key)),
            _ => {}
        }
    }
    written.push(Keys::Below(Prefix::EventsOf(host.clone())));
    [grant(Access::Read, read), grant(Access::ReadWrite, written)].concat()
}

/// Returns what an agent needs that may let the fleet go back to a version that worked.
pub fn roll_back() -> Vec<Grant> {
    grant(Access::ReadWrite, [Key::CurrentVersion, Key::Trigger].map(Keys::One))
}

/// Returns the grants that an operator's commands need: everything that this program keeps in the store.
/// Decommissioning a host deletes everything that the host wrote. The parts are those that an observer reads, because
/// etcd refuses a watch of a range that several grants make up.
pub fn operator() -> Vec<Grant> {
    grant(Access::ReadWrite, Keys::all())
}

/// Returns the grants of a user who only reads, for example of an observer.
pub fn verifier() -> Vec<Grant> {
    grant(Access::Read, Keys::all())
}
