//! Which host waits for which, at one revision: the chain from a waiting host to the root cause,
//! and the loops that can never end by themselves.
//!
//! A loop of waiting hosts is not always a deadlock: a service may have other providers, or may be
//! addressable while it does not work. Therefore a least fixpoint computes which hosts *can* come
//! through: a host can if each of its needs is met by enough instances that exist or whose hosts
//! can come through. Hosts that are in motion, were never seen, or have been gone for a short time
//! may provide anything. A host that cannot come through even if every failed host is repaired can
//! never come through.
//!
//! This file is long because the fixpoint and its proof by brute force are kept together.

use crate::state::Fleet;
use crate::verdict::{FleetVerdict, Running};
use catalog::View;
use schema::health::{CheckStatus, Level};
use schema::names::{HostName, ServiceName};
use schema::records::{FailingCheck, Report, Wait};
use schema::steps::StepPhase;
use schema::time::EpochSeconds;
use schema::verdict::{HostVerdict, VerdictKind};
use schema::why_not::{WaitingHost, WhyNot, describe_loop};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Time in seconds in which a host that is gone may still come back.
pub const GRACE_SECONDS: i64 = 15 * 60;
/// Age in seconds from which a loop counts as a deadlock: every host in it has waited this long. It
/// is twice the default time between two validations.
pub const LOOP_AGE_SECONDS: i64 = 120;

/// What can be expected of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prospect {
    /// The host is settled: what it provides is already there.
    Settled,
    /// The host is in motion, or its state is not known: it may provide anything. The text
    /// describes the state.
    Open(String),
    /// The host waits for these services.
    Waits(Vec<Wait>),
    /// The host does not go on until somebody repairs something. The text gives the cause.
    Stuck(String),
}

/// One host of the graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// What can be expected of the host.
    pub prospect: Prospect,
    /// The revision of the instruction that the host decided on.
    pub target: Option<i64>,
    /// Since when the host has reported this: the time of its report.
    pub since: EpochSeconds,
    /// The checks of the host that do not pass, as it reported them.
    pub failing: Vec<FailingCheck>,
}

impl Member {
    /// Returns the check that makes a service of this host critical, with its last line: a check of the service
    /// itself, or one of the host.
    fn why_critical(&self, service: &ServiceName) -> Option<String> {
        let critical = |check: &&FailingCheck| check.status == CheckStatus::Critical;
        let of = |wanted: Option<&ServiceName>| {
            self.failing.iter().filter(critical).find(|check| check.service.as_ref() == wanted)
        };
        of(Some(service)).or_else(|| of(None)).map(ToString::to_string)
    }
}

/// The root cause at the end of a chain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Root {
    /// No host has the service.
    NoProvider(ServiceName),
    /// Fewer hosts have the service than the need says, and it works on each of them.
    TooFew {
        service: ServiceName,
        /// Number of hosts that have it.
        have: u32,
        /// Number of hosts that are needed.
        need: u32,
    },
    /// There are enough instances, and the probe from the host that waits fails.
    Unreachable {
        service: ServiceName,
        /// The name of the host that waits.
        from: HostName,
    },
    /// There are enough instances by now. The host that waits has not reported it yet.
    Met(ServiceName),
    /// A host that has the service is stuck.
    Stuck {
        /// The service that the host has.
        service: ServiceName,
        /// The name of the host.
        host: HostName,
        /// The cause, as text.
        why: String,
    },
    /// A host that is not expected to change has the service, and the service does not work there.
    NotFunctional {
        /// The service that does not work.
        service: ServiceName,
        /// The name of the host.
        host: HostName,
        /// The health of the service, as text.
        health_text: &'static str,
        /// The check that fails, if the host reports it.
        check: Option<String>,
    },
    /// A host that has the service is in motion.
    Open {
        /// The service that the host has.
        service: ServiceName,
        /// The name of the host.
        host: HostName,
        /// What the host does, as text.
        what: String,
    },
    /// The hosts that wait for each other.
    Loop(Vec<WaitingHost>),
}

