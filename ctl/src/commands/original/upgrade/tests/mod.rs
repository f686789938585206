//! Which hosts may go, as tables, and the store of these tests.

mod loops;

use super::step::STEP_MAX;
use super::*;
use schema::host_config::{ConfigScope, role_of};
use schema::keys::{Key, Prefix};
use schema::names::{EventId, HostName, Token, Version};
use schema::snapshot::{Entry, KeySnapshot};
use schema::transaction::{Compare, Operation, Transaction};
use schema::writes::act::Act;

fn version(text: &str) -> Version {
    Version::new(text).unwrap()
}

fn host(text: &str) -> HostName {
    HostName::new(text).unwrap()
}

fn enabled(name: &str) -> Key {
    Key::EnablePuppet(ConfigScope::Host(host(name)))
}

fn act() -> Act {
    Act::new(EventId::of(1, &Token::new("a").unwrap()), "ann", "test")
}

/// A store: every change gets a revision of its own.
#[derive(Debug, Clone, Default)]
struct Store(KeySnapshot);

impl Store {
    fn of(keys: &[(&str, &str)]) -> Self {
        let mut store = Self::default();
        keys.iter().for_each(|(key, value)| store.put(&Key::parse(key).expect(key), value.as_bytes()));
        store
    }

    fn put(&mut self, key: &Key, value: &[u8]) {
        self.0.revision += 1;
        self.put_at_this_revision(key, value);
    }

    fn put_at_this_revision(&mut self, key: &Key, value: &[u8]) {
        let revision = self.0.revision;
        let create_revision = self.0.get(key).map_or(revision, |entry| entry.create_revision);
        let entry =
            Entry { value: value.into(), create_revision, mod_revision: revision, lease: 0, version: 1 };
        self.0.entries.insert(key.to_string(), entry);
    }

    fn delete(&mut self, key: &Key) {
        self.0.revision += 1;
        self.0.entries.remove(&key.to_string());
    }

    /// Lists a host under a version and no other.
    fn list(&mut self, name: &HostName, version: &Version) {
        let others: Vec<Key> = self.0.entries.keys().filter_map(|key| Key::parse(key).ok()).collect();
        for key in others {
            if matches!(&key, Key::RunningVersion(_, listed) if listed == name) {
                self.delete(&key);
            }
        }
        self.put(&Key::RunningVersion(version.clone(), name.clone()), b"1");
    }

    fn commit(&mut self, transaction: &Transaction) -> bool {
        assert_eq!(transaction.check(), Ok(()));
        let below = |prefix: &Prefix| {
            let prefix = prefix.to_string();
            self.0.entries.iter().filter(move |(key, _)| key.starts_with(&prefix)).map(|(_, entry)| entry)
        };
        let holds = |compare: &Compare| match compare {
            Compare::Revision(key, revision) => self.0.revision_of(key) == *revision,
            Compare::NoneNewer(prefix, revision) => {
                below(prefix).all(|entry| entry.mod_revision <= *revision)
            }
            other => panic!("{other:?}"),
        };
        if !transaction.compares.iter().all(holds) {
            return false;
        }
        self.0.revision += 1;
        for operation in &transaction.operations {
            match operation {
                Operation::Put { key, value, .. } => self.put_at_this_revision(key, value),
                Operation::Delete(key) => drop(self.0.entries.remove(&key.to_string())),
                other => panic!("{other:?}"),
            }
        }
        true
    }

    fn view(&self) -> UpgradeView {
        UpgradeView::read(&self.0).unwrap()
    }

    fn step(&self, version: &Version, rules: &str) -> UpgradeStep {
        next_step(&self.view(), version, &UpgradeRules::read(rules, UpgradeRules::default()).unwrap())
    }

    /// The hosts in the three states.
    fn states(&self) -> [Vec<String>; 3] {
        let view = self.view();
        let names = |state| view.hosts_in(state).map(ToString::to_string).collect();
        [UpgradeState::Upgraded, UpgradeState::Upgrading, UpgradeState::Pending].map(names)
    }
}

/// A fleet that is held, with these hosts listed under these versions; version 2 is desired.
fn held(listed: &[&str], more: &[(&str, &str)]) -> Store {
    let mut store = Store::of(&[("/current_version", "2"), ("/config_state/enable_puppet/global", "False")]);
    for listed in listed {
        let (version, name) = listed.split_once('/').unwrap();
        store.put(&Key::RunningVersion(self::version(version), host(name)), b"1");
    }
    more.iter().for_each(|(key, value)| store.put(&Key::parse(key).expect(key), value.as_bytes()));
    store
}

