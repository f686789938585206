//! The table of all keys of the Compose Specification. To accept a key, replace its row by one with the function that
//! reads it: `accepted("key", Read::Service(fields::…), "what it does")`.
//!
//! The names are those of the JSON schema of the specification, read at its commit 170098ba (2026-06). A refused key
//! is refused with everything below it.

mod deploy;
pub(crate) mod parts;
mod service;
mod top_level;
mod x_orchestrate;

use crate::form::Object;

pub(crate) use service::SERVICE;
pub(crate) use top_level::TOP_LEVEL;

/// All mappings with known keys, in the order of the manual.
pub(crate) static OBJECTS: [&Object; 12] = [
    &TOP_LEVEL,
    &parts::VOLUME,
    &SERVICE,
    &parts::EXTENDS,
    &parts::MOUNT,
    &deploy::DEPLOY,
    &deploy::PLACEMENT,
    &parts::PREFERENCE,
    &deploy::RESOURCES,
    &deploy::RESERVATIONS,
    &x_orchestrate::X_ORCHESTRATE,
    &parts::TOP_LEVEL_X_ORCHESTRATE,
];
