//! Fleets whose hosts, versions and faults are given: each test shows what one history leads to. The laws are
//! checked at every revision.

mod failures;
mod forecast;
mod forecast_times;
mod large;
mod limits;
mod looker;
mod operators;
mod stages;

use planning::rollout::read_policy;
use schema::names::{HostName, Version};
use schema::records::RolloutPolicy;
use simulator::{Act, Flaw, FleetFact, History, Script, Wrong, run_script, trace_script};
use std::collections::BTreeSet;

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60_000;

/// The last lines of a history that are shown.
const LINES_SHOWN: usize = 60;

/// Runs a script that keeps the laws.
fn run(script: &Script) -> History {
    run_script(script, None).unwrap_or_else(|violation| {
        let (lines, _) = trace_script(script, None);
        let shown = lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n");
        panic!("{violation}\n\n{shown}")
    })
}

/// Reads a policy as `orchestrate policy set` does.
fn policy(text: &str) -> RolloutPolicy {
    read_policy("policy", text).unwrap_or_else(|error| panic!("{}", error))
}

fn version(name: &str) -> Version {
    Version::new(name).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn host(name: &str) -> HostName {
    HostName::new(name).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn trigger(at: u64, name: &str) -> (u64, Act) {
    (at, Act::Trigger(version(name)))
}

/// A version with which something goes wrong on every host.
fn flawed(name: &str, what: Wrong) -> (Version, Flaw) {
    (version(name), Flaw { what, hosts: Vec::new() })
}

/// Returns a script whose fleet has this policy.
fn script(hosts: usize, text: &str, acts: Vec<(u64, Act)>) -> Script {
    Script { policy: Some(policy(text)), acts, ..Script::of_hosts(hosts) }
}

/// Returns who starts first in a script, and when. What happens later does not change it.
fn first_start(script: &Script) -> (u64, HostName) {
    let history = run(script);
    let first = starts(&history).next();
    first.map(|(at, (host, _))| (at, host.clone())).expect("a host starts")
}

fn starts(history: &History) -> impl Iterator<Item = (u64, (&HostName, &Version))> {
    history.all(|fact| match fact {
        FleetFact::Started(host, version) => Some((host, version)),
        _ => None,
    })
}

/// Returns the hosts that started to update to a version.
fn started(history: &History, version: &Version) -> BTreeSet<HostName> {
    starts(history).filter(|(_, (_, of))| *of == version).map(|(_, (host, _))| host.clone()).collect()
}

/// Returns the times of facts.
fn times(history: &History, is: impl Fn(&FleetFact) -> bool) -> Vec<u64> {
    history.all(|fact| is(fact).then_some(())).map(|(at, ())| at).collect()
}

fn time_of(history: &History, fact: &FleetFact) -> u64 {
    history.time_of(fact).unwrap_or_else(|| panic!("{fact:?} never happens:\n{}", shown(history)))
}

/// Returns the greatest number of hosts that were between their start and their proof at the same time, from a time
/// on.
fn most_at_once(history: &History, from: u64) -> usize {
    let mut under_way = BTreeSet::new();
    let mut most = 0;
    for noted in history.log.iter().filter(|noted| noted.at >= from) {
        match &noted.fact {
            FleetFact::Started(host, _) => drop(under_way.insert(host)),
            FleetFact::Proven(host, _) => drop(under_way.remove(host)),
            _ => {}
        }
        most = most.max(under_way.len());
    }
    most
}

/// Returns the log line by line, for messages.
fn shown(history: &History) -> String {
    let line = |noted: &simulator::Noted| format!("{:>9} {:?}", noted.at, noted.fact);
    history.log.iter().map(line).collect::<Vec<_>>().join("\n")
}
