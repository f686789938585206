//! The next step of a rolling upgrade.

use super::rules::UpgradeRules;
use super::state::{HostView, UpgradeState, UpgradeView};
use schema::host_config::ConfigScope;
use schema::keys::Key;
use schema::names::{HostName, Role, Version};
use schema::writes::host_config::UpgradeChange;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Largest number of keys that one step deletes, of hosts that it lets run, and of hosts whose places it gives
/// to others, so that it fits into one transaction. Another step follows at once.
pub(super) const STEP_MAX: usize = 35;

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct UpgradeStep {
    /// The changes of the store.
    pub(crate) change: UpgradeChange,
    /// Why hosts that wait do not run yet.
    pub(crate) obstacles: BTreeSet<String>,
}

/// Returns the next step to a version.
///
/// A step that triggers the version deletes the keys by which an earlier upgrade let hosts run. A host that
/// is in the middle of that upgrade keeps its key, and with it its place. A key that holds a host or role was
/// written by an operator, and stays.
pub(crate) fn next_step(view: &UpgradeView, version: &Version, rules: &UpgradeRules) -> UpgradeStep {
    if view.desired.as_ref() == Some(version) {
        return enable(view, rules);
    }
    let delete = enabling_keys(view, |host| view.desired.is_none() || view.is_done(host));
    if delete.len() > STEP_MAX {
        return UpgradeStep { change: first_of(delete), obstacles: BTreeSet::new() };
    }
    let mut after = UpgradeView {
        desired: Some(version.clone()),
        roles: view.roles.iter().filter(|(_, enables)| !**enables).map(|(r, e)| (r.clone(), *e)).collect(),
        global: Some(false),
        ..view.clone()
    };
    for (name, host) in &mut after.hosts {
        if delete.contains(&Key::EnablePuppet(ConfigScope::Host(name.clone()))) {
            host.own = None;
        }
    }
    let mut step = enable(&after, rules);
    // A key is either deleted or written.
    let is_written = |key: &Key| match key {
        Key::EnablePuppet(ConfigScope::Host(host)) => step.change.enable.contains(host),
        _ => false,
    };
    step.change.delete = delete.into_iter().filter(|key| !is_written(key)).collect();
    step.change.trigger = Some(version.clone());
    step
}

/// Returns the step that keeps every host from running. The second value is true if no further step is
/// needed.
pub(crate) fn disable_all(view: &UpgradeView) -> (UpgradeChange, bool) {
    let delete = enabling_keys(view, |_| true);
    let is_last = delete.len() <= STEP_MAX;
    (first_of(delete), is_last)
}

fn first_of(mut delete: Vec<Key>) -> UpgradeChange {
    delete.truncate(STEP_MAX);
    UpgradeChange { delete, ..UpgradeChange::default() }
}

/// Returns the keys that let roles run, and those that let hosts run to which this applies.
fn enabling_keys(view: &UpgradeView, applies: impl Fn(&HostView) -> bool) -> Vec<Key> {
    let roles = view.roles.iter().filter(|(_, enables)| **enables);
    let roles = roles.map(|(role, _)| ConfigScope::Role(role.clone()));
    let hosts = view.hosts.iter().filter(|(_, host)| host.own == Some(true) && applies(host));
    let hosts = hosts.map(|(host, _)| ConfigScope::Host(host.clone()));
    roles.chain(hosts).map(Key::EnablePuppet).collect()
}

/// The names by which a host is counted: its role, and the group of its role. A host without a role is
/// counted with all others that have none.
fn counted_by<'a>(host: &'a HostView, rules: &'a UpgradeRules) -> BTreeSet<Option<&'a Role>> {
    let role = host.role.as_ref();
    [role, role.map(|role| rules.group_of(role))].into()
}

/// Lets as many hosts run as the rules leave room for, and those that are upgraded already.
fn enable(view: &UpgradeView, rules: &UpgradeRules) -> UpgradeStep {
    let mut step = UpgradeStep::default();
    let Some(version) = &view.desired else { return step };
    let (places, uncounted) = given_places(view, version);
    let mut used: BTreeMap<Option<&Role>, u32> = BTreeMap::new();
    let mut unfinished: BTreeSet<&Role> = BTreeSet::new();
    for (name, host) in &view.hosts {
        let state = view.state(host);
        if state == UpgradeState::Upgrading || uncounted.contains(name) {
            counted_by(host, rules).into_iter().for_each(|by| *used.entry(by).or_default() += 1);
        }
        if state != UpgradeState::Upgraded {
            unfinished.extend(counted_by(host, rules).into_iter().flatten());
        }
    }
    let mut done: Vec<&HostName> = places;
    for (name, host) in view.hosts.iter().filter(|(_, host)| !view.may_run(host)) {
        let is_done = view.is_done(host);
        if is_done && view.is_held(host) {
            continue;
        }
        if !is_done && let Some(obstacle) = obstacle(view, host, rules, &used, &unfinished) {
            step.obstacles.insert(obstacle);
            continue;
        }
        if step.change.enable.len() == STEP_MAX {
            continue;
        }
        step.change.enable.push(name.clone());
        if is_done {
            // It takes no place. Without its scripts it would not even say any more what it runs.
            done.push(name);
        } else {
            counted_by(host, rules).into_iter().for_each(|by| *used.entry(by).or_default() += 1);
        }
    }
    if !step.change.enable.is_empty() {
        let listing = |host: &HostName| Key::RunningVersion(version.clone(), host.clone());
        step.change.done = done.into_iter().map(listing).collect();
    }
    step
}

/// Returns the hosts that are done and whose places this step may give to others: those that were listed
/// last. The second list holds those that were listed since the last step and are too many: their places are
/// given away by the next one.
fn given_places<'a>(view: &'a UpgradeView, version: &Version) -> (Vec<&'a HostName>, BTreeSet<&'a HostName>) {
    let done = view.hosts.iter().filter(|(_, host)| host.own == Some(true));
    let done = done.filter_map(|(name, host)| Some((*host.listed.get(version)?, name)));
    let mut done: Vec<(i64, &HostName)> = done.collect();
    done.sort_unstable_by_key(|(listed, _)| Reverse(*listed));
    let rest = done.split_off(done.len().min(STEP_MAX));
    let is_new = |(listed, _): &&(i64, &HostName)| *listed > view.last_step;
    let uncounted = rest.iter().filter(is_new).map(|(_, name)| *name).collect();
    (done.into_iter().map(|(_, name)| name).collect(), uncounted)
}

/// Returns what keeps a host that waits from running; `None` if it may.
fn obstacle(
    view: &UpgradeView,
    host: &HostView,
    rules: &UpgradeRules,
    used: &BTreeMap<Option<&Role>, u32>,
    unfinished: &BTreeSet<&Role>,
) -> Option<String> {
    if view.is_held(host) {
        return Some("an operator holds hosts".into());
    }
    let group = host.role.as_ref().map(|role| rules.group_of(role));
    let names = counted_by(host, rules);
    let shown =
        |name: Option<&Role>| name.map_or("hosts without a role".into(), |name| format!("role {name}"));
    for name in names.iter().copied().flatten() {
        if let Some(before) = rules.before(name).find(|before| unfinished.contains(before)) {
            return Some(format!("role {name} waits until role {before} is upgraded"));
        }
    }
    names.into_iter().find_map(|name| {
        let most = if name == group { rules.most(name) } else { rules.most_of(name) }?;
        let used = used.get(&name).copied().unwrap_or(0);
        (used >= most).then(|| format!("{}: {used} of at most {most} hosts are upgrading", shown(name)))
    })
}
