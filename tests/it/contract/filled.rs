//! Every verb on a filled store.

use super::empty::{NO, TOKEN, YES};
use super::fleet::{FLEET, assert_every_verb, discovery_service, fill};
use super::rows::{Row, SAMPLE_LINT, World, check_all, check_writes, row};
use std::time::Duration;
use tests::etcd::Etcd;
use tests::proxy::{Behaviour, Proxy};

const FAILURES: &str = "Failures:
  Node: db-1, Check: puppet
  Node: db-1, Check: validation (stale)
  Node: lost-1, Check: liveness
  Node: web-2, Check: validation
";

pub(super) fn reads_of_a_filled_store() -> Vec<Row> {
    let with = |text: &str| format!("{FAILURES}{text}");
    vec![
        row("the desired version, without its newline", "current_version", 0, "43\n").installed("42"),
        row("the desired version, first generation", "current_version", 0, "43\n").first_generation(),
        row("a member answers", "ping", 0, "Connection succesful\n"),
        row("another version is desired", "pending_update", 0, YES).installed("42\n"),
        row("nothing is installed", "pending_update", 0, YES),
        row("the desired version is installed", "pending_update", 1, NO).installed("43\n"),
        row("the desired version, by an old tool without newline", "pending_update", 1, NO).installed("43"),
        row("looking only", "pending_update --peek", 0, YES).installed("42"),
        row("a command needs an agent", "with-claim -- true", 2, "").says("no agent listens on"),
        row("a page needs a store that can be read", "ui --user a:b", 2, "").says("the store has no users yet"),
        row("the installed version, stripped", "local_version", 0, "42\n").installed(" 42 \n"),
        row("each version once", "running_versions", 0, "42\n43\n"),
        row("there is no freeze", "freezes", 0, ""),
        row("there is no policy", "policy show", 1, ""),
        row("nobody is counted", "claims", 0, ""),
        row("all there", "verify_hosts 43", 0, "").input("web-1\nweb-2\n"),
        row("all there, as sent from elsewhere", "verify_hosts 43", 0, "")
            .input("\n  web-1\r\nweb-2\n web-1\n\n"),
        row("all there, as arguments", "verify_hosts 43 web-2 web-1", 0, ""),
        row("all of a role there", "verify_hosts 43 --role web --group front", 0, "").input("db-1\n"),
        row("hosts and a selection", "verify_hosts 43 web-1 --role web", 64, ""),
        row("a label that no host has, for scripts", "verify_hosts 43 --label rack=r1 --label zone=a", 1, "")
            .says("no host of the fleet has the label \"zone=a\""),
        row("all there at once", "verify_hosts --wait 10s 43", 0, "").input("web-1"),
        row("arguments win over standard input", "verify_hosts 43 web-1", 0, "").input("db-1\n"),
        row("one is elsewhere", "verify_hosts 43", 1, "").input("web-1\ndb-1\n").says("not at 43 (1): db-1"),
        row("one stays elsewhere", "verify_hosts --wait 300ms 43 db-1", 1, "").says("not at 43 (1): db-1"),
        row("a part of a name is no name", "verify_hosts 43", 1, "").input("web\n"),
        row("a part of a version is no version", "verify_hosts 4 web-1", 1, ""),
        row("no hosts", "verify_hosts 43", 1, "").input(" \n\n\t\n").says("no hosts given"),
        row("a line that is no host", "verify_hosts 43", 1, "").input("web-1\nweb_2\n").says("\"web_2\""),
        row("a line that would steer a terminal", "verify_hosts 43", 1, "")
            .input("web-1\n\u{1b}[2J\n")
            .says("u{1b}"),
        row("two versions run", "check_single_version 43", 1, ""),
        row(
            "two versions run, in words",
            "check_single_version -v 43",
            1,
            "Wanted version found: True\nUnwanted versions found: 42\n",
        ),
        row(
            "neither is wanted",
            "check_single_version --verbose 44",
            1,
            "Wanted version found: False\nUnwanted versions found: 42, 43\n",
        ),
        row("counts of failures", "get_failures", 1, "Validation failures :1\nPuppet failures :1\n")
            .says("validation (stale) (1): db-1")
            .says("liveness (1): lost-1"),
        row("counts, first generation", "get_failures", 1, "Validation failures :1\nPuppet failures :1\n")
            .first_generation(),
        row("failures by host", "get_failures --hosts", 1, FAILURES),
        row(
            "with what is pending",
            "get_failures --hosts --show_warnings",
            1,
            &with("Warnings:\n  Node: db-2, Check: puppet\n"),
        ),
        row(
            "failures by host, first generation",
            "get_failures --hosts",
            1,
            "Validation failure:web-2\nPuppet failure:db-1\n",
        )
        .first_generation(),
        row("hosts of a version", "hosts_at_version 43", 0, "web-1\nweb-2\n"),
        row("hosts of a version that nobody runs", "hosts_at_version 4", 0, ""),
        row("this host is healthy", "local_health -v", 0, ""),
        row("a result failed", "local_health", 1, "").with("ORCHESTRATE_HOSTNAME", "web-2"),
        row("a result failed, in words", "local_health -v", 1, "validation: http does not answer\n")
            .with("ORCHESTRATE_HOSTNAME", "web-2"),
        row("a result failed, by an old tool", "local_health --verbose", 1, "puppet: failed\n")
            .with("ORCHESTRATE_HOSTNAME", "db-1"),
        row("pending is no failure", "local_health -v", 0, "").with("ORCHESTRATE_HOSTNAME", "db-2"),
        row(
            "what may explain it",
            "debug_timeout 43",
            0,
            &with("Registered hosts in consul with key name Running_Versions are:\n   web-1\n   web-2\n"),
        ),
        row("what may explain that nobody runs it", "debug_timeout 44", 0, &with("No Hosts registered!\n")),
        row(
            "the files of this machine are no part of the answer's code",
            "debug_timeout 44 --debug_hosts",
            0,
            "",
        )
        .contains("No Hosts registered!\n"),
        row("the fleet", "status", 1, FLEET_STATUS),
        row(
            "nobody knows of one",
            "unaccounted",
            1,
            "HOST    HOW   REPORTED AT           REASON
lost-1  lost  2014-11-18T08:40:00Z  neither live nor listed under a version
",
        ),
        row("nobody of a role", "unaccounted --role web", 0, ""),
        row("all hosts", "hosts list", 0, HOSTS),
        row("all hosts, in short", "hosts", 0, HOSTS),
        row("all hosts with decommissioned ones", "hosts --all", 0, "").contains(
            "gone-1  -     -        decommissioned  -                           -      since 2014-11-18T08:41:00Z\n",
        ),
        row("groups and labels", "hosts --wide --group front", 0, "")
            .contains("\nweb-1  web   front  rack=r1  43       ok ")
            .says("1 of 5 hosts"),
        row("the worst hosts first", "hosts --verdict failed --verdict lost --sort verdict", 0, "").contains(
            "\nlost-1  -     (42)     lost     after 2014-11-18T08:40:00Z  -      neither live nor listed under a version\ndb-1 ",
        ),
        row("hosts with a label", "hosts list --label rack=r1 --role web", 0, "").contains("\nweb-1 "),
        row("a role that no host has", "hosts --role nosuch", 3, "").says("no host of the fleet has the role \"nosuch\" (there are "),
        row("a group that no host has", "unaccounted --group nosuch", 3, "").says("no host of the fleet has the group \"nosuch\""),
        row("a label that no host has", "retry --label rack=r99", 3, "").says("the label \"rack=r99\" (there are rack="),
        row("a role that no host has, for scripts", "verify_hosts 43 --role nosuch", 1, "").says("no host of the fleet has the role"),
        row("why a host is ok", "why web-1", 0, "").contains("verdict:      ok\n"),
        row("why a host failed", "why web-2", 0, "")
            .contains("reason:       validation failed with code 1: http does not answer\n"),
        row("why a host failed, by an old tool", "why db-1", 0, "").contains("reason:       puppet failed\n"),
        row("why a host waits", "why db-2", 0, "").contains("reason:       puppet said \"not yet\"\n"),
        row("why a lost host is lost", "why lost-1", 0, "")
            .contains("verdict:      lost\nreason:       neither live nor listed under a version\n"),
        row("why a host is none any more", "why gone-1", 1, "").says("decommissioned"),
        row("no such host", "why nobody", 1, "").says("nobody is not known"),
        row("nobody waits for a service", "why", 0, ""),
        row("no services", "services list", 0, ""),
        row("no addresses", "get_services", 0, "{}\n"),
        row("no such service", "services show mysql", 1, ""),
        // The time-out is long enough for "no" on a busy machine; with less the answer is "cannot
        // tell".
        row("a service that does not come", "wait_for mysql --timeout 2s", 1, ""),
        row("no such name", "dns web-1.node.consul", 1, ""),
        row("no roles", "publish_service", 0, "").with("ORCHESTRATE_PROFILE_LIST", "@HOST/none"),
        row("an empty file", "cache_services", 0, "").with("ORCHESTRATE_HIERA_FILE", "@HOST/services.yaml"),
        row("recordings need no store", "recording list --recording @HOST", 1, "").says("has no segments"),
        row("nothing to check", "recording check --recording @HOST", 1, "").says("has no segments"),
        row("nothing to remove", "recording prune --older-than 1d --recording @HOST", 1, ""),
        row("nothing to erase", "recording erase /a --recording @HOST", 1, ""),
        row("no directory", "recording list --recording @HOST/nowhere", 2, "").says("No such file"),
        row("lint needs no store", SAMPLE_LINT, 0, ""),
        row("the last lines of a host that is gone", "logs lost-1", 0, "apply: first\napply: second\n"),
        row("no report", "logs web-1", 1, ""),
        row("no report", "bundle web-1 --from file:///srv", 1, ""),
        row("it is gone", "bundle lost-1 --from file:///srv", 1, ""),
        row("a new token", "new_discovery_token --endpoint @DISCOVERY/", 0, TOKEN),
        row("the store", "store show", 0, "").contains("lineage:  abc\nepoch:    3\n"),
        row("values of operators", "values list", 0, "")
            .contains(" hello (and 2 lines)\n"),
        row("values that begin so", "values list steer", 0, "")
            .contains(" not usable: it has the control character '\\u{1b}'\n"),
        row("a value of operators", "values get motd", 0, "hello\nthere\nworld\n"),
        row("a value that cannot be used", "values get steering", 2, "").says("it has the control character"),
        row("a value that is this already", "values set gate go", 0, "").says("nothing was written"),
        row(
            "what counts for a host",
            "host_data config_state -n cp1",
            0,
            "{\"a\":\"of the host\",\"b\":\"of the role\",\"c\":\"of all\",\"enable_puppet\":\"False\"}\n",
        ),
        row(
            "what counts for a host without a role",
            "host_data state",
            0,
            "{\"a\":\"of all\",\"b\":\"of all\",\"c\":\"of all\"}\n",
        ),
        row("no value of this type", "host_data version -n cp1", 0, "{}\n"),
        row(
            "one value",
            "check_config a host --name cp1",
            0,
            "{\"/config_state/host/cp1/a\":\"of the host\"}\n",
        ),
        row("no such value", "check_config d global -c config_state", 0, "{}\n"),
        row("nobody holds this host", "check_puppet", 0, ""),
        row("an operator holds a role", "check_puppet -n cp1", 9, "")
            .says("/config_state/role/cp/enable_puppet"),
        row("a host of its own", "check_puppet --hostname cp2", 0, ""),
        row("an upgrade holds a role", "check_puppet -n oc1", 9, "")
            .says("/config_state/enable_puppet/role/oc"),
        row("an upgrade lets a host go", "check_puppet -n oc2", 0, ""),
        row(
            "how far an upgrade is",
            "rolling_upgrade status",
            0,
            "{\"pending\":[],\"upgraded\":[\"web-1\",\"web-2\"],\"upgrading\":[\"db-1\",\"lost-1\",\"oc2\"]}\n",
        ),
        row("what an upgrade would do", "rolling_upgrade upgrade 44 --noop -v --instructions", 0, "")
            .argument("{\"rolling_rules\":{\"global\":\"1\"}}")
            .contains("44 would be triggered\ndb-1 would be enabled\n{\"pending\":[],")
            .says("hosts without a role: 1 of at most 1 hosts are upgrading")
            .with("ORCHESTRATE_UPGRADE_FILE", "@HOST/none"),
        row("a host that joins", "bootstrap --directory @HOST/etc --hostname web-9 --role web", 0, "")
            .contains("/etc/agent.toml'")
            .says("the desired version is 43"),
        row("completion needs no store", "completion fish", 0, "").contains("complete"),
        row("manual pages need no store", "manual @HOST/man", 0, "").contains("/man/man1/orchestrate-status.1\n"),
        row("an operator", "enroll alice --as operator --print-etcdctl", 0, "")
            .contains("grant-permission orchestrate-operator readwrite '/current_version'"),
    ]
}

