//! A task of the agent that ends by a fault ends the agent, and the next start goes on.

use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use tests::etcd::Etcd;
use tests::host::Host;
use tests::{process, wait};

/// Returns the tasks of the running agent, as `/status` lists them.
fn tasks(host: &Host) -> Vec<Value> {
    let status = host.status().expect("an answer");
    status["tasks"].as_array().expect("tasks").clone()
}

/// Returns the names of the supervised tasks. The loop of the host is the supervisor.
fn supervised(host: &Host) -> BTreeSet<String> {
    let names = tasks(host).iter().map(|task| task["name"].as_str().expect("a name").to_owned()).collect();
    let supervised: BTreeSet<String> = names;
    assert!(supervised.len() > 10 && supervised.contains("host"), "{supervised:?}");
    supervised.into_iter().filter(|name| name != "host").collect()
}

/// Ends one task, then checks that the agent ends with its own exit code and is not ready any more.
fn end_task(host: &mut Host, kind: &str, task: &str) {
    let trigger = host.path(&format!("{kind}-{task}"));
    host.set_environment("ORCHESTRATE_FAILPOINT", &format!("{kind}:{task}:{}", trigger.display()));
    host.start();
    host.wait_for_verdict("ok");
    let ready = || host.http_get("/ready").filter(|(code, _)| *code == 200);
    wait::until("it is ready", ready, || host.describe());
    std::fs::write(&trigger, "").expect("written");
    let pid = host.pid();
    wait::until("the agent ends", || (!process::lives(pid)).then_some(()), || host.describe());
    assert_eq!(host.ended(), Some(Some(70)), "{kind} {task}");
    assert_eq!(host.http_get("/ready"), None, "{kind} {task}");
    let log = host.read("agent.log");
    let fault = if kind == "task-panics" { ": it panicked" } else { "" };
    assert!(log.contains(&format!("the task {task} has ended{fault}")), "{log}");
}

fn every_task_ends(kind: &str) {
    let etcd = Etcd::single();
    let store = etcd.store();
    let mut host = Host::started("h1", &etcd.endpoints());
    host.write_switched_service("web", 80);
    host.write("web-works", "");
    store.put("/current_version", "1");
    host.wait_for_listing(&store, "1");
    let tasks = supervised(&host);
    host.stop();
    for task in tasks {
        end_task(&mut host, kind, &task);
    }
    host.unset_environment("ORCHESTRATE_FAILPOINT");
    host.start();
    store.put("/current_version", "2");
    host.wait_for_listing(&store, "2");
    host.wait_for_name(&["web.service.consul"], &["127.0.0.1"]);
    assert_eq!((host.begins("packages", "1"), host.begins("packages", "2")), (1, 1), "{}", host.describe());
}

#[test]
fn a_task_that_panics_ends_the_agent_and_the_next_one_goes_on() {
    every_task_ends("task-panics");
}

#[test]
fn a_task_that_returns_ends_the_agent_and_the_next_one_goes_on() {
    every_task_ends("task-returns");
}

#[test]
fn the_status_says_when_and_why_each_loop_ran_last() {
    let etcd = Etcd::single();
    let host = Host::started("h1", &etcd.endpoints());
    etcd.store().put("/current_version", "1");
    host.wait_for_listing(&etcd.store(), "1");
    for task in tasks(&host) {
        // A server or a connection has no passes.
        let is_loop = !task["passes"].is_null();
        let name = task["name"].as_str().expect("a name");
        let others = ["mirror", "presence", "store-version", "dns", "http", "socket", "signals"];
        assert_eq!(is_loop, !others.contains(&name), "{task}");
        if is_loop {
            assert!(task["last_pass"].as_str().is_some_and(|at| at.ends_with('Z')), "{task}");
            assert!(task["last_reason"].is_string(), "{task}");
        }
    }
    let follows_settings = || {
        host.signal(Signal::HUP);
        tasks(&host).into_iter().find(|task| task["name"] == "files" && task["last_reason"] == "settings")
    };
    wait::until("the files follow the settings", follows_settings, || host.describe());
}

/// The probe of a need, the run of a check and the renderer of a file work in tasks of their own.
#[test]
fn a_child_of_a_task_that_panics_ends_the_agent() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let host = Host::new("h1", &etcd.endpoints());
    host.write("list.j2", "{{ services() | length }}");
    let settings = format!(
        "[[template]]\nsource = {:?}\ntarget = {:?}\n\
         [[requires]]\nservice = \"web\"\nphase = \"converge\"\nprobe = [\"/bin/true\"]\n",
        host.path("list.j2"),
        host.path("list")
    );
    let mut host = host.with(&settings);
    host.write_switched_service("web", 80);
    host.write("web-works", "");
    store.put("/current_version", "1");
    for (child, task) in [("check", "checks"), ("probe", "needs"), ("renderer", "templates")] {
        let trigger = host.path(child);
        host.set_environment("ORCHESTRATE_FAILPOINT", &format!("task-panics:{child}:{}", trigger.display()));
        host.start();
        host.wait_for_verdict("ok");
        std::fs::write(&trigger, "").expect("written");
        let pid = host.pid();
        wait::until("the agent ends", || (!process::lives(pid)).then_some(()), || host.describe());
        assert_eq!(host.ended(), Some(Some(70)), "{child}");
        let log = host.read("agent.log");
        assert!(log.contains(&format!("the task {task} has ended: it panicked")), "{child}: {log}");
    }
    host.unset_environment("ORCHESTRATE_FAILPOINT");
    host.start();
    store.put("/current_version", "2");
    host.wait_for_listing(&store, "2");
}
