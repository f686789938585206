//! The locks of commands that hold claims. Whoever runs a command holds its lock, and the command inherits
//! it, so that the kernel says whether it still runs. The file contains the claims that the command took.

use crate::clock;
use crate::files::Directory;
use planning::host::Commands;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use schema::names::Token;
use schema::records::{HeldClaim, Purpose};
use schema::time::BootMillis;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Age from which a lock that nobody holds is left over. A younger one may be about to be taken.
const LEFT_OVER_AFTER: Duration = Duration::from_secs(10 * 60);
/// Longest list of claims, in bytes.
const CLAIMS_MAX_BYTES: u64 = 64 * 1024;

/// The locks of commands.
#[derive(Debug)]
pub(crate) struct CommandLocks {
    directory: Directory,
    /// When it was seen first that a command with claims does not run any more.
    ended: Mutex<BTreeMap<Token, BootMillis>>,
}

impl CommandLocks {
    /// Opens the directory below the state directory.
    ///
    /// # Errors
    /// Returns the system's error, also if others could have put files into the directory.
    pub(crate) fn open(state_directory: &Path) -> io::Result<Self> {
        let directory = Directory::open_or_create(&state_directory.join("commands"))?;
        directory.check_private()?;
        Ok(Self { directory, ended: Mutex::default() })
    }

    /// Creates the lock of a run, if it does not exist. Returns its path.
    pub(crate) fn create(&self, run: &Token) -> io::Result<PathBuf> {
        self.directory.open_lock(run.as_str())?;
        Ok(self.path(run))
    }

    fn path(&self, run: &Token) -> PathBuf {
        self.directory.path().join(run.as_str())
    }

    /// True unless it is certain that nobody holds the lock of a run.
    pub(crate) fn is_held(&self, run: &Token) -> bool {
        match self.directory.open_existing(run.as_str()) {
            Ok(lock) => flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err(),
            Err(error) => error.raw_os_error() != Some(Errno::NOENT.raw_os_error()),
        }
    }

    /// Writes down which claims a command took. The file stays the same one, because it is locked.
    pub(crate) fn note_claims(&self, run: &Token, claims: &[HeldClaim]) -> io::Result<()> {
        std::fs::OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(self.path(run))
            .and_then(|file| serde_json::to_writer(file, claims).map_err(io::Error::from))
    }

    fn claims(&self, run: &Token) -> Vec<HeldClaim> {
        let read = self.directory.read(run.as_str(), CLAIMS_MAX_BYTES).ok().flatten();
        read.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
    }

    pub(crate) fn remove(&self, run: &Token) {
        // What is left is removed later.
        let _ = self.directory.remove(run.as_str());
    }

    /// Returns which commands run, and which do not although the host holds claims for these purposes.
    /// `validates` is true during a validation, which says nothing about a command that ends now.
    pub(crate) fn observe<'a>(
        &self,
        purposes: impl IntoIterator<Item = &'a Purpose>,
        validates: bool,
    ) -> Commands {
        let mut running = BTreeMap::new();
        for run in self.runs() {
            if self.is_held(&run) {
                let claims = self.claims(&run);
                running.insert(run, claims);
            }
        }
        let mut known = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ended = BTreeMap::new();
        for purpose in purposes {
            let Purpose::Command(run) = purpose else { continue };
            if running.contains_key(run) {
                continue;
            }
            let since = known.get(run).copied().or_else(|| (!validates).then(clock::boot_millis));
            ended.extend(since.map(|since| (run.clone(), since)));
        }
        known.clone_from(&ended);
        Commands { running, ended }
    }

    /// Returns the runs that have a lock, and removes those that ended long ago.
    fn runs(&self) -> Vec<Token> {
        let entries = std::fs::read_dir(self.directory.path()).into_iter().flatten().flatten();
        let mut runs = Vec::new();
        for entry in entries {
            let Some(run) = entry.file_name().to_str().and_then(|name| Token::new(name).ok()) else {
                continue;
            };
            let age =
                entry.metadata().and_then(|found| found.modified()).ok().and_then(|at| at.elapsed().ok());
            if age.is_some_and(|age| age > LEFT_OVER_AFTER) && !self.is_held(&run) {
                self.remove(&run);
            } else {
                runs.push(run);
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_runs_as_long_as_somebody_holds_its_lock() {
        let directory = tempfile::tempdir().unwrap();
        let locks = CommandLocks::open(directory.path()).unwrap();
        let run = Token::new("c1").unwrap();
        let purpose = Purpose::Command(run.clone());
        assert!(!locks.is_held(&run), "there is no lock");
        let path = locks.create(&run).unwrap();
        assert!(!locks.is_held(&run));
        let file = std::fs::File::open(&path).unwrap();
        flock(&file, FlockOperation::LockExclusive).unwrap();
        locks.note_claims(&run, &[]).unwrap();
        let seen = locks.observe([&purpose], false);
        assert_eq!((seen.running.get(&run), seen.ended.len()), (Some(&Vec::new()), 0));
        drop(file);
        // A validation that runs now began while the command ran.
        assert!(locks.observe([&purpose], true).ended.is_empty());
        let seen = locks.observe([&purpose], false);
        assert_eq!((seen.running.len(), seen.ended.len()), (0, 1));
        assert_eq!(locks.observe([&purpose], true), seen, "the time stays");
        assert!(locks.observe([], false).ended.is_empty());
        locks.remove(&run);
        assert!(!path.exists());
    }
}
