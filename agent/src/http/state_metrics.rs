//! Gauges that show the state of the agent at the time of the request.

use crate::catalog::{Fencing, Loaded, Reader};
use crate::checks::CheckRegistry;
use crate::status::{Status, StatusTarget};
use crate::templates::TemplateStates;
use etcd_session::PresenceState;
use http_server::MetricsEncoder;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use schema::health::CheckStatus;
use schema::records::MaintenanceMode;
use schema::verdict::VerdictKind;
use std::fmt;
use std::sync::Arc;
use tokio::sync::watch;

/// Where the state is read.
pub(crate) struct StateMetrics {
    pub status: watch::Receiver<Arc<Status>>,
    pub reader: Reader,
    pub registry: Arc<CheckRegistry>,
    pub loaded: watch::Receiver<Arc<Loaded>>,
    pub templates: watch::Receiver<Arc<TemplateStates>>,
    pub fencing: watch::Receiver<Fencing>,
}

impl fmt::Debug for StateMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateMetrics").finish_non_exhaustive()
    }
}

impl Collector for StateMetrics {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        let mut encoder = MetricsEncoder(encoder);
        let status = self.status.borrow().clone();
        host(&status, &mut encoder)?;
        store(&status, &mut encoder)?;
        self.maintenance(&mut encoder)?;
        self.catalog(&mut encoder)?;
        self.services(&mut encoder)
    }
}

fn host(status: &Status, encoder: &mut MetricsEncoder<'_>) -> fmt::Result {
    let verdicts = VerdictKind::OF_HOSTS.map(|kind| {
        let is_current = status.decision.as_ref().is_some_and(|decision| decision.verdict.kind() == kind);
        ([("verdict", kind.as_str())], f64::from(u8::from(is_current)))
    });
    encoder.family("verdict", "1 for the verdict of the host, 0 for the others", verdicts)?;
    let (desired, revision) = match &status.target {
        StatusTarget::Known { version, revision, .. } => (Some(version), *revision),
        StatusTarget::Unread | StatusTarget::NotSet | StatusTarget::Invalid { .. } => (None, 0),
    };
    let versions =
        [("desired", desired), ("installed", status.installed.as_ref()), ("listed", status.listed.as_ref())];
    let versions = versions.into_iter().filter_map(|(state, version)| {
        Some(([("state", state.to_owned()), ("version", version?.to_string())], 1.0))
    });
    encoder.family("version_info", "The desired, the installed and the announced version", versions)?;
    let help = "Revision at which the desired version was written; 0 if there is none";
    encoder.gauge("desired_revision", help, revision as f64)?;
    encoder.flag("step_running", "1 while a step runs", status.running.is_some())?;
    encoder.counter("steps_started", "Steps that were started", status.steps_run)?;
    encoder.counter("passes", "Passes of the reconcile loop", status.passes)
}

fn store(status: &Status, encoder: &mut MetricsEncoder<'_>) -> fmt::Result {
    let snapshot = &status.snapshot;
    encoder.flag("store_connected", "1 while the watch on the store is open", snapshot.connected)?;
    let revision = snapshot.followed.keys.revision;
    encoder.gauge("store_revision", "Revision up to which the host knows its keys", revision as f64)?;
    encoder.counter(
        "store_full_reads",
        "Reads of all keys that the host follows",
        snapshot.followed.reads,
    )?;
    if let Some(seconds) = status.seconds_since_contact() {
        encoder.gauge("store_contact_age_seconds", "Time since the store last answered", seconds)?;
    }
    let is_held = matches!(status.presence, PresenceState::Held { .. }) && !status.is_unconfirmed();
    encoder.flag("name_held", "1 while the agent holds the name of its host", is_held)?;
    if let Some(end) = status.certificates.values().min() {
        let help = "When the first certificate of the connection to the store ends, in seconds since 1970";
        encoder.gauge("certificate_end_timestamp_seconds", help, end.0 as f64)?;
    }
    Ok(())
}

impl StateMetrics {
    fn maintenance(&self, encoder: &mut MetricsEncoder<'_>) -> fmt::Result {
        let marks = self.fencing.borrow().maintenance.clone();
        let labels =
            |how: MaintenanceMode, service: String| [("how", how.as_str().to_owned()), ("service", service)];
        let of_host = marks.host.iter().map(|mark| (labels(mark.how, String::new()), mark.at));
        let of_services =
            marks.services.iter().map(|(name, mark)| (labels(mark.how, name.to_string()), mark.at));
        let values = of_host.chain(of_services).map(|(labels, at)| (labels, at.0 as f64));
        let help = "When an operator took the host, or a service of it, out of use, in seconds since 1970";
        encoder.family("maintenance_since_timestamp_seconds", help, values)
    }

    fn catalog(&self, encoder: &mut MetricsEncoder<'_>) -> fmt::Result {
        let shown = self.reader.snapshot();
        encoder.flag("catalog_connected", "1 while the catalog is followed", shown.connected)?;
        let help = "Time since the store last confirmed the catalog";
        encoder.gauge("catalog_age_seconds", help, self.reader.age().as_secs_f64())?;
        encoder.gauge("catalog_services", "Services in the catalog", shown.view.services().len() as f64)?;
        let retained: usize = shown.retained.iter().map(|retained| retained.hosts.len()).sum();
        let help = "Instances that stopped reporting together and are still served";
        encoder.gauge("catalog_retained_instances", help, retained as f64)
    }

    fn services(&self, encoder: &mut MetricsEncoder<'_>) -> fmt::Result {
        let errors = self.loaded.borrow().errors.len();
        encoder.gauge("service_file_errors", "Service files that cannot be used", errors as f64)?;
        let checks = self.registry.all();
        let checks = checks.iter().filter(|check| check.state.is_known).map(|check| {
            let service = check.service.as_ref().map(ToString::to_string).unwrap_or_default();
            let labels = [("check", check.id.to_string()), ("service", service)];
            (labels, f64::from(u8::from(check.state.status == CheckStatus::Passing)))
        });
        let help = "1 if the check passes, 0 if it does not; checks of the host have no service";
        encoder.family("check_passing", help, checks)?;
        let templates = self.templates.borrow().clone();
        let templates = templates.iter().map(|(target, state)| {
            ([("target", target.display().to_string())], f64::from(u8::from(state.up_to_date)))
        });
        encoder.family(
            "template_up_to_date",
            "1 if the file shows the present catalog, 0 if it does not",
            templates,
        )
    }
}
