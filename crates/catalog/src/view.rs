//! The catalog snapshot that consumers see. Cloning is cheap, because clones share what did not
//! change.

use crate::instance::Instance;
use schema::digest::Digest;
use schema::health::Level;
use schema::names::{HostName, ServiceName, Tag};
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;

/// A service and its instances.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServiceView {
    instances: BTreeMap<HostName, Arc<Instance>>,
}

impl ServiceView {
    /// Returns all instances, by host.
    pub fn instances(&self) -> &BTreeMap<HostName, Arc<Instance>> {
        &self.instances
    }

    /// Returns the instances that count at a level and have the tag, if one is given.
    pub fn at<'a>(
        &'a self,
        level: Level,
        tag: Option<&'a Tag>,
    ) -> impl Iterator<Item = (&'a HostName, &'a Instance)> {
        self.instances
            .iter()
            .map(|(host, instance)| (host, instance.as_ref()))
            .filter(move |(_, i)| i.is_at(level) && tag.is_none_or(|tag| i.record.tags.contains(tag)))
    }
}

/// Number of parts of a map. With this number, a change copies only a small part of 100,000
/// entries.
const PARTS: usize = 256;

/// A map that is split into parts by the hash of the key. Clones share the parts that do not
/// differ.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Parts<K: Ord, V>(Box<[Arc<BTreeMap<K, V>>]>);

impl<K: Ord, V> Default for Parts<K, V> {
    fn default() -> Self {
        let empty = Arc::default();
        Self((0..PARTS).map(|_| Arc::clone(&empty)).collect())
    }
}

impl<K: Ord + Hash + Clone, V: Clone + Default> Parts<K, V> {
    fn part(key: &K) -> usize {
        // This hasher always has the same keys, so equal maps have equal parts.
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        hasher.finish() as usize % PARTS
    }

    fn get_key_value(&self, key: &K) -> Option<(&K, &V)> {
        self.0[Self::part(key)].get_key_value(key)
    }

    fn get(&self, key: &K) -> Option<&V> {
        self.get_key_value(key).map(|(_, value)| value)
    }

    fn change(&mut self, key: &K) -> &mut BTreeMap<K, V> {
        Arc::make_mut(&mut self.0[Self::part(key)])
    }

    fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.change(key).get_mut(key)
    }

    fn entry(&mut self, key: &K) -> &mut V {
        self.change(key).entry(key.clone()).or_default()
    }

    fn remove(&mut self, key: &K) {
        self.change(key).remove(key);
    }

    fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.iter().flat_map(|part| part.keys())
    }
}

/// Number of occurrences of each text.
type Counts = Parts<String, u32>;

impl Counts {
    fn has(&self, text: &str) -> bool {
        self.get(&text.to_owned()).is_some()
    }

    fn count_in(&mut self, text: String) {
        *self.entry(&text) += 1;
    }

    fn count_out(&mut self, text: String) {
        let Some(count) = self.get_mut(&text) else { return };
        *count -= 1;
        if *count == 0 {
            self.remove(&text);
        }
    }
}

/// Returns the domains that contain the name of a host, in lower case: `b.c` and `c` for `a.B.c`.
fn domains(host: &HostName) -> impl Iterator<Item = String> {
    let name = host.as_str();
    name.match_indices('.').map(|(at, _)| name[at + 1..].to_ascii_lowercase())
}

/// Hosts and their addresses, from the records.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Nodes {
    /// The addresses of each host, sorted, with the number of its records that contain the address.
    by_host: Parts<HostName, Vec<(IpAddr, u32)>>,
    /// The hosts that claim each address, sorted.
    by_address: Parts<IpAddr, Vec<HostName>>,
    /// Hosts whose names are not in lower case, by their names in lower case.
    folded: BTreeMap<String, HostName>,
    /// The domains that contain names of hosts, in lower case.
    domains: Counts,
}

impl Nodes {
    /// Returns the addresses of a host.
    pub fn addresses(&self, host: &HostName) -> impl Iterator<Item = IpAddr> {
        self.by_host.get(host).into_iter().flatten().map(|(address, _)| *address)
    }

    /// Returns the host of an address; the first by name if several hosts claim it.
    pub fn host_of(&self, address: &IpAddr) -> Option<&HostName> {
        self.by_address.get(address)?.first()
    }

