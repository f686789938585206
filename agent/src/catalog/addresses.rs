//! The addresses of this machine, by interface.

use super::resolved::Resolved;
use catalog::definitions::{ServiceAddress, ServiceDefinition};
use schema::names::InterfaceName;
use schema::records::{Interfaces, published_interfaces, usable_addresses};
use settings::ServicesSettings;
use std::fmt;
use std::net::IpAddr;

/// The addresses that are published, by interface.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Addresses {
    found: Interfaces,
    /// The interfaces that have no address to publish.
    bare: Vec<InterfaceName>,
}

impl Addresses {
    /// Reads the addresses from the system; returns `None` if that fails. A result without any
    /// address, not even loopback, counts as a failure.
    pub(crate) fn read() -> Option<Self> {
        let networks = sysinfo::Networks::new_with_refreshed_list().ok()?;
        let all = networks.iter().map(|(name, data)| {
            (name.to_string_lossy(), data.ip_networks().iter().map(|network| network.addr))
        });
        let found = Self::of(all);
        (!found.found.is_empty()).then_some(found)
    }

    fn of(all: impl Iterator<Item = (impl AsRef<str>, impl IntoIterator<Item = IpAddr>)> + Clone) -> Self {
        let found = published_interfaces(all.clone());
        let names = all.filter_map(|(name, _)| InterfaceName::new(name.as_ref()).ok());
        let mut bare: Vec<InterfaceName> =
            names.filter(|name| !found.iter().any(|(known, _)| known == name)).collect();
        bare.sort();
        Self { found, bare }
    }

    /// Returns the published addresses of all interfaces.
    pub(crate) fn by_interface(&self) -> &Interfaces {
        &self.found
    }

    /// Returns the addresses that others should use for a service: those in its definition, else
    /// those in the settings, else every address that other hosts can reach. If there is none,
    /// [`Addresses::unusable_reason`] says why.
    pub(super) fn for_service(
        &self,
        service: &ServiceDefinition,
        settings: &ServicesSettings,
        resolved: &Resolved,
    ) -> Vec<IpAddr> {
        let of = |name: &InterfaceName| {
            let found = self.found.iter().find(|(known, _)| known == name);
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
        usable_addresses(self.found.iter().flat_map(|(_, addresses)| addresses.iter().copied()))
    }

    /// Returns why a service has no address that others can use, and how to correct that.
    pub(super) fn unusable_reason(&self, service: &ServiceDefinition, settings: &ServicesSettings) -> String {
        if let Some(ServiceAddress::Name(name)) = &service.address {
            return format!("its address {name} is not resolved");
        }
        if let Some(interface) = &service.interface {
            return format!(
                "its interface {interface} has no address here ({self}): name another interface, or an address"
            );
        }
        if !settings.interfaces.is_empty() {
            let named: Vec<&str> = settings.interfaces.iter().map(InterfaceName::as_str).collect();
            return format!(
                "no interface of services.interfaces ({}) has an address here ({self}): name another there, or set \
                 services.addresses",
                named.join(", ")
            );
        }
        format!(
            "no interface has an address that others can reach ({self}): set services.addresses, or name an interface \
             in services.interfaces"
        )
    }
}

impl fmt::Display for Addresses {
    /// Writes each interface with its addresses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown: Vec<String> = Vec::new();
        for (name, addresses) in self.found.iter() {
            let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            shown.push(format!("{name}: {}", addresses.join(" ")));
        }
        shown.extend(self.bare.iter().map(|name| format!("{name}: none but link-local")));
        f.write_str(if shown.is_empty() { "none could be read" } else { "" })?;
        f.write_str(&shown.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::names::ServiceName;

    #[test]
    fn the_nearest_word_on_an_address_counts() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let interface = |text: &str| InterfaceName::new(text).unwrap();
        let addresses = Addresses::of(
            [
                ("eth0", vec![ip("10.0.0.5"), ip("fd00::5"), ip("fe80::5")]),
                ("eth1", vec![ip("192.168.0.5"), ip("169.254.0.5")]),
                ("lo", vec![ip("127.0.0.1"), ip("::1")]),
            ]
            .into_iter(),
        );
        let mut settings = settings::read(&[]).unwrap().services;
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
        // The addresses of the host are not used while the name has not been resolved.
        service.address = Some(ServiceAddress::try_from("db.example.org".to_owned()).unwrap());
        check(&service, &settings, &[]);
    }

    #[test]
    fn a_service_without_an_address_is_told_why_and_what_would_be_right() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let interface = |text: &str| InterfaceName::new(text).unwrap();
        let found =
            [("lo", vec![ip("127.0.0.1"), ip("::1")]), ("eth0", vec![ip("fe80::5")]), ("eth1", vec![])];
        let here = Addresses::of(found.into_iter());
        let mut settings = settings::read(&[]).unwrap().services;
        let mut service = ServiceDefinition::bare(ServiceName::new("web").unwrap());
        let check = |service: &ServiceDefinition,
                     settings: &ServicesSettings,
                     addresses: &Addresses,
                     expected| {
            assert!(addresses.for_service(service, settings, &Resolved::default()).is_empty(), "{expected}");
            assert_eq!(addresses.unusable_reason(service, settings), expected);
        };
        check(
            &service,
            &settings,
            &here,
            "no interface has an address that others can reach (lo: 127.0.0.1 ::1, eth0: none but link-local, eth1: none \
             but link-local): set services.addresses, or name an interface in services.interfaces",
        );
        check(
            &service,
            &settings,
            &Addresses::default(),
            "no interface has an address that others can reach (none could be read): set services.addresses, or name an \
             interface in services.interfaces",
        );
        settings.interfaces = vec![interface("eth0"), interface("eth7")];
        check(
            &service,
            &settings,
            &here,
            "no interface of services.interfaces (eth0, eth7) has an address here (lo: 127.0.0.1 ::1, eth0: none but \
             link-local, eth1: none but link-local): name another there, or set services.addresses",
        );
        service.interface = Some(interface("eth9"));
        check(
            &service,
            &settings,
            &here,
            "its interface eth9 has no address here (lo: 127.0.0.1 ::1, eth0: none but link-local, eth1: none but \
             link-local): name another interface, or an address",
        );
        service.address = Some(ServiceAddress::try_from("db.example.org".to_owned()).unwrap());
        check(&service, &settings, &here, "its address db.example.org is not resolved");
    }
}
