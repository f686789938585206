//! Values that many records have in common are stored once. A catalog of 100,000 entries consists
//! mostly of the names of the same hosts and interfaces, and of the same addresses for each service
//! of a host.

use schema::names::{HostName, InterfaceName, ServiceName};
use schema::records::{Interfaces, ServiceRecord};
use std::collections::{HashMap, HashSet};

/// Names and addresses of the records seen so far.
#[derive(Debug, Default)]
pub struct Common {
    services: HashSet<ServiceName>,
    hosts: HashMap<HostName, Interfaces>,
    interfaces: HashSet<InterfaceName>,
}

impl Common {
    /// Replaces names and addresses by equal ones that were seen before, so that records share
    /// them.
    pub fn share(&mut self, service: &mut ServiceName, host: &mut HostName, record: &mut ServiceRecord) {
        match self.services.get(service) {
            Some(known) => *service = known.clone(),
            None => drop(self.services.insert(service.clone())),
        }
        match self.hosts.get_key_value(host) {
            Some((known, interfaces)) => {
                *host = known.clone();
                if *interfaces == record.interfaces {
                    record.interfaces = interfaces.clone();
                } else {
                    record.interfaces = self.with_known_names(&record.interfaces);
                    self.hosts.insert(host.clone(), record.interfaces.clone());
                }
            }
            None => {
                record.interfaces = self.with_known_names(&record.interfaces);
                self.hosts.insert(host.clone(), record.interfaces.clone());
            }
        }
        record.host = Some(host.clone());
    }

    fn with_known_names(&mut self, interfaces: &Interfaces) -> Interfaces {
        let known = |(name, addresses): &(InterfaceName, _)| {
            let name = match self.interfaces.get(name) {
                Some(known) => known.clone(),
                None => {
                    self.interfaces.insert(name.clone());
                    name.clone()
                }
            };
            (name, Box::clone(addresses))
        };
        interfaces.iter().map(known).collect()
    }

    /// Forgets the values seen so far. Records keep the values that they share.
    pub fn forget(&mut self) {
        *self = Self::default();
    }
}
