//! What a host needs of other services before a step may run, and whether it has that.

use crate::view::View;
use schema::health::Level;
use schema::names::{HostName, Role, ServiceName, StepName};
use schema::records::Wait;
use schema::steps::StepPhase;
use std::collections::BTreeSet;
use std::fmt;
use std::hash::{Hash, Hasher};

/// A need of a host, from its settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// Of this service.
    pub service: ServiceName,
    /// So many instances.
    pub count: Count,
    /// At this level.
    pub level: Level,
    /// Before this phase,
    pub phase: StepPhase,
    /// or before this step of it and what follows.
    pub step: Option<StepName>,
    /// Succeeds when the service can really be reached from here: program and arguments.
    pub probe: Option<Vec<String>>,
}

/// How many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Count {
    /// So many. 0 follows the service without waiting for it.
    AtLeast(u32),
    /// As many as the roster has hosts of this role, and at least one.
    All(Role),
}

/// What is known beside the catalog.
#[derive(Debug, Clone, Default)]
pub struct RosterContext<'a> {
    /// How many hosts of a role the roster has; `None` while that is not known.
    pub roster: Option<&'a dyn RosterCount>,
    /// Requirements, by their place in the list, whose probe failed last or has not run yet.
    pub failed_probes: BTreeSet<usize>,
}

/// How many hosts of a role there are.
pub trait RosterCount: fmt::Debug {
    /// Without those that were taken out.
    fn hosts_with_role(&self, role: &Role) -> u32;
}

/// The needs that are not met.
pub fn unmet(requirements: &[Requirement], view: &View, context: &RosterContext<'_>) -> Vec<Wait> {
    let mut waits = Vec::new();
    for (place, requirement) in requirements.iter().enumerate() {
        let Requirement { service, level, .. } = requirement;
        let known = view.records_known() && (*level == Level::Addressable || view.health_known(service));
        let have = if known { u32::try_from(view.count(service, *level)).unwrap_or(u32::MAX) } else { 0 };
        let need = match (&requirement.count, context.roster) {
            (Count::AtLeast(count), _) => *count,
            (Count::All(role), Some(roster)) => roster.hosts_with_role(role).max(1),
            (Count::All(_), None) => u32::MAX,
        };
        let unreachable = have >= need && need > 0 && context.failed_probes.contains(&place);
        if have < need || unreachable {
            waits.push(Wait {
                service: service.clone(),
                level: *level,
                need,
                have,
                phase: requirement.phase,
                step: requirement.step.clone(),
                unreachable,
            });
        }
    }
    waits
}

/// A number for what the host sees of the services that it needs: when it changes the eventual phase runs
/// again. `None` while that is not known, or if nothing is needed.
pub fn digest(requirements: &[Requirement], view: &View) -> Option<u64> {
    if requirements.is_empty() || !view.records_known() {
        return None;
    }
    // Of one program to itself, and kept across its restarts: this hasher has no random key.
    let mut hasher = std::collections::hash_map::DefaultHasher::new();
    for requirement in requirements {
        let Requirement { service, level, .. } = requirement;
        if *level == Level::Functional && !view.health_known(service) {
            return None;
        }
        let instances = view.service(service).into_iter().flat_map(|found| found.at(*level, None));
        service.as_str().hash(&mut hasher);
        let seen: Vec<(&HostName, _, _, Vec<_>)> = instances
            .map(|(host, i)| (host, &i.record.addresses, i.record.port, i.record.tags.iter().collect()))
            .collect();
        seen.hash(&mut hasher);
    }
    Some(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::catalog_at_once;
    use schema::health::Health;
    use schema::records::ServiceRecord;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    #[derive(Debug)]
    struct Three;
    impl RosterCount for Three {
        fn hosts_with_role(&self, _: &Role) -> u32 {
            3
        }
    }

    fn view(healths: &[Health]) -> View {
        let service = ServiceName::new("db").unwrap();
        let key = |number: usize| (service.clone(), HostName::new(format!("db{number}")).unwrap());
        let record = |number: usize| ServiceRecord {
            addresses: vec![format!("10.0.0.{number}").parse().unwrap()],
            ..ServiceRecord::default()
        };
        let records: BTreeMap<_, _> =
            (0..healths.len()).map(|n| (key(n), (Arc::new(record(n)), true))).collect();
        catalog_at_once(records, healths.iter().enumerate().map(|(n, h)| (key(n), *h)))
    }

    fn requirement(count: Count, level: Level) -> Requirement {
        let service = ServiceName::new("db").unwrap();
        Requirement { service, count, level, phase: StepPhase::Apply, step: None, probe: None }
    }

    #[test]
    fn a_need_is_met_by_enough_instances_at_its_level() {
        use Health::{Critical, Passing, Warning, Withdrawn};
        let role = Role::new("db").unwrap();
        let check = |count: &Count, level, healths: &[Health], expected: Option<&str>| {
            let context = RosterContext { roster: Some(&Three), ..RosterContext::default() };
            let waits = unmet(&[requirement(count.clone(), level)], &view(healths), &context);
            assert_eq!(waits.first().map(ToString::to_string).as_deref(), expected, "{healths:?}");
        };
        let one = Count::AtLeast(1);
        check(&one, Level::Functional, &[], Some("db: 0 of 1 functional"));
        check(&one, Level::Functional, &[Critical], Some("db: 0 of 1 functional"));
        check(&one, Level::Functional, &[Critical, Warning], None);
        check(&one, Level::Addressable, &[Critical], None);
        check(&one, Level::Addressable, &[Withdrawn], Some("db: 0 of 1 addressable"));
        check(&Count::AtLeast(0), Level::Functional, &[], None);
        let all = Count::All(role);
        check(&all, Level::Functional, &[Passing, Passing], Some("db: 2 of 3 functional"));
        check(&all, Level::Functional, &[Passing, Passing, Passing], None);
    }

    #[test]
    fn what_is_not_known_is_not_met() {
        let needs = [requirement(Count::AtLeast(1), Level::Functional)];
        assert_eq!(unmet(&needs, &View::default(), &RosterContext::default()).len(), 1);
        assert_eq!(digest(&needs, &View::default()), None);
        let context = RosterContext { failed_probes: BTreeSet::from([0]), ..RosterContext::default() };
        let waits = unmet(&needs, &view(&[Health::Passing]), &context);
        assert_eq!(waits[0].to_string(), "db: 1 of 1 functional, and the probe from here fails");
    }

    #[test]
    fn the_digest_follows_what_is_needed_and_nothing_else() {
        use Health::{Critical, Passing, Warning};
        let of = |level, healths: &[Health]| digest(&[requirement(Count::AtLeast(1), level)], &view(healths));
        let functional = |healths: &[Health]| of(Level::Functional, healths);
        assert_eq!(functional(&[Passing, Passing]), functional(&[Passing, Warning]));
        assert_ne!(functional(&[Passing, Passing]), functional(&[Passing, Critical]));
        assert_eq!(of(Level::Addressable, &[Passing]), of(Level::Addressable, &[Critical]));
        assert_ne!(functional(&[Passing]), functional(&[Passing, Passing]));
    }
}
