//! The question of `verify_hosts`: which of these hosts run this version. While the list is short, the cost
//! depends on the length of the list and not on the size of the fleet.

use crate::commands::context::Store;
use crate::output;
use anyhow::anyhow;
use etcd_session::{Counted, Deadline, EntryPage, StoreError};
use schema::codec::read_version;
use schema::keys::{self, Key, Prefix};
use schema::names::{HostName, Version};
use schema::snapshot::{Entry, KeySnapshot};
use std::collections::{HashMap, HashSet};

/// Longest list of hosts that is always read host by host, at one revision.
const POINT_READS_MAX: usize = 128;
/// Longest list of hosts that is read host by host if more than [`LARGER_FLEET`] times as many
/// hosts are listed under the version. For a longer list, the range is read in parts.
const SHORT_LIST_MAX: usize = 2048;
const LARGER_FLEET: usize = 8;
/// The result at one revision.
pub(super) struct Verified<'a> {
    /// Hosts that do not run the version, sorted.
    pub(super) missing: Vec<&'a str>,
    /// Hosts that are listed under the version, but do not announce it; sorted.
    pub(super) unconfirmed: Vec<&'a str>,
    pub(super) revision: i64,
    /// Snapshot with the store's identity, if it could be read.
    pub(super) store: Option<KeySnapshot>,
}

impl<'a> Verified<'a> {
    fn new(missing: impl Iterator<Item = &'a str>, revision: i64, store: Option<KeySnapshot>) -> Self {
        let mut missing: Vec<&str> = missing.collect();
        missing.sort_unstable();
        Self { missing, unconfirmed: Vec::new(), revision, store }
    }

    /// Joins the answers about the two spellings of a host: the better one counts, unless the other one is a
    /// host of its own.
    fn folded(mut self, former: &HashMap<&'a str, &'a str>, members: &HashSet<&str>) -> Self {
        let missing: HashSet<&str> = self.missing.iter().copied().collect();
        let unconfirmed: HashSet<&str> = self.unconfirmed.iter().copied().collect();
        let rank = |name: &str| match (missing.contains(name), unconfirmed.contains(name)) {
            (true, _) => 2,
            (false, unconfirmed) => u8::from(unconfirmed),
        };
        let given: HashSet<&str> = former.iter().flat_map(|(name, given)| [*name, *given]).collect();
        for list in [&mut self.missing, &mut self.unconfirmed] {
            list.retain(|name| !given.contains(name));
        }
        for (name, given) in former {
            let is_member = [name, given].into_iter().any(|name| members.contains(name));
            match if is_member { 2 } else { rank(name).min(rank(given)) } {
                0 => {}
                1 => self.unconfirmed.push(name),
                _ => self.missing.push(name),
            }
        }
        self.missing.sort_unstable();
        self.unconfirmed.sort_unstable();
        self
    }

    fn with_unconfirmed(mut self, hosts: impl Iterator<Item = &'a str>) -> Self {
        self.unconfirmed = hosts.collect();
        self.unconfirmed.sort_unstable();
        self
    }
}

/// The hosts and the version to check.
pub(super) struct Verification<'a> {
    pub(super) version: &'a Version,
    pub(super) hosts: WantedHosts<'a>,
    pub(super) strict: bool,
}

/// The hosts to check, in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WantedHosts<'a> {
    /// Sorted, each once.
    pub(super) names: Vec<&'a str>,
    /// The spellings with capitals that were given: older agents keep such keys.
    pub(super) former: HashMap<&'a str, &'a str>,
}

