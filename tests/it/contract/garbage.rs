//! Garbage in the store, and a big fleet.

use super::empty::{NEITHER, NOT_READ};
use super::filled::reads_of_a_filled_store;
use super::fleet::{FLEET, clear, discovery_service, fill, fill_bytes};
use super::rows::{World, check, check_all, check_writes, report, row};
use tests::etcd::Etcd;
use tests::host::CommandOutput;
use tests::process::run;

const STEERING: &str = "\u{1b}[2J\u{7}";

/// Returns keys and values that no program of this project writes.
pub(super) fn garbage() -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut facts = Vec::new();
    let long = "x".repeat(300);
    let names: [&[u8]; 9] =
        [b"a b", b"../x", b"", b"\xff\xfe", STEERING.as_bytes(), b"a/b/c", b"-a", b"a\n", long.as_bytes()];
    for name in names {
        for prefix in [
            "/running_version/43/",
            "/running_version/",
            "/status/puppet/failed/",
            "/status/puppet/pending/",
            "/status/validation/failed/",
            "/status/puppet/",
            "/status/",
            "/orchestrate/hosts/",
            "/orchestrate/live/",
            "/orchestrate/reports/",
            "/orchestrate/announced/",
            "/orchestrate/retry/",
            "/orchestrate/reporting/validation/",
            "/orchestrate/reporting/",
            "/orchestrate/config/",
            "/config_state/global/",
            "/config_state/role/cp/",
            "/config_state/host/",
            "/config_state/enable_puppet/host/",
            "/config_state/enable_puppet/",
            "/config_state/",
        ] {
            facts.push(([prefix.as_bytes(), name].concat(), b"garbage".to_vec()));
        }
        facts.push(([b"/running_version/", name, b"/web-1"].concat(), b"1".to_vec()));
        facts.push(([b"/status/", name, b"/failed/web-1"].concat(), b"1".to_vec()));
    }
    facts
}

#[test]
fn garbage_keys_become_no_part_of_an_answer() {
    let etcd = Etcd::single();
    let store = etcd.store();
    fill(&store, &FLEET);
    fill_bytes(&store, garbage().into_iter());
    let world = World { discovery: discovery_service(), ..World::new(&etcd.endpoint(0)) };
    check_all(&world, &reads_of_a_filled_store());
}

#[test]
fn many_values_that_cannot_be_read_are_named_in_part_and_counted() {
    let etcd = Etcd::single();
    let entries: Vec<_> = (0..12).map(|n| (format!("/orchestrate/hosts/h{n}"), "garbage")).collect();
    fill(&etcd.store(), &entries.iter().map(|(key, value)| (key.as_str(), *value)).collect::<Vec<_>>());
    let directory = tempfile::tempdir().expect("a directory");
    let world = World::new(&etcd.endpoint(0));
    let output: CommandOutput = run(world.command(directory.path()).args(["hosts", "list"]), "").into();
    assert_eq!(output.err.matches(" cannot be read\n").count(), 10, "{}", output.err);
    assert!(output.err.contains("warning: and 2 more of this kind\n"), "{}", output.err);
}

#[test]
fn a_claim_without_a_host_hides_no_lost_one() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let world = World::new(&etcd.endpoint(0));
    let lost = "Failures:\n  Node: lost-1, Check: liveness\n";
    let entry = ("/orchestrate/hosts/lost-1", r#"{"format":1,"since":1}"#);
    for claim in ["/orchestrate/live/not a host", "/orchestrate/live/on-no-roster"] {
        check_writes(
            &world,
            &store,
            &[entry, (claim, "{}")],
            &[row("as many claims as entries", "get_failures --hosts", 1, lost)],
        );
    }
}

