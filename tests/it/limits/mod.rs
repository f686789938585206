//! Limits: how many hosts are updated at the same time.

mod failures;
mod forecast;
mod plan;
mod purposes;
mod rollback;
mod scripts;
mod stages;
mod unrecorded;
mod vanished;
mod why;
mod windows;

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use tests::etcd::Etcd;
use tests::host::Host;
use tests::recorder::Recorder;
use tests::store::Store;
use tests::wait;

fn started(names: &[&str], etcd: &Etcd) -> Vec<Host> {
    names.iter().map(|name| Host::started(name, &etcd.endpoints())).collect()
}

/// Runs the command on a host; it must exit with this code.
fn orchestrate(host: &Host, line: &str, code: i32) -> String {
    let result = host.command(&line.split(' ').collect::<Vec<_>>(), "");
    assert_eq!(result.code, code, "{line}: {result:?}");
    format!("{}{}", result.out, result.err)
}

fn set_policy(host: &Host, policy: &str) {
    host.write("policy.toml", policy);
    let path = host.path("policy.toml").display().to_string();
    orchestrate(host, &format!("policy set {path}"), 0);
}

/// Returns the largest number of hosts that were between their start and their end at the same time, from
/// a record of every change. It uses the listings alone: a start takes a host off its list.
fn most_at_once(recorder: &Recorder, store: &Store, since: i64) -> usize {
    let mut updating = BTreeSet::new();
    let mut most = 0;
    for change in recorder.up_to(store.revision()) {
        let Some(rest) = change.key.strip_prefix("/running_version/") else { continue };
        let host = rest.split('/').nth(1).expect("a host").to_owned();
        match change.value {
            Some(_) => drop(updating.remove(&host)),
            None if change.revision > since => drop(updating.insert(host)),
            None => {}
        }
        most = most.max(updating.len());
    }
    most
}

/// Waits until a host says that it waits for a limit. Returns what holds it back.
fn wait_until_held_back(ops: &Host, name: &str) -> String {
    let why = || -> Value {
        let answer = ops.command(&["why", name, "-o", "json"], "");
        serde_json::from_str(&answer.out).unwrap_or_default()
    };
    wait::until(
        &format!("{name} waits for a limit"),
        || {
            let why = why();
            let waits = why["verdict"] == "waiting" && why["reason"].as_str()?.contains("the limit of");
            waits.then(|| why["held_back_by"].as_str().map(str::to_owned))?
        },
        || why().to_string(),
    )
}

#[test]
fn no_more_hosts_are_updated_at_once_than_the_limits_allow() {
    let etcd = Etcd::single();
    let recorder = Recorder::start(&etcd);
    let store = etcd.store();
    let hosts = started(&["a1", "a2", "a3", "a4", "b1", "b2"], &etcd);
    let ops = &hosts[0];
    store.put("/current_version", "1");
    hosts.iter().for_each(|host| host.wait_for_listing(&store, "1"));
    for host in &hosts {
        orchestrate(ops, &format!("hosts add {} --role {}", host.name, &host.name.as_str()[..1]), 0);
    }
    set_policy(ops, "[[limit]]\nby = \"fleet\"\nmax = 3\n[[limit]]\nby = \"role\"\nmax = \"50%\"\n");
    // The first record is written by the command, the second by a host, because nobody else does.
    for (version, triggers) in [("2", true), ("3", false)] {
        let since = store.revision();
        if triggers {
            orchestrate(ops, &format!("trigger_update {version}"), 0);
        } else {
            store.put("/current_version", version);
        }
        hosts.iter().for_each(|host| host.wait_for_listing(&store, version));
        let most = most_at_once(&recorder, &store, since);
        assert!((2..=3).contains(&most), "version {version}: {most} hosts were updated at once");
    }
    let records = store.list("/orchestrate/rollouts/");
    assert_eq!(records.keys().filter(|key| key.ends_with("/record")).count(), 2, "{records:?}");
    let (_, record) = records.last_key_value().expect("a record");
    let record: Value = serde_json::from_str(record).expect("JSON");
    assert_eq!(record["limits"][1]["values"]["a"], 2, "half of four: {record}");
    let history = orchestrate(ops, "rollout history -o json", 0);
    let history: Value = serde_json::from_str(&history).expect("JSON");
    let [newest, before] = [&history["rollouts"][0], &history["rollouts"][1]];
    assert_eq!((&newest["version"], &before["version"]), (&json!("3"), &json!("2")), "{history}");
    assert!(before["by"].is_string() && newest["by"].is_null(), "{history}");
    assert!(["ended", "replaced"].contains(&before["outcome"].as_str().unwrap_or_default()), "{history}");
    for left in ["/orchestrate/claims/", "/orchestrate/claimed/", "/orchestrate/queue/"] {
        let gone = || store.list(left).is_empty().then_some(());
        wait::until(&format!("nothing is left below {left}"), gone, || format!("{:?}", store.list(left)));
    }
}

