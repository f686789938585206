//! What is found by the path of a key, or by the name of a host.

use super::path::{Part, PathReader};
use super::row::TypedKey;
use super::status_state::StatusState;
use super::table::{Freeze, Key, Prefix, Service, documented};
use crate::freeze::FreezeScope;
use crate::names::{HostName, StatusType, Token};

impl Key {
    /// Returns the keys of all states of a host for one status type.
    pub fn statuses(kind: &StatusType, host: &HostName) -> [Self; 3] {
        StatusState::ALL.map(|state| Self::Status(kind.clone(), state, host.clone()))
    }
}

impl Prefix {
    /// Returns the range of [`Prefix::WHOLE`] that holds a key; `None` for [`Key::singles`].
    pub fn holding(path: &str) -> Option<Self> {
        Self::WHOLE.iter().find(|range| path.starts_with(&range.to_string())).cloned()
    }

    /// Returns the ranges whose keys end in the name of the host that owns them, after a version, type or service.
    pub fn before_host() -> Vec<Self> {
        let mut ranges = Vec::new();
        for key in documented() {
            if key.row.owner == "host" && key.row.arguments.len() > 1 {
                ranges.extend(Self::holding(&key.path));
            }
        }
        ranges.dedup();
        ranges
    }
}

/// Returns the scope and the token in the key of a freeze; `None` for other keys. The token is `None` if
/// it is not valid: such a key is in the range of its scope, and holds starts like any other.
pub fn read_freeze(text: &str) -> Option<(FreezeScope, Option<Token>)> {
    let mut path = PathReader::new(text.strip_prefix(Freeze::ROW.start)?);
    let scope = FreezeScope::read(&mut path).ok()?;
    path.text("/").ok()?;
    Some((scope, Token::new(path.rest()).ok()))
}

/// Returns the service and the host in the key of a record, both unchecked; `None` for other keys.
pub fn service_key(key: &str) -> Option<(&str, &str)> {
    key.strip_prefix(Service::ROW.start)?.split_once('/')
}
