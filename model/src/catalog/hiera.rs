//! The YAML that Hiera reads (contract C22): `services::<service>::<interface>: [address, …]`, one line each, sorted
//! by the whole key. IPv4 stands plain, everything else in single quotes, so that every reader of YAML takes it
//! for text. Only addresses are in it: a service that does not work keeps its place.

use super::{GuardSettings, ServiceRecord, ServiceView, View};
use crate::keys::service_key;
use crate::names::{HostName, InterfaceName, ServiceName};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write;
use std::net::IpAddr;
use std::sync::Arc;

const FRONT: &str = "services::";
const EMPTY: &str = "{}\n";

/// The addresses of a service by interface, in any order and perhaps more than once.
type Addresses = BTreeMap<InterfaceName, Vec<IpAddr>>;

fn add(found: &mut Addresses, record: &ServiceRecord) {
    for (interface, addresses) in record.interfaces.iter() {
        match found.get_mut(interface) {
            Some(known) => known.extend_from_slice(addresses),
            None => drop(found.insert(interface.clone(), addresses.to_vec())),
        }
    }
}

fn sort(found: &mut Addresses) {
    for addresses in found.values_mut() {
        addresses.sort_unstable();
        addresses.dedup();
    }
}

fn line_of(service: &ServiceName, interface: &InterfaceName, addresses: &[IpAddr]) -> String {
    // As long as IPv4 makes it; it grows where that is too little.
    let mut line = String::with_capacity(64 + 14 * addresses.len());
    // Writing to a string does not fail.
    let _ = write!(line, "{FRONT}{service}::{interface}: [");
    for (index, address) in addresses.iter().enumerate() {
        line.push_str(if index == 0 { "" } else { ", " });
        let _ = match address {
            IpAddr::V4(ip) => write!(line, "{ip}"),
            IpAddr::V6(ip) => write!(line, "'{ip}'"),
        };
    }
    line.push_str("]\n");
    line
}

fn key_of(line: &str) -> &str {
    line.split_once(": [").map_or(line, |(key, _)| key)
}

fn file_of<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let mut lines: Vec<&str> = lines.collect();
    if lines.is_empty() {
        return EMPTY.into();
    }
    lines.sort_by_key(|line| key_of(line));
    lines.concat()
}

/// The file of a view that changes now and then: only lines of services that differ are made anew.
#[derive(Debug, Default)]
pub struct HieraFile {
    services: BTreeMap<ServiceName, (Arc<ServiceView>, Vec<String>)>,
}

impl HieraFile {
    /// The file as it should be now.
    pub fn render(&mut self, view: &View) -> String {
        self.services.retain(|name, _| view.services().contains_key(name));
        for (name, service) in view.services() {
            let is_same = |(known, _): &(Arc<ServiceView>, _)| Arc::ptr_eq(known, service);
            if !self.services.get(name).is_some_and(is_same) {
                let mut found = Addresses::new();
                let instances = service.instances().values().filter(|instance| !instance.is_withdrawn());
                instances.for_each(|instance| add(&mut found, &instance.record));
                sort(&mut found);
                let lines = found.iter().map(|(interface, list)| line_of(name, interface, list)).collect();
                self.services.insert(name.clone(), (service.clone(), lines));
            }
        }
        file_of(self.services.values().flat_map(|(_, lines)| lines).map(String::as_str))
    }
}

/// The addresses of all records in the store, as the file shows them.
#[derive(Debug, Default)]
pub struct StoredAddresses {
    services: BTreeMap<ServiceName, Addresses>,
    /// Records that cannot be read, or are not of their host.
    pub refused: usize,
}

impl StoredAddresses {
    /// Reads keys and values as the store has them.
    // Not generic, so that it is made here, for speed, and not in the command, for size.
    pub fn read<'a>(entries: &mut dyn Iterator<Item = (&'a str, &'a [u8])>) -> Self {
        let mut found = Self::default();
        // Those of one service stand beside each other.
        let mut last: Option<(ServiceName, Addresses)> = None;
        for (key, value) in entries {
            let read = service_key(key).and_then(|(service, host)| {
                let host = HostName::new(host).ok()?;
                Some((service, ServiceRecord::read(&host, value).ok()?))
            });
            let Some((service, record)) = read else {
                found.refused += 1;
                continue;
            };
            if let Some((_, addresses)) = last.as_mut().filter(|(name, _)| name.as_str() == service) {
                add(addresses, &record);
            } else if let Ok(service) = ServiceName::new(service) {
                let mut addresses = Addresses::new();
                add(&mut addresses, &record);
                found.services.extend(last.replace((service, addresses)));
            } else {
                found.refused += 1;
            }
        }
        found.services.extend(last);
        found.services.values_mut().for_each(sort);
        found
    }

    /// The file that Hiera reads.
    pub fn hiera_yaml(&self) -> String {
        let lines: Vec<String> =
            self.lines().map(|(service, interface, list)| line_of(service, interface, list)).collect();
        file_of(lines.iter().map(String::as_str))
    }

    /// The same as a map.
    pub fn hiera_entries(&self) -> BTreeMap<String, &[IpAddr]> {
        let entry = |(service, interface, list)| (format!("{FRONT}{service}::{interface}"), list);
        self.lines().map(entry).collect()
    }

    fn lines(&self) -> impl Iterator<Item = (&ServiceName, &InterfaceName, &[IpAddr])> {
        self.services.iter().flat_map(|(service, addresses)| {
            addresses.iter().map(move |(interface, list)| (service, interface, list.as_slice()))
        })
    }
}

/// The services of which a new file would lose so much against the old one that a fault is likelier than
/// the truth, each with how many addresses it loses and how many it had.
pub fn vanished_entries(old: &str, new: &str, guard: &GuardSettings) -> Vec<(ServiceName, usize, usize)> {
    let kept: HashSet<&str> = new.lines().collect();
    let now: BTreeMap<&str, &str> = new.lines().filter_map(|line| line.split_once(": [")).collect();
    // By service: how many are lost, and how many there were.
    let mut services: BTreeMap<ServiceName, (usize, usize)> = BTreeMap::new();
    for line in old.lines() {
        let Some((key, list)) = line.split_once(": [") else { continue };
        // A service may have colons in its name, an interface has none.
        let named = key.strip_prefix(FRONT).and_then(|rest| rest.rsplit_once("::"));
        let Some(service) = named.and_then(|(service, _)| ServiceName::new(service).ok()) else { continue };
        let (lost, had) = services.entry(service).or_default();
        let before = addresses_in(list);
        *had += before.len();
        if !kept.contains(line) {
            let after = now.get(key).map(|list| addresses_in(list)).unwrap_or_default();
            *lost += before.difference(&after).count();
        }
    }
    let (lost_in_all, had_in_all) =
        services.values().fold((0, 0), |(lost, had), service| (lost + service.0, had + service.1));
    // Many services that lose little each lose much together.
    let all = guard.is_cliff(lost_in_all, had_in_all);
    services
        .into_iter()
        .filter(|(_, (lost, had))| *lost > 0 && (all || guard.is_cliff(*lost, *had)))
        .map(|(service, (lost, had))| (service, lost, had))
        .collect()
}

fn addresses_in(list: &str) -> BTreeSet<IpAddr> {
    let list = list.trim_end_matches(']').split(", ");
    list.filter_map(|text| text.trim_matches('\'').parse().ok()).collect()
}
