use super::*;
use proptest::prelude::*;
use schema::health::{Health, Level};
use schema::names::{HostName, ServiceName};
use schema::records::ServiceRecord;
use schema::time::BootMillis;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

fn service(name: &str) -> ServiceName {
    ServiceName::new(name).unwrap()
}

fn host(name: &str) -> HostName {
    HostName::new(name).unwrap()
}

fn stored(address: &str, leased: bool) -> CatalogFact {
    CatalogFact::Record(Some(StoredRecord::new(record(address), leased)))
}

fn record(address: &str) -> Arc<ServiceRecord> {
    let address: IpAddr = address.parse().unwrap();
    Arc::new(ServiceRecord { addresses: vec![address], ..ServiceRecord::default() })
}

fn at(seconds: u64) -> BootMillis {
    BootMillis(seconds * 1000)
}

/// A catalog of one service with `count` passing instances on the hosts h0, h1, ….
struct Scene {
    catalog: Catalog,
    web: ServiceName,
}

impl Scene {
    fn new(count: usize) -> Self {
        let mut scene = Self { catalog: Catalog::new(GuardSettings::default()), web: service("web") };
        scene.catalog.view.note_health_known(&scene.web);
        for number in 0..count {
            scene.say(number, stored("10.0.0.1", true), 0);
            scene.say(number, CatalogFact::Health(Some(Health::Passing)), 0);
        }
        scene
    }

    fn say(&mut self, number: usize, fact: CatalogFact, seconds: u64) {
        self.catalog.apply(&self.web, &host(&format!("h{number}")), fact, at(seconds));
        self.catalog.settle(at(seconds), true);
    }

    fn silence(&mut self, numbers: impl IntoIterator<Item = usize>, seconds: u64) {
        numbers.into_iter().for_each(|number| self.say(number, CatalogFact::Health(None), seconds));
    }

    fn functional(&mut self, seconds: u64) -> usize {
        self.catalog.settle(at(seconds), true);
        self.catalog.view().count(&self.web, Level::Functional)
    }
}

#[test]
fn a_put_passes_at_once_even_for_the_only_instance() {
    for (count, health) in
        [(1, Health::Critical), (5, Health::Critical), (5, Health::Draining), (5, Health::Withdrawn)]
    {
        let mut scene = Scene::new(count);
        (0..count).for_each(|number| scene.say(number, CatalogFact::Health(Some(health)), 1));
        assert_eq!(scene.functional(1), 0, "{count} {health}");
        assert_eq!(scene.catalog.retained(), []);
        (0..count).for_each(|number| scene.say(number, CatalogFact::Record(None), 2));
        assert_eq!(scene.catalog.view().services().len(), 0);
    }
}

#[test]
fn few_that_go_silent_are_believed() {
    for (count, silent) in [(1, 1), (2, 2), (10, 1), (10, 2), (10, 3)] {
        let mut scene = Scene::new(count);
        scene.silence(0..silent, 1);
        assert_eq!(scene.functional(1), count - silent, "{silent} of {count}");
    }
}

#[test]
fn many_that_go_silent_together_are_served_on() {
    for (count, silent) in [(3, 3), (4, 3), (10, 4), (10, 10)] {
        let mut scene = Scene::new(count);
        scene.silence(0..silent, 1);
        assert_eq!(scene.functional(1), count, "{silent} of {count}");
        assert_eq!(scene.catalog.retained()[0].hosts.len(), silent);
        // They are retained as long as their records exist.
        assert_eq!(scene.functional(100_000), count);
        // A host that reports is believed, and the others are still retained.
        scene.say(0, CatalogFact::Health(Some(Health::Critical)), 100_001);
        assert_eq!(scene.functional(100_001), count - 1);
        scene.catalog.release();
        assert_eq!(scene.functional(100_002), count - silent);
    }
}

#[test]
fn what_is_spread_over_time_is_no_fault() {
    let mut scene = Scene::new(10);
    for number in 0..10 {
        scene.silence([number], number as u64 * 61);
        assert_eq!(scene.functional(number as u64 * 61), 9 - number);
    }
}

#[test]
fn when_the_records_go_too_it_is_let_go_after_a_while() {
    let mut scene = Scene::new(6);
    scene.silence(0..6, 1);
    (0..6).for_each(|number| scene.say(number, CatalogFact::Record(None), 900));
    assert_eq!(scene.functional(959), 6);
    assert_eq!(scene.catalog.next_check(), Some(at(960)));
    assert_eq!(scene.functional(960), 0);
    assert_eq!(scene.catalog.view().nodes().hosts().len(), 0);
    assert_eq!(scene.catalog.next_check(), None);
}

