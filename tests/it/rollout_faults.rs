//! Rollouts of a real fleet on a cluster of three members, under faults. A recorder and a checker that
//! share no code with the programs read every revision of the store.

use super::crash::{POINTS, runner_of};
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use std::time::Duration;
use tests::etcd::Etcd;
use tests::host::Host;
use tests::laws::{self, Laws};
use tests::proxy::{Behaviour, Proxy};
use tests::recorder::Recorder;
use tests::store::Store;
use tests::{checker, wait};

const NAMES: [&str; 8] = ["a1", "a2", "a3", "a4", "b1", "b2", "b3", "b4"];
/// Every fourth host reaches the members through links that a test can break.
const LINKED: usize = 4;
const LIMIT: usize = 3;
const BUDGET: usize = 2;
const LONG: Duration = Duration::from_secs(120);

struct Fleet {
    etcd: Etcd,
    store: Store,
    links: Vec<Proxy>,
    hosts: Vec<Host>,
    ops: [Host; 2],
    version: usize,
}

impl Fleet {
    /// Starts a fleet that runs version 1, and sets a policy.
    fn new(etcd: Etcd) -> Self {
        let links: Vec<Proxy> = etcd.endpoints().iter().map(|endpoint| Proxy::start(endpoint)).collect();
        let linked: Vec<String> = links.iter().map(Proxy::endpoint).collect();
        let host = |number: usize| {
            let endpoints = if number % LINKED == LINKED - 1 { linked.clone() } else { etcd.endpoints() };
            let store = format!("endpoints = {endpoints:?}\nbackstop = \"1s\"\nlive_lease = \"5s\"");
            let mut host = Host::new(NAMES[number], &endpoints).with(&format!("[store]\n{store}\n"));
            host.start();
            host
        };
        let hosts = (0..NAMES.len()).map(host).collect();
        let ops = ["ops1", "ops2"].map(|name| Host::new(name, &etcd.endpoints()));
        let store = etcd.store();
        let mut fleet = Self { etcd, store, links, hosts, ops, version: 1 };
        fleet.store.put("/current_version", "1");
        fleet.wait_until_updated();
        for name in NAMES {
            fleet.run(&format!("hosts add {name} --role {}", &name[..1]));
        }
        fleet
    }

    fn run(&self, line: &str) -> String {
        let result = self.ops[0].command(&line.split(' ').collect::<Vec<_>>(), "");
        assert_eq!(result.code, 0, "{line}: {result:?}\n{}", self.describe());
        result.out
    }

    fn set_policy(&self, stages: &str) {
        let limits = format!(
            "failure_budget = {BUDGET}\nlost_after = \"5s\"\n[[limit]]\nby = \"fleet\"\nmax = {LIMIT}\n\
             [[limit]]\nby = \"role\"\nmax = \"50%\"\n{stages}"
        );
        self.ops[0].write("policy.toml", &limits);
        self.run(&format!("policy set {}", self.ops[0].path("policy.toml").display()));
    }

    fn trigger(&mut self) {
        self.version += 1;
        self.run(&format!("trigger_update {}", self.version));
    }

    /// Holds the apply steps of all hosts, from the next one on.
    fn hold(&self) {
        self.hosts.iter().for_each(|host| host.write("hold-packages", ""));
    }

    fn release(&self) {
        self.hosts.iter().for_each(|host| host.remove("hold-packages"));
    }

    /// The hosts on which an apply step of the present version has begun, and not ended.
    fn at_work(&self) -> Vec<usize> {
        let version = self.version.to_string();
        let is_at_work = |host: &Host| host.begins("packages", &version) > host.runs("packages", &version);
        (0..self.hosts.len()).filter(|number| is_at_work(&self.hosts[*number])).collect()
    }

    fn wait_for_work(&self, count: usize) -> Vec<usize> {
        let enough = || (self.at_work().len() >= count).then(|| self.at_work());
        wait::until_within(LONG, &format!("{count} hosts are at work"), enough, || self.describe())
    }

