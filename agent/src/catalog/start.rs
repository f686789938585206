//! The start of the catalog's tasks.

use super::{
    CatalogSnapshot, Fencing, Files, FilesHandle, Follower, Loaded, Loader, Needs, NeedsTask,
    PublishedServices, Publisher, PublisherInputs, Reader, Trust, read_cache,
};
use crate::checks::{CheckRegistry, Scheduler};
use crate::files::Directory;
use crate::handles::Handles;
use crate::supervise::Tasks;
use catalog::CachedNames;
use etcd_session::Presence;
use std::io;
use std::sync::Arc;
use tokio::sync::watch;

/// What other parts of the agent use of the catalog.
pub(crate) struct CatalogHandles {
    pub reader: Reader,
    /// Changes of the catalog, for the reconcile loop.
    pub changes: watch::Receiver<Arc<CatalogSnapshot>>,
    /// The checks of this host and their results.
    pub registry: Arc<CheckRegistry>,
    /// The unmet needs of this host.
    pub needs: watch::Receiver<Arc<Needs>>,
    /// The services that this host publishes.
    pub published: watch::Receiver<Arc<PublishedServices>>,
    /// The service files and the errors in them.
    pub loaded: watch::Receiver<Arc<Loaded>>,
    /// Writes the catalog's files.
    pub files: FilesHandle,
    /// Tells the tasks whether the catalog of this store counts.
    pub trust: watch::Sender<Trust>,
    /// Tells the publisher whether and how services may be published.
    pub fencing: watch::Sender<Fencing>,
}

/// Starts the tasks. `names` are those that the DNS server answers for.
///
/// # Errors
/// Returns the system's error if the state directory cannot be used.
pub(crate) fn start(
    handles: &Handles,
    presence: &Presence,
    names: CachedNames,
    directory: &Directory,
    tasks: &mut Tasks,
) -> io::Result<CatalogHandles> {
    let Handles { session, environment, .. } = handles;
    let settings = &handles.settings.settings;
    let in_use = settings.borrow().clone();
    let (trust_sender, trust) = watch::channel(Trust::default());
    let (fencing_sender, fencing) = watch::channel(Fencing::default());
    let (loader, loaded) = Loader::new(settings.clone());
    let registry = Arc::new(CheckRegistry::new(handles.metrics.clone()));
    let at_once = in_use.services.checks_at_once;
    let scheduler = Scheduler::new(registry.clone(), loaded.clone(), at_once, environment.clone());
    let inputs = PublisherInputs {
        settings: settings.clone(),
        loaded: loaded.clone(),
        registry: registry.clone(),
        presence: presence.states(),
        contradictions: presence.contradictions(),
        fencing,
    };
    let (publisher, published) =
        Publisher::new(handles.host.clone(), session.clone(), directory.try_clone()?, inputs);
    let on_disk = read_cache(directory);
    let (follower, reader) = Follower::new(session.clone(), in_use.catalog.clone(), trust.clone(), on_disk);
    let (needs_task, needs) =
        NeedsTask::new(settings.clone(), reader.clone(), session.clone(), trust, environment.clone());
    let (files_task, files) = Files::new(directory.try_clone()?, settings.clone(), &reader, names);
    tasks.spawn_loop("definitions", loader);
    tasks.spawn_loop("checks", scheduler);
    tasks.spawn_loop("publisher", publisher);
    tasks.spawn_loop("catalog", follower);
    tasks.spawn_loop("needs", needs_task);
    tasks.spawn_loop("files", files_task);
    Ok(CatalogHandles {
        changes: reader.changes(),
        reader,
        registry,
        needs,
        published,
        loaded,
        files,
        trust: trust_sender,
        fencing: fencing_sender,
    })
}
