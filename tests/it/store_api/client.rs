//! etcd's own command, run against the embedded store.

use etcd_client::proto::{PbAlarmRequest, PbAlarmResponse};
use std::process::Command;
use std::time::Duration;
use tests::process::{Running, run};
use tests::raw::Raw;
use tests::solo::Solo;
use tests::wait;

fn etcdctl(solo: &Solo, arguments: &[&str]) -> Command {
    let mut command = Command::new("etcdctl");
    // The endpoint has no scheme: see docs/solo-etcd.md.
    let endpoint = solo.endpoint();
    let endpoint = endpoint.trim_start_matches("http://");
    command.env("ETCDCTL_API", "3").args(["--endpoints", endpoint]).args(arguments);
    command
}

/// Runs etcdctl, which must succeed, and returns its output.
fn result(solo: &Solo, arguments: &[&str], input: &str) -> String {
    let output = run(&mut etcdctl(solo, arguments), input);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn the_everyday_verbs_work() {
    let solo = Solo::on_disk();
    for (arguments, input, expected) in [
        (&["put", "a", "1"][..], "", "OK"),
        (&["put", "b", "2"], "", "OK"),
        (&["get", "a"], "", "a\n1"),
        (&["get", "--prefix", "", "--keys-only"], "", "a\n\nb"),
        (&["txn"], "value(\"a\") = \"1\"\n\nput c 3\nget a\n\nput d 4\n\n", "SUCCESS\n\nOK\n\na\n1"),
        (&["del", "b", "--prev-kv"], "", "1\nb\n2"),
        (&["compaction", "4"], "", "compacted revision 4"),
        (&["alarm", "list"], "", ""),
        (&["user", "list"], "", ""),
    ] {
        assert_eq!(result(&solo, arguments, input), expected, "{arguments:?}");
    }
    assert!(result(&solo, &["endpoint", "status"], "").contains("3.4.23"));
    assert!(result(&solo, &["member", "list"], "").contains("started, solo"));
    assert!(result(&solo, &["defrag"], "").contains("Finished"));
    let output = run(&mut etcdctl(&solo, &["endpoint", "health"]), "");
    assert!(String::from_utf8_lossy(&output.stderr).contains("is healthy"), "{output:?}");
    let output = run(&mut etcdctl(&solo, &["get", "a", "--rev", "2"]), "");
    assert!(String::from_utf8_lossy(&output.stderr).contains("has been compacted"), "{output:?}");
}

#[test]
fn verbs_about_the_whole_cluster_find_its_one_member() {
    let solo = Solo::on_disk();
    assert_eq!(result(&solo, &["put", "a", "1"], ""), "OK");
    let address = solo.endpoint().replace("http://", "");
    for (verb, expected) in [
        (["endpoint", "status"], "3.4.23"),
        (["endpoint", "health"], "is healthy"),
        (["endpoint", "hashkv"], ", "),
        (["defrag", ""], "Finished"),
    ] {
        let words: Vec<&str> =
            verb.into_iter().filter(|word| !word.is_empty()).chain(["--cluster"]).collect();
        let output = run(&mut etcdctl(&solo, &words), "");
        let text =
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        assert!(
            output.status.success() && text.contains(expected) && text.contains(&address),
            "{verb:?}: {text}"
        );
    }
    let list = result(&solo, &["member", "list"], "");
    let member = list.split(',').next().expect("a member");
    let moved = result(&solo, &["move-leader", member], "");
    assert_eq!(moved, format!("Leadership transferred from {member} to {member}"));
    assert!(result(&solo, &["check", "datascale", "--load=s"], "").contains("PASS"));
    let output =
        run(&mut etcdctl(&solo, &["member", "update", member, "--peer-urls", "http://127.0.0.1:1"]), "");
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("one member, which stays as it is"),
        "{output:?}"
    );
}

