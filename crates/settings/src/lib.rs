//! The settings of the agent and of the observer. Those of the agent are TOML fragments that are merged in name order
//! (tables merge, arrays of tables append, other values replace) and then validated. All mistakes are reported, each
//! with its file, its line if that is known and, for an unknown name, the nearest known one.

mod agent;
mod bundles;
mod checks;
mod command;
#[cfg(test)]
mod documented;
mod error;
mod initial;
pub mod lint;
mod merge;
pub mod named_files;
mod notify;
mod objects;
mod observer;
mod public_url;
mod read;
mod recorder;
mod reload;
mod secret_pattern;
mod services;
mod store;
#[cfg(test)]
mod tests;
mod validation;

pub use agent::{LogFormat, Settings, read_version_file};
pub use bundles::BundlesSettings;
pub use command::VERSION_PLACEHOLDER;
pub use error::name_of;
pub use initial::{Initial, InitialError};
pub use merge::is_secret_name;
pub use notify::{AlertmanagerSettings, NoticeCommandSettings, NotifySettings, WebhookSettings};
pub use objects::ObjectsSettings;
pub use observer::{HttpAccess, ObserverSettings, ServerTls, read_observer};
pub use public_url::{OWN_PARTS, PublicUrl};
pub use read::{PlacedSettings, read, read_with_places};
pub use recorder::RecorderSettings;
pub use secret_pattern::SecretPattern;
pub use services::{CatalogSettings, DnsSettings, ServicesSettings, TemplateSettings};
pub use store::StoreSettings;
pub use validation::{EntryKind, Skipped, ValidationDirectory};
