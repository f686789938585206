//! Update windows: hosts start at certain times of the week only.

use super::failures::describe;
use super::{orchestrate, set_policy, started};
use std::time::{Duration, SystemTime};
use tests::etcd::Etcd;
use tests::wait;

/// A policy with one window of an hour, which opens in so many minutes from now.
fn opens_in(minutes: u64) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock after 1970");
    let time = |at: u64| format!("{:02}:{:02}", at / 60 % 24, at % 60);
    let from = now.as_secs() / 60 + minutes;
    format!("[[window]]\nfrom = \"{}\"\nto = \"{}\"\nzone = \"UTC\"\n", time(from), time(from + 60))
}

#[test]
fn a_host_waits_for_its_update_window() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let hosts = started(&["a1", "a2"], &etcd);
    let [first, second] = &hosts[..] else { panic!("two hosts") };
    store.put("/current_version", "1");
    hosts.iter().for_each(|host| host.wait_for_listing(&store, "1"));
    set_policy(first, &opens_in(120));
    orchestrate(first, "trigger_update 2", 0);
    let says = |verb: &str, code: i32, text: &str| {
        let answer = || first.command(&verb.split(' ').collect::<Vec<_>>(), "");
        let is = || (answer().code == code && answer().out.contains(text)).then_some(());
        wait::until_within(Duration::from_secs(90), verb, is, || {
            format!("{}{}", answer().out, describe(&hosts))
        });
    };
    says("why a1", 0, "waits for the next update window, which opens");
    says("why a2", 0, "waits for the next update window, which opens");
    says("rollout status", 1, "no update window is open; the next one opens");
    hosts.iter().for_each(|host| host.wait_for_listing(&store, "1"));
    // A window that opens while they wait: nothing in the store changes then.
    set_policy(first, &opens_in(1));
    orchestrate(first, "trigger_update 3", 0);
    wait::until_within(
        Duration::from_secs(150),
        "both hosts update when the window is open",
        || (store.list("/running_version/3/").len() == 2).then_some(()),
        || describe(&hosts),
    );
    // A rollback does not wait for a window.
    set_policy(second, &opens_in(120));
    orchestrate(second, "rollout rollback --to 1", 0);
    hosts.iter().for_each(|host| host.wait_for_listing(&store, "1"));
}