#[test]
fn an_alarm_is_that_of_the_one_member_whichever_is_named() {
    let solo = Solo::in_memory();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let raw = Raw::connect(&solo.endpoint());
        let alarm = async |action, member_id, alarm| -> Vec<(u64, i32)> {
            let request = PbAlarmRequest { action, member_id, alarm };
            let answer: PbAlarmResponse = raw.call("Maintenance/Alarm", request).await.expect("an answer");
            answer.alarms.into_iter().map(|alarm| (alarm.member_id, alarm.alarm)).collect()
        };
        const GET: i32 = 0;
        const RAISE: i32 = 1;
        const DISARM: i32 = 2;
        const NO_SPACE: i32 = 1;
        const CORRUPT: i32 = 2;
        for named in [0, 77] {
            let raised = alarm(RAISE, named, NO_SPACE).await;
            assert!(raised.len() == 1 && ![0, 77].contains(&raised[0].0), "{raised:?}");
            assert_eq!(alarm(GET, 0, 0).await, raised);
            assert_eq!(alarm(DISARM, named, NO_SPACE).await, raised);
            assert_eq!(alarm(GET, 0, 0).await, []);
        }
        assert_eq!(alarm(RAISE, 0, CORRUPT).await, [], "nothing here raises it");
    });
}

#[test]
fn what_only_a_program_in_go_has_is_not_there() {
    let solo = Solo::in_memory();
    let get = |path: &str| {
        let mut command = Command::new("curl");
        let url = format!("{}{path}", solo.endpoint());
        let output = run(command.args(["-sS", "-w", "\n%{http_code}", &url]), "");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.rsplit_once('\n').expect("a code").1.to_owned()
    };
    assert_eq!(get("/metrics"), "200");
    assert_eq!(get("/debug/vars"), "404");
}

#[test]
fn a_lease_is_granted_kept_alive_listed_and_revoked() {
    let solo = Solo::in_memory();
    let granted = result(&solo, &["lease", "grant", "60"], "");
    let id = granted.split_whitespace().nth(1).expect("an id").to_owned();
    result(&solo, &["put", "--lease", &id, "k", "v"], "");
    assert!(result(&solo, &["lease", "keep-alive", "--once", &id], "").contains("keepalived with TTL(60)"));
    assert!(result(&solo, &["lease", "timetolive", &id, "--keys"], "").contains("attached keys([k])"));
    assert!(result(&solo, &["lease", "list"], "").contains(&id));
    result(&solo, &["lease", "revoke", &id], "");
    assert_eq!(result(&solo, &["get", "k"], ""), "");
}

#[test]
fn a_watch_sees_puts_and_deletions() {
    let solo = Solo::in_memory();
    let log = solo.directory().join("watch.log");
    let _watch = Running::start(&mut etcdctl(&solo, &["watch", "--prefix", "k"]), &log);
    let text = || std::fs::read_to_string(&log).unwrap_or_default();
    // The watch sees nothing before it is created, so the put is repeated until it is seen.
    let seen = || {
        result(&solo, &["put", "k1", "v"], "");
        text().contains("PUT\nk1\nv\n").then_some(())
    };
    wait::until("the put is seen", seen, text);
    result(&solo, &["del", "k1"], "");
    wait::until("the deletion is seen", || text().contains("DELETE\nk1\n").then_some(()), text);
}

#[test]
fn one_at_a_time_holds_a_lock_or_an_election() {
    let solo = Solo::in_memory();
    for (first, second) in
        [(["lock", "l"].as_slice(), ["lock", "l"].as_slice()), (&["elect", "e", "a"], &["elect", "e", "b"])]
    {
        let log = |name: &str| solo.directory().join(format!("{}-{name}.log", first[0]));
        let has = |name: &str| std::fs::read_to_string(log(name)).is_ok_and(|text| !text.is_empty());
        let mut holder = Running::start(&mut etcdctl(&solo, first), &log("first"));
        wait::until("the first has it", || has("first").then_some(()), String::new);
        let _waiter = Running::start(&mut etcdctl(&solo, second), &log("second"));
        wait::stays("the second waits", Duration::from_millis(700), || !has("second"), String::new);
        holder.signal(rustix::process::Signal::INT);
        wait::until("the second has it", || has("second").then_some(()), String::new);
        holder.kill();
    }
}
