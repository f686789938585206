//! The verbs. `verb.rs` says what a verb is, and `verbs.rs` has the list of them.
//!
//! Each verb has its file in the folder of its subject. The arrows between the folders go one way: `original` uses the
//! others, `state` uses `past`, `rollout`, `services` and `store`, `rollout` uses `store`, and `setup` uses `state`. The files
//! beside the folders serve all of them: `context.rs` is the access to the store, `fleet.rs` reads the fleet,
//! `selection.rs` the hosts that options select, and `watch.rs` shows an answer again.

pub(crate) mod answers;
mod ask;
pub(crate) mod call;
mod context;
mod failures;
mod fleet;
mod original;
mod past;
mod rollout;
mod selection;
mod services;
mod setup;
mod state;
mod store;
pub(crate) mod verb;
pub(crate) mod verbs;
mod watch;
