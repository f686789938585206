//! Which incidents are open, and which messages wait for which receiver. Both stand in one file, so that what opens an
//! incident also keeps its messages: each is sent at least once, whenever the process ends.

use super::message::Message;
use fleet::incidents::{
    IncidentBook, IncidentId, IncidentKind, IncidentTimes, Notice, NoticeKind, OpenIncident, Severity,
    Situation,
};
use schema::time::EpochSeconds;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Number of messages that wait for one receiver. When there are more, the oldest of the least severe are dropped.
const WAITING_MAX: usize = 1000;

/// Who gets messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Receiver {
    pub(crate) name: String,
    /// Less severe incidents are left out.
    pub(crate) min_severity: Severity,
}

/// What is in the file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Content {
    #[serde(flatten)]
    book: IncidentBook,
    /// The messages that wait, by the name of the receiver, the oldest first.
    #[serde(default)]
    waiting: BTreeMap<String, VecDeque<Message>>,
    /// Whether the last look showed the fleet. What is read from a file has not looked yet.
    #[serde(skip)]
    is_fresh: bool,
}

/// The open incidents and the messages that wait for a receiver, at one moment.
#[derive(Debug, Default)]
pub(crate) struct OpenAndWaiting {
    pub(crate) lineage: String,
    pub(crate) open: Vec<OpenIncident>,
    /// All that are open, also those of which is not known whether they still hold.
    pub(crate) open_ids: BTreeSet<IncidentId>,
    pub(crate) waiting: Vec<Message>,
}

/// The open incidents and the waiting messages, with their file.
pub(crate) struct IncidentStore {
    receivers: Vec<Receiver>,
    content: Mutex<Content>,
    /// The path of the file. It is locked before the content, and while the file is written; the content is not.
    file: Mutex<PathBuf>,
    /// False while the file is older than the content.
    is_saved: AtomicBool,
    /// The name of this machine.
    observer: String,
    /// Changes when messages are added.
    added: watch::Sender<()>,
}

impl IncidentStore {
    /// Opens the file. One that cannot be read is set aside, and no incident is open. Messages for others than these
    /// receivers are dropped. A new receiver hears of all open incidents.
    pub(crate) fn open_file(directory: &Path, receivers: Vec<Receiver>) -> std::io::Result<Self> {
        let path = directory.join("incidents.json");
        let mut content = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| {
                let aside = path.with_extension("bad");
                // If this fails, the file is written over.
                let _ = std::fs::rename(&path, &aside);
                let file = aside.display();
                tracing::error!(%error, %file, "the open incidents cannot be read; starting with none");
                Content::default()
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => Content::default(),
            Err(error) => return Err(error),
        };
        content.waiting.retain(|name, queue| {
            let is_known = receivers.iter().any(|receiver| receiver.name == *name);
            if !is_known && !queue.is_empty() {
                tracing::warn!(receiver = name, "{} messages were dropped with their receiver", queue.len());
            }
            is_known
        });
        let observer = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let lineage = content.book.lineage().to_owned();
        for receiver in &receivers {
            let open = content.book.open().into_iter();
            let heard = open.filter(|open| open.incident.severity >= receiver.min_severity).map(|open| {
                let OpenIncident { since, incident, .. } = open;
                Message::new(
                    &Notice { notice: NoticeKind::Opened, at: since, since, incident },
                    &lineage,
                    &observer,
                )
            });
            content.waiting.entry(receiver.name.clone()).or_insert_with(|| heard.collect());
        }
        let (content, file) = (Mutex::new(content), Mutex::new(path));
        let is_saved = AtomicBool::new(true);
        Ok(Self { receivers, content, file, is_saved, observer, added: watch::Sender::default() })
    }

    /// Notes what is wrong with the fleet, keeps the messages that follow from it, and returns what has to be said.
    pub(crate) fn advance(
        &self,
        situation: Option<Situation>,
        now: EpochSeconds,
        times: &IncidentTimes,
    ) -> Vec<Notice> {
        let mut content = self.lock();
        let before = content.book.clone();
        content.is_fresh = situation.is_some();
        let notices = content.book.advance(situation, now, times);
        for receiver in &self.receivers {
            let lineage = content.book.lineage().to_owned();
            let heard = notices.iter().filter(|notice| notice.incident.severity >= receiver.min_severity);
            let queue = content.waiting.entry(receiver.name.clone()).or_default();
            queue.extend(heard.map(|notice| Message::new(notice, &lineage, &self.observer)));
            let excess = queue.len().saturating_sub(WAITING_MAX);
            if excess > 0 {
                drop_least(queue, excess);
                tracing::error!(
                    receiver = receiver.name,
                    "{excess} messages were dropped, the least severe first"
                );
            }
        }
        let has_changed = content.book != before;
        drop(content);
        if has_changed || !self.is_saved.load(Ordering::Relaxed) {
            self.save();
        }
        if !notices.is_empty() {
            self.added.send_replace(());
        }
        notices
    }

