//! A store that goes back to an earlier revision: agents and commands must not take the old state
//! for the current one. Before an operator accepts the store, no agent keeps restored leases alive,
//! and no answer about the fleet is yes; one acceptance unblocks every host.

use crate::contract::fleet::{FLEET, fill};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;
use tests::etcd::Etcd;
use tests::host::{CommandOutput, Host};
use tests::recorder::{Change, Recorder};
use tests::store::Store;
use tests::wait;

const LEASE_SECONDS: i64 = 3;
const HOSTS: [&str; 3] = ["a1", "b1", "c1"];

/// A fleet whose hosts have short leases.
struct Fleet {
    etcd: Etcd,
    hosts: Vec<Host>,
    /// Number of the last triggered version; each version is triggered once.
    version: usize,
    /// Description of the current case, for messages.
    about: String,
}

impl Fleet {
    fn new() -> Self {
        let etcd = Etcd::single();
        let hosts = HOSTS
            .iter()
            .map(|name| {
                let endpoints = etcd.endpoints();
                let settings = format!(
                    "[store]\nendpoints = {endpoints:?}\nbackstop = \"1s\"\nlive_lease = \"{LEASE_SECONDS}s\"\n"
                );
                let mut host = Host::new(name, &endpoints).with(&settings);
                host.start();
                host
            })
            .collect();
        Self { etcd, hosts, version: 0, about: String::new() }
    }

    fn store(&self) -> Store {
        self.etcd.store()
    }

    fn describe(&self) -> String {
        let hosts: Vec<String> = self.hosts.iter().map(Host::describe).collect();
        format!("{}\n{:#?}\n{}", self.about, self.store().list("/"), hosts.join("\n"))
    }

    /// Returns the version that was triggered last.
    fn current(&self) -> String {
        format!("v{}", self.version)
    }

    /// Triggers the next version and waits until every host runs and reports it.
    fn update(&mut self) {
        self.version += 1;
        let (store, version) = (self.store(), self.current());
        store.put("/current_version", &version);
        self.wait_until_settled(&version);
    }

    fn wait_until_settled(&self, version: &str) {
        let store = self.store();
        for host in &self.hosts {
            host.wait_for_listing(&store, version);
            host.wait_for_verdict("ok");
            let key = format!("/orchestrate/reports/{}", host.name);
            let result =
                || store.get(&key).filter(|report| report.contains("\"verdict\":{\"verdict\":\"ok\"}"));
            wait::until("it reports that it is ok", || result().map(drop), || self.describe());
        }
    }

    fn hosts_as_lines() -> String {
        HOSTS.join("\n")
    }

    /// Runs a command as an operator who has not run any before.
    fn ask(&self, arguments: &[&str], input: &str) -> CommandOutput {
        let empty = tempfile::tempdir().expect("a directory");
        self.hosts[0].command_in(empty.path(), arguments, input)
    }

    /// Asserts that an operator who has run commands before gets the exit code "cannot tell" for
    /// every question, from the first moment on.
    fn nobody_who_remembers_can_tell(&self, state: &Path) {
        let version = self.current();
        let hosts = Self::hosts_as_lines();
        for (question, input) in [
            (&["status"][..], ""),
            (&["verify_hosts", &version], &hosts),
            (&["check_single_version", &version], ""),
            (&["get_failures"], ""),
            (&["hosts_at_version", &version], ""),
            (&["why", "a1"], ""),
        ] {
            let result = self.hosts[0].command_in(state, question, input);
            assert_eq!(
                (result.code, result.out.as_str()),
                (2, ""),
                "{question:?}: {result:?}\n{}",
                self.describe()
            );
            assert!(result.err.contains("the store went back"), "{result:?}");
        }
    }

