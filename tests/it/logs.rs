//! `logs`: the output of steps that run, that ended, and that could not be started, and what a bundle has of one.

use crate::contract::bundled::entries;
use archive::bundle::{BundleWriter, Digested};
use archive::{Cut, Redactor};
use schema::codec;
use schema::keys;
use schema::verdict::HostVerdict;
use serde_json::Value;
use std::process::Command;
use tests::etcd::Etcd;
use tests::host::{CommandOutput, Host};
use tests::process::{Running, binary, run};
use tests::wait;

/// Returns a host with one step, which is this shell script.
fn host_with(script: &str, etcd: &Etcd) -> Host {
    let host = Host::new("web1", &etcd.endpoints());
    host.write_executable("install", &format!("#!/bin/sh\ncd '{}'\n{script}", host.directory().display()));
    let command = host.path("install").display().to_string();
    let step = format!(
        "[environment]\nDB_PASSWORD = \"canary-77\"\n[validation]\nevery = \"500ms\"\n\
         [attempts]\nbackoff_min = \"300ms\"\nbackoff_max = \"1s\"\n\
         [[apply]]\nname = \"install\"\ncommand = [\"{command}\"]\n\
         [[validate]]\nname = \"look\"\ncommand = [\"/bin/true\"]\n"
    );
    let mut host = host.with(&step);
    host.start();
    etcd.store().put("/current_version", "1");
    host
}

fn logs(host: &Host, more: &[&str]) -> CommandOutput {
    host.command(&[&["logs", "--this-host"], more].concat(), "")
}

fn wait_for_logs(host: &Host, more: &[&str], expected: &str) {
    let shown = || logs(host, more).out.contains(expected).then_some(());
    wait::until(expected, shown, || format!("{:?}", logs(host, more)));
}

fn follow(host: &Host) -> Running {
    host.start_command(&["logs", "--this-host", "--step", "install", "--follow"], "followed")
}

#[test]
fn a_step_that_runs_is_followed_to_its_end_and_no_secret_is_shown() {
    let etcd = Etcd::single();
    let script = "echo first; echo \"the password is $DB_PASSWORD\"; printf 'half a '\n\
         while [ ! -e go ]; do sleep 0.1; done; echo line; echo last";
    let host = host_with(script, &etcd);
    wait_for_logs(&host, &[], "first\nthe password is ***\n");
    let running = logs(&host, &[]);
    assert!(running.err.starts_with("apply step install of 1, attempt 1, run "), "{running:?}");
    assert!(running.err.ends_with(": running\n") && !running.out.contains("half"), "{running:?}");
    let mut followed = follow(&host);
    wait::until(
        "it is followed",
        || host.read("followed").contains("***").then_some(()),
        || host.read("followed"),
    );
    host.write("go", "");
    let code = wait::until("the end is seen", || followed.ended(), || host.read("followed"));
    assert_eq!(code, Some(0));
    let shown = host.read("followed");
    assert!(shown.contains("first\nthe password is ***\n"), "{shown}");
    assert!(
        shown.contains("half a line\nlast\n") && shown.contains("the step exited with code 0"),
        "{shown}"
    );
    assert_eq!(shown.matches("first\n").count(), 1, "{shown}");
    host.wait_for_listing(&etcd.store(), "1");
}

#[test]
fn earlier_runs_are_listed_and_shown_by_step_attempt_and_id() {
    let etcd = Etcd::single();
    let script =
        "echo \"attempt $ORCHESTRATE_STEP_ATTEMPT\"; [ \"$ORCHESTRATE_STEP_ATTEMPT\" = 2 ] || exit 7";
    let host = host_with(script, &etcd);
    host.wait_for_listing(&etcd.store(), "1");
    // Validations are repeated for ever, and push no run of an update out.
    let validations = || {
        let list = logs(&host, &["--list", "-o", "json"]).out;
        let list: Value = serde_json::from_str(&list).expect("JSON");
        let runs = list["runs"].as_array().expect("a list");
        (runs.iter().filter(|run| run["step"] == "look").count() == 20).then(|| runs.clone())
    };
    let runs = wait::until_within(
        std::time::Duration::from_secs(60),
        "twenty validations are kept",
        validations,
        || logs(&host, &["--list"]).out,
    );
    let installs: Vec<&Value> = runs.iter().filter(|run| run["step"] == "install").collect();
    assert_eq!(installs.len(), 2, "{installs:#?}");
    assert_eq!((&installs[0]["attempt"], &installs[0]["end"]), (&2.into(), &"exited with code 0".into()));
    assert_eq!((&installs[1]["attempt"], &installs[1]["end"]), (&1.into(), &"exited with code 7".into()));
    let check = |more: &[&str], code: i32, expected: &str| {
        let answer = logs(&host, more);
        assert_eq!((answer.code, answer.out.as_str()), (code, expected), "{more:?}: {answer:?}");
    };
    check(&["--step", "install"], 0, "attempt 2\n");
    check(&["--step", "install", "--attempt", "1"], 0, "attempt 1\n");
    check(&["--run", installs[1]["run"].as_str().expect("an id")], 0, "attempt 1\n");
    check(&["--step", "look"], 0, "");
    check(&["--step", "nothing"], 1, "");
    let table = logs(&host, &["--list"]).out;
    assert!(table.starts_with("BEGAN"), "{table}");
    assert!(
        table.lines().any(|line| line.contains("install") && line.ends_with("exited with code 7")),
        "{table}"
    );
    let elsewhere = host.command(&["logs", "web2", "--follow"], "");
    assert_eq!(elsewhere.code, 64, "{elsewhere:?}");
    assert!(elsewhere.err.contains("use them on web2"), "{elsewhere:?}");
}

