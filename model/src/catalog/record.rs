//! `/available_services/<service>/<host>`: where a service is.

use crate::names::{HostName, InterfaceName, Tag};
use crate::values::{self, ValueError};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Longest record that is read, in bytes.
pub const RECORD_MAX_BYTES: usize = 16 * 1024;

/// Where a service is, and what it says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ServiceRecord {
    /// Who wrote it. A record that names another host than its key is dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostName>,
    /// Every address of the host, by interface, sorted. A list, because there are as many of these as services
    /// in the fleet.
    #[serde(default, with = "as_map")]
    pub interfaces: Vec<(InterfaceName, Vec<IpAddr>)>,
    /// The addresses that others should use, the best first.
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
    /// Its port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Its tags.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub tags: BTreeSet<Tag>,
    /// Free text by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub meta: BTreeMap<String, String>,
}

/// A record that is not taken in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// It cannot be read.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// It is too long.
    #[error("the record has {bytes} bytes, at most {RECORD_MAX_BYTES} are read")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// It stands under another host's name.
    #[error("the record was written by {by}")]
    OfAnother {
        /// Who wrote it, as it says.
        by: HostName,
    },
}

impl ServiceRecord {
    /// Reads the record of a host: ours, or the bare map from interface to address of the original tool.
    ///
    /// # Errors
    /// It is no record, or not that host's.
    pub fn read(host: &HostName, bytes: &[u8]) -> Result<Self, RecordError> {
        if bytes.len() > RECORD_MAX_BYTES {
            return Err(RecordError::TooLong { bytes: bytes.len() });
        }
        if let Ok(old) = serde_json::from_slice::<BTreeMap<InterfaceName, IpAddr>>(bytes) {
            let addresses = usable_addresses(old.values().copied());
            let interfaces = old.into_iter().map(|(name, ip)| (name, vec![ip])).collect();
            return Ok(Self { interfaces, addresses, ..Self::default() });
        }
        let mut record: Self = values::read(bytes)?;
        if let Some(by) = record.host.as_ref().filter(|by| *by != host) {
            return Err(RecordError::OfAnother { by: by.clone() });
        }
        record.interfaces.iter_mut().for_each(|(_, addresses)| addresses.sort());
        Ok(record)
    }

    /// As it is written.
    pub fn write(&self) -> String {
        values::write(self)
    }

    /// The IPv4 addresses that others should use.
    pub fn ipv4(&self) -> impl Iterator<Item = std::net::Ipv4Addr> {
        self.addresses.iter().filter_map(|ip| if let IpAddr::V4(ip) = ip { Some(*ip) } else { None })
    }

    /// The IPv6 addresses that others should use.
    pub fn ipv6(&self) -> impl Iterator<Item = std::net::Ipv6Addr> {
        self.addresses.iter().filter_map(|ip| if let IpAddr::V6(ip) = ip { Some(*ip) } else { None })
    }
}

/// Addresses that other hosts can reach: no loopback, no link-local.
pub fn usable_addresses(addresses: impl Iterator<Item = IpAddr>) -> Vec<IpAddr> {
    let mut found: Vec<IpAddr> = addresses
        .filter(|ip| match ip {
            IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local() && !ip.is_unspecified(),
            IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local() && !ip.is_unspecified(),
        })
        .collect();
    found.sort();
    found.dedup();
    found
}

/// Pairs that stand in JSON as an object.
mod as_map {
    use super::{BTreeMap, InterfaceName, IpAddr};
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        pairs: &[(InterfaceName, Vec<IpAddr>)],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_map(pairs.iter().map(|(name, addresses)| (name, addresses)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<(InterfaceName, Vec<IpAddr>)>, D::Error> {
        BTreeMap::deserialize(deserializer).map(|map| map.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_and_the_original_form_are_read() {
        let host = HostName::new("db1").unwrap();
        let old = ServiceRecord::read(&host, br#"{"lo":"127.0.0.1","eth0":"10.0.0.5"}"#).unwrap();
        assert_eq!(old.addresses, ["10.0.0.5".parse::<IpAddr>().unwrap()]);
        assert_eq!(old.interfaces.len(), 2);
        let record = ServiceRecord { host: Some(host.clone()), port: Some(3306), ..old };
        assert_eq!(ServiceRecord::read(&host, record.write().as_bytes()).unwrap(), record);
        assert_eq!(
            record.write(),
            r#"{"format":1,"host":"db1","interfaces":{"eth0":["10.0.0.5"],"lo":["127.0.0.1"]},"addresses":["10.0.0.5"],"port":3306}"#
        );
    }

    #[test]
    fn what_is_no_record_of_that_host_is_dropped() {
        let host = HostName::new("db1").unwrap();
        for bad in [
            &b""[..],
            b"[]",
            b"3",
            b"\xff",
            br#"{"eth0":"x"}"#,
            br#"{"format":2}"#,
            br#"{"interfaces":{"a/b":[]}}"#,
            br#"{"host":"web1","addresses":["10.0.0.1"]}"#,
            br#"{"tags":["a b"]}"#,
            br#"{"addresses":["%{lookup('x')}"]}"#,
        ] {
            // The bare map with a bad address is neither form.
            let read = ServiceRecord::read(&host, bad);
            assert!(read.is_err() || read == Ok(ServiceRecord::default()), "{bad:?}: {read:?}");
        }
        ServiceRecord::read(&host, &vec![b' '; RECORD_MAX_BYTES + 1]).unwrap_err();
    }
}
