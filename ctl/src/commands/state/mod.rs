//! How the fleet stands, its events and its roster.

pub(super) mod events;
pub(super) mod hosts;
pub(super) mod status;
pub(super) mod ui;
pub(super) mod why;
