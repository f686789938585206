//! Bundles of failures: hosts upload one for each cause, and `bundle` fetches it. `ORCHESTRATE_TEST_BUNDLE_PROGRAMS`
//! names the directory of the agent and the command; without it they are those of this workspace.

use crate::planted;
use serde_json::Value;
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tests::etcd::Etcd;
use tests::host::{CommandOutput, Host};
use tests::object_store::{BUCKET, Behaviour, KEY_ID, ObjectServer, SECRET};
use tests::recording::RecordingObserver;
use tests::store::Store;
use tests::wait;

/// The identity of the store.
const LINEAGE: &str = r#"{"format":1,"lineage":"abc","epoch":1}"#;

/// Time after which another host uploads, for few hosts.
const TAKE_OVER_AFTER: Duration = Duration::from_secs(3);

/// Starts a host whose step prints its secret in several ways and fails at version 2 with this message.
fn failing(name: &str, etcd: &Etcd, message: &str, bundles: &str, take_over_after: Duration) -> Host {
    let host = Host::new(name, &etcd.endpoints());
    // 100 KiB before the secrets, so that the report has no trace of the first line.
    let script = format!(
        "#!/bin/sh\necho \"the first line of $ORCHESTRATE_STEP_HOST\"\n\
         [ \"$ORCHESTRATE_STEP_VERSION\" = 1 ] && exit 0\n\
         i=0; while [ $i -lt 2000 ]; do echo \"$i: a line of fifty characters that says nothing\"; i=$((i+1)); done\n\
         echo \"plain $DB_PASSWORD\"; printf '%s' \"$DB_PASSWORD\" | base64\n\
         printf 'split canary-\\n77-long\\n'; echo 'url canary%2D77%2Dlong'; cat \"$SECRET_FILE\"\n\
         printf 'CANARY.1234\nCANA\nRY.5678\n'; printf 'is CANARY.9012' | base64\n\
         echo 'error: {message}'; exit 3\n"
    );
    host.write_executable("install", &script);
    host.write("app.conf", "password=canary-77-long\nport=80\n");
    host.write("token", "canary of a file\n");
    std::os::unix::fs::symlink("/etc/hostname", host.path("link.conf")).expect("a link");
    let file = |name: &str| format!("\"{}\"", host.path(name).display());
    // The store has its default backstop and nothing else is repeated often, because a thousand hosts share few cores.
    let settings = format!(
        "secret_files = [{}]\nsecret_patterns = ['CANARY\\.[0-9]{{4}}']\n[store]\nendpoints = {:?}\n\
         [environment]\nDB_PASSWORD = \"canary-77-long\"\nSECRET_FILE = {}\n\
         [[apply]]\nname = \"install\"\ncommand = [{}]\n\
         [[validate]]\nname = \"look\"\ncommand = [\"/bin/true\"]\n\
         [attempts]\nbackoff_min = \"1m\"\nbackoff_max = \"5m\"\n\
         [validation]\nevery = \"5m\"\n\
         [bundles]\nspread = \"1s\"\ntake_over_after = \"{}ms\"\nfiles = [{}, {}, \"/nowhere\"]\n{bundles}\n",
        file("token"),
        etcd.endpoints(),
        file("token"),
        file("install"),
        take_over_after.as_millis(),
        file("app.conf"),
        file("link.conf")
    );
    let mut host = host.with(&settings);
    if let Some(programs) = std::env::var_os("ORCHESTRATE_TEST_BUNDLE_PROGRAMS") {
        host.set_programs(Some(Path::new(&programs)));
    }
    host.start();
    host
}

/// Starts a server with a bucket, and returns it with the file of its access key.
fn bucket() -> (ObjectServer, tempfile::NamedTempFile) {
    let key = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(key.path(), format!("{KEY_ID}\n{SECRET}\n")).expect("written");
    (ObjectServer::start(), key)
}

fn in_directory(directory: &Path) -> String {
    format!("to = \"file://{}\"\n", directory.display())
}

fn in_bucket(server: &ObjectServer, credentials: &Path) -> String {
    format!(
        "to = \"s3://{BUCKET}/prod\"\nendpoint = \"{}\"\ncredentials = \"{}\"\n",
        server.endpoint(),
        credentials.display()
    )
}