#[test]
fn a_failed_host_keeps_its_claim_where_one_may_go_until_a_fix_comes_or_somebody_releases_it() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let hosts = started(&["a1", "a2", "a3"], &etcd);
    let ops = &hosts[0];
    store.put("/current_version", "1");
    hosts.iter().for_each(|host| host.wait_for_listing(&store, "1"));
    set_policy(ops, "[[limit]]\nby = \"fleet\"\nmax = 1\n");
    hosts.iter().for_each(|host| host.write("code-packages-2", "1\n"));
    orchestrate(ops, "trigger_update 2", 0);
    let holder = wait::until(
        "a host fails and holds its claim",
        || {
            let failed = hosts.iter().find(|host| host.runs("packages", "2") >= 3)?;
            orchestrate(ops, "claims", 1).contains(failed.name.as_str()).then_some(failed)
        },
        || orchestrate(ops, "status", 1),
    );
    let other = hosts.iter().find(|host| host.name != holder.name).expect("another");
    let held_back = wait_until_held_back(ops, other.name.as_str());
    let expected = format!("1 of at most 1 hosts of the fleet are unavailable: {}", holder.name);
    assert!(held_back == expected || held_back.contains("before it"), "{held_back}");
    // Both others wait, in the order in which they go.
    let queue = || ops.command(&["rollout", "queue", "-o", "json"], "");
    let queued = wait::until(
        "two hosts wait in the queue",
        || {
            let answer: Value = serde_json::from_str(&queue().out).ok()?;
            (answer["queue"].as_array()?.len() == 2).then_some(answer)
        },
        || queue().out,
    );
    assert_eq!(queue().code, 1);
    let turns = [0, 1].map(|at| (queued["queue"][at]["turn"].as_u64(), queued["queue"][at]["host"].as_str()));
    assert_eq!(turns.map(|(turn, _)| turn), [Some(1), Some(2)], "{queued}");
    assert!(turns.iter().all(|(_, host)| host.is_some_and(|host| host != holder.name.as_str())), "{queued}");
    let begun = hosts.iter().filter(|host| host.begins("packages", "2") > 0).count();
    assert_eq!(begun, 1, "a version that fails everywhere stops at the first host");
    // An operator's word lets the next one go.
    orchestrate(ops, &format!("claims release {} --reason looked", holder.name), 0);
    let begun = || hosts.iter().filter(|host| host.begins("packages", "2") > 0).count();
    wait::until("the next host goes", || (begun() == 2).then_some(()), || format!("{}", begun()));
    // A fix reaches the hosts that failed without a turn, and the others one after the other.
    orchestrate(ops, "trigger_update 3", 0);
    hosts.iter().for_each(|host| host.wait_for_listing(&store, "3"));
    assert_eq!(orchestrate(ops, "claims -o json", 0).matches("\"host\"").count(), 0);
}

/// Brings hosts to version 1, and to 2 one at a time. Returns the number of the first one, whose step waits.
fn one_at_a_time(hosts: &[Host], store: &Store) -> usize {
    store.put("/current_version", "1");
    hosts.iter().for_each(|host| host.wait_for_listing(store, "1"));
    set_policy(&hosts[0], "[[limit]]\nby = \"fleet\"\nmax = 1\n");
    hosts.iter().for_each(|host| host.write("hold-packages", ""));
    store.put("/current_version", "2");
    wait::until(
        "one host begins",
        || hosts.iter().position(|host| host.begins("packages", "2") > 0),
        || hosts.iter().map(Host::describe).collect(),
    )
}

