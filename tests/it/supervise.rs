//! A task of the agent that ends by a fault ends the agent, and the next start goes on.

use std::collections::BTreeSet;
use tests::etcd::Etcd;
use tests::host::Host;
use tests::{process, wait};

/// Returns the names of the agent's tasks, from the place where they are started.
fn tasks() -> BTreeSet<String> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../agent/src/lib.rs");
    let text = std::fs::read_to_string(source).expect("a source file");
    let starts = text.split("tasks.spawn(\"").skip(1);
    starts.map(|rest| rest.split('"').next().expect("a name").to_owned()).collect()
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
    host.stop();
    for task in tasks() {
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
    assert!(tasks().len() > 10, "{:?}", tasks());
    every_task_ends("task-panics");
}

#[test]
fn a_task_that_returns_ends_the_agent_and_the_next_one_goes_on() {
    every_task_ends("task-returns");
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
