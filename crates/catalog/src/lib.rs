//! The catalog: which hosts have which service, at which addresses, and whether it works there.
//!
//! Two facts make an instance. Its *record* under `/available_services` says that the host is
//! configured to have the service: the instance is *addressable*. Its *health* says whether the
//! service works: the instance is *functional* while its health is passing or warning. A running
//! host reports every change by a put. A key that vanished says nothing about the service.

mod cache;
pub mod checks;
mod common;
pub mod definitions;
mod dns;
mod guard;
mod hiera;
mod instance;
mod instance_view;
mod json;
pub mod requires;
mod state;
#[cfg(test)]
mod tests;
mod view;

pub use cache::{CachedCatalog, CachedInstance, CachedNames};
pub use common::Common;
pub use dns::{
    Answer, Claim, Data, QueryType, Question, ResourceRecord, ResponseCode, UnknownQueryType, Zone, answer,
    reverse_address,
};
pub use guard::{Guard, GuardSettings, Retained};
pub use hiera::{HieraFile, StoredAddresses, hiera_entries, service_of_entry, vanished_entries};
pub use instance::{CatalogFact, Instance, StoredRecord};
pub use instance_view::InstanceView;
pub use state::{Catalog, catalog_at_once, catalog_from_store};
pub use view::{Nodes, ServiceView, View};