    /// Waits until every host is listed under the present version. An agent that died starts again.
    fn wait_until_updated(&mut self) {
        let version = self.version.to_string();
        let deadline = std::time::Instant::now() + LONG;
        let is_late = || std::time::Instant::now() > deadline;
        let store = self.etcd.store();
        let listed = || store.list(&format!("/running_version/{version}/")).len();
        let hosts = &mut self.hosts;
        let all = || {
            for host in &mut *hosts {
                if host.is_dead() {
                    host.unset_environment("ORCHESTRATE_FAILPOINT");
                    host.start();
                }
            }
            (is_late() || listed() == NAMES.len()).then_some(())
        };
        wait::until_within(2 * LONG, "the fleet is updated", all, String::new);
        assert_eq!(listed(), NAMES.len(), "not within {LONG:?}: all run {version}\n{}", self.describe());
    }

    fn describe(&self) -> String {
        let rollout = self.ops[0].command(&["rollout", "status"], "");
        let keys: Vec<String> = self
            .store
            .list("/orchestrate/")
            .into_iter()
            .filter(|(key, _)| {
                !key.starts_with("/orchestrate/events/") && !key.starts_with("/orchestrate/reports/")
            })
            .map(|(key, value)| format!("{key} {value:.200}"))
            .collect();
        let hosts: String = self.hosts.iter().map(Host::describe).collect();
        format!("{rollout:?}\n{}\n{hosts}", keys.join("\n"))
    }

    /// True if the newest rollout has this key.
    fn stands(&self, name: &str) -> bool {
        let keys = self.store.list("/orchestrate/rollouts/");
        let newest = keys.keys().filter_map(|key| key.strip_suffix("/record")).max();
        newest.is_some_and(|rollout| keys.contains_key(&format!("{rollout}/{name}")))
    }

    /// The leader dies during the canary, and most members do while the others are updated.
    fn members_die(&mut self) {
        self.hold();
        self.trigger();
        self.wait_for_work(2);
        let leader = self.etcd.leader();
        self.etcd.kill_member(leader);
        self.release();
        let opened = || self.stands("soak/0").then_some(());
        wait::until_within(LONG, "the canary is observed", opened, || self.describe());
        self.etcd.start_member(leader);
        self.hold();
        let holders = self.wait_for_work(LIMIT);
        let lost = [0, 1].map(|number| (leader + number) % 3);
        lost.iter().for_each(|member| self.etcd.kill_member(*member));
        self.release();
        let version = self.version.to_string();
        let host = &self.hosts[holders[0]];
        let ends = || (host.read("current_version") == version).then_some(());
        wait::until("what has begun goes on", ends, || host.describe());
        lost.iter().for_each(|member| self.etcd.start_member(*member));
        self.wait_until_updated();
    }

    /// Agents and runners die at the points of an update, each host at another one.
    fn processes_die(&mut self, from: usize) {
        for (number, host) in self.hosts.iter_mut().enumerate() {
            let point = POINTS[(from + number) % POINTS.len()];
            let marker = host.path(&format!("killed-{}-{point}", self.version));
            host.stop();
            host.set_environment("ORCHESTRATE_FAILPOINT", &format!("{point}:{}", marker.display()));
            host.start();
        }
        self.trigger();
        self.wait_until_updated();
    }

    /// Runners die in the middle of a step, with their agents and without.
    fn runners_die(&mut self) {
        self.hold();
        self.trigger();
        for (turn, number) in self.wait_for_work(2).into_iter().enumerate() {
            let host = &mut self.hosts[number];
            let runner = wait::until("the runner", || runner_of(host), || host.describe());
            if turn == 0 {
                host.kill();
            }
            kill_process(runner, Signal::KILL).expect("killed");
            if turn == 0 {
                host.start();
            }
        }
        self.release();
        self.wait_until_updated();
    }

    /// Links to the members let requests through and no answers, from the first start on.
    fn links_break(&mut self) {
        for link in &self.links {
            link.set_on(b"/orchestrate/progress/", Behaviour::SwallowAnswers);
        }
        self.trigger();
        let lost = || self.links.iter().any(|link| link.lost() > 0).then_some(());
        wait::until_within(LONG, "an answer is lost", lost, || self.describe());
        self.links.iter().for_each(|link| link.set(Behaviour::Pass));
        self.wait_until_updated();
    }

