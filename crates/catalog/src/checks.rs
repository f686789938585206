//! The meaning of check results: thresholds against flapping in both directions, the expiry of TTL
//! checks, and the health of a service that follows from its checks.

use crate::definitions::{CheckDefinition, CheckKind};
use schema::health::{CheckStatus, Health};
use schema::keys::StatusState;
use schema::names::{CheckId, StatusType};
use schema::records::MaintenanceMode;
use schema::time::BootMillis;
use serde::Serialize;

/// Largest part of a check's output that is kept, in bytes.
pub const OUTPUT_MAX_BYTES: usize = 4 * 1024;

/// The state of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckState {
    /// The status that the check counts as.
    pub status: CheckStatus,
    /// The end of the check's last output.
    pub output: String,
    /// True if a result has arrived.
    pub is_known: bool,
    /// Number of results in a row that contradict `status`, and whether these are good.
    #[serde(skip)]
    streak: (u32, bool),
    /// Since when the status has been critical without a break.
    #[serde(skip)]
    critical_since: Option<BootMillis>,
    /// When the last result arrived; before the first result, when the check was created.
    #[serde(skip)]
    last: BootMillis,
}

impl CheckState {
    /// Returns the state before the first result.
    pub fn new(definition: &CheckDefinition, now: BootMillis) -> Self {
        let critical = definition.initial == CheckStatus::Critical;
        Self {
            status: definition.initial,
            output: String::new(),
            is_known: false,
            streak: (0, false),
            critical_since: critical.then_some(now),
            last: now,
        }
    }

    /// Records a result. The first result counts at once: there is no earlier one from which the
    /// status could flap.
    pub fn record(
        &mut self,
        definition: &CheckDefinition,
        result: CheckStatus,
        output: String,
        now: BootMillis,
    ) {
        self.output = output;
        self.last = now;
        let is_good = result != CheckStatus::Critical;
        let was_good = self.status != CheckStatus::Critical;
        let first = !std::mem::replace(&mut self.is_known, true);
        if is_good == was_good {
            self.streak = (0, is_good);
            self.set(result, now);
            return;
        }
        let streak = if self.streak.1 == is_good { self.streak.0 + 1 } else { 1 };
        let needed = if is_good { definition.good_after } else { definition.critical_after };
        if first || streak >= needed {
            self.streak = (0, is_good);
            self.set(result, now);
        } else {
            self.streak = (streak, is_good);
        }
    }

    /// Makes a TTL check critical if no result arrived within its time to live.
    pub fn expire(&mut self, definition: &CheckDefinition, now: BootMillis) {
        if self.expires(definition).is_some_and(|at| now >= at) {
            self.output = "nothing was heard within its time to live".into();
            self.is_known = true;
            self.set(CheckStatus::Critical, now);
        }
    }

    /// Returns when missing results make the check critical; `None` if that cannot happen.
    pub fn expires(&self, definition: &CheckDefinition) -> Option<BootMillis> {
        let is_open = self.status != CheckStatus::Critical || !self.is_known;
        (definition.kind == CheckKind::Ttl && is_open).then(|| self.last.plus(definition.interval))
    }

    /// Returns when the check has been critical for so long that its service is withdrawn. The time
    /// may have passed already.
    pub fn withdraws(&self, definition: &CheckDefinition) -> Option<BootMillis> {
        Some(self.critical_since?.plus(definition.withdraw_after?))
    }

    fn set(&mut self, status: CheckStatus, now: BootMillis) {
        if status != CheckStatus::Critical {
            self.critical_since = None;
        } else if self.status != CheckStatus::Critical || self.critical_since.is_none() {
            self.critical_since = Some(now);
        }
        self.status = status;
    }
}

