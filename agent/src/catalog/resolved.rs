//! Service addresses that are given as names. The system's resolver looks them up in separate
//! tasks, because a lookup may take long. While a name cannot be resolved, its last known addresses
//! stay.

use catalog::definitions::{Definitions, ServiceAddress};
use schema::names::HostName;
use schema::records::usable_addresses;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use tokio::task::JoinSet;

/// The last known result for one name.
#[derive(Debug, Default)]
struct ResolvedName {
    addresses: Vec<IpAddr>,
    problem: Option<String>,
}

/// The names that are followed, with their addresses.
#[derive(Debug, Default)]
pub(super) struct Resolved {
    known: BTreeMap<HostName, ResolvedName>,
    in_flight: BTreeSet<HostName>,
    asking: JoinSet<(HostName, io::Result<Vec<IpAddr>>)>,
}

impl Resolved {
    /// Looks up the names that are not known, or all names if `again` is true. Forgets the names
    /// that no definition uses.
    pub(super) fn follow(&mut self, definitions: &Definitions, again: bool) {
        let names: BTreeSet<&HostName> = definitions
            .services
            .values()
            .filter_map(|service| match &service.address {
                Some(ServiceAddress::Name(name)) => Some(name),
                _ => None,
            })
            .collect();
        self.known.retain(|name, _| names.contains(name));
        for name in names {
            if (again || !self.known.contains_key(name)) && self.in_flight.insert(name.clone()) {
                let name = name.clone();
                self.asking.spawn(async move {
                    let found = tokio::net::lookup_host((name.as_str(), 0)).await;
                    let found = found.map(|found| usable_addresses(found.map(|address| address.ip())));
                    (name, found)
                });
            }
        }
    }

    /// Waits for the next answer, forever if no lookup is running. Dropping the future loses
    /// nothing.
    pub(super) async fn answered(&mut self) {
        match self.asking.join_next().await {
            Some(Ok((name, found))) => self.take(name, found),
            // A lookup task does not panic, and nothing aborts it.
            Some(Err(error)) => tracing::error!(%error, "a name was not resolved"),
            None => std::future::pending().await,
        }
    }

    fn take(&mut self, name: HostName, found: io::Result<Vec<IpAddr>>) {
        self.in_flight.remove(&name);
        let known = self.known.entry(name.clone()).or_default();
        let problem = match found {
            Ok(found) if found.is_empty() => Some("it has no address that others can reach".to_owned()),
            Ok(found) => {
                known.addresses = found;
                None
            }
            Err(error) => Some(error.to_string()),
        };
        match (&known.problem, &problem) {
            (None, Some(why)) => {
                tracing::warn!(%name, why, known = ?known.addresses, "the address of a service does not resolve");
            }
            (Some(_), None) => {
                tracing::info!(%name, found = ?known.addresses, "the address of a service resolves")
            }
            _ => {}
        }
        known.problem = problem;
    }

    /// Returns the last known addresses of a name.
    pub(super) fn addresses(&self, name: &HostName) -> &[IpAddr] {
        self.known.get(name).map_or(&[], |known| &known.addresses)
    }

    /// True if a lookup of the name was answered, even if the name does not resolve.
    pub(super) fn is_answered(&self, name: &HostName) -> bool {
        self.known.contains_key(name)
    }

    /// Returns the names that do not resolve now, each with the reason.
    pub(super) fn problems(&self) -> BTreeMap<HostName, String> {
        let problem =
            self.known.iter().filter_map(|(name, known)| Some((name.clone(), known.problem.clone()?)));
        problem.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_known_stays_while_a_name_does_not_resolve() {
        let name = HostName::new("db.example.org").unwrap();
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let mut resolved = Resolved::default();
        let failed = || Err(io::Error::other("no answer"));
        for (found, addresses, problem) in [
            (failed(), &[][..], true),
            (Ok(vec![ip("10.0.0.1")]), &["10.0.0.1"], false),
            (failed(), &["10.0.0.1"], true),
            (Ok(vec![]), &["10.0.0.1"], true),
            (Ok(vec![ip("10.0.0.2"), ip("fd00::1")]), &["10.0.0.2", "fd00::1"], false),
        ] {
            resolved.take(name.clone(), found);
            let expected: Vec<IpAddr> = addresses.iter().map(|text| ip(text)).collect();
            assert_eq!(resolved.addresses(&name), expected);
            assert_eq!(resolved.problems().contains_key(&name), problem, "{addresses:?}");
        }
        resolved.follow(&Definitions::default(), true);
        assert_eq!((resolved.addresses(&name), resolved.problems().len()), (&[][..], 0));
    }
}
