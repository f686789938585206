//! A fleet that follows the keys of the store, beside one that is built again from all of them.

use super::*;
use catalog::catalog_from_store;
use schema::keys::{Key, Prefix};
use schema::names::Role;
use schema::records::{Maintenance, MaintenanceEntry, MaintenanceMode};

/// A change of a key: its value, or `None` if it is deleted.
type Change = (String, Option<String>);

/// The report of a host that waits for a service.
fn waits_for(service: &str) -> String {
    let wait = Wait {
        service: ServiceName::new(service).unwrap(),
        level: Level::Functional,
        need: 1,
        have: 0,
        phase: StepPhase::Apply,
        step: None,
        unreachable: false,
    };
    report(Some(("v2", 20)), HostVerdict::Held(WhyNot::Service(wait)))
}

fn record(name: &str) -> String {
    format!(r#"{{"format":1,"host":"{name}","addresses":["10.0.0.1"]}}"#)
}

/// A loop: the first host has the database and waits for the web, and the second the other way round.
fn a_loop() -> Vec<(String, String)> {
    let of_host = |(name, has, needs): (&str, &str, &str)| {
        [
            (format!("/orchestrate/live/{name}"), claim(Driver::Agent)),
            (format!("/orchestrate/reports/{name}"), waits_for(needs)),
            (format!("/available_services/{has}/{name}"), record(name)),
            (format!("/orchestrate/health/{has}/{name}"), "critical".into()),
        ]
    };
    let hosts = [("h", "db", "web"), ("other", "web", "db")];
    let version = (Key::CurrentVersion.to_string(), "v2".to_owned());
    hosts.into_iter().flat_map(of_host).chain([version]).collect()
}

/// The values that a key may have, besides one that cannot be read.
fn values(name: &str) -> Vec<(String, String)> {
    let gone = RosterEntry { decommissioned: Some(EpochSeconds(9)), ..RosterEntry::default() };
    let in_role = RosterEntry { role: Some(Role::new("web").unwrap()), ..RosterEntry::default() };
    let how = MaintenanceMode::Maintenance;
    let mark = MaintenanceEntry { how, reason: "r".into(), at: EpochSeconds(1) };
    let out = Maintenance { host: Some(mark), ..Maintenance::default() };
    let of_host = [
        ("/orchestrate/hosts", codec::write(&gone)),
        ("/orchestrate/hosts", codec::write(&in_role)),
        ("/orchestrate/live", claim(Driver::Agent)),
        ("/orchestrate/live", claim(Driver::External)),
        ("/orchestrate/clashes", "{}".into()),
        ("/orchestrate/announced", "v2".into()),
        ("/orchestrate/maintenance", codec::write(&out)),
        ("/orchestrate/health/db", "critical".into()),
        ("/orchestrate/health/db", "passing".into()),
        ("/orchestrate/reporting/validation", "1".into()),
        ("/running_version/v1", "1".into()),
        ("/running_version/v2", "1".into()),
        ("/status/puppet/failed", r#"{"at":1,"code":6}"#.into()),
        ("/status/puppet/pending", r#"{"at":1,"code":6}"#.into()),
        ("/status/validation/success", r#"{"at":1,"code":6}"#.into()),
        ("/orchestrate/reports", report(Some(("v2", 20)), HostVerdict::Ok)),
        ("/orchestrate/reports", report(Some(("v2", 20)), failed(true))),
        ("/orchestrate/reports", report(Some(("v1", 10)), HostVerdict::Running { version: version("v2") })),
        ("/orchestrate/reports", report(Some(("v2", 20)), HostVerdict::Held(stage()))),
        ("/orchestrate/reports", waits_for("db")),
        ("/orchestrate/reports", waits_for("web")),
        ("/available_services/db", record(name)),
        ("/available_services/web", record(name)),
        ("/orchestrate/health/web", "critical".into()),
    ];
    of_host.into_iter().map(|(range, value)| (format!("{range}/{name}"), value)).collect()
}

fn any_change() -> impl Strategy<Value = Change> {
    let of_fleet = [
        ("/orchestrate/freezes/fleet/aaaa", "{}"),
        ("/orchestrate/freezes/role/web/bbbb", r#"{"at":1,"reason":"r"}"#),
        ("/orchestrate/freezes/host/h/cccc", r#"{"at":1,"reason":"r"}"#),
        ("/orchestrate/rollouts/0000000000-0000000000000000020/halt", r#"{"at":1,"by":"h","why":"w"}"#),
        ("/orchestrate/rollouts/0000000000-0000000000000000010/halt", r#"{"at":1,"by":"h","why":"w"}"#),
        ("/orchestrate/unknown/x", "1"),
        ("/current_version", "v2"),
        ("/current_version", "v3"),
        ("/current_version", "a/b"),
    ];
    let of_fleet = of_fleet.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let all: Vec<_> = ["h", "other", "third"].iter().flat_map(|name| values(name)).chain(of_fleet).collect();
    let kind = prop_oneof![6 => Just(0), 3 => Just(1), 1 => Just(2)];
    (prop::sample::select(all), kind).prop_map(|((key, value), kind)| match kind {
        0 => (key, Some(value)),
        1 => (key, None),
        _ => (key, Some("{ cannot be read".into())),
    })
}

/// Returns the desired version that these keys hold.
fn target_of(entries: &BTreeMap<String, String>) -> FleetTarget {
    let entry = entries.get(&Key::CurrentVersion.to_string()).map(|value| Entry {
        value: value.clone().into_bytes(),
        create_revision: 20,
        mod_revision: 20,
        lease: 0,
        version: 1,
    });
    FleetTarget::read(entry.as_ref(), Epoch::default())
}

fn view_of(entries: &BTreeMap<String, String>) -> catalog::View {
    let ranges = [Prefix::Services, Prefix::HealthAll].map(|range| range.to_string());
    let of_services = entries.iter().filter(|(key, _)| ranges.iter().any(|range| key.starts_with(range)));
    catalog_from_store(of_services.map(|(key, value)| (key.as_str(), value.as_bytes(), true))).0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// In all, 10,000 changes.
    #[test]
    fn a_fleet_that_follows_each_change_is_as_one_that_is_built_anew(
        changes in prop::collection::vec(any_change(), 91)
    ) {
        let mut entries = BTreeMap::new();
        let mut following = Fleet::empty().complete(FleetTarget::NotSet);
        let first = a_loop().into_iter().map(|(key, value)| (key, Some(value)));
        let mut loops = 0;
        for (key, value) in first.chain(changes) {
            match &value {
                Some(value) => _ = entries.insert(key.clone(), value.clone()),
                None => _ = entries.remove(&key),
            }
            following.change(&key, value.as_ref().map(|value| value.as_bytes()));
            following.set_target(target_of(&entries));
            let (view, now) = (view_of(&entries), EpochSeconds(10_000));
            following.find_deadlocks(&view, now);
            let mut rebuilt =
                Fleet::new(target_of(&entries), entries.iter().map(|(k, v)| (k.as_str(), v.as_bytes())));
            rebuilt.find_deadlocks(&view, now);
            prop_assert_eq!(&following, &rebuilt, "after {} {:?}", key, value);
            let is_in_loop =
                |v: &FleetVerdict| matches!(v, FleetVerdict::Held(WhyNot::Deadlock(_)));
            let has_loop = following.verdicts().values().any(is_in_loop);
            loops += usize::from(has_loop);
            // What is blocked by a loop is still explained by it.
            let roots = WaitGraph::of(&following, &view, now).roots();
            prop_assert!(!has_loop || roots.keys().any(|root| matches!(root, Root::Loop(_))), "{:?}", roots);
        }
        prop_assert!(loops > 0, "the first changes make a loop");
    }
}
