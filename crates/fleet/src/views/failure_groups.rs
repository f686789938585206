//! Failed results, by cause: hosts that fail in the same way are one group.

use super::found_failure::FoundFailure;
use crate::bundles::{BundleFields, UploadedBundle};
use crate::text::{Text, clean};
use schema::names::{Fingerprint, HostName};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};

/// Number of hosts that a row names.
const NAMED_MAX: usize = 2;

/// Hosts that fail in the same way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FailureGroup {
    /// What is equal for all of them; `None` if their agents did not see any output. Then the check and the reason
    /// are equal.
    pub fingerprint: Option<Fingerprint>,
    /// The check that fails, or the type of result.
    pub check: String,
    /// The reason of the first host.
    pub reason: Option<String>,
    /// The line of the output that says why, without names, addresses and numbers; of a service the last line that
    /// the check on the first host printed.
    pub cause: Option<String>,
    /// Number of hosts.
    pub host_count: usize,
    /// The hosts, by name.
    pub hosts: Vec<HostName>,
    /// The newest bundle of this cause; `None` if no host uploaded one.
    #[serde(flatten, serialize_with = "as_fields")]
    #[schemars(with = "BundleFields<'_>")]
    pub bundle: Option<UploadedBundle>,
}

fn as_fields<S: Serializer>(bundle: &Option<UploadedBundle>, serializer: S) -> Result<S::Ok, S::Error> {
    BundleFields::of(bundle.as_ref()).serialize(serializer)
}

/// Failed results in groups, the largest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FailureGroups(Vec<FailureGroup>);

impl FailureGroups {
    /// Returns the groups of failures.
    pub fn new<'a>(failures: impl IntoIterator<Item = &'a FoundFailure>) -> Self {
        let mut groups: BTreeMap<(Option<Fingerprint>, String, Option<String>), FailureGroup> =
            BTreeMap::new();
        for FoundFailure { host, check, record, line, bundle } in failures {
            let record = record.as_ref();
            let (check, cause) = (check.to_string(), record.and_then(|record| record.cause.as_ref()));
            let reason = record.map(|record| record.reason.clone());
            let reason = reason.filter(|reason| !reason.is_empty());
            let fingerprint = cause.map(|cause| cause.fingerprint.clone());
            let same = if fingerprint.is_some() { None } else { reason.clone() };
            let group =
                groups.entry((fingerprint.clone(), check.clone(), same)).or_insert_with(|| FailureGroup {
                    fingerprint,
                    check,
                    reason,
                    // The output of a service differs between hosts and runs, so it tells no groups apart.
                    cause: cause
                        .map(|cause| &cause.line)
                        .or(line.as_ref())
                        .filter(|line| !line.is_empty())
                        .cloned(),
                    host_count: 0,
                    hosts: Vec::new(),
                    bundle: bundle.clone(),
                });
            group.hosts.push(host.clone());
        }
        let mut groups: Vec<FailureGroup> = groups.into_values().collect();
        for group in &mut groups {
            group.hosts.sort();
            group.hosts.dedup();
            group.host_count = group.hosts.len();
        }
        groups.sort_by(|a, b| b.host_count.cmp(&a.host_count).then_with(|| a.check.cmp(&b.check)));
        Self(groups)
    }

    /// Returns the groups, the largest first.
    pub fn iter(&self) -> impl Iterator<Item = &FailureGroup> {
        self.0.iter()
    }

    /// Returns the groups as a table, in which the causes are cut to this width. The first line counts. Below a cause
    /// is its bundle, whose URL is never cut.
    pub fn text(&self, width: Option<usize>) -> Text {
        let mut text = Text::default();
        let hosts: BTreeSet<&HostName> = self.0.iter().flat_map(|group| &group.hosts).collect();
        let count = |count: usize, one: &str, many: &str| match count {
            1 => format!("1 {one}"),
            count => format!("{count} {many}"),
        };
        let (hosts, causes) = (count(hosts.len(), "host", "hosts"), count(self.0.len(), "cause", "causes"));
        text.line(&format!("{hosts}, {causes}"));
        let row = |group: &FailureGroup| {
            (group.row(), group.bundle.iter().map(|bundle| bundle.line(None)).collect())
        };
        text.noted_table_within(width, ["HOSTS", "CHECK", "NAMES", "CAUSE"], self.0.iter().map(row));
        text
    }
}

