//! Watches the certificates of the connection to the store. The times at which they end are facts
//! about the machine, and the log warns when such a time is near. Files that cannot be used are
//! logged once, not with every attempt to connect.

use etcd_session::{StoreError, TlsFiles, certificate_ends, check_certificates};
use schema::records::{MachineInfo, certificate_warning};
use schema::time::{BootMillis, Now};
use std::time::Duration;

const READ_INTERVAL: Duration = Duration::from_secs(60);
const WARN_INTERVAL: Duration = Duration::from_secs(86_400);

/// The TLS files, and the times of the next read and the next warning.
pub(crate) struct Certificates {
    files: TlsFiles,
    read_again: BootMillis,
    warn_again: BootMillis,
    /// The problem that the last read of the files found.
    problem: Option<StoreError>,
}

impl Certificates {
    /// Watches these files; the first check reads them.
    pub(crate) fn new(files: TlsFiles) -> Self {
        Self { files, read_again: BootMillis::default(), warn_again: BootMillis::default(), problem: None }
    }

    /// Updates the facts. Returns when to check again; `None` if there are no certificates.
    pub(crate) fn check(&mut self, facts: &mut MachineInfo, now: Now) -> Option<BootMillis> {
        if self.files.is_empty() {
            return None;
        }
        if now.boot >= self.read_again {
            self.read_again = now.boot.plus(READ_INTERVAL);
            self.log_problem();
            facts.certificates = certificate_ends(&self.files);
            let mut warned = false;
            let warns = now.boot >= self.warn_again;
            for (file, end) in &facts.certificates {
                if warns && let Some(warning) = certificate_warning(file, *end, now.wall) {
                    tracing::warn!("{warning}");
                    warned = true;
                }
            }
            if warned {
                self.warn_again = now.boot.plus(WARN_INTERVAL);
            }
        }
        Some(self.read_again)
    }

    fn log_problem(&mut self) {
        let problem = check_certificates(&self.files).err();
        if problem != self.problem {
            match &problem {
                Some(error) => tracing::error!(%error, "the store cannot be reached with these files"),
                None => tracing::info!("the files for TLS can be used again"),
            }
            self.problem = problem;
        }
    }
}
