//! Access to etcd: finds endpoints, connects, fails over and retries; mirrors and follows keys by
//! list and watch; claims a host name and keeps its lease alive; sends the transactions that
//! `schema::writes` builds. The only other user of the client in `etcd-client` is the export of
//! solo-etcd.

mod certificates;
mod clash;
mod classify;
mod commit;
mod config;
mod connecting;
mod contradiction;
mod discovery;
mod error;
mod host_write;
mod names;
mod observer;
mod operator;
mod pace;
mod presence;
mod random;
mod read;
mod read_only;
mod request;
mod services;
mod session;
#[cfg(test)]
mod tests;
mod watch;

pub use certificates::{certificate_ends, check_certificates, common_name};
pub use commit::Committed;
pub use config::{ConfigError, EndpointSource, Secret, SecretFileError, SessionConfig, TlsFiles};
pub use contradiction::{Contradictions, Statement};
pub use discovery::{DEFAULT_DISCOVERY_URL, new_discovery_token};
pub use error::{Class, StoreError};
pub use host_write::{HostWritten, Written};
pub use observer::{RequestKind, RequestObserver};
pub use operator::{TARGET_KEYS, TargetSet};
pub use pace::{refused_delay, write_backoff};
pub use presence::{Gate, LeaseEnd, Presence, PresenceConfig, PresenceState};
pub use random::{jitter, random_token};
pub use read::{Counted, EntryPage, FoundEntry, KeyList};
pub use read_only::{ReadOnlySession, StorePosition};
pub use request::Deadline;
pub use session::Session;
pub use watch::{
    Advance, Assembly, Change, Collected, Collector, Feed, FeedBegin, FeedEvent, FeedOptions, Mirror,
    MirrorOptions, Snapshot,
};
