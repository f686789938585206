//! The fleet as a whole.

use super::causes::{Cause, HostVerdictView};
use super::freeze::FreezeView;
use super::maintenance::MaintenanceView;
use super::parts::{DesiredVersion, Unpublished};
use super::problem::ProblemOn;
use crate::services::FailedService;
use crate::state::Fleet;
use crate::target::FleetTarget;
use crate::text::Text;
use crate::verdict::{FleetState, FleetVerdict, Unaccounted};
use catalog::GuardSettings;
use planning::rollout::{Outlook, PresentRollout, RolloutFailures};
use schema::instruction::Instruction;
use schema::keys::Prefix;
use schema::names::{HostName, ServiceName, Version};
use schema::snapshot::KeySnapshot;
use schema::time::EpochSeconds;
use schema::verdict::VerdictKind;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, HashSet};
use std::fmt;

/// What the status shows besides the verdicts.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StatusParts {
    /// Alarms of the store, if they are known.
    pub alarms: Option<Vec<String>>,
    /// Why what the store says may not be the present.
    pub doubt: Option<String>,
    /// Services of which many instances stopped reporting.
    pub silent: Vec<SilentService>,
    /// Hosts and services that operators took out of use.
    pub maintenance: Vec<MaintenanceView>,
    /// The failures of the present rollout, if it has a record.
    pub failures: Option<RolloutFailures>,
    /// How the present rollout goes on, if it has a record and has not ended.
    pub outlook: Option<Outlook>,
}

/// The state of the fleet.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct StatusView {
    /// The state in one word.
    pub fleet: FleetState,
    /// The revision of the store at which the fleet was read.
    pub revision: i64,
    /// The desired version, if there is a valid one.
    pub desired: Option<DesiredVersion>,
    /// Why the value of `/current_version` is not a version, if it is not.
    #[serde(skip)]
    pub invalid: Option<String>,
    /// The versions under which hosts are listed.
    pub versions: Vec<VersionCount>,
    /// Number of hosts that are listed under no version.
    pub unlisted_count: usize,
    /// Number of hosts.
    pub host_count: usize,
    /// Number of hosts with each verdict, without those that no host has.
    pub verdict_counts: BTreeMap<VerdictKind, usize>,
    /// The hosts whose verdict is not ok.
    pub not_ok: Vec<HostVerdictView>,
    /// The same hosts, by what keeps them from being ok.
    pub causes: Vec<Cause>,
    /// The unaccounted hosts.
    pub unaccounted: Vec<UnaccountedName>,
    /// The listings that their hosts do not confirm.
    pub unconfirmed: Vec<UnconfirmedListing>,
    /// Alarms of the store, if they are known.
    pub alarms: Option<Vec<String>>,
    /// Why what the store says may not be the present.
    #[serde(skip)]
    pub doubt: Option<String>,
    /// The freezes that stand.
    pub freezes: Vec<FreezeView>,
    /// The present rollout, if it has a record.
    pub rollout: Option<StatusRollout>,
    /// The services and host checks that fail without an explanation.
    pub down: Vec<FailedService>,
    /// The services and checks of hosts that are in warning.
    pub warnings: Vec<FailedService>,
    /// The services that their hosts define and do not publish.
    pub unpublished: Vec<UnpublishedOn>,
    /// What is wrong with the files and names of hosts.
    pub problems: Vec<ProblemOn>,
    /// The services of which many instances stopped reporting.
    pub silent: Vec<SilentService>,
    /// The hosts and services that operators took out of use.
    #[serde(rename = "out_of_use")]
    pub maintenance: Vec<MaintenanceView>,
}

/// How many hosts are listed under a version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct VersionCount {
    /// The version.
    pub version: Version,
    /// Number of hosts.
    pub host_count: usize,
}

/// Why a host is unaccounted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct UnaccountedName {
    /// The name of the host.
    pub host: HostName,
    /// Why it is unaccounted.
    pub how: Unaccounted,
}

/// A listing that its host does not confirm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct UnconfirmedListing {
    /// The name of the host.
    pub host: HostName,
    /// The version under which it is listed.
    pub version: Version,
}

/// The present rollout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StatusRollout {
    /// Its failures.
    #[serde(flatten)]
    pub failures: RolloutFailures,
    /// The time until its end in seconds, if it is known.
    pub to_go_seconds: Option<u64>,
    /// How it goes on, if it has not ended.
    #[serde(skip)]
    pub outlook: Option<Outlook>,
}

/// A service that its host defines and does not publish.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct UnpublishedOn {
    /// The name of the host.
    pub host: HostName,
    /// The service, and why it is not published.
    #[serde(flatten)]
    pub service: Unpublished,
}

