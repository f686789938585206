//! The laws of a fleet (I1, I2, I4, I11, I17 and R2; `limit_laws` has R1), checked after every change of the store
//! against what really happened on the machines.

use crate::limit_laws::{HostWriter, LimitLaws};
use crate::machine::{Machine, Truth};
use crate::store::{Change, Store};
use crate::violation::{Violation, broken};
use planning::host::HostState;
use schema::freeze::FreezeScope;
use schema::instruction::Instruction;
use schema::keys::{self, Key, Prefix, StatusState};
use schema::names::{HostName, StatusType, Token, Version};
use schema::snapshot::Entry;
use schema::steps::StepPhase;
use std::collections::{BTreeMap, BTreeSet};

/// Time within which a host whose validation fails leaves its list, in milliseconds.
const LEAVES_LIST_WITHIN: u64 = 120_000;

/// What an agent knew when it sent a transaction.
#[derive(Debug, Clone)]
pub(crate) struct Intent {
    pub(crate) instance: Token,
    /// The version that the transaction starts, if it does.
    pub(crate) starts: Option<Version>,
    /// The version that was validated last.
    pub(crate) validated: Option<Version>,
    /// True while an attempt has started and has not ended.
    pub(crate) is_under_way: bool,
    /// True if the attempt repairs a version that was proven before.
    pub(crate) is_repair: bool,
}

/// Who changes the store.
#[derive(Debug, Clone)]
pub(crate) enum Writer {
    /// The agent of a machine.
    Host(usize, Intent),
    Operator,
    /// The end of a lease.
    Lease,
    Backup,
}

impl std::fmt::Display for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Host(machine, intent) => write!(f, "machine {machine}, instance {}", intent.instance),
            Self::Operator => f.write_str("an operator"),
            Self::Lease => f.write_str("the end of a lease"),
            Self::Backup => f.write_str("a backup"),
        }
    }
}

/// A listing, and the machine that wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Listing {
    lease: i64,
    /// `None` if the listing came from a backup.
    machine: Option<usize>,
}

/// What the store says that the laws are about.
#[derive(Debug, Clone, Default)]
pub(crate) struct Laws {
    listings: BTreeMap<HostName, BTreeMap<Version, Listing>>,
    results: BTreeMap<(HostName, StatusType), BTreeSet<&'static str>>,
    live: BTreeMap<HostName, Entry>,
    /// Why the start that is being committed must be refused, if it must.
    start_is_wrong: Option<Violation>,
    /// Since when a machine that could write has been listed under a version whose validation fails.
    unproven_since: BTreeMap<usize, u64>,
    pub(crate) limits: LimitLaws,
    /// Number of changes that were checked.
    pub(crate) revisions: u64,
    pub(crate) starts: u64,
}

impl Laws {
    /// Judges a start before it is committed.
    pub(crate) fn expect_start(&mut self, store: &Store, machine: &Machine, now: u64, version: &Version) {
        let found = store.read(&[Key::Store, Key::CurrentVersion]);
        let wanted = Instruction::find(&found).map(|instruction| instruction.version);
        let roster = store.entry(&Key::Host(machine.host.clone()).to_string());
        let roster = roster.and_then(|e| keys::Host::read(&e.value).ok()).unwrap_or_default();
        // Written out, and not by the function that the start uses.
        let mut scopes =
            vec![FreezeScope::Fleet, FreezeScope::Pause, FreezeScope::Host(machine.host.clone())];
        scopes.extend(roster.role.map(FreezeScope::Role));
        scopes.extend(roster.group.map(FreezeScope::Group));
        self.limits.expect_start(store, machine, now);
        let stands = |scope: &FreezeScope| !store.list(&Prefix::FreezesOf(scope.clone())).entries.is_empty();
        self.start_is_wrong = match scopes.into_iter().find(stands) {
            Some(scope) => {
                let what = format!("{} starts {version}, and a freeze of {scope} stands", machine.host);
                Some(Violation { law: "R2", what })
            }
            None if wanted.as_ref() == Some(version) => None,
            None => Some(Violation {
                law: "I4",
                what: format!("{} starts {version}, and the fleet shall run {wanted:?}", machine.host),
            }),
        };
    }

    /// Takes over the content of a store that was restored from a backup.
    pub(crate) fn restored(&mut self, store: &Store, now: u64) {
        let before = std::mem::take(self);
        (self.revisions, self.starts) = (before.revisions, before.starts);
        self.limits = before.limits;
        self.limits.restored(store, now);
        for prefix in [Prefix::RunningVersions, Prefix::Statuses, Prefix::Lives] {
            for (key, entry) in store.list(&prefix).entries {
                let change =
                    Change { key, revision: entry.mod_revision, entry: Some(entry), is_nothing: false };
                self.take(&change, &Writer::Backup);
            }
        }
    }

