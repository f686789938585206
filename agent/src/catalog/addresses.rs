//! The addresses of this machine, by interface.

use super::resolved::Resolved;
use model::catalog::{Interfaces, published_interfaces, usable_addresses};
use model::definitions::{ServiceAddress, ServiceDefinition};
use model::names::InterfaceName;
use model::settings::ServicesSettings;
use std::net::IpAddr;

/// Addresses by interface, as they are published.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Addresses(Interfaces);

impl Addresses {
    /// Reads them from the system; `None` if that fails. A machine without any, not even its own, is one that
    /// could not be read.
    pub fn read() -> Option<Self> {
        let networks = sysinfo::Networks::new_with_refreshed_list().ok()?;
        let found = published_interfaces(networks.iter().map(|(name, data)| {
            (name.to_string_lossy(), data.ip_networks().iter().map(|network| network.addr))
        }));
        (!found.is_empty()).then_some(Self(found))
    }

    /// All of them.
    pub fn by_interface(&self) -> &Interfaces {
        &self.0
    }

    /// Those that others should use for a service: what its definition says, else what the settings say, else
    /// every one that can be reached from elsewhere.
    pub(super) fn for_service(
        &self,
        service: &ServiceDefinition,
        settings: &ServicesSettings,
        resolved: &Resolved,
    ) -> Vec<IpAddr> {
        let of = |name: &InterfaceName| {
            let found = self.0.iter().find(|(known, _)| known == name);
            found.map(|(_, addresses)| addresses.to_vec()).unwrap_or_default()
        };
        match &service.address {
            Some(ServiceAddress::Ip(address)) => return vec![*address],
            Some(ServiceAddress::Name(name)) => return resolved.addresses(name).to_vec(),
            None => {}
        }
        if let Some(interface) = &service.interface {
            return of(interface);
        }
        if !settings.addresses.is_empty() {
            return settings.addresses.clone();
        }
        if !settings.interfaces.is_empty() {
            return settings.interfaces.iter().flat_map(of).collect();
        }
        usable_addresses(self.0.iter().flat_map(|(_, addresses)| addresses.iter().copied()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::names::ServiceName;

    #[test]
    fn the_nearest_word_on_an_address_counts() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let interface = |text: &str| InterfaceName::new(text).unwrap();
        let addresses = Addresses(published_interfaces([
            ("eth0", vec![ip("10.0.0.5"), ip("fd00::5"), ip("fe80::5")]),
            ("eth1", vec![ip("192.168.0.5"), ip("169.254.0.5")]),
            ("lo", vec![ip("127.0.0.1"), ip("::1")]),
        ]));
        let mut settings = model::settings::read(&[]).unwrap().services;
        let mut service = ServiceDefinition::bare(ServiceName::new("web").unwrap());
        let check = |service: &ServiceDefinition, settings: &ServicesSettings, expected: &[&str]| {
            let expected: Vec<IpAddr> = expected.iter().map(|text| ip(text)).collect();
            assert_eq!(addresses.for_service(service, settings, &Resolved::default()), expected);
        };
        check(&service, &settings, &["10.0.0.5", "192.168.0.5", "fd00::5"]);
        settings.interfaces = vec![interface("eth1"), interface("eth0")];
        check(&service, &settings, &["192.168.0.5", "10.0.0.5", "fd00::5"]);
        settings.addresses = vec![ip("1.2.3.4")];
        check(&service, &settings, &["1.2.3.4"]);
        service.interface = Some(interface("lo"));
        check(&service, &settings, &["127.0.0.1", "::1"]);
        service.interface = Some(interface("none"));
        check(&service, &settings, &[]);
        service.address = Some(ServiceAddress::Ip(ip("4.3.2.1")));
        check(&service, &settings, &["4.3.2.1"]);
        // Not those of the host, while nobody knows better.
        service.address = Some(ServiceAddress::try_from("db.example.org".to_owned()).unwrap());
        check(&service, &settings, &[]);
    }
}
