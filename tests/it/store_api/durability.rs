//! The embedded store as a process: acknowledged writes survive every fault.

use etcd_client::proto::{
    PbAlarmRequest, PbAlarmResponse, PbDeleteRequest, PbDeleteResponse, PbPutRequest, PbPutResponse,
    PbRangeRequest, PbRangeResponse,
};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tests::etcd::Etcd;
use tests::process::{Running, binary, in_own_network, run};
use tests::raw::{Raw, revision};
use tests::solo::Solo;
use tests::wait;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

async fn put(raw: &Raw, key: String, value: Vec<u8>) -> Result<i64, (i32, String)> {
    let request = PbPutRequest { key: key.into_bytes(), value, ..PbPutRequest::default() };
    let answer: PbPutResponse = raw.call("KV/Put", request).await?;
    Ok(revision(answer.header.as_ref()))
}

async fn count(raw: &Raw) -> PbRangeResponse {
    let request =
        PbRangeRequest { key: vec![0], range_end: vec![0], count_only: true, ..PbRangeRequest::default() };
    raw.call("KV/Range", request).await.expect("an answer")
}

#[test]
fn killed_again_and_again_it_keeps_what_it_acknowledged() {
    let mut solo = Solo::on_disk();
    let runtime = runtime();
    let (mut written, mut last_revision, mut last_term) = (0u64, 0, 0);
    for round in 0..8 {
        let endpoint = solo.endpoint();
        let acknowledged = Arc::new(AtomicU64::new(0));
        let counter = acknowledged.clone();
        let writer = runtime.spawn(async move {
            let raw = Raw::connect(&endpoint);
            for n in 0.. {
                if put(&raw, format!("r{round}/{n:06}"), vec![b'v'; 300]).await.is_err() {
                    return;
                }
                counter.fetch_add(1, Ordering::SeqCst);
            }
        });
        let enough = 20 + round * 37;
        let busy = || (acknowledged.load(Ordering::SeqCst) >= enough).then_some(());
        wait::until("it has written", busy, String::new);
        solo.kill();
        runtime.block_on(writer).expect("the writer ended");
        written += acknowledged.load(Ordering::SeqCst);
        solo.start();
        let found = runtime.block_on(async { count(&Raw::connect(&solo.endpoint())).await });
        let header = found.header.expect("a header");
        // The put that was in progress may have been stored as well.
        let found = u64::try_from(found.count).expect("a count");
        assert!(found == written || found == written + 1, "{found} of {written} in round {round}");
        written = found;
        assert!(header.revision > last_revision && header.raft_term > last_term, "{header:?}");
        (last_revision, last_term) = (header.revision, header.raft_term);
    }
}

#[test]
fn a_second_process_is_refused() {
    let solo = Solo::on_disk();
    let mut second = Command::new(binary("solo-etcd"));
    let output = run(second.args(["--listen", "127.0.0.1:0", "--data-dir"]).arg(solo.data()), "");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("another process uses the store"), "{output:?}");
}

#[test]
fn the_directory_of_an_etcd_is_refused_with_the_way_out_and_left_as_it_is() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::create_dir_all(directory.path().join("member/snap")).expect("made");
    let serve = || {
        let mut command = Command::new(binary("solo-etcd"));
        run(command.args(["--listen", "127.0.0.1:0", "--data-dir"]).arg(directory.path()), "")
    };
    let output = serve();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr);
    let path = directory.path().display().to_string();
    let parts = [path.as_str(), "the data of an etcd", "`member`", "make-mirror"];
    assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    let names: Vec<_> =
        std::fs::read_dir(&directory).expect("listed").flatten().map(|e| e.file_name()).collect();
    assert_eq!(names, ["member"], "nothing was written there");
    // A data directory that also contains a directory `member`, as an earlier version allowed, is
    // served.
    let mut beside = Solo::on_disk_in(directory.path());
    beside.kill();
    std::fs::create_dir(beside.data().join("member")).expect("made");
    beside.start();
}

#[test]
fn the_keys_of_an_etcd_are_taken_over_as_the_manual_says() {
    let (etcd, solo) = (Etcd::single_real(), Solo::on_disk());
    etcd.etcdctl(&["put", "/current_version", "7"], "");
    let address = solo.endpoint().replace("http://", "");
    let mut mirror = Command::new("etcdctl");
    mirror.env("ETCDCTL_API", "3").args(["--endpoints", &etcd.endpoint(0), "make-mirror", &address]);
    let _mirror = Running::start(&mut mirror, &solo.directory().join("mirror.log"));
    let taken = || {
        runtime().block_on(async { (count(&Raw::connect(&solo.endpoint())).await.count == 1).then_some(()) })
    };
    wait::until("the key is there", taken, String::new);
}

#[test]
fn a_damaged_file_is_refused_with_the_way_out() {
    let mut solo = Solo::on_disk();
    runtime().block_on(async {
        let raw = Raw::connect(&solo.endpoint());
        for n in 0..20 {
            put(&raw, format!("k{n}"), vec![b'v'; 50]).await.expect("written");
        }
    });
    solo.kill();
    let entries = std::fs::read_dir(solo.data()).expect("listed").flatten();
    let file =
        entries.map(|e| e.path()).find(|p| p.display().to_string().contains("store-")).expect("a file");
    let mut bytes = std::fs::read(&file).expect("read");
    bytes[300] ^= 0xff;
    std::fs::write(&file, &bytes).expect("written");
    let output = run(&mut solo.command(), "");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("is damaged at byte") && text.contains("backup"), "{text}");
    assert_eq!(std::fs::read(&file).expect("read"), bytes, "left as it was");
}

