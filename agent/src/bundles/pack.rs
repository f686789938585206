//! Makes the bundle of a failure.

use super::journal::Journal;
use crate::files::Directory;
use crate::secrets::Secrets;
use crate::step::Runs;
use crate::step::list::Run;
use archive::bundle::{About, BundleWriter, Digested, FORMAT, REPORT, RunFile, RunName};
use archive::{Cut, Redactor};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use schema::names::{Fingerprint, HostName, Version};
use schema::order::InstructionOrder;
use schema::records::{Cause, Report};
use schema::steps::StepEnd;
use settings::BundlesSettings;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

/// The part of a bundle with the journal of the agent.
const JOURNAL: &str = "journal.log";
/// Longest part of the end of a file of the settings, in bytes.
const FILE_MAX_BYTES: u64 = 1024 * 1024;
/// Time limit for making a bundle.
const PACK_TIMEOUT: Duration = Duration::from_secs(300);
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
#[derive(Debug)]
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
    runs: &Runs,
    secrets: &Secrets,
) -> io::Result<Packed> {
    let name = name_of(&failed.subject());
    let of_attempt = runs_of(&failed, runs.list()?);
    let since = of_attempt.first().map_or(failed.report.at, |run| run.about.began_at);
    let journal = Journal::read(since).await;
    let (runs, redactor, files) = (runs.clone(), secrets.redactor(), settings.files.clone());
    let directory = directory.try_clone()?;
    let (sender, packed) = tokio::sync::oneshot::channel();
    let work = move || {
        // Of a thread of its own, because that cannot be taken back. It fails for nobody.
        let _ = rustix::process::nice(NICE);
        let parts = Parts { failed, runs: of_attempt, journal, files };
        let _ = sender.send(parts.write(&directory, &name, &runs, &redactor));
    };
    std::thread::Builder::new().name("bundle".into()).spawn(work)?;
    // A file may be on a server that does not answer.
    tokio::time::timeout(PACK_TIMEOUT, packed).await?.map_err(io::Error::other)?
}

/// Returns the name of the file of a bundle.
pub(super) fn name_of(subject: &Subject) -> String {
    format!("{}-{}.tar.zst", subject.rollout, subject.fingerprint)
}

/// Returns the runs of the last attempt in the rollout, the first one first. They are given with the newest first.
fn runs_of(failed: &Failed, mut runs: Vec<Run>) -> Vec<Run> {
    runs.retain(|run| run.about.instruction == Some(failed.rollout));
    // After a retry the numbers start again, so the attempt is what has the numbers of the newest run.
    let of = |run: &Run| (run.about.attempt, run.about.tries);
    let last = runs.first().map(of);
    let other = runs.iter().position(|run| Some(of(run)) != last);
    runs.truncate(other.unwrap_or(runs.len()));
    runs.reverse();
    runs
}

/// What a bundle is made of.
struct Parts {
    failed: Failed,
    /// The runs of the attempt, the first one first.
    runs: Vec<Run>,
    journal: Option<Journal>,
    files: Vec<PathBuf>,
}

impl Parts {
    fn write(
        self,
        directory: &Directory,
        name: &str,
        runs: &Runs,
        redactor: &Redactor,
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
        let digested = Digested::new(directory.create_new(name, 0o600)?);
        let mut bundle = BundleWriter::new(digested, &about, redactor)?;
        bundle.add_json(REPORT, &failed.report)?;
        // The last run is the one that failed, so it comes before the bundle is full.
        for (number, run) in of_attempt.iter().enumerate().rev() {
            let name = RunName { number: number + 1, phase: run.about.phase, step: run.about.step.clone() };
            let log = name.file(RunFile::Log);
            let end = run.end.as_ref().map(ToString::to_string).unwrap_or_default();
            bundle.add(&name.file(RunFile::End), end.as_bytes(), Cut::default())?;
            match runs.whole_output(&run.id) {
                Ok(Some((begin, is_cut))) => {
                    // That of a killed runner may end anywhere.
                    let end = is_cut || run.end == Some(StepEnd::Interrupted);
                    bundle.add(&log, begin, Cut { begin: false, end })?;
                    if is_cut {
                        let last = (run.output.text.as_bytes(), run.output.cut(true));
                        bundle.add(&name.file(RunFile::LastLog), last.0, last.1)?;
                    }
                }
                Ok(None) => bundle.add(&log, run.output.text.as_bytes(), run.output.cut(true))?,
                Err(error) => bundle.leave_out(&log, &error.to_string()),
            }
        }
        match journal {
            Some(journal) => bundle.add(JOURNAL, journal.redacted(redactor)?.as_bytes(), journal.cut())?,
            None => bundle.leave_out(JOURNAL, "the agent is not a service of systemd"),
        }
        for path in &files {
            let below: PathBuf = path.components().filter(|part| *part != Component::RootDir).collect();
            let name = format!("files/{}", below.display());
            match open_file(path) {
                // It may be written at the same time.
                Ok((file, begin)) => bundle.add_unfinished(&name, file.take(FILE_MAX_BYTES), begin)?,
                Err(error) => bundle.leave_out(&name, &error.to_string()),
            }
        }
        let (file, sha256, bytes) = bundle.finish()?.finish();
        file.sync_all()?;
        Ok(Packed { name: name.to_owned(), sha256, bytes })
    }
}

/// Opens a regular file without following links, at its last part. True if there is something before that.
fn open_file(path: &Path) -> io::Result<(File, bool)> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let mut file = File::from(openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?);
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let before = metadata.len().saturating_sub(FILE_MAX_BYTES);
    file.seek(SeekFrom::Start(before))?;
    Ok((file, before > 0))
}
