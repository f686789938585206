//! The catalog on this host. One task follows the store and owns the snapshot; everybody else reads snapshots
//! of it, and says by asking which services they are interested in.

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
mod trust;

pub use addresses::Addresses;
pub use definitions::{Loaded, Loader};
pub use files::{Files, FilesHandle, read_cache};
pub use follower::Follower;
pub use needs::{Needs, NeedsTask};
pub use publisher::{Fencing, PublishedServices, Publisher};
pub use reader::{CatalogSnapshot, Reader};
pub use trust::Trust;
