//! `with-claim`: runs a command while this host holds its claims, so that not more hosts are unavailable at
//! the same time than the rollout policy allows. The agent of the host takes the claims.

use crate::agent::{ClaimAck, claim_for_command};
use crate::commands::verb::{About, Answer, Group, LocalVerb, Past, Program, Spec};
use crate::exit::{Exit, Failure};
use crate::output::{self, Output};
use anyhow::{Context, anyhow};
use clap::Args;
use rustix::fs::{FlockOperation, flock};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process_group};
use schema::names::Token;
use schema::time::parse_duration;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

/// Time between two requests while the host waits for its claims.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Time between SIGTERM and SIGKILL for a command that runs too long.
const GRACE: Duration = Duration::from_secs(10);
/// Time between two looks whether processes of the command are left.
const GROUP_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Time for which the claims are given back again and again, if the agent does not answer.
const GIVE_BACK_WITHIN: Duration = Duration::from_secs(20);
/// Exit code for a command that ran too long, as that of timeout(1).
const TIMED_OUT: u8 = 124;
/// Exit codes of shells for a command that cannot be run, and for one that was not found.
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Run a command while this host counts against the limits
///
/// It waits until no limit is full and nothing is frozen, like a host that updates.
#[derive(Debug, Args)]
#[command(alias = "with_claim")]
pub(crate) struct WithClaim {
    /// Ends the command after this time, and then gives the claims back
    #[arg(long = "for", value_name = "DURATION")]
    lasts: Option<String>,
    /// Gives up after this time if the host has not got its claims [default: never]
    #[arg(long, value_name = "DURATION")]
    wait: Option<String>,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true)]
    command: Vec<OsString>,
}

impl LocalVerb for WithClaim {
    const SPEC: Spec = Spec {
        name: "with-claim",
        group: Group::ThisHost,
        about: About::Other,
        past: Past::DoesNotRead,
        exits: &[Exit::Refused, Exit::Own(TIMED_OUT), Exit::Own(CANNOT_RUN), Exit::Own(NOT_FOUND)],
        answer: Answer::NotJson,
        examples: &[(
            "orchestrate with-claim --wait 1h -- systemctl restart mysql",
            "restart when the limits allow it",
        )],
    };

    fn run(self, program: &Program<'_>, _: &mut Output) -> Result<Exit, Failure> {
        let settings = program.settings;
        let duration = |option: &'static str, text: &Option<String>| {
            let read = text.as_deref().map(parse_duration).transpose();
            read.map_err(|error| Failure::usage(anyhow!(error).context(option)))
        };
        let (lasts, wait) = (duration("--for", &self.lasts)?, duration("--wait", &self.wait)?);
        let run = etcd_session::random_token();
        let lock = take(&settings.agent_socket, &run, wait).inspect_err(|_| {
            // The answer is known; what is left of the request is removed later.
            let _ = claim_for_command(&settings.agent_socket, &run, false);
        })?;
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().context("runtime")?;
        let exit = runtime.block_on(execute(&self.command, &lock, lasts));
        // Daemons that the command started have inherited the lock.
        let _ = flock(&lock, FlockOperation::Unlock);
        give_back(&settings.agent_socket, &run);
        exit
    }
}