impl fmt::Display for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoProvider(service) => write!(f, "no host has {service}"),
            Self::TooFew { service, have, need } => {
                let hosts = if *have == 1 { "host has" } else { "hosts have" };
                write!(f, "only {have} {hosts} {service}, {need} are needed")
            }
            Self::Unreachable { service, from } => write!(f, "the probe of {service} from {from} fails"),
            Self::Met(service) => write!(f, "there is enough of {service} by now"),
            Self::Stuck { service, host, why } => write!(f, "{service} on {host}: {why}"),
            Self::NotFunctional { service, host, health_text, check } => {
                write!(f, "{service} on {host} is {health_text}")?;
                check.iter().try_for_each(|check| write!(f, ": {check}"))
            }
            Self::Open { service, host, what } => write!(f, "{service} on {host}: {what}"),
            Self::Loop(hosts) => f.write_str(&describe_loop(hosts)),
        }
    }
}

/// Why a host waits: the hosts from it to the root cause, each with what it waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// The waiting hosts, beginning with the host that the chain is about.
    pub links: Vec<(HostName, Wait)>,
    /// The root cause at the end of the chain.
    pub root: Root,
}

/// For each service and level, the number of instances that exist or will exist, and those waiting
/// hosts that will provide one of them.
#[derive(Debug, Default)]
struct Supply(BTreeMap<(ServiceName, Level), (usize, BTreeSet<HostName>)>);

impl Supply {
    /// True if there are enough instances for the need. A host that needs its own service cannot
    /// provide it by waiting, so its own instance does not count then.
    fn meets(&self, wait: &Wait, who: &HostName) -> bool {
        let found = self.0.get(&(wait.service.clone(), wait.level));
        found.is_some_and(|(count, by_waiting)| {
            count - usize::from(by_waiting.contains(who)) >= wait.need as usize
        })
    }
}

/// The graph of waiting hosts at one revision.
#[derive(Debug)]
pub struct WaitGraph<'a> {
    members: BTreeMap<HostName, Member>,
    view: &'a View,
    /// Hosts that come through if no failed host is repaired.
    settling: BTreeSet<HostName>,
    /// Hosts that come through if every failed host is repaired.
    possible: BTreeSet<HostName>,
    /// Supply if the hosts in `possible` come through.
    supply: Supply,
}

/// Returns the unmet needs that a host reports.
fn needs_of(report: Option<&Report>) -> Vec<Wait> {
    let Some(report) = report else { return Vec::new() };
    match &report.verdict {
        HostVerdict::Held(WhyNot::Service(wait)) if report.waits.is_empty() => {
            vec![wait.clone()]
        }
        _ => report.waits.clone(),
    }
}

impl<'a> WaitGraph<'a> {
    /// Builds the graph from the hosts of a fleet and the catalog of the same revision.
    pub fn of(fleet: &Fleet, view: &'a View, now: EpochSeconds) -> Self {
        let members = fleet.hosts.iter().map(|(host, facts)| {
            let report = fleet.current_report(facts);
            let verdict = &fleet.verdicts()[host];
            let prospect = match verdict {
                FleetVerdict::Ok => Prospect::Settled,
                // Hosts in a deadlock wait too.
                verdict if verdict.waits_for_services() => Prospect::Waits(needs_of(report)),
                FleetVerdict::Lost { seen, last_report } => {
                    let is_recent = last_report.is_some_and(|at| now.0.saturating_sub(at.0) < GRACE_SECONDS);
                    if !*seen || is_recent {
                        Prospect::Open(verdict.message())
                    } else {
                        Prospect::Stuck(verdict.message())
                    }
                }
                FleetVerdict::Held(reason) if reason.kind() != VerdictKind::Blocked => {
                    Prospect::Open(verdict.message())
                }
                FleetVerdict::Failed(_) | FleetVerdict::Held(_) => {
                    Prospect::Stuck(format!("{}: {}", verdict.kind().as_str(), verdict.message()))
                }
                FleetVerdict::Running(_) => Prospect::Open(verdict.message()),
            };
            // A host without an agent that is only not yet listed under the target provides no
            // further services.
            let prospect = match (verdict, prospect) {
                (FleetVerdict::Running(Running::NotListed | Running::ListedUnder(_)), _)
                    if facts.live.is_none() =>
                {
                    Prospect::Settled
                }
                (_, prospect) => prospect,
            };
            let target = report.and_then(|r| r.target.as_ref()).map(|t| t.revision);
            let since = report.map(|r| r.at).unwrap_or_default();
            let failing = facts.readable_report().map(|report| report.checks.clone()).unwrap_or_default();
            (host.clone(), Member { prospect, target, since, failing })
        });
        Self::new(members.collect(), view)
    }