    /// Asserts that no answer about the fleet is yes, for any version so far.
    fn no_answer_is_yes(&self) {
        let status = self.ask(&["status"], "");
        assert_ne!(status.code, 0, "{status:?}\n{}", self.describe());
        for version in 1..=self.version {
            let verified = self.ask(&["verify_hosts", &format!("v{version}")], &Self::hosts_as_lines());
            assert_ne!(verified.code, 0, "v{version}: {verified:?}\n{}", self.describe());
        }
    }

    /// Restores a revision of this history. If `busy`, other clients write more revisions than were
    /// lost before any agent can read, so that the store's revision does not show the restore.
    fn restore(&mut self, changes: &[Change], revision: i64, busy: bool) -> Restored {
        let last = changes.last().expect("a history").revision;
        let lost = usize::try_from(last - revision).expect("it went on");
        self.etcd.rewind(changes, revision, LEASE_SECONDS, if busy { lost + 50 } else { 0 });
        let leases = changes.iter().filter(|c| c.revision <= revision && c.lease != 0).map(|c| c.lease);
        let lost_a_word = |host: &Host| {
            let own = format!("/orchestrate/reports/{}", host.name);
            changes.iter().any(|c| c.revision > revision && c.key == own)
        };
        let blocked = self.hosts.iter().filter(|host| lost_a_word(host));
        Restored { leases: leases.collect(), blocked: blocked.map(|host| host.name.to_string()).collect() }
    }

    /// Asserts the state between the return of the store and its acceptance. A host that lost no
    /// report may have no way to recognise the restore, because others have written since; its
    /// entries in the store are true.
    fn is_blocked(&self, restored: &Restored) {
        let store = self.store();
        let listed = || {
            let keys = store.list("/running_version/").into_keys();
            keys.filter(|key| restored.blocked.iter().any(|host| key.ends_with(&format!("/{host}")))).count()
        };
        wait::until("no blocked host is listed", || (listed() == 0).then_some(()), || self.describe());
        for host in self.hosts.iter().filter(|host| restored.blocked.contains(host.name.as_str())) {
            host.wait_for_verdict("blocked");
            let key = format!("/orchestrate/reports/{}", host.name);
            let blocked = || store.get(&key).filter(|report| report.contains("store_went_back")).map(drop);
            wait::until("it reports that it is blocked", blocked, || self.describe());
        }
        if restored.blocked.len() == HOSTS.len() {
            wait::until(
                "no restored lease is alive",
                || (!restored.leases.iter().any(|lease| store.has_lease(*lease))).then_some(()),
                || self.describe(),
            );
        }
        self.no_answer_is_yes();
        wait::stays(
            "no blocked host is listed",
            Duration::from_secs(1),
            || listed() == 0,
            || self.describe(),
        );
    }

    /// Waits until an operator who runs commands with this memory is told that the fleet is settled. On
    /// a busy machine the short lease of a host may end for a moment.
    fn operator_sees_it_settled(&self, state: &Path) {
        let is_settled = || (self.hosts[0].command_in(state, &["status"], "").code == 0).then_some(());
        wait::until("the fleet is settled", is_settled, || self.describe());
    }

    /// Accepts the store once; that must unblock every host.
    fn accept(&mut self) {
        let version = self.current();
        let result = self.hosts[0].command(&["store", "accept", "--version", &version], "");
        assert_eq!(result.code, 0, "{result:?}");
        self.wait_until_settled(&version);
    }
}

/// The leases that came back with a store, and the hosts that must recognise its return.
struct Restored {
    leases: BTreeSet<i64>,
    blocked: BTreeSet<String>,
}

impl Restored {
    fn nothing() -> Self {
        Self { leases: BTreeSet::new(), blocked: HOSTS.map(str::to_owned).into() }
    }
}

/// An update from one version to the next as recorded from the store: all changes up to its end,
/// and the revision at which all hosts were settled at the old version.
struct Recorded {
    changes: Vec<Change>,
    settled: i64,
    new: String,
}

impl Recorded {
    fn update(fleet: &mut Fleet) -> Self {
        let recorder = Recorder::start(&fleet.etcd);
        let settled = fleet.store().revision();
        fleet.update();
        let changes = recorder.up_to(fleet.store().revision());
        Self { changes, settled, new: fleet.current() }
    }

