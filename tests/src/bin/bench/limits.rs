//! Measurements of limits: what they cost beyond an update of all at once, how fast hosts follow each other, and
//! how soon the next host starts.

use crate::fleet::{Fleet, Updated};
use crate::measure::percentile;
use crate::processes::{Etcd, millis, wait};
use crate::report::Report;
use crate::rollout::AT_ONCE;
use etcd_client::{Client, Compare, CompareOp, EventType, Txn, TxnOp, WatchOptions};
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};
use tests::store::Store;
use tokio::runtime::Runtime;

/// One host at a time, of a fleet whose hosts follow each other.
const ONE: &str = "[[limit]]\nby = \"fleet\"\nmax = 1\n";
/// Two limits count each host.
const ROLES_AND_RACKS: &str = "[[limit]]\nby = \"role\"\nmax = 2\n[[limit]]\nby = \"labels.rack\"\nmax = 1\n";
const ROLES: usize = 20;
const RACKS: usize = 50;
/// Number of hosts that follow each other.
const FOLLOWERS: usize = 200;
/// The claim of the limit of one host.
const HELD: &str = "/orchestrate/claims/fleet/all/00000";
/// Number of transactions and deliveries that are measured beside them.
const ROUNDS: usize = 300;

pub(crate) fn limited(report: &mut Report) {
    let of_racks =
        |n: usize| format!("role = \"r{}\"\nlabels = {{ rack = \"k{}\" }}\n", n % ROLES, n / ROLES);
    let nothing = |_: usize| String::new();
    type Kind<'a> = (usize, &'a str, &'a str, &'a dyn Fn(usize) -> String);
    let kinds: [Kind; 3] = [
        (100, "10 at a time", AT_ONCE, &nothing),
        (1000, "10 at a time", AT_ONCE, &nothing),
        (ROLES * RACKS, "20 roles, 50 racks", ROLES_AND_RACKS, &of_racks),
    ];
    for (hosts, how, policy, top) in kinds {
        let free = Fleet::start(hosts, top).update(None);
        let mut fleet = Fleet::start(hosts, top);
        let Updated { operations, events, seconds } = fleet.update(Some(policy));
        let what = format!("update of {hosts}, {how}");
        report.row(
            &format!("{what}: more store operations per host"),
            format!("{operations:.1}"),
            format!("{:.1} without a limit", free.operations),
            operations - free.operations,
            10.0,
        );
        report.row(
            &format!("{what}: more watch events per host"),
            format!("{events:.1}"),
            format!("{:.1} without a limit", free.events),
            events - free.events,
            12.0,
        );
        let each_second = hosts as f64 / seconds;
        report.row(
            &format!("{what}: hosts per second without a limit, against with it"),
            format!("{each_second:.0} hosts/s"),
            format!("{:.0} hosts/s without a limit", hosts as f64 / free.seconds),
            seconds / free.seconds,
            2.0,
        );
        // The claims are measured when the machine has nothing else to do.
        let claims = 1.0 / mean(&claim_seconds(&fleet.etcd));
        report.row(
            &format!("{what}: half of the claims per second that one client makes, against hosts per second"),
            format!("{each_second:.0} hosts/s"),
            format!("{claims:.0} claims/s one after the other"),
            claims / 2.0 / each_second,
            1.0,
        );
    }
    follow_each_other(report);
}

