//! An instance in the form that templates and Puppet read.

use crate::instance::Instance;
use schema::names::{HostName, Tag};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// An instance in the form that templates and Puppet read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InstanceView<'a> {
    /// Name of the host.
    pub host: &'a HostName,
    /// The address that other hosts should use, if the instance has one.
    pub address: Option<IpAddr>,
    /// All addresses of the instance, the preferred one first.
    pub addresses: &'a [IpAddr],
    /// Port of the service, if it has one.
    pub port: Option<u16>,
    /// Tags of the instance.
    pub tags: &'a BTreeSet<Tag>,
    /// Metadata of the instance. Control characters are replaced by blanks: text from another host
    /// must not begin a new line in a file of this host.
    pub meta: BTreeMap<&'a str, String>,
    /// Health in one word, as [`Instance::health_str`] returns it.
    pub health: &'static str,
}

impl<'a> InstanceView<'a> {
    /// Returns the view of the instance on a host.
    pub fn new(host: &'a HostName, instance: &'a Instance) -> Self {
        let record = &instance.record;
        let plain = |text: &str| text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        Self {
            host,
            address: record.addresses.first().copied(),
            addresses: &record.addresses,
            port: record.port,
            tags: &record.tags,
            meta: record.meta.iter().map(|(name, text)| (name.as_str(), plain(text))).collect(),
            health: instance.health_str(),
        }
    }
}
