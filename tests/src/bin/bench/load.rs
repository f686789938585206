//! Heavy work in separate processes: filling a store, many mirrors, the traffic of many agents.
//!
//! This file is long because it holds every load program of the benchmark, each of which is short.

use crate::measure::{own_cpu_seconds, percentile};
use crate::verdicts::time_verdicts;
use etcd_client::{Client, Compare, CompareOp, ConnectOptions, GetOptions, Txn, TxnOp, WatchOptions};
use etcd_session::{
    Assembly, EndpointSource, Feed, FeedEvent, FeedOptions, Gate, Mirror, MirrorOptions, Presence,
    PresenceConfig, PresenceState, ReadOnlySession, Session, SessionConfig,
};
use schema::codec;
use schema::followed::Scope;
use schema::keys::{Key, Prefix};
use schema::names::{HostName, StepName, Token, Version};
use schema::reads::Keys;
use schema::records::{Driver, LiveClaim, Report, RosterEntry, StepDuration};
use schema::snapshot::KeySnapshot;
use schema::steps::StepPhase;
use schema::time::{EpochSeconds, Span};
use settings::StoreSettings;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};

pub(crate) fn run(words: &[&str]) -> ExitCode {
    if let ["latency", address, rate, seconds] = words {
        let number = |word: &str| word.parse().expect("a number");
        answer(&crate::names::latency(address, number(rate), number(seconds)).to_string());
        return ExitCode::SUCCESS;
    }
    if let ["commands", each_second, seconds] = words {
        let number = |word: &str| word.parse().expect("a number");
        answer(&commands(number(each_second), number(seconds)).to_string());
        return ExitCode::SUCCESS;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let number = |index: usize| words[index].parse::<usize>().expect("a number");
        match words[0] {
            "fill" => fill(words[1], number(2)).await,
            "reports" => reports(words[1], number(2)).await,
            "update" => update(words[1], number(2)).await,
            "results" => results(words[1], number(2)).await,
            "propagation" => {
                let pause = Duration::from_millis(number(5) as u64);
                propagation(words[1], number(2), words[3] == "mirrors", number(4), pause).await;
            }
            "writes" => writes(words[1], words[2], number(3), number(4)).await,
            "keys" => keys(words[1], number(2)).await,
            "list" => list(words[1], number(2)).await,
            "services" => services(words[1], number(2), number(3)).await,
            "dumps" => dumps(words[1], number(2)).await,
            "assembly" => assembly(words[1], |found| format!("{} keys", found.entries.len())).await,
            "verdicts" => assembly(words[1], time_verdicts).await,
            "storm" => storm(words[1], number(2)).await,
            "heal" => heal(words[1], number(2)).await,
            other => panic!("no load {other}"),
        }
    });
    // Thousands of connections need not be closed one by one.
    ExitCode::SUCCESS
}

#[allow(clippy::print_stdout, reason = "the parent reads it")]
pub(crate) fn answer(line: &str) {
    println!("{line}");
}

async fn connect(endpoint: &str) -> Client {
    Client::connect([endpoint], Some(ConnectOptions::new())).await.expect("lazy")
}

/// Clients with one connection each write one key after the other for some seconds. Prints the
/// operations per second, the 99th percentile in milliseconds, and the number of operations.
async fn writes(endpoint: &str, kind: &str, clients: usize, seconds: usize) {
    let end = Instant::now() + Duration::from_secs(seconds as u64);
    let begin = Instant::now();
    let tasks: Vec<_> = (0..clients)
        .map(|client| {
            let (endpoint, is_put) = (endpoint.to_owned(), kind == "put");
            tokio::spawn(async move {
                let mut kv = connect(&endpoint).await.kv_client();
                let mut times = Vec::new();
                for n in 0.. {
                    let key = format!("/bench/{client}/{:04}", n % 1000);
                    let before = Instant::now();
                    if before > end {
                        break;
                    }
                    if is_put {
                        kv.put(key, [b'v'; 100], None).await.expect("written");
                    } else {
                        let absent = Compare::version(format!("{key}/never"), CompareOp::Equal, 0);
                        let operations = [
                            TxnOp::put(key.as_str(), [b'v'; 100], None),
                            TxnOp::delete(format!("{key}/a"), None),
                            TxnOp::delete(format!("{key}/b"), None),
                        ];
                        kv.txn(Txn::new().when([absent]).and_then(operations)).await.expect("written");
                    }
                    times.push(before.elapsed().as_secs_f64() * 1000.0);
                }
                times
            })
        })
        .collect();
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await.expect("a client"));
    }
    let took = begin.elapsed().as_secs_f64();
    let count = times.len() as f64;
    times.sort_by(f64::total_cmp);
    answer(&format!("{} {} {count}", count / took, percentile(&times, 99.0)));
}

