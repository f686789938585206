//! The values that operators keep in the store for files on the hosts. There are few of them, so
//! all are followed as soon as a template or a request needs one.

use etcd_session::{Feed, FeedEvent};
use schema::keys::Key;
use schema::names::ConfigName;
use schema::snapshot::Entry;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The values that operators keep in the store, by name; `Err` says what is wrong with a value.
pub(super) type ConfigValues = BTreeMap<ConfigName, Result<String, String>>;

/// Longest accepted value, in bytes.
const VALUE_MAX_BYTES: usize = 16 * 1024;
/// Maximum number of values; further ones are ignored.
const VALUES_MAX: usize = 10_000;

/// The running feed of the values.
pub(super) struct ConfigFeed {
    pub(super) number: u64,
    _feed: Feed,
    listing: ConfigValues,
}

impl ConfigFeed {
    pub(super) fn new((number, feed): (u64, Feed)) -> Self {
        Self { number, _feed: feed, listing: ConfigValues::new() }
    }

    /// Applies an event to `known`. Returns true if `known` may have changed.
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
                // The feed delivers a list before any change.
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
        return Err(format!("it has {} bytes; at most {VALUE_MAX_BYTES} are allowed", entry.value.len()));
    }
    let text = std::str::from_utf8(&entry.value).map_err(|_| "it is not UTF-8".to_owned())?;
    match text.chars().find(|c| c.is_control() && !matches!(c, '\n' | '\t')) {
        Some(control) => Err(format!("it has the control character {control:?}")),
        None => Ok(text.to_owned()),
    }
}