    /// A version that fails everywhere, triggered by two operators at once, while others change numbers,
    /// freeze, and run the rolling upgrade of the original tool. Then a version that works.
    fn operators_meet(&mut self) {
        self.version += 1;
        let version = self.version.to_string();
        let failing = format!("code-packages-{version}");
        self.hosts.iter().for_each(|host| host.write(&failing, "1\n"));
        let codes: Vec<(String, i32)> = std::thread::scope(|scope| {
            let mut lines = vec![
                (0, format!("trigger_update {version} --reason one")),
                (1, format!("trigger_update {version} --reason other")),
                (0, "rollout set --max 2".into()),
                (1, "freeze --role b --reason other".into()),
                (0, "rollout pause --reason one".into()),
            ];
            lines.extend((0..10).map(|number| (number % 2, format!("rolling_upgrade upgrade {version}"))));
            let running = lines.into_iter().map(|(number, line)| {
                let ops = &self.ops[number];
                scope.spawn(move || {
                    let code = ops.command(&line.split(' ').collect::<Vec<_>>(), "").code;
                    (line, code)
                })
            });
            let running: Vec<_> = running.collect();
            running.into_iter().map(|command| command.join().expect("no panic")).collect()
        });
        // 2: somebody else was faster; 3: there is no record yet, or the fleet is paused.
        assert!(codes.iter().all(|(_, code)| matches!(code, 0..=3)), "{codes:?}");
        // The halt stays if it is there already.
        self.run("rollout resume --pause");
        let halted = || self.stands("halt").then_some(());
        wait::until_within(LONG, "the rollout is halted", halted, || self.describe());
        self.run("unfreeze --role b --all");
        let reached = self.hosts.iter().filter(|host| host.begins("packages", &version) > 0).count();
        assert!((BUDGET..=BUDGET + LIMIT).contains(&reached), "{reached}: {}", self.describe());
        self.trigger();
        self.wait_until_updated();
    }

    /// Waits until the rollout of the present version has ended.
    fn wait_for_end(&self) {
        let ended = || self.stands("ended").then_some(());
        wait::until_within(LONG, "the rollout ends", ended, || self.describe());
    }

    /// A host vanishes in the middle of its update, is lost, and comes back.
    fn a_host_vanishes(&mut self) {
        self.hold();
        self.trigger();
        let gone = self.wait_for_work(LIMIT)[0];
        self.hosts[gone].kill();
        let lost = format!("failed/{}", self.hosts[gone].name);
        let is_lost = || self.stands(&lost).then_some(());
        wait::until_within(LONG, "it is lost", is_lost, || self.describe_without(gone));
        self.hosts[gone].start();
        self.release();
        self.wait_until_updated();
    }

    fn describe_without(&self, gone: usize) -> String {
        let others = self.hosts.iter().enumerate().filter(|(number, _)| *number != gone);
        others.map(|(_, host)| host.describe()).collect()
    }

    /// The store is full in the middle of a rollout, until space is made.
    fn the_store_is_full(&mut self, laws: &Laws) {
        self.hold();
        self.trigger();
        self.wait_for_work(LIMIT);
        let block = "x".repeat(200_000);
        let is_full = |error: &String| error.contains("space exceeded");
        let full = || self.store.try_put("/filler", block.as_bytes()).err().filter(is_full);
        wait::until_within(LONG, "the store is full", full, || self.describe());
        self.release();
        let named = || self.hosts.iter().any(|host| host.read("agent.log").contains("NOSPACE")).then_some(());
        wait::until("the alarm is named", named, || self.describe());
        self.store.delete("/filler");
        let revision = self.store.revision();
        laws.wait_for(revision);
        self.store.compact(revision);
        self.etcd.etcdctl(&["defrag"], "");
        self.etcd.etcdctl(&["alarm", "disarm"], "");
        self.wait_until_updated();
    }

