//! The agent's claim of this host, the files of this host, standard input and output.

use super::empty::{NO, NOT_READ, YES};
use super::fleet::{FLEET, fill};
use super::rows::{MARGIN, NOWHERE, SHORT, World, check_all, check_writes, row};
use std::fs::File;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tests::etcd::Etcd;
use tests::host::CommandOutput;
use tests::process::{binary, run};
use tests::wait;

#[test]
fn beside_an_agent_that_drives_nothing_is_reported_and_nothing_begins() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let world = World::new(&etcd.endpoint(0));
    let claim = |driver: &str| {
        format!(r#"{{"format":1,"instance":"i1","machine_id":"m","boot_id":"b","driver":"{driver}"}}"#)
    };
    let refused = || {
        vec![
            row("it reports results", "update_own_status puppet 4", 3, "")
                .gone("/status/puppet/failed/web-1"),
            row("it reports results, by the old name", "update_own_status validation_service 1", 3, "")
                .gone("/status/validation/failed/web-1"),
            row("what it does not report is reported", "update_own_status provisioned 1", 0, "")
                .something_stands("/status/provisioned/failed/web-1"),
            row("it announces", "update_own_info --version 9", 3, "").gone("/running_version/9/web-1"),
            row("another host has no agent", "update_own_info --hostname db-1 --version 9", 0, "")
                .something_stands("/running_version/9/db-1"),
            row("it applies", "pending_update", 2, YES).installed("42").says("agent"),
            row("it applies, nothing to do", "pending_update", 2, NO).installed("43"),
            row("looking only", "pending_update --peek", 0, YES).installed("42"),
            row("looking only, nothing to do", "pending_update --peek", 1, NO).installed("43"),
            row("it lives", "hosts decommission web-1", 3, "").something_stands("/running_version/43/web-1"),
            row("it lives, but must go", "hosts decommission web-1 --force", 0, "")
                .gone("/running_version/43/web-1"),
        ]
    };
    // An unknown or unreadable claim may be from a newer program; it counts as that of an agent
    // that drives.
    for value in [claim("agent"), claim("something new"), r#"{"format":99}"#.into(), "garbage".into()] {
        let facts: Vec<_> = FLEET.into_iter().chain([("/orchestrate/live/web-1", value.as_str())]).collect();
        check_writes(&world, &store, &facts, &refused());
    }
    let external = claim("external");
    let facts: Vec<_> = FLEET.into_iter().chain([("/orchestrate/live/web-1", external.as_str())]).collect();
    let rows = [
        row("a script reports", "update_own_status puppet 4", 0, "")
            .something_stands("/status/puppet/failed/web-1"),
        row("a script announces", "update_own_info --version 9", 0, "")
            .something_stands("/running_version/9/web-1"),
        row("a script applies", "pending_update", 0, YES).installed("42"),
        row("a script has nothing to apply", "pending_update", 1, NO).installed("43"),
    ];
    check_writes(&world, &store, &facts, &rows);
}

#[test]
fn files_that_are_not_as_they_should_be() {
    let etcd = Etcd::single();
    fill(&etcd.store(), &FLEET);
    let directory = "ORCHESTRATE_LOCAL_VERSION_FILE";
    let long = "x".repeat(100_000);
    let rows = [
        row("a file that is a directory", "local_version", 1, "").with(directory, "@HOST"),
        row("a file that is a directory is not written", "local_version 43", 1, "")
            .with(directory, "@HOST/state"),
        row("its directory is not there", "local_version 43", 0, "\n")
            .with(directory, "@HOST/none/current_version"),
        row("nothing there to read", "local_version", 0, "\n").with(directory, "@HOST/none/current_version"),
        row("unreadable is never 'no', nor 'nothing is installed'", "pending_update", 2, NOT_READ)
            .with(directory, "@HOST"),
        row("unreadable is not announced", "update_own_info", 2, "").with(directory, "@HOST"),
        row("whatever is installed, it is not that", "pending_update", 0, YES).installed("43 44"),
        row("white space is nothing", "pending_update", 0, YES).installed(" \n"),
        row("a state directory that is not there costs the memory alone", "current_version", 0, "43\n")
            .with("ORCHESTRATE_STATE_DIR", "/proc/none"),
    ];
    check_all(&World::new(&etcd.endpoint(0)), &rows);
    let memory = [
        row("a memory of nonsense", "current_version", 0, "None\n").remembered("\u{1b}[31m"),
        row("an empty memory", "current_version", 0, "None\n").remembered(""),
    ];
    check_all(&World::new(NOWHERE).within(SHORT), &memory);
    // A file that is larger than any version is not read.
    let large: &'static str = Box::leak(long.into_boxed_str());
    let rows = [
        row("a file too large", "local_version", 1, "").installed(large),
        row("a file too large is never 'no'", "pending_update", 2, NOT_READ).installed(large),
    ];
    check_all(&World::new(&etcd.endpoint(0)), &rows);
}

