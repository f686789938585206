//! Steps that misbehave.

use std::time::Duration;
use tests::etcd::Etcd;
use tests::host::Host;
use tests::process::lives;
use tests::store::Store;
use tests::wait;

/// Time-out of a step that ends before it.
const AMPLE: &str = "30s";
/// Time-out of a step that does not end by itself. It begins before that, also on a slow machine.
const SHORT: &str = "3s";

/// Starts a host whose only apply step does this, with this time-out.
fn host_whose_step_does(etcd: &Etcd, what: &str, timeout: &str) -> Host {
    let host = Host::new("h1", &etcd.endpoints());
    let command = host.path("step-packages").display().to_string();
    host.write("do-packages", what);
    let step = format!(
        "[[apply]]\nname = \"packages\"\ncommand = [\"{command}\"]\ntimeout = \"{timeout}\"\ngrace = \"300ms\"\n"
    );
    let mut host = host.with(&step);
    host.start();
    host
}

fn failed_reason(host: &Host, store: &Store) -> String {
    host.wait_for_status(store, "puppet", "failed")["reason"].as_str().expect("text").to_owned()
}

fn recorded_pids(host: &Host) -> Vec<i32> {
    host.read("pids").lines().filter_map(|l| l.trim().parse().ok()).collect()
}

fn wait_until_dead(host: &Host) {
    let alive = || recorded_pids(host).into_iter().filter(|pid| lives(*pid)).count();
    wait::until(
        "every process of the step is gone",
        || (alive() == 0).then_some(()),
        || format!("{} live", alive()),
    );
    assert!(!recorded_pids(host).is_empty());
}

#[test]
fn one_that_hangs_is_ended_and_failed_with_the_reason_timeout() {
    let etcd = Etcd::single();
    let host = host_whose_step_does(&etcd, "echo $$ >> $D/pids\nsleep 1000\n", SHORT);
    etcd.store().put("/current_version", "1");
    assert!(failed_reason(&host, &etcd.store()).contains("timeout"));
    wait_until_dead(&host);
}

#[test]
fn one_that_ignores_term_is_killed_with_its_children() {
    let etcd = Etcd::single();
    let what = "trap '' TERM\necho $$ >> $D/pids\n(trap '' TERM; while :; do sleep 1; done) &\necho $! >> $D/pids\nwait\nwait\nwhile :; do sleep 1; done\n";
    let host = host_whose_step_does(&etcd, what, SHORT);
    etcd.store().put("/current_version", "1");
    assert!(failed_reason(&host, &etcd.store()).contains("timeout"));
    wait_until_dead(&host);
}

#[test]
fn one_that_leaves_children_with_its_output_open_ends_when_it_ends() {
    let etcd = Etcd::single();
    let what = "sleep 1000 &\necho $! >> $D/pids\nsetsid sleep 1001 &\nsetsid sh -c 'echo $$ >> '$D'/pids; exec sleep 1002' &\nwhile [ $(wc -l < $D/pids) -lt 2 ]; do sleep 0.02; done\n";
    let host = host_whose_step_does(&etcd, what, AMPLE);
    etcd.store().put("/current_version", "1");
    host.wait_for_listing(&etcd.store(), "1");
    wait_until_dead(&host);
}

#[test]
fn one_that_prints_a_gigabyte_without_a_line_end_is_drained_and_kept_bounded() {
    let etcd = Etcd::single();
    let host = Host::new("h1", &etcd.endpoints());
    host.write(
        "do-packages",
        "head -c 1000000000 /dev/zero | tr '\\0' 'x'\necho\nprintf 'bad \\377 \\033[31m \\001 end\\n'\n",
    );
    host.write("code-packages", "3\n");
    let mut host = host;
    host.start();
    let store = etcd.store();
    store.put("/current_version", "1");
    // A slow machine takes minutes to drain it.
    let failed = || store.get("/status/puppet/failed/h1");
    wait::until_within(Duration::from_secs(180), "the step has failed", failed, || host.describe());
    let report = store.get("/orchestrate/reports/h1").expect("a report");
    assert!(report.len() < 16 * 1024, "{} bytes", report.len());
    assert!(report.contains("end") && !report.contains('\u{1b}') && !report.contains('\u{1}'), "{report}");
    for run in std::fs::read_dir(host.state().join("runs")).expect("runs").flatten() {
        let size: u64 = std::fs::read_dir(run.path())
            .expect("a run")
            .flatten()
            .map(|f| f.metadata().expect("a file").len())
            .sum();
        // The first 4 MiB, and the last 64 KiB twice.
        assert!(size < (4096 + 256) * 1024, "{size} bytes on disk");
    }
}

