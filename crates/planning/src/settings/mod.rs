//! The settings of the agent. They are TOML fragments that are merged in name order (tables merge,
//! arrays of tables append, other values replace) and then validated. The first mistake is reported
//! with its file, its line if that is known and, for an unknown name, the nearest known one.

mod agent;
mod command;
#[cfg(test)]
mod documented;
mod error;
mod initial;
mod merge;
mod reload;
mod services;
mod validation;

pub(crate) use agent::{BACKOFF_SECONDS, SUSPECT_AFTER};
pub use agent::{LogFormat, Settings, StoreSettings, read, read_version_file, show};
pub use command::VERSION_PLACEHOLDER;
pub use error::SettingsError;
pub(crate) use error::settings_error;
pub use initial::Initial;
pub use merge::is_secret_name;
pub use services::{CatalogSettings, DnsSettings, ServicesSettings, TemplateSettings};
pub use validation::{EntryKind, Skipped, ValidationDirectory, ValidationRule};
