//! One host: what it decided, what it waits for, and what ends that.

use super::claim::HeldClaimView;
use super::host_rollout::HostRollout;
use super::machine::MachineView;
use super::maintenance::MaintenanceView;
use super::own_verdict::OwnVerdict;
use super::parts::{DesiredVersion, ResultView, Unpublished};
use super::problem::Problem;
use super::roots::as_text;
use super::running_step::RunningStepView;
use crate::facts::HostFacts;
use crate::state::Fleet;
use crate::text::{Text, with_distance};
use crate::waits::{Chain, Root, WaitGraph};
use planning::calendar::as_rfc3339;
use schema::health::Level;
use schema::names::{HostName, Role, ServiceName, Version};
use schema::plan::{Phase, Reason};
use schema::records::{Report, ReportedTarget, Wait};
use schema::time::EpochSeconds;
use schema::verdict::VerdictKind;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// One host.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct HostView {
    /// The name of the host.
    pub host: HostName,
    /// The verdict of a reader about it, in one word.
    pub verdict: VerdictKind,
    /// The details of the verdict; `None` for ok.
    pub reason: Option<String>,
    /// The condition that ends the verdict; `None` for ok.
    pub hint: Option<&'static str>,
    /// The role on the roster.
    pub role: Option<Role>,
    /// The group on the roster.
    pub group: Option<Role>,
    /// The labels on the roster.
    pub labels: BTreeMap<String, String>,
    /// The IP addresses of the host, while its agent runs.
    pub addresses: Vec<String>,
    /// The desired version of the fleet, if there is a valid one.
    pub desired: Option<DesiredVersion>,
    /// The instruction that the host decided on last.
    pub decided_on: Option<ReportedTarget>,
    /// The version that the host proved last.
    pub installed: Option<Version>,
    /// The versions under which the host is listed.
    pub listed_under: BTreeSet<Version>,
    /// True if its agent runs.
    pub live: bool,
    /// The version of its agent, if that runs.
    pub agent_version: Option<String>,
    /// Why the claim of its agent cannot be read, if it cannot.
    #[serde(skip)]
    pub unreadable_claim: Option<String>,
    /// The phase that the host is in.
    pub phase: Option<Phase>,
    /// The verdict of the host about itself.
    pub own_verdict: Option<OwnVerdict>,
    /// What the host is doing.
    pub activity: Option<String>,
    /// When its next attempt begins (RFC 3339), if that is known.
    #[serde(serialize_with = "as_rfc3339")]
    #[schemars(with = "Option<String>")]
    pub next_attempt_at: Option<EpochSeconds>,
    /// The step that has run for some time.
    pub running_step: Option<RunningStepView>,
    /// What the host is going to do.
    pub next: Vec<PlannedAction>,
    /// The results of the host.
    pub results: Vec<ResultView>,
    /// When the host reported last (RFC 3339).
    #[serde(serialize_with = "as_rfc3339")]
    #[schemars(with = "Option<String>")]
    pub reported_at: Option<EpochSeconds>,
    /// The machine of the host, as it reports it.
    pub machine: Option<MachineView>,
    /// The revision at which an operator last requested that the host tries again.
    pub retry_asked_at_revision: Option<i64>,
    /// The services that the host defines and does not publish.
    pub unpublished: Vec<Unpublished>,
    /// What is wrong with the files and the name of the host.
    pub problems: Vec<Problem>,
    /// How operators took the host, or services on it, out of use.
    #[serde(rename = "out_of_use")]
    pub maintenance: Vec<MaintenanceView>,
    /// Why the host waits for services, one entry for each service that is missing.
    pub waits: Vec<HostWaits>,
    /// What the limits of the rollout mean for the host.
    #[serde(flatten)]
    pub rollout: HostRollout,
    /// Where the bundle is that the host uploaded of its failure; `None` if it uploaded none.
    pub bundle: Option<String>,
    /// The last output lines of the step that failed or was deferred.
    pub log: Vec<String>,
    /// The revision of the store at which the host was read.
    pub revision: i64,
}

/// An action that a host is going to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PlannedAction {
    /// The action.
    pub action: String,
    /// The reason.
    pub reason: String,
}

/// Why a host waits for a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct HostWaits {
    /// The hosts from this one to the root cause, each with what it waits for.
    pub chain: Vec<Link>,
    /// The root cause.
    #[serde(serialize_with = "as_text")]
    #[schemars(with = "String")]
    pub root: Root,
    /// Number of hosts that wait because of the same root cause.
    pub host_count: usize,
}

