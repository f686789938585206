//! The check registry: all checks of this host and their results. It owns the results; other parts
//! of the agent read them or report new ones.

use crate::clock;
use crate::metrics::Metrics;
use catalog::checks::{CheckState, OUTPUT_MAX_BYTES};
use catalog::definitions::{CheckDefinition, CheckKind, Definitions, ServiceDefinition};
use schema::codec::cut;
use schema::health::CheckStatus;
use schema::names::{CheckId, ServiceName};
use schema::time::BootMillis;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// A check as readers see it.
#[derive(Debug, Clone)]
pub(crate) struct CheckView {
    pub id: CheckId,
    pub name: String,
    /// The service that the check belongs to; `None` for a check of the host.
    pub service: Option<ServiceName>,
    pub state: CheckState,
}

/// The reason why a reported result is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UnknownCheck {
    /// The check does not exist on this host.
    #[error("there is no check {0} on this host")]
    NoSuch(CheckId),
    /// The check is not a TTL check: the agent runs it.
    #[error("check {0} is not a TTL check: the agent runs it and accepts no results for it")]
    NotTtl(CheckId),
}

#[derive(Debug)]
struct RegisteredCheck {
    definition: CheckDefinition,
    service: Option<ServiceName>,
    state: CheckState,
}

/// All checks of this host.
#[derive(Debug, Default)]
pub(crate) struct CheckRegistry {
    checks: Mutex<BTreeMap<CheckId, RegisteredCheck>>,
    changed: watch::Sender<u64>,
    /// Like `changed`, but does not signal a result that repeats the status.
    status_changed: watch::Sender<u64>,
    metrics: Metrics,
}

/// Makes every TTL check critical whose time to live ended without a result.
fn expire(checks: &mut BTreeMap<CheckId, RegisteredCheck>, now: BootMillis) {
    checks.values_mut().for_each(|known| known.state.expire(&known.definition, now));
}

