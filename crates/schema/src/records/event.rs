//! The record of an operator's act.

use serde::{Deserialize, Serialize};

/// Longest free text in an event, in bytes: every name, the old and the new value, and the reason are cut
/// to it.
pub const EVENT_TEXT_MAX_BYTES: usize = 1024;

/// `/orchestrate/events/<id>`, and for a command in a step of a host `/orchestrate/events/host/<host>/<id>`: what
/// somebody did. It is written in the transaction of the act itself. The time is part of the id. Nobody verifies
/// who acted: all of it is what the operator's machine says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Name of the person or job that acted; `None` in events of development states, which have it in `user`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The user of the store as which the command authenticated itself; `None` if it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The machine and the program from which it acted.
    pub client: String,
    /// The verb of the command.
    pub verb: String,
    /// The key that was changed.
    pub what: String,
    /// The value of that key before; `None` if it did not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The value of that key after; `None` if it was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The reason that was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
