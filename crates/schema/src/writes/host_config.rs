//! The transactions of the original tool's verbs for hosts: values for hosts, and the rolling upgrade.

use super::act::Act;
use super::operator::put_target;
use crate::host_config::{ConfigScope, enable_value};
use crate::keys::{Key, Prefix};
use crate::names::{HostName, Version};
use crate::records::RolloutOptions;
use crate::snapshot::KeySnapshot;
use crate::transaction::{Compare, Transaction};

/// Returns the transaction that writes a value, or deletes it, if it is still as it was found.
pub fn write_value(key: &Key, value: Option<&str>, found: &KeySnapshot, act: &Act) -> Transaction {
    let revision = found.revision_of(key);
    let mut transaction =
        Transaction::once("change the value").when(Compare::Revision(key.clone(), revision));
    match value {
        Some(value) => transaction.put(key.clone(), value, 0),
        None => transaction.delete(key.clone()),
    }
    act.add_event(transaction, key, found)
}

/// One step of a rolling upgrade.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UpgradeChange {
    /// The version that the step triggers, if it does.
    pub trigger: Option<Version>,
    /// The keys of earlier upgrades that the step deletes.
    pub delete: Vec<Key>,
    /// The hosts that the step lets run.
    pub enable: Vec<HostName>,
    /// The listings by which hosts count as upgraded that give their places to others, or take none.
    pub done: Vec<Key>,
}

impl UpgradeChange {
    /// True if the step changes nothing.
    pub fn is_empty(&self) -> bool {
        self.trigger.is_none() && self.delete.is_empty() && self.enable.is_empty()
    }

    /// Returns the transaction of the step, if everything that it was decided from is as it was found. Every
    /// step writes the global key, so that of two steps that were decided from the same state one is
    /// refused. Deletions of keys below the same prefix are not noticed: they keep hosts from running.
    pub fn transaction(&self, found: &KeySnapshot, act: &Act) -> Transaction {
        let global = Key::EnablePuppet(ConfigScope::Global);
        let mut transaction = Transaction::once("go on with the rolling upgrade")
            .when(Compare::NoneNewer(Prefix::EnablePuppet, found.revision));
        for key in [&Key::CurrentVersion, &global].into_iter().chain(&self.done) {
            transaction.compares.push(Compare::Revision(key.clone(), found.revision_of(key)));
        }
        self.delete.iter().for_each(|key| transaction.delete(key.clone()));
        transaction.put(global.clone(), enable_value(false), 0);
        let enabled = |host: &HostName| Key::EnablePuppet(ConfigScope::Host(host.clone()));
        for host in &self.enable {
            transaction.put(enabled(host), enable_value(true), 0);
        }
        let is_held = found.get(&global).is_some_and(|entry| entry.value == enable_value(false).as_bytes());
        let deleted = if is_held { self.delete.first().cloned() } else { None };
        let mut what = self.enable.first().map(enabled).or(deleted).unwrap_or(global);
        if let Some(version) = &self.trigger {
            put_target(&mut transaction, version, false, &RolloutOptions::default(), found, act);
            what = Key::CurrentVersion;
        }
        act.add_event(transaction, &what, found)
    }
}
