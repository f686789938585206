//! What the HTTP servers of the agent and of the observer share: limits on connections, times and sizes, because any
//! program of the machine may send requests, and the check of the name by which a client asks.

mod own_names;
mod server;

pub use own_names::{OwnNames, require_own_name};
pub use server::{Connection, Limits, Source, TooManyWait, Waiting, serve};
