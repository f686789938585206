//! Runs many simulated fleets, and says which broke a law.

use simulator::{Mutation, Summary, Violation, simulate, trace};
use std::time::{Duration, Instant, SystemTime};

/// The last lines of a history that are shown.
const LINES_SHOWN: usize = 60;

/// What a run of many fleets did.
#[derive(Debug, Default)]
pub struct Run {
    /// Number of fleets.
    pub fleets: u64,
    /// Sum over all fleets.
    pub sum: Summary,
    /// The seeds of fleets that broke a law, with the law.
    pub failures: Vec<(u64, Violation)>,
}

/// Returns a seed that was not used before.
pub fn fresh_seed() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    // Seeds are shown in decimal digits; the lowest digits count the fleets of a run.
    since.as_secs() * 1_000_000
}

impl Run {
    /// Simulates fleets from this seed on until the time is over and there were so many, or until ten have
    /// broken a law.
    pub fn for_time(first: u64, limit: Duration, at_least: u64) -> Self {
        let (begin, mut run) = (Instant::now(), Self::default());
        while (begin.elapsed() < limit || run.fleets < at_least) && run.failures.len() < 10 {
            run.add(first + run.fleets);
        }
        run
    }

    /// Simulates the fleet of a seed.
    pub fn add(&mut self, seed: u64) {
        self.fleets += 1;
        match simulate(seed, None) {
            Ok(summary) => self.sum += summary,
            Err(violation) => self.failures.push((seed, violation)),
        }
    }

    /// Returns what failed, with the end of the first history; `None` if nothing did.
    pub fn report(&self) -> Option<String> {
        let (seed, _) = self.failures.first()?;
        let all: Vec<String> =
            self.failures.iter().map(|(seed, violation)| format!("seed {seed}: {violation}")).collect();
        let (lines, _) = trace(*seed, None);
        let shown = lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n");
        Some(format!(
            "{}\n\n{shown}\n\nthe whole history: cargo run --bin simulate replay {seed}",
            all.join("\n")
        ))
    }
}

/// Seeds that show the planted bugs which few fleets show.
const SHOWN_BY: &[(&str, u64)] = &[
    ("the start does not compare the failures", 2408),
    ("the start does not compare the halt", 282),
    ("a host that is lost is not counted as failed", 50),
    ("a host that is back stays marked as vanished", 143),
    ("a lost host that is back takes no claims", 40_551),
    ("a name is claimed over another claim", 1125),
    ("a version whose proof is lost stays listed", 2002),
    ("a reboot washes the charge away", 1147),
];

/// Returns the first of so many seeds whose fleet shows that a planted bug breaks a law.
pub fn find(mutation: &'static Mutation, most: u64) -> Option<(u64, Violation)> {
    let first = SHOWN_BY.iter().find(|(name, _)| *name == mutation.name).map_or(0, |(_, seed)| *seed);
    (first..first + most).find_map(|seed| Some((seed, simulate(seed, Some(mutation)).err()?)))
}
