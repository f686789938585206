//! Which hosts run which version: `running_versions`, `hosts_at_version`, `check_single_version`.

use crate::commands::answers;
use crate::commands::context::{Store, version_of};
use crate::commands::fleet::warn_of_skipped;
use crate::commands::verb::{About, Answer, Group, Past, Spec, Verb};
use crate::completion;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use clap::Args;
use etcd_session::{KeyList, StoreError};
use fleet::views::VersionCount;
use schema::keys::Prefix;
use schema::names::{HostName, Version};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// The versions that hosts run, with the number of hosts, at one revision.
struct VersionCounts {
    versions: BTreeMap<Version, usize>,
    revision: i64,
}

async fn running(store: &Store<'_>) -> Result<VersionCounts, StoreError> {
    let list = store.session.read_key_list(&Prefix::RunningVersions, None, store.deadline).await?;
    let (versions, skipped) = count_versions(list.suffixes());
    warn_of_skipped(skipped);
    Ok(VersionCounts { versions, revision: list.revision })
}

/// Returns the number of hosts of each version, and the number of keys with invalid names. The keys
/// are sorted, so a version is parsed only where it differs from that of the key before.
fn count_versions<'a>(suffixes: impl Iterator<Item = &'a str>) -> (BTreeMap<Version, usize>, usize) {
    let mut versions = BTreeMap::new();
    let mut skipped = 0;
    let mut last: Option<(&str, Option<Version>)> = None;
    for suffix in suffixes {
        let Some((text, host)) = suffix.split_once('/') else {
            skipped += 1;
            continue;
        };
        if last.as_ref().is_none_or(|(known, _)| *known != text) {
            last = Some((text, Version::new(text).ok()));
        }
        match &last {
            Some((_, Some(version))) if HostName::new(host).is_ok() => {
                if let Some(count) = versions.get_mut(version) {
                    *count += 1;
                } else {
                    versions.insert(version.clone(), 1);
                }
            }
            _ => skipped += 1,
        }
    }
    (versions, skipped)
}

/// Returns the valid host names of a list, in its order, and the number of invalid ones.
pub(crate) fn hosts_of(list: &KeyList) -> (Vec<HostName>, usize) {
    let hosts: Vec<HostName> = list.suffixes().filter_map(|text| HostName::new(text).ok()).collect();
    let skipped = list.len() - hosts.len();
    (hosts, skipped)
}

fn version_counts(versions: &BTreeMap<Version, usize>) -> Vec<VersionCount> {
    let count =
        |(version, hosts): (&Version, &usize)| VersionCount { version: version.clone(), host_count: *hosts };
    versions.iter().map(count).collect()
}

/// What `running_versions` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RunningAnswer {
    versions: Vec<VersionCount>,
    revision: i64,
}

/// List the versions that hosts run
#[derive(Debug, Args)]
pub(crate) struct RunningVersions;

impl Verb for RunningVersions {
    const SPEC: Spec = Spec {
        name: "running_versions",
        group: Group::Rollout,
        about: About::Hosts,
        past: Past::Answers,
        exits: &[],
        answer: Answer::Json(answers::of::<RunningAnswer>),
        examples: &[("orchestrate running_versions", "which versions run in the fleet")],
    };

    /// Lists the versions, one per line.
    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let running = running(store).await?;
        let answer =
            RunningAnswer { versions: version_counts(&running.versions), revision: running.revision };
        output.sorted_answer(&answer, |o| {
            for version in running.versions.keys() {
                o.line(version.as_str());
            }
            if running.versions.is_empty() {
                o.line("");
            }
        });
        Ok(Exit::Yes)
    }
}

/// What `hosts_at_version` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct HostsAnswer<'a> {
    version: &'a Version,
    hosts: &'a [HostName],
    revision: i64,
}

/// List the hosts that run a version
#[derive(Debug, Args)]
pub(crate) struct HostsAtVersion {
    /// Version under which the hosts are listed
    #[arg(add = completion::versions())]
    version: String,
}

impl Verb for HostsAtVersion {
    const SPEC: Spec = Spec {
        name: "hosts_at_version",
        group: Group::Rollout,
        about: About::Hosts,
        past: Past::Answers,
        exits: &[],
        answer: Answer::Json(answers::of::<HostsAnswer<'_>>),
        examples: &[("orchestrate hosts_at_version v42", "which hosts still run v42")],
    };

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let version = version_of(&self.version)?;
        let prefix = Prefix::RunningVersion(version.clone());
        let list = store.session.read_key_list(&prefix, None, store.deadline).await?;
        let (hosts, skipped) = hosts_of(&list);
        warn_of_skipped(skipped);
        let answer = HostsAnswer { version: &version, hosts: &hosts, revision: list.revision };
        output.sorted_answer(&answer, |o| {
            hosts.iter().for_each(|host| o.line(host.as_str()));
        });
        Ok(Exit::Yes)
    }
}

/// What `check_single_version` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SingleVersionAnswer<'a> {
    version: &'a Version,
    wanted_found: bool,
    unwanted: &'a [&'a str],
    versions: Vec<VersionCount>,
    revision: i64,
}

/// Check whether hosts run this version and no other
#[derive(Debug, Args)]
pub(crate) struct CheckSingleVersion {
    /// Print what was found
    #[arg(short, long)]
    verbose: bool,
    /// Version that hosts are to run, and no other
    #[arg(add = completion::versions())]
    version: String,
}

impl Verb for CheckSingleVersion {
    const SPEC: Spec = Spec {
        name: "check_single_version",
        group: Group::Original,
        about: About::Hosts,
        past: Past::Answers,
        exits: &[Exit::No],
        answer: Answer::Json(answers::of::<SingleVersionAnswer<'_>>),
        examples: &[],
    };

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let version = &version_of(&self.version)?;
        let running = running(store).await?;
        let found = running.versions.contains_key(version);
        let unwanted: Vec<&str> =
            running.versions.keys().filter(|v| *v != version).map(Version::as_str).collect();
        let answer = SingleVersionAnswer {
            version,
            wanted_found: found,
            unwanted: &unwanted,
            versions: version_counts(&running.versions),
            revision: running.revision,
        };
        output.sorted_answer(&answer, |o| {
            if self.verbose {
                o.line(&format!("Wanted version found: {}", if found { "True" } else { "False" }));
                o.line(&format!("Unwanted versions found: {}", unwanted.join(", ")));
            }
        });
        Ok(Exit::of(found && unwanted.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_counted_by_version_and_garbage_apart() {
        let (versions, skipped) =
            count_versions(["v1/a", "v1/b", "v1/not a host", "v 2/a", "stray", "v3/c"].into_iter());
        let found: Vec<_> = versions.iter().map(|(v, n)| (v.as_str(), *n)).collect();
        assert_eq!(found, [("v1", 2), ("v3", 1)]);
        assert_eq!(skipped, 3);
    }
}
