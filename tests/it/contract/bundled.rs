//! A fleet in which one of two hosts with the same cause uploaded a bundle.

use super::fleet::fill;
use super::rows::{Row, World, check_all, row};
use schema::codec;
use schema::names::{Fingerprint, StepName, Token, Version};
use schema::order::InstructionOrder;
use schema::records::{BundleLink, Cause, LoggedStep, Report, ReportedTarget, StatusRecord};
use schema::steps::{StepEnd, StepPhase};
use schema::time::EpochSeconds;
use schema::verdict::{Failure, HostFailure, HostVerdict};
use tests::etcd::Etcd;

/// Hosts with the last character of their fingerprint and the one that uploaded.
const HOSTS: [(&str, &str, bool); 3] = [("db-1", "b", false), ("web-1", "a", true), ("web-2", "a", false)];

/// Returns a fleet of hosts that failed to install version 43, with the URL and the digest of the bundle.
pub(crate) fn entries((url, sha256): (&str, &str)) -> Vec<(String, String)> {
    let live = r#"{"instance":"i","machine_id":"m","boot_id":"b","agent_version":"0.1.0"}"#;
    let mut entries = vec![
        ("/current_version".to_owned(), "43".to_owned()),
        ("/orchestrate/store".to_owned(), r#"{"format":1,"lineage":"abc","epoch":3}"#.to_owned()),
    ];
    for (host, cause, has_uploaded) in HOSTS {
        let step = StepName::new("install").expect("a name");
        let failure = Failure::of(StepPhase::Apply, step.clone(), StepEnd::Exited { code: 3 });
        let fingerprint = Fingerprint::new(format!("f1-{cause:0>12}")).expect("a fingerprint");
        let (at, version) = (EpochSeconds(1_416_300_000), Version::new("43").ok());
        let link = BundleLink {
            url: url.to_owned(),
            sha256: sha256.to_owned(),
            bytes: 7,
            rollout: InstructionOrder { epoch: 3, revision: 2 },
            fingerprint: fingerprint.clone(),
        };
        let report = Report {
            verdict: HostVerdict::Failed(HostFailure { version: version.clone(), failure, suspect: false }),
            target: Some(ReportedTarget { version: Version::new("43").expect("a version"), revision: 2 }),
            log_of: Some(LoggedStep { phase: StepPhase::Apply, step }),
            log: ["the last line"].into_iter().collect(),
            bundle: Some(link).filter(|_| has_uploaded),
            ..Report::idle(at, Token::new("w").expect("a token"))
        };
        let record = StatusRecord {
            at,
            version,
            code: Some(3),
            reason: "apply step install exited with code 3".into(),
            cause: Some(Cause { fingerprint, line: format!("no route to {cause}") }),
        };
        entries.extend([
            (format!("/orchestrate/hosts/{host}"), r#"{"format":1,"since":1416300000}"#.to_owned()),
            (format!("/orchestrate/live/{host}"), live.to_owned()),
            (format!("/orchestrate/reports/{host}"), codec::write(&report)),
            (format!("/status/puppet/failed/{host}"), codec::write(&record)),
        ]);
    }
    entries
}

fn rows() -> Vec<Row> {
    let hosts = "Failures:\n  Node: db-1, Check: puppet\n  Node: web-1, Check: puppet\n  Node: web-2, Check: puppet\n";
    let noted = "bundle s3://bundles/prod/web-1/1.tar.zst of web-1 is about these hosts (2): web-1 web-2\n";
    vec![
        row("counts do not name a bundle", "get_failures", 1, "Validation failures :0\nPuppet failures :3\n"),
        row("what old scripts read is as before", "get_failures --hosts", 1, hosts).says(noted),
        row(
            "of the first generation too",
            "get_failures --hosts",
            1,
            "Puppet failure:db-1\nPuppet failure:web-1\nPuppet failure:web-2\n",
        )
        .first_generation()
        .says(noted),
        row("each cause with its bundle", "get_failures --group", 1, "").contains(
            "no route to a\n  bundle: s3://bundles/prod/web-1/1.tar.zst (web-1)\n1      puppet  db-1",
        ),
        row("for programs", "get_failures -o json --group", 1, "")
            .contains("\"bundle\": \"s3://bundles/prod/web-1/1.tar.zst\",\n      \"bundle_host\": \"web-1\""),
        row("beside the reason in the state of the fleet", "status", 1, "")
            .contains("apply step install exited with code 3 (version 43)\n  bundle: s3://bundles/prod/web-1/1.tar.zst (web-1)\n"),
        row("the same for programs", "status -o json", 1, "").contains("\"bundle_host\": \"web-1\""),
        row("and while hosts are missing", "verify_hosts -o json --wait 300ms 43 web-2", 1, "")
            .contains("\"bundle_host\": \"web-1\""),
        row("the last lines, and where the rest is", "logs web-1", 0, "the last line\n")
            .says("apply step install, reported at 2014-11-18T08:40:00Z:\n")
            .says("the whole output is in the bundle s3://bundles/prod/web-1/1.tar.zst; `orchestrate logs web-1 --whole` prints it, if "),
        row("those of others are not asked for that", "logs web-2", 0, "the last line\n"),
        row("for programs", "logs web-1 -o json", 0, "").contains("\"bundle_host\": \"web-1\""),
        row("or nowhere", "logs db-1", 0, "the last line\n"),
        row("nothing else is printed instead", "logs db-1 --from file:///srv/bundles", 1, "")
            .says("there is no bundle of this failure"),
        row("an object elsewhere", "logs web-2 --from file:///srv/bundles", 3, "").says("is not below file:///srv/bundles"),
    ]
}

#[test]
fn a_bundle_is_named_where_its_cause_is() {
    let etcd = Etcd::single();
    let entries = entries(("s3://bundles/prod/web-1/1.tar.zst", &"ab".repeat(32)));
    fill(
        &etcd.store(),
        &entries.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect::<Vec<_>>(),
    );
    check_all(&World::new(&etcd.endpoint(0)), &rows());
}
