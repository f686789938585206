//! The context in which verbs run, and the parsers of their arguments.

use crate::exit::Failure;
use crate::local::LocalState;
use crate::output::warn;
use crate::settings::Settings;
use etcd_session::{Class, Deadline, Session, StoreError, common_name, random_token};
use schema::codec;
use schema::keys::Key;
use schema::names::{EventId, HostName, ServiceName, Version};
use schema::snapshot::KeySnapshot;
use schema::time::{EpochSeconds, format_duration};
use schema::transaction::Transaction;
use schema::writes::act::{Act, ClockDoubt, EventLog};
use std::cell::{Cell, RefCell};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::task::JoinHandle;

/// Access to the store for one verb.
pub(crate) struct Store<'a> {
    pub(super) settings: &'a Settings,
    pub(super) session: Session,
    /// Deadline of the whole command.
    pub(super) deadline: Deadline,
    /// The events before the first act of the command, which are read while the verb reads what it changes.
    event_log: RefCell<Option<JoinHandle<Result<EventLog, StoreError>>>>,
    /// True once the command has compared the clock of its machine with the newest event.
    clock_is_said: Cell<bool>,
}

impl<'a> Store<'a> {
    /// Returns access to a store.
    pub(super) fn new(settings: &'a Settings, session: Session, deadline: Deadline) -> Self {
        Self { settings, session, deadline, event_log: RefCell::default(), clock_is_said: Cell::default() }
    }

    /// Returns the same access with the whole time of a command left.
    pub(super) fn again(&self) -> Self {
        Self::new(self.settings, self.session.clone(), Deadline::within(self.settings.timeout))
    }

    /// Begins to read what [`Self::act`] needs, so that the verb does not wait for it later.
    pub(super) fn prepare_act(&self) {
        let (session, deadline) = (self.session.clone(), self.deadline);
        let host = self.settings.author.host.clone();
        let task = tokio::spawn(async move { session.read_event_log(host.as_ref(), deadline).await });
        self.event_log.replace(Some(task));
    }

    async fn event_log(&self) -> Result<EventLog, StoreError> {
        let prepared = self.event_log.take();
        if let Some(task) = prepared
            && let Ok(log) = task.await
        {
            return log;
        }
        self.session.read_event_log(self.settings.author.host.as_ref(), self.deadline).await
    }

    /// Returns the description of an act, which its transaction records as an event.
    pub(super) async fn act(&self, verb: &'static str, reason: Option<&str>) -> Result<Act, StoreError> {
        let log = match self.event_log().await {
            // Without the list no old event is deleted, which is no reason to refuse the act.
            Err(error) if error.class() == Class::Fatal => EventLog::default(),
            log => log?,
        };
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let millis = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let Settings { author, session, host_name, .. } = self.settings;
        let act = Act {
            store_user: session
                .user
                .as_ref()
                .map(|(user, _)| user.clone())
                .or_else(|| common_name(&session.tls)),
            host: author.host.clone(),
            client: format!("{host_name}, orchestrate {}", env!("CARGO_PKG_VERSION")),
            reason: reason.filter(|reason| !reason.is_empty()).map(str::to_owned),
            log,
            ..Act::new(EventId::of(millis, &random_token()), &author.name, verb)
        };
        if !self.clock_is_said.replace(true)
            && let Some(doubt) = act.clock_doubt()
        {
            warn(&text_of(doubt));
        }
        Ok(act)
    }

    /// Remembers the desired version of a snapshot for times when the store is away.
    pub(super) fn remember_desired(&self, snapshot: &KeySnapshot) {
        let entry = snapshot.get(&Key::CurrentVersion);
        if let Some(Ok(version)) = entry.map(|entry| codec::read_version(&entry.value)) {
            LocalState::of(self.settings).keep_current_version(&version);
        }
    }

    /// Commits a transaction that has no comparisons. Returns its revision.
    pub(super) async fn commit(&self, transaction: &Transaction) -> Result<i64, StoreError> {
        self.session.commit(transaction, self.deadline).await.map(|committed| committed.revision)
    }
}

/// Says that the clock of this machine may be wrong.
fn text_of(doubt: ClockDoubt) -> String {
    let rounded = |by: Duration| format_duration(Duration::from_secs(by.as_secs()));
    match doubt {
        ClockDoubt::Behind(by) => format!(
            "the newest event in the store is {} newer than the clock of this machine: one of two clocks is wrong",
            rounded(by)
        ),
        ClockDoubt::Ahead(by) => format!(
            "the newest event in the store is {} older than the clock of this machine: check the clock, unless no operator acted since",
            rounded(by)
        ),
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

/// What counts as the present for a question about the past. One command has one present.
static PAST_NOW: OnceLock<EpochSeconds> = OnceLock::new();

/// Has this time count as the present from now on.
pub(super) fn set_now(now: EpochSeconds) {
    let _ = PAST_NOW.set(now);
}

/// Returns the current time, or what counts as the present.
pub(super) fn now() -> EpochSeconds {
    if let Some(now) = PAST_NOW.get() {
        return *now;
    }
    // A clock before 1970 means a machine without a clock; any time is as good there.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    EpochSeconds(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}
