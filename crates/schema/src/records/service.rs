//! `/available_services/<service>/<host>`: the record of an instance.
//!
//! This file is long because two readers of one format, which must agree, are kept side by side.

use crate::codec;
use crate::codec::ValueError;
use crate::names::{HostName, InterfaceName, Tag};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// Longest record that is read, in bytes.
pub const RECORD_MAX_BYTES: usize = 16 * 1024;

/// The record of an instance: its addresses, port, tags and metadata.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ServiceRecord {
    /// The host that wrote the record. A record that names another host than its key is dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostName>,
    /// Every address of the host except link-local ones, by interface, sorted.
    #[serde(default, with = "as_map")]
    pub interfaces: Interfaces,
    /// The addresses that other hosts should use, the preferred one first.
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
    /// Port of the service, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Tags of the instance.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub tags: BTreeSet<Tag>,
    /// Metadata: free text by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub meta: BTreeMap<String, String>,
}

/// Interfaces with their addresses, both sorted. The records of one host can share this value: a
/// catalog has one record for each service of each host.
pub type Interfaces = Arc<[(InterfaceName, Box<[IpAddr]>)]>;

/// The reason why a record is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The record cannot be parsed.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// The record is longer than [`RECORD_MAX_BYTES`].
    #[error("the record has {bytes} bytes, at most {RECORD_MAX_BYTES} are read")]
    TooLong {
        /// Length of the record, in bytes.
        bytes: usize,
    },
    /// The record names another host than its key.
    #[error("the record was written by {by}")]
    OfAnother {
        /// The host that the record names.
        by: HostName,
    },
}

impl ServiceRecord {
    /// Reads the record of a host, in the form of this program or as the plain map from interface
    /// to address of the original tool.
    ///
    /// # Errors
    /// Returns an error if the bytes are not a record, are too long, or are the record of another
    /// host.
    pub fn read(host: &HostName, bytes: &[u8]) -> Result<Self, RecordError> {
        let mut record = Self::read_of_any(bytes)?;
        match &record.host {
            Some(by) if by != host => return Err(RecordError::OfAnother { by: by.clone() }),
            // Use the name from the key: the other records of the host share it.
            _ => record.host = Some(host.clone()),
        }
        record.addresses.shrink_to_fit();
        Ok(record)
    }

    /// Reads a record as [`Self::read`] does, whatever host it names.
    ///
    /// # Errors
    /// Returns an error if the bytes are not a record or are too long.
    pub(crate) fn read_of_any(bytes: &[u8]) -> Result<Self, RecordError> {
        if bytes.len() > RECORD_MAX_BYTES {
            return Err(RecordError::TooLong { bytes: bytes.len() });
        }
        let read = codec::read::<Self>(bytes);
        let is_empty = read.as_ref().is_ok_and(|record| *record == Self::default());
        // The plain map parses as a record without any known field, or as one with a field of the
        // wrong type.
        match read {
            Ok(record) if !is_empty => Ok(record),
            read => match serde_json::from_slice::<BTreeMap<InterfaceName, IpAddr>>(bytes) {
                Ok(old) => Ok(Self::of_interfaces(as_map::sorted(
                    old.into_iter().map(|(name, ip)| (name, vec![ip])).collect(),
                ))),
                Err(error) => {
                    read?;
                    let shown = crate::names::quoted(&String::from_utf8_lossy(bytes));
                    Err(ValueError::NotJson { shown, detail: error.to_string() }.into())
                }
            },
        }
    }

    /// Returns a record with the given interfaces. Its addresses are those that other hosts can
    /// reach.
    pub fn of_interfaces(interfaces: Interfaces) -> Self {
        let addresses = usable_addresses(interfaces.iter().flat_map(|(_, list)| list.iter().copied()));
        Self { interfaces, addresses, ..Self::default() }
    }

    /// Returns the record as JSON.
    pub fn write(&self) -> String {
        codec::write(self)
    }

    /// Returns the IPv4 addresses that other hosts should use.
    pub fn ipv4(&self) -> impl Iterator<Item = std::net::Ipv4Addr> {
        self.addresses.iter().filter_map(|ip| if let IpAddr::V4(ip) = ip { Some(*ip) } else { None })
    }

    /// Returns the IPv6 addresses that other hosts should use.
    pub fn ipv6(&self) -> impl Iterator<Item = std::net::Ipv6Addr> {
        self.addresses.iter().filter_map(|ip| if let IpAddr::V6(ip) = ip { Some(*ip) } else { None })
    }
}