impl<'a> Verification<'a> {
    pub(super) async fn ask(
        &self,
        store: &Store<'_>,
        deadline: Deadline,
    ) -> Result<Verified<'a>, StoreError> {
        let WantedHosts { names, former } = &self.hosts;
        if former.is_empty() {
            return self.ask_about(names, store, deadline).await;
        }
        let mut spellings: Vec<&str> = names.iter().chain(former.values()).copied().collect();
        spellings.sort_unstable();
        let verified = self.ask_about(&spellings, store, deadline).await?;
        let members = self.members(&verified, store, deadline).await?;
        Ok(verified.folded(former, &members))
    }

    /// Returns the spellings that are missing while the other one of the same name is not, and that are a host of
    /// their own.
    async fn members(
        &self,
        verified: &Verified<'a>,
        store: &Store<'_>,
        deadline: Deadline,
    ) -> Result<HashSet<&'a str>, StoreError> {
        let is_missing = |name: &&str| verified.missing.binary_search(name).is_ok();
        let pairs = self.hosts.former.iter().map(|(name, given)| (*name, *given));
        let missing: Vec<&str> = pairs
            .filter(|(name, given)| is_missing(name) != is_missing(given))
            .map(|(name, given)| if is_missing(&name) { name } else { given })
            .collect();
        let named = |name: &&'a str| HostName::new(*name).ok().map(|host| (*name, host));
        let hosts: Vec<(&str, HostName)> = missing.iter().filter_map(named).collect();
        let keys: Vec<Key> =
            hosts.iter().flat_map(|(_, host)| [Key::Host(host.clone()), Key::Live(host.clone())]).collect();
        let found = store.session.read_all(&keys, &[], Some(verified.revision), deadline).await?;
        let is_member = |host: &HostName| {
            let entry = found.get(&Key::Host(host.clone()));
            found.get(&Key::Live(host.clone())).is_some() || entry.is_some() && !is_tombstone(entry)
        };
        Ok(hosts.iter().filter(|(_, host)| is_member(host)).map(|(name, _)| *name).collect())
    }

    async fn ask_about(
        &self,
        hosts: &[&'a str],
        store: &Store<'_>,
        deadline: Deadline,
    ) -> Result<Verified<'a>, StoreError> {
        if self.strict {
            verify_both(self.version, hosts, store, deadline).await
        } else {
            verify(self.version, hosts, store, deadline).await
        }
    }
}

/// Checks the listings and what each host announces in its own key, at one revision. Any agent may
/// write the listings, because in their keys the version comes before the host; only the host may
/// write its own key.
async fn verify_both<'a>(
    version: &Version,
    hosts: &[&'a str],
    store: &Store<'_>,
    deadline: Deadline,
) -> Result<Verified<'a>, StoreError> {
    let ranges = [Prefix::RunningVersion(version.clone()), Prefix::Announced, Prefix::Hosts];
    let snapshot = store.session.read_all(&[Key::Store], &ranges, None, deadline).await?;
    let is_there = |host: &&str| {
        let Ok(host) = HostName::new(*host) else { return false };
        let announced = snapshot.get(&Key::Announced(host.clone()));
        announced.is_some_and(|entry| announces(&entry.value, version))
            && snapshot.get(&Key::RunningVersion(version.clone(), host.clone())).is_some()
            && !is_tombstone(snapshot.get(&Key::Host(host)))
    };
    let missing: Vec<&str> = hosts.iter().copied().filter(|host| !is_there(host)).collect();
    Ok(Verified::new(missing.into_iter(), snapshot.revision, Some(snapshot)))
}

/// Checks the listings alone, which is what scripts know.
async fn verify<'a>(
    version: &Version,
    hosts: &[&'a str],
    store: &Store<'_>,
    deadline: Deadline,
) -> Result<Verified<'a>, StoreError> {
    if hosts.len() > POINT_READS_MAX
        && let Some(verified) = verify_by_range(version, hosts, store, deadline).await?
    {
        return Ok(verified);
    }
    let keys = |host: &&'a str| {
        let named =
            HostName::new(*host).unwrap_or_else(|e| unreachable!("checked when the list was read: {e}"));
        [Key::RunningVersion(version.clone(), named.clone()), Key::Announced(named.clone()), Key::Host(named)]
    };
    let mut keys: Vec<Key> = hosts.iter().flat_map(keys).collect();
    keys.push(Key::Store);
    let snapshot = store.session.read_keys(&keys, deadline).await?;
    let announces = |key| snapshot.get(key).is_some_and(|entry| announces(&entry.value, version));
    let (mut missing, mut unconfirmed) = (Vec::new(), Vec::new());
    for (host, keys) in hosts.iter().zip(keys.chunks_exact(3)) {
        let listed = if !is_tombstone(snapshot.get(&keys[2])) { snapshot.get(&keys[0]) } else { None };
        match listed {
            None => missing.push(*host),
            Some(_) if !announces(&keys[1]) => unconfirmed.push(*host),
            Some(_) => {}
        }
    }
    let verified = Verified::new(missing.into_iter(), snapshot.revision, Some(snapshot));
    Ok(verified.with_unconfirmed(unconfirmed.into_iter()))
}

