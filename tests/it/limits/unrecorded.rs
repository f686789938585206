//! Hosts whose journal cannot be written.

use super::*;

#[test]
fn a_host_that_cannot_record_leaves_the_queue_and_keeps_its_claim_and_says_so() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let hosts = started(&["a1", "a2"], &etcd);
    let first = one_at_a_time(&hosts, &store);
    let (first, second) = (&hosts[first], &hosts[1 - first]);
    let tickets = |count: usize| {
        let found = || store.list("/orchestrate/queue/").len();
        wait::until(&format!("{count} tickets"), || (found() == count).then_some(()), || second.describe());
    };
    tickets(1);
    // Nothing can be renamed over a directory. The agent may write the journal between the two calls.
    let breaks = |host: &Host| {
        let journal = host.state().join("journal");
        let is_replaced = || {
            let _ = std::fs::remove_file(&journal);
            std::fs::create_dir(&journal).ok()
        };
        wait::until("a directory is in the place of the journal", is_replaced, || host.describe());
    };
    let heals = |host: &Host| std::fs::remove_dir(host.state().join("journal")).expect("removed");
    let wait_until_reported = |host: &Host| {
        let key = format!("/orchestrate/reports/{}", host.name);
        let reported = || store.get(&key).filter(|report| report.contains("Is a directory")).map(drop);
        wait::until("the fleet knows", reported, || host.describe());
    };
    breaks(second);
    // A validation that fails is recorded.
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
