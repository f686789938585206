//! The metrics of the fleet. None has a label with the name of a host: thousands of hosts would be thousands of series.
//! `docs/observer.md` lists all of them.

use crate::clock::now;
use crate::http::Certificate;
use crate::incidents::IncidentStore;
use crate::notify::NotifyMetrics;
use crate::observed::{Observed, SharedFleet};
use fleet::FleetState;
use fleet::incidents::IncidentKind;
use http_server::MetricsEncoder;
use planning::rollout::{PresentRollout, RolloutStatus, RolloutWord};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use schema::health::Level;
use schema::time::EpochSeconds;
use schema::verdict::VerdictKind;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Number of versions that have a series of their own; the hosts of others are counted together.
const VERSIONS_MAX: usize = 20;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    version: &'static str,
}

/// Returns the registry of all metrics.
pub(crate) fn all(
    fleet: Arc<SharedFleet>,
    incidents: Arc<IncidentStore>,
    sent: &NotifyMetrics,
    certificate: Option<Arc<Certificate>>,
) -> Registry {
    let mut all = Registry::with_prefix("orchestrate");
    all.register_collector(Box::new(FleetMetrics { fleet, incidents, certificate }));
    sent.register(&mut all);
    let build = Info::new(BuildLabels { version: env!("CARGO_PKG_VERSION") });
    all.register("observer_build", "The version of the observer", build);
    all
}

/// The metrics of the recorder.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecorderMetrics {
    pub(crate) revision: Gauge,
    pub(crate) gaps: Counter,
    pub(crate) failures: Counter,
    pub(crate) bytes: Gauge,
    pub(crate) waiting_bytes: Gauge,
}

impl RecorderMetrics {
    /// Adds them to all metrics.
    pub(crate) fn register(&self, all: &mut Registry) {
        let help = "Revision of the store up to which the recording is on the disk";
        all.register("observer_recorded_revision", help, self.revision.clone());
        let help = "Gaps of the recording: how often changes before a segment are missing";
        all.register("observer_recording_gaps", help, self.gaps.clone());
        let help = "How often recording had to stop, because the directory was full or could not be used";
        all.register("observer_recording_failures", help, self.failures.clone());
        let help = "Bytes that the segments of this recorder take in its directory";
        all.register("observer_recording_bytes", help, self.bytes.clone());
        let help = "Bytes of the directory that are not in the object store yet; 0 without one";
        all.register("observer_recording_waiting_bytes", help, self.waiting_bytes.clone());
    }
}

/// Reads the fleet when its metrics are shown.
struct FleetMetrics {
    fleet: Arc<SharedFleet>,
    incidents: Arc<IncidentStore>,
    certificate: Option<Arc<Certificate>>,
}

impl fmt::Debug for FleetMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetMetrics").finish_non_exhaustive()
    }
}

impl Collector for FleetMetrics {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        let mut encoder = MetricsEncoder(encoder);
        let moment = self.fleet.moment();
        if let Some(fresh_at) = moment.fresh_at {
            let help = "Time in seconds for which changes of the store may be missing in these metrics";
            encoder.gauge("fleet_age_seconds", help, fresh_at.elapsed().as_secs_f64())?;
        }
        let incidents = self.fleet.incidents().map(|found| found.open).unwrap_or_default();
        let open = IncidentKind::ALL.map(|kind| {
            let count = incidents.iter().filter(|open| open.incident.kind == kind).count();
            ([("kind", kind.as_str()), ("severity", kind.severity().as_str())], count_as_f64(count))
        });
        encoder.family("fleet_incidents", "Open incidents, by kind; every kind is there", open)?;
        let waiting = self.incidents.waiting_counts().into_iter();
        let waiting = waiting.map(|(receiver, count)| ([("receiver", receiver)], count_as_f64(count)));
        let help = "Messages about incidents that wait for a receiver";
        encoder.family("observer_notifications_waiting", help, waiting)?;
        if let Some(end) = self.certificate.as_ref().and_then(|certificate| certificate.end()) {
            let help = "When the certificate ends that the observer shows, in seconds since 1970";
            encoder.gauge("observer_certificate_end_timestamp_seconds", help, as_f64(end.0))?;
        }
        let observed = self.fleet.read();
        match &*observed {
            Some(observed) => fleet(&mut encoder, observed, now()),
            None => Ok(()),
        }
    }
}

