//! Fleets whose hosts, versions and faults are given: each test shows what one history leads to. The laws are
//! checked at every revision.

mod forecast;
mod large;

use planning::rollout::read_policy;
use schema::names::Version;
use schema::records::RolloutPolicy;
use simulator::{History, Script, run_script, trace_script};

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
    read_policy("policy", text).unwrap_or_else(|error| panic!("{}", error.message))
}

fn version(name: &str) -> Version {
    Version::new(name).unwrap_or_else(|error| panic!("{name}: {error}"))
}
