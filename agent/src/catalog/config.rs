//! The values that operators keep in the store for files of hosts. They are few, so all of them are followed once a
//! template asks for one.

use etcd_session::{Entry, Feed, FeedEvent};
use schema::keys::Key;
use schema::names::ConfigName;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Values that operators keep in the store, by name.
pub(super) type ConfigValues = BTreeMap<ConfigName, Result<String, String>>;

/// Longest value that is taken.
const VALUE_MAX_BYTES: usize = 16 * 1024;
/// Most values; more are passed over.
const VALUES_MAX: usize = 10_000;

/// The feed of the values, while it runs.
pub(super) struct ConfigFeed {
    pub(super) number: u64,
    _feed: Feed,
    listing: ConfigValues,
}

impl ConfigFeed {
    pub(super) fn new((number, feed): (u64, Feed)) -> Self {
        Self { number, _feed: feed, listing: ConfigValues::new() }
    }

    /// Takes an event in; true if what is known differs.
    pub(super) fn take(&mut self, event: FeedEvent, known: &mut Option<Arc<ConfigValues>>) -> bool {
        match event {
            FeedEvent::InitApply(part) => {
                for (key, entry) in part {
                    if self.listing.len() < VALUES_MAX
                        && let Some(name) = name_of(&key)
                    {
                        self.listing.insert(name, value_of(&entry));
                    }
                }
                false
            }
            FeedEvent::InitDone(_) => {
                let listing = Some(Arc::new(std::mem::take(&mut self.listing)));
                let differs = *known != listing;
                *known = listing;
                differs
            }
            FeedEvent::Apply(_, changes) => {
                // A change comes after a list.
                let values = Arc::make_mut(known.get_or_insert_default());
                for (key, entry) in changes {
                    let Some(name) = name_of(&key) else { continue };
                    match entry {
                        Some(entry) if values.len() < VALUES_MAX || values.contains_key(&name) => {
                            values.insert(name, value_of(&entry));
                        }
                        Some(_) => {}
                        None => drop(values.remove(&name)),
                    }
                }
                true
            }
            FeedEvent::Connected(_) => {
                self.listing.clear();
                false
            }
        }
    }
}

fn name_of(key: &str) -> Option<ConfigName> {
    if let Ok(Key::Config(name)) = Key::parse(key) { Some(name) } else { None }
}

fn value_of(entry: &Entry) -> Result<String, String> {
    if entry.value.len() > VALUE_MAX_BYTES {
        return Err(format!("it has {} bytes, at most {VALUE_MAX_BYTES} are taken", entry.value.len()));
    }
    let text = std::str::from_utf8(&entry.value).map_err(|_| "it is not UTF-8".to_owned())?;
    match text.chars().find(|c| c.is_control() && !matches!(c, '\n' | '\t')) {
        Some(control) => Err(format!("it has the control character {control:?}")),
        None => Ok(text.to_owned()),
    }
}