/// Calls `take` for each interface of a record and its addresses, exactly as
/// [`ServiceRecord::read`] finds them. It is meant for files that are made of all records and keep
/// nothing else of them. Returns false, without a call of `take`, if [`ServiceRecord::read`]
/// refuses the record.
pub fn read_interfaces(host: &str, bytes: &[u8], mut take: impl FnMut(&str, &[IpAddr])) -> bool {
    if let Some(record) = PlainRecord::read(host, bytes) {
        record.interfaces.iter().for_each(|(name, addresses)| take(name, addresses));
        return true;
    }
    let Ok(host) = HostName::new(host) else { return false };
    let Ok(record) = ServiceRecord::read(&host, bytes) else { return false };
    record.interfaces.iter().for_each(|(name, addresses)| take(name.as_str(), addresses));
    true
}

/// The common form of a record: written by this program, with interfaces in order. Names are
/// checked in place and not copied. Fields that only have to be valid are parsed and dropped.
#[derive(Deserialize)]
struct PlainRecord<'a> {
    #[serde(borrow)]
    host: Option<&'a str>,
    #[serde(borrow, deserialize_with = "as_map::borrowed")]
    interfaces: Vec<(&'a str, Vec<IpAddr>)>,
    #[serde(default, rename = "addresses")]
    _addresses: Vec<IpAddr>,
    #[serde(rename = "port")]
    _port: Option<u16>,
    #[serde(default, rename = "tags")]
    _tags: BTreeSet<Tag>,
    #[serde(default, rename = "meta")]
    _meta: BTreeMap<String, String>,
}

impl<'a> PlainRecord<'a> {
    /// Returns `None` for every record that [`ServiceRecord::read`] has to parse.
    fn read(host: &str, bytes: &'a [u8]) -> Option<Self> {
        if bytes.len() > RECORD_MAX_BYTES || HostName::check(host).is_err() {
            return None;
        }
        let record = codec::read_own::<Self>(bytes)?;
        let is_plain = record.host.is_none_or(|by| by == host) && !record.interfaces.is_empty();
        is_plain.then_some(record)
    }
}

/// Returns the interfaces of a host with the addresses that are published. Link-local addresses are
/// left out because they mean nothing on another link, and so are interfaces whose name is not a
/// valid [`InterfaceName`].
pub fn published_interfaces(
    found: impl IntoIterator<Item = (impl AsRef<str>, impl IntoIterator<Item = IpAddr>)>,
) -> Interfaces {
    let named = found.into_iter().filter_map(|(name, addresses)| {
        Some((InterfaceName::new(name.as_ref()).ok()?, addresses.into_iter().collect()))
    });
    as_map::sorted(named.collect())
}