    /// Builds the graph from the given members.
    pub fn new(members: BTreeMap<HostName, Member>, view: &'a View) -> Self {
        let (settling, possible, supply) = Default::default();
        let mut graph = Self { members, view, settling, possible, supply };
        graph.settling = graph.fixpoint(false);
        graph.possible = graph.fixpoint(true);
        graph.supply = graph.supply(&graph.possible, true);
        graph
    }

    /// Returns the hosts that wait for services, each with its unmet needs.
    pub fn waiting(&self) -> impl Iterator<Item = (&HostName, &[Wait])> {
        self.members.iter().filter_map(|(host, member)| match &member.prospect {
            Prospect::Waits(waits) => Some((host, waits.as_slice())),
            _ => None,
        })
    }

    /// True if the host comes through even if no failed host is repaired.
    pub fn can_settle(&self, host: &HostName) -> bool {
        self.settling.contains(host)
    }

    /// Returns the least set of hosts that come through.
    fn fixpoint(&self, mended: bool) -> BTreeSet<HostName> {
        let mut through = BTreeSet::new();
        let mut functions = BTreeSet::new();
        for (host, member) in &self.members {
            match member.prospect {
                Prospect::Settled | Prospect::Open(_) => {}
                Prospect::Stuck(_) if mended => {}
                Prospect::Stuck(_) | Prospect::Waits(_) => continue,
            }
            through.insert(host.clone());
            functions.insert(host.clone());
        }
        loop {
            let before = (through.len(), functions.len());
            // The supply at the beginning of the round. A host that comes through in this round
            // counts from the next round on.
            let supply = self.supply(&functions, mended);
            for (host, waits) in self.waiting() {
                // The needs of the validate phase do not keep the service of the host from working.
                let works = |wait: &&Wait| wait.phase != StepPhase::Validate;
                if waits.iter().filter(works).all(|wait| supply.meets(wait, host)) {
                    functions.insert(host.clone());
                }
                if waits.iter().all(|wait| supply.meets(wait, host)) {
                    through.insert(host.clone());
                }
            }
            if before == (through.len(), functions.len()) {
                return through;
            }
        }
    }

    /// Returns the supply of every service and level that some host waits for, if the services on
    /// the hosts in `functions` work.
    fn supply(&self, functions: &BTreeSet<HostName>, mended: bool) -> Supply {
        let mut supply = Supply::default();
        let wanted = self.waiting().flat_map(|(_, waits)| waits);
        let wanted: BTreeSet<(&ServiceName, Level)> =
            wanted.map(|wait| (&wait.service, wait.level)).collect();
        for (name, level) in wanted {
            let service = self.view.service(name);
            let mut by_waiting = BTreeSet::new();
            let mut count = 0;
            for (host, member) in &self.members {
                let instance = service.and_then(|s| s.instances().get(host));
                if instance.is_some_and(|i| i.is_at(level)) {
                    count += 1;
                    continue;
                }
                match &member.prospect {
                    Prospect::Open(_) => count += 1,
                    Prospect::Stuck(_) => {
                        count += usize::from(mended && (instance.is_some() || level == Level::Addressable));
                    }
                    Prospect::Waits(_) if functions.contains(host) => {
                        count += 1;
                        by_waiting.insert(host.clone());
                    }
                    Prospect::Waits(_) => {}
                    Prospect::Settled => count += usize::from(instance.is_some()),
                }
            }
            // Hosts that are only in the catalog have no agent: their instances count as they are.
            let foreign = service.into_iter().flat_map(|s| s.at(level, None));
            count += foreign.filter(|(host, _)| !self.members.contains_key(*host)).count();
            supply.0.insert((name.clone(), level), (count, by_waiting));
        }
        supply
    }

    /// Returns the needs of a host that are not met now, or else its first need, with the current number of
    /// instances.
    fn open_needs(&self, host: &HostName) -> Vec<Wait> {
        let Some(Prospect::Waits(waits)) = self.members.get(host).map(|member| &member.prospect) else {
            return Vec::new();
        };
        let now = |wait: &Wait| Wait { have: self.count(wait), ..wait.clone() };
        let open: Vec<Wait> = waits.iter().map(now).filter(|wait| wait.have < wait.need).collect();
        if open.is_empty() { waits.first().map(now).into_iter().collect() } else { open }
    }

