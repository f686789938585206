//! What whole-system tests are made of: real etcd members, real agents, the real command, an independent
//! recorder of everything that the store ever said, and a checker of invariants over the whole history.

pub mod checker;
pub mod etcd;
pub mod host;
pub mod process;
pub mod recorder;
pub mod store;
pub mod wait;