#[test]
fn records_that_vanish_beside_health_that_stands_are_served_on() {
    let mut scene = Scene::new(6);
    (0..6).for_each(|number| scene.say(number, CatalogFact::Record(None), 1));
    assert_eq!(scene.functional(100_000), 6, "somebody deleted the records by hand");
    (0..6).for_each(|number| scene.say(number, CatalogFact::Health(Some(Health::Critical)), 100_001));
    assert_eq!(scene.functional(100_001), 0);
}

#[test]
fn a_record_that_vanishes_beside_health_that_stands_is_served_on_however_few_they_are() {
    let passing = || CatalogFact::Health(Some(Health::Passing));
    let back = || stored("10.0.0.1", true);
    let gone = || CatalogFact::Record(None);
    // The changes to the first of four instances, each with its time in seconds and the number of
    // functional instances after it.
    let check = |name: &str, events: &[(CatalogFact, u64, usize)]| {
        let mut scene = Scene::new(4);
        for (fact, seconds, expected) in events {
            scene.say(0, fact.clone(), *seconds);
            assert_eq!(scene.functional(*seconds), *expected, "{name}, at {seconds}");
        }
        assert_eq!(scene.catalog.retained(), [], "{name}");
    };
    let silent = || CatalogFact::Health(None);
    check("its lease ran out", &[(gone(), 1, 4), (passing(), 500, 4), (back(), 501, 4)]);
    check("it goes silent too", &[(gone(), 1, 4), (silent(), 30, 3), (passing(), 40, 4), (back(), 41, 4)]);
    for explicit in [Health::Critical, Health::Withdrawn] {
        check("it says so", &[(gone(), 1, 4), (CatalogFact::Health(Some(explicit)), 2, 3)]);
    }
}

#[test]
fn health_that_is_back_before_its_record_is_a_word_for_as_long_as_that_takes() {
    let mut scene = Scene::new(6);
    scene.silence(0..6, 1);
    (0..6).for_each(|number| scene.say(number, CatalogFact::Record(None), 2));
    scene.say(0, CatalogFact::Health(Some(Health::Passing)), 30);
    assert_eq!(scene.functional(100), 1, "five are gone for good");
    scene.say(0, stored("10.0.0.1", true), 200);
    assert_eq!(scene.functional(200), 1);
    assert_eq!(scene.catalog.retained(), []);
}

#[test]
fn a_list_after_a_cut_is_compared_with_what_was_known() {
    let mut scene = Scene::new(6);
    scene.catalog.replace_records(BTreeMap::new(), at(1));
    let web = scene.web.clone();
    scene.catalog.replace_health(&web, BTreeMap::new(), at(1));
    assert_eq!(scene.functional(1), 6, "everybody was cut off longer than the leases last");
    // The hosts come back one by one.
    for number in 0..3 {
        scene.say(number, stored("10.0.0.1", true), 20);
        scene.say(number, CatalogFact::Health(Some(Health::Passing)), 20);
    }
    assert_eq!(scene.functional(61), 3, "three did not");
}

#[test]
fn records_alone_are_guarded_where_health_is_not_followed() {
    let mut catalog = Catalog::new(GuardSettings::default());
    let web = service("web");
    let name = |number: usize| host(&format!("h{number}"));
    for number in 0..6 {
        let fact = stored(&format!("10.0.0.{number}"), number < 5);
        catalog.apply(&web, &name(number), fact, at(0));
    }
    let count = |catalog: &mut Catalog, seconds, seen| {
        catalog.settle(at(seconds), seen);
        catalog.view().count(&web, Level::Addressable)
    };
    catalog.apply(&web, &name(0), CatalogFact::Record(None), at(1));
    assert_eq!(count(&mut catalog, 1, true), 5, "one is believed");
    (0..6).for_each(|number| catalog.apply(&web, &name(number), CatalogFact::Record(None), at(2)));
    assert_eq!(count(&mut catalog, 2, true), 5, "and the one that has no agent was deleted by somebody");
    assert_eq!(count(&mut catalog, 100_000, false), 5, "nobody is let go while the store is out of sight");
    catalog.wait_again(at(100_000));
    assert_eq!(count(&mut catalog, 100_059, true), 5);
    assert_eq!(count(&mut catalog, 100_060, true), 0);
}

