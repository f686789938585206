//! Hosts whose journal cannot be written.

use super::*;

#[test]
fn a_host_that_cannot_record_leaves_the_queue_and_keeps_its_claim_and_says_so() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let hosts = started(&["a1", "a2"], &etcd);
    store.put("/current_version", "1");
    hosts.iter().for_each(|host| host.wait_for_listing(&store, "1"));
    set_policy(&hosts[0], "[[limit]]\nby = \"fleet\"\nmax = 1\n");
    hosts.iter().for_each(|host| host.write("hold-packages", ""));
    store.put("/current_version", "2");
    let first = wait::until(
        "one host begins",
        || hosts.iter().find(|host| host.begins("packages", "2") > 0),
        || hosts.iter().map(Host::describe).collect(),
    );
    let second = hosts.iter().find(|host| host.name != first.name).expect("another");
    let tickets = |count: usize| {
        let found = || store.list("/orchestrate/queue/").len();
        wait::until(&format!("{count} tickets"), || (found() == count).then_some(()), || second.describe());
    };
    tickets(1);
    // Nothing can be renamed over a directory.
    let breaks = |host: &Host| {
        std::fs::remove_file(host.state().join("journal")).expect("removed");
        std::fs::create_dir(host.state().join("journal")).expect("made");
    };
    let heals = |host: &Host| std::fs::remove_dir(host.state().join("journal")).expect("removed");
    let wait_until_reported = |host: &Host| {
        let key = format!("/orchestrate/reports/{}", host.name);
        let reported = || store.get(&key).filter(|report| report.contains("Is a directory")).map(drop);
        wait::until("the fleet knows", reported, || host.describe());
    };
    breaks(second);
    // Another attempt to write it is made when something is to be recorded.
    second.write("do-check", "exit 1\n");
    wait_until_reported(second);
    tickets(0);
    heals(second);
    second.remove("do-check");
    tickets(1);
    hosts.iter().for_each(|host| host.write("hold-check", ""));
    first.remove("hold-packages");
    first.wait_for_begin("check", "2");
    breaks(first);
    first.remove("hold-check");
    wait_until_reported(first);
    assert_eq!(store.list("/orchestrate/claims/").len(), 1);
    assert_eq!(store.get(&format!("/running_version/2/{}", first.name)), None);
    heals(first);
    first.wait_for_listing(&store, "2");
    ["hold-packages", "hold-check"].into_iter().for_each(|name| second.remove(name));
    second.wait_for_listing(&store, "2");
}
