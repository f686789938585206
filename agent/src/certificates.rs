//! Looks after the certificates of the connection to the store: when they end is a fact about the host, and
//! is said in the log while it is near. Files that cannot be used are named there once, not with every attempt.

use etcd_session::{StoreError, TlsFiles, certificate_ends, check_certificates};
use schema::records::{MachineInfo, certificate_warning};
use schema::time::{BootMillis, Now};
use std::time::Duration;

const READ_EVERY: Duration = Duration::from_secs(60);
const WARN_EVERY: Duration = Duration::from_secs(86_400);

/// The files, and when they are looked at.
pub(crate) struct Certificates {
    files: TlsFiles,
    read_again: BootMillis,
    warn_again: BootMillis,
    /// What was wrong with the files when they were read last.
    problem: Option<StoreError>,
}

impl Certificates {
    /// Looks at these files, first now.
    pub(crate) fn new(files: TlsFiles) -> Self {
        Self { files, read_again: BootMillis::default(), warn_again: BootMillis::default(), problem: None }
    }

    /// Brings the facts up to date; says when to look again, if there are certificates.
    pub(crate) fn check(&mut self, facts: &mut MachineInfo, now: Now) -> Option<BootMillis> {
        if self.files.is_empty() {
            return None;
        }
        if now.boot >= self.read_again {
            self.read_again = now.boot.plus(READ_EVERY);
            self.log_problem();
            facts.certificates = certificate_ends(&self.files);
            let mut warned = false;
            for (file, end) in facts.certificates.iter().filter(|_| now.boot >= self.warn_again) {
                if let Some(warning) = certificate_warning(file, *end, now.wall) {
                    tracing::warn!("{warning}");
                    warned = true;
                }
            }
            if warned {
                self.warn_again = now.boot.plus(WARN_EVERY);
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