#[test]
fn a_claim_outlives_its_agent() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let mut hosts = started(&["a1", "a2"], &etcd);
    let first = one_at_a_time(&hosts, &store);
    let second = 1 - first;
    wait_until_held_back(&hosts[second], hosts[second].name.as_str());
    hosts[first].kill();
    let live = format!("/orchestrate/live/{}", hosts[first].name);
    wait::until_within(
        std::time::Duration::from_secs(60),
        "its lease ends",
        || store.get(&live).is_none().then_some(()),
        || store.get(&live).unwrap_or_default(),
    );
    assert_eq!(store.list("/orchestrate/claims/").len(), 1);
    // Whoever asks why another host waits is told.
    let why = orchestrate(&hosts[second], &format!("why {}", hosts[second].name), 0);
    let held_by = why.lines().find(|line| line.starts_with("held by: ")).unwrap_or_else(|| panic!("{why}"));
    assert!(held_by.contains(&format!("{} since 20", hosts[first].name)), "{held_by}");
    assert!(held_by.contains(", agent none"), "{held_by}");
    hosts.iter().for_each(|host| host.remove("hold-packages"));
    assert_eq!(hosts[second].begins("packages", "2"), 0, "nobody went in its place");
    hosts[first].start();
    hosts.iter().for_each(|host| host.wait_for_listing(&store, "2"));
}

/// Kills the agent of one host at every point of its updates. The times at which apply steps begin and
/// validation succeeds show whether two hosts were ever updated at once.
#[test]
fn a_host_that_is_killed_at_any_point_keeps_to_the_limit() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let mut hosts = started(&["a1", "b1"], &etcd);
    store.put("/current_version", "0");
    hosts.iter().for_each(|host| host.wait_for_listing(&store, "0"));
    set_policy(&hosts[0], "[[limit]]\nby = \"fleet\"\nmax = 1\n");
    let points: Vec<&str> = crate::crash::POINTS.into_iter().filter(|p| p.starts_with("agent")).collect();
    for (number, point) in points.iter().enumerate() {
        let version = format!("{}", number + 1);
        let marker = hosts[0].path(&format!("killed-{point}"));
        hosts[0].stop();
        hosts[0].set_environment("ORCHESTRATE_FAILPOINT", &format!("{point}:{}", marker.display()));
        hosts[0].start();
        store.put("/current_version", &version);
        wait::until(point, || marker.exists().then_some(()), || hosts[0].describe());
        wait::until("the agent is dead", || hosts[0].is_dead().then_some(()), || hosts[0].describe());
        hosts[0].unset_environment("ORCHESTRATE_FAILPOINT");
        hosts[0].start();
        hosts.iter().for_each(|host| host.wait_for_listing(&store, &version));
    }
    for version in 1..=points.len() {
        let [first, second] = [0, 1].map(|number: usize| {
            let steps = hosts[number].steps();
            let of = |phase: &str, code: Option<i32>| {
                let lines = steps.iter().filter(|line| line.version == version.to_string());
                let lines = lines.filter(|line| line.phase == phase && line.code == code);
                lines.map(|line| line.boot_centis).min().expect("it was updated")
            };
            (of("apply", None), of("validate", Some(0)))
        });
        let overlap = first.0 < second.1 && second.0 < first.1;
        assert!(!overlap, "version {version}: {first:?} and {second:?}, in hundredths of a second");
    }
    let left = || store.list("/orchestrate/claims/");
    wait::until("no claim is left", || left().is_empty().then_some(()), || format!("{:?}", left()));
}

#[test]
fn scripts_that_apply_versions_obey_the_limits() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let hosts = started(&["a1"], &etcd);
    let ops = &hosts[0];
    store.put("/current_version", "1");
    hosts[0].wait_for_listing(&store, "1");
    let scripts: BTreeMap<&str, Host> =
        ["s1", "s2"].map(|name| (name, Host::new(name, &etcd.endpoints()))).into();
    let run = |name: &str, line: &str, code: i32| orchestrate(&scripts[name], line, code);
    for name in ["s1", "s2"] {
        run(name, "local_version 1", 0);
        run(name, "update_own_info", 0);
        orchestrate(ops, &format!("hosts add {name} --role script"), 0);
    }
    set_policy(ops, "[[limit]]\nby = \"role\"\nmax = 1\nkeep_failed = false\n");
    store.put("/current_version", "2");
    hosts[0].wait_for_listing(&store, "2");
    run("s1", "pending_update", 0);
    let held = run("s2", "pending_update", 2);
    let expected = "Held back: 1 of at most 1 hosts of role script are unavailable: s1";
    assert!(held.contains(expected), "{held}");
    run("s2", "pending_update --peek", 0);
    // Cron asks again while the script works.
    run("s1", "pending_update", 0);
    // The version that it had reports nothing; the desired one is the end.
    run("s1", "update_own_info", 0);
    run("s2", "pending_update", 2);
    run("s1", "local_version 2", 0);
    run("s1", "update_own_info", 0);
    run("s1", "pending_update", 1);
    run("s2", "pending_update", 0);
    // A failure lets others go, and the script tries again.
    run("s2", "update_own_status validation 1", 0);
    assert_eq!(store.list("/orchestrate/claims/").len(), 0);
    run("s2", "pending_update", 0);
    assert_eq!(store.list("/orchestrate/claims/").len(), 1);
}

