//! A secret that tests plant, and the places where no part of it may be.

use crate::service_manager::{Machine, UNIT, can_boot};
use archive::recording::{At, Directory, Recording};
use schema::snapshot::Entry;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tests::etcd::Etcd;
use tests::process::in_own_network;
use tests::recording::RecordingObserver;
use tests::{skip, wait};

/// Parts of the secret `canary-77-long`, also as they stand in base64 and in a URL, and of `CANARY.1234` with other digits.
const PARTS: [&str; 6] = ["canary", "77-long", "Y2FuYXJ5", "%2D77", "CANARY", "Q0FOQVJZ"];

/// Asserts that a text has no part of the secret, even if it is split over lines.
pub(crate) fn assert_absent(what: &str, text: &str) {
    let flat: String = text.split_whitespace().collect();
    for part in PARTS {
        assert!(!flat.contains(part), "{part} in {what}: {text}");
    }
}

/// Asserts that no part of the secret is in what was recorded up to a revision.
pub(crate) fn assert_absent_from_recording(recorder: &RecordingObserver, last: i64) {
    recorder.wait_for(last);
    let directory = Directory::new(&recorder.directory);
    let names = directory.names().expect("a recording");
    let first = names.iter().map(|name| name.revision).min().expect("a segment");
    let recording = Recording::new(names);
    let text = |entry: &Entry| String::from_utf8_lossy(&entry.value).into_owned();
    let mut is_recorded = false;
    for revision in first..=last {
        let at = At::read(&revision.to_string(), 0).expect("a revision");
        let past = recording.at(&at, &directory).expect("it is recorded").into_snapshot();
        for (key, entry) in &past.entries {
            assert_absent(&format!("{key} at {revision}"), &text(entry));
            is_recorded |= key.starts_with("/orchestrate/reports/") && text(entry).contains("***");
        }
    }
    assert!(is_recorded, "a report without its secrets is in the recording");
}

/// Asserts that no part of the secret is on a page, now and in the past, nor in an answer of the observer. The page of
/// the host shows its cause.
pub(crate) fn assert_absent_from_pages(recorder: &RecordingObserver, host: &str, cause: &str) {
    let observer = &recorder.observer;
    let of_host = format!("/hosts/{host}");
    let shows = || observer.get(&of_host).body.contains(cause).then_some(());
    wait::until("the page shows the cause", shows, || observer.get(&of_host).body);
    let at = recorder.recorded_revision();
    let pages = ["/", "/rollouts", "/services", "/events", "/hosts", &of_host].map(str::to_owned);
    let past = pages.clone().map(|page| format!("{page}?at={at}"));
    let answers =
        ["/v1/status", "/v1/events", "/v1/failures", "/v1/waits", &format!("/v1/hosts/{host}"), "/metrics"]
            .map(str::to_owned);
    for path in pages.into_iter().chain(past).chain(answers) {
        let answer = observer.get(&path);
        assert_eq!(answer.code, 200, "{path}: {answer:?}");
        assert_absent(&path, &answer.body);
    }
    assert_absent("the log of the observer", &observer.log());
}

#[test]
fn a_bundle_has_the_journal_of_the_unit_without_its_secrets() {
    let name = "planted::a_bundle_has_the_journal_of_the_unit_without_its_secrets";
    if let Err(why) = can_boot() {
        return skip(name, why);
    }
    if !in_own_network(name) {
        return;
    }
    let Some(mut machine) = Machine::new() else {
        return skip(name, "no file system can be laid over this machine's own");
    };
    let etcd = Etcd::single();
    let store = etcd.store();
    store.put("/orchestrate/store", r#"{"format":1,"lineage":"abc","epoch":1}"#);
    store.put("/current_version", "1");
    // The journal does not know the unit of a process that has ended before it looks.
    let step = "#!/bin/sh\n\
        [ \"$1\" = print ] || { systemd-cat -t planted \"$0\" print; echo 'error: no route'; exit 3; }\n\
        echo \"plain $DB_PASSWORD\"; echo \"$(printf %s \"$DB_PASSWORD\" | base64)\"; echo 'url canary%2D77%2Dlong'\n\
        printf 'split canary-\\n77-long\\n'; echo 'that is all'\n\
        until journalctl -q -t planted | grep -q 'that is all'; do sleep 0.1; done\n";
    machine.write("/usr/local/bin/install", step);
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(machine.file("/usr/local/bin/install"), executable).expect("executable");
    machine.install_agent(
        "",
        &format!(
            "host = \"h1\"\n[store]\nendpoints = [{:?}]\n[environment]\nDB_PASSWORD = \"canary-77-long\"\n\
             [[apply]]\nname = \"install\"\ncommand = [\"/usr/local/bin/install\"]\n\
             [[validate]]\nname = \"true\"\ncommand = [\"/bin/true\"]\n\
             [attempts]\nbackoff_min = \"1m\"\nbackoff_max = \"5m\"\n\
             [bundles]\nto = \"file:///root/objects\"\nspread = \"1s\"\n",
            etcd.endpoint(0)
        ),
    );
    fs::create_dir(machine.file("/root/objects")).expect("a directory");
    machine.boot();
    machine.run(&["systemctl", "start", UNIT]);
    let linked = || store.get("/orchestrate/reports/h1").filter(|report| report.contains("\"bundle\":{"));
    let report = wait::until("a report with a bundle", linked, || machine.describe());
    assert_absent("the report", &report);
    let bundles = machine.run(&["find", "/root/objects", "-name", "*.tar.zst"]);
    let bundle = fs::File::open(machine.file(&bundles)).expect("one bundle");
    let into = tempfile::tempdir().expect("a directory");
    let into = into.path().join("bundle");
    archive::bundle::unpack(bundle, &into).expect("unpacked");
    let journal = read(&into, "journal.log");
    let planted: Vec<&str> = journal.lines().filter(|line| line.contains(" planted[")).collect();
    assert_eq!(planted.len(), 6, "all of what the step printed there: {journal}");
    let messages: String =
        planted.iter().filter_map(|line| line.split_once("]: ")).map(|(_, text)| text).collect();
    assert_absent("the messages of the step", &messages);
    assert_absent("the journal", &journal);
}

fn read(directory: &Path, name: &str) -> String {
    fs::read_to_string(directory.join(name)).expect(name)
}