    fn take(&mut self, change: &Change, writer: &Writer) -> Option<HostName> {
        let key = Key::parse(&change.key).ok()?;
        match &key {
            Key::RunningVersion(version, host) => {
                let listings = self.listings.entry(host.clone()).or_default();
                match &change.entry {
                    Some(entry) => {
                        let machine = match writer {
                            Writer::Host(machine, _) => Some(*machine),
                            _ => None,
                        };
                        listings.insert(version.clone(), Listing { lease: entry.lease, machine });
                    }
                    None => drop(listings.remove(version)),
                }
                Some(host.clone())
            }
            Key::Status(kind, state, host) => {
                let states = self.results.entry((host.clone(), kind.clone())).or_default();
                if change.entry.is_some() {
                    states.insert(state.as_str());
                } else {
                    states.remove(state.as_str());
                    if states.is_empty() && !matches!(writer, Writer::Host(..)) {
                        self.results.remove(&(host.clone(), kind.clone()));
                    }
                }
                Some(host.clone())
            }
            Key::Live(host) => {
                match &change.entry {
                    Some(entry) => drop(self.live.insert(host.clone(), entry.clone())),
                    None => drop(self.live.remove(host)),
                }
                Some(host.clone())
            }
            Key::Report(host) | Key::Announced(host) => Some(host.clone()),
            _ => None,
        }
    }

    /// Checks the laws after changes that were made at one revision.
    pub(crate) fn note(
        &mut self,
        changes: &[Change],
        writer: &Writer,
        machines: &[Machine],
        now: u64,
    ) -> Result<(), Violation> {
        self.revisions += u64::from(!changes.is_empty());
        if let Writer::Host(machine, intent) = writer
            && !changes.is_empty()
        {
            self.check_writer(&machines[*machine].host, &intent.instance, changes)?;
            if intent.starts.is_some() {
                self.starts += 1;
                if let Some(violation) = self.start_is_wrong.take() {
                    return Err(violation);
                }
            }
        }
        let by_host = match writer {
            Writer::Host(machine, intent) => Some(HostWriter {
                machine: &machines[*machine],
                starts: intent.starts.is_some(),
                is_under_way: intent.is_under_way,
                is_repair: intent.is_repair,
            }),
            Writer::Operator | Writer::Lease | Writer::Backup => None,
        };
        self.limits.note(changes, by_host, now)?;
        let hosts: BTreeSet<HostName> =
            changes.iter().filter_map(|change| self.take(change, writer)).collect();
        for host in &hosts {
            self.check_host(host, matches!(writer, Writer::Host(..)))?;
        }
        // The last word of a machine that lost its disk ends with its lease.
        if let Writer::Host(machine, intent) = writer
            && machines[*machine].disk.instance.as_ref() == Some(&intent.instance)
        {
            for change in changes.iter().filter(|change| change.entry.is_some()) {
                if let Ok(Key::RunningVersion(version, host)) = Key::parse(&change.key) {
                    check_proof(&machines[*machine].truth, intent, &host, &version)?;
                }
            }
        }
        Ok(())
    }

    /// I11: a host writes only while it holds the claim of its name.
    fn check_writer(&self, host: &HostName, instance: &Token, changes: &[Change]) -> Result<(), Violation> {
        let writes =
            |is: fn(&Key) -> bool| changes.iter().any(|c| Key::parse(&c.key).is_ok_and(|key| is(&key)));
        // The identity and the record of a rollout belong to nobody.
        if writes(|key| matches!(key, Key::Store | Key::RolloutRecord(_))) {
            return Ok(());
        }
        let claim = self.live.get(host).and_then(|entry| keys::Live::read(&entry.value).ok());
        match claim.map(|claim| claim.instance) {
            Some(holder) if holder == *instance => Ok(()),
            // A name that nobody holds is free.
            None if writes(|key| matches!(key, Key::Live(_))) => Ok(()),
            holder => {
                broken("I11", format!("instance {instance} writes as {host}, the holder is {holder:?}"))
            }
        }
    }

