//! An embedded single-node store that speaks the etcd v3 API, for one machine, development, demos
//! and tests. A fleet uses etcd.
//!
//! `core` is the store without clock or I/O, `journal` writes commands to disk, `engine` is the
//! single writer, and `server` is the interface for clients. Without the feature `server` only the
//! core is compiled.

// Journal and server use more of the core than is public.
#![cfg_attr(not(feature = "server"), allow(dead_code))]

pub mod core;
#[cfg(feature = "server")]
mod data_directory;
#[cfg(feature = "server")]
mod engine;
#[cfg(feature = "server")]
mod export;
#[cfg(feature = "frozen")]
pub mod frozen;
#[cfg(feature = "in-process")]
pub mod in_process;
#[cfg(feature = "server")]
mod journal;
#[cfg(feature = "server")]
pub mod process;
#[cfg(feature = "server")]
mod server;
#[cfg(feature = "server")]
mod solo;

#[cfg(feature = "server")]
pub use export::{Exported, export};
#[cfg(feature = "server")]
pub use journal::OpenError;
#[cfg(feature = "server")]
pub use solo::{DEFAULT_QUOTA_BYTES, ServeError, Solo, Storage};

#[cfg(all(fuzzing, feature = "server"))]
pub use journal::fuzzing;
