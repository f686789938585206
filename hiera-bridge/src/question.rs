//! What Puppet asks, and what an answer holds.

use schema::health::Level;
use schema::names::{ConfigName, InterfaceName, ServiceName, Tag};
use serde::Deserialize;
use serde_json::Value;
use std::net::IpAddr;

/// One question, as JSON: `{"ask": "addresses", "name": "web", "interface": "eth0"}`.
#[derive(Debug, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub(crate) enum Question {
    /// The instances of a service.
    Services(Which),
    /// Their addresses, sorted; with an interface all that the interface has.
    Addresses {
        #[serde(flatten)]
        which: Which,
        interface: Option<InterfaceName>,
    },
    /// The hosts of a role, sorted: those that have the service of its name.
    Hosts { role: ServiceName },
    /// Whether so many instances are there; `live` asks the agent.
    Ready {
        #[serde(flatten)]
        which: Which,
        count: usize,
        #[serde(default)]
        live: bool,
    },
    /// The addresses of a name of our zone, sorted.
    Dns { name: String },
    /// Host and port of each instance behind a name of our zone, sorted.
    Srv { name: String },
    /// The name of an address.
    Reverse { address: IpAddr },
    /// One key of the file for Hiera (contract C22): `services::<service>::<interface>`, or `services_all::…`.
    Entry { key: String },
    /// All of them.
    Entries,
    /// A value that operators keep in the store; the agent is asked.
    Key { name: ConfigName },
}

/// Which instances of a service.
#[derive(Debug, Deserialize)]
pub(crate) struct Which {
    pub(crate) name: ServiceName,
    /// If it is not given: addressable where addresses are asked for, because a file that follows health belongs to
    /// who follows the catalog; functional for `ready`.
    pub(crate) level: Option<Level>,
    pub(crate) tag: Option<Tag>,
}

/// What there is, as of when.
pub(crate) struct Answer {
    /// `None`: there is no such thing.
    pub(crate) value: Option<Value>,
    /// The revision of the store.
    pub(crate) revision: i64,
    /// For how long the store has not confirmed it.
    pub(crate) age_seconds: u64,
}
