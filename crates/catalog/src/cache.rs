//! The catalog as JSON: what survives a restart of the agent.

use crate::dns::Zone;
use crate::guard::GuardSettings;
use crate::instance::CatalogFact;
use crate::state::Catalog;
use crate::view::View;
use schema::health::Health;
use schema::names::{HostName, ServiceName};
use schema::records::ServiceRecord;
use schema::time::BootMillis;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The catalog as it is kept on disk: what is served while the store is away, also across restarts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CachedCatalog {
    /// The revision of the store at which this was last different.
    pub revision: i64,
    /// Under which names the agent answers, for readers that know nothing of its settings.
    #[serde(default)]
    pub names: Option<CachedNames>,
    /// The instances of each service.
    pub services: BTreeMap<ServiceName, Vec<CachedInstance>>,
}

/// The names of a zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CachedNames {
    /// The domain, in lower case.
    pub domain: String,
    /// The name of the datacenter, in lower case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datacenter: Option<String>,
    /// The host that keeps the cache.
    pub host: HostName,
}

impl CachedNames {
    /// The zone; what is taken from here is not cached under it.
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
    /// Where it is, and on which host.
    pub record: Arc<ServiceRecord>,
    /// Its health, if that is followed here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    /// An agent keeps it.
    pub leased: bool,
}

impl CachedCatalog {
    /// What is kept of a view.
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

    /// The catalog that it stood for; it is not known to be true now.
    pub fn restore(self, guard: GuardSettings, now: BootMillis) -> Catalog {
        let mut catalog = Catalog::new(guard);
        for (service, instances) in self.services {
            let is_followed = instances.iter().any(|i| i.health.is_some());
            for CachedInstance { record, health, leased } in instances {
                // Every record that was read says whose it is.
                let Some(host) = record.host.clone() else { continue };
                let fact = CatalogFact::Record(Some((record, leased)));
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
