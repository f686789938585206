//! What the loop logs, counts and shows of a decision and of a step that ended.

use super::Reconciler;
use super::context::Context;
use crate::clock;
use crate::identity;
use crate::metrics::EndedStep;
use crate::status::Status;
use crate::step::RunResult;
use catalog::checks::checks_of_result;
use etcd_session::jitter;
use planning::host::{Decision, Fact, HostState, RunningStep, StepMeaning, StepReport, Target};
use schema::codec::log_tail;
use schema::plan::Conclusion;
use schema::records::Driver;
use schema::steps::StepEnd;
use schema::time::format_duration;
use schema::verdict::VerdictKind;
use std::sync::Arc;
use std::time::Duration;

/// Returns the words in the output of steps that differ from host to host.
fn own_words(context: &Context) -> archive::OwnWords {
    let kernel = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let names = [context.state.host.to_string(), kernel];
    let short = names.clone().map(|name| name.split('.').next().unwrap_or_default().to_owned());
    let names = names.into_iter().chain(short).chain(identity::addresses());
    let target = match &context.target {
        Target::Known(instruction) => Some(&instruction.version),
        _ => None,
    };
    let versions = [target, context.state.in_progress_version(), context.state.versions.installed.as_ref()];
    archive::OwnWords::new(names, versions.into_iter().flatten().map(ToString::to_string))
}

impl Reconciler {
    /// Counts what the host concluded.
    pub(super) fn note_conclusion(&self, conclusion: &Conclusion, state: &HostState) {
        self.metrics.note_conclusion(conclusion);
        if let (Conclusion::CycleEnded { .. }, Some(validation)) = (conclusion, &state.cycles.validation) {
            self.metrics.note_validation(validation.result);
            self.pass_results(state);
        }
    }

    /// Passes the results of the host to the TTL checks that stand for them. Where scripts apply versions, they report
    /// to these checks; where the agent does, nothing else would.
    fn pass_results(&self, state: &HostState) {
        if self.settings.settings.borrow().policy.driver != Driver::Agent {
            return;
        }
        for (kind, (result, record)) in &state.reporting.statuses {
            for (check, status) in checks_of_result(kind, *result) {
                // Most hosts define no such check.
                let _ = self.catalog.registry.report_result(&check, status, &record.reason);
            }
        }
    }

    /// Logs the end of a step, counts it, and records it in the host's state.
    pub(super) fn end_step(&self, context: &mut Context, running: RunningStep, result: RunResult) {
        let RunningStep { phase, step, .. } = running;
        let secrets = self.executor.secrets();
        let end = match result.end {
            StepEnd::NotStarted { why } => StepEnd::NotStarted { why: secrets.redact(&why) },
            end => end,
        };
        let (meaning, now) = (context.policy.steps.meaning(phase, &step, &end), clock::now());
        let took = context.state.steps.running_since().map_or(Duration::ZERO, |since| now.boot.since(since));
        self.metrics.note_step(&EndedStep { phase, step: &step, end: &end, meaning, took, at: now.wall });
        let output = secrets.redact_cut(&result.output.text, result.output.cut(true));
        let log = log_tail(output.lines());
        let cause = (meaning == StepMeaning::Failed)
            .then(|| archive::cause_of(phase, &step, &end, &output, &own_words(context)));
        let leftovers = result.leftovers;
        let took_text = format_duration(took);
        let took = took_text.as_str();
        match meaning {
            StepMeaning::Again => {
                tracing::info!(%phase, %step, %end, took, leftovers, "step interrupted; it runs again");
            }
            StepMeaning::Failed => {
                let last = log.iter().rfind(|line| !line.trim().is_empty()).map_or("", String::as_str);
                tracing::warn!(%phase, %step, %end, took, leftovers, last, "step failed");
            }
            StepMeaning::Done if context.is_routine(phase) => {
                tracing::debug!(%phase, %step, took, leftovers, "step ended");
            }
            StepMeaning::Done | StepMeaning::NotYet => {
                tracing::info!(%phase, %step, %end, took, leftovers, "step ended");
            }
        }
        let report = StepReport { phase, step, end, log, cause };
        context.state.record(Fact::StepEnded(report), &context.policy, now, jitter());
        context.unsaved = true;
    }

    /// Shows the state after a decision to other tasks, to the log and to the service manager.
    pub(super) fn publish_status(&self, context: &Context, decision: &Decision) {
        let before = self.status.borrow().clone();
        let (verdict, detail) = (decision.verdict.kind().as_str(), decision.verdict.message());
        // Who holds a limit changes often, and the reason stays the same.
        let says_the_same = |before: &Decision| {
            before.verdict.kind() == decision.verdict.kind() && before.verdict.message() == detail
        };
        if !before.decision.as_ref().is_some_and(says_the_same) {
            match decision.verdict.kind() {
                VerdictKind::Failed | VerdictKind::Suspect | VerdictKind::Blocked | VerdictKind::Lost => {
                    tracing::warn!(verdict, detail, "the verdict of this host");
                }
                VerdictKind::Ok | VerdictKind::Running | VerdictKind::Waiting | VerdictKind::Frozen => {
                    tracing::info!(verdict, detail, "the verdict of this host");
                }
            }
            crate::systemd::status(&format!("{verdict} {detail}"));
        }
        let state = &context.state;
        self.status.send_replace(Arc::new(Status {
            host: Some(state.host.clone()),
            decision: Some(decision.clone()),
            target: context.target.clone().into(),
            installed: state.versions.installed.clone(),
            listed: state.listing().cloned(),
            cause: state.attempt.as_ref().and_then(|attempt| attempt.end()?.failure.cause.clone()),
            running: state.steps.running().cloned(),
            store_trust: context.store_trust.clone(),
            presence: context.presence.clone(),
            lease_end: Some(self.store.presence.lease_end()),
            snapshot: context.snapshot.clone(),
            write_trouble: context.write_error.clone(),
            steps_run: self.executor.steps_run,
            passes: context.passes,
            validation: context.directory.clone(),
            certificates: context.facts.certificates.clone(),
        }));
    }
}