#[test]
fn the_output_of_a_step_whose_runner_was_killed_is_kept_and_one_that_cannot_start_says_why() {
    let etcd = Etcd::single();
    let script = "if [ ! -e go ]; then echo before; sleep 1.5; kill -9 $PPID; sleep 60; fi";
    let host = host_with(script, &etcd);
    let interrupted = || {
        let list: Value = serde_json::from_str(&logs(&host, &["--list", "-o", "json"]).out).ok()?;
        let found = list["runs"].as_array()?.iter().find(|run| run["state"] == "interrupted")?;
        Some(found["run"].as_str()?.to_owned())
    };
    let run = wait::until("an interrupted run", interrupted, || logs(&host, &["--list"]).out);
    assert_eq!(logs(&host, &["--run", &run]).out, "before\n");
    host.write("go", "");
    host.wait_for_listing(&etcd.store(), "1");
    host.remove("install");
    etcd.store().put("/current_version", "2");
    let refused = || logs(&host, &["--step", "install"]).err.contains("could not be started: ").then_some(());
    wait::until("a step that cannot start", refused, || logs(&host, &["--list"]).out);
}

#[test]
fn logs_of_a_machine_without_an_agent_say_so() {
    let etcd = Etcd::single();
    let host = Host::new("web1", &etcd.endpoints());
    let answer = logs(&host, &[]);
    assert_eq!(answer.code, 2, "{answer:?}");
    assert!(answer.err.contains("no agent listens on "), "{answer:?}");
    let neither = host.command(&["logs"], "");
    assert_eq!(neither.code, 64, "{neither:?}");
    assert!(neither.err.contains("name a host, or use --this-host"), "{neither:?}");
}

#[test]
fn the_whole_output_is_shown_from_its_begin_on_without_secrets_and_says_where_it_was_cut() {
    let etcd = Etcd::single();
    // About 400 KiB, and then 6 MiB. The secret stands on many borders of what is read at once.
    let script = "i=0; while [ $i -lt 8000 ]; do echo \"line $i with $DB_PASSWORD and some more words\"; i=$((i+1)); done\n\
         if [ \"$ORCHESTRATE_STEP_ATTEMPT\" = 1 ]; then exit 7; fi\n\
         head -c 6000000 /dev/zero | tr '\\0' x | fold -w 99; echo; echo the last line";
    let host = host_with(script, &etcd);
    host.wait_for_listing(&etcd.store(), "1");
    let of = |attempt: &str, more: &[&str]| {
        logs(&host, &[&["--attempt", attempt, "--step", "install"], more].concat())
    };
    let last = of("1", &[]);
    assert!(last.err.contains(" lines before; with --whole they are printed"), "{}", last.err);
    assert!(
        !last.out.contains("line 0 ") && last.out.contains("line 7999 with ***"),
        "{} bytes",
        last.out.len()
    );
    let whole = of("1", &["--whole"]).out;
    let lines: Vec<String> = (0..8000).map(|n| format!("line {n} with *** and some more words\n")).collect();
    assert!(whole == lines.concat(), "{} bytes", whole.len());
    let cut = of("2", &["--whole"]).out;
    assert!(cut.starts_with("line 0 with ***") && cut.ends_with("the last line\n"), "{} bytes", cut.len());
    assert_eq!(cut.matches("[the output between is not kept; its last part:]").count(), 1);
    assert!((4_000_000..5_000_000).contains(&cut.len()), "{} bytes", cut.len());
    assert_eq!(logs(&host, &["--whole", "--follow"]).code, 64);
}