/// Waits until the host holds its claims. Returns the lock that says that the command runs.
fn take(socket: &Path, run: &Token, wait: Option<Duration>) -> Result<File, Failure> {
    let (begin, mut lock, mut noted) = (Instant::now(), None, String::new());
    loop {
        let shown = socket.display();
        let has_lock = lock.is_some();
        let why = match claim_for_command(socket, run, true) {
            Ok(ClaimAck::Done) => {
                let lock = lock.ok_or_else(|| Failure::cannot_tell("the agent did not say what to lock"))?;
                return Ok(lock);
            }
            Ok(ClaimAck::Lock(path)) => {
                lock = Some(locked(&path)?);
                if !has_lock {
                    continue;
                }
                format!("the lock {} was taken away", path.display())
            }
            Ok(ClaimAck::NotNow(why)) => why,
            // An agent has answered before; it may be restarted.
            Ok(ClaimAck::NoAgent) if has_lock => format!("no agent listens on {shown}"),
            Err(error) if has_lock => format!("the agent on {shown}: {error}"),
            Ok(ClaimAck::Never(why)) => return Err(Failure::refused(why)),
            Ok(ClaimAck::NoAgent) => {
                let how = "check `socket` in `[http]` of agent.toml, and ORCHESTRATE_SOCKET";
                return Err(Failure::cannot_tell(format!("no agent listens on {shown}; {how}")));
            }
            Err(error) => return Err(anyhow!(error).context(format!("the agent on {shown}")).into()),
        };
        if wait.is_some_and(|wait| begin.elapsed() >= wait) {
            return Err(Failure::refused(format!("the command did not run: {why}")));
        }
        if noted != why {
            output::note(&format!("waits: {why}"));
            noted = why;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Takes the lock of the command. The command inherits it: the agent keeps the claims as long as anybody
/// holds it.
fn locked(path: &Path) -> Result<File, Failure> {
    let shown = || format!("the lock {}", path.display());
    let file = File::open(path).with_context(shown)?;
    flock(&file, FlockOperation::LockExclusive).with_context(shown)?;
    fcntl_setfd(&file, FdFlags::empty()).with_context(shown)?;
    Ok(file)
}

/// Runs the command to its end. `_lock` is held until then.
async fn execute(command: &[OsString], _lock: &File, lasts: Option<Duration>) -> Result<Exit, Failure> {
    let [program, arguments @ ..] = command else { return Err(Failure::usage(anyhow!("no command"))) };
    let mut command = Command::new(program);
    command.args(arguments);
    if lasts.is_some() {
        // What the command started ends with it.
        command.process_group(0);
    }
    let listen = |kind| signal(kind).context("signals");
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let mut hangup = listen(SignalKind::hangup())?;
    let mut quit = listen(SignalKind::quit())?;
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            output::warn(&format!("{}: {error}", program.display()));
            let is_missing = error.kind() == std::io::ErrorKind::NotFound;
            return Ok(Exit::Own(if is_missing { NOT_FOUND } else { CANNOT_RUN }));
        }
    };
    // It is not known any more when the command has ended.
    let pid = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
    let end = async {
        match lasts {
            Some(lasts) => tokio::time::sleep(lasts).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(end);
    loop {
        let forwarded = tokio::select! {
            status = child.wait() => return Ok(exit_of(status.context("the command")?)),
            () = &mut end => break,
            // The terminal sends this to the command as well, unless it has a group of its own.
            _ = interrupt.recv() => if lasts.is_some() { Signal::INT } else { continue },
            _ = quit.recv() => if lasts.is_some() { Signal::QUIT } else { continue },
            _ = terminate.recv() => Signal::TERM,
            _ = hangup.recv() => Signal::HUP,
        };
        send(pid, forwarded, lasts.is_some());
    }
    output::warn("the command ran too long and is ended");
    send(pid, Signal::TERM, true);
    let begin = Instant::now();
    // The group has the number of the command as long as somebody is in it.
    while pid.is_some_and(|pid| test_kill_process_group(pid).is_ok()) {
        if begin.elapsed() >= GRACE {
            send(pid, Signal::KILL, true);
            break;
        }
        let _ended = tokio::time::timeout(GROUP_POLL_INTERVAL, child.wait()).await;
        tokio::time::sleep(GROUP_POLL_INTERVAL).await;
    }
    child.wait().await.context("the command")?;
    Ok(Exit::Own(TIMED_OUT))
}

/// Sends a signal to the command, or to its process group.
fn send(pid: Option<Pid>, signal: Signal, to_group: bool) {
    // It may have ended meanwhile.
    let _ = pid.map(|pid| if to_group { kill_process_group(pid, signal) } else { kill_process(pid, signal) });
}

fn exit_of(status: ExitStatus) -> Exit {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    Exit::Own(u8::try_from(code).unwrap_or(u8::MAX))
}

/// Gives the claims back. If the agent is away, it does so by itself later, because the lock is free.
fn give_back(socket: &Path, run: &Token) {
    let begin = Instant::now();
    let why = loop {
        let why = match claim_for_command(socket, run, false) {
            Ok(ClaimAck::Done) => return,
            Ok(ClaimAck::NoAgent) => "no agent runs".to_owned(),
            Ok(ClaimAck::NotNow(why) | ClaimAck::Never(why)) => why,
            Ok(ClaimAck::Lock(path)) => format!("{} is not locked", path.display()),
            Err(error) => error.to_string(),
        };
        if begin.elapsed() >= GIVE_BACK_WITHIN {
            break why;
        }
        std::thread::sleep(POLL_INTERVAL);
    };
    output::warn(&format!(
        "the claims could not be released: {why}; the agent releases them after its next successful validation"
    ));
}
