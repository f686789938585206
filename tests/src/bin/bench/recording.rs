//! The recording of a large fleet: what an update takes, and how soon a question about the past is answered.

use crate::measure::{cpu_seconds, in_turn, once, resident_mebibytes};
use crate::observer::{HOSTS, get, shown_revision, start};
use crate::processes::{load, millis, orchestrate, wait};
use crate::report::Report;
use crate::solo::Server;
use archive::recording::Directory;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Returns the length of all segments, in MiB.
fn mebibytes(recording: &Path) -> f64 {
    let directory = Directory::new(recording);
    let lengths = directory.names().expect("a recording").into_iter().map(|name| {
        let path = directory.path_of(&name);
        fs::metadata(path).expect("a segment").len()
    });
    lengths.sum::<u64>() as f64 / (1024.0 * 1024.0)
}

/// Returns the revision up to which the recording is on the disk.
fn recorded_revision(address: &str) -> i64 {
    let metrics = get(address, "/metrics").unwrap_or_default();
    let line = metrics.lines().find_map(|line| line.strip_prefix("orchestrate_observer_recorded_revision "));
    line.and_then(|number| number.parse().ok()).unwrap_or_default()
}

pub(crate) fn recording(report: &mut Report) {
    let store = Server::solo();
    load(&["fill", &store.endpoint, HOSTS]);
    load(&["reports", &store.endpoint, HOSTS]);
    let client = tests::store::Store::connect(std::slice::from_ref(&store.endpoint));
    let directories = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    let recording = directories[0].path().join("recording");
    let table = format!("[recorder]\ndirectory = {recording:?}\n");
    let (recorder, address) = start(&store, directories[0].path(), &table);
    let (bare, bare_address) = start(&store, directories[1].path(), "");
    let reached = |revision: i64| {
        let all = [shown_revision(&bare_address), shown_revision(&address), recorded_revision(&address)];
        all.iter().all(|at| *at >= revision).then_some(())
    };
    let first = client.revision();
    wait(Duration::from_secs(60), || reached(first));
    let before = (mebibytes(&recording), cpu_seconds(&recorder.0), cpu_seconds(&bare.0));
    load(&["update", &store.endpoint, HOSTS]);
    let last = client.revision();
    wait(Duration::from_secs(60), || reached(last));
    let bytes = mebibytes(&recording) - before.0;
    let (ours, without) = (cpu_seconds(&recorder.0) - before.1, cpu_seconds(&bare.0) - before.2);
    let what = format!("recording, update of {HOSTS} hosts");
    report.row(
        &format!("{what}: MiB"),
        format!("{bytes:.1} MiB"),
        format!("{:.1} MiB all keys at the start", before.0),
        bytes,
        64.0,
    );
    report.row(
        &format!("{what}: CPU of the observer, against without"),
        format!("{ours:.2} s"),
        format!("{without:.2} s without a recorder"),
        ours / without,
        2.0,
    );
    report.row(
        &format!("{what}: memory of the observer, against without"),
        format!("{:.0} MiB", resident_mebibytes(&recorder.0)),
        format!("{:.0} MiB without a recorder", resident_mebibytes(&bare.0)),
        resident_mebibytes(&recorder.0) / resident_mebibytes(&bare.0),
        1.5,
    );
    let at = last.to_string();
    let past = || {
        let mut command: Command = orchestrate("http://127.0.0.1:1", &["status"]);
        command.arg("--recording").arg(&recording).args(["--at", &at]);
        command
    };
    let present = || orchestrate(&store.endpoint, &["status"]);
    assert_eq!(once(&past).code, once(&present).code, "the same answer");
    let (ours, live) = in_turn(9, &past, &present);
    let what = format!("a question about the past, {HOSTS} hosts");
    let yardstick = format!("{:.0} ms, {:.0} MiB `status`", millis(live.wall), live.peak_mebibytes);
    report.row(
        &format!("{what}: ms"),
        format!("{:.0} ms", millis(ours.wall)),
        yardstick.clone(),
        millis(ours.wall),
        500.0,
    );
    let memory = ours.peak_mebibytes;
    report.row(&format!("{what}: peak memory, MiB"), format!("{memory:.0} MiB"), yardstick, memory, 400.0);
}
