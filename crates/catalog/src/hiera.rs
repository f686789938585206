//! The YAML file that Hiera reads (legacy contract).
//!
//! The entry `services::<service>::<interface>: [address, …]` contains one address of each host:
//! its first IPv4 address on this interface, or its first IPv6 address if it has no IPv4 address
//! there. The entry `services_all::<service>::<interface>` contains all addresses. Each entry is
//! one line; the lines are sorted by the whole key. IPv4 addresses are written without quotes and
//! everything else in single quotes, so that every YAML parser reads them as text. The file
//! contains only addresses, so a service that does not work stays in it.

use crate::guard::GuardSettings;
use crate::view::{ServiceView, View};
use schema::keys::service_key;
use schema::names::ServiceName;
use schema::records::read_interfaces;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

const FRONT: &str = "services::";
const FRONT_ALL: &str = "services_all::";
const EMPTY: &str = "{}\n";

/// The addresses of one interface on all hosts, in any order and possibly with duplicates.
#[derive(Debug, Default)]
struct Lists {
    /// One address of each host.
    first: Vec<IpAddr>,
    all: Vec<IpAddr>,
}

/// The addresses of a service, by interface.
type Addresses = BTreeMap<String, Lists>;

/// Adds the addresses of an interface of one host. They must be sorted, IPv4 first.
fn add(found: &mut Addresses, interface: &str, addresses: &[IpAddr]) {
    // Most interface names are known already; only a new one is copied.
    if !found.contains_key(interface) {
        found.insert(interface.to_owned(), Lists::default());
    }
    let Some(lists) = found.get_mut(interface) else { return };
    lists.first.extend(addresses.first());
    lists.all.extend_from_slice(addresses);
}

fn sort(found: &mut Addresses) {
    for list in found.values_mut().flat_map(|lists| [&mut lists.first, &mut lists.all]) {
        list.sort_unstable();
        list.dedup();
    }
}

/// Returns the addresses of a service that the file contains.
fn addresses_of(service: &ServiceView) -> Addresses {
    let mut found = Addresses::new();
    let instances = service.instances().values().filter(|instance| !instance.is_withdrawn());
    for (interface, addresses) in instances.flat_map(|instance| instance.record.interfaces.iter()) {
        add(&mut found, interface.as_str(), addresses);
    }
    sort(&mut found);
    found
}

/// One entry of the file for a service.
struct Entry<'a> {
    /// The prefix of the key.
    front: &'static str,
    interface: &'a str,
    addresses: &'a [IpAddr],
}

fn entries(found: &Addresses) -> impl Iterator<Item = Entry<'_>> {
    found.iter().flat_map(|(interface, lists)| {
        let entry = |front, addresses| Entry { front, interface: interface.as_str(), addresses };
        [entry(FRONT, &lists.first[..]), entry(FRONT_ALL, &lists.all[..])]
    })
}

/// Returns the entries of one service, by their keys.
pub fn hiera_entries(name: &ServiceName, service: &ServiceView) -> BTreeMap<String, Vec<IpAddr>> {
    let found = addresses_of(service);
    entries(&found).map(|entry| (entry.key(name), entry.addresses.to_vec())).collect()
}

/// Returns the service in the key of an entry; `None` if the key is not one of an entry.
pub fn service_of_entry(key: &str) -> Option<ServiceName> {
    service_behind(FRONT, key).or_else(|| service_behind(FRONT_ALL, key))
}

fn service_behind(front: &str, key: &str) -> Option<ServiceName> {
    // A service may have colons in its name, so the last `::` separates the interface.
    let (service, _) = key.strip_prefix(front)?.rsplit_once("::")?;
    ServiceName::new(service).ok()
}

impl Entry<'_> {
    fn key(&self, service: &ServiceName) -> String {
        format!("{}{service}::{}", self.front, self.interface)
    }
}

fn line_of(service: &ServiceName, entry: &Entry<'_>) -> String {
    let Entry { front, interface, addresses } = entry;
    // The capacity fits IPv4 addresses; the string grows for longer ones.
    let mut line = String::with_capacity(64 + 14 * addresses.len());
    // Writing to a string does not fail.
    let _ = write!(line, "{front}{service}::{interface}: [");
    for (index, address) in addresses.iter().enumerate() {
        line.push_str(if index == 0 { "" } else { ", " });
        match address {
            IpAddr::V4(ip) => push_ipv4(&mut line, *ip),
            IpAddr::V6(ip) => {
                let _ = write!(line, "'{ip}'");
            }
        }
    }
    line.push_str("]\n");
    line
}

