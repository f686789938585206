//! Bundles of failures: what packing costs an agent, and whether an object store delays a host.

use crate::measure::percentile;
use crate::processes::{Agent, Etcd, Setup, millis, wait};
use crate::report::Report;
use std::path::Path;
use std::time::{Duration, Instant};
use tests::object_store::{BUCKET, Behaviour, KEY_ID, ObjectServer, SECRET};
use tests::store::Store;

/// The identity of the store, without which no attempt belongs to a rollout.
const LINEAGE: &str = r#"{"format":1,"lineage":"abc","epoch":1}"#;
/// Rounds for each behaviour of the object store.
const ROUNDS: usize = 7;
/// How long anything may take here.
const LIMIT: Duration = Duration::from_secs(60);

/// Four steps that print 4 MiB each at version 2, the last of which fails then.
fn steps(directory: &Path, lines: usize) -> String {
    let script = directory.join("print");
    let text = format!(
        "#!/bin/sh\n[ \"$ORCHESTRATE_STEP_VERSION\" = 2 ] || exit 0\n\
         yes 'a line of a step that prints a lot, and says little' | head -n {lines}\n[ $1 != 4 ] || exit 3\n"
    );
    std::fs::write(&script, text).expect("written");
    let step =
        |n: usize| format!("[[apply]]\nname = \"s{n}\"\ncommand = [\"/bin/sh\", {script:?}, \"{n}\"]\n");
    (1..=4).map(step).collect()
}

/// Returns the peak of the resident memory since it was last reset, in MiB, and resets it.
fn take_peak(agent: &Agent) -> f64 {
    let process = agent.child.id();
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("the agent lives");
    // 5 resets the peak; see proc_pid_clear_refs(5).
    std::fs::write(format!("/proc/{process}/clear_refs"), "5").expect("reset");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    line.trim().trim_end_matches(" kB").parse::<f64>().expect("kB") / 1024.0
}

fn is_failed(store: &Store, host: &str) -> Option<()> {
    let report = store.get(&format!("/orchestrate/reports/{host}"))?;
    report.contains("\"verdict\":\"failed\"").then_some(())
}

/// True if the host is listed and has reported so.
fn is_listed(store: &Store, host: &str) -> Option<()> {
    let listed = store.get(&format!("/running_version/1/{host}")).is_some();
    (listed && is_failed(store, host).is_none()).then_some(())
}

/// What an agent needs more while it packs the whole output of its steps, against one that packs nothing.
fn memory(report: &mut Report) {
    let etcd = Etcd::start();
    let store = Store::connect(std::slice::from_ref(&etcd.endpoint));
    store.put("/orchestrate/store", LINEAGE);
    store.put("/current_version", "1");
    let objects = tempfile::tempdir().expect("a directory");
    let bundles = format!("[bundles]\nto = \"file://{}\"\nspread = \"1s\"\n", objects.path().display());
    let [with, without] = [("with", bundles.as_str()), ("without", "")].map(|(name, more)| {
        // A line has 52 bytes, so that each step prints 4 MiB.
        let settings = |directory: &Path| format!("{}{more}", steps(directory, 80_660));
        Agent::start(name, &etcd.endpoint, &Setup { settings: Some(&settings), ..Setup::default() })
    });
    wait(LIMIT, || is_listed(&store, "with").and(is_listed(&store, "without")));
    let idle = [take_peak(&with), take_peak(&without)];
    store.put("/current_version", "2");
    let is_uploaded = || std::fs::read_dir(objects.path().join("with")).ok()?.next().map(|_| ());
    wait(LIMIT, || is_failed(&store, "with").and(is_failed(&store, "without")).and(is_uploaded()));
    let [ours, bare] = [take_peak(&with) - idle[0], take_peak(&without) - idle[1]];
    report.row(
        "agent, 16 MiB packed: peak memory above that of its start, MiB",
        format!("{ours:.1} MiB"),
        format!("{bare:.1} MiB without bundles"),
        ours - bare,
        32.0,
    );
}

/// How long a host takes to fail and to reach the next version, with an object store that behaves in some way, against a host
/// beside it that has none.
fn delays(report: &mut Report) {
    let etcd = Etcd::start();
    let store = Store::connect(std::slice::from_ref(&etcd.endpoint));
    store.put("/orchestrate/store", LINEAGE);
    store.put("/current_version", "1");
    let server = ObjectServer::start();
    let key = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(key.path(), format!("{KEY_ID}\n{SECRET}\n")).expect("written");
    let bundles = format!(
        "[bundles]\nto = \"s3://{BUCKET}/prod\"\nendpoint = {:?}\ncredentials = {:?}\nspread = \"0s\"\n",
        server.endpoint(),
        key.path()
    );
    let hosts = [("with", bundles.as_str()), ("without", "")].map(|(name, more)| {
        let settings = |directory: &Path| format!("{}{more}", steps(directory, 100));
        Agent::start(name, &etcd.endpoint, &Setup { settings: Some(&settings), ..Setup::default() })
    });
    wait(LIMIT, || is_listed(&store, "with").and(is_listed(&store, "without")));
    for (behaviour, words) in [
        (Behaviour::Serve, "that serves"),
        (Behaviour::Slow(Duration::from_secs(2)), "that is slow"),
        (Behaviour::Refuse, "that refuses"),
        (Behaviour::Unavailable, "that is unavailable"),
        (Behaviour::Full, "that is full"),
        (Behaviour::Hang, "that hangs"),
    ] {
        server.behave(behaviour);
        let mut delays = [const { Vec::new() }; 2];
        for _ in 0..ROUNDS {
            round(&store, &mut delays);
        }
        let [ours, bare] = delays.map(|mut delays| {
            delays.sort_by(f64::total_cmp);
            percentile(&delays, 50.0)
        });
        report.row(
            &format!("a failure and the next version, beside an object store {words}"),
            format!("{ours:.0} ms"),
            format!("{bare:.0} ms without bundles"),
            ours / bare,
            1.2,
        );
    }
    drop(hosts);
}

/// Measures both hosts in one failure and one success.
fn round(store: &Store, delays: &mut [Vec<f64>; 2]) {
    let mut taken = [0.0; 2];
    for (version, is_there) in [("2", is_failed as fn(&Store, &str) -> Option<()>), ("1", is_listed)] {
        let begin = Instant::now();
        store.put("/current_version", version);
        let mut waits = [true; 2];
        wait(LIMIT, || {
            for (at, host) in ["with", "without"].into_iter().enumerate() {
                if waits[at] && is_there(store, host).is_some() {
                    waits[at] = false;
                    taken[at] += millis(begin.elapsed());
                }
            }
            (waits == [false; 2]).then_some(())
        });
    }
    delays.iter_mut().zip(taken).for_each(|(delays, taken)| delays.push(taken));
}

pub(crate) fn bundles(report: &mut Report) {
    memory(report);
    delays(report);
}
