//! The services that a host needs before a step may run, and whether the needs are met.

use crate::view::View;
use schema::digest::Digest;
use schema::health::Level;
use schema::names::{Role, ServiceName, StepName};
use schema::records::Wait;
use schema::steps::StepPhase;
use std::collections::BTreeSet;
use std::fmt;

/// A need of a host, from its settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// The service that is needed.
    pub service: ServiceName,
    /// Number of instances that are needed.
    pub count: Count,
    /// The level at which they are needed.
    pub level: Level,
    /// The phase that waits for the need.
    pub phase: StepPhase,
    /// The step of the phase that waits, together with the steps after it; `None` if the whole
    /// phase waits.
    pub step: Option<StepName>,
    /// Program and arguments of a probe, which succeeds if the service can really be reached from
    /// this host.
    pub probe: Option<Vec<String>>,
}

/// A number of instances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Count {
    /// At least this number. 0 means that the host follows the service without waiting for it.
    AtLeast(u32),
    /// As many instances as the roster has hosts with this role, and at least one.
    All(Role),
}

/// Input for [`unmet`] that is not in the catalog.
#[derive(Debug, Clone, Default)]
pub struct RosterContext<'a> {
    /// Counts the hosts of a role on the roster; `None` while the roster is not known.
    pub roster: Option<&'a dyn RosterCount>,
    /// Indexes of the requirements whose probe failed at its last run or has not run yet.
    pub failed_probes: BTreeSet<usize>,
}

/// Access to the number of hosts with a role.
pub trait RosterCount: fmt::Debug {
    /// Returns the number of hosts with this role on the roster, without decommissioned hosts.
    fn hosts_with_role(&self, role: &Role) -> u32;
}

/// Returns the needs that are not met.
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

/// Returns a digest of what the host sees of the services that it needs. When it changes, the
/// eventual phase runs again. `None` while the catalog is not known, or if nothing is needed.
pub fn digest(requirements: &[Requirement], view: &View) -> Option<u64> {
    if requirements.is_empty() || !view.records_known() {
        return None;
    }
    let mut digest = Digest::default();
    for requirement in requirements {
        let Requirement { service, level, .. } = requirement;
        if *level == Level::Functional && !view.health_known(service) {
            return None;
        }
        let instances = view.service(service).into_iter().flat_map(|found| found.at(*level, None));
        let instances: Vec<_> = instances.collect();
        digest.text(service.as_str()).number(instances.len() as u64);
        for (host, instance) in instances {
            let record = &instance.record;
            instance.add_place(host, &mut digest);
            digest.number(record.tags.len() as u64);
            for tag in &record.tags {
                digest.text(tag.as_str());
            }
        }
    }
    Some(digest.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::StoredRecord;
    use crate::state::catalog_at_once;
    use schema::health::Health;
    use schema::names::HostName;
    use schema::records::ServiceRecord;
    use std::collections::BTreeMap;

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
            (0..healths.len()).map(|n| (key(n), StoredRecord::new(record(n), true))).collect();
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
