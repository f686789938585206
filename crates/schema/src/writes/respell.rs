//! The transactions that move the keys of a host whose name was spelled with capitals to its name in lower
//! case. Agents before this rule kept the spelling of the machine.

use super::claims::FoundClaims;
use crate::codec;
use crate::freeze::FreezeScope;
use crate::host_config::{ConfigKind, ConfigScope};
use crate::keys::{self, Key, Prefix};
use crate::names::{HostName, StatusType};
use crate::records::{HostClaims, LimitClaim};
use crate::snapshot::KeySnapshot;
use crate::transaction::{Compare, Operation, Transaction};

/// Largest number of keys that one transaction moves. Each takes a comparison and two operations.
const MOVED_MAX: usize = 30;

/// The two spellings of a host's name.
#[derive(Debug, Clone, Copy)]
pub struct Respelling<'a> {
    /// The name with capitals.
    pub former: &'a HostName,
    /// The name in lower case.
    pub host: &'a HostName,
}

impl Respelling<'_> {
    /// Returns keys and ranges that tell whether anything is to be moved. Every agent may read them.
    pub fn first_look(&self) -> (Vec<Key>, Vec<Prefix>) {
        let former = || self.former.clone();
        let keys = [Key::Live, Key::Host, Key::Announced, Key::Claimed].map(|make| make(former()));
        let values = [ConfigKind::State, ConfigKind::Version]
            .map(|kind| Prefix::HostConfig(kind, ConfigScope::Host(former())));
        let mut keys = Vec::from(keys);
        keys.push(Key::EnablePuppet(ConfigScope::Host(former())));
        (keys, [vec![Prefix::FreezesOf(FreezeScope::Host(former()))], Vec::from(values)].concat())
    }

    /// Returns all keys that [`Respelling::moves`] needs, beside the ranges of the first look.
    pub fn keys(&self, first: &KeySnapshot) -> Vec<Key> {
        let former = || self.former.clone();
        let mut keys = self.first_look().0;
        keys.extend([Key::Maintenance(former()), Key::Retry(former()), Key::Claimed(self.host.clone())]);
        for kind in StatusType::of_agents() {
            keys.extend(Key::statuses(&kind, self.former));
            keys.extend(Key::statuses(&kind, self.host));
            keys.push(Key::Reporting(kind, former()));
        }
        keys.extend(FoundClaims::read(self.former, first).held().iter().map(|claim| claim.key()));
        keys
    }

    /// Returns the transactions, in order. They move what operators and the agent wrote for good, and delete
    /// the rest. Each is refused if one of its keys changed since it was found. A durable key that exists under the
    /// name in lower case is kept as it is, and so is a result of the same type.
    ///
    /// What the host said in rollouts is not moved: it counts there under the former name.
    pub fn moves(&self, store_revision: i64, found: &KeySnapshot) -> Vec<Transaction> {
        let begin = || {
            Transaction::idempotent("move the keys of the host to its name in lower case")
                .when(Compare::Revision(Key::Store, store_revision))
        };
        let (roster, pairs): (Vec<_>, Vec<_>) = found
            .entries
            .keys()
            .filter_map(|key| Key::parse(key).ok())
            .filter_map(|key| self.moved(&key).map(|moved| (key, moved)))
            .partition(|(key, _)| matches!(key, Key::Host(_)));
        let mut transactions: Vec<Transaction> =
            pairs.chunks(MOVED_MAX).map(|pairs| move_keys(begin(), pairs, found)).collect();
        // As long as the roster entry stands, the first look finds what an interrupted move has left.
        let mut last = move_keys(begin(), &roster, found);
        self.move_claims(&mut last, found);
        self.delete_rest(&mut last, found);
        transactions.push(last);
        transactions
    }

    /// Returns the key in lower case for a key that is moved as it is.
    fn moved(&self, key: &Key) -> Option<Key> {
        if key.host().is_some_and(|host| host != self.former) {
            return None;
        }
        let (host, scope) = (self.host.clone(), ConfigScope::Host(self.host.clone()));
        let is_former = |scope: &ConfigScope| *scope == ConfigScope::Host(self.former.clone());
        Some(match key {
            Key::Host(_) => Key::Host(host),
            Key::Maintenance(_) => Key::Maintenance(host),
            Key::Status(kind, state, _) => Key::Status(kind.clone(), *state, host),
            Key::Reporting(kind, _) => Key::Reporting(kind.clone(), host),
            Key::Freeze(FreezeScope::Host(of), token) if of == self.former => {
                Key::Freeze(FreezeScope::Host(host), token.clone())
            }
            Key::HostConfig(kind, of, name) if is_former(of) => Key::HostConfig(*kind, scope, name.clone()),
            Key::EnablePuppet(of) if is_former(of) => Key::EnablePuppet(scope),
            _ => return None,
        })
    }

    /// Adds the move of the claims. The ticket ends with the claim of the name; the host queues again.
    fn move_claims(&self, transaction: &mut Transaction, found: &KeySnapshot) {
        let claimed = Key::Claimed(self.former.clone());
        let claims = FoundClaims::read(self.former, found);
        transaction.compares.push(Compare::Revision(claimed.clone(), claims.revision));
        if claims.revision == 0 {
            return;
        }
        if let Some(ticket) = claims.ticket() {
            transaction.delete(ticket.key(self.former));
        }
        transaction.delete(claimed);
        let Some(value) = &claims.claims else { return };
        let ours = Key::Claimed(self.host.clone());
        transaction.compares.push(Compare::Revision(ours.clone(), found.revision_of(&ours)));
        let is_free = found.get(&ours).is_none();
        let mut kept = HostClaims { ticket: None, claims: Vec::new(), ..value.clone() };
        for held in &value.claims {
            let key = held.key();
            let Some(entry) = found.get(&key) else { continue };
            let Ok(claim) = keys::Claim::read(&entry.value) else { continue };
            if claim.host != *self.former {
                continue;
            }
            transaction.compares.push(Compare::Revision(key.clone(), entry.mod_revision));
            if is_free {
                transaction.put(key, codec::write(&LimitClaim { host: self.host.clone(), ..claim }), 0);
                kept.claims.push(held.clone());
            } else {
                transaction.delete(key);
            }
        }
        if is_free && !kept.is_empty() {
            transaction.put(ours, codec::write(&kept), 0);
        }
    }

    /// Adds the deletion of the keys that the host writes again, and of the claim of its former name.
    fn delete_rest(&self, transaction: &mut Transaction, found: &KeySnapshot) {
        let (live, announced) = (Key::Live(self.former.clone()), Key::Announced(self.former.clone()));
        for key in [&live, &announced] {
            transaction.compares.push(Compare::Revision(key.clone(), found.revision_of(key)));
        }
        let version = found.get(&announced).and_then(|entry| codec::read_version(&entry.value).ok());
        if let Some(version) = version {
            transaction.delete(Key::RunningVersion(version, self.former.clone()));
        }
        for key in [live, announced, Key::Report(self.former.clone())] {
            transaction.delete(key);
        }
        // A retry that was moved would be a new one.
        let retry = Key::Retry(self.former.clone());
        if found.get(&retry).is_some() {
            transaction.delete(retry);
        }
        // Agents may not write the mark of a host in a store without brakes.
        if found.get(&Key::Claimed(self.former.clone())).is_some() {
            transaction.delete(Key::LostMark(self.former.clone()));
            transaction.delete(Key::LostTimer(self.former.clone()));
        }
    }
}

fn move_keys(mut transaction: Transaction, pairs: &[(Key, Key)], found: &KeySnapshot) -> Transaction {
    for (from, to) in pairs {
        let Some(entry) = found.get(from) else { continue };
        let (key, value) = (to.clone(), entry.value.clone());
        transaction.compares.push(Compare::Revision(from.clone(), entry.mod_revision));
        transaction.delete(from.clone());
        // A host is in one state of a type at every revision.
        let states = match to {
            Key::Status(kind, _, host) => Vec::from(Key::statuses(kind, host)),
            _ => Vec::new(),
        };
        if states.iter().any(|state| found.get(state).is_some()) {
            continue;
        }
        transaction.compares.extend(states.into_iter().map(Compare::absent));
        transaction.operations.push(match entry.lease {
            0 => Operation::PutIfAbsent { key, value },
            lease => Operation::Put { key, value, lease },
        });
    }
    transaction
}