    /// Returns a host by its name in lower case.
    pub fn host_folded(&self, name: &str) -> Option<&HostName> {
        let host_name = HostName::new(name).ok()?;
        if let Some((host, _)) = self.by_host.get_key_value(&host_name) {
            return Some(host);
        }
        let folded = self.folded.get(name)?;
        self.by_host.get_key_value(folded).map(|(host, _)| host)
    }

    /// True if this domain, which is in lower case, contains names of hosts.
    pub fn is_domain(&self, name: &str) -> bool {
        self.domains.has(name)
    }

    /// Returns all hosts that have an address.
    pub fn hosts(&self) -> BTreeSet<&HostName> {
        self.by_host.keys().collect()
    }

    fn add(&mut self, host: &HostName, instance: &Instance) {
        if host.as_str().bytes().any(|b| b.is_ascii_uppercase()) {
            self.folded.insert(host.as_str().to_ascii_lowercase(), host.clone());
        }
        for address in &instance.record.addresses {
            let addresses = self.by_host.entry(host);
            if addresses.is_empty() {
                domains(host).for_each(|domain| self.domains.count_in(domain));
            }
            match addresses.binary_search_by_key(address, |(ip, _)| *ip) {
                Ok(at) => addresses[at].1 += 1,
                Err(at) => addresses.insert(at, (*address, 1)),
            }
            let hosts = self.by_address.entry(address);
            if let Err(at) = hosts.binary_search(host) {
                hosts.insert(at, host.clone());
            }
        }
    }

    fn remove(&mut self, host: &HostName, instance: &Instance) {
        for address in &instance.record.addresses {
            let Some(addresses) = self.by_host.get_mut(host) else { continue };
            let Ok(at) = addresses.binary_search_by_key(address, |(ip, _)| *ip) else { continue };
            addresses[at].1 -= 1;
            if addresses[at].1 > 0 {
                continue;
            }
            addresses.remove(at);
            if addresses.is_empty() {
                self.by_host.remove(host);
                domains(host).for_each(|domain| self.domains.count_out(domain));
                self.folded.retain(|_, other| other != host);
            }
            if let Some(hosts) = self.by_address.get_mut(address) {
                hosts.retain(|other| other != host);
                if hosts.is_empty() {
                    self.by_address.remove(address);
                }
            }
        }
    }
}

/// The catalog snapshot, as it is served.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct View {
    services: Arc<BTreeMap<ServiceName, Arc<ServiceView>>>,
    /// Services whose names are not in lower case, by their names in lower case, because DNS
    /// ignores case.
    folded: Arc<BTreeMap<String, ServiceName>>,
    /// The tags of services that have a DNS name, in lower case.
    tags: Arc<Counts>,
    nodes: Arc<Nodes>,
    records_known: bool,
    health_known: Arc<BTreeSet<ServiceName>>,
}

impl View {
    /// Returns all services, by name.
    pub fn services(&self) -> &BTreeMap<ServiceName, Arc<ServiceView>> {
        &self.services
    }

    pub fn service(&self, name: &ServiceName) -> Option<&ServiceView> {
        self.services.get(name).map(AsRef::as_ref)
    }

    /// Returns one service by its name in lower case.
    pub fn service_folded(&self, name: &str) -> Option<(&ServiceName, &ServiceView)> {
        let name = match self.folded.get(name) {
            Some(name) => name.clone(),
            None => ServiceName::new(name).ok()?,
        };
        self.services.get_key_value(&name).map(|(name, service)| (name, service.as_ref()))
    }

    /// True if a service that has a DNS name has an instance with this tag, which is in lower case.
    pub fn is_tag_folded(&self, tag: &str) -> bool {
        self.tags.has(tag)
    }

    /// Returns the hosts and their addresses.
    pub fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// True if the records have been listed once.
    pub fn records_known(&self) -> bool {
        self.records_known
    }

    /// True if the health of this service has been listed.
    pub fn health_known(&self, service: &ServiceName) -> bool {
        self.health_known.contains(service)
    }

    /// Returns the services whose health has been listed.
    pub fn health_known_services(&self) -> impl Iterator<Item = &ServiceName> {
        self.health_known.iter()
    }

    /// True if the records and the health of the same services have been listed in both snapshots.
    /// Their contents may differ.
    pub fn is_known_as(&self, other: &Self) -> bool {
        self.records_known == other.records_known && self.health_known == other.health_known
    }