fn fleet(encoder: &mut MetricsEncoder<'_>, observed: &Observed, now: EpochSeconds) -> fmt::Result {
    let (fleet, found) = (&observed.fleet, observed.found());
    encoder.gauge("fleet_revision", "Revision of the store", as_f64(found.revision))?;
    let help = "State of the fleet: 1 for the one that it is in, else 0";
    let state = fleet.state();
    let states = FleetState::ALL.map(|one| ([("state", one.to_string())], flag(one == state)));
    encoder.family("fleet_state", help, states)?;
    let help = "Hosts, by role and verdict; every verdict of a role is there";
    encoder.family("fleet_hosts", help, by_verdict(observed))?;
    let help = "Hosts that are listed under each version; from the 21st version on, as `other`";
    let mut versions: Vec<(String, usize)> =
        fleet.versions().into_iter().map(|(version, count)| (version.to_string(), count)).collect();
    versions.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let other: usize = versions.iter().skip(VERSIONS_MAX).map(|(_, count)| count).sum();
    versions.truncate(VERSIONS_MAX);
    versions.extend((other > 0).then(|| ("other".to_owned(), other)));
    let version = |(version, count)| ([("version", version)], count_as_f64(count));
    encoder.family("fleet_listed_hosts", help, versions.into_iter().map(version))?;
    let reported = fleet.hosts().values().filter_map(|facts| facts.readable_report());
    if let Some(oldest) = reported.map(|report| report.at).min() {
        let help =
            "When the host reported whose last report is the oldest, by its clock, in seconds since 1970";
        encoder.gauge("fleet_oldest_report_timestamp_seconds", help, as_f64(oldest.0))?;
    }
    let reports = fleet.hosts().values().filter_map(|facts| facts.readable_report());
    if let Some(end) = reports.flat_map(|report| report.facts.certificates.values()).min() {
        let help = "When the first certificate ends that a host uses for the store, in seconds since 1970";
        encoder.gauge("fleet_earliest_certificate_end_timestamp_seconds", help, as_f64(end.0))?;
    }
    let help = "Freezes that stand";
    let freezes = fleet.freezes().count();
    encoder.gauge("fleet_freezes", help, count_as_f64(freezes))?;
    let written = fleet.freezes().filter_map(|by| by.freeze.as_ref()).map(|freeze| freeze.at).min();
    if let Some(oldest) = written {
        let help = "When the oldest freeze was written, in seconds since 1970";
        encoder.gauge("fleet_oldest_freeze_timestamp_seconds", help, as_f64(oldest.0))?;
    }
    let catalog = observed.catalog();
    let services = catalog.services().keys().flat_map(|service| {
        let of = |level: Level| {
            let labels = [("service", service.to_string()), ("level", level.to_string())];
            (labels, count_as_f64(catalog.count(service, level)))
        };
        [Level::Addressable, Level::Functional].map(of)
    });
    encoder.family("fleet_service_instances", "Instances of each service, by level", services)?;
    rollout(encoder, observed, now)
}

/// Returns the numbers of hosts by role and verdict.
fn by_verdict(observed: &Observed) -> Vec<([(&'static str, String); 2], f64)> {
    let fleet = &observed.fleet;
    let mut counts: BTreeMap<String, BTreeMap<VerdictKind, usize>> = BTreeMap::new();
    for (host, facts) in fleet.hosts() {
        let role = facts.roster.as_ref().and_then(|entry| entry.role.as_ref());
        let of_role = counts.entry(role.map(ToString::to_string).unwrap_or_default()).or_default();
        let verdict = fleet.verdict(host).map(|verdict| verdict.kind());
        verdict.into_iter().for_each(|kind| *of_role.entry(kind).or_default() += 1);
    }
    let all = |(role, of_role): (String, BTreeMap<VerdictKind, usize>)| {
        VerdictKind::ALL.map(|kind| {
            let count = of_role.get(&kind).copied().unwrap_or_default();
            ([("role", role.clone()), ("verdict", kind.as_str().to_owned())], count_as_f64(count))
        })
    };
    counts.into_iter().flat_map(all).collect()
}

/// Shows the rollout of the desired version, if a policy governs it.
fn rollout(encoder: &mut MetricsEncoder<'_>, observed: &Observed, now: EpochSeconds) -> fmt::Result {
    let Ok(present) = PresentRollout::find(observed.found()) else { return Ok(()) };
    let status = RolloutStatus::new(&present, observed.found(), now);
    let help = "State of the present rollout: 1 for the one that it is in, else 0";
    let states = RolloutWord::ALL;
    let states = states.map(|one| ([("state", one.as_str())], flag(one == status.state)));
    encoder.family("fleet_rollout_state", help, states)?;
    let stages = status.stages.iter().flat_map(|stage| {
        let counts = [
            ("proven", stage.proven_count),
            ("running", stage.running_count),
            ("failed", stage.failed_count),
            ("waiting", stage.waiting_count),
            ("absent", stage.absent_count),
            ("excused", stage.excused_count),
        ];
        counts.map(|(state, count)| {
            ([("stage", stage.name.clone()), ("state", state.to_owned())], count_as_f64(count))
        })
    });
    encoder.family("fleet_rollout_hosts", "Hosts of each stage of the present rollout, by state", stages)?;
    let failed = count_as_f64(status.failure_count);
    encoder.gauge("fleet_rollout_counted_failures", "Failed hosts that count against the budget", failed)?;
    if let Some(budget) = status.failure_budget {
        let help = "Number of hosts that may fail before the present rollout is halted";
        encoder.gauge("fleet_rollout_failure_budget", help, f64::from(budget))?;
    }
    Ok(())
}

fn flag(is: bool) -> f64 {
    f64::from(u8::from(is))
}

#[allow(clippy::cast_precision_loss, reason = "counts and times are far below 2^53")]
fn as_f64(value: i64) -> f64 {
    value as f64
}

fn count_as_f64(count: usize) -> f64 {
    i64::try_from(count).map_or(f64::INFINITY, as_f64)
}
