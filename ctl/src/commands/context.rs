//! What verbs are run with, and the words that they are given.

use crate::exit::Failure;
use crate::settings::Settings;
use etcd_session::{Deadline, Session};
use schema::names::{HostName, ServiceName, Version};
use schema::time::EpochSeconds;
use std::time::{SystemTime, UNIX_EPOCH};

/// What a verb asks the store with.
pub(super) struct Store<'a> {
    pub(super) settings: &'a Settings,
    pub(super) session: Session,
    /// For the whole command.
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

/// The time of day, for display by others.
pub(super) fn now() -> EpochSeconds {
    // Before 1970 only on a machine without a clock; then any time is as good.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    EpochSeconds(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}
