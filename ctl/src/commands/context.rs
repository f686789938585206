//! The context in which verbs run, and the parsers of their arguments.

use crate::exit::Failure;
use crate::settings::Settings;
use etcd_session::{Deadline, Session};
use schema::names::{HostName, ServiceName, Version};
use schema::time::EpochSeconds;
use std::time::{SystemTime, UNIX_EPOCH};

/// Access to the store for one verb.
pub(super) struct Store<'a> {
    pub(super) settings: &'a Settings,
    pub(super) session: Session,
    /// Deadline of the whole command.
    pub(super) deadline: Deadline,
}

pub(super) fn version(text: &str) -> Result<Version, Failure> {
    Version::new(text).map_err(Failure::usage)
}

pub(super) fn service(text: &str) -> Result<ServiceName, Failure> {
    ServiceName::new(text).map_err(Failure::usage)
}

pub(super) fn host(text: &str) -> Result<HostName, Failure> {
    HostName::new(text).map_err(Failure::usage)
}

/// Returns the current time.
pub(super) fn now() -> EpochSeconds {
    // A clock before 1970 means a machine without a clock; any time is as good there.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    EpochSeconds(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}
