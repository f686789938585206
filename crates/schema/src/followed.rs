//! The keys that a host follows: it watches some of them and reads all of them at intervals.

use crate::keys::Key;
use crate::snapshot::{Entry, KeySnapshot};
use crate::store_marks::Regress;

/// The keys to follow.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    /// Keys that are watched: a change is seen at once.
    pub watched: Vec<Key>,
    /// Keys that are read with each list and each resync, because hardly anybody but this host
    /// writes them.
    pub polled: Vec<Key>,
    /// Keys that are polled as well, and that change over time.
    pub polled_also: Vec<Key>,
}

impl Scope {
    pub fn keys(&self) -> Vec<Key> {
        [&self.watched[..], &self.polled, &self.polled_also].concat()
    }
}

/// What is known of the followed keys.
#[derive(Debug, Clone, Default)]
pub struct FollowedKeys {
    /// The keys and their entries.
    pub keys: KeySnapshot,
    /// Number of linearizable reads so far; 0 before the first, when nothing is known yet.
    pub reads: u64,
    /// Revision of the last linearizable read: polled keys are known as of this revision.
    pub read_revision: i64,
    /// The keys of [`Scope::polled_also`] that the last read included.
    pub polled_also: Vec<Key>,
    /// By how much the last read is behind an earlier answer; if it is behind, the store went back.
    pub regress: Regress,
}

impl FollowedKeys {
    /// Takes over a linearizable read of all keys of the scope. Returns true if a watched key
    /// differs from what the watch had reported.
    pub fn take_read(&mut self, read: KeySnapshot, regress: Regress, scope: &Scope) -> bool {
        let mut differs = false;
        self.reads += 1;
        self.read_revision = read.revision;
        self.polled_also.clone_from(&scope.polled_also);
        self.regress = regress;
        // An event may have arrived while the read was in progress; the newer state stays.
        if !regress.is_none() || read.revision >= self.keys.revision {
            let of = |snapshot: &KeySnapshot, key| snapshot.get(key).map(|e| e.mod_revision);
            differs = scope.watched.iter().any(|key| of(&read, key) != of(&self.keys, key));
            self.keys = read;
        } else {
            for key in scope.polled.iter().chain(&scope.polled_also).map(Key::to_string) {
                match read.entries.get(&key) {
                    Some(entry) => self.keys.entries.insert(key, entry.clone()),
                    None => self.keys.entries.remove(&key),
                };
            }
        }
        differs
    }

    /// Takes over an event of a watch: the entry of a key that was written at `revision`, or `None`
    /// if the key was deleted then. A read may be newer than an event; an older event changes
    /// nothing.
    pub fn take_event(&mut self, key: &str, revision: i64, entry: Option<Entry>) {
        let is_old = self.keys.entries.get(key).is_some_and(|known| known.mod_revision > revision);
        match entry {
            _ if is_old => {}
            Some(entry) => drop(self.keys.entries.insert(key.to_owned(), entry)),
            None => drop(self.keys.entries.remove(key)),
        }
        self.keys.revision = self.keys.revision.max(revision);
    }
}