    /// Returns the number of instances that count for a need.
    fn count(&self, wait: &Wait) -> u32 {
        u32::try_from(self.view.count(&wait.service, wait.level)).unwrap_or(u32::MAX)
    }

    /// Returns the chains from a waiting host to the root causes, one for each of its needs that is not met;
    /// none if the host does not wait for a service.
    pub fn chains(&self, host: &HostName) -> Vec<Chain> {
        let deadlock = self.deadlock(host);
        let explained =
            deadlock.as_ref().and_then(|chain| chain.links.first()).map(|(_, wait)| wait.service.clone());
        let rest = self.open_needs(host).into_iter().filter(|wait| Some(&wait.service) != explained.as_ref());
        let rest: Vec<Chain> = rest.map(|wait| self.chain_of(host, wait)).collect();
        deadlock.into_iter().chain(rest).collect()
    }

    /// Follows a need of a host to its root cause.
    fn chain_of(&self, host: &HostName, need: Wait) -> Chain {
        let (mut at, mut wait, mut links) = (host.clone(), need, Vec::new());
        loop {
            links.push((at.clone(), wait.clone()));
            let next = match self.provider(&at, &wait, &links) {
                Ok(next) => next,
                Err(root) => return Chain { links, root },
            };
            let Some(need) = self.open_needs(&next).into_iter().next() else {
                let (service, what) = (wait.service, "waits for a service".into());
                return Chain { links, root: Root::Open { service, host: next, what } };
            };
            (at, wait) = (next, need);
        }
    }

