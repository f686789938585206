//! The context in which verbs run, and the parsers of their arguments.

use crate::exit::Failure;
use crate::settings::Settings;
use etcd_session::{Class, Deadline, Session, StoreError, random_token};
use schema::names::{EventId, HostName, ServiceName, Version};
use schema::time::EpochSeconds;
use schema::transaction::Transaction;
use schema::writes::act::{Act, EventLog};
use std::time::{SystemTime, UNIX_EPOCH};

/// Access to the store for one verb.
pub(super) struct Store<'a> {
    pub(super) settings: &'a Settings,
    pub(super) session: Session,
    /// Deadline of the whole command.
    pub(super) deadline: Deadline,
}

impl Store<'_> {
    /// Returns the same access with the whole time of a command left.
    pub(super) fn again(&self) -> Self {
        let deadline = Deadline::within(self.settings.timeout);
        Self { settings: self.settings, session: self.session.clone(), deadline }
    }

    /// Returns the description of an act, which its transaction records as an event.
    pub(super) async fn act(&self, verb: &'static str, reason: Option<&str>) -> Result<Act, StoreError> {
        let log = match self.session.read_event_log(self.deadline).await {
            // Without the list no old event is deleted, which is no reason to refuse the act.
            Err(error) if error.class() == Class::Fatal => EventLog::default(),
            log => log?,
        };
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let millis = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let mut client = format!("{}, orchestrate {}", self.settings.host_name, env!("CARGO_PKG_VERSION"));
        if let Some((user, _)) = &self.settings.session.user {
            client.push_str(&format!(", store user {user}"));
        }
        Ok(Act {
            id: EventId::of(millis, &random_token()),
            user: self.settings.operator.clone(),
            client,
            verb,
            reason: reason.filter(|reason| !reason.is_empty()).map(str::to_owned),
            log,
        })
    }

    /// Commits a transaction that has no comparisons. Returns its revision.
    pub(super) async fn commit(&self, transaction: &Transaction) -> Result<i64, StoreError> {
        self.session.commit(transaction, self.deadline).await.map(|committed| committed.revision)
    }
}

pub(super) fn version_of(text: &str) -> Result<Version, Failure> {
    Version::new(text).map_err(Failure::usage)
}

pub(super) fn service_of(text: &str) -> Result<ServiceName, Failure> {
    ServiceName::new(text).map_err(Failure::usage)
}

pub(super) fn host_of(text: &str) -> Result<HostName, Failure> {
    HostName::folded(text).map_err(Failure::usage)
}

/// Returns the current time.
pub(super) fn now() -> EpochSeconds {
    // A clock before 1970 means a machine without a clock; any time is as good there.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    EpochSeconds(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}
