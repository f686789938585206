//! What is wrong with a fleet at one revision.

use super::incident::{Incident, IncidentKind};
use crate::views::{FailedCheck, FailureGroup, FailureGroups, FailuresView, FoundFailure};
use crate::{Fleet, FleetVerdict};
use planning::rollout::{PresentRollout, RolloutStatus, RolloutWord};
use schema::keys;
use schema::names::HostName;
use schema::records::{CERTIFICATE_WARNING, FailedHost, MaintenanceMode, StatusRecord};
use schema::snapshot::KeySnapshot;
use schema::time::EpochSeconds;
use schema::verdict::VerdictKind;
use schema::why_not::WhyNot;
use std::collections::{BTreeMap, BTreeSet};

/// Age of a freeze from which on somebody is told, in seconds.
const FROZEN_FOR_LONG_SECONDS: i64 = 24 * 60 * 60;

/// What is wrong with a fleet. Hosts that an operator took out of use are left out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Situation {
    /// The lineage of the store; empty if it has no identity.
    pub lineage: String,
    /// Number of hosts of the fleet.
    pub host_count: usize,
    /// The lost hosts. When they were lost decides how bad that is.
    pub lost: BTreeSet<HostName>,
    pub incidents: Vec<Incident>,
}

impl Situation {
    /// Returns what is wrong. `found` is everything in the store, and the fleet is that of the same revision; `alarms`
    /// are those of the store, if they are known.
    pub fn new(fleet: &Fleet, found: &KeySnapshot, alarms: &[String], now: EpochSeconds) -> Self {
        let identity = found.value_of(keys::Store);
        let lineage = identity.map(|identity| identity.lineage.to_string()).unwrap_or_default();
        let present = PresentRollout::find(found).ok();
        let rollout = present.map(|present| RolloutStatus::new(&present, found, now));
        let rollout = rollout.filter(|rollout| rollout.state != RolloutWord::Ended);
        let mut situation = Self {
            host_count: fleet.hosts().len(),
            lost: of_verdict(fleet, |verdict| matches!(verdict, FleetVerdict::Lost { .. })),
            incidents: Vec::new(),
            lineage,
        };
        for alarm in alarms {
            let summary = format!(
                "the store raised the alarm {alarm}: hosts cannot write what happens to them, and no command says yes about the fleet"
            );
            situation.add(None, IncidentKind::StoreAlarm, alarm, summary, []);
        }
        let in_rollout = rollout.as_ref().map(|rollout| situation.add_rollout(rollout, fleet));
        situation.add_failures(fleet, &in_rollout.unwrap_or_default());
        situation.add_blocked(fleet);
        situation.add_freezes(fleet, now);
        situation.add_certificates(fleet, now);
        situation
    }

    fn add(
        &mut self,
        rollout: Option<&str>,
        kind: IncidentKind,
        cause: &str,
        summary: String,
        hosts: impl IntoIterator<Item = HostName>,
    ) {
        self.incidents.push(Incident::new(&self.lineage, rollout, kind, cause, summary, hosts));
    }

    /// Adds what failed in the present rollout. Returns the hosts that did.
    fn add_rollout(&mut self, rollout: &RolloutStatus, fleet: &Fleet) -> BTreeSet<HostName> {
        let id = Some(rollout.rollout_id.as_str());
        let is_failed = |(host, failed): &&(HostName, Option<FailedHost>)| {
            failed.as_ref().is_none_or(|failed| !failed.healed) && !is_out_of_use(fleet, host)
        };
        let failed: Vec<&(HostName, Option<FailedHost>)> = rollout.failed.iter().filter(is_failed).collect();
        let hosts: BTreeSet<HostName> = failed.iter().map(|(host, _)| host.clone()).collect();
        if rollout.state == RolloutWord::Halted {
            let why = rollout.why.clone().unwrap_or_else(|| "the rollout is halted".into());
            self.add(id, IncidentKind::Halted, "", why, hosts.clone());
            return hosts;
        }
        let found = failed.into_iter().map(|(host, failed)| FoundFailure {
            host: host.clone(),
            check: FailedCheck::Down("rollout".into()),
            record: failed.as_ref().map(|failed| StatusRecord {
                at: failed.at,
                version: Some(rollout.version.clone()),
                code: None,
                reason: failed.reason.clone(),
                cause: failed.cause.clone(),
            }),
            line: None,
            bundle: None,
        });
        let found: Vec<FoundFailure> = found.collect();
        for group in FailureGroups::new(&found).iter() {
            let (cause, summary) = described(group, "in the rollout");
            self.add(id, IncidentKind::FailedInRollout, &cause, summary, group.hosts.clone());
        }
        hosts
    }

    /// Adds what failed outside of the present rollout, one incident for each cause.
    fn add_failures(&mut self, fleet: &Fleet, in_rollout: &BTreeSet<HostName>) {
        let mut failures = FailuresView::of(fleet, 0).failures;
        failures.retain(|failure| {
            let is_of_host = !matches!(failure.check, FailedCheck::Liveness | FailedCheck::Stale(_));
            is_of_host && !in_rollout.contains(&failure.host) && !is_out_of_use(fleet, &failure.host)
        });
        for group in FailureGroups::new(&failures).iter() {
            let (cause, summary) = described(group, &group.check);
            self.add(None, IncidentKind::Failed, &cause, summary, group.hosts.clone());
        }
    }

