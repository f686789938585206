//! The bundles of failures that hosts name in their reports.

use super::facts::HostFacts;
use super::state::Fleet;
use crate::text::cut_to;
use schema::names::{Fingerprint, HostName};
use schema::records::BundleLink;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A bundle, and the host that uploaded it.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[schemars(with = "UploadedBundleJson<'_>")]
pub struct UploadedBundle {
    /// The host.
    pub host: HostName,
    /// Where the bundle is, and which failure it is about.
    pub link: BundleLink,
}

/// The names of [`UploadedBundle`] in JSON.
#[derive(Serialize, JsonSchema)]
struct UploadedBundleJson<'a> {
    bundle: &'a str,
    bundle_host: &'a HostName,
    fingerprint: &'a Fingerprint,
}

impl Serialize for UploadedBundle {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { host, link } = self;
        UploadedBundleJson { bundle: &link.url, bundle_host: host, fingerprint: &link.fingerprint }
            .serialize(serializer)
    }
}

impl UploadedBundle {
    /// Returns the line below the row of a cause. A URL that does not fit is of no use, so on a terminal that is too
    /// narrow the line says which command names it.
    pub fn line(&self, width: Option<usize>) -> String {
        let Self { host, link } = self;
        let whole = format!("  bundle: {} ({host})", link.url);
        match width {
            Some(width) if cut_to(&whole, width) != whole => {
                cut_to(&format!("  bundle of {host}; `orchestrate why {host}` names its URL"), width)
            }
            _ => whole,
        }
    }
}

/// The bundle of a cause as fields of JSON, which are null if there is none.
#[derive(Serialize, JsonSchema)]
pub(super) struct BundleFields<'a> {
    bundle: Option<&'a str>,
    bundle_host: Option<&'a HostName>,
}

impl<'a> BundleFields<'a> {
    pub(super) fn of(bundle: Option<&'a UploadedBundle>) -> Self {
        Self {
            bundle: bundle.map(|bundle| bundle.link.url.as_str()),
            bundle_host: bundle.map(|bundle| &bundle.host),
        }
    }
}

/// The newest bundle of each cause: that of the last rollout.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NewestBundles(BTreeMap<Fingerprint, UploadedBundle>);

impl FromIterator<UploadedBundle> for NewestBundles {
    fn from_iter<I: IntoIterator<Item = UploadedBundle>>(bundles: I) -> Self {
        let mut newest: BTreeMap<Fingerprint, UploadedBundle> = BTreeMap::new();
        for bundle in bundles {
            let fingerprint = &bundle.link.fingerprint;
            let before = newest.get(fingerprint).map(|before| before.link.rollout);
            if before.is_none_or(|before| before < bundle.link.rollout) {
                newest.insert(fingerprint.clone(), bundle);
            }
        }
        Self(newest)
    }
}

impl NewestBundles {
    /// Returns the bundles that the reports of a fleet name.
    pub fn of(fleet: &Fleet) -> Self {
        let of_host = |(host, facts): (&HostName, &HostFacts)| {
            let link = facts.readable_report()?.bundle.clone()?;
            Some(UploadedBundle { host: host.clone(), link })
        };
        fleet.hosts().iter().chain(fleet.others()).filter_map(of_host).collect()
    }

    /// True if there is no bundle.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the bundle of a cause.
    pub fn of_cause(&self, fingerprint: &Fingerprint) -> Option<&UploadedBundle> {
        self.0.get(fingerprint)
    }

    /// Returns the bundles about what failed on these hosts, the one about the most hosts first.
    pub fn of_hosts(&self, hosts: &[HostName], fleet: &Fleet) -> Vec<UploadedBundle> {
        let facts = hosts.iter().filter_map(|host| fleet.hosts().get(host));
        let mut counts: BTreeMap<&Fingerprint, usize> = BTreeMap::new();
        facts.flat_map(HostFacts::failed_causes).for_each(|cause| *counts.entry(cause).or_default() += 1);
        let mut counts = Vec::from_iter(counts);
        counts.sort_by_key(|(_, count)| Reverse(*count));
        counts.into_iter().filter_map(|(cause, _)| self.of_cause(cause).cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::order::InstructionOrder;

    fn bundle(host: &str, revision: i64, cause: &str) -> UploadedBundle {
        let link = BundleLink {
            url: format!("s3://b/{host}"),
            sha256: "ab".repeat(32),
            bytes: 1,
            rollout: InstructionOrder { epoch: 1, revision },
            fingerprint: Fingerprint::new(format!("f1-{cause:0>12}")).unwrap(),
        };
        UploadedBundle { host: HostName::new(host).unwrap(), link }
    }

    #[test]
    fn the_newest_bundle_of_each_cause_is_that_of_the_last_rollout() {
        let all = [bundle("a", 5, "1"), bundle("b", 7, "1"), bundle("c", 6, "1"), bundle("d", 1, "2")];
        let newest = NewestBundles::from_iter(all);
        let of = |cause: &str| {
            let fingerprint = Fingerprint::new(format!("f1-{cause:0>12}")).unwrap();
            newest.of_cause(&fingerprint).map(|bundle| bundle.host.to_string())
        };
        let found = ["1", "2", "3"].map(of);
        assert_eq!(found, [Some("b".into()), Some("d".into()), None]);
    }

    #[test]
    fn a_line_has_the_whole_url_or_the_command_that_names_it() {
        let bundle = bundle("web1", 5, "1");
        let short = "  bundle of web1; `orchestrate why web1` names its URL";
        for (width, expected) in [
            (None, "  bundle: s3://b/web1 (web1)"),
            (Some(28), "  bundle: s3://b/web1 (web1)"),
            (Some(27), "  bundle of web1; `orchest…"),
        ] {
            assert_eq!(bundle.line(width), expected, "{width:?}");
        }
        let link = BundleLink { url: "s3://b/".to_owned() + &"x".repeat(90), ..bundle.link.clone() };
        assert_eq!(UploadedBundle { link, ..bundle }.line(Some(80)), short);
    }
}