    /// Returns the open incidents, the most urgent first.
    pub(crate) fn open(&self) -> Vec<OpenIncident> {
        self.lock().book.open()
    }

    /// Returns what changes when messages are added.
    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.added.subscribe()
    }

    /// Returns the oldest message that waits for a receiver.
    pub(crate) fn oldest(&self, receiver: &Receiver) -> Option<Message> {
        self.lock().waiting.get(&receiver.name)?.front().cloned()
    }

    /// Returns the number of messages that wait for each receiver.
    pub(crate) fn waiting_counts(&self) -> Vec<(String, usize)> {
        let content = self.lock();
        let count = |receiver: &Receiver| content.waiting.get(&receiver.name).map_or(0, VecDeque::len);
        self.receivers.iter().map(|receiver| (receiver.name.clone(), count(receiver))).collect()
    }

    /// Returns the open incidents that a receiver hears of, and all messages that wait for it. While what is known is old,
    /// only that counts as open: another observer may know more.
    pub(crate) fn open_and_waiting(&self, receiver: &Receiver) -> OpenAndWaiting {
        let content = self.lock();
        let mut open = content.book.open();
        let open_ids = open.iter().map(|open| open.incident.incident_id.clone()).collect();
        open.retain(|open| {
            let is_known = content.is_fresh || open.incident.kind == IncidentKind::StoreAway;
            is_known && open.incident.severity >= receiver.min_severity
        });
        OpenAndWaiting {
            lineage: content.book.lineage().to_owned(),
            open,
            open_ids,
            waiting: content.waiting.get(&receiver.name).into_iter().flatten().cloned().collect(),
        }
    }

    /// Notes that a receiver has these messages.
    pub(crate) fn confirm(&self, receiver: &Receiver, messages: &[Message]) {
        let received: BTreeSet<&str> = messages.iter().map(|message| message.id.as_str()).collect();
        if let Some(queue) = self.lock().waiting.get_mut(&receiver.name) {
            queue.retain(|message| !received.contains(message.id.as_str()));
        }
        self.save();
    }

    fn lock(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the newest content.
    fn save(&self) {
        let path = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = serde_json::to_vec(&*self.lock());
        let written = bytes.map_err(Into::into).and_then(|bytes| write(&path, &bytes));
        self.is_saved.store(written.is_ok(), Ordering::Relaxed);
        if let Err(error) = written {
            tracing::error!(%error, file = %path.display(), "the open incidents cannot be written");
        }
    }
}

/// Drops so many messages, the oldest of the least severe first.
fn drop_least(queue: &mut VecDeque<Message>, count: usize) {
    let mut by_severity: Vec<(Severity, usize)> =
        queue.iter().enumerate().map(|(index, message)| (message.incident.severity, index)).collect();
    by_severity.sort_unstable();
    let dropped: BTreeSet<usize> = by_severity.iter().take(count).map(|(_, index)| *index).collect();
    let mut index = 0;
    queue.retain(|_| {
        index += 1;
        !dropped.contains(&(index - 1))
    });
}

