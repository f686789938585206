//! An act of an operator, and the event that its transaction carries.
//!
//! The events of a fleet are bounded, and so are those of the steps of each host: each act deletes the
//! oldest ones that are too many. The ids order nothing, because the clocks of operators differ; readers order events by
//! their revisions. No event goes because of its age: one clock that is wrong would delete the log of all.

use crate::codec::{self, cut};
use crate::keys::Key;
use crate::names::{EventId, HostName};
use crate::records::{EVENT_TEXT_MAX_BYTES, Event};
use crate::snapshot::KeySnapshot;
use crate::transaction::{Operation, Transaction};
use std::time::Duration;

/// Largest number of events of operators that are kept.
pub const EVENTS_MAX: usize = 10_000;
/// Largest number of events of the steps of one host that are kept.
pub const HOST_EVENTS_MAX: usize = 100;
/// How much older than a clock the newest event may be before an act says so. A fleet can be quiet for some days.
const OLDER_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// How much newer than a clock the newest event may be before an act says so.
const NEWER_MAX: Duration = Duration::from_secs(60);
/// Largest number of old events that one act deletes.
pub const EVENTS_TO_DELETE: usize = 10;

/// The events as they stood before an act: those of operators, or those of one host. The default is an empty
/// list, for which nothing is deleted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventLog {
    pub count: usize,
    /// Ids of the oldest events by revision of creation, at most [`EVENTS_TO_DELETE`].
    pub oldest: Vec<EventId>,
    /// Id of the newest event by revision of creation.
    pub newest: Option<EventId>,
}

/// How the clock of an act differs from the newest event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockDoubt {
    /// The newest event is so much newer: one of two clocks is wrong.
    Behind(Duration),
    /// The newest event is so much older: the clock is wrong, or the fleet was quiet.
    Ahead(Duration),
}

/// An act of an operator, or of a command in a step of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Act {
    /// Id of the event.
    pub id: EventId,
    /// Name of the person or job that acts.
    pub by: String,
    /// The user of the store as which the command authenticates itself.
    pub store_user: Option<String>,
    /// The host whose step runs the command; `None` for an operator. The user of an agent may write only the
    /// events of its host.
    pub host: Option<HostName>,
    /// The machine and the program from which it acts.
    pub client: String,
    /// The verb of the command.
    pub verb: &'static str,
    /// The reason that was given.
    pub reason: Option<String>,
    /// The events before the act.
    pub log: EventLog,
}

impl Act {
    /// Returns an act of somebody of whom nothing but the name is known.
    pub fn new(id: EventId, by: &str, verb: &'static str) -> Self {
        let (client, log) = (String::new(), EventLog::default());
        Self { id, by: by.to_owned(), store_user: None, host: None, client, verb, reason: None, log }
    }

    /// Returns the key of the event.
    pub fn key(&self) -> Key {
        self.key_of(&self.id)
    }

    fn key_of(&self, id: &EventId) -> Key {
        match &self.host {
            Some(host) => Key::HostEvent(host.clone(), id.clone()),
            None => Key::Event(id.clone()),
        }
    }

    /// Adds the event of a change of `key` to its transaction, and the deletion of old events.
    /// `found` holds the key as it was before.
    pub(super) fn add_event(
        &self,
        mut transaction: Transaction,
        key: &Key,
        found: &KeySnapshot,
    ) -> Transaction {
        let text = |bytes: &[u8]| cut(&String::from_utf8_lossy(bytes), EVENT_TEXT_MAX_BYTES);
        let to = transaction.operations.iter().find(|operation| operation.key() == Some(key));
        let event = Event {
            by: Some(cut(&self.by, EVENT_TEXT_MAX_BYTES)),
            user: self.store_user.as_deref().map(|user| cut(user, EVENT_TEXT_MAX_BYTES)),
            client: cut(&self.client, EVENT_TEXT_MAX_BYTES),
            verb: self.verb.to_owned(),
            what: key.to_string(),
            from: found.get(key).map(|entry| text(&entry.value)),
            to: to.and_then(|operation| match operation {
                Operation::Put { value, .. } | Operation::PutIfAbsent { value, .. } => Some(text(value)),
                Operation::Delete(_) | Operation::DeleteAll(_) => None,
            }),
            reason: self.reason.as_deref().map(|reason| cut(reason, EVENT_TEXT_MAX_BYTES)),
        };
        transaction.put(self.key(), codec::write(&event), 0);
        for outdated in self.outdated() {
            transaction.delete(self.key_of(outdated));
        }
        transaction
    }

    /// Returns the events to delete: those that are too many.
    fn outdated(&self) -> impl Iterator<Item = &EventId> {
        let most = if self.host.is_some() { HOST_EVENTS_MAX } else { EVENTS_MAX };
        let too_many = (self.log.count + 1).saturating_sub(most);
        self.log.oldest.iter().take(too_many.min(EVENTS_TO_DELETE))
    }

