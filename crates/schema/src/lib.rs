//! The contents of the store: names, keys, values and who may write them. Also the types of a
//! host's plan and verdict, which are parts of its report.

pub mod codec;
pub mod config_value;
pub mod digest;
mod entry;
pub mod followed;
pub mod freeze;
pub mod frozen;
pub mod grants;
pub mod health;
pub mod host_config;
pub mod instruction;
pub mod keys;
pub mod limit;
pub mod names;
pub mod order;
pub mod plan;
pub mod reads;
pub mod records;
pub mod server_version;
pub mod snapshot;
pub mod steps;
pub mod store_marks;
pub mod store_trust;
pub mod time;
pub mod transaction;
pub mod verdict;
mod verdict_kind;
pub mod why_not;
pub mod writes;