impl FailureGroup {
    fn row(&self) -> [String; 4] {
        let named: Vec<&str> = self.hosts.iter().take(NAMED_MAX).map(HostName::as_str).collect();
        let more = self.hosts.len().saturating_sub(named.len());
        let names = if more > 0 { format!("{} +{more}", named.join(" ")) } else { named.join(" ") };
        let why = self.why();
        let why = if why.is_empty() { "-" } else { &why };
        [self.host_count.to_string(), self.check.clone(), names, clean(why).into_owned()]
    }

    /// Returns the reason and the line of the output that says why, as far as they are known.
    pub fn why(&self) -> String {
        let parts: Vec<&str> =
            [&self.reason, &self.cause].into_iter().flatten().map(String::as_str).collect();
        parts.join(": ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::FailedCheck;
    use schema::order::InstructionOrder;
    use schema::records::{BundleLink, Cause, StatusRecord};
    use schema::time::EpochSeconds;

    fn found(host: &str, check: &str) -> FoundFailure {
        let check = FailedCheck::Down(check.into());
        FoundFailure::without_record(HostName::new(host).unwrap(), check, None)
    }

    fn failed(host: &str, check: &str, reason: &str, cause: Option<(&str, &str)>) -> FoundFailure {
        let cause = cause.map(|(hash, line)| Cause {
            fingerprint: Fingerprint::new(format!("f1-{hash:0>12}")).unwrap(),
            line: line.into(),
        });
        let record =
            StatusRecord { at: EpochSeconds(1), version: None, code: Some(1), reason: reason.into(), cause };
        FoundFailure { record: Some(record), ..found(host, check) }
    }

    #[test]
    fn below_a_cause_is_its_bundle_whose_url_is_whole() {
        let bundle = UploadedBundle {
            host: HostName::new("web3").unwrap(),
            link: BundleLink {
                url: "s3://bundles/prod/web3/1.tar.zst".into(),
                sha256: "ab".repeat(32),
                bytes: 1,
                rollout: InstructionOrder { epoch: 1, revision: 5 },
                fingerprint: Fingerprint::new("f1-00000000000a").unwrap(),
            },
        };
        let failed =
            |host, cause| failed(host, "puppet", "exited with code 1", Some((cause, "no route to db")));
        let with_bundle = |host| FoundFailure { bundle: Some(bundle.clone()), ..failed(host, "a") };
        let groups = FailureGroups::new(&[with_bundle("web1"), with_bundle("web3"), failed("db1", "b")]);
        assert_eq!(
            groups.text(Some(35)).as_str(),
            "3 hosts, 2 causes\n\
             HOSTS  CHECK   NAMES      CAUSE\n\
             2      puppet  web1 web3  exited w…\n  \
             bundle: s3://bundles/prod/web3/1.tar.zst (web3)\n\
             1      puppet  db1        exited w…\n"
        );
        let fields = |n: usize| {
            let group = serde_json::to_value(&groups).unwrap()[n].clone();
            (group["bundle"].clone(), group["bundle_host"].clone(), group["fingerprint"].clone())
        };
        assert_eq!(fields(0), (bundle.link.url.clone().into(), "web3".into(), "f1-00000000000a".into()));
        assert_eq!(fields(1), (serde_json::Value::Null, serde_json::Value::Null, "f1-00000000000b".into()));
    }

    #[test]
    fn hosts_that_fail_in_the_same_way_are_one_row() {
        let one = Some(("a", "connect ADDR refused"));
        let groups = FailureGroups::new(&[
            failed("web3", "validation", "validate step http exited with code 1", one),
            failed("db1", "puppet", "apply step install exited with code 100", Some(("b", ""))),
            failed("web1", "validation", "validate step http exited with code 1", one),
            failed("web2", "validation", "validate step http exited with code 1", one),
            failed("old1", "validation", "validate step http exited with code 1", None),
            failed("old2", "validation", "validate step http exited with code 1", None),
            failed("old3", "validation", "validate step http exited with code 2", None),
            found("gone", "liveness"),
            found("web1", "mysql"),
        ]);
        assert_eq!(
            groups.text(None).as_str(),
            "8 hosts, 6 causes\n\
             HOSTS  CHECK       NAMES         CAUSE\n\
             3      validation  web1 web2 +1  validate step http exited with code 1: connect ADDR refused\n\
             2      validation  old1 old2     validate step http exited with code 1\n\
             1      liveness    gone          -\n\
             1      mysql       web1          -\n\
             1      puppet      db1           apply step install exited with code 100\n\
             1      validation  old3          validate step http exited with code 2\n"
        );
        assert_eq!(FailureGroups::new(&[]).text(None).as_str(), "0 hosts, 0 causes\n");
    }
}
