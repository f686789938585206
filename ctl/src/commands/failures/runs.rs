//! The runs that the agent of this machine keeps.

use crate::agent::{self, Run, RunOutput, Runs};
use crate::exit::{Exit, Failure};
use crate::output::{self, Output};
use crate::settings::Settings;
use clap::Args;
use std::time::Duration;

/// Time between two looks at the output of a step that runs.
const FOLLOW_EVERY: Duration = Duration::from_millis(500);

/// Which of the runs on this machine.
#[derive(Debug, Args)]
#[group(conflicts_with = "from")]
pub(crate) struct RunOptions {
    /// On this machine: list the runs
    #[arg(long, conflicts_with = "follow")]
    list: bool,
    /// On this machine: the last run of this step
    #[arg(long, value_name = "NAME")]
    step: Option<String>,
    /// On this machine: the run with this id
    #[arg(long, value_name = "ID")]
    run: Option<String>,
    /// On this machine: the last run in this attempt, from 1
    #[arg(long, value_name = "N")]
    attempt: Option<u32>,
    /// On this machine: print what the step prints until it ends
    #[arg(short, long)]
    follow: bool,
}

impl RunOptions {
    pub(super) fn is_empty(&self) -> bool {
        !self.list && !self.follow && self.step.is_none() && self.run.is_none() && self.attempt.is_none()
    }

    fn includes(&self, run: &Run) -> bool {
        self.step.as_ref().is_none_or(|step| run.step == *step)
            && self.run.as_ref().is_none_or(|id| run.run == *id)
            && self.attempt.is_none_or(|attempt| run.attempt == attempt)
    }
}

/// Prints what the agent of this machine keeps of its steps.
pub(super) fn print_runs(
    options: &RunOptions,
    whole: bool,
    settings: &Settings,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let socket = &settings.agent_socket;
    let failed = |error: std::io::Error| Failure::cannot_tell(format!("{}: {error}", socket.display()));
    let no_agent = || Failure::cannot_tell(format!("no agent listens on {}", socket.display()));
    let mut runs = agent::runs(socket).map_err(failed)?.ok_or_else(no_agent)?;
    runs.retain(|run| options.includes(run));
    if options.list {
        let answer = Runs { runs };
        output.sorted_answer(&answer, |o| {
            let header = ["BEGAN", "PHASE", "STEP", "VERSION", "ATTEMPT", "RUN", "STATE"];
            o.table(header, answer.runs.iter().map(row));
        });
        return Ok(Exit::Yes);
    }
    let Some(run) = runs.into_iter().next() else {
        return Err(Failure::no(
            "the agent keeps no such run; `orchestrate logs --this-host --list` lists them",
        ));
    };
    let mut from = 0;
    loop {
        let shown = if whole {
            agent::whole_output(socket, &run.run)
        } else {
            agent::run_output(socket, &run.run, from)
        };
        let shown = shown.map_err(failed)?.ok_or_else(no_agent)?;
        print(&shown, from, output)?;
        let is_over = shown.run.state != "running";
        if is_over || !options.follow {
            if shown.first_line == 0 && shown.log.is_empty() {
                output::note(if is_over { "it printed nothing" } else { "it has printed nothing so far" });
            }
            if let Some(end) = shown.run.end
                && options.follow
            {
                output::note(&format!("the step {end}"));
            }
            return Ok(Exit::Yes);
        }
        from = shown.first_line + shown.log.len() as u64;
        std::mem::replace(output, output.empty()).flush()?;
        std::thread::sleep(FOLLOW_EVERY);
    }
}

fn row(run: &Run) -> [String; 7] {
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    [
        or_none(&run.began_at),
        run.phase.clone(),
        run.step.clone(),
        or_none(&run.version),
        run.attempt.to_string(),
        run.run.clone(),
        run.end.clone().unwrap_or_else(|| run.state.clone()),
    ]
}

/// Prints a part of the output of a run. With the first part, it says which run it is.
fn print(shown: &RunOutput, from: u64, output: &mut Output) -> Result<(), Failure> {
    let Run { run: id, phase, step, version, attempt, began_at, state, .. } = &shown.run;
    if from == 0 {
        let version = version.as_ref().map(|version| format!(" of {version}")).unwrap_or_default();
        let attempt = if *attempt == 0 { String::new() } else { format!(", attempt {attempt}") };
        let began_at = began_at.as_deref().unwrap_or_default();
        let end = shown.run.end.as_ref().map_or(state, |end| end);
        output::note(&format!("{phase} step {step}{version}{attempt}, run {id} of {began_at}: {end}"));
    }
    if shown.first_line > from {
        output::note(&format!(
            "{} lines before; with --whole they are printed, as far as they are kept",
            shown.first_line - from
        ));
    }
    if from == 0 || !shown.log.is_empty() || state != "running" {
        output.answer(shown, |o| shown.log.iter().for_each(|line| o.line(line)));
    }
    Ok(())
}