/// A service of which many instances stopped reporting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SilentService {
    /// The name of the service.
    pub service: ServiceName,
    /// Number of instances that stopped reporting.
    pub silent_count: usize,
    /// Number of all instances.
    pub instance_count: usize,
}

impl StatusParts {
    /// Returns what the status shows besides the verdicts, from the whole store.
    pub fn of(found: &KeySnapshot, alarms: Option<Vec<String>>, now: EpochSeconds) -> Self {
        let (services, health) = (Prefix::Services.to_string(), Prefix::HealthAll.to_string());
        let records = found.in_range(&Prefix::Services).filter(|(_, entry)| entry.lease != 0);
        let records = records.filter_map(|(key, _)| key.strip_prefix(&services));
        let healths = found.in_range(&Prefix::HealthAll).filter_map(|(key, _)| key.strip_prefix(&health));
        let order = Instruction::find(found).map(|instruction| instruction.order);
        let failures = order.and_then(|order| RolloutFailures::read(order, found));
        let goes_on = failures.as_ref().is_some_and(|failures| !failures.has_ended);
        let present = if goes_on { PresentRollout::find(found).ok() } else { None };
        Self {
            alarms,
            doubt: None,
            silent: SilentService::all(records, healths),
            maintenance: MaintenanceView::all(found),
            failures,
            outlook: present.map(|present| present.outlook(found, now)),
        }
    }
}

impl SilentService {
    /// Returns the services of which so many instances stopped reporting that a fault is the likelier cause.
    /// `records` are the keys of leased records, and `healths` those of health values, each as
    /// `<service>/<host>`.
    pub fn all<'a>(
        records: impl Iterator<Item = &'a str>,
        healths: impl Iterator<Item = &'a str>,
    ) -> Vec<Self> {
        let reporting: HashSet<&str> = healths.collect();
        let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for suffix in records {
            let Some((service, _)) = suffix.split_once('/') else { continue };
            let (silent, instances) = counts.entry(service).or_default();
            *instances += 1;
            *silent += usize::from(!reporting.contains(suffix));
        }
        let guard = GuardSettings::default();
        let counts =
            counts.into_iter().filter(|(_, (silent, instances))| guard.is_cliff(*silent, *instances));
        let of = |(name, (silent_count, instance_count))| {
            Some(Self { service: ServiceName::new(name).ok()?, silent_count, instance_count })
        };
        counts.filter_map(of).collect()
    }
}

impl StatusView {
    /// Returns the state of a fleet.
    pub fn new(fleet: &Fleet, parts: StatusParts, revision: i64) -> Self {
        let (verdicts, down) = (fleet.verdicts(), fleet.failed_services());
        let not_ok = verdicts.iter().filter(|(_, verdict)| **verdict != FleetVerdict::Ok);
        let not_ok: Vec<_> =
            not_ok.map(|(host, verdict)| HostVerdictView::new(host, verdict, fleet)).collect();
        let mut counts = BTreeMap::new();
        verdicts.values().for_each(|verdict| *counts.entry(verdict.kind()).or_default() += 1);
        let unaccounted = verdicts.iter().filter_map(|(host, verdict)| {
            Some(UnaccountedName { host: host.clone(), how: verdict.unaccounted()? })
        });
        let unconfirmed = fleet.unconfirmed().into_iter().flat_map(|(version, hosts)| {
            let of = |host: &HostName| UnconfirmedListing { host: host.clone(), version: version.clone() };
            hosts.into_iter().map(of).collect::<Vec<_>>()
        });
        let invalid =
            if let FleetTarget::Invalid { why } = fleet.target() { Some(why.clone()) } else { None };
        let count =
            |(version, host_count): (&Version, usize)| VersionCount { version: version.clone(), host_count };
        let StatusParts { alarms, doubt, silent, maintenance, failures, outlook } = parts;
        let to_go_seconds = outlook.as_ref().and_then(Outlook::to_go_seconds);
        let is_full = alarms.as_ref().is_some_and(|alarms| !alarms.is_empty());
        let is_doubtful = is_full || doubt.is_some();
        Self {
            // Hosts cannot write what has happened to them since.
            fleet: if is_doubtful { FleetState::Unknown } else { fleet.state_by(!down.is_empty()) },
            revision,
            desired: DesiredVersion::of(fleet.target()),
            invalid,
            versions: fleet.versions().into_iter().map(count).collect(),
            unlisted_count: fleet.hosts().values().filter(|facts| facts.listed.is_empty()).count(),
            host_count: fleet.hosts().len(),
            verdict_counts: counts,
            causes: Cause::all(&not_ok, fleet),
            not_ok,
            unaccounted: unaccounted.collect(),
            unconfirmed: unconfirmed.collect(),
            alarms,
            doubt,
            freezes: fleet.freezes().cloned().map(FreezeView).collect(),
            rollout: failures.map(|failures| StatusRollout { failures, to_go_seconds, outlook }),
            down,
            warnings: fleet.warning_services(),
            unpublished: fleet
                .unpublished()
                .map(|(host, service)| UnpublishedOn { host: host.clone(), service: service.into() })
                .collect(),
            problems: ProblemOn::all(fleet),
            silent,
            maintenance,
        }
    }

