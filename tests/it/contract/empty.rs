//! Every verb on an empty store.

use super::fleet::{assert_every_verb, discovery_service};
use super::rows::{Row, SAMPLE_LINT, World, check_all, check_writes, row};
use tests::etcd::Etcd;

pub(super) fn reads_of_an_empty_store() -> Vec<Row> {
    vec![
        row("no desired version", "current_version", 0, "None\n"),
        row("no desired version, whatever was known once", "current_version", 0, "None\n").remembered("41"),
        row("no desired version, first generation", "current_version", 1, "").first_generation(),
        row("a member answers", "ping", 0, "Connection succesful\n"),
        row("nothing desired, nothing installed", "pending_update", 3, NEITHER),
        row("nothing desired, something installed", "pending_update", 2, NOT_READ).installed("42"),
        row("nothing desired, first generation", "pending_update", 2, NOT_READ)
            .installed("42")
            .first_generation(),
        row("looking only", "pending_update --peek", 3, NEITHER),
        row("nothing installed", "local_version", 0, "\n"),
        row("nobody runs anything", "running_versions", 0, "\n"),
        row("hosts are not there", "verify_hosts 43", 1, "")
            .input("web-1\nweb-2\n")
            .says("not at 43 (2): web-1 web-2"),
        row("hosts as arguments are not there", "verify_hosts 43 web-1", 1, ""),
        row("hosts do not come", "verify_hosts 43 web-1 --wait 300ms", 1, ""),
        row("no hosts are no yes", "verify_hosts 43", 1, "").says("no hosts given"),
        row("no version at all", "check_single_version 43", 1, ""),
        row(
            "no version at all, in words",
            "check_single_version -v 43",
            1,
            "Wanted version found: False\nUnwanted versions found: \n",
        ),
        row("nothing failed", "get_failures", 0, "Validation failures :0\nPuppet failures :0\n"),
        row("nothing failed, by host", "get_failures --hosts", 0, ""),
        row("nothing failed or pending", "get_failures --hosts --show_warnings", 0, ""),
        row("nothing failed, first generation", "get_failures --hosts", 0, "").first_generation(),
        row("nobody runs it", "hosts_at_version 43", 0, ""),
        row("nothing is known of this host", "local_health -v", 0, "").says("no result of web-1 is known"),
        row("nobody is registered", "debug_timeout 43", 0, "No Hosts registered!\n"),
        row("nobody can tell", "status", 2, "fleet: unknown\ndesired: none\nhosts: 0\n")
            .says("no version has been triggered"),
        row("nothing is frozen", "unfreeze", 1, "").says("the fleet is not frozen"),
        row("there is no freeze", "freezes", 0, ""),
        row("there is no policy", "policy show", 1, "").says("there is no rollout policy"),
        row("no file", "policy check /nonexistent", 2, "").says("/nonexistent"),
        row("nobody is counted", "claims", 0, ""),
        row("nothing to release", "claims release web-1 --reason x", 1, "").says("holds no claim"),
        row("no rollout", "rollout status", 3, "").says("no desired version"),
        row("no rollout yet", "rollout history", 1, "").says("no rollout has a record"),
        row("nobody did anything", "events", 0, "").says("no events"),
        row("no queue", "rollout queue", 3, "").says("no desired version"),
        row("no rollout to wait for", "rollout status --wait 1h", 3, "").says("no desired version"),
        row("no rollout to change", "rollout set --max 1", 3, "").says("no desired version"),
        row("no host to update", "plan 43", 1, "")
            .contains("the rollout would not end: no host of the rollout is proven"),
        row("options without a policy", "trigger_update 43 --max 1", 3, "").says("nothing was changed"),
        row("nobody to excuse", "rollout excuse web-1 --reason x", 3, "").says("no desired version"),
        row("nothing was paused", "rollout resume", 0, "").says("neither paused nor halted"),
        row("there is no version to go back from", "rollout rollback", 3, "").says("no desired version"),
        row("everybody is accounted for", "unaccounted", 0, ""),
        row("an empty roster", "hosts list", 0, ""),
        row("no such host", "why web-1", 1, "").says("web-1 is not known"),
        row("nobody waits", "why", 0, "").says("no host waits for a service"),
        row("no services", "services list", 0, ""),
        row("no such service", "services show web", 1, "").says("no host has web"),
        row("no addresses", "get_services", 0, "{}\n"),
        // The time-out is long enough for "no" on a busy machine; with less the answer is "cannot
        // tell".
        row("a service that does not come", "wait_for web --timeout 2s", 1, "")
            .says("web: 0 of 1 functional"),
        row("nothing to wait for", "wait_for web --count 0", 0, ""),
        row("no such name", "dns web.service.consul", 1, "").says("no such name (NXDOMAIN)"),
        row("a name of others", "dns example.org", 1, "").says("(REFUSED)"),
        row("no roles", "publish_service", 0, "").with("ORCHESTRATE_PROFILE_LIST", "@HOST/none"),
        row("an empty file", "cache_services", 0, "").with("ORCHESTRATE_HIERA_FILE", "@HOST/services.yaml"),
        row("a file that cannot be written", "cache_services", 2, "")
            .with("ORCHESTRATE_HIERA_FILE", "@HOST/none/services.yaml"),
        row("nobody to work on", "maintenance on --this-host", 1, "").says("web-1 is not known"),
        row("nobody to drain", "drain db-9", 1, "").says("db-9 is not known"),
        row("no values", "values list", 0, ""),
        row("no such value of operators", "values get motd", 1, "").says("there is no value motd"),
        row("no value to delete", "values rm motd", 1, "").says("nothing was changed"),
        row("no value as it was", "values set motd hello --if-revision 7", 3, "")
            .says("there is no value motd; nothing was changed"),
        row("recordings need no store", "recording list --recording @HOST", 1, "").says("has no segments"),
        row("nothing to check", "recording check --recording @HOST", 1, "").says("has no segments"),
        row("nothing to remove", "recording prune --older-than 1d --recording @HOST", 1, ""),
        row("nothing to erase", "recording erase /a --recording @HOST", 1, ""),
        row("no directory", "recording list --recording @HOST/nowhere", 2, "").says("No such file"),
        row("lint needs no store", SAMPLE_LINT, 0, "").says("kinds of host: 1, errors: 0"),
        row("no report", "logs web-1", 1, "").says("has not reported"),
        row("no report, no bundle", "logs web-1 --from file:///srv", 1, "").says("has not reported"),
        row("no report", "bundle web-1 --from file:///srv", 1, "").says("has not reported"),
        row("nobody to try again", "retry web-1", 1, "").says("web-1 is not known"),
        row("nobody to take out", "hosts decommission web-1", 1, "").says("web-1 is not known"),
        row("nothing counts for this host", "host_data state", 0, "{}\n"),
        row("no value", "check_config enable_puppet role -n web", 0, "{}\n"),
        row("what is not set is enabled", "check_puppet", 0, ""),
        row("another host", "check_puppet -n cp1", 0, ""),
        row("nothing to delete", "manage_config state global a=b -a delete", 0, "b\n"),
        row("no upgrade", "rolling_upgrade status", 0, NO_HOSTS),
        row("what an upgrade would do", "rolling_upgrade upgrade 43 --noop", 0, "43 would be triggered\n")
            .with("ORCHESTRATE_UPGRADE_FILE", "@HOST/none"),
        row("nobody to report for", "update_own_info", 0, "").says("nothing was changed"),
        row("a new token", "new_discovery_token --endpoint @DISCOVERY/", 0, TOKEN),
        row("a new token, without a slash", "new_discovery_token --endpoint @DISCOVERY", 0, TOKEN),
        row("no token without a service", "new_discovery_token", 2, "")
            .says("the public etcd discovery service no longer exists; use --endpoint URL"),
        row("no token where nobody is", "new_discovery_token --endpoint http://127.0.0.1:1", 2, "")
            .says("http://127.0.0.1:1/new: "),
        row("a store without an identity", "store show", 0, "").contains("lineage:  none\nepoch:    none\n"),
        row("a first host of a fleet", "bootstrap --directory @HOST/etc", 0, "")
            .contains("orchestrate-agent --config '")
            .says("00-bootstrap.toml: written")
            .says("nothing is triggered yet"),
        row("completion needs no store", "completion bash", 0, "").contains("complete"),
        row("manual pages need no store", "manual @HOST/man", 0, "")
            .contains("/man/man1/orchestrate-status.1\n"),
        row("a host that is enrolled", "enroll web-9 --service web --print-etcdctl", 0, "")
            .contains("grant-permission orchestrate-agent-web-9 readwrite '/orchestrate/live/web-9'"),
    ]
}

