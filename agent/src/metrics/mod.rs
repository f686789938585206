//! The metrics of the agent, which `/metrics` shows: one registry, made at start. Counters and histograms rise
//! where things happen; gauges are read from the state when they are shown (`http/state_metrics.rs`). `docs/metrics.md` lists all of them.

mod process;

use etcd_session::{RequestKind, StoreError};
use planning::host::{StepMeaning, ValidationResult};
use process::ProcessMetrics;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use schema::health::CheckStatus;
use schema::names::StepName;
use schema::plan::Conclusion;
use schema::steps::{StepEnd, StepPhase};
use schema::time::EpochSeconds;
use std::time::Duration;

/// What precedes the name of each metric of the agent.
const PREFIX: &str = "orchestrate_agent";
/// Upper bounds of the durations of steps, in seconds.
const STEP_SECONDS: [f64; 9] = [0.1, 0.5, 2.0, 10.0, 30.0, 120.0, 600.0, 1800.0, 7200.0];
/// Upper bounds of the durations of requests to the store, in seconds.
const REQUEST_SECONDS: [f64; 7] = [0.001, 0.005, 0.025, 0.1, 0.5, 2.0, 8.0];

/// Labels of a metric that tells results apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabel {
    status: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StepLabels {
    phase: &'static str,
    step: String,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StepOfPhase {
    phase: &'static str,
    step: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    operation: &'static str,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueryLabels {
    transport: &'static str,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HttpLabels {
    listener: &'static str,
    code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    version: &'static str,
}

type Results = Family<ResultLabel, Counter>;
type Durations<L> = Family<L, Histogram, fn() -> Histogram>;

/// The result of a rendering of a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RenderResult {
    /// The file was up to date.
    Unchanged,
    /// The file was written.
    Written,
    /// The file could not be brought up to date.
    Failed,
}

/// The counters and histograms. Handles are cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    attempts_started: Counter,
    attempts_ended: Results,
    steps: Durations<StepLabels>,
    /// When each step was last done, in seconds since 1970.
    steps_done: Family<StepOfPhase, Gauge>,
    validations: Results,
    check_results: Family<StatusLabel, Counter>,
    store_requests: Durations<RequestLabels>,
    name_claims: Counter,
    renders: Results,
    settings_reads: Results,
    dns_queries: Family<QueryLabels, Counter>,
    http_requests: Family<HttpLabels, Counter>,
}

impl Default for Metrics {
    fn default() -> Self {
        // A counter that is there from the start shows its first rise.
        let zero = |results: &[&'static str]| {
            let family = Results::default();
            results.iter().for_each(|result| drop(family.get_or_create(&ResultLabel { result })));
            family
        };
        let steps: fn() -> Histogram = || Histogram::new(STEP_SECONDS);
        let requests: fn() -> Histogram = || Histogram::new(REQUEST_SECONDS);
        Self {
            attempts_started: Counter::default(),
            attempts_ended: zero(&["proven", "failed", "dropped", "gave_up"]),
            steps: Family::new_with_constructor(steps),
            steps_done: Family::default(),
            validations: zero(&["passed", "failed", "not_yet"]),
            check_results: Family::default(),
            store_requests: Family::new_with_constructor(requests),
            name_claims: Counter::default(),
            renders: zero(&["unchanged", "written", "failed"]),
            settings_reads: zero(&["applied", "refused"]),
            dns_queries: Family::default(),
            http_requests: Family::default(),
        }
    }
}

/// A step that ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EndedStep<'a> {
    pub(crate) phase: StepPhase,
    pub(crate) step: &'a StepName,
    pub(crate) end: &'a StepEnd,
    pub(crate) meaning: StepMeaning,
    pub(crate) took: Duration,
    /// When it ended.
    pub(crate) at: EpochSeconds,
}

impl Metrics {
    /// Returns the registry of these metrics, of the state and of the process.
    pub(crate) fn registry(&self, state: impl Collector) -> Registry {
        let mut all = Registry::default();
        all.register_collector(Box::new(ProcessMetrics));
        let own = all.sub_registry_with_prefix(PREFIX);
        own.register_collector(Box::new(state));
        let build = Info::new(BuildLabels { version: env!("CARGO_PKG_VERSION") });
        own.register("build", "The version of the agent", build);
        let Self {
            attempts_started,
            attempts_ended,
            steps,
            steps_done,
            validations,
            check_results,
            store_requests,
            name_claims,
            renders,
            settings_reads,
            dns_queries,
            http_requests,
        } = self.clone();
        own.register("attempts_started", "Attempts at a version that began", attempts_started);
        own.register("attempts_ended", "Attempts at a version that ended, by result", attempts_ended);
        let help = "Duration of steps, by phase, step and result";
        own.register_with_unit("step_duration", help, Unit::Seconds, steps);
        let help = "When each step was last done, in seconds since 1970";
        own.register_with_unit("step_last_done_timestamp", help, Unit::Seconds, steps_done);
        own.register("validations", "Validations of a version, by result", validations);
        own.register("check_results", "Results of checks, by status", check_results);
        let help =
            "Duration of requests to the store, by operation and result; a repeated request counts each time";
        own.register_with_unit("store_request_duration", help, Unit::Seconds, store_requests);
        own.register("name_claims", "Times that the agent claimed the name of its host", name_claims);
        own.register("template_renders", "Renderings of templates, by result", renders);
        own.register("settings_reads", "Times that the settings were read again, by result", settings_reads);
        own.register("dns_queries", "DNS queries, by transport and result", dns_queries);
        own.register("http_requests", "HTTP requests, by listener and status code", http_requests);
        all
    }