#[test]
fn one_that_runs_for_ten_seconds_is_named_by_its_host() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let host = Host::started("h1", &etcd.endpoints());
    host.write("hold-packages", "");
    store.put("/current_version", "1");
    host.wait_for_begin("packages", "1");
    let shown = || host.status().filter(|status| status["running_step"]["step"] == "packages");
    wait::until_within(Duration::from_secs(5), "the agent shows the step", shown, || host.describe());
    // No event wakes the agent meanwhile.
    let named = || {
        let report = store.get("/orchestrate/reports/h1")?;
        let report: serde_json::Value = serde_json::from_str(&report).expect("a report");
        (report["running_step"]["step"] == "packages").then_some(())
    };
    wait::until_within(Duration::from_secs(20), "the report names the step", named, || host.describe());
    host.remove("hold-packages");
    host.wait_for_listing(&store, "1");
}

#[test]
fn one_that_reads_its_input_finds_it_closed() {
    let etcd = Etcd::single();
    let host = host_whose_step_does(
        &etcd,
        "if read -r line; then echo got > $D/input; else echo closed > $D/input; fi\n",
        AMPLE,
    );
    etcd.store().put("/current_version", "1");
    host.wait_for_listing(&etcd.store(), "1");
    assert_eq!(host.read("input").trim(), "closed");
}

#[test]
fn one_that_dies_by_a_signal_failed_by_that_signal() {
    let etcd = Etcd::single();
    let host = host_whose_step_does(&etcd, "kill -SEGV $$\n", AMPLE);
    etcd.store().put("/current_version", "1");
    let reason = failed_reason(&host, &etcd.store());
    assert!(reason.contains("SIGSEGV"), "{reason}");
}

#[test]
fn one_that_stops_the_agent_goes_on_and_the_next_agent_takes_its_result() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let mut host = Host::started("h1", &etcd.endpoints());
    host.write("do-packages", "kill -TERM $(cat $D/agent.pid)\n");
    host.write("hold-packages", "");
    host.write("agent.pid", &host.pid().to_string());
    store.put("/current_version", "1");
    wait::until("the agent stopped", || host.is_dead().then_some(()), || host.describe());
    host.remove("hold-packages");
    host.start();
    host.wait_for_listing(&store, "1");
    assert_eq!(host.begins("packages", "1"), 1);
}

#[test]
fn one_that_others_could_have_written_is_not_run() {
    use std::os::unix::fs::PermissionsExt;
    let etcd = Etcd::single();
    let host = host_whose_step_does(&etcd, "", AMPLE);
    let path = host.path("step-packages");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).expect("set");
    etcd.store().put("/current_version", "1");
    let reason = failed_reason(&host, &etcd.store());
    assert!(reason.contains("writable by others"), "{reason}");
    assert_eq!(host.begins("packages", "1"), 0);
}

#[test]
fn what_a_step_is_told_stands_in_its_environment_and_secrets_stay_out_of_the_report() {
    let etcd = Etcd::single();
    let host = Host::new("h1", &etcd.endpoints())
        .with("role = \"web\"\n[environment]\nDATABASE_PASSWORD = \"canary-5183\"\nSITE = \"here\"\n");
    host.write("do-packages", "env | sort > $D/environment\necho \"password $DATABASE_PASSWORD\"\n");
    host.write("code-packages", "1\n");
    let mut host = host;
    host.start();
    let store = etcd.store();
    store.put("/current_version", "v7");
    host.wait_for_status(&store, "puppet", "failed");
    let environment = host.read("environment");
    for expected in [
        "ORCHESTRATE_STEP_VERSION=v7",
        "ORCHESTRATE_STEP_FROM=\n",
        "ORCHESTRATE_STEP_PHASE=apply",
        "ORCHESTRATE_STEP_HOST=h1",
        "ORCHESTRATE_STEP_ROLE=web",
        "ORCHESTRATE_STEP_RUN_ID=",
        "ORCHESTRATE_STEP_ATTEMPT=1",
        "ORCHESTRATE_ENDPOINTS=http",
        "SITE=here",
    ] {
        assert!(environment.contains(expected), "{expected} is missing in\n{environment}");
    }
    let everything = format!("{:?}", store.list("/"))
        + &host.read("agent.log")
        + &host.status().expect("status").to_string();
    assert!(!everything.contains("canary-5183"), "{everything}");
    assert!(everything.contains("password ***"), "the line itself is reported");
}

