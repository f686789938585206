//! A session that only reads, for programs that show the fleet and never change it. A test of the architecture forbids
//! calls here that write.

use crate::config::{ConfigError, SessionConfig};
use crate::error::StoreError;
use crate::observer::{RequestKind, RequestObserver};
use crate::read::{key_after, range_end};
use crate::request::{Deadline, Repeat};
use crate::session::Session;
use crate::watch::{Feed, FeedEvent, FeedOptions};
use etcd_client::GetOptions;
use schema::reads::Keys;
use tokio::sync::mpsc;

/// A session with the store that cannot change it. It is cheap to clone; clones share one connection.
#[derive(Clone)]
pub struct ReadOnlySession(Session);

impl ReadOnlySession {
    /// Returns a session, which connects when it is first used.
    ///
    /// # Errors
    /// Returns the setting that cannot be used.
    pub fn new(config: SessionConfig) -> Result<Self, ConfigError> {
        Session::new(config).map(Self)
    }

    /// Returns a session with a store in this process, for tests.
    #[cfg(test)]
    pub(crate) fn of(session: Session) -> Self {
        Self(session)
    }

    /// Has each request from now on observed. Only the first observer counts.
    pub fn observe_requests(&self, observer: RequestObserver) {
        self.0.observe_requests(observer);
    }

    /// Starts to follow a key or a range ([`Feed::start`]).
    pub fn follow(
        &self,
        keys: Keys,
        options: FeedOptions,
        number: u64,
        sender: mpsc::Sender<(u64, FeedEvent)>,
    ) -> Feed {
        Feed::start(self.0.clone(), keys, options, number, sender)
    }

    /// Begins a new history at this revision, after the store was restored.
    pub fn begin_history(&self, revision: i64) {
        self.0.begin_history(revision, 0);
    }

    /// Returns a revision of the store that is not older than this call, by a read of these keys.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn revision(&self, keys: &Keys, deadline: Deadline) -> Result<i64, StoreError> {
        let from = self.0.full(keys).into_bytes();
        let options = GetOptions::new().with_range(end_of(keys, &from)).with_keys_only().with_limit(1);
        let found = self
            .0
            .call((RequestKind::Read, "read"), Repeat::Freely, deadline, |mut client| {
                let (from, options) = (from.clone(), options.clone());
                async move { client.get(from, Some(options)).await }
            })
            .await?;
        let revision = found.header().map_or(0, |header| header.revision());
        self.0.note_revision(revision);
        Ok(revision)
    }

    /// True if no key of these changed after the revision `since`, at which there were `count`, up to the revision
    /// `at`: none was written after `since`, and as many are there, so none was deleted either.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn is_unchanged(
        &self,
        keys: &Keys,
        (since, count): (i64, usize),
        at: i64,
        deadline: Deadline,
    ) -> Result<bool, StoreError> {
        let from = self.0.full(keys).into_bytes();
        let options = GetOptions::new()
            .with_range(end_of(keys, &from))
            .with_keys_only()
            .with_limit(1)
            .with_min_mod_revision(since + 1)
            .with_revision(at);
        let found = self
            .0
            .call((RequestKind::Read, "read"), Repeat::Freely, deadline, |mut client| {
                let (from, options) = (from.clone(), options.clone());
                async move { client.get(from, Some(options)).await }
            })
            .await?;
        Ok(found.kvs().is_empty() && usize::try_from(found.count()) == Ok(count))
    }

    /// Returns the etcd version of the member that answers, for example `3.5.21`.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn server_version(&self, deadline: Deadline) -> Result<String, StoreError> {
        self.0.server_version(deadline).await
    }

    /// Returns the names of the raised alarms, for example `NOSPACE`.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn alarms(&self, deadline: Deadline) -> Result<Vec<String>, StoreError> {
        self.0.alarms(deadline).await
    }
}

/// Returns the first key after those that begin with `from`.
fn end_of(keys: &Keys, from: &[u8]) -> Vec<u8> {
    match keys {
        Keys::One(_) => key_after(from),
        Keys::Below(_) => range_end(from),
    }
}
