//! Runs short commands, for example checks. There is no shell, the environment is fixed, a time limit applies to the whole
//! process group, and output is read at full speed while only a bounded part of it is kept.

use crate::base_environment;
use crate::trust;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;
use tokio::process::Command;

/// Longest wait for the end of a killed command.
const REAP_TIMEOUT: Duration = Duration::from_secs(1);

/// The result of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub end: End,
    /// The end of the output on both streams, at most `output_max` bytes (see [`run`]).
    pub output: String,
    /// True if the command left processes in its group, which were killed.
    pub left_processes: bool,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The command exited with this code.
    Exited(i32),
    /// The command was ended by this signal.
    Signalled(i32),
    /// The command exceeded its time limit and was killed.
    TimedOut,
    /// The command could not be started, for this reason.
    NotStarted(String),
}

impl Outcome {
    /// True if the command exited with 0.
    pub fn succeeded(&self) -> bool {
        self.end == End::Exited(0)
    }

    /// Returns a sentence that says how the command ended, with its output.
    pub fn describe(&self) -> String {
        let (end, output) = (&self.end, self.output.trim());
        if output.is_empty() { end.to_string() } else { format!("{end}: {output}") }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exited with code {code}"),
            Self::Signalled(signal) => write!(f, "was ended by signal {signal}"),
            Self::TimedOut => f.write_str("took too long and was ended"),
            Self::NotStarted(why) => write!(f, "could not be started: {why}"),
        }
    }
}

/// Runs a program, if only root or this user could have put its file there. It reads `input` on its standard input.
pub async fn run(
    arguments: &[String],
    environment: &BTreeMap<String, String>,
    input: &[u8],
    limit: Duration,
    output_max: usize,
) -> Outcome {
    let not_started =
        |why: String| Outcome { end: End::NotStarted(why), output: String::new(), left_processes: false };
    let Some((program, rest)) = arguments.split_first() else {
        return not_started("the command is empty".into());
    };
    let path = match trust::find_command(program) {
        Ok(path) => path,
        Err(error) => return not_started(error.to_string()),
    };
    match start(&path, rest, environment, input) {
        Ok((child, output)) => follow(child, output, limit, output_max).await,
        Err(error) => not_started(format!("{}: {error}", path.display())),
    }
}

fn start(
    program: &Path,
    arguments: &[String],
    environment: &BTreeMap<String, String>,
    input: &[u8],
) -> io::Result<(tokio::process::Child, pipe::Receiver)> {
    let (reader, writer) = io::pipe()?;
    let stdin = if input.is_empty() { Stdio::null() } else { Stdio::piped() };
    let mut child = Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(base_environment())
        .envs(environment)
        .current_dir("/")
        .stdin(stdin)
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .process_group(0)
        .kill_on_drop(true)
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        let input = input.to_vec();
        // The command need not read it. The write ends at the latest when the command does.
        tokio::spawn(async move { stdin.write_all(&input).await });
    }
    Ok((child, pipe::Receiver::from_owned_fd(OwnedFd::from(reader))?))
}

async fn follow(
    mut child: tokio::process::Child,
    output: pipe::Receiver,
    limit: Duration,
    output_max: usize,
) -> Outcome {
    let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw);
    let mut kept = Tail { bytes: Vec::new(), most: output_max };
    let timer = tokio::time::sleep(limit);
    tokio::pin!(timer);
    let mut open = true;
    let ended = loop {
        tokio::select! {
            // All of these are cancel safe: they can be polled again.
            ended = child.wait() => break Some(ended),
            ready = output.readable(), if open => open = ready.is_ok() && kept.take(&output),
            () = &mut timer => break None,
        }
    };
    // Kills the processes that the command left behind. After the command was reaped, the group has no others.
    let killed = group.map(|group| rustix::process::kill_process_group(group, rustix::process::Signal::KILL));
    let left_processes = ended.is_some() && matches!(killed, Some(Ok(())));
    kept.take(&output);
    let end = match ended {
        Some(Ok(status)) => match (status.code(), std::os::unix::process::ExitStatusExt::signal(&status)) {
            (Some(code), _) => End::Exited(code),
            (None, signal) => End::Signalled(signal.unwrap_or_default()),
        },
        Some(Err(error)) => End::NotStarted(error.to_string()),
        None => {
            // The command was killed above. If the kernel delays its end, it is reaped later.
            let _ = tokio::time::timeout(REAP_TIMEOUT, child.wait()).await;
            End::TimedOut
        }
    };
    Outcome { end, output: kept.text(), left_processes }
}

