//! `logs`: the output of steps. Of any host, the last lines of the step that failed or was deferred, from its report, or
//! the whole output of the step that failed, from a bundle; on the host itself, whatever its agent keeps.

use super::fetched_bundle::{BundleObject, FetchFrom, ReportedFailure};
use super::runs::{RunOptions, print_runs};
use crate::agent::{RunOutput, Runs};
use crate::commands::answers;
use crate::commands::context::{Store, host_of};
use crate::commands::verb::{self, Answer, Group, Past, Spec, Verb};
use crate::completion;
use crate::exit::{Exit, Failure};
use crate::output::{self, Output};
use crate::settings::Settings;
use anyhow::{Context as _, anyhow};
use archive::bundle::{About, FailedRun, RunName};
use clap::Args;
use fleet::UploadedBundle;
use fleet::text::clean;
use planning::calendar::rfc3339;
use schema::names::{HostName, StepName};
use schema::records::{LongStep, Report};
use schema::steps::StepPhase;
use schema::verdict::HostVerdict;
use schema::why_not::WhyNot;
use schemars::JsonSchema;
use serde::Serialize;

/// Print the output of a step
#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// Host whose last lines are printed, from its report; with --from or --whole, the whole output
    #[arg(add = completion::hosts(), conflicts_with = "this_host")]
    host: Option<String>,
    /// The runs that the agent of this machine keeps: the one that is running, or the last one
    #[arg(long, conflicts_with = "from")]
    this_host: bool,
    /// Print the whole output; for HOST, from its failure bundle
    #[arg(long, conflicts_with_all = ["follow", "list"])]
    whole: bool,
    #[command(flatten)]
    from: FetchFrom,
    #[command(flatten)]
    runs: RunOptions,
}

impl Logs {
    /// True if it is about what the agent of a machine keeps, which is not in the store.
    pub(crate) fn concerns_runs(&self) -> bool {
        self.this_host || !self.runs.is_empty()
    }

    /// True if the agent of this machine is asked, and not the store.
    pub(crate) fn is_local(&self, settings: &Settings) -> bool {
        let is_own = self.host.as_ref().is_some_and(|host| host.eq_ignore_ascii_case(&settings.host_name));
        self.this_host || is_own && !self.runs.is_empty()
    }
}

/// The last lines of the report of a host, or with `--from` the whole output from a bundle.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ReportedLog<'a> {
    host: &'a HostName,
    phase: Option<StepPhase>,
    step: Option<&'a StepName>,
    log: Vec<&'a str>,
    reported_at: Option<String>,
    bundle: Option<&'a str>,
    bundle_host: Option<&'a HostName>,
}

impl Verb for Logs {
    const SPEC: Spec = Spec {
        name: "logs",
        group: Group::Fleet,
        about: verb::About::Operators,
        past: Past::Answers,
        exits: &[Exit::No],
        answer: Answer::Json(|generator| {
            let bundle_or_report = answers::of::<ReportedLog<'_>>(generator);
            answers::either([
                bundle_or_report,
                answers::of::<Runs>(generator),
                answers::of::<RunOutput>(generator),
            ])
        }),
        examples: &[
            ("orchestrate logs web-7", "the last lines of the step that failed"),
            ("orchestrate logs web-7 --from file:///srv/bundles", "all that it printed, from a bundle"),
            ("orchestrate logs --this-host --follow", "on the host: what the step prints that runs"),
            ("orchestrate logs --this-host --step install --attempt 1", "on the host: an earlier run"),
            ("orchestrate logs --this-host --step install --whole", "on the host: all that the step printed"),
        ],
    };

    fn past(&self) -> Past {
        if self.concerns_runs() {
            Past::NotRecorded("the runs on this machine are not recorded")
        } else {
            Self::SPEC.past
        }
    }

