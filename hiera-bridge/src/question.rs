//! The questions of Puppet, and the content of an answer.

use schema::health::Level;
use schema::names::{ConfigName, InterfaceName, ServiceName, Tag};
use serde::Deserialize;
use serde_json::Value;
use std::net::IpAddr;

/// A question, as JSON: `{"ask": "addresses", "name": "web", "interface": "eth0"}`.
#[derive(Debug, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub(crate) enum Question {
    /// The instances of a service.
    Services(Which),
    /// The first address of each instance, sorted; with an interface, all addresses of that
    /// interface.
    Addresses {
        #[serde(flatten)]
        which: Which,
        interface: Option<InterfaceName>,
    },
    /// The hosts of a role, sorted: those that have the service with the role's name.
    Hosts { role: ServiceName },
    /// Whether a service has at least `count` instances. With `live` the agent is asked.
    Ready {
        #[serde(flatten)]
        which: Which,
        count: usize,
        #[serde(default)]
        live: bool,
    },
    /// The addresses of a name in the agent's zone, sorted.
    Dns { name: String },
    /// Host and port of each instance behind a name in the agent's zone, sorted.
    Srv { name: String },
    /// The DNS name of the host that has an address.
    Reverse { address: IpAddr },
    /// One key of the file for Hiera: `services::<service>::<interface>`, or `services_all::…`
    /// (legacy contract).
    Entry { key: String },
    /// All keys of the file for Hiera, with their addresses.
    Entries,
    /// A value that operators keep in the store. The agent is asked.
    Key { name: ConfigName },
}

/// Selects instances of a service.
#[derive(Debug, Deserialize)]
pub(crate) struct Which {
    pub(crate) name: ServiceName,
    /// Level of the instances. The default is addressable where addresses are asked for, because a
    /// file that depends on health should be written by a tool that follows the catalog. It is
    /// functional for `ready`.
    pub(crate) level: Option<Level>,
    pub(crate) tag: Option<Tag>,
}

/// A value and its age.
pub(crate) struct Answer {
    /// The value; `None` if it does not exist.
    pub(crate) value: Option<Value>,
    /// The revision of the store.
    pub(crate) revision: i64,
    /// Number of seconds for which the store has not confirmed the value.
    pub(crate) age_seconds: u64,
}
