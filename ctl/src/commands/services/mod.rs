//! The catalog of services, and what takes a service out of use.

pub(super) mod catalog;
pub(super) mod dns;
pub(super) mod drop_stale;
pub(super) mod list;
pub(super) mod maintenance;
pub(super) mod wait_for;
