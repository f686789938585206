//! Who did what: the events in the store, what hosts did by themselves, and changes that have no event.
//!
//! This file is long because its tests write a history of the store.

use super::automatic::{automatic_act, automatic_acts};
use super::past_event::{HostChange, PastEvent};
use crate::text::Text;
use schema::keys::{Key, Prefix};
use schema::names::HostName;
use schema::records::Trigger;
use schema::snapshot::{Entry, KeySnapshot};
use schema::time::EpochSeconds;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeSet;

/// What happened, in the order of the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct EventsView {
    /// What happened.
    pub events: Vec<PastEvent>,
    /// The revision of the store at which the events were read.
    pub revision: i64,
    /// What a recording does not know of the time of a question about the past, for people.
    pub not_recorded: Vec<String>,
}

/// The ranges that only commands of operators change.
const OF_OPERATORS: [Prefix; 5] =
    [Prefix::Freezes, Prefix::Maintenances, Prefix::Config, Prefix::ConfigState, Prefix::ConfigVersion];

/// Returns the keys and ranges from which the events are read: the events, what only commands of operators
/// change, and what tells of acts of hosts.
pub fn event_reads() -> (Vec<Key>, Vec<Prefix>) {
    let keys = vec![Key::CurrentVersion, Key::Trigger, Key::RolloutPolicy, Key::DropStale];
    let ranges =
        [Prefix::Events].into_iter().chain(OF_OPERATORS).chain([Prefix::Rollouts, Prefix::HealthAll]);
    (keys, ranges.collect())
}

/// Returns what a change of the keys of events, rollouts or health tells, in the order of the store: of entries, what
/// came after a revision, and of deleted events, those in whose place nothing was written. `revision` is that of the
/// change.
pub fn events_after(after: i64, revision: i64, changes: &[(String, Option<Entry>)]) -> Vec<PastEvent> {
    let has_new = changes.iter().any(|(_, entry)| entry.is_some());
    let read = |(key, entry): &(String, Option<Entry>)| {
        let is_event = is_below(key, &Prefix::Events);
        match entry {
            Some(entry) if is_event => (entry.mod_revision > after).then(|| PastEvent::read(key, entry)),
            Some(entry) => {
                // The health of a service is told whenever it is written, and an act once.
                let is_health = is_below(key, &Prefix::HealthAll);
                let at = if is_health { entry.mod_revision } else { entry.create_revision };
                if at > after { automatic_act(key, entry) } else { None }
            }
            None => (is_event && !has_new).then(|| PastEvent::deleted_key(key, revision)),
        }
    };
    let mut events: Vec<PastEvent> = changes.iter().filter_map(read).collect();
    events.sort_by_key(|event| event.revision);
    events
}

fn is_below(key: &str, range: &Prefix) -> bool {
    key.starts_with(&range.to_string())
}

impl EventsView {
    /// Returns the events of a store, and the changes that have none. `found` holds [`event_reads`].
    ///
    /// A change without an event is told only if it is younger than the oldest event, because the event of an
    /// older one may have been deleted as too old.
    pub fn read(found: &KeySnapshot) -> Self {
        let mut events: Vec<PastEvent> =
            found.in_range(&Prefix::Events).map(|(key, entry)| PastEvent::read(key, entry)).collect();
        let known: BTreeSet<i64> = events.iter().map(|event| event.revision).collect();
        let oldest = known.first().copied().unwrap_or(0);
        let (keys, _) = event_reads();
        let keys = keys.iter().filter_map(|key| found.entries.get_key_value(&key.to_string()));
        for (key, entry) in keys.chain(OF_OPERATORS.iter().flat_map(|range| found.in_range(range))) {
            // A trigger is written with the version, and tells about it.
            let is_trigger = Key::parse(key) == Ok(Key::Trigger);
            if !is_trigger && entry.mod_revision > oldest && !known.contains(&entry.mod_revision) {
                let is_version = Key::parse(key) == Ok(Key::CurrentVersion);
                let trigger = if is_version { Trigger::find(found) } else { None };
                events.push(PastEvent::without_command(key, entry, trigger));
            }
        }
        // A rollback of an operator has an event, and that of a present rollout is told by the version.
        let revisions: BTreeSet<i64> = events.iter().map(|event| event.revision).collect();
        let is_told =
            |act: &PastEvent| act.change == Some(HostChange::Rollback) && revisions.contains(&act.revision);
        events.extend(automatic_acts(found).filter(|act| !is_told(act)));
        events.sort_by_key(|event| event.revision);
        Self { events, revision: found.revision, not_recorded: Vec::new() }
    }