    /// Returns the next host of the chain, or the root cause. A stuck host explains more than a
    /// waiting host, and a waiting host more than a host in motion.
    fn provider(&self, from: &HostName, wait: &Wait, links: &[(HostName, Wait)]) -> Result<HostName, Root> {
        let service = || wait.service.clone();
        if wait.have >= wait.need {
            let unreachable = Root::Unreachable { service: service(), from: from.clone() };
            return Err(if wait.unreachable { unreachable } else { Root::Met(service()) });
        }
        let lacking: Vec<(&HostName, &'static str)> = self
            .view
            .service(&wait.service)
            .into_iter()
            .flat_map(|found| found.instances())
            .filter(|(_, instance)| !instance.is_at(wait.level))
            .map(|(host, instance)| (host, instance.health_str()))
            .collect();
        let prospect = |host: &HostName| self.members.get(host).map(|member| &member.prospect);
        for (host, _) in &lacking {
            if let Some(Prospect::Stuck(why)) = prospect(host) {
                let (host, why) = ((*host).clone(), why.clone());
                return Err(Root::Stuck { service: service(), host, why });
            }
        }
        for (host, _) in &lacking {
            let seen = links.iter().any(|(known, _)| known == *host);
            if !seen && matches!(prospect(host), Some(Prospect::Waits(_))) {
                return Ok((*host).clone());
            }
        }
        for (host, _) in &lacking {
            if let Some(Prospect::Open(what)) = prospect(host) {
                let (host, what) = ((*host).clone(), what.clone());
                return Err(Root::Open { service: service(), host, what });
            }
        }
        match lacking.first() {
            Some((host, health_text)) => {
                let member = self.members.get(*host);
                let check = member.and_then(|member| member.why_critical(&wait.service));
                Err(Root::NotFunctional { service: service(), host: (*host).clone(), health_text, check })
            }
            None if wait.have > 0 => {
                Err(Root::TooFew { service: service(), have: wait.have, need: wait.need })
            }
            None => Err(Root::NoProvider(service())),
        }
    }

    /// Returns the chain of a host that is in a deadlock or waits for one. The loop must be old
    /// enough, and its hosts must work on the same instruction.
    pub fn proven_deadlock(&self, host: &HostName, now: EpochSeconds) -> Option<Chain> {
        let chain = self.deadlock(host)?;
        let Root::Loop(hosts) = &chain.root else { return None };
        let members: Vec<&Member> =
            hosts.iter().filter_map(|waiting| self.members.get(&waiting.host)).collect();
        let old = members.iter().all(|m| now.0.saturating_sub(m.since.0) >= LOOP_AGE_SECONDS);
        let same = members.windows(2).all(|pair| pair[0].target == pair[1].target);
        (old && same).then_some(chain)
    }

    /// Follows needs that can never be met, until a host repeats.
    fn deadlock(&self, host: &HostName) -> Option<Chain> {
        let mut links: Vec<(HostName, Wait)> = Vec::new();
        let mut at = host.clone();
        loop {
            if let Some(start) = links.iter().position(|(known, _)| *known == at) {
                let ring = links[start..]
                    .iter()
                    .map(|(host, wait)| WaitingHost { host: host.clone(), service: wait.service.clone() });
                let root = Root::Loop(ring.collect());
                return Some(Chain { links, root });
            }
            if self.possible.contains(&at) {
                return None;
            }
            let Prospect::Waits(waits) = &self.members.get(&at)?.prospect else { return None };
            let never = |host: &HostName| {
                let waits = self.members.get(host).map(|member| &member.prospect);
                matches!(waits, Some(Prospect::Waits(_))) && !self.possible.contains(host)
            };
            // Find a need whose provider can never come through either.
            let (wait, next) = waits.iter().find_map(|wait| {
                if self.supply.meets(wait, &at) {
                    return None;
                }
                let providers = self.view.service(&wait.service)?.instances();
                let next = providers.iter().find(|(host, i)| !i.is_at(wait.level) && never(host))?;
                Some((wait.clone(), next.0.clone()))
            })?;
            let have = self.count(&wait);
            links.push((at, Wait { have, ..wait }));
            at = next;
        }
    }

    /// Returns every root cause, and the hosts that wait because of it.
    pub fn roots(&self) -> BTreeMap<Root, BTreeSet<HostName>> {
        let mut roots: BTreeMap<Root, BTreeSet<HostName>> = BTreeMap::new();
        for (host, _) in self.waiting() {
            for chain in self.chains(host) {
                roots.entry(chain.root.canonical()).or_default().insert(host.clone());
            }
        }
        roots
    }
}

impl Root {
    /// Rotates a loop so that it begins with its first host by name, wherever it was found.
    pub fn canonical(self) -> Self {
        let Self::Loop(mut hosts) = self else { return self };
        let first = hosts.iter().enumerate().min_by_key(|(_, waiting)| &waiting.host).map_or(0, |(at, _)| at);
        hosts.rotate_left(first);
        Self::Loop(hosts)
    }
}

impl Fleet {
    /// Finds hosts that are in a deadlock or wait for one. From then on their verdict is blocked.
    pub fn find_deadlocks(&mut self, view: &View, now: EpochSeconds) {
        self.set_deadlocks(BTreeMap::new());
        let graph = WaitGraph::of(self, view, now);
        let found = graph.waiting().filter_map(|(host, _)| {
            let chain = graph.proven_deadlock(host, now)?;
            if let Root::Loop(hosts) = chain.root { Some((host.clone(), hosts)) } else { None }
        });
        let found = found.collect();
        self.set_deadlocks(found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use catalog::{StoredRecord, catalog_at_once};
    use proptest::prelude::*;
    use schema::health::Health;
    use schema::records::ServiceRecord;
    use std::sync::Arc;

    fn host(name: impl Into<String>) -> HostName {
        HostName::new(name.into()).unwrap()
    }

    fn service(name: impl Into<String>) -> ServiceName {
        ServiceName::new(name.into()).unwrap()
    }

    /// Parses a need like `mysql 1 functional apply`.
    fn wait(text: &str) -> Wait {
        let words: Vec<&str> = text.split(' ').collect();
        Wait {
            service: service(words[0]),
            level: words[2].parse().unwrap(),
            need: words[1].parse().unwrap(),
            have: 0,
            phase: if words[3] == "validate" { StepPhase::Validate } else { StepPhase::Apply },
            step: None,
            unreachable: false,
        }
    }

    fn waits(texts: &[&str]) -> Prospect {
        Prospect::Waits(texts.iter().map(|text| wait(text)).collect())
    }

    /// Builds the members and the catalog from hosts, each with its service, the health of the
    /// service, and its prospect.
    fn scene(hosts: &[(&str, &str, Option<Health>, Prospect)]) -> (BTreeMap<HostName, Member>, View) {
        let record = Arc::new(ServiceRecord::default());
        let key = |on: &str, has: &str| (service(has), host(on));
        let records = hosts
            .iter()
            .map(|(on, has, ..)| (key(on, has), StoredRecord::new(record.clone(), true)))
            .collect();
        let health = hosts.iter().filter_map(|(on, has, health, _)| Some((key(on, has), (*health)?)));
        let member = |prospect: &Prospect| Member {
            prospect: prospect.clone(),
            target: Some(7),
            since: EpochSeconds(0),
            failing: Vec::new(),
        };
        let members = hosts.iter().map(|(on, _, _, prospect)| (host(*on), member(prospect))).collect();
        (members, catalog_at_once(records, health))
    }

    const BAD: Option<Health> = Some(Health::Critical);
    const GOOD: Option<Health> = Some(Health::Passing);

    fn check(hosts: &[(&str, &str, Option<Health>, Prospect)], waiting_host: &str, expected: &str) {
        let (members, view) = scene(hosts);
        let graph = WaitGraph::new(members, &view);
        let described = graph.chains(&host(waiting_host)).into_iter().map(|c| {
            let links: Vec<String> = c.links.iter().map(|(h, w)| format!("{h} for {}", w.service)).collect();
            format!("{}; {}", links.join(", "), c.root)
        });
        let described: Vec<String> = described.collect();
        assert_eq!(if described.is_empty() { "none".into() } else { described.join(" | ") }, expected);
    }

    #[test]
    fn a_chain_leads_to_its_root() {
        let stuck = Prospect::Stuck("failed: apply step install exited with code 1".into());
        let moving = Prospect::Open("on its way to v2".into());
        let web = ("web1", "web", BAD, waits(&["mysql 1 functional apply"]));
        let lb = ("lb1", "lb", BAD, waits(&["web 1 functional apply"]));
        let failed = "mysql on db2: failed: apply step install exited with code 1";
        check(
            &[web.clone(), lb.clone(), ("db2", "mysql", BAD, stuck.clone())],
            "lb1",
            &format!("lb1 for web, web1 for mysql; {failed}"),
        );
        check(&[web.clone(), lb], "lb1", "lb1 for web, web1 for mysql; no host has mysql");
        check(
            &[web.clone(), ("db1", "mysql", BAD, moving), ("db2", "mysql", BAD, stuck)],
            "web1",
            &format!("web1 for mysql; {failed}"),
        );
        check(
            &[web, ("db1", "mysql", BAD, Prospect::Settled)],
            "web1",
            "web1 for mysql; mysql on db1 is critical",
        );
        check(&[("db1", "mysql", GOOD, Prospect::Settled)], "db1", "none");
    }

    #[test]
    fn each_missing_service_of_a_host_has_its_root() {
        let lb = |needs: &[&str]| ("lb", "lb", BAD, waits(needs));
        let settled = |name: &'static str, has: &'static str, health| (name, has, health, Prospect::Settled);
        check(
            &[lb(&["c 2 addressable apply"]), settled("c1", "c", GOOD)],
            "lb",
            "lb for c; only 1 host has c, 2 are needed",
        );
        check(
            &[
                lb(&["c 2 functional apply", "d 1 functional apply", "e 1 functional apply"]),
                settled("e1", "e", BAD),
            ],
            "lb",
            "lb for c; no host has c | lb for d; no host has d | lb for e; e on e1 is critical",
        );
        // What is met by now has no root that keeps the host.
        check(
            &[lb(&["c 1 functional apply", "d 1 functional apply"]), settled("c1", "c", GOOD)],
            "lb",
            "lb for d; no host has d",
        );
        check(
            &[lb(&["c 1 functional apply"]), settled("c1", "c", GOOD)],
            "lb",
            "lb for c; there is enough of c by now",
        );
        let mut unreachable = wait("c 1 functional apply");
        unreachable.unreachable = true;
        check(
            &[("lb", "lb", BAD, Prospect::Waits(vec![unreachable])), settled("c1", "c", GOOD)],
            "lb",
            "lb for c; the probe of c from lb fails",
        );
    }

    #[test]
    fn a_root_names_the_check_that_fails_and_its_last_line() {
        let check = |failing: &[(&str, &str, CheckStatus, &str)], expected: &str| {
            let (mut members, view) = scene(&[
                ("web1", "web", BAD, waits(&["mysql 1 functional apply"])),
                ("db1", "mysql", BAD, Prospect::Settled),
            ]);
            let failing = failing.iter().map(|(of, name, status, line)| FailingCheck {
                service: (!of.is_empty()).then(|| service(*of)),
                check: (*name).into(),
                status: *status,
                line: (*line).into(),
            });
            members.get_mut(&host("db1")).unwrap().failing = failing.collect();
            let chains = WaitGraph::new(members, &view).chains(&host("web1"));
            assert_eq!(chains[0].root.to_string(), expected);
        };
        use CheckStatus::{Critical, Warning};
        check(&[], "mysql on db1 is critical");
        check(
            &[("mysql", "service:mysql", Critical, "connect: refused")],
            "mysql on db1 is critical: check service:mysql: connect: refused",
        );
        check(&[("mysql", "tcp", Critical, "")], "mysql on db1 is critical: check tcp");
        check(
            &[
                ("web", "tcp", Critical, "of another one"),
                ("mysql", "slow", Warning, ""),
                ("", "disk", Critical, "full"),
            ],
            "mysql on db1 is critical: check disk: full",
        );
    }

    #[test]
    fn a_loop_is_a_deadlock_only_if_nothing_leads_out_of_it() {
        let a = |needs: &str| ("a1", "a", BAD, waits(&[needs]));
        let b = |needs: &str| ("b1", "b", BAD, waits(&[needs]));
        let is_deadlock = |hosts: &[(&str, &str, Option<Health>, Prospect)], expected| {
            let (members, view) = scene(hosts);
            let graph = WaitGraph::new(members, &view);
            let found = graph.proven_deadlock(&host("a1"), EpochSeconds(1_000));
            assert_eq!(found.is_some(), expected, "{hosts:?}: {found:?}");
            assert_eq!(graph.proven_deadlock(&host("a1"), EpochSeconds(10)), None, "too young");
        };
        is_deadlock(&[a("b 1 functional apply"), b("a 1 functional apply")], true);
        // Hosts are addressable before their services work.
        is_deadlock(&[a("b 1 addressable apply"), b("a 1 functional apply")], false);
        // The needs of the validate phase do not keep a service from working.
        is_deadlock(&[a("b 1 functional validate"), b("a 1 functional validate")], false);
        is_deadlock(&[a("b 1 functional validate"), b("a 1 functional apply")], false);
        let two = [a("b 1 functional apply"), b("a 1 functional apply")];
        let with = |other: (&'static str, &'static str, Option<Health>, Prospect)| {
            let mut all = two.to_vec();
            all.push(other);
            all
        };
        is_deadlock(&with(("b2", "b", GOOD, Prospect::Settled)), false);
        is_deadlock(&with(("b2", "b", BAD, Prospect::Open("moves".into()))), false);
        is_deadlock(&with(("b2", "b", BAD, Prospect::Stuck("failed".into()))), false);
        is_deadlock(&with(("c1", "c", BAD, waits(&["a 1 functional apply"]))), true);
        // A host that needs its own service.
        is_deadlock(&[a("a 1 functional apply")], true);
    }

    #[test]
    fn whoever_waits_for_a_loop_is_told_of_it_and_roots_are_counted() {
        let mut hosts = vec![
            ("b1", "b", BAD, waits(&["a 1 functional apply"])),
            ("a1", "a", BAD, waits(&["b 1 functional apply"])),
            ("c1", "c", BAD, waits(&["b 1 functional apply"])),
        ];
        check(&hosts, "c1", "c1 for b, b1 for a, a1 for b; b1 waits for a on a1, a1 waits for b on b1");
        hosts.push(("d1", "d", BAD, waits(&["nothing 1 functional apply"])));
        let (members, view) = scene(&hosts);
        let roots = WaitGraph::new(members, &view).roots();
        let described: Vec<String> =
            roots.iter().map(|(root, hosts)| format!("{} {root}", hosts.len())).collect();
        assert_eq!(described, ["1 no host has nothing", "3 a1 waits for b on b1, b1 waits for a on a1"]);
    }

    /// Finds the hosts that settle in at least one order by trying every possible order.
    struct BruteForce<'a> {
        members: &'a BTreeMap<HostName, Member>,
        view: &'a View,
        mended: bool,
        seen: BTreeSet<BTreeSet<HostName>>,
        through: BTreeSet<HostName>,
    }

    impl BruteForce<'_> {
        fn can(&self, host: &HostName, validates: bool, works: &BTreeSet<HostName>) -> bool {
            let Prospect::Waits(needs) = &self.members[host].prospect else { return false };
            needs.iter().filter(|w| validates || w.phase != StepPhase::Validate).all(|need| {
                let there = self.members.iter().filter(|(other, member)| {
                    let found = self.view.service(&need.service).and_then(|s| s.instances().get(*other));
                    found.is_some_and(|i| i.is_at(need.level))
                        || match member.prospect {
                            Prospect::Open(_) => true,
                            Prospect::Settled => found.is_some(),
                            Prospect::Stuck(_) => {
                                self.mended && (found.is_some() || need.level == Level::Addressable)
                            }
                            Prospect::Waits(_) => *other != host && works.contains(*other),
                        }
                });
                there.count() >= need.need as usize
            })
        }

        fn explore(&mut self, works: BTreeSet<HostName>) {
            if !self.seen.insert(works.clone()) {
                return;
            }
            let members = self.members;
            for host in members.keys() {
                if self.can(host, true, &works) {
                    self.through.insert(host.clone());
                }
                if !works.contains(host) && self.can(host, false, &works) {
                    let mut next = works.clone();
                    next.insert(host.clone());
                    self.explore(next);
                }
            }
        }
    }

