//! Makes the bundle of a failure.

use crate::files::Directory;
use crate::secrets::Secrets;
use crate::step::Runs;
use crate::step::list::Run;
use archive::bundle::{About, BundleWriter, Digested, FORMAT};
use archive::{Cut, Redactor};
use planning::settings::BundlesSettings;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use schema::codec;
use schema::names::{Fingerprint, HostName, Version};
use schema::order::InstructionOrder;
use schema::records::{Cause, Report};
use schema::time::EpochSeconds;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest part of a file of the settings, in bytes.
const FILE_MAX_BYTES: u64 = 1024 * 1024;
/// Time limit for reading the journal.
const JOURNAL_TIMEOUT: Duration = Duration::from_secs(20);
/// Longest part of the journal, in bytes.
const JOURNAL_MAX_BYTES: usize = 4 * 1024 * 1024;
/// How much the thread that packs gives way to others, also on the disk.
const NICE: i32 = 19;

/// What one bundle is enough for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Subject {
    pub(super) host: HostName,
    pub(super) rollout: InstructionOrder,
    pub(super) fingerprint: Fingerprint,
}

/// A failure of this host.
pub(super) struct Failed {
    pub(super) host: HostName,
    pub(super) version: Version,
    pub(super) rollout: InstructionOrder,
    pub(super) cause: Cause,
    pub(super) report: Report,
}

impl Failed {
    pub(super) fn subject(&self) -> Subject {
        let (host, fingerprint) = (self.host.clone(), self.cause.fingerprint.clone());
        Subject { host, rollout: self.rollout, fingerprint }
    }
}

/// A bundle on disk.
pub(super) struct Packed {
    /// The name of its file.
    pub(super) name: String,
    /// Its SHA-256, in hexadecimal.
    pub(super) sha256: String,
    pub(super) bytes: u64,
}

/// Makes a bundle in a directory.
pub(super) async fn pack(
    failed: Failed,
    directory: &Directory,
    settings: &BundlesSettings,
    (runs, secrets): (&Runs, &Secrets),
) -> io::Result<Packed> {
    let of_attempt = runs_of(&failed, runs.list()?);
    let since = of_attempt.first().map_or(failed.report.at, |run| run.about.began_at);
    let journal = journal(since).await;
    let (runs, redactor, files) = (runs.clone(), secrets.redactor(), settings.files.clone());
    let directory = directory.try_clone()?;
    let (sender, packed) = tokio::sync::oneshot::channel();
    let work = move || {
        // Of a thread of its own, because that cannot be taken back. It fails for nobody.
        let _ = rustix::process::nice(NICE);
        let name = format!("{}-{}.tar.zst", failed.rollout, failed.cause.fingerprint);
        let parts = Parts { failed, runs: of_attempt, journal, files };
        let _ = sender.send(parts.write(&directory, name, (&runs, &redactor)));
    };
    std::thread::Builder::new().name("bundle".into()).spawn(work)?;
    packed.await.map_err(io::Error::other)?
}

/// Returns the runs of the last attempt at the version, the first one first.
fn runs_of(failed: &Failed, mut runs: Vec<Run>) -> Vec<Run> {
    runs.retain(|run| run.about.version.as_ref() == Some(&failed.version));
    let last = runs.iter().map(|run| run.about.attempt).max();
    runs.retain(|run| Some(run.about.attempt) == last);
    runs.reverse();
    runs
}

/// Returns what the journal of this unit has since then; `None` if the agent is no unit.
async fn journal(since: EpochSeconds) -> Option<String> {
    let invocation = crate::config::variable("INVOCATION_ID")?;
    let command = [
        "journalctl".to_owned(),
        format!("_SYSTEMD_INVOCATION_ID={invocation}"),
        format!("--since=@{}", since.0),
        "--output=short-iso-precise".into(),
        "--no-pager".into(),
        "--quiet".into(),
    ];
    let outcome = commands::run(&command, &BTreeMap::new(), b"", JOURNAL_TIMEOUT, JOURNAL_MAX_BYTES).await;
    Some(if outcome.succeeded() { outcome.output } else { format!("journalctl {}", outcome.describe()) })
}

/// What a bundle is made of.
struct Parts {
    failed: Failed,
    /// The runs of the attempt, the first one first.
    runs: Vec<Run>,
    journal: Option<String>,
    files: Vec<PathBuf>,
}

impl Parts {
    fn write(
        self,
        directory: &Directory,
        name: String,
        (runs, redactor): (&Runs, &Redactor),
    ) -> io::Result<Packed> {
        let Self { failed, runs: of_attempt, journal, files } = self;
        let about = About {
            format: FORMAT,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            host: failed.host,
            version: failed.version,
            rollout: failed.rollout,
            attempt: of_attempt.last().map_or(0, |run| run.about.attempt),
            failed_at: failed.report.at,
            cause: failed.cause,
        };
        let digested = Digested::new(directory.create_new(&name, 0o600)?);
        let mut bundle = BundleWriter::new(digested, &about, redactor)?;
        bundle.add("report.json", codec::write(&failed.report).as_bytes(), Cut::default())?;
        // The last run is the one that failed, so it comes before the bundle is full.
        for (number, run) in of_attempt.iter().enumerate().rev() {
            let name = format!("steps/{:02}-{}-{}", number + 1, run.about.phase, run.about.step);
            let end = run.end.as_ref().map(ToString::to_string).unwrap_or_default();
            bundle.add(&format!("{name}.end"), end.as_bytes(), Cut::default())?;
            match runs.whole_output(&run.id) {
                Ok(Some((begin, is_cut))) => {
                    bundle.add(&format!("{name}.log"), begin, Cut { begin: false, end: is_cut })?;
                    if is_cut {
                        let last = (run.output.text.as_bytes(), run.output.cut(true));
                        bundle.add(&format!("{name}.last.log"), last.0, last.1)?;
                    }
                }
                Ok(None) => {
                    bundle.add(&format!("{name}.log"), run.output.text.as_bytes(), run.output.cut(true))?
                }
                Err(error) => bundle.leave_out(&format!("{name}.log"), &error.to_string()),
            }
        }
        if let Some(journal) = journal {
            let cut = Cut { begin: journal.len() >= JOURNAL_MAX_BYTES, end: false };
            bundle.add("journal.log", journal.as_bytes(), cut)?;
        }
        for path in &files {
            let name = format!("files{}", path.display());
            match open_file(path) {
                Ok((file, is_cut)) => {
                    bundle.add(&name, file.take(FILE_MAX_BYTES), Cut { begin: false, end: is_cut })?;
                }
                Err(error) => bundle.leave_out(&name, &error.to_string()),
            }
        }
        let (file, sha256, bytes) = bundle.finish()?.finish();
        file.sync_all()?;
        Ok(Packed { name, sha256, bytes })
    }
}

/// Opens a regular file without following links. True if it is longer than what is read of it.
fn open_file(path: &Path) -> io::Result<(File, bool)> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = File::from(openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?);
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    Ok((file, metadata.len() > FILE_MAX_BYTES))
}