    /// Returns the number of instances of a service that count at a level.
    pub fn count(&self, service: &ServiceName, level: Level) -> usize {
        self.service(service).map_or(0, |service| service.at(level, None).count())
    }

    /// Returns a digest of what other hosts make addressable: the addresses and ports of every
    /// service of every host except `but`. It depends only on this content, not on the changes that
    /// led to it. Returns `None` while the records are not known.
    pub fn addressable(&self, but: &HostName) -> Option<u64> {
        if !self.records_known {
            return None;
        }
        let mut digest = Digest::default();
        for (name, service) in self.services.iter() {
            for (host, instance) in service.instances().iter().filter(|(host, _)| *host != but) {
                instance.add_place(host, digest.text(name.as_str()));
            }
        }
        Some(digest.finish())
    }

    pub(super) fn note_records_known(&mut self) {
        self.records_known = true;
    }

    pub(super) fn note_health_known(&mut self, service: &ServiceName) {
        if !self.health_known.contains(service) {
            Arc::make_mut(&mut self.health_known).insert(service.clone());
        }
    }

    pub(super) fn forget_health(&mut self, service: &ServiceName) {
        Arc::make_mut(&mut self.health_known).remove(service);
    }

    /// Sets or removes instances of a service. Returns true if that made a difference.
    pub(super) fn change(
        &mut self,
        service: &ServiceName,
        changes: impl IntoIterator<Item = (HostName, Option<Arc<Instance>>)>,
    ) -> bool {
        let known = self.services.get(service).cloned().unwrap_or_default();
        let changes: Vec<_> = changes
            .into_iter()
            .filter(|(host, instance)| known.instances.get(host) != instance.as_ref())
            .collect();
        if changes.is_empty() {
            return false;
        }
        let moves = |(host, instance): &(HostName, Option<Arc<Instance>>)| {
            let (before, after) = (known.instances.get(host), instance.as_ref());
            before.map(|i| &i.record.addresses) != after.map(|i| &i.record.addresses)
        };
        if changes.iter().any(moves) {
            let nodes = Arc::make_mut(&mut self.nodes);
            for (host, instance) in &changes {
                known.instances.get(host).into_iter().for_each(|old| nodes.remove(host, old));
                instance.iter().for_each(|new| nodes.add(host, new));
            }
        }
        if service.is_label() {
            for (host, instance) in &changes {
                self.count_tags(known.instances.get(host), instance.as_ref());
            }
        }
        let services = Arc::make_mut(&mut self.services);
        let shown = services.entry(service.clone()).or_default();
        // Drop this reference before the change: if it is the last other one, `Arc::make_mut` does
        // not have to copy.
        drop(known);
        let instances = &mut Arc::make_mut(shown).instances;
        for (host, instance) in changes {
            match instance {
                Some(instance) => instances.insert(host, instance),
                None => instances.remove(&host),
            };
        }
        let is_empty = instances.is_empty();
        if is_empty {
            services.remove(service);
        }
        self.fold(service, !is_empty);
        true
    }

    fn count_tags(&mut self, before: Option<&Arc<Instance>>, after: Option<&Arc<Instance>>) {
        let [before, after] = [before, after].map(|instance| instance.map(|i| &i.record.tags));
        if before == after {
            return;
        }
        let folded = |tags: Option<&BTreeSet<Tag>>| -> Vec<String> {
            let labels = tags.into_iter().flatten().filter(|tag| tag.is_label());
            labels.map(|tag| tag.as_str().to_ascii_lowercase()).collect()
        };
        let tags = Arc::make_mut(&mut self.tags);
        folded(after).into_iter().for_each(|tag| tags.count_in(tag));
        folded(before).into_iter().for_each(|tag| tags.count_out(tag));
    }

    fn fold(&mut self, service: &ServiceName, is_there: bool) {
        let folded = service.as_str().to_ascii_lowercase();
        if folded == service.as_str() {
            return;
        }
        let known = self.folded.get(&folded);
        if is_there && known.is_none() {
            Arc::make_mut(&mut self.folded).insert(folded, service.clone());
        } else if !is_there && known == Some(service) {
            Arc::make_mut(&mut self.folded).remove(&folded);
        }
    }
}
