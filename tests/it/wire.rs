//! Values that an earlier version of the programs wrote. `wire/store.json` holds every kind of key,
//! `wire/journal.json` the state of a host, `wire/catalog.json` the cached catalog; all were written by
//! the agent and the command before the identifiers of the code were renamed, except for the events and the
//! result with a cause.

use catalog::CachedCatalog;
use planning::host::HostState;
use schema::codec;
use schema::health::Health;
use schema::host_config;
use schema::keys::Key;
use schema::records::{
    Closing, DropStaleRequest, Ended, Event, Excuse, FailedHost, Freeze, Halt, HostClaims, HostProgress,
    LimitClaim, LiveClaim, LostMark, Maintenance, NameClash, Report, RetryRequest, RolloutPolicy,
    RolloutRecord, RosterEntry, ServiceRecord, Soak, StageOpening, StatusRecord, StoreIdentity, Trigger,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};

/// Reads a value and writes it again.
fn again<T: DeserializeOwned + Serialize>(text: &str) -> String {
    codec::write(&codec::read::<T>(text.as_bytes()).unwrap_or_else(|e| panic!("{text}: {e}")))
}

/// The kind of a key, and its value as this version writes it.
fn rewrite(key: &str, value: &str) -> (&'static str, String) {
    match Key::parse(key).unwrap_or_else(|e| panic!("{e}")) {
        Key::CurrentVersion => ("desired", codec::read_version(value.as_bytes()).expect(key).to_string()),
        Key::Announced(_) => ("announced", codec::read_version(value.as_bytes()).expect(key).to_string()),
        Key::RunningVersion(..) => ("listing", value.parse::<i64>().expect(key).to_string()),
        Key::Reporting(..) => ("reporting", value.parse::<i64>().expect(key).to_string()),
        Key::Status(..) => ("status", again::<StatusRecord>(value)),
        Key::Store => ("store", StoreIdentity::read(value.as_bytes()).expect(key).write()),
        Key::Freeze(..) => ("freeze", again::<Freeze>(value)),
        Key::Host(_) => ("roster", again::<RosterEntry>(value)),
        Key::Live(_) => ("live", again::<LiveClaim>(value)),
        Key::Report(_) => ("report", again::<Report>(value)),
        Key::Retry(_) => ("retry", again::<RetryRequest>(value)),
        Key::Service(_, host) => ("record", ServiceRecord::read(&host, value.as_bytes()).expect(key).write()),
        Key::Health(..) => ("health", Health::read(value.as_bytes()).expect(key).as_str().to_owned()),
        Key::Maintenance(_) => ("maintenance", again::<Maintenance>(value)),
        Key::DropStale => ("drop stale", again::<DropStaleRequest>(value)),
        Key::Config(_) => ("config", value.to_owned()),
        Key::HostConfig(..) => {
            ("host config", host_config::read_value(value.as_bytes()).expect(key).to_owned())
        }
        Key::EnablePuppet(_) => {
            let enables = host_config::enables(value.as_bytes());
            ("enable puppet", host_config::enable_value(enables).to_owned())
        }
        Key::Event(_) | Key::HostEvent(..) => ("event", again::<Event>(value)),
        Key::RolloutPolicy => ("policy", again::<RolloutPolicy>(value)),
        Key::RolloutRecord(_) => ("rollout", again::<RolloutRecord>(value)),
        Key::Resolving(_) => ("resolving", value.to_owned()),
        Key::Failed(..) => ("failed", again::<FailedHost>(value)),
        Key::Halt(_) => ("halt", again::<Halt>(value)),
        Key::Trigger => ("trigger", again::<Trigger>(value)),
        // Later versions write more than the name of the host.
        Key::Closing(_) => ("closing", Closing::read(value.as_bytes()).by),
        Key::Ended(_) => ("ended", again::<Ended>(value)),
        Key::StageOpened(..) => ("opened", again::<StageOpening>(value)),
        Key::Soak(..) => ("soak", again::<Soak>(value)),
        Key::SoakTimer(..) => ("soaking", value.to_owned()),
        Key::Excused(..) => ("excused", again::<Excuse>(value)),
        Key::Progress(..) => ("progress", again::<HostProgress>(value)),
        Key::Claim(..) => ("claim", again::<LimitClaim>(value)),
        Key::Claimed(_) => ("claimed", again::<HostClaims>(value)),
        Key::Ticket(..) => ("ticket", value.to_owned()),
        Key::NameClash(_) => ("name clash", again::<NameClash>(value)),
        Key::LostMark(_) => ("lost mark", again::<LostMark>(value)),
        Key::LostTimer(_) => ("lost timer", value.to_owned()),
    }
}

#[test]
fn values_of_the_store_that_an_earlier_version_wrote_are_read_and_written_alike() {
    let all: BTreeMap<String, String> = serde_json::from_str(include_str!("wire/store.json")).expect("JSON");
    let mut kinds = BTreeSet::new();
    for (key, value) in &all {
        let (kind, written) = rewrite(key, value);
        assert_eq!(&written, value, "{key}");
        assert_eq!(Key::parse(key).expect(key).to_string(), *key);
        kinds.insert(kind);
    }
    assert_eq!(kinds.len(), 37, "{kinds:?}");
}

#[test]
fn local_files_that_an_earlier_version_wrote_are_read_and_written_alike() {
    fn check<T: DeserializeOwned + Serialize>(text: &str) {
        let value: T = serde_json::from_str(text.trim_end()).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(serde_json::to_string(&value).expect("JSON"), text.trim_end());
    }
    check::<HostState>(include_str!("wire/journal.json"));
    check::<HostState>(include_str!("wire/journal-failed.json"));
    let cached = include_str!("wire/catalog.json").trim_end();
    assert_eq!(again::<CachedCatalog>(cached), cached);
}