/// Writes keys of 32 bytes with values of 32 bytes.
async fn keys(endpoint: &str, count: usize) {
    let client = connect(endpoint).await;
    for chunk in (0..count).collect::<Vec<_>>().chunks(100) {
        let puts = chunk.iter().map(|n| TxnOp::put(format!("/keys/{n:026}"), [b'v'; 32], None));
        client.kv_client().txn(Txn::new().and_then(puts.collect::<Vec<_>>())).await.expect("written");
    }
}

/// Lists these keys repeatedly, without values.
async fn list(endpoint: &str, times: usize) {
    let client = connect(endpoint).await;
    for _ in 0..times {
        let options = GetOptions::new().with_prefix().with_keys_only();
        let mut kv = client.kv_client().max_decoding_message_size(64 << 20);
        kv.get("/keys/", Some(options)).await.expect("listed");
    }
}

/// Writes services, each on the same hosts, in the form that hosts without agents write.
async fn services(endpoint: &str, services: usize, hosts: usize) {
    let client = connect(endpoint).await;
    let hosts: Vec<usize> = (0..hosts).collect();
    for service in 0..services {
        for chunk in hosts.chunks(100) {
            let puts = chunk.iter().map(|n| {
                let (host, ip) = (format!("h{n:05}"), format!("10.{}.{}.{}", n >> 16, n >> 8 & 255, n & 255));
                TxnOp::put(
                    format!("/available_services/s{service:03}/{host}"),
                    crate::catalog::record(&host, &ip),
                    None,
                )
            });
            client.kv_client().txn(Txn::new().and_then(puts.collect::<Vec<_>>())).await.expect("written");
        }
    }
}

/// Writes the file of the whole catalog repeatedly; prints the CPU milliseconds for each time.
async fn dumps(endpoint: &str, times: usize) {
    let entries = crate::bare::entries(&connect(endpoint).await).await;
    let directory = tempfile::tempdir().expect("a directory");
    let before = own_cpu_seconds();
    for _ in 0..times {
        crate::bare::dump(&entries, &directory.path().join("bare.yaml"));
    }
    answer(&((own_cpu_seconds() - before) * 1000.0 / times as f64).to_string());
}

/// Runs a command at an even rate; returns the CPU seconds that this process and the commands used.
fn commands(each_second: u32, seconds: u32) -> f64 {
    let begin = Instant::now();
    let before = own_cpu_seconds();
    for n in 0..each_second * seconds {
        let due = begin + Duration::from_secs(1) * n / each_second;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let run = std::process::Command::new("/bin/true").output().expect("it runs");
        assert!(run.status.success());
    }
    own_cpu_seconds() - before
}

