//! `kill -9` at any point: the next start safely finishes or repeats the work (invariant I10).

use schema::names::HostName;
use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;
use tests::etcd::Etcd;
use tests::host::Host;
use tests::recorder::Recorder;
use tests::{checker, wait};

/// Copy of `agent::failpoint::ALL`; an architecture test checks that both are equal.
pub(crate) const POINTS: [&str; 12] = [
    "agent-before-journal",
    "agent-after-journal",
    "agent-before-start-transaction",
    "agent-after-start-transaction",
    "agent-before-spawn",
    "agent-after-spawn",
    "runner-before-step",
    "runner-after-step",
    "runner-after-result",
    "agent-after-result",
    "agent-after-version-file",
    "agent-after-done-transaction",
];

#[test]
fn killed_at_every_point_of_an_update_it_converges() {
    let etcd = Etcd::single();
    let recorder = Recorder::start(&etcd);
    let store = etcd.store();
    let mut host = Host::started("h1", &etcd.endpoints());
    store.put("/current_version", "0");
    host.wait_for_listing(&store, "0");
    for (number, point) in POINTS.iter().enumerate() {
        let version = format!("{}", number + 1);
        let marker = host.path(&format!("killed-{point}"));
        host.stop();
        host.set_environment("ORCHESTRATE_FAILPOINT", &format!("{point}:{}", marker.display()));
        host.start();
        store.put("/current_version", &version);
        wait::until(&format!("{point} is reached"), || marker.exists().then_some(()), || host.describe());
        if point.starts_with("agent") {
            wait::until("the agent is dead", || host.is_dead().then_some(()), || host.describe());
            host.unset_environment("ORCHESTRATE_FAILPOINT");
            host.start();
        }
        host.wait_for_listing(&store, &version);
        host.wait_for_verdict("ok");
        assert_eq!(host.read("current_version"), version, "{point}");
        assert_eq!(host.read("installed").trim(), version, "{point}");
        let begun: usize = host.begins("packages", &version);
        assert!(begun <= 2, "{point}: the step ran {begun} times");
    }
    let changes = recorder.up_to(store.revision());
    checker::check(&changes, &BTreeMap::from([(HostName::new("h1").expect("a name"), host.steps())]));
}

#[test]
fn an_agent_killed_during_a_step_takes_its_result_and_does_not_run_it_twice() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let mut host = Host::started("h1", &etcd.endpoints());
    host.write("hold-packages", "");
    store.put("/current_version", "1");
    host.wait_for_begin("packages", "1");
    host.kill();
    host.start();
    wait::until(
        "the agent is back",
        || host.status().filter(|s| !s["running_step"].is_null()),
        || host.describe(),
    );
    host.remove("hold-packages");
    host.wait_for_listing(&store, "1");
    assert_eq!(host.begins("packages", "1"), 1);
}

/// Step script that first checks whether a process of an earlier run of the same version is still
/// alive, the step itself or its daemon. It then starts such a daemon, which leaves the session and
/// the process group of the step.
const DAEMONIZES: &str = r#"
for kind in step daemon; do
    if read -r old < "$D/$kind-pid" && read -r _ _ state _ < "/proc/$old/stat" && [ "$state" != Z ]; then
        echo "$kind of $ORCHESTRATE_STEP_VERSION" >> "$D/overlaps"
    fi
done 2>/dev/null
echo $$ > "$D/step-pid"
setsid sh -c 'echo $$ > "$0/daemon-pid.new" && mv "$0/daemon-pid.new" "$0/daemon-pid" && exec sleep 1000' "$D" &
while [ "$(cat "$D/daemon-pid" 2>/dev/null)" = "$(cat "$D/daemon-seen" 2>/dev/null)" ]; do sleep 0.01; done
cp "$D/daemon-pid" "$D/daemon-seen"
echo ready > "$D/ready"
"#;

