//! Hosts that fail in the same way have one cause.

use archive::{OwnWords, cause_of};
use schema::codec;
use schema::names::StepName;
use schema::records::StatusRecord;
use schema::steps::{StepEnd, StepPhase};
use schema::time::EpochSeconds;
use serde_json::Value;
use tests::etcd::Etcd;
use tests::host::Host;

fn groups(ops: &Host) -> Vec<Value> {
    let result = ops.command(&["get_failures", "--group", "-o", "json"], "");
    assert_eq!(result.code, 1, "{result:?}");
    let answer: Value = serde_json::from_str(&result.out).expect("JSON");
    answer["groups"].as_array().expect("groups").clone()
}

#[test]
fn two_hosts_that_fail_in_the_same_way_have_one_cause_without_their_secret() {
    let etcd = Etcd::single();
    let store = etcd.store();
    store.put("/orchestrate/store", r#"{"format":1,"lineage":"abc","epoch":1}"#);
    let start = |name: &str| {
        let host = Host::new(name, &etcd.endpoints());
        let script = "#!/bin/sh\necho starting\n\
             echo \"$ORCHESTRATE_STEP_HOST[$$]: login of shop with $DB_PASSWORD at 10.0.0.9:$$ failed for $ORCHESTRATE_STEP_VERSION\"\n\
             echo bye\nexit 3\n";
        host.write_executable("install", script);
        let command = host.path("install").display().to_string();
        let step = format!(
            "[environment]\nDB_PASSWORD = \"canary-77\"\n[[apply]]\nname = \"install\"\ncommand = [\"{command}\"]\n"
        );
        let mut host = host.with(&step);
        host.start();
        host
    };
    let hosts = ["web1", "web2"].map(start);
    store.put("/current_version", "v7");
    for host in &hosts {
        let status = host.wait_for_status(&store, "puppet", "failed");
        assert_eq!(
            status["cause"]["line"], "HOST[N]: login of shop with *** at ADDR:N failed for VERSION",
            "{status}"
        );
    }
    let groups = groups(&hosts[0]);
    let of_puppet: Vec<&Value> = groups.iter().filter(|group| group["check"] == "puppet").collect();
    let [group] = of_puppet[..] else { panic!("{groups:?}") };
    assert_eq!(group["hosts"], serde_json::json!(["web1", "web2"]));
    let shown = hosts[0].command(&["get_failures", "--group"], "").out;
    assert!(shown.starts_with("2 hosts, 1 cause\n"), "{shown}");
    assert!(shown.contains("apply step install exited with code 3: HOST[N]: login"), "{shown}");
}

#[test]
fn a_thousand_failures_with_two_causes_are_two_groups() {
    let etcd = Etcd::single();
    let store = etcd.store();
    let (step, end) = (StepName::new("http").expect("a name"), StepEnd::Exited { code: 1 });
    for n in 0..1000 {
        let (name, address) = (format!("web-{n}.example.org"), format!("10.9.{}.{}", n / 250, n % 250));
        let own = OwnWords::new([name.clone(), address.clone()], ["42".into()]);
        let output = if n % 2 == 0 {
            format!("{name}: {address}:{} refused the connection after {n} ms\nend", 8000 + n)
        } else {
            format!("[{n}.5] Out of memory: killed process {n} (shop) of {name}\n")
        };
        let cause = cause_of(StepPhase::Validate, &step, &end, &output, &own);
        let record = StatusRecord {
            at: EpochSeconds(n),
            version: None,
            code: Some(1),
            reason: "validate step http exited with code 1".into(),
            cause: Some(cause),
        };
        store.put(&format!("/status/validation/failed/{name}"), &codec::write(&record));
    }
    let groups = groups(&Host::new("ops", &etcd.endpoints()));
    let found: Vec<(&str, u64)> = groups
        .iter()
        .map(|group| {
            (group["cause"].as_str().expect("a cause"), group["host_count"].as_u64().expect("a number"))
        })
        .collect();
    let expected = [
        ("[N.N] Out of memory: killed process N (shop) of HOST", 500),
        ("HOST: HOST:N refused the connection after N ms", 500),
    ];
    let mut found = found;
    found.sort_unstable();
    assert_eq!(found, [expected[1], expected[0]]);
}