/// Measures how soon after a release the next host has done its first step.
fn follow_each_other(report: &mut Report) {
    let mut fleet = Fleet::start(FOLLOWERS, &|_| String::new());
    let runtime = Runtime::new().expect("a runtime");
    let (sender, receiver) = mpsc::channel();
    let endpoint = fleet.etcd.endpoint.clone();
    runtime.spawn(async move { watch_claims(&endpoint, &sender).await });
    let endpoint = fleet.etcd.endpoint.clone();
    let held = std::thread::spawn(move || hold_until_all_wait(&endpoint));
    fleet.update(Some(ONE));
    held.join().expect("it was released");
    let mut released: Option<SystemTime> = None;
    let mut delays = Vec::new();
    for (at, holder) in receiver.try_iter() {
        match (holder, released) {
            (None, _) => released = Some(at),
            (Some(host), Some(release)) => delays.extend(fleet.first_step_of(&host).duration_since(release)),
            (Some(_), None) => {}
        }
    }
    let mut delays: Vec<f64> = delays.into_iter().map(millis).collect();
    delays.sort_by(f64::total_cmp);
    let mut bare = deliveries(&fleet.etcd);
    bare.sort_by(f64::total_cmp);
    let (ours, bare) = (percentile(&delays, 99.0), percentile(&bare, 99.0));
    report.row(
        "one at a time: from a release to the next host's first step, p99",
        format!("{ours:.1} ms; median {:.1} ms", percentile(&delays, 50.0)),
        format!("{bare:.1} ms put to watch and a transaction"),
        ours / bare,
        2.5,
    );
}

/// Holds the only claim in the name of a host without an agent until all others wait, so that what is measured is how
/// they follow each other and not how they queue.
fn hold_until_all_wait(endpoint: &str) {
    let store = Store::connect(&[endpoint.to_owned()]);
    let claim = r#"{"host":"held","instance":"held","rollout":{"epoch":0,"revision":1},"since":1}"#;
    store.put(HELD, claim);
    wait(Duration::from_secs(300), || (store.list("/orchestrate/queue/").len() == FOLLOWERS).then_some(()));
    // What the last ones that came have to do is over then.
    std::thread::sleep(Duration::from_secs(2));
    store.delete(HELD);
}

/// Sends when each claim was released, or taken and by which host.
async fn watch_claims(endpoint: &str, sender: &mpsc::Sender<(SystemTime, Option<String>)>) {
    let mut client = Client::connect([endpoint], None).await.expect("a client");
    let options = WatchOptions::new().with_prefix();
    let mut stream = client.watch("/orchestrate/claims/", Some(options)).await.expect("a watch");
    while let Ok(Some(answer)) = stream.message().await {
        for event in answer.events() {
            let value = event.kv().and_then(|kv| serde_json::from_slice(kv.value()).ok());
            let value: Option<serde_json::Value> = value.filter(|_| event.event_type() == EventType::Put);
            let holder = value.and_then(|claim| Some(claim["host"].as_str()?.to_owned()));
            let _ = sender.send((SystemTime::now(), holder));
        }
    }
}

/// Returns how long transactions take that make a key which does not exist, one after the other, in seconds.
fn claim_seconds(etcd: &Etcd) -> Vec<f64> {
    let store = Store::connect(std::slice::from_ref(&etcd.endpoint));
    let (runtime, mut client) = store.parts();
    let mut claim = |round: usize| {
        let key = format!("/bench/claim/{round}");
        let absent = Compare::create_revision(key.as_str(), CompareOp::Equal, 0);
        let txn = Txn::new().when([absent]).and_then([TxnOp::put(key, "a claim", None)]);
        let begin = Instant::now();
        runtime.block_on(client.txn(txn)).expect("applied");
        begin.elapsed().as_secs_f64()
    };
    (0..ROUNDS).map(&mut claim).collect()
}

/// Returns how long a put takes until a watch has it, and a transaction after it, in milliseconds.
fn deliveries(etcd: &Etcd) -> Vec<f64> {
    let store = Store::connect(std::slice::from_ref(&etcd.endpoint));
    let (runtime, mut client) = store.parts();
    let mut stream = runtime.block_on(client.watch("/bench/put", None)).expect("a watch");
    let mut deliver = |round: usize| {
        let begin = Instant::now();
        runtime.block_on(client.put("/bench/put", round.to_string(), None)).expect("written");
        while runtime.block_on(stream.message()).expect("an answer").is_none_or(|a| a.events().is_empty()) {}
        let txn = Txn::new().and_then([TxnOp::put("/bench/then", "x", None)]);
        runtime.block_on(client.txn(txn)).expect("applied");
        millis(begin.elapsed())
    };
    (0..ROUNDS).map(&mut deliver).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}
