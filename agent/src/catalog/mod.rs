//! The catalog on this host. One task follows the store and owns the catalog snapshot. All other
//! parts of the agent read snapshots, and register interest in a service by asking for it.

mod addresses;
mod claims;
mod config;
mod definitions;
mod files;
mod follower;
mod needs;
mod publisher;
mod reader;
mod resolved;
mod start;
mod trust;

pub(crate) use definitions::{Loaded, Loader};
pub(crate) use files::{Files, FilesHandle, read_cache};
pub(crate) use follower::Follower;
pub(crate) use needs::{Needs, NeedsTask};
pub(crate) use publisher::{Fencing, PublishedServices, Publisher, PublisherInputs};
pub(crate) use reader::{CatalogSnapshot, Reader};
pub(crate) use start::{CatalogHandles, start};
pub(crate) use trust::Trust;

#[cfg(test)]
mod tests;