    fn brute_force(members: &BTreeMap<HostName, Member>, view: &View, mended: bool) -> BTreeSet<HostName> {
        let through = members
            .iter()
            .filter(|(_, m)| match m.prospect {
                Prospect::Settled | Prospect::Open(_) => true,
                Prospect::Stuck(_) => mended,
                Prospect::Waits(_) => false,
            })
            .map(|(host, _)| host.clone())
            .collect();
        let mut search = BruteForce { members, view, mended, seen: BTreeSet::new(), through };
        search.explore(BTreeSet::new());
        search.through
    }

    fn prospect() -> impl Strategy<Value = Prospect> {
        let need =
            (0usize..4, 1u32..3, any::<bool>(), any::<bool>()).prop_map(|(s, need, level, phase)| Wait {
                service: service(format!("s{s}")),
                level: if level { Level::Functional } else { Level::Addressable },
                need,
                have: 0,
                phase: if phase { StepPhase::Apply } else { StepPhase::Validate },
                step: None,
                unreachable: false,
            });
        prop_oneof![
            6 => prop::collection::vec(need, 1..3).prop_map(Prospect::Waits),
            1 => Just(Prospect::Settled),
            1 => Just(Prospect::Stuck("x".into())),
            1 => Just(Prospect::Open("y".into())),
        ]
    }

