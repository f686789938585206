//! The building blocks of whole-system tests: real etcd members, real agents, the real command, an
//! independent recorder of every change in the store, and a checker of invariants over the whole
//! history.

pub mod answers;
pub mod authority;
pub mod browser;
pub mod checker;
pub mod etcd;
pub mod host;
pub mod laws;
pub mod network;
pub mod object_store;
pub mod observer;
pub mod process;
pub mod proxy;
pub mod raw;
pub mod receiver;
pub mod recorder;
pub mod recording;
pub mod simulation;
pub mod solo;
pub mod store;
pub mod wait;

/// Records that a test was skipped and why; the test command lists these lines at its end.
pub fn skip(test: &str, why: &str) {
    use std::io::Write;
    let Ok(path) = std::env::var("ORCHESTRATE_SKIPPED") else { return };
    let file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
    let mut file = file.unwrap_or_else(|e| panic!("{path}: {e}"));
    writeln!(file, "{test}: {why}").unwrap_or_else(|e| panic!("{path}: {e}"));
}