#[test]
fn an_instance_of_a_host_without_an_agent_counts_as_functional() {
    let mut catalog = Catalog::new(GuardSettings::default());
    let (web, old) = (service("web"), host("old"));
    catalog.apply(&web, &old, stored("10.0.0.9", false), at(0));
    catalog.settle(at(0), true);
    let instance = catalog.view().service(&web).unwrap().instances()[&old].clone();
    assert!(instance.is_functional() && instance.is_unchecked());
    catalog.apply(&web, &old, CatalogFact::Record(None), at(1));
    catalog.settle(at(1), true);
    assert_eq!(catalog.view().services().len(), 0);
}

#[derive(Debug, Clone)]
enum Step {
    Record(usize, usize, Option<bool>),
    Health(usize, usize, Option<Health>),
}

fn step() -> impl Strategy<Value = Step> {
    let health = prop_oneof![
        Just(None),
        Just(Some(Health::Passing)),
        Just(Some(Health::Critical)),
        Just(Some(Health::Withdrawn)),
    ];
    prop_oneof![
        (0..3usize, 0..5usize, any::<Option<bool>>()).prop_map(|(s, h, leased)| Step::Record(s, h, leased)),
        (0..3usize, 0..5usize, health).prop_map(|(s, h, health)| Step::Health(s, h, health)),
    ]
}

fn take(catalog: &mut Catalog, step: &Step, now: BootMillis) {
    let names = |s: usize, h: usize| (service(&format!("s{s}")), host(&format!("h{h}")));
    match step {
        Step::Record(s, h, leased) => {
            let (service, host) = names(*s, *h);
            let mut record = record(&format!("10.0.{s}.{h}")).as_ref().clone();
            record.host = Some(host.clone());
            let fact = CatalogFact::Record(leased.map(|leased| StoredRecord::new(record, leased)));
            catalog.apply(&service, &host, fact, now);
        }
        Step::Health(s, h, health) => {
            let (service, host) = names(*s, *h);
            catalog.apply(&service, &host, CatalogFact::Health(*health), now);
        }
    }
}

proptest! {
    #[test]
    fn the_same_facts_in_any_order_give_the_same_catalog(
        steps in prop::collection::vec(step(), 0..40),
        order in prop::collection::vec(any::<u32>(), 40),
    ) {
        // The last fact of each key, in another order.
        let mut last: BTreeMap<(bool, usize, usize), Step> = BTreeMap::new();
        for step in &steps {
            let key = match step {
                Step::Record(s, h, _) => (true, *s, *h),
                Step::Health(s, h, _) => (false, *s, *h),
            };
            last.insert(key, step.clone());
        }
        let mut others: Vec<(u32, Step)> = order.iter().copied().cycle().zip(last.into_values()).collect();
        others.sort_by_key(|(place, _)| *place);
        // The facts are so far apart that no two instances stop reporting together.
        let (mut one, mut two) = (Catalog::new(GuardSettings::default()), Catalog::new(GuardSettings::default()));
        for (number, step) in steps.iter().enumerate() {
            take(&mut one, step, at(number as u64 * 100));
            one.settle(at(number as u64 * 100), true);
        }
        for (_, step) in &others {
            take(&mut two, step, at(0));
        }
        one.settle(at(1_000_000), true);
        two.settle(at(1_000_000), true);
        prop_assert_eq!(one.view(), two.view());
    }

    #[test]
    fn a_view_never_loses_more_than_its_part_by_silence(
        count in 3usize..30,
        silent in prop::collection::vec((0usize..30, 0u64..30), 0..40),
    ) {
        let mut scene = Scene::new(count);
        let mut silent = silent;
        silent.sort_by_key(|(_, seconds)| *seconds);
        let most = (GuardSettings::default().percent * count / 100).max(2);
        for (number, seconds) in silent {
            scene.silence([number % count], seconds);
            prop_assert!(scene.functional(seconds) + most >= count);
        }
    }

    #[test]
    fn what_is_kept_on_disk_is_what_was_shown(steps in prop::collection::vec(step(), 0..40)) {
        let mut catalog = Catalog::new(GuardSettings::default());
        steps.iter().for_each(|step| take(&mut catalog, step, at(0)));
        (0..3).for_each(|s| catalog.view.note_health_known(&service(&format!("s{s}"))));
        catalog.settle(at(0), true);
        let text = serde_json::to_string(&CachedCatalog::of(catalog.view(), 7, None)).unwrap();
        let read: CachedCatalog = serde_json::from_str(&text).unwrap();
        let restored = read.restore(GuardSettings::default(), at(0));
        let shown = |catalog: &Catalog| -> Vec<(ServiceName, ServiceView)> {
            let all = catalog.view().services().iter();
            all.map(|(name, view)| (name.clone(), view.as_ref().clone())).collect()
        };
        type Plain = Vec<(ServiceName, Vec<(HostName, bool, Option<Health>)>)>;
        let plain = |services: Vec<(ServiceName, ServiceView)>| -> Plain {
            let of = |view: ServiceView| {
                view.instances().iter().map(|(h, i)| (h.clone(), i.leased, i.health)).collect()
            };
            services.into_iter().map(|(name, view)| (name, of(view))).collect()
        };
        prop_assert_eq!(plain(shown(&catalog)), plain(shown(&restored)));
    }
}

