//! Talking to etcd: finding endpoints, connecting, failing over, retrying; a mirror that lists, watches
//! and resumes; the claim of a host name with its leases; and the transactions of hosts and operators,
//! each under its own name. The only user of `etcd-client` as a client.

mod certificates;
mod config;
mod connecting;
mod discovery;
mod error;
mod feed;
mod host_write;
mod marks;
mod mirror;
mod operator;
mod presence;
mod read;
mod services;
mod session;

pub use certificates::{certificate_ends, check_certificates};
pub use config::{ConfigError, EndpointSource, Secret, SessionConfig, TlsFiles};
pub use discovery::{DEFAULT_DISCOVERY_URL, new_discovery_token};
pub use error::{Class, StoreError};
pub use feed::{Feed, FeedEvent, FeedOptions};
pub use host_write::{Fence, HostWrite, Listing, Refusal, Written};
pub use marks::{Marks, Regress, judged_keys, store_seen};
pub use mirror::{Mirror, MirrorOptions, Scope, Snapshot};
pub use operator::{Accepted, OneShot, StatusWrite, TargetSet};
pub use presence::{Gate, Presence, PresenceConfig, PresenceState};
pub use read::{Entry, EntryPage, KeyList, Picture};
pub use services::{OneShotService, SERVICES_IN_WRITE, ServiceChange, ServiceWrite};
pub use session::{Deadline, Session};

/// A random number in 0..1 for jitter. A failing random source gives the middle.
pub fn draw() -> f64 {
    getrandom::u32().map_or(0.5, |n| f64::from(n) / f64::from(u32::MAX))
}

/// A random token of 32 hexadecimal digits.
pub fn random_token() -> model::names::Token {
    let mut bytes = [0u8; 16];
    getrandom::fill(&mut bytes).unwrap_or_else(|e| panic!("no randomness from the kernel: {e}"));
    let text: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    model::names::Token::new(text).unwrap_or_else(|e| unreachable!("hexadecimal digits are a name: {e}"))
}