    /// Counts what the host concluded about its attempt.
    pub(crate) fn note_conclusion(&self, conclusion: &Conclusion) {
        let result = match conclusion {
            Conclusion::AttemptBegan { .. } => {
                self.attempts_started.inc();
                return;
            }
            Conclusion::Proven { .. } => "proven",
            Conclusion::AttemptFailed => "failed",
            Conclusion::AttemptDropped => "dropped",
            Conclusion::GaveUp => "gave_up",
            _ => return,
        };
        self.attempts_ended.get_or_create(&ResultLabel { result }).inc();
    }

    pub(crate) fn note_validation(&self, result: ValidationResult) {
        let result = match result {
            ValidationResult::Passed => "passed",
            ValidationResult::Failed => "failed",
            ValidationResult::NotYet => "not_yet",
        };
        self.validations.get_or_create(&ResultLabel { result }).inc();
    }

    /// Counts a step that ended now.
    pub(crate) fn note_step(&self, ended: &EndedStep<'_>) {
        let EndedStep { phase, step, end, meaning, took, at } = *ended;
        let result = match (end, meaning) {
            (_, StepMeaning::Done) => "done",
            (_, StepMeaning::NotYet) => "not_yet",
            (StepEnd::TimedOut { .. }, _) => "timed_out",
            (StepEnd::Interrupted, _) => "interrupted",
            (StepEnd::NotStarted { .. }, _) => "not_started",
            (StepEnd::Exited { .. } | StepEnd::Signalled { .. }, _) => "failed",
        };
        let (phase, step) = (phase.as_str(), step.to_string());
        if meaning == StepMeaning::Done {
            self.steps_done.get_or_create(&StepOfPhase { phase, step: step.clone() }).set(at.0);
        }
        self.steps.get_or_create(&StepLabels { phase, step, result }).observe(took.as_secs_f64());
    }

    /// Counts a result of a check.
    pub(crate) fn note_check(&self, status: CheckStatus) {
        self.check_results.get_or_create(&StatusLabel { status: status.to_string() }).inc();
    }

    /// Counts a request to the store.
    pub(crate) fn note_request(&self, kind: RequestKind, error: Option<&StoreError>, took: Duration) {
        let labels =
            RequestLabels { operation: kind.as_str(), result: error.map_or("ok", StoreError::as_str) };
        self.store_requests.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// Counts a claim of the host name.
    pub(crate) fn note_name_claim(&self) {
        self.name_claims.inc();
    }

    /// Counts a rendering of a template.
    pub(crate) fn note_render(&self, result: RenderResult) {
        let result = match result {
            RenderResult::Unchanged => "unchanged",
            RenderResult::Written => "written",
            RenderResult::Failed => "failed",
        };
        self.renders.get_or_create(&ResultLabel { result }).inc();
    }

    /// Counts a read of the settings after the start.
    pub(crate) fn note_settings_read(&self, is_applied: bool) {
        let result = if is_applied { "applied" } else { "refused" };
        self.settings_reads.get_or_create(&ResultLabel { result }).inc();
    }

    /// Counts an HTTP request on a listener by the status code of its answer.
    pub(crate) fn note_http(&self, listener: &'static str, code: u16) {
        self.http_requests.get_or_create(&HttpLabels { listener, code }).inc();
    }

    /// Returns the counters of DNS queries by this transport.
    pub(crate) fn queries(&self, transport: &'static str) -> QueryMetrics {
        let of = |result| self.dns_queries.get_or_create_owned(&QueryLabels { transport, result });
        QueryMetrics { by_code: CODES.map(of), other: of("other"), unanswered: of("unanswered") }
    }
}

/// Response codes of DNS, by number (RFC 1035, section 4.1.1).
const CODES: [&str; 6] = ["noerror", "formerr", "servfail", "nxdomain", "notimp", "refused"];

/// Counters of DNS queries by one transport. Each query raises one of them, without a lock.
#[derive(Debug, Clone)]
pub(crate) struct QueryMetrics {
    by_code: [Counter; CODES.len()],
    other: Counter,
    unanswered: Counter,
}

impl QueryMetrics {
    /// Counts a query by its answer; `None` if it gets none.
    pub(crate) fn note(&self, answer: Option<&[u8]>) {
        // The last four bits of the fourth byte are the response code.
        let Some(byte) = answer.and_then(|bytes| bytes.get(3)) else {
            self.unanswered.inc();
            return;
        };
        self.by_code.get(usize::from(byte & 0x0f)).unwrap_or(&self.other).inc();
    }
}
