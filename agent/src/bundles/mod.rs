//! Uploads a bundle of an attempt that failed to an object store, once for each rollout and cause. Nothing waits for this
//! task: a store that is away delays no host.
//!
//! `pack` makes the bundle at once, at low priority, because the output of steps is not kept for long. `upload` says who
//! uploads. `store` opens the object store.

mod journal;
mod pack;
mod store;
mod upload;

pub(crate) use store::{check, check_texts};

use crate::files::Directory;
use crate::handles::Handles;
use crate::reconcile::{Reconcile, Wake};
use crate::secrets::Secrets;
use crate::status::{Status, StatusTarget};
use crate::step::Runs;
use anyhow::Result;
use archive::objects::ObjectError;
use etcd_session::{Secret, jitter};
use pack::{Failed, Subject};
use schema::order::InstructionOrder;
use schema::records::BundleLink;
use schema::time::Backoff;
use schema::verdict::HostVerdict;
use settings::{BundlesSettings, Settings};
use std::collections::{BTreeSet, VecDeque};
use std::io::{self, ErrorKind::NotFound};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
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
    directory: Directory,
    uploaded: watch::Sender<Option<BundleLink>>,
    /// What needs nothing more in this process.
    done: BTreeSet<Subject>,
    waiting: VecDeque<Waiting>,
    /// The upload that is under way. It may take long, so others are made and wait meanwhile.
    uploading: Option<JoinHandle<(Waiting, Result<Uploaded>)>>,
}

/// A bundle that waits on disk.
#[derive(Debug)]
pub(crate) struct Waiting {
    upload: Upload,
    /// When to go on.
    at: Instant,
    /// Number of attempts that failed one after the other.
    failures: u32,
}

/// What wakes the task.
#[derive(Debug)]
pub(crate) enum BundlesEvent {
    /// The status or the settings have changed.
    Changed,
    /// An upload has ended; `None` if its thread died.
    Uploaded(Option<Box<(Waiting, Result<Uploaded>)>>),
}

impl Bundles {
    /// Returns the task, and the bundle that it uploaded last.
    ///
    /// # Errors
    /// Returns the system's error if there can be no directory for waiting bundles.
    pub(crate) fn new(
        handles: &Handles,
        status: watch::Receiver<Arc<Status>>,
    ) -> io::Result<(Self, watch::Receiver<Option<BundleLink>>)> {
        let settings = handles.settings.settings.clone();
        let (runs, secrets) = (handles.runs.clone(), handles.secrets.clone());
        let path = settings.borrow().state_directory.join("bundles");
        let directory = Directory::open_or_create(&path)?;
        // An earlier process left these. If the attempt still counts, its bundle is made again.
        for entry in std::fs::read_dir(&path)?.flatten() {
            if let Err(error) = std::fs::remove_file(entry.path()) {
                tracing::warn!(%error, path = %entry.path().display(), "cannot be removed");
            }
        }
        let (uploaded, receiver) = watch::channel(None);
        let (done, waiting, uploading) = (BTreeSet::new(), VecDeque::new(), None);
        let task = Self { settings, status, runs, secrets, directory, uploaded, done, waiting, uploading };
        task.learn_secret();
        Ok((task, receiver))
    }

    /// Learns the secret of the access key, so that it stands in no output.
    fn learn_secret(&self) {
        let settings = self.settings.borrow().bundles.clone();
        if let Some(Ok(Some(credentials))) = settings.as_ref().map(store::credentials) {
            let names = ["of the access key of bundles", "of the session token of bundles"];
            for (name, secret) in names.into_iter().zip(credentials.secrets()) {
                self.secrets.learn(name, Secret::new(secret));
            }
        }
    }

    /// Makes a bundle of the failure of this host, if there is one of which none was made.
    async fn pack(&mut self, settings: &BundlesSettings) {
        let status = self.status.borrow_and_update().clone();
        let Some(failed) = failed(&status) else { return };
        let subject = failed.subject();
        // Whatever comes of it: later there is less to pack.
        if !self.done.insert(subject.clone()) {
            return;
        }
        self.learn_secret();
        let packed = pack::pack(failed, &self.directory, settings, &self.runs, &self.secrets).await;
        let packed = match packed {
            Ok(packed) => packed,
            Err(error) => {
                tracing::warn!(%error, "no bundle of the failure could be made");
                let _ = self.directory.remove(&pack::name_of(&subject));
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

    /// Begins to upload the first bundle that is due, unless an upload is under way.
    fn begin_upload(&mut self, settings: &BundlesSettings) {
        if self.uploading.is_some() {
            return;
        }
        let due = self.waiting.iter().position(|waiting| waiting.at <= Instant::now());
        let due = due.and_then(|at| self.waiting.remove(at));
        let Some(mut waiting) = due else { return };
        let (settings, path) = (settings.clone(), self.directory.path().to_owned());
        self.uploading = Some(tokio::task::spawn_blocking(move || {
            let opened = store::open(&settings).map_err(anyhow::Error::from);
            let ended = opened.and_then(|store| waiting.upload.go_on(&store, &path));
            (waiting, ended)
        }));
    }

    /// Takes over how an upload ended.
    fn end_upload(&mut self, mut waiting: Waiting, ended: Result<Uploaded>, settings: &BundlesSettings) {
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
            Err(error) if error.downcast_ref().is_some_and(|e: &io::Error| e.kind() == NotFound) => {
                tracing::warn!("a bundle of a failure is gone: {error:#}");
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
    type Event = BundlesEvent;

    async fn next_event(&mut self) -> Option<BundlesEvent> {
        let uploading = &mut self.uploading;
        // Dropping this loses nothing: the handle stays until its result is returned.
        let ended = async {
            match uploading {
                Some(handle) => handle.await.ok().map(Box::new),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = self.status.changed() => changed.ok().map(|()| BundlesEvent::Changed),
            changed = self.settings.changed() => changed.ok().map(|()| BundlesEvent::Changed),
            ended = ended => Some(BundlesEvent::Uploaded(ended)),
        }
    }

    fn reason(event: &BundlesEvent) -> &'static str {
        match event {
            BundlesEvent::Changed => "status",
            BundlesEvent::Uploaded(_) => "upload",
        }
    }

    async fn pass(&mut self, wake: Wake<BundlesEvent>) -> Option<Instant> {
        let settings = self.settings.borrow_and_update().bundles.clone();
        let ended = match wake {
            Wake::Event(BundlesEvent::Uploaded(ended)) => {
                self.uploading = None;
                ended
            }
            _ => None,
        };
        let Some(settings) = settings else {
            // Nothing is uploaded without a store.
            ended
                .iter()
                .map(|ended| &ended.0)
                .chain(&self.waiting)
                .for_each(|left| self.remove(&left.upload));
            self.waiting.clear();
            return None;
        };
        if let Some(ended) = ended {
            let (waiting, ended) = *ended;
            self.end_upload(waiting, ended, &settings);
        }
        self.pack(&settings).await;
        self.begin_upload(&settings);
        if self.uploading.is_some() { None } else { self.waiting.iter().map(|waiting| waiting.at).min() }
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
    if !is_of_target || status.running.is_some() {
        return None;
    }
    Some(Failed {
        host: status.host.clone()?,
        version: version.clone(),
        rollout: InstructionOrder { epoch: *epoch, revision: *revision },
        cause: status.cause.clone()?,
        report: decision.report.clone(),
    })
}