impl CheckRegistry {
    /// Returns a registry without checks, which counts results in these metrics.
    pub(crate) fn new(metrics: Metrics) -> Self {
        Self { metrics, ..Self::default() }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<CheckId, RegisteredCheck>> {
        // No code panics while it holds the lock.
        self.checks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a channel that signals a change of status, a result of a TTL check, or new
    /// definitions.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Returns a channel that signals a change of status, or new definitions.
    pub(crate) fn status_changes(&self) -> watch::Receiver<u64> {
        self.status_changed.subscribe()
    }

    fn notify(&self) {
        self.changed.send_modify(|number| *number += 1);
    }

    fn notify_status(&self) {
        self.status_changed.send_modify(|number| *number += 1);
    }

    /// Replaces the definitions. A check whose definition did not change keeps its state.
    pub(crate) fn define(&self, definitions: &Definitions) {
        let now = clock::boot_millis();
        let mut checks = self.lock();
        let mut old = std::mem::take(&mut *checks);
        let of_services = definitions
            .services
            .values()
            .flat_map(|service| service.checks.iter().map(|check| (Some(service.name.clone()), check)));
        let all = of_services.chain(definitions.host_checks.iter().map(|check| (None, check)));
        for (service, definition) in all {
            let known = old
                .remove(&definition.id)
                .filter(|known| known.definition == *definition && known.service == service);
            let known = known.unwrap_or_else(|| RegisteredCheck {
                definition: definition.clone(),
                service,
                state: CheckState::new(definition, now),
            });
            checks.insert(definition.id.clone(), known);
        }
        drop(checks);
        self.notify();
        self.notify_status();
    }

    /// Records a result. Ignores a check that does not exist.
    pub(crate) fn record(&self, id: &CheckId, result: CheckStatus, output: &str) {
        let mut checks = self.lock();
        let Some(known) = checks.get_mut(id) else { return };
        self.metrics.note_check(result);
        let before = (known.state.status, known.state.is_known);
        known.state.record(&known.definition, result, cut(output, OUTPUT_MAX_BYTES), clock::boot_millis());
        let after = (known.state.status, known.state.is_known);
        let is_ttl = known.definition.kind == CheckKind::Ttl;
        drop(checks);
        // Every result of a TTL check sets a new deadline.
        if before != after || is_ttl {
            if before != after {
                tracing::info!(check = %id, status = %after.0, "the status of a check changed");
                self.notify_status();
            }
            self.notify();
        }
    }

    /// Records a result that was reported from outside.
    ///
    /// # Errors
    /// The check does not exist, or it is not a TTL check.
    pub(crate) fn report_result(
        &self,
        id: &CheckId,
        result: CheckStatus,
        output: &str,
    ) -> Result<(), UnknownCheck> {
        let kind = self.lock().get(id).map(|known| known.definition.kind.clone());
        match kind {
            None => Err(UnknownCheck::NoSuch(id.clone())),
            Some(CheckKind::Ttl) => {
                self.record(id, result, output);
                Ok(())
            }
            Some(_) => Err(UnknownCheck::NotTtl(id.clone())),
        }
    }

    /// Calls a function with the checks that a service depends on: its own and those of the host. A
    /// check that is defined but not yet in the registry counts as one without a result.
    pub(crate) fn with<T>(
        &self,
        service: &ServiceDefinition,
        host_checks: &[CheckDefinition],
        read: impl FnOnce(std::vec::IntoIter<(&CheckDefinition, &CheckState)>) -> T,
    ) -> T {
        let now = clock::boot_millis();
        let mut checks = self.lock();
        expire(&mut checks, now);
        let all = || service.checks.iter().chain(host_checks);
        let fresh: Vec<CheckState> = all().map(|definition| CheckState::new(definition, now)).collect();
        let of_service: Vec<_> = all()
            .zip(&fresh)
            .map(|(definition, fresh)| {
                let known = checks.get(&definition.id).filter(|known| known.definition == *definition);
                (definition, known.map_or(fresh, |known| &known.state))
            })
            .collect();
        read(of_service.into_iter())
    }

    /// Returns when the next check changes through time alone.
    pub(crate) fn next_change(&self) -> Option<BootMillis> {
        let now = clock::boot_millis();
        let mut checks = self.lock();
        expire(&mut checks, now);
        let times = checks.values().flat_map(|known| {
            let withdraws = known.state.withdraws(&known.definition).filter(|at| *at > now);
            known.state.expires(&known.definition).into_iter().chain(withdraws)
        });
        times.min()
    }

    pub(crate) fn all(&self) -> Vec<CheckView> {
        self.filtered(|_| true)
    }

    /// Returns the checks that have a result and are not passing.
    pub(crate) fn failing(&self) -> Vec<CheckView> {
        self.filtered(|state| state.is_known && state.status != CheckStatus::Passing)
    }

    fn filtered(&self, is_wanted: impl Fn(&CheckState) -> bool) -> Vec<CheckView> {
        let mut checks = self.lock();
        expire(&mut checks, clock::boot_millis());
        let shown = checks.iter().filter(|(_, known)| is_wanted(&known.state)).map(|(id, known)| CheckView {
            id: id.clone(),
            name: known.definition.name.clone(),
            service: known.service.clone(),
            state: known.state.clone(),
        });
        shown.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use catalog::checks::health;
    use catalog::definitions::{assemble, parse_file};
    use schema::health::Health;

    fn definitions(text: &str) -> Definitions {
        assemble([("f", &parse_file("f.toml", text).unwrap())]).0
    }

    fn health_of(
        registry: &CheckRegistry,
        definitions: &Definitions,
        before: Option<Health>,
    ) -> Option<Health> {
        let service = definitions.services.values().next().unwrap();
        registry.with(service, &definitions.host_checks, |checks| {
            health(checks, None, before, clock::boot_millis())
        })
    }

    #[test]
    fn a_service_says_nothing_good_before_its_checks_have_run() {
        let registry = CheckRegistry::default();
        let one =
            "[[service]]\nname = \"web\"\n[[service.check]]\ntcp = \"localhost:1\"\ninterval = \"1h\"\n";
        let service = definitions(one);
        // The publisher may start before the checks are in the registry.
        assert_eq!(health_of(&registry, &service, None), Some(Health::Critical));
        registry.define(&service);
        assert_eq!(health_of(&registry, &service, None), Some(Health::Critical));
        let id = CheckId::new("service:web").unwrap();
        registry.record(&id, CheckStatus::Passing, "");
        assert_eq!(health_of(&registry, &service, None), Some(Health::Passing));
        // A new check of the host must have a result as well.
        let more = definitions(&format!(
            "{one}[[check]]\nname = \"disk\"\ntcp = \"localhost:1\"\ninterval = \"1h\"\n"
        ));
        assert_eq!(health_of(&registry, &more, None), Some(Health::Critical));
        assert_eq!(health_of(&registry, &more, Some(Health::Passing)), None, "what was said before stands");
        // A check with a changed definition must have a new result.
        let changed = definitions(&one.replace("1h", "2h"));
        assert_eq!(health_of(&registry, &changed, None), Some(Health::Critical));
    }

    #[test]
    fn only_ttl_checks_are_told_from_outside() {
        let registry = CheckRegistry::default();
        let text = "[[service]]\nname = \"web\"\n[[service.check]]\nttl = \"1h\"\n[[service.check]]\ntcp = \"localhost:1\"\ninterval = \"1h\"\n";
        registry.define(&definitions(text));
        let id = |text: &str| CheckId::new(text).unwrap();
        assert_eq!(registry.report_result(&id("service:web:1"), CheckStatus::Passing, "fine"), Ok(()));
        let refused = |name: &str| registry.report_result(&id(name), CheckStatus::Passing, "").unwrap_err();
        assert_eq!(refused("service:web:2"), UnknownCheck::NotTtl(id("service:web:2")));
        assert_eq!(refused("x"), UnknownCheck::NoSuch(id("x")));
        assert_eq!(registry.all()[0].state.output, "fine");
    }
}