/// Appends the address as `write!` would, but faster: most of the file consists of IPv4 addresses.
fn push_ipv4(line: &mut String, ip: Ipv4Addr) {
    for (index, octet) in ip.octets().into_iter().enumerate() {
        if index > 0 {
            line.push('.');
        }
        for unit in [100, 10] {
            if octet >= unit {
                line.push(char::from(b'0' + octet / unit % 10));
            }
        }
        line.push(char::from(b'0' + octet % 10));
    }
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

/// The file, rendered again and again from a changing catalog snapshot. Only the lines of services
/// that changed are made again.
#[derive(Debug, Default)]
pub struct HieraFile {
    services: BTreeMap<ServiceName, (Arc<ServiceView>, Vec<String>)>,
}

impl HieraFile {
    /// Returns the content of the file for this catalog snapshot.
    pub fn render(&mut self, view: &View) -> String {
        self.services.retain(|name, _| view.services().contains_key(name));
        for (name, service) in view.services() {
            let is_same = |(known, _): &(Arc<ServiceView>, _)| Arc::ptr_eq(known, service);
            if !self.services.get(name).is_some_and(is_same) {
                let lines = entries(&addresses_of(service)).map(|entry| line_of(name, &entry)).collect();
                self.services.insert(name.clone(), (service.clone(), lines));
            }
        }
        file_of(self.services.values().flat_map(|(_, lines)| lines).map(String::as_str))
    }
}

/// The addresses of all records in the store, for the file.
#[derive(Debug, Default)]
pub struct StoredAddresses {
    services: Vec<(ServiceName, Addresses)>,
    /// Number of entries that were refused: their key or record cannot be read, or the record names
    /// another host.
    pub refused: usize,
}

impl StoredAddresses {
    /// Adds entries of the store. They must be in the order of the store, so that those of one
    /// service follow each other.
    // Takes a trait object so that the code is compiled once, in this crate, which is optimised for
    // speed, and not in the command, which is optimised for size.
    pub fn add<'a>(&mut self, entries: &mut dyn Iterator<Item = (&'a str, &'a [u8])>) {
        for (key, value) in entries {
            let is_taken =
                service_key(key).is_some_and(|(service, host)| self.add_record(service, host, value));
            self.refused += usize::from(!is_taken);
        }
    }

    fn add_record(&mut self, service: &str, host: &str, value: &[u8]) -> bool {
        if self.services.last().is_none_or(|(name, _)| name.as_str() != service) {
            let Ok(name) = ServiceName::new(service) else { return false };
            self.services.push((name, Addresses::new()));
        }
        let Some((_, found)) = self.services.last_mut() else { return false };
        read_interfaces(host, value, |interface, addresses| add(found, interface, addresses))
    }

    /// Sorts the addresses. It must be called after the last entry was added.
    pub fn sort(&mut self) {
        self.services.iter_mut().for_each(|(_, found)| sort(found));
    }

    /// Returns the file that Hiera reads.
    pub fn hiera_yaml(&self) -> String {
        let lines: Vec<String> = self.lines().map(|(service, entry)| line_of(service, &entry)).collect();
        file_of(lines.iter().map(String::as_str))
    }

    /// Returns the entries of the file as a map.
    pub fn hiera_entries(&self) -> BTreeMap<String, &[IpAddr]> {
        self.lines().map(|(service, entry)| (entry.key(service), entry.addresses)).collect()
    }

    fn lines(&self) -> impl Iterator<Item = (&ServiceName, Entry<'_>)> {
        self.services
            .iter()
            .flat_map(|(service, addresses)| entries(addresses).map(move |entry| (service, entry)))
    }
}

/// Returns the services that would lose so many addresses in the new file that a fault is more
/// likely than the truth. Each comes with the number of addresses that it would lose and the number
/// that it has in the old file.
pub fn vanished_entries(old: &str, new: &str, guard: &GuardSettings) -> Vec<(ServiceName, usize, usize)> {
    let kept: HashSet<&str> = new.lines().collect();
    let now: BTreeMap<&str, &str> = new.lines().filter_map(|line| line.split_once(": [")).collect();
    // By service: the number of lost addresses, and the number of addresses before.
    let mut services: BTreeMap<ServiceName, (usize, usize)> = BTreeMap::new();
    for line in old.lines() {
        let Some((key, list)) = line.split_once(": [") else { continue };
        // The entries with all addresses would count each loss a second time.
        let Some(service) = service_behind(FRONT, key) else { continue };
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
    // Small losses of many services can be a large loss in all.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_stand_as_they_are_always_written() {
        for octet in 0..=255 {
            let ip = Ipv4Addr::new(octet, 0, 255 - octet, octet);
            let mut line = String::new();
            push_ipv4(&mut line, ip);
            assert_eq!(line, ip.to_string());
        }
    }
}
