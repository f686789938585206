//! The update of the fleet to a version: the verbs that start, hold and show it, and the policy, freezes and claims
//! that limit it.

pub(super) mod claims;
pub(super) mod freeze_list;
pub(super) mod freezes;
pub(super) mod history;
pub(super) mod host;
pub(super) mod look_after;
pub(super) mod options;
pub(super) mod plan;
pub(super) mod policy;
pub(super) mod record;
pub(super) mod rollback;
pub(super) mod start;
pub(super) mod status;
mod text;
pub(super) mod trigger;
pub(super) mod with_claim;