    /// Returns why the state of the fleet is not known; `None` if it is.
    pub fn unknown_reason(&self, fleet: &Fleet) -> Option<String> {
        let alarms = self.alarms.iter().flatten().map(String::as_str).collect::<Vec<_>>().join(", ");
        match self.fleet {
            FleetState::Unknown if self.doubt.is_some() => self.doubt.clone(),
            FleetState::Unknown if !alarms.is_empty() => Some(format!(
                "the store raised the alarm {alarms}, so hosts cannot write what happens to them"
            )),
            FleetState::Unknown => {
                Some(fleet.unknown_reason().unwrap_or_else(|| "its state cannot be told".into()))
            }
            _ => None,
        }
    }

    /// Returns the status for a terminal of this width, where long tables and lines are cut; whole without a width.
    pub fn text(&self, width: Option<usize>) -> Text {
        let mut text = Text::default();
        text.line(&format!("fleet: {}", self.fleet));
        text.line(&match (&self.desired, &self.invalid) {
            (Some(desired), _) => format!("desired: {desired}"),
            (None, Some(why)) => format!("desired: not a version: {why}"),
            (None, None) => "desired: none".into(),
        });
        text.line(&self.counts());
        self.alarms.iter().flatten().for_each(|alarm| text.line(&format!("store alarm: {alarm}")));
        self.freezes.iter().for_each(|freeze| text.line(&freeze.to_string()));
        if let Some(StatusRollout { failures, outlook, .. }) = &self.rollout {
            outlook.iter().for_each(|outlook| text.line(&format!("rollout: {outlook}")));
            failures.lines().iter().for_each(|line| text.line(line));
        }
        let mut versions: Vec<_> = self
            .versions
            .iter()
            .map(|found| [found.version.to_string(), found.host_count.to_string()])
            .collect();
        if self.unlisted_count > 0 {
            versions.push(["none".into(), self.unlisted_count.to_string()]);
        }
        text.section_within(width, ["VERSION", "HOSTS"], versions.into_iter());
        let causes = self.causes.iter().map(|cause| cause.noted_row(width));
        let left_out = text.noted_section_within(width, Cause::HEADER, causes);
        if left_out > 0 {
            text.line(&format!(
                "`orchestrate get_failures --group` names the bundles ({left_out} are not shown)"
            ));
        }
        if self.causes.iter().any(Cause::is_long) {
            text.line("`orchestrate hosts --verdict VERDICT --role ROLE` lists the hosts");
        }
        let row =
            |found: &FailedService| [found.check.clone(), found.host.to_string(), found.output().to_owned()];
        text.section_within(width, ["DOWN", "HOST", "OUTPUT"], self.down.iter().map(row));
        text.section_within(width, ["WARNING", "HOST", "OUTPUT"], self.warnings.iter().map(row));
        let row = |UnpublishedOn { host, service }: &UnpublishedOn| {
            [service.service.to_string(), host.to_string(), service.reason.clone()]
        };
        text.section_within(width, ["NOT PUBLISHED", "HOST", "REASON"], self.unpublished.iter().map(row));
        text.section_within(width, ProblemOn::HEADER, self.problems.iter().map(ProblemOn::row));
        // Agents serve the last known state of these; `orchestrate drop-stale` ends that.
        let row = |found: &SilentService| {
            let SilentService { service, silent_count, instance_count } = found;
            [
                service.to_string(),
                format!("{silent_count} of {instance_count}; their last known state is served"),
            ]
        };
        text.section_within(width, ["SERVICE", "WENT SILENT"], self.silent.iter().map(row));
        let header = ["OUT OF USE", "SERVICE", "HOW", "SINCE", "REASON"];
        text.section_within(width, header, self.maintenance.iter().map(MaintenanceView::row));
        text
    }

    /// Returns how many hosts there are, and how many of them have which verdict: the worst first.
    fn counts(&self) -> String {
        let of = |(kind, count): (&VerdictKind, &usize)| format!("{count} {kind}");
        let counts: Vec<String> = self.verdict_counts.iter().rev().map(of).collect();
        let counts = if counts.is_empty() { String::new() } else { format!(" ({})", counts.join(", ")) };
        format!("hosts: {}{counts}", self.host_count)
    }
}

impl fmt::Display for StatusView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text(None).fmt(f)
    }
}