/// A host that waits for a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Link {
    /// The name of the host.
    pub host: HostName,
    /// The service.
    pub service: ServiceName,
    /// The level that is needed.
    pub level: Level,
    /// Number of instances that are needed.
    pub need: u32,
    /// Number of instances that there are.
    pub have: u32,
    /// The whole need, for people.
    #[serde(skip)]
    pub text: String,
}

impl HostWaits {
    /// Returns why a host waits, one entry for each service that is missing.
    pub fn all(host: &HostName, graph: &WaitGraph<'_>) -> Vec<Self> {
        let roots = graph.roots();
        let of_chain = |Chain { links: found, root }: Chain| {
            let host_count = roots.get(&root.clone().canonical()).map_or(1, BTreeSet::len);
            Self { chain: links(found), root, host_count }
        };
        graph.chains(host).into_iter().map(of_chain).collect()
    }
}

fn links(found: Vec<(HostName, Wait)>) -> Vec<Link> {
    let link = |(host, wait): (HostName, Wait)| Link {
        host,
        text: wait.to_string(),
        service: wait.service,
        level: wait.level,
        need: wait.need,
        have: wait.have,
    };
    found.into_iter().map(link).collect()
}

impl HostView {
    /// Returns what is known about a host; `None` if it is not a member of the fleet. `retry` is the revision
    /// of an operator's request that it tries again.
    pub fn new(
        host: &HostName,
        fleet: &Fleet,
        waits: Vec<HostWaits>,
        rollout: HostRollout,
        retry: Option<i64>,
        revision: i64,
    ) -> Option<Self> {
        let facts = fleet.hosts().get(host)?;
        let verdict = fleet.verdict(host)?;
        let report = facts.readable_report();
        let planned = report.iter().flat_map(|report| &report.plan.actions);
        let statuses = facts.statuses.iter();
        let roster = facts.roster.clone().unwrap_or_default();
        let claim = facts.live.as_ref().and_then(|claim| claim.as_ref().ok());
        Some(Self {
            host: host.clone(),
            verdict: verdict.kind(),
            reason: Some(verdict.message()).filter(|reason| !reason.is_empty()),
            hint: Some(verdict.hint()).filter(|hint| !hint.is_empty()),
            role: roster.role,
            group: roster.group,
            labels: roster.labels,
            addresses: claim.map(|claim| claim.addresses.clone()).unwrap_or_default(),
            desired: DesiredVersion::of(fleet.target()),
            decided_on: report.and_then(|report| report.target.clone()),
            installed: report.and_then(|report| report.installed.clone()),
            listed_under: facts.listed.clone(),
            live: facts.live.is_some(),
            agent_version: facts.agent_version().map(str::to_owned),
            unreadable_claim: unreadable_claim(facts),
            phase: report.map(|report| report.phase),
            own_verdict: report.map(|report| OwnVerdict::from(&report.verdict)),
            activity: report.and_then(activity),
            next_attempt_at: report.and_then(|report| report.next_attempt_at),
            running_step: report.and_then(|report| report.running_step.as_ref()).map(RunningStepView::from),
            next: planned
                .map(|planned| PlannedAction {
                    action: planned.action.to_string(),
                    reason: planned.because.to_string(),
                })
                .collect(),
            results: statuses
                .map(|((kind, state), record)| ResultView::new(kind, *state, record.as_deref()))
                .collect(),
            reported_at: report.map(|report| report.at),
            machine: report.and_then(|report| MachineView::of(&report.facts)),
            retry_asked_at_revision: retry,
            unpublished: report
                .iter()
                .flat_map(|report| &report.unpublished)
                .map(Unpublished::from)
                .collect(),
            problems: Problem::of(facts),
            maintenance: fleet
                .maintenance(host)
                .map(|found| MaintenanceView::of(host, found))
                .unwrap_or_default(),
            waits,
            rollout,
            bundle: report.and_then(|report| report.bundle.as_ref()).map(|link| link.url.clone()),
            log: report.map(|report| report.log.iter().map(str::to_owned).collect()).unwrap_or_default(),
            revision,
        })
    }

    /// Returns the labels in words, as `rack=b2`.
    pub fn labels_text(&self) -> String {
        let labels: Vec<String> = self.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        labels.join(", ")
    }

    /// Says whether its agent runs, and which version.
    pub fn agent_text(&self) -> String {
        match (self.live, &self.unreadable_claim, &self.agent_version) {
            (false, ..) => "none".to_owned(),
            (true, Some(error), _) => format!("live, but its claim cannot be read: {error}"),
            (true, None, Some(version)) => format!("live, version {version}"),
            (true, None, None) => "live".into(),
        }
    }