    fn answer_locally(&self, settings: &Settings, output: &mut Output) -> Option<Result<Exit, Failure>> {
        if self.is_local(settings) {
            Some(print_runs(&self.runs, self.whole, settings, output))
        } else {
            None
        }
    }

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let Some(host) = &self.host else {
            return Err(Failure::usage(anyhow!(
                "name a host, or use --this-host for the runs on this machine"
            )));
        };
        let host = &host_of(host)?;
        if !self.runs.is_empty() {
            return Err(Failure::usage(anyhow!(
                "--list, --step, --run, --attempt and --follow show what only the host itself keeps; use them on {host}"
            )));
        }
        let failure = ReportedFailure::read(host, store).await?;
        let report = &failure.report;
        if self.whole || self.from.is_given() {
            let bundle = failure.required_bundle(store).await?;
            return whole(&failure, &self.from.find(bundle, store.settings)?, output);
        }
        if report.log.is_empty()
            && failure.has_failed()
            && store.settings.bundles.is_some()
            && let Some(bundle) = failure.bundle(store).await?
        {
            output::note(&no_log(host, report));
            return whole(&failure, &self.from.find(bundle, store.settings)?, output);
        }
        let (phase, step) = report.log_of.as_ref().map(|of| (of.phase, &of.step)).unzip();
        // Whether another host has the bundle of this cause is not asked: that needs the reports of all hosts.
        let bundle = failure.own_bundle();
        let answer = ReportedLog {
            host,
            phase,
            step,
            log: report.log.iter().collect(),
            reported_at: rfc3339(report.at),
            bundle: bundle.as_ref().map(|bundle| bundle.link.url.as_str()),
            bundle_host: bundle.as_ref().map(|bundle| &bundle.host),
        };
        if report.log.is_empty() {
            output::note(&no_log(host, report));
        } else if let (Some(phase), Some(step)) = (phase, step) {
            let reported_at = rfc3339(report.at).unwrap_or_default();
            output::note(&format!("{phase} step {step}, reported at {reported_at}:"));
        }
        if let Some(UploadedBundle { link, .. }) = &bundle {
            output::note(&format!(
                "the whole output is in the bundle {}; `orchestrate logs {host} --whole` prints it, if --from or \
             ORCHESTRATE_BUNDLES names the object store of the fleet",
                clean(&link.url)
            ));
        }
        output.sorted_answer(&answer, |o| report.log.iter().for_each(|line| o.line(line)));
        Ok(Exit::Yes)
    }
}

/// Prints the whole output of the step that failed, from a bundle.
fn whole(failure: &ReportedFailure, object: &BundleObject, output: &mut Output) -> Result<Exit, Failure> {
    // It is removed with everything in it when this ends.
    let directory = tempfile::tempdir().context("a temporary directory")?;
    let unpacked = directory.path().join("bundle");
    let about = object.unpack_into(&unpacked)?;
    let UploadedBundle { host: by, link } = &object.bundle;
    let url = clean(&link.url);
    let run = FailedRun::read(&unpacked).with_context(|| url.clone().into_owned())?;
    let no_output = |why: &str| {
        let rest = format!("`orchestrate bundle {}` fetches what it has", failure.host);
        Failure::no(format!("the bundle {url} of {by} has no output of a step: {why}; {rest}"))
    };
    let Some(run) = run else { return Err(no_output("no step ran")) };
    let log = run.output.as_ref().map_err(|why| no_output(why))?;
    output::note(&describe(&run, &about));
    let cause = if *by == failure.host { "" } else { ", which failed for the same cause" };
    output::note(&format!("from the bundle {url} of {by}{cause}:"));
    if log.is_empty() {
        output::note("it printed nothing");
    }
    if run.is_cut {
        output::note("the end of its output may be missing in the bundle");
    }
    let answer = ReportedLog {
        host: &failure.host,
        phase: Some(run.name.phase),
        step: Some(&run.name.step),
        log: log.lines().collect(),
        reported_at: rfc3339(failure.report.at),
        bundle: Some(&link.url),
        bundle_host: Some(by),
    };
    output.sorted_answer(&answer, |o| log.lines().for_each(|line| o.line(line)));
    Ok(Exit::Yes)
}