/// Returns all files below a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries =
        std::fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

fn uploaded(directory: &Path) -> Vec<PathBuf> {
    let is_bundle = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "zst");
    files(directory).into_iter().filter(is_bundle).collect()
}

/// Returns the report of a host: null if there is none, or if the store does not answer, which a thousand hosts
/// keep busy.
fn report(store: &Store, host: &str) -> Value {
    let report = store.try_get(&format!("/orchestrate/reports/{host}")).ok().flatten();
    report.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

/// Waits until one of the hosts reports a bundle, and returns its name.
fn wait_for_link(store: &Store, hosts: &[(&str, &Host)]) -> String {
    let linked = || {
        let found = hosts.iter().find(|(name, _)| report(store, name)["bundle"].is_object());
        found.map(|(name, _)| (*name).to_owned())
    };
    wait::until("a report with a bundle", linked, || hosts.iter().map(|(_, host)| host.describe()).collect())
}

#[test]
fn what_a_host_kept_of_its_failure_is_fetched_without_its_secrets() {
    let etcd = Etcd::single();
    let store = etcd.store();
    store.put("/orchestrate/store", LINEAGE);
    let recorder = RecordingObserver::start(&etcd.endpoints());
    let objects = tempfile::tempdir().expect("a directory");
    let to = in_directory(objects.path());
    let hosts = ["web1", "web2"].map(|name| failing(name, &etcd, "no route", &to, TAKE_OVER_AFTER));
    store.put("/current_version", "2");
    let by = wait_for_link(&store, &[("web1", &hosts[0]), ("web2", &hosts[1])]);
    // The other host may still run its step, and is asked too.
    for host in &hosts {
        host.wait_for_status(&store, "puppet", "failed");
    }
    let from = format!("file://{}", objects.path().display());
    let fetch = |host: &str, into: &str, more: &[&str]| -> CommandOutput {
        let into = hosts[0].path(into).display().to_string();
        hosts[0].command(&[&["bundle", host, "--into", &into], more].concat(), "")
    };
    for (host, into) in [("web1", "one"), ("web2", "two")] {
        let answer = fetch(host, into, &["--from", &from]);
        assert_eq!(answer.code, 0, "{answer:?}");
        assert!(answer.out.starts_with(&format!("{by} failed at 2, attempt 1, ")), "{answer:?}");
        assert_eq!(answer.err.contains("failed for the same cause"), host != by, "{answer:?}");
    }
    for host in ["web1", "web2"] {
        let answer = hosts[0].command(&["logs", host, "--from", &from], "");
        assert_eq!(answer.code, 0, "{answer:?}");
        let (out, err) = (&answer.out, &answer.err);
        assert!(out.starts_with(&format!("the first line of {by}\n0: a line")), "{}", &out[..100]);
        assert!(
            out.contains("\n1999: a line") && out.ends_with("\nerror: no route\n"),
            "{} bytes",
            out.len()
        );
        assert!(
            err.starts_with("apply step install of 2, attempt 1: exited with code 3\nfrom the bundle"),
            "{err}"
        );
        assert_eq!(err.contains("failed for the same cause"), host != by, "{err}");
        let tail = hosts[0].command(&["logs", host], "");
        assert!(
            !tail.out.contains("the first line") && tail.out.ends_with("\nerror: no route\n"),
            "{tail:?}"
        );
        assert_eq!(tail.err.contains("the whole output is in the bundle file:///"), host == by, "{tail:?}");
    }
    let answer = fetch("web2", "three", &["--from", &from, "-o", "json"]);
    let answer: Value = serde_json::from_str(&answer.out).expect("JSON");
    assert_eq!(
        (answer["host"].as_str(), answer["cause"].as_str()),
        (Some(by.as_str()), Some("error: no route"))
    );
    assert!(hosts[0].command(&["why", &by], "").out.contains("bundle:       file:///"));
    let into = hosts[0].path("one");
    let read = |name: &str| std::fs::read_to_string(into.join(name)).expect(name);
    let all = files(&into);
    let names: Vec<String> =
        all.iter().map(|path| path.strip_prefix(&into).expect("below").display().to_string()).collect();
    let log = names.iter().find(|name| name.ends_with("apply-install.log")).expect("a log");
    let log = read(log);
    assert!(log.starts_with(&format!("the first line of {by}\n0: a line")), "{}", &log[..100]);
    assert!(log.ends_with("error: no route\n"), "{log}");
    assert!(names.contains(&"report.json".to_owned()), "{names:?}");
    let contents: Value = serde_json::from_str(&read("contents.json")).expect("JSON");
    let left_out = contents["left_out"].as_array().expect("a list");
    assert_eq!(left_out.len(), 3, "the journal, the link and the file that does not exist: {contents}");
    let parts = contents["parts"].as_array().expect("a list");
    assert!(parts.iter().all(|part| part["is_cut"] == false), "{contents}");
    for path in all {
        planted::assert_absent(&path.display().to_string(), &std::fs::read_to_string(&path).expect("text"));
    }
    store.list("/").iter().for_each(|(key, value)| planted::assert_absent(key, value));
    hosts.iter().for_each(|host| planted::assert_absent("the log of the agent", &host.read("agent.log")));
    planted::assert_absent_from_recording(&recorder, store.revision());
    planted::assert_absent_from_pages(&recorder, &by, "error: no route");
    // The other host looked, and uploaded nothing.
    let waiting = |host: &Host| std::fs::read_dir(host.state().join("bundles")).expect("a directory").count();
    wait::until(
        "nothing waits",
        || hosts.iter().all(|host| waiting(host) == 0).then_some(()),
        || format!("{:?}", hosts.each_ref().map(waiting)),
    );
    assert_eq!(uploaded(objects.path()).len(), 1, "{:?}", uploaded(objects.path()));
    // The host that uploaded is repaired, and the other one still fails.
    let (repaired, other) = if by == "web1" { (&hosts[0], "web2") } else { (&hosts[1], "web1") };
    repaired.write_executable("install", "#!/bin/sh\nexit 0\n");
    let retried = hosts[0].command(&["retry", &by], "");
    assert_eq!(retried.code, 0, "{retried:?}");
    repaired.wait_for_listing(&store, "2");
    repaired.wait_for_verdict("ok");
    assert_eq!(fetch(other, "four", &["--from", &from]).code, 0);
    // What is not as reported, or elsewhere, is refused, and nothing of it is left.
    let check = |host: &str, more: &[&str], code: i32, expected: &str| {
        let answer = fetch(host, "other", more);
        assert_eq!(answer.code, code, "{more:?}: {answer:?}");
        assert!(answer.err.contains(expected), "{more:?}: {answer:?}");
        assert!(!hosts[0].path("other").exists());
    };
    check(other, &[], 64, "name the object store of the fleet with --from");
    check(other, &["--from", "file:///srv/elsewhere"], 3, "which is not below file:///srv/elsewhere");
    check(other, &["--from", "ftp://x"], 64, "s3://");
    check("web9", &["--from", &from], 1, "host web9 has not reported");
    let again = fetch(other, "one", &["--from", &from]);
    assert_eq!((again.code, again.err.contains("exists")), (64, true), "{again:?}");
    let object = &uploaded(objects.path())[0];
    std::fs::write(object, "something else").expect("written");
    check(other, &["--from", &from], 2, "is not what web");
    std::fs::remove_file(object).expect("removed");
    check(other, &["--from", &from], 1, "does not exist any more");
    // The link goes with the failure.
    store.put("/current_version", "1");
    hosts.iter().for_each(|host| host.wait_for_listing(&store, "1"));
    check(other, &["--from", &from], 1, "it has not failed");
}

/// Returns the number of hosts of the large fleet. `make test-long` has 1,000.
fn fleet_size() -> usize {
    std::env::var("ORCHESTRATE_TEST_BUNDLE_HOSTS").map_or(50, |text| text.parse().expect("a number"))
}

#[test]
fn many_hosts_that_fail_for_two_causes_upload_two_bundles() {
    let count = fleet_size();
    let etcd = Etcd::single();
    let store = etcd.store();
    store.put("/orchestrate/store", LINEAGE);
    let (server, key) = bucket();
    let message = |n: usize| ["no route to db", "the disk is full"][n % 2];
    // A claim may be long before its bundle where many hosts fail at once on few cores.
    let take_over_after = Duration::from_secs(25) + Duration::from_millis(100) * count as u32;
    let to = in_bucket(&server, key.path());
    let mut hosts = Vec::new();
    for n in 0..count {
        let name = format!("web{n}");
        hosts.push(failing(&name, &etcd, message(n), &to, take_over_after));
        // A thousand agents that start at once would keep each other waiting, and the store too.
        if n % 20 == 19 {
            let lives = || store.get(&format!("/orchestrate/live/{name}"));
            wait::until("the agents have started", lives, || hosts[n].describe());
        }
    }
    store.put("/current_version", "2");
    // Each look goes on where the last one stopped, because a thousand reads slow down those that are waited for.
    let failed = Cell::new(0);
    let has_failed = |n: usize| {
        report(&store, &format!("web{n}"))["verdict"]["verdict"] == "failed"
            && std::fs::read_dir(hosts[n].state().join("bundles")).is_ok_and(|files| files.count() == 0)
    };
    wait::until_within(
        Duration::from_secs(120) + Duration::from_secs(1) * count as u32 + take_over_after,
        "all have failed, and nothing waits",
        || {
            failed.update(|before| before + (before..count).take_while(|n| has_failed(*n)).count());
            (failed.get() == count).then_some(())
        },
        || {
            let first = failed.get();
            format!(
                "web{first} is the first that has not; {:?}\n{}",
                server.counts(),
                hosts[first].describe()
            )
        },
    );
    let links = || (0..count).filter(|n| report(&store, &format!("web{n}"))["bundle"].is_object()).count();
    wait::until_within(
        take_over_after,
        "two reports name their bundles",
        || (links() == 2).then_some(()),
        || format!("{} links; {:?}", links(), server.counts()),
    );
    let bundles = uploaded(&server.directory());
    assert_eq!(bundles.len(), 2, "{bundles:?}");
    let puts =
        server.counts().into_iter().filter(|((method, path), _)| method == "PUT" && path.ends_with(".zst"));
    assert_eq!(puts.map(|(_, count)| count).sum::<usize>(), 2);
    let (from, endpoint) = (format!("s3://{BUCKET}/prod"), server.endpoint());
    let key = key.path().display().to_string();
    for host in ["web0", "web1", &format!("web{}", count - 2), &format!("web{}", count - 1)] {
        let into = hosts[0].path(host).display().to_string();
        let object_store = ["--from", &from, "--s3-endpoint", &endpoint, "--s3-credentials", &key];
        let answer = hosts[0].command(&[&["bundle", host, "--into", &into][..], &object_store].concat(), "");
        assert_eq!(answer.code, 0, "{answer:?}");
        let n: usize = host.trim_start_matches("web").parse().expect("a number");
        assert!(answer.out.contains(message(n)), "{answer:?}");
    }
}

#[test]
fn an_object_store_that_fails_delays_no_host_and_gets_the_bundle_later() {
    let etcd = Etcd::single();
    let store = etcd.store();
    store.put("/orchestrate/store", LINEAGE);
    let (server, key) = bucket();
    let host = failing("web1", &etcd, "no route", &in_bucket(&server, key.path()), TAKE_OVER_AFTER);
    for behaviour in [Behaviour::Hang, Behaviour::Full, Behaviour::Unavailable] {
        server.behave(behaviour);
        let before = server.count("HEAD");
        store.put("/current_version", "2");
        // Its verdict is this one only between two attempts.
        host.wait_for_status(&store, "puppet", "failed");
        let seen = || (server.count("HEAD") > before).then_some(());
        // One bundle is uploaded at a time, and one that hangs is given up after 30 s.
        let waited = Duration::from_secs(90);
        wait::until_within(waited, "the store is reached", seen, || {
            format!("{behaviour:?} {:?}", server.counts())
        });
        store.put("/current_version", "1");
        host.wait_for_listing(&store, "1");
    }
    server.behave(Behaviour::Serve);
    wait::until_within(
        Duration::from_secs(90),
        "the bundles are uploaded",
        || (uploaded(&server.directory()).len() == 3).then_some(()),
        || format!("{:?}\n{}", server.counts(), host.describe()),
    );
}