    /// Adds what changed about hosts by itself, and what is not recorded of that time. What the store tells too is
    /// told once.
    pub fn add_changes(&mut self, changes: impl IntoIterator<Item = PastEvent>, not_recorded: Vec<String>) {
        self.not_recorded.extend(not_recorded);
        let known: BTreeSet<(i64, String)> =
            self.events.iter().map(|event| (event.revision, event.key.clone())).collect();
        let is_new = |event: &PastEvent| !known.contains(&(event.revision, event.key.clone()));
        self.events.extend(changes.into_iter().filter(is_new));
        self.events.sort_by_key(|event| event.revision);
    }

    /// Leaves out what happened before a time. What has no time is left out if it came before something that is.
    pub fn keep_since(&mut self, since: EpochSeconds) {
        let is_before = |event: &PastEvent| event.seconds.is_some_and(|at| at < since);
        let last = self.events.iter().filter(|event| is_before(event)).map(|event| event.revision).max();
        self.events.retain(|event| match event.seconds {
            Some(at) => at >= since,
            None => last.is_none_or(|last| event.revision > last),
        });
    }

    /// Leaves out what is not about a host.
    pub fn keep_host(&mut self, host: &HostName) {
        self.events.retain(|event| event.concerns(host));
    }

    /// Returns the events as a table, in which the reasons are cut to this width.
    pub fn text(&self, width: Option<usize>) -> Text {
        let mut text = Text::default();
        let header = ["AT", "BY", "VERB", "WHAT", "REASON"];
        text.table_within(width, header, self.events.iter().map(PastEvent::row));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::tells_of_events;
    use schema::codec;
    use schema::names::{EventId, Token};
    use schema::order::InstructionOrder;
    use schema::writes::act::Act;
    use schema::writes::operator::{self, TargetRequest};

    const AT: i64 = 1_700_000_000;

    /// A store: every change gets a revision of its own.
    #[derive(Default)]
    struct Store(KeySnapshot);

    impl Store {
        fn put(&mut self, key: &str, value: &str) {
            self.0.revision += 1;
            self.put_again(key, value);
        }

        fn put_again(&mut self, key: &str, value: &str) {
            let revision = self.0.revision;
            let created = self.0.entries.get(key).map_or(revision, |entry| entry.create_revision);
            let entry = Entry {
                value: value.into(),
                create_revision: created,
                mod_revision: revision,
                lease: 0,
                version: 1,
            };
            self.0.entries.insert(key.to_owned(), entry);
        }

        fn rows(&self) -> Vec<String> {
            EventsView::read(&self.0).events.iter().map(|event| event.row().join("|")).collect()
        }
    }

    fn act(seconds: i64, by: &str, verb: &'static str) -> Act {
        let millis = u64::try_from(seconds).unwrap() * 1000;
        Act::new(EventId::of(millis, &Token::new(by).unwrap()), by, verb)
    }

    fn trigger(store: &mut Store, seconds: i64, by: &str, version: &str) {
        let request = TargetRequest::new(schema::names::Version::new(version).unwrap());
        let act = Act { reason: Some("kernel".into()), ..act(seconds, by, "trigger_update") };
        let transaction = operator::set_target(&request, false, &store.0, &act);
        store.0.revision += 1;
        for operation in transaction.operations {
            if let schema::transaction::Operation::Put { key, value, .. } = operation {
                store.put_again(&key.to_string(), std::str::from_utf8(&value).unwrap());
            }
        }
    }

    #[test]
    fn acts_are_told_in_the_order_of_the_store() {
        let mut store = Store::default();
        // The clock of the second operator is behind.
        trigger(&mut store, AT + 60, "ann", "v1");
        trigger(&mut store, AT, "bob", "v2");
        assert_eq!(
            store.rows(),
            [
                "2023-11-14T22:14:20Z|ann|trigger_update|version v1|kernel",
                "2023-11-14T22:13:20Z|bob|trigger_update|version v1 to v2|kernel"
            ]
        );
    }

    #[test]
    fn a_change_without_an_event_has_no_author() {
        let mut store = Store::default();
        store.put("/current_version", "v0");
        assert_eq!(store.rows(), ["unknown|unknown|no command|version v0|"], "nobody left any event");
        trigger(&mut store, AT, "ann", "v1");
        store.put("/current_version", "v9");
        store.put("/orchestrate/rollout_policy", "{}");
        let rows = store.rows();
        assert_eq!(rows.len(), 3, "{rows:?}");
        assert!(rows[0].contains("|ann|trigger_update|version v0 to v1|"), "{rows:?}");
        assert_eq!(rows[1], "unknown|unknown|no command|version v9|");
        assert_eq!(rows[2], "unknown|unknown|no command|the rollout policy|");
        // What is older than the oldest event may have had one.
        let mut old = Store::default();
        old.put("/orchestrate/config/a", "x");
        trigger(&mut old, AT, "ann", "v1");
        assert_eq!(old.rows().len(), 1);
    }

    #[test]
    fn a_fleet_that_went_back_by_itself_says_which_host_did_it() {
        let mut store = Store::default();
        trigger(&mut store, AT, "ann", "v2");
        store.put("/current_version", "v1");
        let trigger = Trigger {
            at: EpochSeconds(AT + 5),
            by: "web-7".into(),
            reason: Some("too many hosts failed".into()),
            from: schema::names::Version::new("v2").ok(),
            options: schema::records::RolloutOptions::default(),
            rollback: true,
        };
        store.put_again("/orchestrate/trigger", &codec::write(&trigger));
        assert_eq!(
            store.rows()[1],
            "2023-11-14T22:13:25Z|web-7|rollback|version v2 to v1|too many hosts failed"
        );
    }

    #[test]
    fn acts_of_hosts_in_a_rollout_are_told_from_its_keys() {
        let mut store = Store::default();
        trigger(&mut store, AT, "ann", "v2");
        let mut put = |key: &str, value: &str| {
            store.put(
                &format!("/orchestrate/rollouts/{}/{key}", InstructionOrder { epoch: 1, revision: 1 }),
                value,
            );
        };
        put("soak/0", r#"{"format":1,"at":1700000010,"by":"web1"}"#);
        put("opened/1", r#"{"format":1,"at":1700000020,"by":"web1"}"#);
        put(
            "failed/db1",
            r#"{"format":1,"at":1700000030,"kind":"attempt","reason":"apply step pkg exited with code 3"}"#,
        );
        put("failed/db2", r#"{"format":1,"at":1700000040,"kind":"lost","reason":"its agent does not run"}"#);
        put("halt", r#"{"format":1,"at":1700000050,"by":"db1","why":"2 hosts failed, 1 tolerated"}"#);
        put("ended", r#"{"format":1,"at":1700000060,"by":"web1"}"#);
        store.put("/orchestrate/health/web/web1", "critical");
        store.put("/orchestrate/health/web/web2", "passing");
        let rows = store.rows();
        assert_eq!(
            rows[1..],
            [
                "2023-11-14T22:13:30Z|web1|soak|stage 1 of the rollout of revision 1|",
                "2023-11-14T22:13:40Z|web1|stage|stage 2 of the rollout of revision 1|",
                "2023-11-14T22:13:50Z|db1|failure|host db1 in the rollout of revision 1|apply step pkg exited with code 3",
                "2023-11-14T22:14:00Z|unknown|failure|host db2 in the rollout of revision 1|its agent does not run",
                "2023-11-14T22:14:10Z|db1|halt|the rollout of revision 1|2 hosts failed, 1 tolerated",
                "2023-11-14T22:14:20Z|web1|end|the rollout of revision 1|",
                "unknown|unknown|health|web on host web1: critical|",
            ]
        );
    }

    #[test]
    fn what_events_leave_out_while_they_are_read_changes_no_answer() {
        let mut store = Store::default();
        trigger(&mut store, AT, "ann", "v2");
        let rollout = format!("/orchestrate/rollouts/{}", InstructionOrder { epoch: 1, revision: 1 });
        store.put(&format!("{rollout}/halt"), r#"{"format":1,"at":1700000050,"by":"db1","why":"x"}"#);
        store.put(&format!("{rollout}/closing"), "web1");
        store.put("/orchestrate/health/web/web1", "critical");
        store.put("/orchestrate/health/web/web2", "passing");
        store.put("/orchestrate/config/a", "x");
        let whole = store.rows();
        store.0.entries.retain(|key, entry| tells_of_events(key, &entry.value));
        assert_eq!(store.rows(), whole);
        let kept = |part: &str| store.0.entries.keys().any(|key| key.contains(part));
        assert_eq!(["/halt", "web1", "web2", "closing"].map(kept), [true, true, false, false]);
    }

    #[test]
    fn what_is_followed_is_told_as_what_is_read() {
        let mut store = Store::default();
        trigger(&mut store, AT, "ann", "v2");
        let since = store.0.revision;
        let rollout = format!("/orchestrate/rollouts/{}", InstructionOrder { epoch: 1, revision: 1 });
        store.put(&format!("{rollout}/soak/1"), r#"{"format":1,"at":1700000010,"by":"web1"}"#);
        store.put(&format!("{rollout}/halt"), r#"{"format":1,"at":1700000050,"by":"db1","why":"x"}"#);
        store.put("/orchestrate/health/web/web1", "critical");
        store.put("/orchestrate/health/web/web2", "passing");
        trigger(&mut store, AT + 60, "bob", "v3");
        let view = EventsView::read(&store.0).events;
        let followed = [Prefix::Events, Prefix::Rollouts, Prefix::HealthAll].into_iter().flat_map(|range| {
            let changes = store.0.in_range(&range).map(|(key, entry)| (key.to_owned(), Some(entry.clone())));
            events_after(since, store.0.revision, &changes.collect::<Vec<_>>())
        });
        let mut followed: Vec<PastEvent> = followed.collect();
        followed.sort_by_key(|event| event.revision);
        assert_eq!(followed, view[1..]);
        assert_eq!(followed.len(), 4, "{followed:?}");
        // What is written again is no new act.
        store.put(&format!("{rollout}/halt"), r#"{"format":1,"at":1700000050,"by":"db1","why":"y"}"#);
        let halt = store.0.entries.get_key_value(&format!("{rollout}/halt"));
        let again = halt.map(|(key, entry)| (key.clone(), Some(entry.clone()))).unwrap();
        assert_eq!(events_after(store.0.revision - 1, store.0.revision, &[again]), []);
        let deleted = |key: &str| events_after(9, 10, &[(key.to_owned(), None)]).len();
        assert_eq!(
            [format!("{rollout}/halt"), "/orchestrate/events/1-a".into()].map(|key| deleted(&key)),
            [0, 1]
        );
    }

    #[test]
    fn events_that_were_changed_or_cannot_be_read_are_shown() {
        let mut store = Store::default();
        let key = format!("/orchestrate/events/{AT}000-a");
        store.put(
            &key,
            r#"{"format":1,"user":"ann","client":"ops1","verb":"retry","what":"/orchestrate/retry/web1"}"#,
        );
        assert_eq!(store.rows(), ["2023-11-14T22:13:20Z|ann|retry|host web1|"], "an older event");
        store.put(&key, r#"{"format":1,"by":"bob","client":"ops1","verb":"retry","what":"/orchestrate/retry/web1","reason":"disk"}"#);
        assert_eq!(
            store.rows(),
            ["2023-11-14T22:13:20Z|bob|retry|host web1|somebody changed this event: disk"]
        );
        store.put(&key, "no JSON");
        let unreadable = "somebody changed this event: the event cannot be read";
        assert_eq!(store.rows(), [format!("2023-11-14T22:13:20Z|unknown|no command|{key}|{unreadable}")]);
        store.put("/orchestrate/events/nonsense", "{}");
        assert_eq!(
            store.rows()[1],
            "unknown|unknown|no command|/orchestrate/events/nonsense|the event cannot be read"
        );
    }

    #[test]
    fn events_are_chosen_by_time_and_host() {
        let mut store = Store::default();
        let mut event = |seconds: i64, scope: &str, what: &str| {
            let key = format!("/orchestrate/events/{scope}{}000-a{}", AT + seconds, store.0.revision);
            store.put(&key, &format!(r#"{{"format":1,"by":"ann","client":"c","verb":"v","what":"{what}"}}"#));
        };
        event(0, "", "/current_version");
        event(10, "", "/orchestrate/maintenance/web1");
        event(20, "", "/orchestrate/freezes/host/web1/t");
        event(30, "host/web1/", "/orchestrate/maintenance/web2");
        event(40, "", "/orchestrate/maintenance/web2");
        event(50, "", "/config_state/host/web1/a");
        store.put("/orchestrate/config/a", "x");
        let view = || EventsView::read(&store.0);
        let seconds = |view: EventsView| -> Vec<i64> {
            view.events.iter().map(|event| event.seconds.map_or(-1, |at| at.0 - AT)).collect()
        };
        assert_eq!(seconds(view()), [0, 10, 20, 30, 40, 50, -1]);
        let mut of_host = view();
        of_host.keep_host(&HostName::new("web1").unwrap());
        assert_eq!(seconds(of_host), [10, 20, 30, 50]);
        let since = |at: i64| {
            let mut view = view();
            view.keep_since(EpochSeconds(AT + at));
            seconds(view)
        };
        assert_eq!(since(30), [30, 40, 50, -1], "a change without a time came after them");
        assert_eq!(since(51), [-1]);
        let rows = view();
        assert_eq!(rows.events[3].row()[1], "ann, in a step of web1");
    }
}
