//! The state of the store before a start is committed, for the laws about limits, and whether the host needs claims.

use crate::budget_laws::{BudgetLaws, StartUnderBudget};
use crate::machine::Machine;
use crate::stage_laws::{is_closed, record_of};
use crate::store::Store;
use schema::instruction::{Epoch, Instruction};
use schema::keys::{self, Key, StatusState};
use schema::limit::Limit;
use schema::names::{HostName, StatusType};
use schema::order::InstructionOrder;
use std::collections::BTreeSet;

/// The state of the store when a start reaches it.
#[derive(Debug, Clone)]
pub(crate) struct Starting {
    pub(crate) host: HostName,
    pub(crate) order: InstructionOrder,
    /// The limits of the rollout that count the host, and how many hosts of each may be unavailable.
    pub(crate) limits: Vec<(Limit, u32)>,
    /// The limits that go on counting a host that gave up.
    pub(crate) keeps: BTreeSet<Limit>,
    /// True if a policy governs the rollout, and its record is missing or refuses every start.
    pub(crate) is_forbidden: bool,
    /// True if the host was never proven, or is disturbed under an older instruction. A machine that is
    /// not whole serves nobody either; it can have the name of one that is.
    pub(crate) needs_nothing: bool,
    /// True if the stage of the host is not open, or no window.
    pub(crate) is_closed: bool,
    pub(crate) budget: StartUnderBudget,
}

/// State of a host before it starts an instruction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Earlier {
    /// True if the host has been unavailable since an earlier start.
    pub(crate) was_disturbed: bool,
    /// True if this machine started an earlier instruction and has done nothing since.
    pub(crate) has_started: bool,
}

impl Starting {
    /// Returns what the store says before a start is committed; `None` if nothing is to be started. `earlier` says what
    /// is known of the host when it starts an instruction.
    pub(crate) fn read(
        store: &Store,
        machine: &Machine,
        now: u64,
        budgets: &BudgetLaws,
        earlier: impl FnOnce(InstructionOrder) -> Earlier,
    ) -> Option<Self> {
        let host = &machine.host;
        let keys = [Key::Store, Key::CurrentVersion, Key::RolloutPolicy, Key::Host(host.clone())];
        let found = store.read(&keys);
        let epoch = Epoch::read(found.get(&Key::Store)).unwrap_or_default();
        let instruction = epoch.instruction(found.get(&Key::CurrentVersion)).ok().flatten();
        let Instruction { order, .. } = instruction?;
        let is_closed = is_closed(store, machine, order, now);
        let roster = found.value_of(keys::Host(host.clone())).unwrap_or_default();
        let record = record_of(store, order).map(|(record, _)| record);
        let policy = found.get(&Key::RolloutPolicy);
        let governs = policy.is_some_and(|entry| {
            let policy = keys::RolloutPolicy::read(&entry.value);
            entry.create_revision < order.revision && policy.is_ok_and(|policy| !policy.is_empty())
        });
        let is_forbidden = record.as_ref().map_or(governs, |record| record.refused.is_some());
        let (mut limits, mut keeps) = (Vec::new(), BTreeSet::new());
        for resolved in record.iter().flat_map(|record| &record.limits) {
            if let Ok(Some(limit)) = resolved.by.of_host(&roster) {
                let max = resolved.values.get(&limit.value).copied().unwrap_or(resolved.max);
                if resolved.keep_failed.unwrap_or(max == 1) {
                    keeps.insert(limit.clone());
                }
                limits.push((limit, max));
            }
        }
        let provisioned = Key::Status(StatusType::provisioned(), StatusState::Success, host.clone());
        let is_new = store.entry(&provisioned.to_string()).is_none();
        // The services of a reinstalled machine are missing, so it needs claims for its first start.
        let earlier = earlier(order);
        let is_installed_again = machine.truth.applies == 0 && !is_new && !earlier.has_started;
        let was_disturbed = earlier.was_disturbed || machine.truth.proven.is_none();
        let needs_nothing = is_new || was_disturbed && !is_installed_again;
        let budget = budgets.expect(store, order);
        let host = host.clone();
        Some(Self { host, order, limits, keeps, is_forbidden, needs_nothing, is_closed, budget })
    }
}