/// Creates a validation directory with these entries. Each logs its run, and fails if its name
/// contains "fails".
fn validation_directory(host: &Host, entries: &[(&str, u32)]) -> std::path::PathBuf {
    let directory = host.path("validate.d");
    std::fs::create_dir(&directory).expect("made");
    for (name, mode) in entries {
        use std::os::unix::fs::PermissionsExt;
        let path = directory.join(name);
        let code = u32::from(name.contains("fails"));
        let log = host.path("validated");
        std::fs::write(&path, format!("#!/bin/sh\necho {name} >> {}\nexit {code}\n", log.display()))
            .expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(*mode)).expect("set");
    }
    directory
}

#[test]
fn every_executable_file_of_the_validation_directory_counts_and_what_is_skipped_is_named() {
    let etcd = Etcd::single();
    let host = Host::new("h1", &etcd.endpoints());
    let entries = [
        ("20-second", 0o755),
        ("10-first", 0o755),
        ("40.sh", 0o755),
        ("README", 0o644),
        ("10-first~", 0o755),
        (".hidden", 0o755),
        ("30.dpkg-old", 0o755),
    ];
    let directory = validation_directory(&host, &entries);
    let mut host = host.with(&format!("[validation]\nevery = \"60s\"\ndirectory = {directory:?}\n"));
    host.start();
    etcd.store().put("/current_version", "1");
    host.wait_for_listing(&etcd.store(), "1");
    assert_eq!(host.read("validated"), "10-first\n20-second\n40.sh\n");
    let skipped =
        [".hidden (hidden)", "10-first~ (a backup)", "30.dpkg-old (a backup)", "README (not executable)"];
    let status = host.status().expect("status")["validation_directory"].clone();
    let names: Vec<&str> =
        status["skipped"].as_array().expect("a list").iter().filter_map(|s| s["name"].as_str()).collect();
    assert_eq!(names, [".hidden", "10-first~", "30.dpkg-old", "README"], "{status}");
    let settings = host.path("agent.toml").display().to_string();
    let checked = tests::process::run(
        std::process::Command::new(tests::process::binary("orchestrate-agent")).args([
            "--check-config",
            "--config",
            &settings,
        ]),
        "",
    );
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
    let linted = host.command(&["lint", &settings], "");
    for (place, result) in [
        ("the log", host.read("agent.log")),
        ("--check-config", String::from_utf8_lossy(&checked.stderr).into_owned()),
        ("lint", linted.out),
    ] {
        for name in skipped {
            assert!(result.contains(name), "{place} does not name {name}:\n{result}");
        }
    }
}

#[test]
fn a_failing_script_with_an_ending_in_its_name_fails_validation() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let host = Host::new("h1", &etcd.endpoints());
    let directory = validation_directory(&host, &[("fails-keystone.sh", 0o755)]);
    let mut host = host.with(&format!("[validation]\nevery = \"500ms\"\ndirectory = {directory:?}\n"));
    host.start();
    store.put("/current_version", "1");
    let record = host.wait_for_status(&store, "validation", "failed");
    assert!(record["reason"].as_str().expect("text").contains("fails-keystone.sh"), "{record}");
    assert!(store.list("/running_version/").is_empty());
}

#[test]
fn without_its_validation_directory_nothing_is_proven() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let host = Host::new("h1", &etcd.endpoints());
    let directory = host.path("validate.d");
    let settings = format!(
        "[validation]\nevery = \"500ms\"\ndirectory = {directory:?}\n[[apply]]\nname = \"a\"\ncommand = [\"/bin/true\"]\n"
    );
    let mut host = host.with(&settings);
    host.start();
    store.put("/current_version", "1");
    let record = host.wait_for_status(&store, "validation", "failed");
    assert!(record["reason"].as_str().expect("text").contains("validation-directory"), "{record}");
    assert!(store.list("/running_version/").is_empty());
    std::fs::create_dir(&directory).expect("made");
    let empty = || {
        let text = store.get("/status/validation/failed/h1")?;
        text.contains("contains no executable file").then_some(())
    };
    wait::until("an empty one proves nothing either, and says so", empty, || host.describe());
    host.write_executable("validate.d/check", "#!/bin/sh\nexit 0\n");
    host.wait_for_listing(&store, "1");
}

#[test]
fn stopping_the_agent_waits_neither_for_a_step_nor_for_a_client() {
    let etcd = Etcd::single();
    let mut host = Host::started("h1", &etcd.endpoints());
    host.write("hold-packages", "");
    etcd.store().put("/current_version", "1");
    host.wait_for_begin("packages", "1");
    let mut client = host.connect_http();
    std::io::Write::write_all(&mut client, b"GET").expect("written");
    let before = std::time::Instant::now();
    host.stop();
    // The head of a request may take 10 s, and the step does not end at all.
    assert!(before.elapsed() < Duration::from_secs(8), "{:?}", before.elapsed());
    host.remove("hold-packages");
}