/// Creates hosts `h000000…`, all live, in the roster and at version 1; every hundredth one failed
/// validation.
async fn fill(endpoint: &str, hosts: usize) {
    let client = connect(endpoint).await;
    let names: Vec<String> = (0..hosts).map(|n| format!("h{n:06}")).collect();
    for chunk in names.chunks(20) {
        let mut operations = Vec::new();
        for name in chunk {
            let failed = name.ends_with("00");
            let state = if failed { "failed" } else { "success" };
            let mut put = |key: String, value: &str| operations.push(TxnOp::put(key, value, None));
            put(format!("/orchestrate/hosts/{name}"), r#"{"format":1,"since":1}"#);
            put(
                format!("/orchestrate/live/{name}"),
                r#"{"format":1,"instance":"i","machine_id":"m","boot_id":"b","driver":"agent"}"#,
            );
            put(format!("/running_version/1/{name}"), "1");
            put(format!("/orchestrate/announced/{name}"), "1");
            put(
                format!("/status/validation/{state}/{name}"),
                r#"{"format":1,"at":1,"version":"1","code":0,"reason":""}"#,
            );
            put(
                format!("/status/puppet/success/{name}"),
                r#"{"format":1,"at":1,"version":"1","code":0,"reason":""}"#,
            );
        }
        client.kv_client().txn(Txn::new().and_then(operations)).await.expect("written");
    }
    client.kv_client().put("/current_version", "1", None).await.expect("written");
}

/// Writes so many results, three for each host.
async fn results(endpoint: &str, count: usize) {
    let client = connect(endpoint).await;
    let kinds = ["validation/success", "puppet/failed", "provisioned/success"];
    let keys: Vec<String> = (0..count).map(|n| format!("/status/{}/h{:06}", kinds[n % 3], n / 3)).collect();
    for chunk in keys.chunks(100) {
        let record = r#"{"format":1,"at":1,"version":"1","code":1,"reason":"it did not end in time"}"#;
        let operations: Vec<TxnOp> = chunk.iter().map(|key| TxnOp::put(key.as_str(), record, None)).collect();
        client.kv_client().txn(Txn::new().and_then(operations)).await.expect("written");
    }
    client.kv_client().put("/current_version", "1", None).await.expect("written");
}

/// Writes what hosts of [`fill`] report, about 2 KiB each.
async fn reports(endpoint: &str, hosts: usize) {
    let client = connect(endpoint).await;
    let step = |phase, name: &str, seconds| StepDuration {
        phase,
        step: StepName::new(name).expect("a name"),
        took: Span(Duration::from_secs(seconds)),
    };
    let report = report_of("1", 1, step);
    let report = report.as_str();
    let names: Vec<String> = (0..hosts).map(|n| format!("h{n:06}")).collect();
    for chunk in names.chunks(20) {
        let operations = chunk.iter().flat_map(|name| {
            let done = r#"{"format":1,"at":1,"version":"1","code":0,"reason":""}"#;
            [
                TxnOp::put(format!("/orchestrate/reports/{name}"), report, None),
                TxnOp::put(format!("/status/provisioned/success/{name}"), done, None),
            ]
        });
        let operations: Vec<TxnOp> = operations.collect();
        client.kv_client().txn(Txn::new().and_then(operations)).await.expect("written");
    }
}

/// Returns a report of about 2 KiB.
fn report_of(version: &str, at: i64, step: impl Fn(StepPhase, &str, u64) -> StepDuration) -> String {
    codec::write(&Report {
        installed: Version::new(version).ok(),
        durations: vec![step(StepPhase::Apply, "packages", 80), step(StepPhase::Validate, "http", 4)],
        log: (0..50).map(|line| format!("line {line} of the output of a step at {at}")).collect(),
        ..Report::idle(EpochSeconds(at), Token::new("w").expect("a token"))
    })
}

/// Updates hosts of [`fill`] from version 1 to 2 as they do it: each with a transaction at the start and one at the end.
async fn update(endpoint: &str, hosts: usize) {
    let client = connect(endpoint).await;
    let step = |phase, name: &str, seconds| StepDuration {
        phase,
        step: StepName::new(name).expect("a name"),
        took: Span(Duration::from_secs(seconds)),
    };
    client.kv_client().put("/current_version", "2", None).await.expect("written");
    let done = r#"{"format":1,"at":2,"version":"2","code":0,"reason":""}"#;
    for n in 0..hosts {
        let name = format!("h{n:06}");
        let at = i64::try_from(n).expect("few");
        let key = |prefix: &str| format!("{prefix}{name}");
        let start = [
            TxnOp::put(key("/orchestrate/reports/"), report_of("1", at, step), None),
            TxnOp::delete(key("/status/validation/success/"), None),
            TxnOp::delete(key("/running_version/1/"), None),
        ];
        let end = [
            TxnOp::put(key("/orchestrate/reports/"), report_of("2", at + 80, step), None),
            TxnOp::put(key("/status/validation/success/"), done, None),
            TxnOp::put(key("/running_version/2/"), "2", None),
            TxnOp::put(key("/orchestrate/announced/"), "2", None),
        ];
        for operations in [start.to_vec(), end.to_vec()] {
            client.kv_client().txn(Txn::new().and_then(operations)).await.expect("written");
        }
    }
}

/// Holds everything in the store as the observer does. Prints what is shown of it when it has all.
async fn assembly(endpoint: &str, shown: fn(&KeySnapshot) -> String) {
    let config = SessionConfig::new(EndpointSource::List(vec![endpoint.to_owned()]));
    let session = ReadOnlySession::new(config).expect("settings");
    let (sender, mut events) = mpsc::channel(256);
    let mut assembly = Assembly::new(Keys::all());
    let options = FeedOptions { by_revision: true, ..FeedOptions::default() };
    let follow = |(number, keys)| session.follow(keys, options.clone(), number, sender.clone());
    let _feeds: Vec<Feed> = (0..).zip(Keys::all()).map(follow).collect();
    let mut is_complete = false;
    while let Some((number, event)) = events.recv().await {
        assembly.take(usize::try_from(number).expect("a feed"), event);
        if assembly.advance().is_some() && !is_complete {
            is_complete = true;
            answer(&shown(assembly.snapshot()));
        }
    }
}

fn session(endpoint: &str) -> Session {
    Session::new(SessionConfig::new(EndpointSource::List(vec![endpoint.to_owned()]))).expect("settings")
}

/// Writes a key, after a pause in each round, and measures when the change reaches many watchers,
/// each with its own connection. Prints the 99th percentile and then each time, in milliseconds.
async fn propagation(endpoint: &str, watchers: usize, mirrors: bool, rounds: usize, pause: Duration) {
    let (sender, mut arrivals) = mpsc::unbounded_channel();
    let (ready_sender, mut ready) = mpsc::unbounded_channel();
    for _ in 0..watchers {
        let (sender, ready_sender) = (sender.clone(), ready_sender.clone());
        let endpoint = endpoint.to_owned();
        tokio::spawn(async move {
            if mirrors {
                let scope = Scope { watched: vec![Key::CurrentVersion], ..Scope::default() };
                let (mirror, task) = Mirror::new(session(&endpoint), scope, MirrorOptions::default());
                tokio::spawn(task);
                let mut snapshots = mirror.snapshots();
                snapshots.wait_for(|s| s.connected).await.expect("running");
                let _ = ready_sender.send(());
                let mut last = snapshots.borrow_and_update().followed.keys.revision;
                while snapshots.changed().await.is_ok() {
                    let revision = snapshots.borrow_and_update().followed.keys.revision;
                    if revision > last {
                        last = revision;
                        let _ = sender.send(Instant::now());
                    }
                }
            } else {
                let client = connect(&endpoint).await;
                let mut stream = client
                    .watch_client()
                    .watch("/current_version", Some(WatchOptions::new()))
                    .await
                    .expect("a watch");
                stream.message().await.expect("created");
                let _ = ready_sender.send(());
                while let Ok(Some(answer)) = stream.message().await {
                    if !answer.events().is_empty() {
                        let _ = sender.send(Instant::now());
                    }
                }
            }
        });
    }
    for _ in 0..watchers {
        ready.recv().await.expect("running");
    }
    let client = connect(endpoint).await;
    let mut delays = Vec::new();
    for round in 0..rounds {
        tokio::time::sleep(pause).await;
        let begin = Instant::now();
        client.kv_client().put("/current_version", format!("{round}"), None).await.expect("written");
        for _ in 0..watchers {
            let at = arrivals.recv().await.expect("running");
            delays.push(at.saturating_duration_since(begin).as_secs_f64() * 1000.0);
        }
    }
    delays.sort_by(f64::total_cmp);
    let each: Vec<String> = delays.iter().map(f64::to_string).collect();
    answer(&format!("{} {}", percentile(&delays, 99.0), each.join(" ")));
    std::io::Write::flush(&mut std::io::stdout()).expect("flushed");
}

/// The part of an agent that uses the store: it follows the target and the catalog, and holds its
/// host name.
struct StoreSide {
    mirror: Mirror,
    presence: Presence,
    _feed: Feed,
    events: mpsc::Receiver<(u64, FeedEvent)>,
    _gate: watch::Sender<Gate>,
}

impl StoreSide {
    fn start(endpoint: &str, number: usize) -> Self {
        let host = HostName::new(format!("s{number:06}")).expect("a name");
        let session = session(endpoint);
        let scope = Scope {
            watched: vec![
                Key::CurrentVersion,
                Key::Store,
                Key::Live(host.clone()),
                Key::Host(host.clone()),
                Key::Retry(host.clone()),
            ],
            polled: vec![Key::Announced(host.clone()), Key::Report(host.clone())],
            ..Scope::default()
        };
        let (mirror, task) = Mirror::new(session.clone(), scope, MirrorOptions::default());
        tokio::spawn(task);
        let claim = LiveClaim {
            instance: Token::new(format!("i{number}")).expect("a token"),
            machine_id: format!("m{number}"),
            boot_id: "b".into(),
            addresses: vec![],
            agent_version: "bench".into(),
            driver: Driver::Agent,
            store_format: 1,
        };
        let (gate_sender, gate) = watch::channel(Gate { open: true, ..Gate::default() });
        let lease = StoreSettings::default().live_lease;
        let config =
            PresenceConfig { host, former: None, claim, roster: RosterEntry::default(), resume: true, lease };
        let (presence, task) = Presence::new(session.clone(), config, gate);
        tokio::spawn(task);
        let (sink, events) = mpsc::channel(16);
        let feed = Feed::start(session, Prefix::Services, FeedOptions::default(), 0, sink);
        Self { mirror, presence, _feed: feed, events, _gate: gate_sender }
    }
}

/// Runs agents that follow the catalog and are cut off together. Prints the number of agents that
/// came back, the seconds between the first and the last of them, and the largest fraction that
/// came back within one second.
async fn heal(endpoint: &str, agents: usize) {
    let (sender, mut back) = mpsc::unbounded_channel();
    for number in 0..agents {
        let (sender, endpoint) = (sender.clone(), endpoint.to_owned());
        tokio::spawn(async move {
            let mut agent = StoreSide::start(&endpoint, number);
            let mut was_cut = false;
            while let Some((_, event)) = agent.events.recv().await {
                match event {
                    FeedEvent::Connected(false) => was_cut = true,
                    FeedEvent::Connected(true) if was_cut => {
                        // The loop continues, as in a real agent.
                        was_cut = false;
                        let _ = sender.send(Instant::now());
                    }
                    _ => {}
                }
            }
        });
    }
    let mut times = Vec::new();
    while times.len() < agents {
        let limit = Duration::from_secs(if times.is_empty() { 600 } else { 120 });
        let Ok(Some(at)) = tokio::time::timeout(limit, back.recv()).await else { break };
        times.push(at);
    }
    times.sort();
    let (Some(first), Some(last)) = (times.first(), times.last()) else { panic!("nobody came back") };
    let within_a_second = |from: &Instant| {
        times.iter().filter(|at| *at >= from && **at < *from + Duration::from_secs(1)).count()
    };
    let busiest = times.iter().map(within_a_second).max().unwrap_or(0);
    answer(&format!(
        "{} {:.1} {:.3}",
        times.len(),
        (*last - *first).as_secs_f64(),
        busiest as f64 / agents as f64
    ));
    std::io::Write::flush(&mut std::io::stdout()).expect("flushed");
}

/// Starts many agents at once. Prints the number of agents that got ready, the seconds until the
/// last and until the first of them was ready, and the number of errors that surfaced.
async fn storm(endpoint: &str, agents: usize) {
    let (sender, mut held) = mpsc::unbounded_channel();
    let begin = Instant::now();
    for number in 0..agents {
        let sender = sender.clone();
        let endpoint = endpoint.to_owned();
        tokio::spawn(async move {
            let mut agent = StoreSide::start(&endpoint, number);
            let mut snapshots = agent.mirror.snapshots();
            let mut states = agent.presence.states();
            let mut failure_count = 0;
            let ready = async {
                loop {
                    let snapshot = snapshots.borrow_and_update().clone();
                    failure_count += usize::from(snapshot.error.is_some());
                    if snapshot.connected {
                        return;
                    }
                    if snapshots.changed().await.is_err() {
                        return;
                    }
                }
            };
            ready.await;
            states.wait_for(|s| matches!(s, PresenceState::Held { .. })).await.expect("running");
            while !matches!(agent.events.recv().await.expect("running"), (_, FeedEvent::InitDone(_))) {}
            let _ = sender.send((Instant::now(), failure_count));
            std::future::pending::<()>().await;
            drop(agent);
        });
    }
    let mut times = Vec::new();
    let mut failure_count = 0;
    for _ in 0..agents {
        let limit = tokio::time::timeout(Duration::from_secs(180), held.recv()).await;
        let Ok(Some((at, failures))) = limit else { break };
        times.push((at - begin).as_secs_f64());
        failure_count += failures;
    }
    times.sort_by(f64::total_cmp);
    let there = times.len();
    answer(&format!(
        "{there} {:.2} {:.2} {failure_count}",
        times.last().copied().unwrap_or(0.0),
        times.first().copied().unwrap_or(0.0)
    ));
    std::io::Write::flush(&mut std::io::stdout()).expect("flushed");
}
