//! A fleet that only scripts drive: no agent runs anywhere.

use super::{orchestrate, set_policy};
use crate::old_clients::OldMachine;
use serde_json::Value;
use tests::etcd::Etcd;
use tests::host::Host;
use tests::wait;

/// The cron script of the original tool.
const SCRIPT: &str = "maybe-upgrade-pause.sh";

/// Runs the cron script of all machines until the rollout has ended.
fn cron_until_ended(ops: &Host, machines: &[OldMachine]) -> Value {
    let status = || ops.command(&["rollout", "status", "-o", "json"], "");
    wait::until(
        "the rollout ends",
        || {
            machines.iter().for_each(|machine| drop(machine.cron_of(SCRIPT)));
            let answer = status();
            (answer.code == 0).then(|| serde_json::from_str(&answer.out).expect("JSON"))
        },
        || status().out,
    )
}

#[test]
fn a_fleet_without_agents_has_brakes_limits_an_end_and_a_way_back() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let machines = ["web1", "web2", "db1"].map(|name| OldMachine::new(name, &etcd.endpoints()));
    let ops = Host::new("ops1", &etcd.endpoints());
    // The brakes stand before any host was seen.
    set_policy(
        &ops,
        "failure_budget = 0\n[[limit]]\nby = \"fleet\"\nmax = 2\n[[limit]]\nby = \"role\"\nmax = 1\n",
    );
    orchestrate(&ops, "freeze --reason test", 0);
    orchestrate(&ops, "trigger_update 1", 0);
    for machine in &machines {
        let held = machine.cron_of(SCRIPT);
        assert!(held.out.contains("Held back: the fleet is frozen"), "{held:?}");
    }
    assert!(store.list("/running_version/").is_empty());
    orchestrate(&ops, "unfreeze", 0);
    let ended = cron_until_ended(&ops, &machines);
    assert_eq!(ended["stages"][0]["proven_count"], 3, "{ended}");
    let roster: Value =
        serde_json::from_str(&store.get("/orchestrate/hosts/web1").expect("an entry")).expect("JSON");
    assert_eq!((&roster["role"], &roster["from_script"]), (&Value::from("web"), &Value::from(true)));
    // A limit by role counts them.
    orchestrate(&ops, "trigger_update 2", 0);
    let [first, second, _] = &machines;
    first.host.write("hold-config", "");
    std::thread::scope(|scope| {
        let working = scope.spawn(|| first.cron_of(SCRIPT));
        let begun = || first.host.read("log").contains("config 2").then_some(());
        wait::until("the configuration run begins", begun, || first.host.read("log"));
        let held = second.cron_of(SCRIPT);
        assert!(held.out.contains("Held back: 1 of at most 1 hosts of role web"), "{held:?}");
        first.host.remove("hold-config");
        assert_eq!(working.join().expect("no panic").code, 0);
    });
    let ended = cron_until_ended(&ops, &machines);
    assert_eq!(
        (&ended["version"], &ended["stages"][0]["proven_count"]),
        (&Value::from("2"), &Value::from(3))
    );
    let back = orchestrate(&ops, "rollout rollback", 0);
    assert!(back.contains("rolling back from 2 to 1"), "{back}");
    let ended = cron_until_ended(&ops, &machines);
    assert_eq!((&ended["version"], &ended["rollback"]), (&Value::from("1"), &Value::from(true)));
}
