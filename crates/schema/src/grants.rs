//! Which keys each kind of user of the store may read and write. What enrolls users prints exactly this, so that the
//! manual and the program cannot drift apart.

use crate::keys::{Key, Prefix, StatusState};
use crate::names::{HostName, ServiceName, StatusType};
use std::collections::BTreeSet;
use std::fmt;

/// What may be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Read and watch.
    Read,
    /// That, and put and delete.
    ReadWrite,
}

impl fmt::Display for Access {
    /// As etcdctl calls it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::ReadWrite => "readwrite",
        })
    }
}

/// On what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Keys {
    /// One key.
    One(Key),
    /// Everything that begins like this.
    Below(Prefix),
}

/// One permission of a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// What may be done.
    pub access: Access,
    /// On what.
    pub keys: Keys,
}

fn grant(access: Access, keys: impl IntoIterator<Item = Keys>) -> Vec<Grant> {
    keys.into_iter().map(|keys| Grant { access, keys }).collect()
}

/// What every agent needs alike. The listing of a version cannot be granted host by host, because the version stands before
/// the host; what a host says of itself there is compared with its own key by `verify_hosts --strict`.
pub fn every_agent() -> Vec<Grant> {
    let read = [
        Keys::One(Key::CurrentVersion),
        Keys::One(Key::Store),
        Keys::One(Key::DropStale),
        Keys::Below(Prefix::Hosts),
        // Where hosts without a service are.
        Keys::Below(Prefix::Lives),
        Keys::Below(Prefix::Services),
        Keys::Below(Prefix::HealthAll),
        Keys::Below(Prefix::Config),
    ];
    [grant(Access::Read, read), grant(Access::ReadWrite, [Keys::Below(Prefix::RunningVersions)])].concat()
}

/// What only the agent of this host needs: exact keys. A service of the host is two keys of its own.
pub fn agent(host: &HostName, services: &BTreeSet<ServiceName>) -> Vec<Grant> {
    let read = [Keys::One(Key::Retry(host.clone())), Keys::One(Key::Maintenance(host.clone()))];
    let mut written = vec![
        Key::Host(host.clone()),
        Key::Live(host.clone()),
        Key::Announced(host.clone()),
        Key::Report(host.clone()),
    ];
    for kind in StatusType::of_agents() {
        written.extend(StatusState::ALL.map(|state| Key::Status(kind.clone(), state, host.clone())));
        written.push(Key::Reporting(kind, host.clone()));
    }
    for service in services {
        written.push(Key::Service(service.clone(), host.clone()));
        written.push(Key::Health(service.clone(), host.clone()));
    }
    [grant(Access::Read, read), grant(Access::ReadWrite, written.into_iter().map(Keys::One))].concat()
}

/// Everything that this program keeps in the store.
fn all(access: Access) -> Vec<Grant> {
    let ones = [Key::CurrentVersion, Key::Store, Key::DropStale].map(Keys::One);
    let below = [
        Prefix::RunningVersions,
        Prefix::Statuses,
        Prefix::Services,
        Prefix::HealthAll,
        Prefix::Hosts,
        Prefix::Lives,
        Prefix::Announced,
        Prefix::Reports,
        Prefix::Retries,
        Prefix::ReportingAll,
        Prefix::Maintenances,
        Prefix::Config,
    ];
    grant(access, ones.into_iter().chain(below.map(Keys::Below)))
}

/// What an operator's command needs: a host that is taken out goes with everything that it wrote.
pub fn operator() -> Vec<Grant> {
    all(Access::ReadWrite)
}

/// What somebody needs who only looks.
pub fn verifier() -> Vec<Grant> {
    all(Access::Read)
}
