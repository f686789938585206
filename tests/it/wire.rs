//! Values that an earlier version of the programs wrote. `wire/store.json` holds every kind of key,
//! `wire/journal.json` the state of a host in format 2 of the journal, `wire/catalog.json` the cached catalog. Those
//! of the store and the catalog were written by the agent and the command before the identifiers of the code were
//! renamed, except for the events and the result with a cause.

use catalog::CachedCatalog;
use planning::host::HostState;
use schema::codec;
use schema::host_config;
use schema::keys::{DocumentedKey, Key, Row};
use schema::records::Closing;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};

/// Reads a value and writes it again.
fn again<T: DeserializeOwned + Serialize>(text: &str) -> String {
    codec::write(&codec::read::<T>(text.as_bytes()).unwrap_or_else(|e| panic!("{text}: {e}")))
}

#[test]
fn values_of_the_store_that_an_earlier_version_wrote_are_read_and_written_alike() {
    let all: BTreeMap<String, String> = serde_json::from_str(include_str!("wire/store.json")).expect("JSON");
    for (path, value) in &all {
        let key = Key::parse(path).unwrap_or_else(|e| panic!("{e}"));
        let written = match &key {
            // Later versions write more than the name of the host.
            Key::Closing(_) => Closing::read(value.as_bytes()).by,
            Key::EnablePuppet(_) => {
                let enables = host_config::enables(value.as_bytes());
                host_config::enable_value(enables).to_owned()
            }
            _ => key.rewrite(value.as_bytes()).unwrap_or_else(|e| panic!("{path}: {value}: {e}")),
        };
        assert_eq!(&written, value, "{path}");
        assert_eq!(key.to_string(), *path);
    }
    let rows: BTreeSet<Row> = all.keys().map(|path| Key::parse(path).expect(path).row()).collect();
    for DocumentedKey { path, row } in schema::keys::documented() {
        assert!(rows.contains(&row), "wire/store.json has no value of {path}");
    }
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