/// The last bytes of a stream, at most `most`.
struct Tail {
    bytes: Vec<u8>,
    most: usize,
}

impl Tail {
    /// Reads what is available now. Returns false at the end of the stream.
    fn take(&mut self, output: &pipe::Receiver) -> bool {
        let mut buffer = [0; 8192];
        // Bounded, so that a command that never stops printing does not block other tasks.
        for _ in 0..64 {
            match output.try_read(&mut buffer) {
                Ok(0) => return false,
                Ok(count) => {
                    self.bytes.extend_from_slice(&buffer[..count]);
                    let excess = self.bytes.len().saturating_sub(self.most);
                    self.bytes.drain(..excess);
                }
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
        true
    }

    /// Returns the bytes as text without control characters that could affect a terminal.
    fn text(&self) -> String {
        let is_bad = |c: char| c.is_control() && c != '\n' && c != '\t';
        String::from_utf8_lossy(&self.bytes).chars().map(|c| if is_bad(c) { '\u{fffd}' } else { c }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn shell(script: &str, limit_millis: u64) -> Outcome {
        let arguments = ["/bin/sh".to_owned(), "-c".into(), script.into()];
        let environment = BTreeMap::from([("GIVEN".to_owned(), "x y".to_owned())]);
        run(&arguments, &environment, b"", Duration::from_millis(limit_millis), 100).await
    }

    #[tokio::test]
    async fn a_command_ends_as_it_ends() {
        for (script, end, output) in [
            ("echo \"$GIVEN\"; echo err >&2; exit 3", End::Exited(3), "x y\nerr\n"),
            ("kill -9 $$", End::Signalled(9), ""),
            ("printf 'a\\033[31m\\000b'", End::Exited(0), "a\u{fffd}[31m\u{fffd}b"),
            ("cat", End::Exited(0), ""),
        ] {
            let expected = Outcome { end, output: output.into(), left_processes: false };
            assert_eq!(shell(script, 10_000).await, expected, "{script}");
        }
    }

    #[tokio::test]
    async fn output_is_bounded_and_time_is_too() {
        let flood = shell("head -c 3000000 /dev/zero | tr '\\0' x; echo; echo last", 20_000).await;
        assert!(flood.output.ends_with("x\nlast\n") && flood.output.len() == 100, "{flood:?}");
        let endless = shell("yes", 300).await;
        assert_eq!(endless.end, End::TimedOut);
        let ignores = shell("trap '' TERM; echo begun; sleep 60 & wait", 300).await;
        assert_eq!((ignores.end, ignores.output.as_str()), (End::TimedOut, "begun\n"));
    }

    #[tokio::test]
    async fn it_reads_its_input_or_leaves_it() {
        let input = "x".repeat(300_000);
        for (program, output) in [("/usr/bin/wc", "300000\n"), ("/bin/true", "")] {
            let arguments = [program.to_owned(), "-c".into()];
            let limit = Duration::from_secs(10);
            let outcome = run(&arguments, &BTreeMap::new(), input.as_bytes(), limit, 100).await;
            assert_eq!((outcome.end, outcome.output.as_str()), (End::Exited(0), output), "{program}");
        }
    }

    #[tokio::test]
    async fn what_it_leaves_behind_ends_with_it() {
        let left = shell("sleep 60 & echo $!", 10_000).await;
        assert_eq!(left.end, End::Exited(0), "its end counts, not that of its output");
        assert!(left.left_processes);
        let path = format!("/proc/{}/stat", left.output.trim());
        let gone = || std::fs::read_to_string(&path).map_or(true, |stat| stat.contains(") Z"));
        for _ in 0..200 {
            if gone() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{path} is still there");
    }

    #[tokio::test]
    async fn what_cannot_be_started_says_why() {
        let environment = BTreeMap::new();
        for (program, why) in [
            ("/nonexistent", "/nonexistent does not exist"),
            ("./true", "not an absolute path"),
            ("no-such-program", "no-such-program is not on /usr/local/sbin:"),
        ] {
            let outcome = run(&[program.into()], &environment, b"", Duration::from_secs(1), 100).await;
            assert!(matches!(&outcome.end, End::NotStarted(reason) if reason.contains(why)), "{outcome:?}");
        }
    }
}