#[test]
fn garbage_values_are_no_answer_and_no_crash() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let world = World::new(&etcd.endpoint(0));
    let values: [&[u8]; 8] = [
        b"",
        b"\xff\xfe\x00",
        STEERING.as_bytes(),
        b"\"43\"",
        b"[1]",
        br#"{"format":99}"#,
        br#"{"format":1,"at":"yesterday","since":"then"}"#,
        b"{\"format\":1,",
    ];
    for value in values {
        clear(&store);
        let facts = [
            "/running_version/43/web-1",
            "/running_version/43/web-2",
            "/status/validation/failed/web-1",
            "/status/puppet/pending/web-1",
            "/orchestrate/hosts/web-1",
            "/orchestrate/hosts/web-2",
            "/orchestrate/live/web-2",
            "/orchestrate/reports/web-1",
            "/orchestrate/reports/web-2",
            "/orchestrate/announced/web-1",
            "/orchestrate/reporting/puppet/web-1",
            "/orchestrate/retry/web-1",
            "/orchestrate/store",
            "/current_version",
            "/config_state/role/cp/enable_puppet",
            "/config_state/enable_puppet/role/oc",
        ];
        fill_bytes(&store, facts.iter().map(|key| (key.as_bytes().to_vec(), value.to_vec())));
        let failures = "Failures:\n  Node: web-1, Check: validation\n";
        let rows = [
            row("no version", "current_version", 0, "None\n"),
            row("no version, first generation", "current_version", 1, "").first_generation(),
            row("no version is not 'no update'", "pending_update", 2, NOT_READ).installed("42"),
            row("no version is not 'an update'", "pending_update", 3, NEITHER),
            row("keys say who runs what", "running_versions", 0, "43\n"),
            row("keys say who runs what", "verify_hosts 43 web-1 web-2", 0, ""),
            row("keys say who runs what", "check_single_version 43", 0, ""),
            row("keys say who failed", "get_failures --hosts", 1, failures),
            row("keys say who failed, in JSON", "get_failures -o json --show_warnings", 1, "").any_json(),
            row("keys say that it failed", "local_health -v", 1, "validation: failed\n"),
            row("the fleet is not settled", "status", 1, "")
                .contains("fleet: failing\ndesired: not a version"),
            row("the fleet in JSON", "status -o json", 1, "").any_json(),
            row("no report", "logs web-1", 2, ""),
            row("no report", "bundle web-1 --from file:///srv", 2, ""),
            row("why", "why web-1", 0, "").contains("verdict:      failed\n"),
            row("why, in JSON", "why -o json web-2", 0, "").any_json(),
            row("the roster", "hosts list", 0, "").contains("web-1"),
            row("the roster in JSON", "hosts list -o json", 0, "").any_json(),
            row("no identity", "store show", 2, "").contains("lineage:  none\n"),
            row("no identity to go on from", "store accept --version 43", 2, "").says("--lineage"),
            row("an entry is not overwritten", "hosts add web-1 --role web", 2, ""),
            row("what nobody understands enables nothing", "check_puppet -n cp1", 9, ""),
            row("what nobody understands lets nobody go", "check_puppet -n oc1", 9, ""),
            row("no version, no upgrade", "rolling_upgrade status", 2, ""),
            row("no version is replaced by an upgrade", "rolling_upgrade upgrade 43", 2, "")
                .with("ORCHESTRATE_UPGRADE_FILE", "@HOST/none"),
            row("nobody says that all are settled", "trigger_update --require-settled 43", 3, ""),
        ];
        check_all(&world, &rows);
        let mended = row("whatever stood there", "trigger_update 43", 0, "").stands("/current_version", "43");
        report(&Vec::from_iter(check(&world, Some(&store), &mended).err()));
    }
}

