//! What simulations did, as numbers.

/// What a simulation did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    pub hosts: usize,
    /// Revisions of the store at which the laws were checked.
    pub revisions: u64,
    /// Updates that hosts started.
    pub starts: u64,
    /// Updates that took claims of limits.
    pub with_claims: u64,
    /// Hosts that were lost, so that their claims ended.
    pub lost: u64,
    /// Rollouts that were halted, because too many hosts failed.
    pub halts: u64,
    pub ends: u64,
    /// Rollouts that hosts rolled back.
    pub rollbacks: u64,
    /// Stages that were opened.
    pub stages: u64,
}

impl std::ops::AddAssign for Summary {
    fn add_assign(&mut self, other: Self) {
        self.hosts += other.hosts;
        self.revisions += other.revisions;
        self.starts += other.starts;
        self.with_claims += other.with_claims;
        self.lost += other.lost;
        self.halts += other.halts;
        self.ends += other.ends;
        self.rollbacks += other.rollbacks;
        self.stages += other.stages;
    }
}