#[test]
fn the_whole_output_of_a_step_is_printed_from_the_bundle_of_its_cause() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let objects = tempfile::tempdir().expect("a directory");
    let temporary = tempfile::tempdir().expect("a directory");
    let object = objects.path().join("web-1.tar.zst");
    let url = format!("file://{}", object.display());
    let from = format!("file://{}", objects.path().display());
    let upload = |parts: &[(&str, &str)]| {
        let about = serde_json::json!({
            "format": 1, "program": "0.1.0", "host": "web-1", "version": "43",
            "rollout": { "epoch": 3, "revision": 2 }, "attempt": 2, "failed_at": 1_416_300_000,
            "cause": { "fingerprint": "f1-00000000000a", "line": "" },
        });
        let about = serde_json::from_value(about).expect("a head");
        let redactor = Redactor::default();
        let file = Digested::new(std::fs::File::create(&object).expect("an object"));
        let mut bundle = BundleWriter::new(file, &about, &redactor).expect("a bundle");
        for (name, content) in parts {
            bundle.add(name, content.as_bytes(), Cut::default()).expect("a part");
        }
        let (_, sha256, _) = bundle.finish().expect("written").finish();
        for (key, value) in entries((&url, &sha256)) {
            store.put(&key, &value);
        }
    };
    let check = |line: &str, code: i32, out: &str, err: &[&str]| {
        let mut command = Command::new(binary("orchestrate"));
        // The first word may set a variable.
        let line = line.replace("@FROM", &from);
        let words: Vec<&str> = line.split(' ').collect();
        let (variables, words) = words.split_at(usize::from(words[0].contains('=')));
        command
            .args(words)
            .env_clear()
            .envs(variables.iter().filter_map(|variable| variable.split_once('=')))
            .env("ORCHESTRATE_ENDPOINTS", etcd.endpoint(0))
            .env("TMPDIR", temporary.path());
        let answer: CommandOutput = run(&mut command, "").into();
        assert_eq!((answer.code, answer.out.as_str()), (code, out), "{line}: {answer:?}");
        for part in err {
            assert!(answer.err.contains(&part.replace("@URL", &url)), "{line}: {answer:?}");
        }
        let left = std::fs::read_dir(temporary.path()).expect("a directory").count();
        assert_eq!(left, 0, "{line}");
    };
    let end = ("steps/01-apply-install.end", "exited with code 3");
    let log = ("steps/01-apply-install.log", "first\nsteering \u{1b}[2J\nlast\n");
    let whole = "first\nsteering \u{fffd}[2J\nlast\n";
    let ended = "apply step install of 43, attempt 2: exited with code 3\n";
    upload(&[end, log]);
    check("logs web-1 --from @FROM", 0, whole, &[ended, "from the bundle @URL of web-1:\n"]);
    let same = "from the bundle @URL of web-1, which failed for the same cause:\n";
    check("logs web-2 --from @FROM", 0, whole, &[ended, same]);
    check("logs web-1 --from file:///srv/elsewhere", 3, "", &["which is not below file:///srv/elsewhere"]);
    let why = "name the object store of the fleet with --from or ORCHESTRATE_BUNDLES";
    check("logs web-1 --whole", 64, "", &[why]);
    check("ORCHESTRATE_BUNDLES=elsewhere logs web-1 --whole", 64, "", &["ORCHESTRATE_BUNDLES: "]);
    check("ORCHESTRATE_BUNDLES=@FROM logs web-2 --whole", 0, whole, &[same]);
    check("ORCHESTRATE_BUNDLES=@FROM logs web-2", 0, "the last line\n", &[]);
    let key = "/orchestrate/reports/web-2";
    let with_log = store.get(key).expect("a report");
    store.put(key, &with_log.replace("[\"the last line\"]", "[]"));
    check("logs web-2", 0, "", &["web-2 failed: "]);
    check(
        "ORCHESTRATE_BUNDLES=@FROM logs web-2",
        0,
        whole,
        &["web-2 failed: ", "it printed nothing\n", ended, same],
    );
    // After a repair, the report still names the bundle.
    let uploaded = "/orchestrate/reports/web-1";
    let failed = store.get(uploaded).expect("a report");
    let mut repaired = keys::Report::read(failed.as_bytes()).expect("a report");
    (repaired.verdict, repaired.log) = (HostVerdict::Ok, Default::default());
    store.put(uploaded, &codec::write(&repaired));
    check("ORCHESTRATE_BUNDLES=@FROM logs web-1", 0, "", &["because no step failed or was deferred"]);
    store.put(key, &with_log);
    upload(&[end, ("steps/01-apply-install.log", "")]);
    check("logs web-1 --from @FROM", 0, "", &[ended, "it printed nothing"]);
    upload(&[end, log, ("steps/01-apply-install.last.log", "end\n")]);
    let cut = format!("{whole}\n[the output between is not kept; its last part:]\nend\n");
    check("logs web-1 --from @FROM", 0, &cut, &[]);
    upload(&[end]);
    let rest = "`orchestrate bundle web-1` fetches what it has";
    check("logs web-1 --from @FROM", 1, "", &["has no output of a step: the bundle does not say why", rest]);
    upload(&[]);
    check("logs web-1 --from @FROM", 1, "", &["has no output of a step: no step ran", rest]);
    std::fs::write(&object, "something else").expect("written");
    check("logs web-2 --from @FROM", 2, "", &["@URL is not what web-1 uploaded: its SHA-256 is "]);
    std::fs::remove_file(&object).expect("removed");
    check("logs web-2 --from @FROM", 1, "", &["@URL does not exist any more"]);
}