/// Kills the runner in the middle of a step, with and without the agent, repeatedly.
fn no_run_goes_on_beside_its_repetition() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let mut host = Host::started("h1", &etcd.endpoints());
    host.write("do-packages", DAEMONIZES);
    let repetitions = std::env::var("ORCHESTRATE_TEST_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(10);
    for round in 1..=repetitions {
        let version = round.to_string();
        host.write("hold-packages", "");
        host.remove("ready");
        store.put("/current_version", &version);
        let is_ready = |host: &Host| (!host.read("ready").is_empty()).then_some(());
        wait::until("the first run is at work", || is_ready(&host), || host.describe());
        let runner = wait::until("the runner", || runner_of(&host), || host.describe());
        host.remove("ready");
        let with_agent = round % 2 == 0;
        if with_agent {
            host.kill();
        }
        rustix::process::kill_process(runner, rustix::process::Signal::KILL).expect("killed");
        if with_agent {
            host.start();
        }
        wait::until("the second run is at work", || is_ready(&host), || host.describe());
        assert_eq!(host.begins("packages", &version), 2, "{}", host.describe());
        assert_eq!(host.read("overlaps"), "", "round {round}\n{}", host.describe());
        host.remove("hold-packages");
        host.wait_for_listing(&store, &version);
    }
}

#[test]
fn a_runner_killed_during_a_step_takes_the_step_with_it() {
    no_run_goes_on_beside_its_repetition();
}

#[test]
fn a_runner_killed_during_a_step_takes_the_step_with_it_where_there_are_no_control_groups() {
    let name =
        "crash::a_runner_killed_during_a_step_takes_the_step_with_it_where_there_are_no_control_groups";
    if !tests::process::in_own_network(name) {
        return;
    }
    let hidden = Command::new("mount").args(["-t", "tmpfs", "none", "/sys/fs/cgroup"]).status();
    assert!(hidden.expect("mount").success());
    no_run_goes_on_beside_its_repetition();
}

/// Returns the process id of the runner of the running step, once the runner has written it.
pub(crate) fn runner_of(host: &Host) -> Option<rustix::process::Pid> {
    let run = host.status()?["running_step"]["run_id"].as_str()?.to_owned();
    let text = std::fs::read_to_string(host.state().join("runs").join(run).join("runner.json")).ok()?;
    let trace: serde_json::Value = serde_json::from_str(&text).ok()?;
    rustix::process::Pid::from_raw(i32::try_from(trace["session"].as_i64()?).ok()?)
}

#[test]
fn a_journal_that_is_lost_or_torn_leads_to_validation_and_not_to_a_blind_apply() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let mut host = Host::started("h1", &etcd.endpoints());
    store.put("/current_version", "1");
    host.wait_for_listing(&store, "1");
    for (name, content) in [("torn", &b"orchestrate-journal 2 99 00000000\n{"[..]), ("empty", b"")] {
        host.stop();
        std::fs::write(host.state().join("journal"), content).expect("written");
        let validated = host.runs("check", "1");
        host.start();
        host.wait_for_verdict("ok");
        host.wait_for_listing(&store, "1");
        assert!(host.runs("check", "1") > validated, "{name}: validated first");
        assert_eq!(host.begins("packages", "1"), 1, "{name}: not applied again");
        assert!(host.state().join("journal.set-aside").exists(), "{name}: kept for a look");
    }
}

#[test]
fn an_older_journal_leads_to_validation_and_what_was_under_way_is_applied_again() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let mut host = Host::started("h1", &etcd.endpoints());
    store.put("/current_version", "1");
    host.wait_for_listing(&store, "1");
    host.stop();
    host.write_older_journal();
    let validated = host.runs("check", "1");
    host.start();
    host.wait_for_listing(&store, "1");
    host.wait_for_verdict("ok");
    assert!(host.runs("check", "1") > validated, "validated first");
    assert_eq!(host.begins("packages", "1"), 1, "not applied again");
    assert!(host.read("agent.log").contains("an older agent wrote it"), "{}", host.describe());
    assert!(host.journal()["store"]["lineage"].is_string(), "it knows its store");

    // The step of an update runs while the agent is replaced.
    host.write("hold-packages", "");
    store.put("/current_version", "2");
    host.wait_for_begin("packages", "2");
    host.stop();
    host.write_older_journal();
    let validated = host.runs("check", "1");
    host.start();
    let runs_it = || host.status().filter(|status| !status["running_step"].is_null());
    wait::until("it waits for the step", runs_it, || host.describe());
    let is_alone = || (host.runs("check", "1"), host.begins("packages", "2")) == (validated, 1);
    wait::stays("nothing runs beside the step", Duration::from_secs(2), is_alone, || host.describe());
    host.remove("hold-packages");
    host.wait_for_listing(&store, "2");
    assert_eq!(host.begins("packages", "2"), 2, "{}", host.describe());
    assert_eq!(host.runs("check", "1"), validated, "the version that is not whole is not validated");
}
