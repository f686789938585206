//! The catalog as JSON, as it survives a restart of the agent.

use crate::dns::Zone;
use crate::guard::GuardSettings;
use crate::instance::{CatalogFact, StoredRecord};
use crate::state::Catalog;
use crate::view::View;
use schema::health::Health;
use schema::names::{HostName, ServiceName};
use schema::records::ServiceRecord;
use schema::time::BootMillis;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The catalog as it is kept on disk. It is served while the store is not connected, also across
/// restarts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CachedCatalog {
    /// The revision of the store at which the content changed last.
    pub revision: i64,
    /// The DNS names under which the agent answers, for readers that do not know its settings.
    #[serde(default)]
    pub names: Option<CachedNames>,
    /// The instances of each service.
    pub services: BTreeMap<ServiceName, Vec<CachedInstance>>,
}

/// The names of a DNS zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CachedNames {
    /// The domain, in lower case.
    pub domain: String,
    /// The name of the datacenter, in lower case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datacenter: Option<String>,
    /// Name of the host that keeps the cache.
    pub host: HostName,
}

impl CachedNames {
    /// Returns the zone with a time to live of 0, because answers from the cache must not be cached
    /// again.
    pub fn zone(&self) -> Zone {
        Zone {
            domain: self.domain.clone(),
            datacenter: self.datacenter.clone(),
            host: self.host.clone(),
            ttl: 0,
            negative_ttl: 0,
        }
    }
}

/// One instance on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CachedInstance {
    /// The record, which contains the name of its host.
    pub record: Arc<ServiceRecord>,
    /// The health, if this host follows the health of the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    /// True if the record has a lease: an agent maintains it.
    pub leased: bool,
}

impl CachedCatalog {
    /// Returns the parts of a catalog snapshot that are kept on disk.
    pub fn of(view: &View, revision: i64, names: Option<CachedNames>) -> Self {
        let services = view.services().iter().map(|(name, service)| {
            let instances = service.instances().values().map(|instance| CachedInstance {
                record: instance.record.clone(),
                health: instance.health,
                leased: instance.leased,
            });
            (name.clone(), instances.collect())
        });
        Self { revision, names, services: services.collect() }
    }

    /// Returns the catalog that was kept. It is not known whether it is still true.
    pub fn restore(self, guard: GuardSettings, now: BootMillis) -> Catalog {
        let mut catalog = Catalog::new(guard);
        for (service, instances) in self.services {
            let is_followed = instances.iter().any(|i| i.health.is_some());
            for CachedInstance { record, health, leased } in instances {
                // Every record that was read contains its host.
                let Some(host) = record.host.clone() else { continue };
                let fact = CatalogFact::Record(Some(StoredRecord::new(record, leased)));
                catalog.apply(&service, &host, fact, now);
                if health.is_some() {
                    catalog.apply(&service, &host, CatalogFact::Health(health), now);
                }
            }
            if is_followed {
                catalog.view.note_health_known(&service);
            }
        }
        catalog.view.note_records_known();
        catalog.settle(now, true);
        catalog
    }
}