/// The sample in the manual is one that the program takes.
#[test]
fn the_policy_of_the_manual_is_valid() {
    let manual = include_str!("../../../docs/command-line.md");
    let samples: Vec<&str> = manual
        .split("```toml\n")
        .skip(1)
        .map(|block| block.split("```").next().expect("an end"))
        .filter(|sample| sample.contains("[[limit]]"))
        .collect();
    assert_eq!(samples.len(), 1);
    let host = Host::new("a1", &[]);
    host.write("policy.toml", samples[0]);
    let shown = orchestrate(&host, &format!("policy check {}", host.path("policy.toml").display()), 0);
    assert!(shown.contains("role      25%  db=1 vip=0  yes"), "{shown}");
    let reaches = |policy: &str, expected: &str| {
        host.write("reach.toml", policy);
        let shown = orchestrate(&host, &format!("policy check {}", host.path("reach.toml").display()), 0);
        assert!(shown.contains(expected), "{policy}: {shown}");
    };
    let fleet = |max: &str| format!("failure_budget = 2\n[[limit]]\nby = \"fleet\"\nmax = {max}\n");
    reaches(&fleet("6"), "everywhere, before its proof, reaches at most 8 hosts;");
    reaches(&fleet("\"5%\""), "reaches at most as many hosts as are updated at the same time, and 2 more;");
    reaches(&format!("hold = \"1h\"\n{}", fleet("6")), "before its proof or within 1h after it, reaches");
}

#[test]
fn a_policy_is_checked_before_it_is_written_and_refused_while_an_older_agent_lives() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let hosts = started(&["a1"], &etcd);
    let ops = &hosts[0];
    store.put("/current_version", "1");
    ops.wait_for_listing(&store, "1");
    orchestrate(ops, "policy show", 1);
    let check = |text: &str, expected: &str| {
        ops.write("policy.toml", text);
        let path = ops.path("policy.toml").display().to_string();
        for verb in ["check", "set"] {
            let output = orchestrate(ops, &format!("policy {verb} {path}"), 1);
            assert!(output.contains(expected), "{text}: {output}");
        }
    };
    check(
        "[[limit]]\nby = \"rack\"\nmax = 1\n",
        "policy.toml:2: limit.by: \"rack\" is not fleet, role, group or labels.NAME",
    );
    check("[[limit]]\nby = \"role\"\nmax = \"a\"\n", "\"a\" is not a percentage");
    check("[[limit]]\nby = \"role\"\n", "policy.toml:1: limit: the setting `max` is missing");
    check("limits = []\n", "unknown setting `limits`");
    check("[[limit]]\nby = \"role\"\nmax = 1\n[[limit]]\nby = \"role\"\nmax = 2\n", "two limits by role");
    check("[[limit]]\nby = \"role\"\nmax = 99999\n", "the largest is 99998");
    assert_eq!(store.get("/orchestrate/rollout_policy"), None);
    let older = r#"{"format":1,"instance":"i","machine_id":"m","boot_id":"b","driver":"agent"}"#;
    store.put("/orchestrate/live/old-1", older);
    ops.write("policy.toml", "[[limit]]\nby = \"labels.rack\"\nmax = \"25%\"\nvalues = { r1 = 0 }\n");
    let path = ops.path("policy.toml").display().to_string();
    let refused = orchestrate(ops, &format!("policy set {path}"), 3);
    assert!(refused.contains("older agents (1): old-1"), "{refused}");
    store.delete("/orchestrate/live/old-1");
    orchestrate(ops, &format!("policy set {path}"), 0);
    assert!(store.get("/orchestrate/store").expect("an identity").starts_with(r#"{"format":2,"#));
    let shown = orchestrate(ops, "policy show", 0);
    assert!(shown.contains("labels.rack  25%  r1=0"), "{shown}");
    // The limit of this host is 0, which really holds.
    orchestrate(ops, "hosts add a1 --label rack=r1", 0);
    store.put("/current_version", "2");
    assert_eq!(wait_until_held_back(ops, "a1"), "the limit of rack r1 is 0");
}
