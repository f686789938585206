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

/// Where the store was when it answered a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StorePosition {
    /// Its revision.
    pub revision: i64,
    pub raft_term: u64,
    /// True if one of them is lower than an earlier answer had: the store was restored or wiped.
    pub went_back: bool,
}

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

    /// Begins a new history with this revision and raft term, after the store was restored.
    pub fn begin_history(&self, revision: i64, raft_term: u64) {
        self.0.begin_history(revision, raft_term);
    }

    /// Returns where the store is, no older than this call, by a read of these keys.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn position(&self, keys: &Keys, deadline: Deadline) -> Result<StorePosition, StoreError> {
        let marks = self.0.marks();
        let from = self.0.full(keys).into_bytes();
        let options = GetOptions::new().with_range(end_of(keys, &from)).with_keys_only().with_limit(1);
        let found = self
            .0
            .call(RequestKind::Read, "read", Repeat::Freely, deadline, |mut client| {
                let (from, options) = (from.clone(), options.clone());
                async move { client.get(from, Some(options)).await }
            })
            .await?;
        let (revision, raft_term) =
            found.header().map_or((0, 0), |header| (header.revision(), header.raft_term()));
        let is_of_this_history = self.0.marks().history == marks.history;
        let went_back = is_of_this_history && !marks.regress_of(revision, raft_term).is_none();
        if is_of_this_history {
            self.0.remember_marks(revision, raft_term);
        }
        Ok(StorePosition { revision, raft_term, went_back })
    }

    /// True if no key of these changed after the revision `since`, at which there were `count`, up to the revision
    /// `at`: none was written after `since`, and as many are there, so none was deleted either.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn is_unchanged(
        &self,
        keys: &Keys,
        since: i64,
        count: usize,
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
            .call(RequestKind::Read, "read", Repeat::Freely, deadline, |mut client| {
                let (from, options) = (from.clone(), options.clone());
                async move { client.get(from, Some(options)).await }
            })
            .await?;
        Ok(found.kvs().is_empty() && usize::try_from(found.count()) == Ok(count))
    }

    /// Returns the names of the raised alarms, for example `NOSPACE`; `None` if the user may not ask.
    ///
    /// # Errors
    /// Returns the store's error if it does not say whether there are alarms.
    pub async fn alarms(&self, deadline: Deadline) -> Result<Option<Vec<String>>, StoreError> {
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
