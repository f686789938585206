//! Uploads a bundle of an attempt that failed to an object store, once for each rollout and cause. Nothing waits for this
//! task: a store that is away delays no host.
//!
//! `pack` makes the bundle at once, at low priority, because the output of steps is not kept for long. `upload` says who
//! uploads. `store` opens the object store.

mod pack;
mod store;
mod upload;

pub(crate) use store::check;

use crate::files::Directory;
use crate::reconcile::{Reconcile, Wake};
use crate::secrets::Secrets;
use crate::status::{Status, StatusTarget};
use crate::step::Runs;
use archive::objects::ObjectError;
use etcd_session::{Secret, jitter};
use pack::{Failed, Subject};
use planning::settings::{BundlesSettings, Settings};
use schema::order::InstructionOrder;
use schema::records::BundleLink;
use schema::time::Backoff;
use schema::verdict::HostVerdict;
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use upload::{Upload, Uploaded};

/// Number of bundles that wait on disk for the object store. The oldest is dropped for a new one.
const WAITING_MAX: usize = 4;
/// Bounds of the delay after a failed upload.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(600));

/// The task that makes and uploads bundles.
pub(crate) struct Bundles {
    settings: watch::Receiver<Arc<Settings>>,
    status: watch::Receiver<Arc<Status>>,
    runs: Runs,
    secrets: Secrets,
    /// Where bundles wait.
    directory: Directory,
    uploaded: watch::Sender<Option<BundleLink>>,
    /// What needs nothing more in this process.
    done: BTreeSet<Subject>,
    waiting: VecDeque<Waiting>,
}

/// A bundle that waits on disk.
struct Waiting {
    upload: Upload,
    /// When to go on.
    at: Instant,
    /// Number of attempts that failed one after the other.
    failures: u32,
}

impl Bundles {
    /// Returns the task, and the bundle that it uploaded last.
    ///
    /// # Errors
    /// Returns the system's error if the directory of waiting bundles cannot be made empty.
    pub(crate) fn new(
        settings: watch::Receiver<Arc<Settings>>,
        status: watch::Receiver<Arc<Status>>,
        (state_directory, runs, secrets): (&Path, Runs, Secrets),
    ) -> io::Result<(Self, watch::Receiver<Option<BundleLink>>)> {
        let path = state_directory.join("bundles");
        let directory = Directory::open_or_create(&path)?;
        // An earlier process left these. If the attempt still counts, its bundle is made again.
        for entry in std::fs::read_dir(&path)? {
            directory.remove(&entry?.file_name().to_string_lossy())?;
        }
        let (uploaded, receiver) = watch::channel(None);
        let (done, waiting) = (BTreeSet::new(), VecDeque::new());
        Ok((Self { settings, status, runs, secrets, directory, uploaded, done, waiting }, receiver))
    }

    /// Makes a bundle of the failure of this host, if there is one of which none was made.
    async fn pack(&mut self, settings: &BundlesSettings) {
        let status = self.status.borrow_and_update().clone();
        let Some(failed) = failed(&status) else { return };
        let subject = failed.subject();
        if self.done.contains(&subject) {
            return;
        }
        if let Ok(Some(credentials)) = store::credentials(settings) {
            let secret = String::from_utf8_lossy(credentials.secret());
            self.secrets.learn("of the access key of bundles", Secret::new(secret));
        }
        // Whatever comes of it: one that cannot be made now cannot be made later.
        self.done.insert(subject.clone());
        let packed = pack::pack(failed, &self.directory, settings, (&self.runs, &self.secrets)).await;
        let packed = match packed {
            Ok(packed) => packed,
            Err(error) => {
                tracing::warn!(%error, "no bundle of the failure could be made");
                return;
            }
        };
        tracing::info!(bytes = packed.bytes, rollout = %subject.rollout, "made a bundle of the failure");
        let at = Instant::now() + settings.spread.mul_f64(jitter());
        self.waiting.push_back(Waiting { upload: Upload::new(subject, packed), at, failures: 0 });
        while self.waiting.len() > WAITING_MAX {
            let dropped = self.waiting.pop_front().map(|waiting| waiting.upload);
            if let Some(upload) = dropped {
                tracing::warn!(
                    rollout = %upload.subject.rollout,
                    "dropped the oldest bundle: {WAITING_MAX} wait for the object store"
                );
                self.remove(&upload);
            }
        }
    }

    fn remove(&self, upload: &Upload) {
        if let Err(error) = self.directory.remove(&upload.packed.name) {
            tracing::warn!(%error, "the file of a bundle could not be removed");
        }
    }

    /// Goes on with the first bundle that is due.
    async fn upload_one(&mut self, settings: &BundlesSettings) {
        let Some(at) = self.waiting.iter().position(|waiting| waiting.at <= Instant::now()) else { return };
        let Some(mut waiting) = self.waiting.remove(at) else { return };
        let (settings_now, path) = (settings.clone(), self.directory.path().to_owned());
        let mut upload = waiting.upload;
        let work = move || {
            let ended = store::open(&settings_now).and_then(|store| upload.go_on(&store, &path));
            (upload, ended)
        };
        let Ok((upload, ended)) = tokio::task::spawn_blocking(work).await else { return };
        waiting.upload = upload;
        match ended {
            Ok(Uploaded::ByThis(link)) => {
                tracing::info!(url = %link.url, "uploaded the bundle of the failure");
                self.remove(&waiting.upload);
                self.uploaded.send_replace(Some(link));
            }
            Ok(Uploaded::Elsewhere) => {
                tracing::debug!("another host uploaded a bundle of this cause");
                self.remove(&waiting.upload);
            }
            Ok(Uploaded::NotYet) => {
                (waiting.at, waiting.failures) = (Instant::now() + settings.take_over_after, 0);
                self.waiting.push_back(waiting);
            }
            Err(error) => {
                waiting.failures += 1;
                let is_permanent = error.downcast_ref().is_none_or(ObjectError::is_permanent);
                if is_permanent || waiting.failures == 1 {
                    tracing::warn!("the bundle of the failure could not be uploaded: {error:#}");
                }
                let backoff = Backoff::new(BACKOFF.0, BACKOFF.1);
                let failures = if is_permanent { u32::MAX } else { waiting.failures };
                waiting.at = Instant::now() + backoff.spread(failures, jitter());
                self.waiting.push_back(waiting);
            }
        }
    }
}

impl Reconcile for Bundles {
    /// The status has changed.
    type Event = ();

    async fn next_event(&mut self) -> Option<()> {
        self.status.changed().await.ok()
    }

    async fn pass(&mut self, _: Wake<()>) -> Option<Instant> {
        let settings = self.settings.borrow().bundles.clone()?;
        self.pack(&settings).await;
        self.upload_one(&settings).await;
        self.waiting.iter().map(|waiting| waiting.at).min()
    }
}

/// Returns the failure that the host has reported, if a step with a cause failed.
fn failed(status: &Status) -> Option<Failed> {
    let decision = status.decision.as_ref()?;
    let (HostVerdict::Failed(verdict), StatusTarget::Known { version, epoch, revision }) =
        (&decision.verdict, &status.target)
    else {
        return None;
    };
    let is_of_target = verdict.version.as_ref().is_none_or(|failed| failed == version);
    Some(Failed {
        host: status.host.clone()?,
        version: version.clone(),
        rollout: InstructionOrder { epoch: *epoch, revision: *revision },
        cause: status.cause.clone()?,
        report: decision.report.clone(),
    })
    .filter(|_| is_of_target && status.running.is_none())
}
