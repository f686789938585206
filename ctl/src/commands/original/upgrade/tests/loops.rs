//! Random histories of loops that run at once.

use super::*;
use proptest::prelude::*;
use schema::host_config::enables;
use std::collections::{BTreeMap, BTreeSet};

/// Number of loops that run at once in a history.
const LOOPS: usize = 4;

/// What happens next in a history.
#[derive(Debug, Clone)]
enum Happening {
    /// A loop reads the store and decides.
    Read(usize),
    /// A loop sends what it decided.
    Commit(usize),
    /// A host is done if it may run, and otherwise says again what it runs.
    Cron(usize),
    /// The listing of a host ends.
    Vanish(usize),
    /// An operator holds a host, or no longer.
    Pause(usize, bool),
}

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    let one = prop_oneof![
        4 => (0..LOOPS).prop_map(Happening::Read),
        3 => (0..LOOPS).prop_map(Happening::Commit),
        2 => (0..8usize).prop_map(Happening::Cron),
        1 => (0..8usize).prop_map(Happening::Vanish),
        4 => (0..8usize, any::<bool>()).prop_map(|(host, holds)| Happening::Pause(host, holds)),
    ];
    proptest::collection::vec(one, 0..120)
}

/// Returns how many hosts of each role may run and are not listed under the version.
fn in_the_middle(store: &Store, target: &Version) -> BTreeMap<String, u32> {
    let mut count = BTreeMap::new();
    let entries = || store.0.entries.iter().filter_map(|(key, entry)| Some((Key::parse(key).ok()?, entry)));
    let done: BTreeSet<HostName> = entries()
        .filter_map(|(key, _)| match key {
            Key::RunningVersion(version, host) if version == *target => Some(host),
            _ => None,
        })
        .collect();
    for (key, entry) in entries() {
        if let Key::EnablePuppet(ConfigScope::Host(host)) = key
            && enables(&entry.value)
            && !done.contains(&host)
        {
            *count.entry(role_of(&host).unwrap().to_string()).or_default() += 1;
        }
    }
    count
}

proptest! {
    /// However many loops run at once, no commit makes more hosts of a role run than its rule says.
    #[test]
    fn loops_at_once_keep_the_rules(history in happenings(), a in 0..4u32, b in 0..3u32, begun: bool) {
        let hosts: Vec<HostName> = ["a1", "a2", "a3", "a4", "a5", "b1", "b2", "b3"].map(host).into();
        let rules = format!(r#"{{"rolling_rules":{{"global":{a},"roles":{{"b":{b}}}}}}}"#);
        let rules = UpgradeRules::read(&rules, UpgradeRules::default()).unwrap();
        let target = version("2");
        let mut store = if begun { held(&[], &[]) } else { Store::of(&[("/current_version", "1")]) };
        hosts.iter().for_each(|host| store.list(host, &version("1")));
        let mut decided: [Option<Transaction>; LOOPS] = Default::default();
        for happening in history {
            match happening {
                Happening::Read(index) => {
                    let step = next_step(&store.view(), &target, &rules);
                    let transaction = step.change.transaction(&store.0, &act());
                    decided[index] = (!step.change.is_empty()).then_some(transaction);
                }
                Happening::Commit(index) => {
                    let before = in_the_middle(&store, &target);
                    if let Some(transaction) = decided[index].take() && store.commit(&transaction) {
                        for (role, most) in [("a", a), ("b", b)] {
                            let of = |count: &BTreeMap<String, u32>| count.get(role).copied().unwrap_or(0);
                            let now = of(&in_the_middle(&store, &target));
                            prop_assert!(now <= most.max(of(&before)), "{role}: {now} of {most}");
                        }
                    }
                }
                Happening::Cron(index) => {
                    let name = &hosts[index];
                    let is_pending = store.view().hosts_in(UpgradeState::Pending).any(|host| host == name);
                    let is_triggered = store.view().desired() == Some(&target);
                    let runs = if is_triggered && !is_pending { target.clone() } else { version("1") };
                    store.list(name, &runs);
                }
                Happening::Vanish(index) => {
                    for version in ["1", "2"].map(version) {
                        store.delete(&Key::RunningVersion(version, hosts[index].clone()));
                    }
                }
                Happening::Pause(index, holds) => {
                    let key = Key::parse(&format!("/config_state/host/{}/enable_puppet", hosts[index])).unwrap();
                    store.put(&key, if holds { b"False" } else { b"True" });
                }
            }
        }
    }
}