/// Hosts are checked one by one, or with the whole list of the version: both ways name the host
/// that does not confirm its listing, and the answer stays the same.
#[test]
fn a_listing_that_the_host_does_not_confirm_is_named_and_the_answer_stays() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let hosts: Vec<String> = (0..300).map(|number| format!("host-{number:03}")).collect();
    let put = |key: String, value: &str| (key.into_bytes(), value.as_bytes().to_vec());
    let facts = hosts.iter().flat_map(|host| {
        [
            put(format!("/running_version/43/{host}"), "1416300000"),
            put(format!("/orchestrate/announced/{host}"), "43"),
        ]
    });
    fill_bytes(&store, facts);
    store.put("/current_version", "43");
    let world = World::new(&etcd.endpoint(0));
    let directory = tempfile::tempdir().expect("a directory");
    let check = |arguments: &[&str], listed: &[String], code: i32, expected: &str| {
        let result: CommandOutput =
            run(world.command(directory.path()).args(arguments), &listed.join("\n")).into();
        assert_eq!((result.code, result.err.as_str()), (code, expected), "{arguments:?} {}", listed.len());
    };
    let (all, few, verify) = (&hosts[..], &hosts[..9], ["verify_hosts", "43"]);
    check(&verify, all, 0, "");
    check(&verify, few, 0, "");
    check(&["status"], &[], 0, "");
    let named = "warning: listings under 43 that are not confirmed (1): host-003\n";
    let says = "/orchestrate/announced/host-003";
    // Somebody listed the host under 43, but the host announces 42.
    store.put(says, "42");
    store.put("/running_version/42/host-003", "1416300000");
    for fleet in [1, 0] {
        check(&verify, all, 0, named);
        check(&verify, few, 0, named);
        check(&["status"], &[], fleet, named);
        check(&["why", "host-003"], &[], 0, named);
        check(&["verify_hosts", "43", "--strict"], all, 1, "not at 43 (1): host-003\n");
        // The agent of the host is gone.
        store.delete(says);
        store.delete("/running_version/42/host-003");
    }
}

/// Number of hosts; more than a page of any read.
const MANY: usize = 2500;

#[test]
fn a_big_fleet_is_answered_whole() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let host = |number: usize| format!("host-{number:05}");
    let put = |key: String, value: &str| (key.into_bytes(), value.as_bytes().to_vec());
    // The values are long, so that pages are also needed because of their size.
    let label = "y".repeat(400);
    let entry = format!(r#"{{"format":1,"labels":{{"note":"{label}"}},"since":1416300000}}"#);
    let facts = (0..MANY).flat_map(|number| {
        let host = host(number);
        let state = if number % 2 == 0 { "failed" } else { "success" };
        [
            put(format!("/running_version/43/{host}"), "1416300000"),
            put(format!("/orchestrate/hosts/{host}"), &entry),
            put(format!("/status/validation/{state}/{host}"), r#"{"format":1,"at":1416300000,"code":1}"#),
        ]
    });
    fill_bytes(&store, facts);
    store.put("/current_version", "43");
    let all: Vec<String> = (0..MANY).map(host).collect();
    let lines = |hosts: &[String]| hosts.iter().map(|h| format!("{h}\n")).collect::<String>();
    let failed: String = all.iter().step_by(2).map(|h| format!("  Node: {h}, Check: validation\n")).collect();
    let first: String = all.iter().step_by(2).map(|h| format!("Validation failure:{h}\n")).collect();
    let rows = [
        row("everybody", "hosts_at_version 43", 0, &lines(&all)),
        row("everybody is there", "verify_hosts 43", 0, "").input(&lines(&all)),
        row("a page of hosts is there", "verify_hosts 43", 0, "").input(&lines(&all[..1000])),
        row("more hosts than one transaction holds", "verify_hosts 43", 0, "")
            .input(&lines(&all[1200..1400])),
        row("all but one", "verify_hosts 43", 1, "")
            .input(&format!("{}nobody\n", lines(&all)))
            .says("(1): nobody"),
        row("all but one of a few", "verify_hosts 43", 1, "")
            .input(&format!("{}nobody\n", lines(&all[..900]))),
        row("one version", "check_single_version 43", 0, ""),
        row("half of them failed", "get_failures --hosts", 1, &format!("Failures:\n{failed}")),
        row("half of them failed, first generation", "get_failures --hosts", 1, &first).first_generation(),
        row(
            "half of them, counted",
            "get_failures",
            1,
            &format!("Validation failures :{}\nPuppet failures :0\n", MANY / 2),
        ),
        row("half of them, in JSON", "get_failures -o json", 1, "").any_json(),
        row("what may explain it", "debug_timeout 43", 0, "").contains("   host-02499\n"),
        row("the fleet", "status", 1, "")
            .contains("hosts: 2500 (1250 failed, 1250 ok)\n\nVERSION  HOSTS\n43       2500\n"),
        row("the roster", "hosts list -o json", 0, "").contains("host-02499"),
    ];
    check_all(&World::new(&etcd.endpoint(0)), &rows);
}