const NO_HOSTS: &str = "{\"pending\":[],\"upgraded\":[],\"upgrading\":[]}\n";
pub(super) const YES: &str = "Yes, there is an update pending\n";
pub(super) const NO: &str = "No updates pending\n";
pub(super) const NOT_READ: &str = "Could not get current_version\n";
pub(super) const NEITHER: &str = "Could not get current_version, but there's also no local version set\n";
pub(super) const TOKEN: &str = "3e86b59982e49066c5d813af1c2e2579cbf573de\n";

/// Returns the rows that write to an empty store.
pub(super) fn writes_to_an_empty_store() -> Vec<Row> {
    vec![
        row("retained instances are dropped", "drop-stale", 0, "")
            .something_stands("/orchestrate/release_view"),
        row("a first trigger", "trigger_update 43", 0, "").stands("/current_version", "43"),
        row("a first trigger waits for nobody", "trigger_update 43 --require-settled", 0, "")
            .stands("/current_version", "43"),
        row("a value, as the fourth generation writes it", "manage_config state global a=b=c", 0, "b=c\n")
            .stands("/config_state/global/a", "b=c"),
        row("a value, as the fifth writes it", "manage_config config_version role nova 2 -n cp", 0, "2\n")
            .stands("/config_version/role/cp/nova", "2"),
        row("a negative number", "set_config depth -1 host --name cp1", 0, "-1\n")
            .stands("/config_state/host/cp1/depth", "-1"),
        row("an empty value", "set_config a= global -c version", 0, "\n")
            .stands("/config_version/global/a", ""),
        row("a role is held", "enable_puppet False role -n cp", 0, "False\n")
            .stands("/config_state/role/cp/enable_puppet", "False"),
        row("a first upgrade", "rolling_upgrade upgrade 43", 0, "43 triggered\nNo hosts left to upgrade\n")
            .with("ORCHESTRATE_UPGRADE_FILE", "@HOST/none")
            .stands("/current_version", "43")
            .stands("/config_state/enable_puppet/global", "False"),
        row("all hosts are held", "rolling_upgrade global_disable_puppet", 0, "")
            .stands("/config_state/enable_puppet/global", "False"),
        row("a value of operators", "values set motd", 0, "")
            .argument("hello world")
            .stands("/orchestrate/config/motd", "hello world"),
        row("a new value of operators", "values set gate -1 --if-revision 0", 0, "")
            .stands("/orchestrate/config/gate", "-1"),
        row("a value from standard input", "values set motd -", 0, "")
            .input("hello\n\tworld\n")
            .stands("/orchestrate/config/motd", "hello\n\tworld\n"),
        row("a machine becomes a host", "update_own_status provisioned 0", 0, "")
            .says("web-1 was not a host of this fleet; with this report it is one")
            .something_stands("/orchestrate/hosts/web-1"),
        row("a success", "update_own_status puppet 0", 0, "")
            .something_stands("/status/puppet/success/web-1")
            .something_stands("/orchestrate/reporting/puppet/web-1")
            .something_stands("/orchestrate/hosts/web-1"),
        row("a failure", "update_own_status --hostname db-1 puppet_service 4", 0, "")
            .something_stands("/status/puppet/failed/db-1")
            .gone("/status/puppet/success/db-1")
            .something_stands("/orchestrate/hosts/db-1"),
        row("a listing", "update_own_info", 0, "")
            .installed("42\n")
            .something_stands("/running_version/42/web-1")
            .something_stands("/orchestrate/hosts/web-1"),
        row("a listing as told", "update_own_info --interval 60 --hostname db-1 --version 43", 0, "")
            .something_stands("/running_version/43/db-1")
            .stands("/orchestrate/announced/db-1", "43")
            .something_stands("/orchestrate/hosts/db-1"),
        row(
            "a host on the roster",
            "hosts add web-1 --role web --label rack=r1",
            0,
            "web-1: role web, label rack=r1\n",
        )
        .something_stands("/orchestrate/hosts/web-1"),
        row("the fleet is frozen before its first agent", "freeze --reason disk", 0, "")
            .says("no host starts an update")
            .something_stands("/orchestrate/store"),
        row("updates are paused before the first agent", "rollout pause", 0, "")
            .something_stands("/orchestrate/store"),
        row("a policy before the first agent", "policy set /dev/null", 0, "")
            .something_stands("/orchestrate/rollout_policy")
            .something_stands("/orchestrate/store"),
        row("a store is accepted", "store accept --version 43 --lineage abc", 0, "")
            .stands("/current_version", "43")
            .stands("/orchestrate/store", r#"{"format":1,"lineage":"abc","epoch":1}"#),
        row("a command needs an agent", "with-claim -- true", 2, "").says("no agent listens on"),
        row("a page needs a store that can be read", "ui --user a:b", 2, "")
            .says("the store has no users yet"),
        row("local_version needs no store", "local_version 43", 0, "43\n"),
    ]
}

#[test]
fn every_verb_on_an_empty_store() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let world = World { discovery: discovery_service(), ..World::new(&etcd.endpoint(0)) };
    let (reads, writes) = (reads_of_an_empty_store(), writes_to_an_empty_store());
    assert_every_verb(&[&reads, &writes]);
    check_all(&world, &reads);
    assert!(store.list("/").is_empty(), "questions write nothing");
    check_writes(&world, &store, &[], &writes);
}
