//! `orchestrate-agent run-step DIRECTORY`: runs one step and writes how it ended. The runner has
//! its own session, its own control group where that is allowed, and is a subreaper. It holds the
//! lock of the run as long as it lives, and writes the result by fsync and rename.

use super::output::{FullOutput, Tail, drain, write_repeatedly};
use super::processes::{ControlGroup, RunnerTrace, of_this_runner, signal};
use super::record::{OUTPUT, RESULT, RUNNER, RunResult, Specification};
use crate::clock::boot_millis;
use crate::failpoint;
use crate::files::Directory;
use planning::host::Leftovers;
use rustix::process::{Signal, WaitOptions, wait};
use schema::steps::StepEnd;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// Time that processes have to disappear after SIGKILL.
const AFTER_KILL: Duration = Duration::from_secs(5);

/// Runs the step whose order is in this directory, and writes its result there.
///
/// # Errors
/// Returns an error if the directory cannot be used or the result cannot be written.
pub fn run(path: &Path) -> io::Result<()> {
    let directory = Directory::open(path)?;
    let specification = Specification::read(&directory)?
        .ok_or_else(|| io::Error::other(format!("{} holds no run", path.display())))?;
    let result = match isolate(&specification, &directory) {
        Ok(group) => {
            failpoint::reach("runner-before-step");
            execute(&specification, group.as_ref(), &directory)
        }
        Err(error) => RunResult::without_output(StepEnd::NotStarted { why: format!("its runner: {error}") }),
    };
    failpoint::reach("runner-after-step");
    directory.replace(RESULT, &serde_json::to_vec(&result)?, 0o600)?;
    failpoint::reach("runner-after-result");
    // The result has the output too.
    let _ = directory.remove(OUTPUT);
    Ok(())
}

/// Gives this process its own session and control group, makes it the parent of orphans
/// (subreaper), and writes the trace by which the processes of the run can be found later.
fn isolate(specification: &Specification, directory: &Directory) -> io::Result<Option<ControlGroup>> {
    // An agent that finds this run interrupted kills its session, so the run must have its own.
    rustix::process::setsid()?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let group = ControlGroup::enter(&format!("orchestrate-step-{}", specification.run_id));
    let trace = RunnerTrace::for_current_process(&specification.run_id, group.as_ref())?;
    // After a power cut there are no processes to find.
    directory.replace_soon(RUNNER, &serde_json::to_vec(&trace)?, 0o600)?;
    Ok(group)
}

fn execute(specification: &Specification, group: Option<&ControlGroup>, directory: &Directory) -> RunResult {
    let not_started = |why: String| RunResult::without_output(StepEnd::NotStarted { why });
    let Some((program, arguments)) = specification.command.split_first() else {
        return not_started("the command is empty".into());
    };
    let (reader, writer) = match io::pipe() {
        Ok(pipe) => pipe,
        Err(error) => return not_started(format!("no pipe for its output: {error}")),
    };
    let errors = match writer.try_clone() {
        Ok(errors) => errors,
        Err(error) => return not_started(format!("no pipe for its output: {error}")),
    };
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(&specification.environment).current_dir("/");
    command.stdin(Stdio::null()).stdout(writer).stderr(errors).process_group(0);
    let child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return not_started(format!("{program}: {error}")),
    };
    // The command holds the write ends of the pipe; without this the pipe would never end.
    drop(command);
    let output = Arc::new(Mutex::new(Tail::default()));
    let (drained, drain_end) = mpsc::channel();
    let tail = Arc::clone(&output);
    let whole = FullOutput::create(directory);
    std::thread::spawn(move || drain(reader, whole, &tail, &drained));
    if let Ok(directory) = directory.try_clone() {
        let tail = Arc::clone(&output);
        std::thread::spawn(move || write_repeatedly(&directory, &tail));
    }

    let pid = child.id().cast_signed();
    let (sender, ends) = mpsc::channel();
    std::thread::spawn(move || reap(pid, &sender));
    let limit = Duration::from_millis(specification.timeout_millis);
    let grace = Duration::from_millis(specification.grace_millis);
    let end = match wait_until(&ends, limit) {
        Some(end) => end,
        None => {
            end_all(group, grace);
            StepEnd::TimedOut { limit_millis: specification.timeout_millis }
        }
    };
    // The end of the process counts, not the end of its output: a child may keep the output open.
    let mut leftovers = 0;
    if specification.leftovers == Leftovers::Kill {
        leftovers = of_this_runner(group).len();
        if leftovers > 0 {
            end_all(group, grace.min(AFTER_KILL));
        }
    }
    let _ = drain_end.recv_timeout(Duration::from_millis(500));
    let output = output.lock().map(|tail| tail.output()).unwrap_or_default();
    RunResult { end, leftovers, output }
}