#[test]
fn the_hiera_file_keeps_the_shape_of_the_contract() {
    let mut records = BTreeMap::new();
    let mut add = |name: &str, on: &str, text: &str| {
        let record = ServiceRecord::read(&host(on), text.as_bytes()).unwrap();
        records.insert((service(name), host(on)), StoredRecord::new(record, true));
    };
    add("glance", "h2", r#"{"interfaces":{"eth0":["10.0.0.9","10.0.0.6"],"eth1":["fe80::6"]}}"#);
    add("glance", "h1", r#"{"interfaces":{"eth0":["fd00::5","fe80::5","10.0.0.5"],"lo":["127.0.0.1"]}}"#);
    add("glance", "h3", r#"{"interfaces":{"eth0":["fd00::8","fd00::7"]}}"#);
    add("a", "h1", r#"{"eth0":"10.0.0.5","eth1":"169.254.0.5"}"#);
    let stored: Vec<(String, String)> = records
        .iter()
        .map(|((service, host), StoredRecord { record, .. })| {
            (format!("/available_services/{service}/{host}"), record.write())
        })
        .collect();
    let view = catalog_at_once(records, []);
    let yaml = |view: &View| HieraFile::default().render(view);
    let mut found = StoredAddresses::default();
    // The entries come in pages: one service begins on the first page and ends on the second.
    for page in stored.chunks(2) {
        found.add(&mut page.iter().map(|(key, value)| (key.as_str(), value.as_bytes())));
    }
    found.sort();
    assert_eq!(found.hiera_yaml(), yaml(&view), "with and without a catalog");
    assert_eq!(
        yaml(&view),
        "services::a::eth0: [10.0.0.5]\n\
         services::glance::eth0: [10.0.0.5, 10.0.0.6, 'fd00::7']\n\
         services::glance::lo: [127.0.0.1]\n\
         services_all::a::eth0: [10.0.0.5]\n\
         services_all::glance::eth0: [10.0.0.5, 10.0.0.6, 10.0.0.9, 'fd00::5', 'fd00::7', 'fd00::8']\n\
         services_all::glance::lo: [127.0.0.1]\n"
    );
    assert_eq!(yaml(&View::default()), "{}\n");
    let guard = GuardSettings::default();
    assert_eq!(vanished_entries(&yaml(&view), &yaml(&view), &guard), []);
    // Small losses of many services are a large loss in all.
    let all = [(service("a"), 1, 1), (service("glance"), 4, 4)];
    assert_eq!(vanished_entries(&yaml(&view), "{}\n", &guard), all);
}

#[test]
fn the_window_is_a_setting() {
    let guard = GuardSettings { window: Duration::from_secs(5), ..GuardSettings::default() };
    let mut catalog = Catalog::new(guard);
    let web = service("web");
    for number in 0..3 {
        let on = host(&format!("h{number}"));
        catalog.apply(&web, &on, stored("10.0.0.1", true), at(0));
        catalog.apply(&web, &on, CatalogFact::Health(Some(Health::Passing)), at(0));
    }
    for number in 0..3 {
        catalog.apply(&web, &host(&format!("h{number}")), CatalogFact::Health(None), at(number * 6));
    }
    catalog.settle(at(20), true);
    assert_eq!(catalog.view().count(&web, Level::Functional), 0);
}

#[test]
fn records_are_counted_before_the_view_is_updated() {
    let mut catalog = Catalog::new(GuardSettings::default());
    let web = service("web");
    let mut put = |number: usize, record| {
        catalog.apply(&web, &host(&format!("h{number}")), CatalogFact::Record(record), at(0));
        (catalog.records(), catalog.view().count(&web, Level::Addressable))
    };
    for number in 0..3 {
        assert_eq!(put(number, Some(StoredRecord::new(record("10.0.0.1"), true))), (number + 1, 0));
    }
    assert_eq!(put(1, None), (2, 0));
}