    /// Returns how the clock of this act differs from the newest event, if that is worth a word.
    pub fn clock_doubt(&self) -> Option<ClockDoubt> {
        let newest = self.log.newest.as_ref()?.millis();
        let behind = Duration::from_millis(newest.saturating_sub(self.id.millis()));
        let ahead = Duration::from_millis(self.id.millis().saturating_sub(newest));
        if behind > NEWER_MAX {
            return Some(ClockDoubt::Behind(behind));
        }
        (ahead > OLDER_MAX).then_some(ClockDoubt::Ahead(ahead))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host_config::ConfigScope;
    use crate::keys;
    use crate::names::{HostName, Token, Version};
    use crate::records::RosterEntry;
    use crate::snapshot::Entry;
    use crate::time::EpochSeconds;
    use crate::writes::host_config::{UpgradeChange, write_value};
    use crate::writes::operator::{self, TargetRequest};

    const DAY: u64 = 24 * 3600 * 1000;

    fn id(millis: u64, random: &str) -> EventId {
        EventId::of(millis, &Token::new(random).unwrap())
    }

    fn act(at: u64, count: usize, oldest: &[u64]) -> Act {
        Act {
            store_user: Some("ops".into()),
            client: "ops1".into(),
            reason: Some("x".repeat(5000)),
            log: EventLog { count, oldest: oldest.iter().map(|at| id(*at, "old")).collect(), newest: None },
            ..Act::new(id(at, "new"), "ann", "test")
        }
    }

    fn check(at: u64, count: usize, oldest: &[u64], deleted: &[u64]) {
        let act = act(at, count, oldest);
        let found: Vec<u64> = act.outdated().map(EventId::millis).collect();
        assert_eq!(found, deleted, "at {at}, {count} events, oldest {oldest:?}");
    }

    #[test]
    fn events_are_bounded_by_number_and_by_no_clock() {
        let now = 1000 * DAY;
        check(now, 0, &[], &[]);
        check(now, 2, &[now - 31 * DAY, now - 29 * DAY], &[]);
        check(now, EVENTS_MAX - 1, &[now - 2, now - 1], &[]);
        check(now, EVENTS_MAX, &[now - 2, now - 1], &[now - 2]);
        check(now, EVENTS_MAX + 1, &[now - 2, now - 1], &[now - 2, now - 1]);
        // The clock that wrote an event may have been ahead; such an event goes by number.
        check(now, 1, &[now + 900 * DAY], &[]);
        // A host has fewer.
        let of_host = Act { host: HostName::new("h").ok(), ..act(now, HOST_EVENTS_MAX, &[now - 2, now - 1]) };
        let deleted: Vec<Key> = of_host.outdated().map(|id| of_host.key_of(id)).collect();
        assert_eq!(deleted, [Key::HostEvent(HostName::new("h").unwrap(), id(now - 2, "old"))]);
        // Each act deletes a bounded number.
        let many: Vec<u64> = (0..30).collect();
        check(now, EVENTS_MAX * 2, &many, &many[..EVENTS_TO_DELETE]);
    }

    #[test]
    fn an_act_says_how_its_clock_differs_from_the_newest_event() {
        let check = |newest: u64, expected: Option<ClockDoubt>| {
            let mut act = act(1000 * DAY, 1, &[]);
            act.log.newest = Some(id(newest, "newest"));
            assert_eq!(act.clock_doubt(), expected);
        };
        let days = |days: u64| Duration::from_millis(days * DAY);
        check(996 * DAY, None);
        check(960 * DAY, Some(ClockDoubt::Ahead(days(40))));
        check(1000 * DAY + 30_000, None);
        check(1040 * DAY, Some(ClockDoubt::Behind(days(40))));
        assert_eq!(act(1000 * DAY, 0, &[]).clock_doubt(), None);
    }

    #[test]
    fn every_transaction_of_an_operator_carries_one_event_and_can_be_sent() {
        let host = HostName::new("h").unwrap();
        let (version, at) = (Version::new("v2").unwrap(), EpochSeconds(7));
        let identity = crate::records::StoreIdentity::new(Token::new("abc").unwrap(), 1);
        let entry = |value: &str| Entry {
            value: value.into(),
            create_revision: 1,
            mod_revision: 4,
            lease: 0,
            version: 1,
        };
        let mut found = KeySnapshot { revision: 9, ..KeySnapshot::default() };
        found.entries.insert(Key::CurrentVersion.to_string(), entry("v1"));
        found.entries.insert(Key::Live(host.clone()).to_string(), entry("{}"));
        found.entries.insert("/available_services/web/h".into(), entry("{}"));
        found.entries.insert("/available_services/web/other".into(), entry("{}"));
        let act = act(1000 * DAY, EVENTS_MAX + 50, &(0..20).collect::<Vec<_>>());
        let (roster, marks) = (RosterEntry::default(), crate::records::Maintenance::default());
        let mut transactions = vec![
            operator::set_target(&TargetRequest::new(version.clone()), true, &found, &act),
            operator::roll_back(&version, &found, &act),
            operator::accept_store(&identity, &version, EpochSeconds(1), &found, &act),
            operator::add_host(&host, &roster, &found, &act),
            operator::request_retry(&host, at, &found, &act),
            operator::set_maintenance(&host, &marks, &[], &found, &act),
            operator::request_drop_stale(at, &found, &act),
            write_value(&Key::EnablePuppet(ConfigScope::Global), Some("True"), &found, &act),
            UpgradeChange { trigger: Some(version), ..UpgradeChange::default() }.transaction(&found, &act),
            UpgradeChange { enable: vec![host.clone()], ..UpgradeChange::default() }
                .transaction(&found, &act),
        ];
        let mut decommission = operator::decommission(&host, &roster, &found, &act);
        assert_eq!(decommission.len(), 3, "withdrawn, deleted, decommissioned");
        transactions.extend(decommission.pop());
        for transaction in transactions {
            assert_eq!(transaction.check(), Ok(()), "{}", transaction.name);
            let events: Vec<Event> = transaction
                .operations
                .iter()
                .filter_map(|operation| match operation {
                    Operation::Put { key: Key::Event(_), value, lease: 0 } => keys::Event::read(value).ok(),
                    _ => None,
                })
                .collect();
            assert_eq!(events.len(), 1, "{}", transaction.name);
            assert!(codec::write(&events[0]).len() < 8 * 1024, "{}", transaction.name);
            let changes_what = |o: &Operation| o.key().is_some_and(|key| key.to_string() == events[0].what);
            assert!(transaction.operations.iter().any(changes_what), "{}", transaction.name);
        }
    }
}