/// Checks the same as [`verify`], by reading all listings of the version. Returns `None` if there
/// are many times more listings than hosts to check.
async fn verify_by_range<'a>(
    version: &Version,
    hosts: &[&'a str],
    store: &Store<'_>,
    deadline: Deadline,
) -> Result<Option<Verified<'a>>, StoreError> {
    let (all, own) = (Prefix::RunningVersions, Prefix::Announced);
    let prefix = Prefix::RunningVersion(version.clone());
    let counted = [Counted::Outside { range: &all, part: &prefix }, Counted::Range(&own)];
    let session = &store.session;
    let count = |at| session.read_and_count(&[Key::Store], &counted, at, deadline);
    let (list, identity, counts) = if hosts.len() <= SHORT_LIST_MAX {
        let (list, (identity, counts)) = tokio::try_join!(
            session.read_short_key_list(&prefix, hosts.len() * LARGER_FLEET, deadline),
            count(None)
        )?;
        let Some(list) = list else { return Ok(None) };
        let counts = if list.revision == identity.revision {
            Ok(counts)
        } else {
            count(Some(list.revision)).await.map(|(_, counts)| counts)
        };
        (list, identity, counts.ok())
    } else {
        let identity = session.read_keys(&[Key::Store], deadline).await?;
        let at = identity.revision;
        // Most of the hosts are probably listed, so equal parts of the one list make equal parts of the other.
        let cuts = [1, 2, 3].map(|quarters| hosts[hosts.len() * quarters / 4]);
        let (list, counts) =
            tokio::join!(session.read_key_list_in_parts(&prefix, cuts, at, deadline), count(Some(at)));
        (list?, identity, counts.ok().map(|(_, counts)| counts))
    };
    let (present, missing) = split(hosts, list.suffixes());
    let verified = Verified::new(missing.into_iter(), list.revision, Some(identity));
    // A host writes its listing and announces the version in one transaction. If there are equally
    // many keys of both kinds, no more is read, which keeps the request cheap. A host whose listing
    // was moved to another version is found only after it has listed itself again.
    let listed = i64::try_from(list.len()).unwrap_or(i64::MAX);
    if counts.is_some_and(|counts| listed.saturating_add(counts[0]) == counts[1]) {
        return Ok(Some(verified));
    }
    let mut unconfirmed: HashSet<&str> = present.into_iter().collect();
    let take = |page: &EntryPage| {
        for (key, _) in page.entries().filter(|(_, value)| announces(value, version)) {
            unconfirmed.remove(key.rsplit('/').next().unwrap_or_default());
        }
    };
    match session.read_entry_pages(&own, Some(list.revision), deadline, take).await {
        Ok(_) => Ok(Some(verified.with_unconfirmed(unconfirmed.into_iter()))),
        Err(error) => {
            let error = anyhow!(error).context("reading whether the hosts confirm their listings");
            output::warn(&format!("{error:#}"));
            Ok(Some(verified))
        }
    }
}

/// Divides sorted hosts into those that are in a sorted list and those that are not.
fn split<'a, 'b>(hosts: &[&'a str], listed: impl Iterator<Item = &'b str>) -> (Vec<&'a str>, Vec<&'a str>) {
    let mut listed = listed.peekable();
    hosts.iter().partition(|host| {
        while listed.next_if(|name| name < *host).is_some() {}
        listed.peek() == Some(host)
    })
}

/// True if a roster entry says that an operator took the host out of the fleet. What such a host writes does not count.
fn is_tombstone(entry: Option<&Entry>) -> bool {
    let entry = entry.and_then(|entry| keys::Host::read(&entry.value).ok());
    entry.is_some_and(|entry| entry.decommissioned.is_some())
}

/// True if a host's own key names the version.
fn announces(announced: &[u8], version: &Version) -> bool {
    read_version(announced).is_ok_and(|announced_version| announced_version == *version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_better_of_two_spellings_counts() {
        let former = HashMap::from([("a", "A"), ("b", "B"), ("c", "C"), ("d", "D")]);
        let verified = Verified::new(["A", "b", "c", "C", "d", "e"].into_iter(), 7, None)
            .with_unconfirmed(["D", "f"].into_iter())
            .folded(&former, &HashSet::from(["b"]));
        assert_eq!(verified.missing, ["b", "c", "e"], "b is another host than B");
        assert_eq!(verified.unconfirmed, ["d", "f"]);
    }

    #[test]
    fn sorted_hosts_are_divided_by_a_sorted_list() {
        let check = |hosts: &[&str], listed: &[&str], present: &[&str], missing: &[&str]| {
            assert_eq!(split(hosts, listed.iter().copied()), (present.to_vec(), missing.to_vec()));
        };
        check(&["a", "b", "c"], &[], &[], &["a", "b", "c"]);
        check(&["a", "b", "c"], &["a", "b", "c"], &["a", "b", "c"], &[]);
        check(&["b", "d"], &["a", "b", "c", "e"], &["b"], &["d"]);
        check(&["a", "a-b", "a.b", "ab"], &["a", "a.b", "z"], &["a", "a.b"], &["a-b", "ab"]);
    }
}