    proptest! {
        #[test]
        fn the_fixpoint_is_what_trying_every_order_finds(
            prospects in prop::collection::vec((prospect(), 0usize..4, any::<bool>()), 1..7),
        ) {
            let names: Vec<(String, String)> =
                prospects.iter().enumerate().map(|(n, (_, s, _))| (format!("h{n}"), format!("s{s}"))).collect();
            let hosts: Vec<_> = prospects
                .iter()
                .zip(&names)
                .map(|((p, _, works), (on, has))| (on.as_str(), has.as_str(), if *works { GOOD } else { BAD }, p.clone()))
                .collect();
            let (members, view) = scene(&hosts);
            let graph = WaitGraph::new(members.clone(), &view);
            prop_assert_eq!(&graph.settling, &brute_force(&members, &view, false));
            prop_assert_eq!(&graph.possible, &brute_force(&members, &view, true));
            // A host in a proven loop cannot come through, and every chain ends.
            for name in members.keys() {
                if let Some(chain) = graph.proven_deadlock(name, EpochSeconds(1_000)) {
                    let Root::Loop(ring) = &chain.root else { panic!("{chain:?}") };
                    prop_assert!(!ring.is_empty());
                    prop_assert!(ring.iter().all(|waiting| !graph.possible.contains(&waiting.host)));
                }
                let _ = graph.chains(name);
            }
        }
    }
}