    /// The store goes back to the middle of a rollout after that is over, and is accepted. Returns the
    /// recorder of the restored store, and what was checked of the one before.
    fn the_store_goes_back(&mut self, laws: Laws) -> (Laws, Value) {
        self.hold();
        self.trigger();
        self.wait_for_work(LIMIT);
        let snapshot = self.etcd.save_snapshot();
        self.release();
        self.wait_until_updated();
        self.hold();
        self.trigger();
        let holders = self.wait_for_work(LIMIT);
        let counts = laws.check(self.store.revision());
        self.etcd.restore_snapshot(&snapshot);
        self.store = self.etcd.store();
        let laws = Laws::start(&self.etcd);
        let host = &self.hosts[holders[0]];
        host.wait_for_verdict("blocked");
        self.run(&format!("store accept --version {}", self.version));
        self.release();
        let freed = || (self.ops[0].command(&["claims", "--stale"], "").code == 0).then_some(());
        wait::until_within(LONG, "no claim is stale", freed, || self.describe());
        self.run("unfreeze");
        self.wait_until_updated();
        (laws, counts)
    }
}

fn count(counts: &Value, what: &str) -> u64 {
    counts[what].as_u64().unwrap_or_default()
}

const CANARY: &str =
    "[[stage]]\nname = \"canary\"\nselect = { role = [\"a\", \"b\"] }\ncount = 1\nsoak = \"5s\"\n";

#[test]
fn the_checker_finds_every_broken_law_in_histories_made_by_hand() {
    laws::self_test();
}

/// How often each fault is repeated; the long tests set it.
fn rounds() -> usize {
    std::env::var("ORCHESTRATE_TEST_ROLLOUT_ROUNDS").map_or(0, |text| text.parse().expect("a number"))
}

#[test]
fn rollouts_keep_the_laws_while_members_processes_and_links_die() {
    let etcd = Etcd::cluster();
    let (laws, recorder) = (Laws::start(&etcd), Recorder::start(&etcd));
    let mut fleet = Fleet::new(etcd);
    fleet.set_policy(CANARY);
    fleet.members_die();
    fleet.set_policy("");
    fleet.links_break();
    fleet.processes_die(0);
    fleet.operators_meet();
    for round in 1..=rounds() {
        fleet.set_policy(if round % 2 == 0 { CANARY } else { "" });
        fleet.processes_die(round * 5);
        fleet.set_policy("");
        fleet.runners_die();
        fleet.a_host_vanishes();
        fleet.links_break();
        fleet.set_policy(CANARY);
        fleet.members_die();
        fleet.set_policy("");
        fleet.operators_meet();
    }
    fleet.wait_for_end();
    let steps = fleet.hosts.iter().map(|host| (host.name.clone(), host.steps())).collect();
    checker::check(&recorder.up_to(fleet.store.revision()), &steps);
    let counts = laws.check(fleet.store.revision());
    assert!(count(&counts, "rollouts ended") >= 1, "{counts}");
    assert!(count(&counts, "starts") >= 30 && count(&counts, "stages opened") >= 1, "{counts}");
    assert!(count(&counts, "limits of starts that were then full") >= 5, "{counts}");
    assert!(count(&counts, "starts without claims") >= 1, "a fix reaches those that failed: {counts}");
}

#[test]
fn rollouts_keep_the_laws_while_the_store_is_full_and_goes_back() {
    let etcd = Etcd::cluster_with_quota(4 * 1024 * 1024);
    let laws = Laws::start(&etcd);
    let mut fleet = Fleet::new(etcd);
    fleet.set_policy("");
    let (mut laws, before) = fleet.the_store_goes_back(laws);
    for _ in 0..rounds() {
        fleet.set_policy("");
        (laws, _) = fleet.the_store_goes_back(laws);
    }
    fleet.set_policy("");
    fleet.the_store_is_full(&laws);
    fleet.wait_for_end();
    let counts = laws.check(fleet.store.revision());
    assert!(count(&before, "starts") >= 8 && count(&counts, "starts") >= 16, "{before} {counts}");
}