    /// I2 and I17 for one host. `by_host` is true if its agent made the change: then no result has
    /// disappeared, and the listing has the lease of the claim.
    fn check_host(&self, host: &HostName, by_host: bool) -> Result<(), Violation> {
        if let Some(listings) = self.listings.get(host) {
            if listings.len() > 1 {
                let versions: Vec<&Version> = listings.keys().collect();
                return broken("I17", format!("{host} is listed under {versions:?}"));
            }
            let lease = self.live.get(host).map(|entry| entry.lease);
            // A listing from a backup ends with the lease of its time.
            if let Some((version, listing)) = listings.first_key_value()
                && by_host
                && listing.machine.is_some()
                && Some(listing.lease) != lease
            {
                return broken(
                    "I17",
                    format!(
                        "{host} is listed under {version} with lease {}, its claim has {lease:?}",
                        listing.lease
                    ),
                );
            }
        }
        for kind in StatusType::of_agents() {
            let states = self.results.get(&(host.clone(), kind.clone()));
            if let Some(states) = states.filter(|states| states.len() > 1 || states.is_empty() && by_host) {
                return broken("I2", format!("{host} has the results {states:?} of {kind}"));
            }
        }
        Ok(())
    }

    /// I1: a step that disturbs a machine begins. No listing of this machine may stand.
    pub(crate) fn step_begins(
        &self,
        machine: usize,
        host: &HostName,
        phase: StepPhase,
    ) -> Result<(), Violation> {
        if phase != StepPhase::Apply {
            return Ok(());
        }
        let Some(listings) = self.listings.get(host) else { return Ok(()) };
        match listings.iter().find(|(_, listing)| listing.machine == Some(machine)) {
            Some((version, _)) => {
                broken("I1", format!("an apply step begins on {host}, which is listed under {version}"))
            }
            None => Ok(()),
        }
    }

    /// I1: a host whose validation fails leaves its list soon, if it can write. `can_write` is true if it
    /// can.
    pub(crate) fn look(
        &mut self,
        number: usize,
        machine: &Machine,
        can_write: bool,
        now: u64,
    ) -> Result<(), Violation> {
        let listing = self.listings.get(&machine.host).and_then(|listings| listings.first_key_value());
        let is_proven = listing.is_none_or(|(version, listing)| {
            listing.machine != Some(number) || machine.truth.validated.as_ref() == Some(version)
        });
        if is_proven || !can_write {
            self.unproven_since.remove(&number);
            return Ok(());
        }
        let since = *self.unproven_since.entry(number).or_insert(now);
        if now - since < LEAVES_LIST_WITHIN {
            return Ok(());
        }
        broken("I1", format!("{} stays listed though its validation fails", machine.host))
    }

    /// Forgets what does not decide anything: how often something happened, and a start that was refused.
    pub(crate) fn forget_counts(&mut self) {
        (self.revisions, self.starts, self.start_is_wrong) = (0, 0, None);
        self.limits.forget_counts();
    }

    /// Returns the version that a host is listed under.
    pub(crate) fn listed(&self, host: &HostName) -> Option<&Version> {
        self.listings.get(host)?.keys().next()
    }

    /// Returns the state of the result of a type.
    pub(crate) fn result(&self, host: &HostName, kind: &StatusType) -> Option<&'static str> {
        self.results.get(&(host.clone(), kind.clone()))?.first().copied()
    }
}

/// I1: a host is listed only under a version that was applied and then validated on it. Validation may
/// have failed since the agent sent the transaction; nobody can take it back then.
fn check_proof(truth: &Truth, intent: &Intent, host: &HostName, version: &Version) -> Result<(), Violation> {
    if intent.validated.as_ref() != Some(version) {
        return broken(
            "I1",
            format!("{host} is listed under {version}, validated was {:?}", intent.validated),
        );
    }
    if !truth.is_whole(version) {
        return broken("I1", format!("{host} is listed under {version}, applied is {:?}", truth.applied));
    }
    Ok(())
}

/// I1: the version file names only a version that was proven.
pub(crate) fn check_file(machine: &Machine, version: &Version) -> Result<(), Violation> {
    if machine.truth.proven.as_ref() == Some(version) {
        return Ok(());
    }
    broken("I1", format!("the version file of {} says {version}, which is not proven", machine.host))
}

/// Checks the end of a simulation: without faults every host that can has reached the version.
pub(crate) fn check_settled(
    laws: &Laws,
    machine: &Machine,
    state: &HostState,
    version: &Version,
) -> Result<(), Violation> {
    let host = &machine.host;
    if laws.listed(host) != Some(version) {
        return broken("I4", format!("{host} is listed under {:?}, not {version}", laws.listed(host)));
    }
    if machine.disk.version_file.as_ref() != Some(version) {
        return broken("I4", format!("the version file of {host} says {:?}", machine.disk.version_file));
    }
    for kind in [StatusType::apply(), StatusType::validation()] {
        let result = laws.result(host, &kind);
        if result != Some(StatusState::Success.as_str()) {
            return broken("I4", format!("the result {kind} of {host} is {result:?}"));
        }
    }
    if state.versions.installed.as_ref() != Some(version) || state.attempt.is_some() {
        return broken("I4", format!("{host} has {:?} installed", state.versions.installed));
    }
    Ok(())
}