#[test]
fn a_full_disk_is_told_as_a_full_store_and_heals() {
    let name = "store_api::durability::a_full_disk_is_told_as_a_full_store_and_heals";
    if !in_own_network(name) {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let mount = |options: &str| {
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", options, "none"]).arg(directory.path());
        assert!(run(&mut command, "").status.success());
    };
    mount("size=3m");
    let solo = Solo::on_disk_in(directory.path());
    runtime().block_on(async {
        let raw = Raw::connect(&solo.endpoint());
        let mut written = 0;
        let refused = loop {
            match put(&raw, format!("k{written:04}"), vec![b'v'; 100_000]).await {
                Ok(_) => written += 1,
                Err(refused) => break refused,
            }
        };
        assert_eq!(refused, (8, "etcdserver: mvcc: database space exceeded".to_owned()));
        assert!(written > 10, "{written}");
        assert_eq!(count(&raw).await.count, written, "nothing is there that was refused");
        mount("remount,size=64m");
        let request = PbAlarmRequest { action: 2, member_id: 0, alarm: 1 };
        let _: PbAlarmResponse = raw.call("Maintenance/Alarm", request).await.expect("ended");
        put(&raw, "after".into(), vec![b'v'; 100_000]).await.expect("written");
        let one = PbDeleteRequest { key: b"k0000".to_vec(), ..PbDeleteRequest::default() };
        let _: PbDeleteResponse = raw.call("KV/DeleteRange", one).await.expect("deleted");
        assert_eq!(count(&raw).await.count, written);
    });
}

#[test]
fn a_web_page_cannot_write_to_it() {
    let solo = Solo::in_memory();
    let address = solo.endpoint().replace("http://", "");
    // A put of the key `k` with the value `k`, as a browser may send it to any port without a
    // preflight request.
    let body = "\0\0\0\0\u{6}\n\u{1}k\u{12}\u{1}k";
    for kind in ["text/plain", "application/grpc"] {
        let mut command = Command::new("curl");
        command.args(["-sS", "--http1.1", "-o", "/dev/null", "-w", "%{http_code}", "-H"]);
        command.args([&format!("content-type: {kind}"), "--data-binary", "@-"]);
        let output = run(command.arg(format!("http://{address}/etcdserverpb.KV/Put")), body);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "404", "{kind}: {output:?}");
    }
    let found = runtime().block_on(async { count(&Raw::connect(&solo.endpoint())).await });
    assert_eq!(found.count, 0);
}

#[test]
fn an_export_of_what_is_no_store_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut command = Command::new(binary("solo-etcd"));
    let output = run(command.args(["export", "--to", "127.0.0.1:1", "--data-dir"]).arg(directory.path()), "");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("there is no store in"), "{output:?}");
}

#[test]
fn leases_have_their_full_time_again_after_a_restart() {
    let mut solo = Solo::on_disk();
    let store = tests::store::Store::connect(&[solo.endpoint()]);
    let (runtime, mut client) = store.parts();
    let lease = runtime.block_on(client.lease_grant(20, None)).expect("granted").id();
    let options = etcd_client::PutOptions::new().with_lease(lease);
    runtime.block_on(client.put("k", "v", Some(options))).expect("written");
    // Together the two times are longer than the lease, and each is much shorter.
    let most = Duration::from_secs(11);
    wait::stays("half its time passes", most, || store.get("k").is_some(), String::new);
    solo.kill();
    solo.start();
    wait::stays("it has its time again", most, || store.get("k").is_some(), String::new);
    let ended = || store.get("k").is_none().then_some(());
    wait::until_within(wait::DEADLINE * 2, "and it ends", ended, String::new);
}

#[test]
fn a_stopped_store_is_exported_into_an_etcd_and_again_without_harm() {
    let mut solo = Solo::on_disk();
    let store = tests::store::Store::connect(&[solo.endpoint()]);
    for n in 0..250 {
        store.put(&format!("/k/{n:03}"), &format!("v{n}"));
    }
    let (runtime, mut client) = store.parts();
    let lease = runtime.block_on(client.lease_grant(60, None)).expect("granted").id();
    let options = etcd_client::PutOptions::new().with_lease(lease);
    runtime.block_on(client.put("/leased", "v", Some(options))).expect("written");
    let etcd = Etcd::single_real();
    let export = || {
        let mut command = Command::new(binary("solo-etcd"));
        run(command.args(["export", "--to", &etcd.endpoint(0), "--data-dir"]).arg(solo.data()), "")
    };
    assert_eq!(export().status.code(), Some(2), "while it runs");
    solo.process().signal(rustix::process::Signal::TERM);
    wait::until("it ends", || solo.process().ended(), String::new);
    for _ in 0..2 {
        let mut command = Command::new(binary("solo-etcd"));
        let output =
            run(command.args(["export", "--to", &etcd.endpoint(0), "--data-dir"]).arg(solo.data()), "");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{output:?}");
        assert!(text.contains("250 keys written, 1 that hang on a lease left behind"), "{text}");
        assert!(text.contains("orchestrate store accept"), "{text}");
    }
    assert_eq!(etcd.store().get("/k/249").as_deref(), Some("v249"));
    assert_eq!(etcd.store().get("/leased"), None);
    etcd.store().put("/k/007", "another");
    let mut command = Command::new(binary("solo-etcd"));
    let output = run(command.args(["export", "--to", &etcd.endpoint(0), "--data-dir"]).arg(solo.data()), "");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("a different value under /k/007"), "{output:?}");
}
