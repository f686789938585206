//! The keys that each kind of store user may read and write. The command that enrolls users prints
//! exactly these permissions, so that the manual and the program cannot differ.

use crate::keys::{Key, Prefix};
use crate::names::{HostName, ServiceName, StatusType};
use crate::reads::Keys;
use std::collections::BTreeSet;
use std::fmt;

/// What a grant permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Read and watch.
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
    let read = [
        Keys::One(Key::CurrentVersion),
        Keys::One(Key::Store),
        Keys::One(Key::DropStale),
        Keys::Below(Prefix::Hosts),
        // The addresses of hosts without a service.
        Keys::Below(Prefix::Lives),
        // Whether a rollout has ended.
        Keys::Below(Prefix::Announced),
        Keys::Below(Prefix::Services),
        Keys::Below(Prefix::HealthAll),
        // A step that drains its host must know whether another host goes on serving.
        Keys::Below(Prefix::Maintenances),
        Keys::Below(Prefix::Config),
        // Scripts on the host ask whether they may run.
        Keys::Below(Prefix::ConfigState),
        Keys::Below(Prefix::ConfigVersion),
        // The start of an update compares them.
        Keys::Below(Prefix::Freezes),
        Keys::One(Key::RolloutPolicy),
        // The record of a rollout names who asked for it.
        Keys::One(Key::Trigger),
    ];
    // Any host can hold any number of a limit, wait in any queue, write the record of a rollout, and end
    // the claims of a host that vanished.
    let written = [
        Prefix::RunningVersions,
        Prefix::Rollouts,
        Prefix::Progress,
        Prefix::Claims,
        Prefix::Claimed,
        Prefix::Queues,
        Prefix::Lost,
    ];
    [grant(Access::Read, read), grant(Access::ReadWrite, written.map(Keys::Below))].concat()
}

/// Returns the grants that only the agent of this host, and commands in its steps, need. Every service of the host
/// has two keys of its own.
pub fn agent(host: &HostName, services: &BTreeSet<ServiceName>) -> Vec<Grant> {
    let read = [Keys::One(Key::Retry(host.clone()))];
    let mut written = vec![
        Key::Maintenance(host.clone()),
        Key::Host(host.clone()),
        Key::Live(host.clone()),
        Key::Announced(host.clone()),
        Key::Report(host.clone()),
        Key::NameClash(host.clone()),
    ];
    for kind in StatusType::of_agents() {
        written.extend(Key::statuses(&kind, host));
        written.push(Key::Reporting(kind, host.clone()));
    }
    for service in services {
        written.push(Key::Service(service.clone(), host.clone()));
        written.push(Key::Health(service.clone(), host.clone()));
    }
    let written = written.into_iter().map(Keys::One).chain([Keys::Below(Prefix::EventsOf(host.clone()))]);
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
