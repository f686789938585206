//! Simulates whole fleets: the real decisions and the real transactions, on the core of solo-etcd and
//! a virtual clock. A seed decides everything that happens: results and durations of steps, crashes
//! at every boundary, lost, late and slow messages, leases that end, operators, reboots, clones,
//! backups. The laws of a fleet are checked after every change of the store.
//!
//! A [`Script`] runs a fleet that is given instead. [`search`] looks at all orders of events of a very small one.
//!
//! Nothing here reads a clock, a file or the network.

mod agent;
mod agent_policy;
mod budget_laws;
mod claim;
mod claiming;
mod closing;
mod current;
mod digest;
mod end_laws;
mod ending;
mod event;
mod exhaustive;
mod fall_laws;
mod fleet;
mod going;
mod healing;
mod history;
mod hold_laws;
mod incidents;
mod laws;
mod limit_laws;
mod machine;
mod mirroring;
mod model;
mod mutating;
mod mutation;
mod news;
mod operating;
mod policies;
mod reality;
mod record_laws;
mod rollouts;
mod saying;
mod scenario;
mod script;
mod scripted;
mod stage_laws;
mod standing_laws;
mod starting;
mod store;
mod summary;
mod violation;
mod waiting_laws;
mod watching;
mod world;
mod writing;

pub use exhaustive::{Bounds, Searched, search};
pub use history::{FleetFact, History, Noted};
pub use mutation::Mutation;
pub use script::{Act, Flaw, NetworkFaults, Script, ScriptHost, Wrong};
pub use scripted::{run_script, trace_script};
pub use summary::Summary;
pub use violation::Violation;

use fleet::Fleet;

/// Simulates the fleet of a seed.
///
/// # Errors
/// Returns the first law that was broken.
pub fn simulate(seed: u64, mutation: Option<&'static Mutation>) -> Result<Summary, Violation> {
    let mut fleet = Fleet::new(seed, mutation, false);
    fleet.run()?;
    Ok(fleet.summary())
}

/// Simulates the fleet of a seed, and returns what happened line by line with the result.
pub fn trace(seed: u64, mutation: Option<&'static Mutation>) -> (Vec<String>, Result<Summary, Violation>) {
    let mut fleet = Fleet::new(seed, mutation, true);
    let result = fleet.run();
    let summary = fleet.summary();
    (fleet.world.take_trace(), result.map(|()| summary))
}