fn is_link_local(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// Returns the addresses that other hosts can reach, sorted: no loopback, unspecified or link-local
/// addresses.
pub fn usable_addresses(addresses: impl Iterator<Item = IpAddr>) -> Vec<IpAddr> {
    let mut found: Vec<IpAddr> =
        addresses.filter(|ip| !ip.is_loopback() && !ip.is_unspecified() && !is_link_local(ip)).collect();
    found.sort();
    found.dedup();
    found
}

/// Interfaces as a JSON object.
mod as_map {
    use super::{BTreeMap, InterfaceName, Interfaces, IpAddr, is_link_local};
    use serde::de::{Error, MapAccess, Visitor};
    use serde::{Deserializer, Serializer};
    use std::fmt;

    pub(super) fn sorted(map: BTreeMap<InterfaceName, Vec<IpAddr>>) -> Interfaces {
        map.into_iter().filter_map(|(name, addresses)| in_order(name, addresses)).collect()
    }

    fn in_order(name: InterfaceName, mut addresses: Vec<IpAddr>) -> Option<(InterfaceName, Box<[IpAddr]>)> {
        bring_in_order(&mut addresses);
        (!addresses.is_empty()).then(|| (name, addresses.into_boxed_slice()))
    }

    /// Sorts the addresses and removes link-local ones, which older programs published, too.
    fn bring_in_order(addresses: &mut Vec<IpAddr>) {
        addresses.retain(|ip| !is_link_local(ip));
        addresses.sort_unstable();
        addresses.dedup();
    }

    pub(super) fn serialize<S: Serializer>(
        interfaces: &Interfaces,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_map(interfaces.iter().map(|(name, addresses)| (name, addresses)))
    }

    // Builds no map in between, for speed: this runs once for each record.
    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Interfaces, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Interfaces;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("addresses by interface")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Interfaces, A::Error> {
                let mut pairs: Vec<(InterfaceName, Vec<IpAddr>)> = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                if pairs.is_sorted_by(|(one, _), (next, _)| one < next) {
                    Ok(pairs.into_iter().filter_map(|(name, addresses)| in_order(name, addresses)).collect())
                } else {
                    Ok(sorted(pairs.into_iter().collect()))
                }
            }
        }
        deserializer.deserialize_map(Pairs)
    }

    /// Does the same as `deserialize` with names that are borrowed from the text. Fails if the
    /// names are not in order, or if one of them is escaped in the JSON.
    pub(super) fn borrowed<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<(&'de str, Vec<IpAddr>)>, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Vec<(&'de str, Vec<IpAddr>)>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("addresses by interface, in order")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs: Self::Value = Vec::new();
                while let Some((name, mut addresses)) = map.next_entry::<&str, Vec<IpAddr>>()? {
                    InterfaceName::check(name).map_err(A::Error::custom)?;
                    if pairs.last().is_some_and(|(last, _)| *last >= name) {
                        return Err(A::Error::custom("out of order"));
                    }
                    bring_in_order(&mut addresses);
                    pairs.push((name, addresses));
                }
                pairs.retain(|(_, addresses)| !addresses.is_empty());
                Ok(pairs)
            }
        }
        deserializer.deserialize_map(Pairs)
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
        let tags = ["traefik.enable=true", "urlprefix-/foo strip=/foo", r#"rule=Host(`a`) "x" {{ y }}"#];
        let tags = tags.map(|tag| Tag::new(tag).unwrap()).into();
        let record = ServiceRecord { host: Some(host.clone()), port: Some(3306), tags, ..old };
        assert_eq!(ServiceRecord::read(&host, record.write().as_bytes()).unwrap(), record);
        let record = ServiceRecord { tags: BTreeSet::new(), ..record };
        assert_eq!(ServiceRecord::read(&host, record.write().as_bytes()).unwrap(), record);
        assert_eq!(
            record.write(),
            r#"{"format":1,"host":"db1","interfaces":{"eth0":["10.0.0.5"],"lo":["127.0.0.1"]},"addresses":["10.0.0.5"],"port":3306}"#
        );
    }

    #[test]
    fn interfaces_alone_are_read_as_whole_records_are() {
        for text in [
            r#"{"format":1,"host":"db1","interfaces":{"eth0":["10.0.0.5"],"lo":["::1","127.0.0.1"]},"port":1,"tags":["a"]}"#,
            r#"{"format":1,"interfaces":{"eth0":["10.0.0.6","fe80::1","10.0.0.5"],"eth1":["169.254.0.1"]},"new":{}}"#,
            r#"{"format":1,"interfaces":{"lo":["127.0.0.1"],"eth0":["10.0.0.6"],"eth0":["10.0.0.5"]}}"#,
            r#"{"format":1,"interfaces":{"eth0":["10.0.0.6"]},"host":"db1"}"#,
            r#"{"interfaces":{"eth0":["10.0.0.5"]},"format":1}"#,
            r#"{"format":1,"addresses":["10.0.0.5"]}"#,
            r#"{"format":1,"interfaces":{"eth0":["169.254.0.1"]}}"#,
            r#"{"format":1,"interfaces":{"eth0":["169.254.0.1"]},"port":1}"#,
            r#"{"eth0":"10.0.0.5","lo":"127.0.0.1"}"#,
            r#"{"format":1,"host":"web1","interfaces":{"eth0":["10.0.0.5"]}}"#,
            r#"{"format":1,"host":null,"interfaces":{"eth0":["10.0.0.5"]}}"#,
            r#"{"format":1,"interfaces":{"eth0":["10.0.0.5"],"a/b":["10.0.0.6"]}}"#,
            r#"{"format":1,"interfaces":{"eth0":["10.0.0.5","x"]}}"#,
            r#"{"format":1,"interfaces":{"eth0":["10.0.0.5"]},"addresses":["x"]}"#,
            r#"{"format":1,"interfaces":{"eth0":["10.0.0.5"]},"port":65536}"#,
            r#"{"format":1,"interfaces":{"eth0":["10.0.0.5"]},"tags":[" "]}"#,
            r#"{"format":1,"interfaces":{"eth0":["10.0.0.5"]},"meta":{"a":1}}"#,
            r#"{"format":1,"interfaces":{"eth0":["10.0.0.5"]}} x"#,
            r#"{"format":2,"interfaces":{"eth0":["10.0.0.5"]}}"#,
        ] {
            for host in ["db1", "web1", "-"] {
                let mut found = Vec::new();
                let take =
                    |name: &str, addresses: &[IpAddr]| found.push((name.to_owned(), addresses.to_vec()));
                let is_read = read_interfaces(host, text.as_bytes(), take);
                let whole =
                    HostName::new(host).ok().and_then(|h| ServiceRecord::read(&h, text.as_bytes()).ok());
                assert_eq!(is_read, whole.is_some(), "{host}: {text}");
                let interfaces = whole.map(|record| record.interfaces);
                let expected: Vec<_> = interfaces
                    .iter()
                    .flat_map(|interfaces| interfaces.iter())
                    .map(|(name, addresses)| (name.as_str().to_owned(), addresses.to_vec()))
                    .collect();
                assert_eq!(found, expected, "{host}: {text}");
            }
        }
        let long =
            format!(r#"{{"format":1,"interfaces":{{"eth0":["10.0.0.5"]}}{}}}"#, " ".repeat(RECORD_MAX_BYTES));
        assert!(!read_interfaces("db1", long.as_bytes(), |_, _| panic!("nothing is taken")));
    }

    #[test]
    fn interfaces_and_their_addresses_are_sorted_and_the_last_of_one_name_counts() {
        let host = HostName::new("db1").unwrap();
        let text = br#"{"interfaces":{"lo":["::1","127.0.0.1"],"eth0":["10.0.0.6"],"eth0":["10.0.0.5"]}}"#;
        let record = ServiceRecord::read(&host, text).unwrap();
        let shown: Vec<String> = record.interfaces.iter().map(|pair| format!("{pair:?}")).collect();
        assert_eq!(
            shown,
            [r#"(InterfaceName("eth0"), [10.0.0.5])"#, r#"(InterfaceName("lo"), [127.0.0.1, ::1])"#]
        );
    }

    #[test]
    fn what_is_published_of_interfaces_has_no_link_local_address_and_is_read_so_too() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let found = [
            ("eth1", vec![ip("fe80::1"), ip("169.254.9.1")]),
            ("eth0", vec![ip("fe80::5"), ip("fd00::5"), ip("10.0.0.6"), ip("10.0.0.5"), ip("10.0.0.5")]),
            ("lo", vec![ip("::1"), ip("127.0.0.1")]),
            ("no/name", vec![ip("10.0.0.7")]),
        ];
        let host = HostName::new("db1").unwrap();
        let record = ServiceRecord {
            host: Some(host.clone()),
            ..ServiceRecord::of_interfaces(published_interfaces(found))
        };
        assert_eq!(
            record.write(),
            r#"{"format":1,"host":"db1","interfaces":{"eth0":["10.0.0.5","10.0.0.6","fd00::5"],"lo":["127.0.0.1","::1"]},"addresses":["10.0.0.5","10.0.0.6","fd00::5"]}"#
        );
        let older = record.write().replace(r#""lo":["#, r#""eth1":["169.254.9.1"],"lo":["fe80::1","#);
        assert_eq!(ServiceRecord::read(&host, older.as_bytes()).unwrap(), record);
        let original = br#"{"eth0":"10.0.0.5","eth1":"169.254.9.1"}"#;
        assert_eq!(ServiceRecord::read(&host, original).unwrap().interfaces.len(), 1);
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
            br#"{"eth0":"10.0.0.1","eth1":7}"#,
            br#"{"format":1}"#,
            br#"{"format":2}"#,
            br#"{"interfaces":{"a/b":[]}}"#,
            br#"{"host":"web1","addresses":["10.0.0.1"]}"#,
            br#"{"tags":["a\nb"]}"#,
            br#"{"tags":[" "]}"#,
            br#"{"addresses":["%{lookup('x')}"]}"#,
        ] {
            let read = ServiceRecord::read(&host, bad);
            assert!(read.is_err(), "{}: {read:?}", String::from_utf8_lossy(bad));
        }
        ServiceRecord::read(&host, &vec![b' '; RECORD_MAX_BYTES + 1]).unwrap_err();
    }
}
