//! An instance as others see it: templates, and Puppet.

use crate::instance::Instance;
use schema::names::{HostName, Tag};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// An instance as others see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InstanceView<'a> {
    /// Its host.
    pub host: &'a HostName,
    /// The address that others should use, if it has one.
    pub address: Option<IpAddr>,
    /// All of its addresses, the best first.
    pub addresses: &'a [IpAddr],
    /// Its port.
    pub port: Option<u16>,
    /// Its tags.
    pub tags: &'a BTreeSet<Tag>,
    /// Free values. Without control characters: text of another host must not begin a new line in a file of this one.
    pub meta: BTreeMap<&'a str, String>,
    /// Its state in one word.
    pub health: &'static str,
}

impl<'a> InstanceView<'a> {
    /// The instance on a host.
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