/// Returns the health that a host reports for a service: the worst status of the checks of the
/// service and of the host, unless an operator's mark (`mode`) overrides it. A check that has been
/// critical for too long withdraws the service whatever the mark says. Returns `None` while a check
/// has no result yet and the health that was reported before still holds.
pub fn health<'a>(
    checks: impl Iterator<Item = (&'a CheckDefinition, &'a CheckState)> + Clone,
    mode: Option<MaintenanceMode>,
    said_before: Option<Health>,
    now: BootMillis,
) -> Option<Health> {
    if checks.clone().any(|(definition, state)| state.withdraws(definition).is_some_and(|at| now >= at)) {
        return Some(Health::Withdrawn);
    }
    match mode {
        Some(MaintenanceMode::Maintenance) => return Some(Health::Critical),
        Some(MaintenanceMode::Draining) => return Some(Health::Draining),
        None => {}
    }
    let known = |(_, state): &(&CheckDefinition, &CheckState)| state.is_known;
    let bad = checks.clone().filter(known).any(|(_, state)| state.status == CheckStatus::Critical);
    // After a restart of the agent, the health that it reported before holds until every check has
    // a result or one is critical.
    if !bad && said_before.is_some_and(|h| h.is_functional()) && !checks.clone().all(|c| known(&c)) {
        return None;
    }
    Some(checks.map(|(_, state)| state.status).max().unwrap_or(CheckStatus::Passing).into())
}

