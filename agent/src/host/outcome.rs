//! What the loop logs, counts and shows of a decision and of a step that ended.

use super::Reconciler;
use super::context::Context;
use crate::clock;
use crate::status::Status;
use crate::step::RunResult;
use etcd_session::jitter;
use planning::host::{Decision, Fact, HostState, RunningStep, StepReport};
use schema::codec::log_tail;
use schema::plan::Conclusion;
use std::sync::Arc;
use std::time::Duration;

impl Reconciler {
    /// Counts what the host concluded.
    pub(super) fn note_conclusion(&self, conclusion: &Conclusion, state: &HostState) {
        self.metrics.note_conclusion(conclusion);
        if let (Conclusion::CycleEnded { .. }, Some(validation)) = (conclusion, &state.validation) {
            self.metrics.note_validation(validation.result);
        }
    }

    /// Logs the end of a step, counts it, and records it in the host's state.
    pub(super) fn end_step(&self, context: &mut Context, running: RunningStep, result: RunResult) {
        let RunningStep { phase, step, .. } = running;
        tracing::info!(%phase, %step, end = %result.end, leftovers = result.leftovers, "step ended");
        let (meaning, now) = (context.policy.steps.meaning(phase, &step, &result.end), clock::now());
        let took = context.state.running_since.map_or(Duration::ZERO, |since| now.boot.since(since));
        self.metrics.note_step(phase, (&result.end, meaning), took);
        let log = log_tail(self.executor.redact(&result.output).lines());
        let report = StepReport { phase, step, end: result.end, log };
        context.state.record(Fact::StepEnded(report), &context.policy, now, jitter());
        context.unsaved = true;
    }

    /// Shows the state after a decision to other tasks, to the log and to the service manager.
    pub(super) fn publish_status(&self, context: &Context, decision: &Decision) {
        let before = self.status.borrow().clone();
        if before.decision.as_ref().map(|d| &d.verdict) != Some(&decision.verdict) {
            let verdict = decision.verdict.kind().as_str();
            tracing::info!(verdict, detail = decision.verdict.message(), "the verdict of this host");
            crate::systemd::status(&format!("{verdict} {}", decision.verdict.message()));
        }
        let state = &context.state;
        self.status.send_replace(Arc::new(Status {
            host: Some(state.host.clone()),
            decision: Some(decision.clone()),
            target: context.target.clone().into(),
            installed: state.installed.clone(),
            listed: state.listing().cloned(),
            running: state.running.clone(),
            store_trust: context.store_trust.clone(),
            presence: context.presence.clone(),
            snapshot: context.snapshot.clone(),
            write_trouble: context.write_error.clone(),
            steps_run: self.executor.steps_run,
            passes: context.passes,
            validation: context.directory.clone(),
            validation_rule: state.validation_rule,
            certificates: context.facts.certificates.clone(),
        }));
    }
}