/// Says which run of a bundle is shown, and how it ended.
fn describe(run: &FailedRun, about: &About) -> String {
    let FailedRun { name: RunName { phase, step, .. }, end, .. } = run;
    let attempt = if about.attempt == 0 { String::new() } else { format!(", attempt {}", about.attempt) };
    let end = if end.is_empty() { String::new() } else { format!(": {}", clean(end)) };
    format!("{phase} step {step} of {}{attempt}{end}", about.version)
}

/// Returns the reason why a report has no log.
fn no_log(host: &HostName, report: &Report) -> String {
    if let Some(LongStep { phase, step, .. }) = &report.running_step {
        return format!(
            "{host} runs {phase} step {step}; on {host}, `orchestrate logs --this-host --follow` shows its output"
        );
    }
    let says = report.verdict.message();
    match &report.verdict {
        HostVerdict::Failed(_) => format!("{host} failed: {says}; it printed nothing"),
        HostVerdict::Held(WhyNot::Step { .. }) => format!("{host} {says}; it printed nothing"),
        _ => format!("the last report of {host} has no log, because no step failed or was deferred"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::names::{StepName, Version};
    use schema::steps::{StepEnd, StepPhase};
    use schema::time::{EpochSeconds, Span};
    use schema::verdict::{Failure, HostFailure};
    use serde_json::json;
    use std::time::Duration;

    #[test]
    fn a_run_of_a_bundle_is_described_as_far_as_it_is_known() {
        let about = |attempt: u32| -> About {
            serde_json::from_value(json!({
                "format": 1, "program": "0.1.0", "host": "h", "version": "v1",
                "rollout": { "epoch": 1, "revision": 5 }, "attempt": attempt, "failed_at": 0,
                "cause": { "fingerprint": "f1-0123456789ab", "line": "" },
            }))
            .unwrap()
        };
        let name = RunName { number: 1, phase: StepPhase::Apply, step: StepName::new("pkg").unwrap() };
        let run = |end: &str| FailedRun {
            name: name.clone(),
            end: end.into(),
            output: Ok(String::new()),
            is_cut: false,
        };
        let known = describe(&run("exited with code 3"), &about(2));
        assert_eq!(known, "apply step pkg of v1, attempt 2: exited with code 3");
        assert_eq!(describe(&run(""), &about(0)), "apply step pkg of v1");
    }

    fn report(verdict: HostVerdict, running_step: Option<LongStep>) -> Report {
        let write_id = schema::names::Token::new("w").unwrap();
        Report { verdict, running_step, ..Report::idle(EpochSeconds(0), write_id) }
    }

    #[test]
    fn a_log_that_is_empty_is_explained_by_what_failed_or_holds() {
        let host = HostName::new("h").unwrap();
        let end = StepEnd::NotStarted { why: "no such file".into() };
        let failure = Failure::of(StepPhase::Apply, StepName::new("pkg").unwrap(), end);
        let failed =
            HostVerdict::Failed(HostFailure { version: Version::new("v1").ok(), failure, suspect: false });
        let on = WhyNot::Step { phase: StepPhase::Validate, step: StepName::new("look").unwrap() };
        for (verdict, expected) in [
            (HostVerdict::Ok, "the last report of h has no log, because no step failed or was deferred"),
            (
                failed,
                "h failed: apply step pkg could not be started: no such file (version v1); it printed nothing",
            ),
            (
                HostVerdict::Held(on),
                "h waits for validate step look, which said \"not yet\"; it printed nothing",
            ),
        ] {
            assert_eq!(no_log(&host, &report(verdict, None)), expected);
        }
        let (phase, step) = (StepPhase::Apply, StepName::new("pkg").unwrap());
        let runs = LongStep { phase, step, since: EpochSeconds(0), timeout: Span(Duration::from_secs(9)) };
        assert_eq!(
            no_log(&host, &report(HostVerdict::Ok, Some(runs))),
            "h runs apply step pkg; on h, `orchestrate logs --this-host --follow` shows its output"
        );
    }
}
