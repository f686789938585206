//! The values that operators keep in the store for files on the hosts. There are few of them, so
//! all are followed as soon as a template or a request needs one.

use etcd_session::{Collected, Collector, Feed, FeedEvent};
use schema::config_value::config_value;
use schema::keys::Key;
use schema::names::ConfigName;
use schema::snapshot::Entry;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The values that operators keep in the store, by name; `Err` says what is wrong with a value.
pub(super) type ConfigValues = BTreeMap<ConfigName, Result<String, String>>;

/// Maximum number of values; further ones are ignored.
const VALUES_MAX: usize = 10_000;

/// The running feed of the values.
pub(super) struct ConfigFeed {
    pub(super) number: u64,
    pub(super) feed: Feed,
    collector: Collector<ConfigName, Result<String, String>>,
}

impl ConfigFeed {
    pub(super) fn new(number: u64, feed: Feed) -> Self {
        Self { number, feed, collector: Collector::default() }
    }

    /// Applies an event to `known`. Returns true if `known` may have changed.
    pub(super) fn take(&mut self, mut event: FeedEvent, known: &mut Option<Arc<ConfigValues>>) -> bool {
        if let FeedEvent::InitApply(part) = &mut event {
            part.truncate(VALUES_MAX.saturating_sub(self.collector.len()));
        }
        let collected = self.collector.take(event, |key, entry| Some((name_of(key)?, entry.map(value_of))));
        match collected {
            Some(Collected::Replaced(values, _)) => {
                let values = Some(Arc::new(values));
                let differs = *known != values;
                *known = values;
                differs
            }
            Some(Collected::Changed(changes, _)) => {
                // The feed delivers a list before any change.
                let values = Arc::make_mut(known.get_or_insert_default());
                for (name, value) in changes {
                    match value {
                        Some(value) if values.len() < VALUES_MAX || values.contains_key(&name) => {
                            values.insert(name, value);
                        }
                        Some(_) => {}
                        None => drop(values.remove(&name)),
                    }
                }
                true
            }
            Some(Collected::Connected(_)) | None => false,
        }
    }
}

fn name_of(key: &str) -> Option<ConfigName> {
    if let Ok(Key::Config(name)) = Key::parse(key) { Some(name) } else { None }
}

fn value_of(entry: &Entry) -> Result<String, String> {
    config_value(&entry.value).map(str::to_owned).map_err(|error| error.to_string())
}