    fn add_blocked(&mut self, fleet: &Fleet) {
        let mut by_cause: BTreeMap<String, Vec<(HostName, String)>> = BTreeMap::new();
        for (host, verdict) in fleet.verdicts() {
            if let FleetVerdict::Held(reason) = verdict
                && reason.kind() == VerdictKind::Blocked
                && !is_out_of_use(fleet, host)
            {
                by_cause.entry(cause_of(reason)).or_default().push((host.clone(), verdict.message()));
            }
        }
        for (cause, hosts) in by_cause {
            let Some((_, message)) = hosts.first() else { continue };
            let first = if hosts.len() > 1 { ", the first" } else { "" };
            let summary = format!("{} blocked{first}: {message}", counted(hosts.len()));
            self.add(None, IncidentKind::Blocked, &cause, summary, hosts.into_iter().map(|(host, _)| host));
        }
    }

    fn add_freezes(&mut self, fleet: &Fleet, now: EpochSeconds) {
        for frozen in fleet.freezes() {
            let Some(freeze) = &frozen.freeze else { continue };
            if now.0.saturating_sub(freeze.at.0) < FROZEN_FOR_LONG_SECONDS {
                continue;
            }
            let token = frozen.token.as_ref().map(ToString::to_string).unwrap_or_default();
            let cause = format!("{} {token}", frozen.scope);
            let summary = format!("for more than a day: {frozen}");
            self.add(None, IncidentKind::FrozenForLong, &cause, summary, []);
        }
    }

    fn add_certificates(&mut self, fleet: &Fleet, now: EpochSeconds) {
        let warned = i64::try_from(CERTIFICATE_WARNING.as_secs()).unwrap_or(i64::MAX);
        let ends_soon = |end: &EpochSeconds| end.0.saturating_sub(now.0) < warned;
        let reports = fleet.hosts().iter().filter_map(|(host, facts)| Some((host, facts.readable_report()?)));
        let ending = reports.filter(|(host, report)| {
            report.facts.certificates.values().any(ends_soon) && !is_out_of_use(fleet, host)
        });
        let hosts: Vec<HostName> = ending.map(|(host, _)| host.clone()).collect();
        if !hosts.is_empty() {
            let summary = format!("the certificates of {} end within 14 days", counted(hosts.len()));
            self.add(None, IncidentKind::CertificateEnds, "", summary, hosts);
        }
    }
}

/// Returns what tells a group of failures from others, and what is wrong.
fn described(group: &FailureGroup, check: &str) -> (String, String) {
    let fingerprint = group.fingerprint.as_ref().map(ToString::to_string);
    let (reason, line) = (group.reason.clone().unwrap_or_default(), group.cause.clone());
    let cause = format!("{} {}", group.check, fingerprint.unwrap_or_else(|| reason.clone()));
    let why: Vec<String> = [Some(reason), line].into_iter().flatten().filter(|t| !t.is_empty()).collect();
    let why = if why.is_empty() { String::new() } else { format!(": {}", why.join(": ")) };
    (cause, format!("{} failed, {check}{why}", counted(group.host_count)))
}

/// Returns a number of hosts in words.
pub(super) fn counted(hosts: usize) -> String {
    if hosts == 1 { "1 host".into() } else { format!("{hosts} hosts") }
}

/// Returns what blocked hosts have in common, without what each of them remembers.
fn cause_of(reason: &WhyNot) -> String {
    match reason {
        WhyNot::StoreWentBack { .. } | WhyNot::NewerInstruction { .. } => "store went back".into(),
        WhyNot::StoreUnreadable { why } => format!("store unreadable: {why}"),
        WhyNot::OtherLineage { theirs, .. } => format!("other lineage: {theirs}"),
        WhyNot::NameHeld { .. } => "name held".into(),
        WhyNot::Decommissioned => "decommissioned".into(),
        WhyNot::InvalidInstruction { why } => format!("invalid instruction: {why}"),
        WhyNot::Settings { .. } => "settings".into(),
        WhyNot::Rollout { why } => format!("rollout: {why}"),
        WhyNot::CannotRecord { .. } => "cannot record".into(),
        // The same loop may begin with any of its hosts.
        WhyNot::Deadlock(hosts) => {
            let hosts: BTreeSet<&str> = hosts.iter().map(|waiting| waiting.host.as_str()).collect();
            format!("deadlock: {}", hosts.into_iter().collect::<Vec<_>>().join(" "))
        }
        other => other.to_string(),
    }
}

/// True if an operator took the host out of use. One that is only drained is not: an update that drains its host may
/// fail before the drain ends.
fn is_out_of_use(fleet: &Fleet, host: &HostName) -> bool {
    let mark = fleet.maintenance(host).and_then(|marks| marks.host.as_ref());
    mark.is_some_and(|mark| mark.how == MaintenanceMode::Maintenance)
}

fn of_verdict(fleet: &Fleet, test: impl Fn(&FleetVerdict) -> bool) -> BTreeSet<HostName> {
    let hosts =
        fleet.verdicts().iter().filter(|(host, verdict)| test(verdict) && !is_out_of_use(fleet, host));
    hosts.map(|(host, _)| host.clone()).collect()
}