/// Returns the checks that stand for a result of a host, with the status that the result gives them: the original tool
/// defines the checks `puppet`, `validation` and one of a service with each of these names. "Not yet" gives none.
pub fn checks_of_result(kind: &StatusType, result: StatusState) -> Vec<(CheckId, CheckStatus)> {
    if ![StatusType::apply(), StatusType::validation()].contains(kind) {
        return Vec::new();
    }
    let [of_host, of_service] = match result {
        StatusState::Success => [CheckStatus::Passing; 2],
        StatusState::Failed => [CheckStatus::Warning, CheckStatus::Critical],
        StatusState::Pending => return Vec::new(),
    };
    let names = [(kind.to_string(), of_host), (format!("service:{kind}"), of_service)];
    names.into_iter().filter_map(|(name, status)| Some((CheckId::new(name).ok()?, status))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use schema::names::CheckId;
    use std::time::Duration;

    fn definition(good_after: u32, critical_after: u32) -> CheckDefinition {
        CheckDefinition {
            id: CheckId::new("service:web").unwrap(),
            name: "web".into(),
            kind: CheckKind::Ttl,
            interval: Duration::from_secs(10),
            timeout: Duration::from_secs(1),
            initial: CheckStatus::Critical,
            good_after,
            critical_after,
            withdraw_after: Some(Duration::from_secs(60)),
        }
    }

    fn at(seconds: u64) -> BootMillis {
        BootMillis(seconds * 1000)
    }

    #[test]
    fn a_result_has_the_checks_of_the_original_tool() {
        let check = |kind: &str, result, expected: &[&str]| {
            let found = checks_of_result(&StatusType::new(kind).unwrap(), result);
            let found: Vec<String> = found.iter().map(|(id, status)| format!("{id} {status}")).collect();
            assert_eq!(found, expected, "{kind}");
        };
        check("puppet", StatusState::Success, &["puppet passing", "service:puppet passing"]);
        check("puppet", StatusState::Failed, &["puppet warning", "service:puppet critical"]);
        check("validation", StatusState::Failed, &["validation warning", "service:validation critical"]);
        check("validation", StatusState::Pending, &[]);
        check("provisioned", StatusState::Failed, &[]);
    }

    #[test]
    fn a_change_needs_its_number_of_results_in_a_row() {
        use CheckStatus::{Critical as C, Passing as P, Warning as W};
        let definition = definition(2, 3);
        let mut state = CheckState::new(&definition, at(0));
        let script = [
            (P, P), // The first result counts at once.
            (C, P),
            (C, P),
            (P, P),
            (C, P),
            (C, P),
            (C, C),
            (P, C),
            (C, C),
            (P, C),
            (W, W),
            (P, P),
        ];
        for (number, (result, expected)) in script.into_iter().enumerate() {
            state.record(&definition, result, String::new(), at(number as u64));
            assert_eq!(state.status, expected, "after result {number}");
        }
    }

    #[test]
    fn silence_is_critical_and_long_trouble_withdraws() {
        let definition = definition(1, 1);
        let mut state = CheckState::new(&definition, at(0));
        assert_eq!(state.expires(&definition), Some(at(10)), "also before anybody has spoken");
        let mut silent = state.clone();
        silent.expire(&definition, at(10));
        let one = || std::iter::once((&definition, &silent));
        let before = Some(Health::Passing);
        assert_eq!(health(one(), None, before, at(10)), Some(Health::Critical), "what was said before ends");
        state.record(&definition, CheckStatus::Passing, "fine".into(), at(5));
        assert_eq!(state.expires(&definition), Some(at(15)));
        state.expire(&definition, at(14));
        assert_eq!(state.status, CheckStatus::Passing);
        state.expire(&definition, at(15));
        assert_eq!(state.status, CheckStatus::Critical);
        assert_eq!(state.withdraws(&definition), Some(at(75)));
        let one = || std::iter::once((&definition, &state));
        assert_eq!(health(one(), None, None, at(74)), Some(Health::Critical));
        assert_eq!(health(one(), None, None, at(75)), Some(Health::Withdrawn));
    }

    #[test]
    fn the_worst_counts_and_the_operator_above_it() {
        let definition = definition(1, 1);
        let state = |status: CheckStatus, is_known| {
            let mut state = CheckState::new(&definition, at(0));
            if is_known {
                state.record(&definition, status, String::new(), at(0));
            }
            state
        };
        use CheckStatus::{Critical, Passing, Warning};
        let check = |states: &[CheckState], mode, before, expected| {
            let checks = states.iter().map(|state| (&definition, state));
            assert_eq!(health(checks, mode, before, at(1)), expected, "{states:?} {mode:?}");
        };
        let unknown = || state(Critical, false);
        check(&[], None, None, Some(Health::Passing));
        check(&[state(Passing, true), state(Warning, true)], None, None, Some(Health::Warning));
        check(&[state(Passing, true), state(Critical, true)], None, None, Some(Health::Critical));
        check(&[state(Passing, true), unknown()], None, None, Some(Health::Critical));
        check(&[state(Passing, true), unknown()], None, Some(Health::Passing), None);
        check(&[state(Critical, true), unknown()], None, Some(Health::Passing), Some(Health::Critical));
        let maintenance = Some(MaintenanceMode::Maintenance);
        check(&[state(Passing, true)], maintenance, Some(Health::Passing), Some(Health::Critical));
        check(&[state(Critical, true)], Some(MaintenanceMode::Draining), None, Some(Health::Draining));
    }

    proptest! {
        /// The state changes between good and bad only when a run of results reaches its threshold.
        #[test]
        fn it_does_not_flap_faster_than_its_thresholds(
            results in prop::collection::vec(any::<bool>(), 1..200),
            good_after in 1u32..5,
            critical_after in 1u32..5,
        ) {
            let definition = definition(good_after, critical_after);
            let mut state = CheckState::new(&definition, at(0));
            let mut run = 0;
            let mut last = None;
            for (number, good) in results.into_iter().enumerate() {
                run = if last == Some(good) { run + 1 } else { 1 };
                last = Some(good);
                let before = state.status != CheckStatus::Critical;
                let result = if good { CheckStatus::Passing } else { CheckStatus::Critical };
                state.record(&definition, result, String::new(), at(number as u64));
                let after = state.status != CheckStatus::Critical;
                let needed = if good { good_after } else { critical_after };
                if number > 0 && before != after {
                    prop_assert!(after == good && run == needed);
                }
                if run >= needed {
                    prop_assert_eq!(after, good);
                }
            }
        }
    }
}