/// Waits for the end of the step; `None` after the limit. Time of suspension counts too.
fn wait_until(ends: &mpsc::Receiver<StepEnd>, limit: Duration) -> Option<StepEnd> {
    let deadline = boot_millis().plus(limit);
    loop {
        let left = deadline.since(boot_millis());
        if left.is_zero() {
            return None;
        }
        match ends.recv_timeout(left.min(Duration::from_secs(1))) {
            Ok(end) => return Some(end),
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => return Some(StepEnd::Interrupted),
        }
    }
}

/// Reaps every child. Orphans of the step are children too, because this process is a subreaper.
fn reap(step: i32, sender: &mpsc::Sender<StepEnd>) {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid.as_raw_nonzero().get() == step => {
                let end = match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => StepEnd::Exited { code },
                    (None, Some(number)) => StepEnd::Signalled { signal: signal_name(number) },
                    (None, None) => continue,
                };
                // After a timeout nobody may receive this; reaping goes on.
                let _ = sender.send(end);
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            // There is no child now. A later orphan is reaped by init when this process ends.
            Err(_) => return,
        }
    }
}

fn signal_name(number: i32) -> String {
    const NAMES: [(Signal, &str); 17] = [
        (Signal::HUP, "SIGHUP"),
        (Signal::INT, "SIGINT"),
        (Signal::QUIT, "SIGQUIT"),
        (Signal::ILL, "SIGILL"),
        (Signal::TRAP, "SIGTRAP"),
        (Signal::ABORT, "SIGABRT"),
        (Signal::BUS, "SIGBUS"),
        (Signal::FPE, "SIGFPE"),
        (Signal::KILL, "SIGKILL"),
        (Signal::USR1, "SIGUSR1"),
        (Signal::SEGV, "SIGSEGV"),
        (Signal::USR2, "SIGUSR2"),
        (Signal::PIPE, "SIGPIPE"),
        (Signal::ALARM, "SIGALRM"),
        (Signal::TERM, "SIGTERM"),
        (Signal::XCPU, "SIGXCPU"),
        (Signal::XFSZ, "SIGXFSZ"),
    ];
    let name = NAMES.iter().find(|(signal, _)| signal.as_raw() == number);
    name.map_or_else(|| format!("signal {number}"), |(_, name)| (*name).to_owned())
}

fn end_all(group: Option<&ControlGroup>, grace: Duration) {
    signal(&of_this_runner(group), Signal::TERM);
    if gone_within(group, grace) {
        return;
    }
    let deadline = boot_millis().plus(AFTER_KILL);
    // This repeats because new processes may be forked between the check and the signal.
    while boot_millis() < deadline {
        let left = of_this_runner(group);
        if left.is_empty() {
            return;
        }
        signal(&left, Signal::KILL);
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn gone_within(group: Option<&ControlGroup>, limit: Duration) -> bool {
    let deadline = boot_millis().plus(limit);
    loop {
        if of_this_runner(group).is_empty() {
            return true;
        }
        if boot_millis() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
