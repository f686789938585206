//! Every key of the store. `table.rs` has one row for each, and no other place in the code spells the path of a key.
//!
//! `/current_version`, `/running_version`, `/status` and `/available_services` are the names of the
//! original tool, with their leading slash, so that a reader who only knows those sees correct
//! lists. A session may put a namespace in front of every key; the keys here do not contain it.

mod form;
mod lookup;
mod macros;
mod part;
mod path;
mod row;
mod status_state;
mod table;
#[cfg(test)]
mod tests;

pub use form::{Empty, Form, Json, NotAHealth, NotATime, Text};
pub use lookup::{read_freeze, service_key};
pub use path::KeyError;
pub use row::{Agents, DocumentedKey, Row, TypedKey};
pub use status_state::StatusState;
pub use table::*;