    fn revisions(&self, is: impl Fn(&Change) -> bool) -> Vec<i64> {
        self.changes.iter().filter(|c| c.revision > self.settled && is(c)).map(|c| c.revision).collect()
    }

    /// Returns the revision before the update and every revision of the update, except the last.
    fn every(&self) -> Vec<i64> {
        let mut every = self.revisions(|_| true);
        every.dedup();
        every.pop();
        every.insert(0, self.settled);
        every
    }

    /// Returns six of these revisions, each with the fleet in another state: all hosts settled at
    /// the old version; the new version triggered; the first host off its list; all hosts off their
    /// list; one host listed under the new version; the last report of every host missing.
    fn six(&self) -> Vec<i64> {
        // A host whose short lease expires on a busy machine is off its list before its start.
        let starts = self.revisions(|c| c.key.starts_with("/running_version/") && c.value.is_none());
        let proofs = self.revisions(|c| c.key.starts_with(&format!("/running_version/{}/", self.new)));
        let last_word = |host: &&str| {
            let key = format!("/orchestrate/reports/{host}");
            self.revisions(|c| c.key == key).pop().expect("it reported")
        };
        let triggered = self.revisions(|c| c.key == "/current_version")[0];
        vec![
            self.settled,
            triggered,
            starts.first().copied().unwrap_or(triggered),
            starts.last().copied().unwrap_or(triggered),
            proofs[0],
            HOSTS.iter().map(last_word).min().expect("hosts") - 1,
        ]
    }
}

/// Restores each of six revisions, or every revision if `ORCHESTRATE_TEST_EVERY_REVISION` is set as
/// in the long tests, each from an update of its own, and accepts the store.
fn check(busy: bool) {
    let mut fleet = Fleet::new();
    fleet.update();
    for index in 0.. {
        let recorded = Recorded::update(&mut fleet);
        let every = std::env::var_os("ORCHESTRATE_TEST_EVERY_REVISION").is_some();
        let revisions = if every { recorded.every() } else { recorded.six() };
        let Some(revision) = revisions.get(index).copied() else { return };
        fleet.about = format!("revision {revision} of {:?}, busy: {busy}", recorded.every());
        let restored = fleet.restore(&recorded.changes, revision, busy);
        fleet.is_blocked(&restored);
        fleet.accept();
    }
}

#[test]
fn a_restored_store_lists_nobody_and_one_acceptance_frees_every_host() {
    check(false);
}

#[test]
fn a_restored_store_that_others_have_written_to_since_lists_nobody_and_one_acceptance_frees_every_host() {
    check(true);
}

#[test]
fn a_wiped_store_lists_nobody_and_one_acceptance_frees_every_host() {
    let mut fleet = Fleet::new();
    fleet.update();
    fleet.etcd.wipe();
    fleet.is_blocked(&Restored::nothing());
    fleet.accept();
}

#[test]
fn an_operator_who_asked_before_is_told_at_once_that_the_store_went_back() {
    let mut fleet = Fleet::new();
    fleet.update();
    let recorded = Recorded::update(&mut fleet);
    let remembering = tempfile::tempdir().expect("a directory");
    fleet.operator_sees_it_settled(remembering.path());
    fleet.hosts.iter_mut().for_each(Host::stop);
    fleet.restore(&recorded.changes, recorded.settled, false);
    // The agents are stopped; an operator without memory of the store would see their restored
    // listings.
    fleet.nobody_who_remembers_can_tell(remembering.path());
    fleet.hosts.iter_mut().for_each(Host::start);
    fleet.accept();
    fleet.operator_sees_it_settled(remembering.path());
}