#[test]
fn the_last_version_read_by_any_verb_is_remembered() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(directory.path().join("state")).expect("made");
    let say = |world: World, arguments: &[&str]| -> CommandOutput {
        run(world.command(directory.path()).args(arguments), "").into()
    };
    let here = || World::new(&etcd.endpoint(0));
    let away = || World::new(NOWHERE).within(SHORT);
    store.put("/running_version/v0/web-1", "1416300000");
    let reading = [
        &["pending_update"][..],
        &["current_version"],
        &["status"],
        &["unaccounted"],
        &["why", "web-1"],
        &["store", "show"],
    ];
    for (number, arguments) in reading.into_iter().enumerate() {
        let version = format!("v{number}");
        store.put("/current_version", &version);
        assert_ne!(say(here(), arguments).code, 2, "{arguments:?}");
        assert_eq!(say(away(), &["current_version"]).out, format!("{version}\n"), "{arguments:?}");
    }
    assert_eq!(say(here(), &["trigger_update", "v9"]).code, 0);
    assert_eq!(say(away(), &["current_version"]).out, "v9\n");
    // The first acceptance, as the manual has it, is no reason to worry.
    let accepted = say(here(), &["store", "accept", "--version", "v10"]);
    assert_eq!(accepted.code, 0);
    assert!(accepted.err.contains("new lineage") && !accepted.err.contains("warning"), "{}", accepted.err);
    assert_eq!(say(away(), &["current_version"]).out, "v10\n");
}

#[test]
fn a_list_of_hosts_that_never_ends_is_not_waited_for() {
    let etcd = Etcd::single();
    fill(&etcd.store(), &FLEET);
    let directory = tempfile::tempdir().expect("a directory");
    for (arguments, code) in [
        (&["verify_hosts", "43"][..], 2),
        (&["verify_hosts", "43", "--wait", "100ms"], 2),
        // With hosts as arguments, standard input is not read.
        (&["verify_hosts", "43", "web-1"], 0),
        // No other verb reads standard input.
        (&["check_single_version", "42"], 1),
    ] {
        let world = World::new(&etcd.endpoint(0)).within(Duration::from_millis(800));
        let before = Instant::now();
        let mut child = world.command(directory.path());
        let mut child =
            child.args(arguments).stdin(Stdio::piped()).stderr(Stdio::null()).spawn().expect("started");
        let mut input = child.stdin.take().expect("piped");
        // The command may have ended without reading its input.
        let _ = input.write_all(b"web-1\nweb-2\n");
        let limit = world.timeout + MARGIN;
        let status = wait::until_within(
            limit.saturating_sub(before.elapsed()),
            "it ends with its input open",
            || child.try_wait().expect("waiting"),
            || format!("{arguments:?}"),
        );
        assert_eq!(status.code(), Some(code), "{arguments:?}");
        drop(input);
    }
}

#[test]
fn a_terminal_counts_as_no_hosts() {
    let etcd = Etcd::single();
    let directory = tempfile::tempdir().expect("a directory");
    if Command::new("script").arg("--version").output().is_err() {
        tests::skip("contract::local::a_terminal_counts_as_no_hosts", "no script(1) on the PATH");
        return;
    }
    let world = World::new(&etcd.endpoint(0));
    let own = world.command(directory.path());
    let mut command = Command::new("script");
    for (name, value) in own.get_envs() {
        command.env(name, value.expect("set"));
    }
    let line = format!("'{}' verify_hosts 43", binary("orchestrate").display());
    command.args(["-q", "-e", "-c", &line, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = command.spawn().expect("started");
    // Nothing is typed, and the input stays open.
    let input = child.stdin.take();
    let status = wait::until("it ends", || child.try_wait().expect("waiting"), String::new);
    assert_eq!(status.code(), Some(1));
    drop(input);
}

#[test]
fn a_reader_that_went_away_is_no_trouble_and_a_full_disk_is() {
    let etcd = Etcd::single();
    fill(&etcd.store(), &FLEET);
    let world = World::new(&etcd.endpoint(0));
    let directory = tempfile::tempdir().expect("a directory");
    for (arguments, code) in [
        (&["hosts_at_version", "43"][..], 0),
        (&["get_failures", "--hosts"], 1),
        (&["status", "-o", "json"], 1),
        (&["completion", "bash"], 0),
        (&["--help"], 0),
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = world.command(directory.path());
        let output = command.args(arguments).stdout(writer).output().expect("run");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
        assert!(!errors.contains("panicked") && !errors.contains("roken pipe"), "{arguments:?}: {errors}");
    }
    for arguments in [&["hosts_at_version", "43"][..], &["get_failures", "--hosts"], &["completion", "bash"]]
    {
        let full = File::options().write(true).open("/dev/full").expect("Linux has it");
        let mut command = world.command(directory.path());
        let output = command.args(arguments).stdout(full).stderr(Stdio::piped()).output().expect("run");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: an answer that did not arrive is none");
    }
    // The same holds for a closed reader of standard error.
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let status =
        world.command(directory.path()).args(["why", "nobody"]).stderr(writer).status().expect("run");
    assert_eq!(status.code(), Some(1));
}
