//! What failed on a host: its logs, its bundle, and the request to try again.

pub(super) mod bundle;
mod fetched_bundle;
pub(super) mod logs;
pub(super) mod retry;
mod runs;