/// Writes the file, so that it is on disk when this returns.
fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let new = path.with_extension("new");
    let mut file = std::fs::File::create(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    path.parent().map_or(Ok(()), |directory| std::fs::File::open(directory)?.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleet::incidents::Incident;
    use schema::names::HostName;
    use std::time::Duration;

    const AT_ONCE: IncidentTimes = IncidentTimes { hold_for: Duration::ZERO, clear_for: Duration::ZERO };

    /// Returns a fleet with as many different failures as there are causes.
    fn failing(kind: IncidentKind, causes: &[&str]) -> Option<Situation> {
        let incident = |cause: &&str| Incident {
            incident_id: IncidentId::new("l", None, kind, cause),
            kind,
            severity: kind.severity(),
            summary: format!("{cause} failed"),
            hint: String::new(),
            hosts: (0..60).map(|n| HostName::new(format!("h{n}")).unwrap()).collect(),
            rollout_id: None,
        };
        let incidents = causes.iter().map(incident).collect();
        Some(Situation { lineage: "l".into(), host_count: 60, incidents, ..Situation::default() })
    }

    fn receiver(name: &str, min_severity: Severity) -> Receiver {
        Receiver { name: name.into(), min_severity }
    }

    #[test]
    fn messages_outlive_a_restart_until_their_receiver_has_them() {
        let directory = tempfile::tempdir().unwrap();
        let receivers =
            [receiver("a", Severity::Info), receiver("b", Severity::Page), receiver("c", Severity::Info)];
        let open =
            |count: usize| IncidentStore::open_file(directory.path(), receivers[..count].to_vec()).unwrap();
        let kept = open(3);
        kept.advance(failing(IncidentKind::Failed, &["x"]), EpochSeconds(10), &AT_ONCE);
        let kept = open(3);
        assert_eq!(kept.waiting_counts(), [("a".into(), 1), ("b".into(), 0), ("c".into(), 1)]);
        let message = kept.oldest(&receivers[0]).unwrap();
        assert_eq!(
            (message.notice, message.host_count, message.incident.hosts.len()),
            (NoticeKind::Opened, 60, 50)
        );
        kept.confirm(&receivers[0], &[message]);
        let kept = open(3);
        assert_eq!(kept.oldest(&receivers[2]).map(|message| message.at.0), Some(10));
        // What opens and what ends is in order.
        kept.advance(failing(IncidentKind::Failed, &[]), EpochSeconds(20), &AT_ONCE);
        let state = kept.open_and_waiting(&receivers[2]);
        let notices: Vec<NoticeKind> = state.waiting.iter().map(|message| message.notice).collect();
        assert_eq!((notices, state.open.len()), (vec![NoticeKind::Opened, NoticeKind::Resolved], 0));
        kept.advance(failing(IncidentKind::Halted, &["y"]), EpochSeconds(30), &AT_ONCE);
        assert_eq!(kept.waiting_counts(), [("a".into(), 2), ("b".into(), 1), ("c".into(), 3)]);
        // One that is not in the settings any more gets nothing. A new one hears of what is open.
        open(1).advance(failing(IncidentKind::Halted, &[]), EpochSeconds(40), &AT_ONCE);
        open(1).advance(failing(IncidentKind::Halted, &["z"]), EpochSeconds(50), &AT_ONCE);
        let kept = open(3);
        assert_eq!(kept.waiting_counts(), [("a".into(), 4), ("b".into(), 1), ("c".into(), 1)]);
        let heard = kept.oldest(&receivers[1]).unwrap();
        assert_eq!((heard.notice, heard.incident.summary.as_str()), (NoticeKind::Opened, "z failed"));
    }

    #[test]
    fn while_the_store_is_away_only_that_counts_as_open() {
        let directory = tempfile::tempdir().unwrap();
        let one = receiver("a", Severity::Info);
        let kinds = |kept: &IncidentStore| -> Vec<IncidentKind> {
            kept.open_and_waiting(&one).open.iter().map(|open| open.incident.kind).collect()
        };
        let open = || IncidentStore::open_file(directory.path(), vec![one.clone()]).unwrap();
        let kept = open();
        kept.advance(failing(IncidentKind::Failed, &["x"]), EpochSeconds(10), &AT_ONCE);
        assert_eq!(kinds(&kept), [IncidentKind::Failed]);
        kept.advance(None, EpochSeconds(20), &AT_ONCE);
        assert_eq!(kinds(&kept), [IncidentKind::StoreAway]);
        // After a restart nothing of the fleet is known until the first look.
        let kept = open();
        assert_eq!(kinds(&kept), [IncidentKind::StoreAway]);
        kept.advance(failing(IncidentKind::Failed, &["x"]), EpochSeconds(30), &AT_ONCE);
        assert_eq!(kinds(&kept), [IncidentKind::Failed]);
    }

    #[test]
    fn a_receiver_that_stays_away_costs_bounded_space() {
        let directory = tempfile::tempdir().unwrap();
        let one = receiver("a", Severity::Info);
        let kept = IncidentStore::open_file(directory.path(), vec![one.clone()]).unwrap();
        let causes: Vec<String> = (0..WAITING_MAX + 5).map(|n| n.to_string()).collect();
        let causes: Vec<&str> = causes.iter().map(String::as_str).collect();
        kept.advance(failing(IncidentKind::Failed, &causes), EpochSeconds(10), &AT_ONCE);
        assert_eq!(kept.waiting_counts(), [("a".into(), WAITING_MAX)]);
        let first = kept.oldest(&one).unwrap();
        kept.advance(failing(IncidentKind::Halted, &["x"]), EpochSeconds(20), &AT_ONCE);
        let waiting = kept.open_and_waiting(&one).waiting;
        assert_ne!(waiting[0].id, first.id, "the oldest is dropped");
        assert!(
            waiting.iter().any(|message| message.incident.kind == IncidentKind::Halted),
            "a page is kept"
        );
    }

    #[test]
    fn a_file_that_cannot_be_read_begins_anew() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("incidents.json"), "{").unwrap();
        let kept = IncidentStore::open_file(directory.path(), Vec::new()).unwrap();
        kept.advance(failing(IncidentKind::Lost, &["x"]), EpochSeconds(10), &AT_ONCE);
        let kept = IncidentStore::open_file(directory.path(), Vec::new()).unwrap();
        assert_eq!(kept.open().len(), 1);
        assert_eq!(std::fs::read(directory.path().join("incidents.bad")).unwrap(), b"{");
    }
}