#[test]
fn a_store_that_is_accepted_before_its_hosts_have_looked_frees_them_and_so_does_a_second_acceptance() {
    let mut fleet = Fleet::new();
    fleet.update();
    let recorded = Recorded::update(&mut fleet);
    let triggered = recorded.six()[1];
    fleet.restore(&recorded.changes, triggered, false);
    fleet.accept();
    fleet.accept();
    fleet.update();
    // The store goes back again, to before both acceptances.
    let restored = fleet.restore(&recorded.changes, triggered, false);
    fleet.is_blocked(&restored);
    fleet.accept();
    fleet.update();
}

/// A question for each verb about the fleet that is more than its name. Each has an answer in the store of the test.
const QUESTIONS: [(&str, &str); 16] = [
    ("claims release", "claims release web-1 --reason x"),
    ("plan", "plan 44"),
    ("verify_hosts", "verify_hosts 43 web-1"),
    ("hosts_at_version", "hosts_at_version 43"),
    ("why", "why web-1"),
    ("logs", "logs lost-1"),
    ("services show", "services show web"),
    ("wait_for", "wait_for web"),
    ("dns", "dns web.service.consul"),
    ("values get", "values get motd"),
    ("check_single_version", "check_single_version 43"),
    ("host_data", "host_data state"),
    ("check_config", "check_config a global"),
    ("check_puppet", "check_puppet"),
    ("rolling_upgrade upgrade", "rolling_upgrade upgrade 44 --noop"),
    ("rolling_upgrade global_disable_puppet", "rolling_upgrade global_disable_puppet"),
];

/// The answer of this verb needs an object store. It is checked where all verbs are.
const NOT_ASKED: &str = "bundle";

#[test]
fn every_verb_about_the_fleet_refuses_a_store_that_went_back() {
    let mut etcd = Etcd::single();
    let recorder = Recorder::start(&etcd);
    let store = etcd.store();
    fill(&store, &FLEET);
    store.put(
        "/available_services/web/web-1",
        r#"{"format":1,"host":"web-1","addresses":["10.0.0.1"],"port":80}"#,
    );
    store.put("/orchestrate/health/web/web-1", "passing");
    store.put(
        "/orchestrate/claims/fleet/all/00001",
        r#"{"format":1,"host":"web-1","instance":"i","rollout":{"epoch":3,"revision":2},"since":1416300000}"#,
    );
    let operator = Host::new("web-1", &etcd.endpoints());
    operator.write("policy.toml", "[[limit]]\nby = \"fleet\"\nmax = 1\n");
    let policy = operator.path("policy.toml").display().to_string();
    for act in [&["policy", "set", &policy][..], &["trigger_update", "44"]] {
        let result = operator.command(act, "");
        assert_eq!(result.code, 0, "{act:?}: {result:?}");
    }
    let before = store.revision();
    let more: BTreeMap<&str, &str> = QUESTIONS.into();
    let verbs = ctl::verbs().into_iter().filter(|verb| verb.about.is_fleet() && verb.name != NOT_ASKED);
    let questions: Vec<&str> = verbs.map(|verb| more.get(verb.name).copied().unwrap_or(verb.name)).collect();
    let state = tempfile::tempdir().expect("a directory");
    let ask =
        |question: &str| operator.command_in(state.path(), &question.split(' ').collect::<Vec<_>>(), "");
    let no_answer = |question: &&&str| {
        let result = ask(question);
        !matches!(result.code, 0 | 1) || result.err.contains("error:")
    };
    let unanswered: Vec<&&str> = questions.iter().filter(no_answer).collect();
    assert!(unanswered.is_empty(), "give these verbs a question that this store answers: {unanswered:?}");
    let last = store.put("/elsewhere", "later");
    assert_eq!(ask("hosts").code, 0);
    etcd.rewind(&recorder.up_to(last), before, LEASE_SECONDS, 0);
    let is_refused = |result: &CommandOutput| result.err.contains("the store went back");
    let wrong: Vec<(&str, CommandOutput)> = questions
        .into_iter()
        .map(|question| (question, ask(question)))
        .filter(|(_, result)| result.code != 2 || !result.out.is_empty() || !is_refused(result))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
