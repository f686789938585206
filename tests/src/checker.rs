//! Merges the history of the store with the log lines of the steps, and checks invariants I1, I2
//! and I17 over the whole history.

use crate::recorder::Change;
use schema::keys::Key;
use schema::names::{HostName, StatusType, Version};
use std::collections::{BTreeMap, BTreeSet};

/// One line that a test step logged when it started or ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepLine {
    pub phase: String,
    pub step: String,
    /// The version that the step was given.
    pub version: String,
    /// The exit code; `None` in `start` lines.
    pub code: Option<i32>,
    /// Time of the line, in hundredths of a second since boot.
    pub boot_centis: u64,
}

/// Parses lines of the form `phase step version code-or-start seconds.hundredths`.
pub fn parse_steps(text: &str) -> Vec<StepLine> {
    text.lines()
        .filter_map(|line| {
            let fields: Vec<&str> = line.split(' ').collect();
            let [phase, step, version, code, seconds] = fields.as_slice() else { return None };
            Some(StepLine {
                phase: (*phase).to_owned(),
                step: (*step).to_owned(),
                version: (*version).to_owned(),
                code: code.parse().ok(),
                boot_centis: seconds.replace('.', "").parse().ok()?,
            })
        })
        .collect()
}

/// Checks the history of a store and the step logs of its hosts.
///
/// # Panics
/// Panics if an invariant is violated, with the name of the invariant and the revision.
pub fn check(changes: &[Change], steps: &BTreeMap<HostName, Vec<StepLine>>) {
    let mut statuses: BTreeMap<(HostName, StatusType), BTreeSet<&str>> = BTreeMap::new();
    let mut first_result: BTreeSet<(HostName, StatusType)> = BTreeSet::new();
    let mut listed: BTreeMap<HostName, BTreeSet<Version>> = BTreeMap::new();
    let mut index = 0;
    while index < changes.len() {
        let revision = changes[index].revision;
        let mut touched = BTreeSet::new();
        while index < changes.len() && changes[index].revision == revision {
            let change = &changes[index];
            index += 1;
            match Key::parse(&change.key) {
                Ok(Key::Status(kind, state, host)) => {
                    let states = statuses.entry((host.clone(), kind.clone())).or_default();
                    if change.value.is_some() {
                        states.insert(state.as_str());
                        first_result.insert((host.clone(), kind.clone()));
                    } else {
                        states.remove(state.as_str());
                    }
                    touched.insert((host, kind));
                }
                Ok(Key::RunningVersion(version, host)) => {
                    let versions = listed.entry(host.clone()).or_default();
                    if change.value.is_none() {
                        versions.remove(&version);
                    } else if versions.insert(version.clone())
                        && let Some(steps) = steps.get(&host)
                    {
                        check_announcement(change, &version, steps);
                    }
                }
                _ => {}
            }
        }
        // The state is judged after the whole revision, because a transaction is one revision.
        for (host, versions) in &listed {
            assert!(versions.len() <= 1, "I17 at revision {revision}: {host} is listed under {versions:?}");
        }
        for key in touched {
            let states = &statuses[&key];
            assert!(states.len() <= 1, "I2 at revision {revision}: {key:?} is in {states:?}");
            assert!(
                !first_result.contains(&key) || states.len() == 1,
                "I2 at revision {revision}: {key:?} is in no state after its first result"
            );
        }
    }
}

/// Checks invariant I1: a host is listed only after every apply step and then validation succeeded,
/// with nothing disruptive since.
fn check_announcement(change: &Change, version: &Version, steps: &[StepLine]) {
    // The recorder may read its clock slightly before a step that logs in the same hundredth.
    let before: Vec<&StepLine> = steps.iter().filter(|s| s.boot_centis <= change.boot_centis + 1).collect();
    let at = format!("revision {} lists {version}\n{before:#?}", change.revision);
    let last_apply =
        before.iter().rposition(|s| s.phase == "apply").unwrap_or_else(|| panic!("I1: no apply; {at}"));
    let last = before[last_apply];
    assert_eq!((last.version.as_str(), last.code), (version.as_str(), Some(0)), "I1: the last apply; {at}");
    let validated = before[last_apply..].iter().rev().find(|s| s.phase == "validate" && s.code.is_some());
    let validated = validated.unwrap_or_else(|| panic!("I1: no validation since; {at}"));
    assert_eq!(
        (validated.version.as_str(), validated.code),
        (version.as_str(), Some(0)),
        "I1: validation; {at}"
    );
}