    /// Returns the text for people at this time.
    pub fn text(&self, now: EpochSeconds) -> Text {
        let mut text = Text::default();
        let time = |at: Option<EpochSeconds>| at.map(|at| with_distance(at, now)).unwrap_or_default();
        let mut add = |name: &str, value: &str| {
            if !value.is_empty() {
                text.line(&format!("{:<14}{value}", format!("{name}:")));
            }
        };
        add("host", self.host.as_str());
        add("verdict", self.verdict.as_str());
        add("reason", self.reason.as_deref().unwrap_or_default());
        add("hint", self.hint.unwrap_or_default());
        add("held back by", self.rollout.held_back_by.as_deref().unwrap_or_default());
        let held_until = self.rollout.held_until.filter(|ends| self.next_attempt_at != Some(*ends));
        add("held until", &time(held_until));
        self.rollout.held_by.iter().for_each(|claim| add("held by", &claim.to_string()));
        let claim = |HeldClaimView { limit, number }: &HeldClaimView| format!("{limit} number {number}");
        add("claims", &self.rollout.claims.iter().map(claim).collect::<Vec<_>>().join(", "));
        for HostWaits { chain, root, host_count } in &self.waits {
            chain.iter().for_each(|link| add("chain", &format!("{} waits for {}", link.host, link.text)));
            add("root", &root.to_string());
            if *host_count > 1 {
                add("hosts", &format!("{host_count} wait because of it"));
            }
        }
        add("desired", &self.desired.as_ref().map_or("none".into(), DesiredVersion::to_string));
        let decided = self.decided_on.as_ref();
        let decided = decided.map(|on| format!("{} (revision {})", on.version, on.revision));
        add("decided on", &decided.unwrap_or_default());
        add("installed", self.installed.as_ref().map_or("", |version| version.as_str()));
        let listed: Vec<&str> = self.listed_under.iter().map(Version::as_str).collect();
        add("listed under", if listed.is_empty() { "nothing".into() } else { listed.join(", ") }.as_str());
        add("agent", &self.agent_text());
        add("addresses", &self.addresses.join(", "));
        add("role", self.role.as_ref().map_or("", |role| role.as_str()));
        add("group", self.group.as_ref().map_or("", |group| group.as_str()));
        add("labels", &self.labels_text());
        add("phase", &self.phase.map(|phase| phase.to_string()).unwrap_or_default());
        let own =
            self.own_verdict.as_ref().filter(|own| own.verdict != self.verdict || own.reason != self.reason);
        let own = own.map(|own| format!("{} {}", own.verdict, own.reason.as_deref().unwrap_or_default()));
        add("own verdict", own.unwrap_or_default().trim_end());
        add("activity", self.activity.as_deref().unwrap_or_default());
        let step = self.running_step.as_ref().map(|step| step.text(now));
        add("running step", &step.unwrap_or_default());
        add("next attempt", &time(self.next_attempt_at));
        add("machine", &self.machine.as_ref().map(MachineView::to_string).unwrap_or_default());
        for Unpublished { service, reason } in &self.unpublished {
            add("unpublished", &format!("{service}: {reason}"));
        }
        for Problem { kind, reason } in &self.problems {
            add("problem", &format!("{kind}: {reason}"));
        }
        self.maintenance.iter().for_each(|found| add("out of use", &found.line()));
        add("reported at", &time(self.reported_at));
        for actions in self.next.chunk_by(|one, other| one.reason == other.reason) {
            let names: Vec<&str> = actions.iter().map(|planned| planned.action.as_str()).collect();
            add("next", &format!("{}, because {}", names.join(", then "), actions[0].reason));
        }
        for ResultView { kind, state, version, at, .. } in &self.results {
            let version = version.as_ref().map(|version| format!(" of {version}")).unwrap_or_default();
            let at = at.as_ref().map(|at| format!(" at {at}")).unwrap_or_default();
            add("result", &format!("{kind} {state}{version}{at}"));
        }
        add("bundle", self.bundle.as_deref().unwrap_or_default());
        let before = self.log.len().saturating_sub(LOG_LINES);
        self.log[before..].iter().for_each(|line| add("log", line));
        text
    }
}

/// Returns what a host is doing. A validation that ran while the host had nothing else to do is no activity: the report
/// stays as it is when the validation has ended.
fn activity(report: &Report) -> Option<String> {
    let is_routine = matches!(report.plan.because, Reason::StepRunning { .. })
        && matches!(report.phase, Phase::Idle | Phase::Start);
    (!is_routine).then(|| report.plan.because.to_string())
}

/// Number of log lines that the text shows.
const LOG_LINES: usize = 3;

fn unreadable_claim(facts: &HostFacts) -> Option<String> {
    facts.live.as_ref()?.as_ref().err().cloned()
}