const FLEET_STATUS: &str = "fleet: failing
desired: 43 (revision 2)
hosts: 5 (1 lost, 2 failed, 1 waiting, 1 ok)

VERSION  HOSTS
42       1
43       2
none     2

HOST    ROLE  VERDICT  SINCE                       REASON
lost-1  -     lost     after 2014-11-18T08:40:00Z  neither live nor listed under a version
db-1    -     failed   -                           puppet failed
web-2   web   failed   -                           validation failed with code 1: http does not answer
db-2    -     waiting  -                           puppet said \"not yet\"
";

const HOSTS: &str = "HOST    ROLE  VERSION  VERDICT  SINCE                       AGENT  REASON
db-1    -     42       failed   -                           -      puppet failed
db-2    -     -        waiting  -                           -      puppet said \"not yet\"
lost-1  -     (42)     lost     after 2014-11-18T08:40:00Z  -      neither live nor listed under a version
web-1   web   43       ok       -                           -
web-2   web   43       failed   -                           -      validation failed with code 1: http does not answer
";

/// Returns the rows that write to a filled store.
pub(super) fn writes_to_a_filled_store() -> Vec<Row> {
    vec![
        row("a host is worked on", "maintenance on web-1 --reason disk --force", 0, "")
            .something_stands("/orchestrate/maintenance/web-1"),
        row("a host was not worked on", "maintenance off --this-host", 0, "").gone("/orchestrate/maintenance/web-1"),
        row("a host takes nothing new", "drain web-2", 0, "")
            .something_stands("/orchestrate/maintenance/web-2"),
        row("the fleet is frozen", "freeze --reason disk", 0, "")
            .something_stands("/orchestrate/store")
            .says("the fleet is frozen by"),
        row("a role is frozen for a while", "freeze --role web --for 2h --reason disk", 0, "")
            .says("role web is frozen by"),
        row("nothing is frozen", "unfreeze --role web", 1, "").says("role web is not frozen"),
        row("updates are paused", "rollout pause --reason disk", 0, "").says("updates are paused by"),
        row("nothing was paused", "rollout resume", 0, "").says("neither paused nor halted"),
        row("no rollout with a record", "rollout history", 1, "").says("no rollout has a record"),
        row("nobody waits", "rollout queue", 0, ""),
        row("failures by cause", "get_failures --group", 1, "").contains("http does not answer"),
        row("what other programs wrote has no author", "events", 0, "").contains("no command"),
        row("nobody did anything to a host", "events web-1", 0, "").says("no events"),
        row("no policy", "rollout status", 3, "").says("no rollout policy governs 43"),
        row("no policy", "rollout set --budget 1", 3, "").says("no rollout policy governs 43"),
        row("a plan", "plan 44", 0, "").contains("44, from 43").says("there is no rollout policy"),
        row("a host that is not there", "plan 44 --assume-fail other", 1, "").says("host other is not on the roster"),
        row("options without a policy", "rollout start 44 --canary 1", 3, "").says("there is none"),
        row("no policy", "rollout excuse web-1 --reason x", 3, "").says("no rollout policy governs 43"),
        row("no version is known to have worked", "rollout rollback", 3, "").says("use --to"),
        row("the fleet goes back", "rollout rollback --to 42 --reason disk", 0, "")
            .stands("/current_version", "42")
            .says("rolling back from 43 to 42"),
        row("it is there already", "rollout rollback --to 43", 0, "").says("43 is the desired version already"),
        row("retained instances are dropped", "drop-stale", 0, "").something_stands("/orchestrate/release_view"),
        row("the next version", "trigger_update 44", 0, "").stands("/current_version", "44").says("4 of 5 hosts were unsettled"),
        row("the same version again", "trigger_update 43", 0, "").stands("/current_version", "43"),
        row("not while others are on their way", "trigger_update --require-settled 44", 3, "")
            .stands("/current_version", "43\n")
            .says("unsettled (4): db-1 db-2 lost-1 web-2"),
        row("a failure replaces a success", "update_own_status puppet 6", 0, "")
            .something_stands("/status/puppet/failed/web-1")
            .gone("/status/puppet/success/web-1"),
        row("a success replaces a failure", "update_own_status --hostname db-1 puppet_service 2", 0, "")
            .something_stands("/status/puppet/success/db-1")
            .gone("/status/puppet/failed/db-1"),
        row("not yet", "update_own_status puppet -1", 0, "")
            .something_stands("/status/puppet/pending/web-1")
            .gone("/status/puppet/success/web-1"),
        row("an odd code of the old tool is a success", "update_own_status puppet 255", 0, "")
            .something_stands("/status/puppet/success/web-1"),
        row("any code but 0 fails a validation", "update_own_status validation_service -1", 0, "")
            .something_stands("/status/validation/failed/web-1")
            .gone("/status/validation/success/web-1"),
        row("a success leaves a trace", "update_own_status --hostname web-2 validation 0", 0, "")
            .something_stands("/status/validation/success/web-2")
            .something_stands("/orchestrate/reporting/validation/web-2")
            .gone("/status/validation/failed/web-2"),
        row("the old listing goes", "update_own_info --hostname db-1 --version 43", 0, "")
            .something_stands("/running_version/43/db-1")
            .gone("/running_version/42/db-1")
            .something_stands("/running_version/43/web-1"),
        row("the old listing of an old tool goes", "update_own_info", 0, "")
            .installed("44")
            .something_stands("/running_version/44/web-1")
            .gone("/running_version/43/web-1"),
        row("a file that holds no version is not announced", "update_own_info", 2, "")
            .installed("4 4")
            .something_stands("/running_version/43/web-1"),
        row("a host tries again", "retry web-1", 0, "").something_stands("/orchestrate/retry/web-1").says("no agent runs"),
        row("hosts of a role try again", "retry --role web --label rack=r1", 0, "web-1\n")
            .something_stands("/orchestrate/retry/web-1")
            .gone("/orchestrate/retry/web-2"),
        row("a host and a selection", "retry web-1 --suspect", 64, ""),
        row("nobody is suspect", "retry --suspect", 1, "").says("no host is selected"),
        row("a host without an entry is not known", "retry db-2", 1, "").gone("/orchestrate/retry/db-2"),
        row(
            "what is not said stays",
            "hosts add web-1 --label zone=a",
            0,
            "web-1: role web, group front, label rack=r1, label zone=a\n",
        )
        .stands(
            "/orchestrate/hosts/web-1",
            r#"{"format":1,"role":"web","group":"front","labels":{"rack":"r1","zone":"a"},"since":1416300000}"#,
        ),
        row("a host is taken out with all it wrote", "hosts decommission db-1", 0, "")
            .something_stands("/orchestrate/hosts/db-1")
            .gone("/running_version/42/db-1")
            .gone("/status/puppet/failed/db-1")
            .gone("/orchestrate/announced/db-1")
            .gone("/orchestrate/reporting/validation/db-1")
            .something_stands("/running_version/43/web-1"),
        row("a value of operators is replaced", "values set motd hello", 0, "")
            .stands("/orchestrate/config/motd", "hello"),
        row("a value that was changed", "values set motd hello --if-revision 1", 3, "")
            .says("the value motd was last changed at revision")
            .stands("/orchestrate/config/motd", "hello\nthere\nworld\n"),
        row("a value that is there", "values rm gate --if-revision 0", 3, "").stands("/orchestrate/config/gate", "go"),
        row("a value of operators is deleted", "values rm gate", 0, "").gone("/orchestrate/config/gate"),
        row("a value is replaced", "set_config a new host -n cp1", 0, "new\n").stands("/config_state/host/cp1/a", "new"),
        row("a value is deleted", "manage_config state host a=x -n cp1 --action delete", 0, "x\n").gone("/config_state/host/cp1/a"),
        row("a role is not held any more", "enable_puppet True role -n cp -a delete", 0, "True\n")
            .gone("/config_state/role/cp/enable_puppet"),
        row("an upgrade lets one host of each role go", "rolling_upgrade upgrade 44 --instructions", 0, "44 triggered\ndb-1 enabled\n")
            .argument("{\"rolling_rules\":{\"global\":1}}")
            .with("ORCHESTRATE_UPGRADE_FILE", "@HOST/none")
            .stands("/current_version", "44")
            .stands("/config_state/enable_puppet/global", "False")
            .stands("/config_state/enable_puppet/host/db-1", "True")
            .stands("/config_state/enable_puppet/role/oc", "False")
            .stands("/config_state/role/cp/enable_puppet", "False")
            .says("hosts without a role: 1 of at most 1 hosts are upgrading"),
        row("all hosts are held", "rolling_upgrade global_disable_puppet", 0, "")
            .stands("/config_state/enable_puppet/global", "False")
            .stands("/config_state/enable_puppet/role/oc", "False")
            .gone("/config_state/enable_puppet/host/oc2"),
        row("a store is accepted", "store accept --version 44", 0, "")
            .stands("/current_version", "44")
            .stands("/orchestrate/store", r#"{"format":1,"lineage":"abc","epoch":4}"#),
        row("another fleet's store is not", "store accept --version 44 --lineage other", 3, "")
            .stands("/current_version", "43\n")
            .stands("/orchestrate/store", r#"{"format":1,"lineage":"abc","epoch":3}"#),
        row("local_version writes the file alone", "local_version 44", 0, "44\n").stands("/current_version", "43\n"),
    ]
}

#[test]
fn every_verb_on_a_filled_store() {
    let etcd = Etcd::single();
    let store = etcd.store();
    fill(&store, &FLEET);
    let world = World { discovery: discovery_service(), ..World::new(&etcd.endpoint(0)) };
    let (reads, writes) = (reads_of_a_filled_store(), writes_to_a_filled_store());
    assert_every_verb(&[&reads, &writes]);
    check_all(&world, &reads);
    assert_eq!(store.revision(), 2, "questions write nothing");
    check_writes(&world, &store, &FLEET, &writes);
}

#[test]
fn a_slow_store_gives_the_same_answers() {
    let etcd = Etcd::single();
    let store = etcd.store();
    fill(&store, &FLEET);
    let proxy = Proxy::start(&etcd.endpoint(0));
    proxy.set(Behaviour::Delay(Duration::from_millis(15)));
    let world = World { discovery: discovery_service(), ..World::new(&proxy.endpoint()) };
    check_all(&world, &reads_of_a_filled_store());
    check_writes(&world, &store, &FLEET, &writes_to_a_filled_store());
}
