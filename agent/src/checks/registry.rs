//! What the checks of this host said. One owner; others look, or report a result.

use crate::clock;
use catalog::checks::{CheckState, OUTPUT_MAX_BYTES};
use catalog::definitions::{CheckDefinition, CheckKind, Definitions, ServiceDefinition};
use schema::codec::cut;
use schema::health::CheckStatus;
use schema::names::{CheckId, ServiceName};
use schema::time::BootMillis;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// A check as it is shown.
#[derive(Debug, Clone)]
pub(crate) struct CheckView {
    /// Its id.
    pub id: CheckId,
    /// Its name.
    pub name: String,
    /// The service that it is about; none: the host.
    pub service: Option<ServiceName>,
    /// What it says.
    pub state: CheckState,
}

/// There is no such check, or it is not one that is told from outside.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UnknownCheck {
    /// There is none.
    #[error("there is no check {0} on this host")]
    NoSuch(CheckId),
    /// It runs by itself.
    #[error("check {0} is no TTL check: it is not told from outside")]
    NotTtl(CheckId),
}

#[derive(Debug)]
struct RegisteredCheck {
    definition: CheckDefinition,
    service: Option<ServiceName>,
    state: CheckState,
}

/// All checks of this host.
#[derive(Debug)]
pub(crate) struct CheckRegistry {
    checks: Mutex<BTreeMap<CheckId, RegisteredCheck>>,
    changed: watch::Sender<u64>,
    /// As `changed`, but not for a word that says the same as the one before.
    status_changed: watch::Sender<u64>,
}

impl Default for CheckRegistry {
    fn default() -> Self {
        Self { checks: Mutex::default(), changed: watch::channel(0).0, status_changed: watch::channel(0).0 }
    }
}

/// Checks that are told from outside and were not, are critical.
fn expire(checks: &mut BTreeMap<CheckId, RegisteredCheck>, now: BootMillis) {
    checks.values_mut().for_each(|known| known.state.expire(&known.definition, now));
}

impl CheckRegistry {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<CheckId, RegisteredCheck>> {
        // Nothing panics while it is held.
        self.checks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A way to wait until a check says something else.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// A way to wait until a check is of another status, or there are other checks.
    pub(crate) fn status_changes(&self) -> watch::Receiver<u64> {
        self.status_changed.subscribe()
    }

    fn notify(&self) {
        self.changed.send_modify(|number| *number += 1);
    }

    fn notify_status(&self) {
        self.status_changed.send_modify(|number| *number += 1);
    }

    /// Takes over definitions; what did not change keeps what it said.
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

    /// Takes in a result.
    pub(crate) fn record(&self, id: &CheckId, result: CheckStatus, output: &str) {
        let mut checks = self.lock();
        let Some(known) = checks.get_mut(id) else { return };
        let before = (known.state.status, known.state.is_known);
        known.state.record(&known.definition, result, cut(output, OUTPUT_MAX_BYTES), clock::boot_millis());
        let after = (known.state.status, known.state.is_known);
        let is_ttl = known.definition.kind == CheckKind::Ttl;
        drop(checks);
        // A check that is told from outside has a new deadline with every word.
        if before != after || is_ttl {
            if before != after {
                tracing::info!(check = %id, status = %after.0, "a check says something else");
                self.notify_status();
            }
            self.notify();
        }
    }

    /// Takes in a result that was told from outside.
    ///
    /// # Errors
    /// There is no such TTL check.
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

    /// Hands the checks that a service depends on, its own and the host's, to a function.
    /// One that is defined and that the registry has not heard of yet has said nothing.
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

    /// When a check changes though nothing is heard of it.
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

    /// Every check.
    pub(crate) fn all(&self) -> Vec<CheckView> {
        self.filtered(|_| true)
    }

    /// The checks that have said something and do not pass.
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
        // Whoever publishes may come before whoever runs checks.
        assert_eq!(health_of(&registry, &service, None), Some(Health::Critical));
        registry.define(&service);
        assert_eq!(health_of(&registry, &service, None), Some(Health::Critical));
        let id = CheckId::new("service:web").unwrap();
        registry.record(&id, CheckStatus::Passing, "");
        assert_eq!(health_of(&registry, &service, None), Some(Health::Passing));
        // A check of the host that is new as well.
        let more = definitions(&format!(
            "{one}[[check]]\nname = \"disk\"\ntcp = \"localhost:1\"\ninterval = \"1h\"\n"
        ));
        assert_eq!(health_of(&registry, &more, None), Some(Health::Critical));
        assert_eq!(health_of(&registry, &more, Some(Health::Passing)), None, "what was said before stands");
        // A definition that changed has to be heard again.
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