#[test]
fn the_states_are_those_of_the_original() {
    let states = |keys: &[(&str, &str)], expected: [&[&str]; 3]| {
        let expected = expected.map(|names| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(Store::of(keys).states(), expected, "{keys:?}");
    };
    states(&[], [&[], &[], &[]]);
    let listed = [("/current_version", "1"), ("/running_version/1/h1", "1"), ("/running_version/2/h2", "1")];
    states(&listed, [&["h1"], &["h2"], &[]]);
    let more = [
        ("/running_version/2/i3", "1"),
        ("/running_version/3/i4", "1"),
        ("/config_state/enable_puppet/global", "False"),
        ("/config_state/enable_puppet/role/h", "True"),
        ("/config_state/enable_puppet/host/i4", "True"),
    ];
    states(&[&listed[..], &more].concat(), [&["h1"], &["h2", "i4"], &["i3"]]);
    // A host whose listing ended is known by its entry, or because it reports.
    let silent = [
        ("/current_version", "1"),
        ("/config_state/enable_puppet/global", "False"),
        ("/orchestrate/hosts/a1", r#"{"since":1}"#),
        ("/orchestrate/hosts/a2", r#"{"since":1,"decommissioned":2}"#),
        ("/config_state/enable_puppet/host/a2", "True"),
        ("/orchestrate/reporting/validation/a3", "1"),
        ("/config_state/enable_puppet/host/a4", "True"),
    ];
    states(&silent, [&[], &["a4"], &["a1", "a3"]]);
}

#[test]
fn as_many_hosts_go_as_the_rules_leave_room_for() {
    for (listed, more, rules, expected) in [
        // Without a rule all go.
        (&["1/h1", "1/i1"][..], &[][..], "{}", &["h1", "i1"][..]),
        // The rule counts each role.
        (&["1/h1", "1/h2", "1/i1"], &[], r#"{"rolling_rules":{"global":1}}"#, &["h1", "i1"]),
        (&["1/h1", "1/h2", "1/i1"], &[], r#"{"rolling_rules":{"global":"1"}}"#, &["h1", "i1"]),
        (
            &["1/h1", "1/h2", "1/h3", "1/i1", "1/i2"],
            &[("/config_state/enable_puppet/host/h2", "True")],
            r#"{"rolling_rules":{"global":2,"roles":{"i":1}}}"#,
            &["h1", "i1"],
        ),
        // A rule of 0 holds, also where the number for all is larger.
        (&["1/h1", "1/i1"], &[], r#"{"rolling_rules":{"global":3,"roles":{"i":0}}}"#, &["h1"]),
        (&["1/h1"], &[], r#"{"rolling_rules":{"global":0}}"#, &[]),
        // A host that is done gives its place away.
        (
            &["2/h1", "1/h2", "1/h3"],
            &[("/config_state/enable_puppet/host/h1", "True")],
            r#"{"rolling_rules":{"global":1}}"#,
            &["h2"],
        ),
        // A host that is done takes no place, and may run.
        (&["2/h1", "1/h2", "1/h3"], &[], r#"{"rolling_rules":{"global":1}}"#, &["h1", "h2"]),
        (&["2/h1", "1/h2"], &[], r#"{"rolling_rules":{"global":0}}"#, &["h1"]),
        (&["2/h1"], &[("/config_state/host/h1/enable_puppet", "False")], "{}", &[]),
        // One that may run keeps it, also when its listing ended.
        (
            &["1/h2", "1/h3"],
            &[("/config_state/enable_puppet/host/h1", "True")],
            r#"{"rolling_rules":{"global":1}}"#,
            &[],
        ),
        // Roles of a group count together, and a role keeps to its own rule in it.
        (
            &["1/stmon1", "1/stosd1", "1/web1"],
            &[],
            r#"{"rolling_rules":{"global":1},"group_mappings":{"ceph":["st.*"]}}"#,
            &["stmon1", "web1"],
        ),
        (
            &["1/stmon1", "1/stosd1", "1/stosd2"],
            &[],
            r#"{"rolling_rules":{"roles":{"ceph":3,"stosd":1}},"group_mappings":{"ceph":"st.*"}}"#,
            &["stmon1", "stosd1"],
        ),
        // Hosts without a role count together.
        (&["1/web-1", "1/db-1"], &[], r#"{"rolling_rules":{"global":1}}"#, &["db-1"]),
        // A role waits for others, as roles and as groups.
        (&["1/cp1", "1/oc1"], &[], r#"{"role_dependencies":{"cp":"oc"}}"#, &["oc1"]),
        (&["1/cp1", "2/oc1"], &[], r#"{"role_dependencies":{"cp":["oc"]}}"#, &["cp1", "oc1"]),
        (
            &["1/cp1", "1/oc1"],
            &[("/config_state/enable_puppet/host/oc1", "True")],
            r#"{"role_dependencies":{"cp":["oc"]}}"#,
            &[],
        ),
        (
            &["1/cp1", "1/stmon1"],
            &[],
            r#"{"role_dependencies":{"cp":["ceph"]},"group_mappings":{"ceph":["st.*"]}}"#,
            &["stmon1"],
        ),
        (
            &["1/cp1", "1/stmon1"],
            &[],
            r#"{"role_dependencies":{"ceph":["cp"]},"group_mappings":{"ceph":["st.*"]}}"#,
            &["cp1"],
        ),
        // What an operator holds does not go, and takes no place.
        (
            &["1/h1", "1/h2"],
            &[("/config_state/enable_puppet/host/h1", "False")],
            r#"{"rolling_rules":{"global":1}}"#,
            &["h2"],
        ),
        (&["1/h1", "1/i1"], &[("/config_state/enable_puppet/role/h", "False")], "{}", &["i1"]),
        (&["1/h1", "1/i1"], &[("/config_state/host/h1/enable_puppet", "False")], "{}", &["i1"]),
        (&["1/h1", "1/i1"], &[("/config_state/role/i/enable_puppet", "False")], "{}", &["h1"]),
        (&["1/h1", "1/i1"], &[("/config_state/global/enable_puppet", "False")], "{}", &[]),
        (
            &["1/h1", "1/i1"],
            &[
                ("/config_state/global/enable_puppet", "False"),
                ("/config_state/host/i1/enable_puppet", "True"),
            ],
            "{}",
            &["i1"],
        ),
    ] {
        let step = held(listed, more).step(&version("2"), rules);
        let enabled: Vec<&str> = step.change.enable.iter().map(HostName::as_str).collect();
        assert_eq!(enabled, expected, "{listed:?} {more:?} {rules}: {:?}", step.obstacles);
        assert!(step.change.trigger.is_none() && step.change.delete.is_empty());
    }
}

#[test]
fn hosts_that_wait_say_for_what() {
    let rules = r#"{"rolling_rules":{"global":1},"role_dependencies":{"cp":"oc"}}"#;
    let more =
        [("/config_state/enable_puppet/host/oc1", "True"), ("/config_state/role/db/enable_puppet", "no")];
    let step = held(&["1/cp1", "1/oc1", "1/oc2", "1/db1"], &more).step(&version("2"), rules);
    let expected = [
        "an operator holds hosts",
        "role cp waits until role oc is upgraded",
        "role oc: 1 of at most 1 hosts are upgrading",
    ];
    assert_eq!(step.obstacles.iter().map(String::as_str).collect::<Vec<_>>(), expected);
    assert!(step.change.is_empty());
}

#[test]
fn a_trigger_keeps_the_pauses_and_the_places_of_hosts_in_the_middle() {
    let more = [
        ("/config_state/enable_puppet/host/h1", "True"),
        ("/config_state/enable_puppet/host/h2", "True"),
        ("/config_state/enable_puppet/host/h3", "False"),
        ("/config_state/enable_puppet/role/i", "True"),
        ("/config_state/enable_puppet/role/j", "False"),
        ("/config_state/host/i1/enable_puppet", "False"),
    ];
    let mut store = held(&["2/h1", "1/h2", "2/h3", "2/h4", "2/i1", "2/j1"], &more);
    let step = store.step(&version("3"), r#"{"rolling_rules":{"global":2}}"#);
    assert_eq!(step.change.trigger, Some(version("3")));
    assert_eq!(step.change.enable, [host("h1")], "one more beside h2");
    let role = |name: &str| Key::EnablePuppet(ConfigScope::Role(role_of(&host(name)).unwrap()));
    assert_eq!(step.change.delete, [role("i1")]);
    assert!(store.commit(&step.change.transaction(&store.0, &act())));
    assert_eq!(store.0.get(&Key::CurrentVersion).unwrap().value, b"3");
    for (key, value) in [more[2], more[4], more[5]] {
        let found = store.0.get(&Key::parse(key).unwrap()).expect(key);
        assert_eq!(found.value, value.as_bytes(), "an operator wrote {key}");
    }
    let (change, is_last) = disable_all(&store.view());
    assert!(is_last);
    assert_eq!(change.delete, [enabled("h1"), enabled("h2")], "an emergency stop leaves only pauses");
}

#[test]
fn of_two_loops_that_decided_at_the_same_time_one_is_refused() {
    let mut store = held(&["1/a1", "1/a2"], &[("/config_state/host/a1/enable_puppet", "False")]);
    let rules = r#"{"rolling_rules":{"global":1}}"#;
    let decide = |store: &Store| store.step(&version("2"), rules).change.transaction(&store.0, &act());
    let first = decide(&store);
    store.put(&Key::parse("/config_state/host/a1/enable_puppet").unwrap(), b"True");
    let second = decide(&store);
    assert!(store.commit(&first), "it lets a2 go");
    assert!(!store.commit(&second), "it would let a1 go as well");
    // A host that is no longer done takes its place again.
    store.list(&host("a2"), &version("2"));
    let third = decide(&store);
    store.list(&host("a2"), &version("1"));
    assert!(!store.commit(&third));
}

#[test]
fn many_keys_are_deleted_in_several_steps_before_the_trigger() {
    let names: Vec<String> = (0..3 * STEP_MAX).map(|n| format!("h{n}")).collect();
    let mut store = held(&[], &[]);
    for name in &names {
        store.put(&Key::RunningVersion(version("2"), host(name)), b"1");
        store.put(&enabled(name), b"True");
    }
    let mut steps = 0;
    loop {
        let step = store.step(&version("3"), r#"{"rolling_rules":{"global":0}}"#);
        assert!(store.commit(&step.change.transaction(&store.0, &act())));
        steps += 1;
        if step.change.trigger.is_some() {
            break;
        }
    }
    assert_eq!(steps, 3);
    assert_eq!(store.states()[2].len(), names.len());
}

#[test]
fn rules_that_cannot_be_used_are_named() {
    for (text, expected) in [
        ("", "not JSON"),
        ("[]", "not an object"),
        (r#"{"rollin_rules":{}}"#, "\"rollin_rules\": unknown key"),
        (r#"{"rolling_rules":1}"#, "\"rolling_rules\": not an object"),
        (r#"{"rolling_rules":{"host":1}}"#, "\"rolling_rules.host\": unknown key"),
        (r#"{"rolling_rules":{"global":-1}}"#, "\"rolling_rules.global\": -1 is not a number of hosts"),
        (r#"{"rolling_rules":{"global":1.5}}"#, "1.5 is not a number"),
        (r#"{"rolling_rules":{"global":"a"}}"#, "\"a\" is not a number"),
        (r#"{"rolling_rules":{"roles":{"a/b":1}}}"#, "role \"a/b\""),
        (r#"{"rolling_rules":{"roles":{"a":true}}}"#, "\"rolling_rules.roles.a\": true is not a number"),
        (r#"{"role_dependencies":{"a":1}}"#, "\"role_dependencies.a\": neither a text"),
        (r#"{"role_dependencies":{"a":["b","a"]}}"#, "\"role_dependencies.a\": it depends on itself"),
        (r#"{"group_mappings":{"a":["("]}}"#, "\"group_mappings.a\": \"(\": found open group"),
        (r#"{"group_mappings":{"a":[1]}}"#, "neither a text"),
    ] {
        let error = UpgradeRules::read(text, UpgradeRules::default()).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn the_option_wins_over_the_file_where_it_says_something() {
    let file = r#"{"rolling_rules":{"global":1},"role_dependencies":{"cp":"oc"}}"#;
    let file = || UpgradeRules::read(file, UpgradeRules::default()).unwrap();
    let same = r#"{"rolling_rules":{},"role_dependencies":null,"group_mappings":{}}"#;
    assert_eq!(UpgradeRules::read(same, file()).unwrap(), file());
    let other = UpgradeRules::read(r#"{"rolling_rules":{"global":2}}"#, file()).unwrap();
    let both = r#"{"rolling_rules":{"global":2},"role_dependencies":{"cp":"oc"}}"#;
    assert_eq!(other, UpgradeRules::read(both, UpgradeRules::default()).unwrap());
}
