//! The store as a whole: opened, and served.

use crate::core;
use crate::data_directory;
use crate::engine::{Clock, Engine};
use crate::journal::{Directory, Identity, Journal, OpenError};
use crate::server;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::TcpListener;

/// etcd's own default: 2 GiB.
pub const DEFAULT_QUOTA_BYTES: u64 = 2 * 1024 * 1024 * 1024;
/// How long open connections may take to end.
const DRAIN: Duration = Duration::from_secs(2);

/// Where a store keeps its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Storage {
    /// In a directory of its own, which is made if it is not there.
    Directory(PathBuf),
    /// Nowhere: for tests.
    Memory,
}

/// Why a store ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// It cannot listen, or has no thread.
    #[error("solo-etcd: {0}")]
    Io(#[from] std::io::Error),
    /// The journal cannot be written any more.
    #[error(
        "solo-etcd: it is not known what is on the disk any more, so nothing was promised since; after a restart it shows"
    )]
    Broken,
    /// The listener broke.
    #[error("solo-etcd: {0}")]
    Transport(#[from] tonic::transport::Error),
}

/// An open store; nobody else can open it.
pub struct Solo {
    journal: Option<Journal<Directory>>,
    store: core::Store,
    identity: Identity,
    clock: Clock,
    lock: Option<std::fs::File>,
}

impl Solo {
    /// Opens what is there, or makes an empty store.
    ///
    /// # Errors
    /// Another process uses it, it is damaged, or a newer program wrote it.
    pub fn open(storage: &Storage) -> Result<Self, OpenError> {
        let clock = Clock::new();
        match storage {
            Storage::Directory(path) => {
                let (directory, lock) = data_directory::lock(path)?;
                let (journal, store) = Journal::open(directory, path, clock.millis())?;
                let identity = journal.identity();
                Ok(Self { journal: Some(journal), store, identity, clock, lock: Some(lock) })
            }
            Storage::Memory => {
                let mut store = core::Store::default();
                // The start is refused by nothing.
                let _ = store.apply(core::Command::Start, clock.millis());
                Ok(Self { journal: None, store, identity: Identity::random(), clock, lock: None })
            }
        }
    }

    /// Serves on a listener until `shutdown` resolves. When this returns everything acknowledged is on disk,
    /// and another process may open the store.
    ///
    /// # Errors
    /// The listener broke, a sync of the journal failed, or there is no thread to write.
    pub async fn serve(
        self,
        listener: TcpListener,
        quota_bytes: u64,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        let client_url = client_url(listener.local_addr()?);
        let (engine, writer) =
            Engine::start(self.store, self.journal, self.lock, self.identity, self.clock, quota_bytes)?;
        let leases = tokio::spawn(engine.clone().end_leases());
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let serving = server::serve(engine.clone(), listener, client_url, async {
            // An error means that the sender is gone, which is the end as well.
            let _ = stopped.await;
        });
        tokio::pin!(serving);
        let mut is_broken = false;
        let ended = tokio::select! {
            ended = &mut serving => Some(ended),
            () = shutdown => None,
            // Nobody has stopped it.
            () = engine.stopped() => {
                is_broken = true;
                None
            }
        };
        leases.abort();
        // Streams end with the writer; then connections can.
        engine.stop().await;
        drop(stop);
        let ended = match ended {
            Some(ended) => ended,
            None => tokio::time::timeout(DRAIN, serving).await.unwrap_or(Ok(())),
        };
        // A panic there has been printed; nothing is left to be written.
        let _ = tokio::task::spawn_blocking(move || writer.join()).await;
        if is_broken {
            return Err(ServeError::Broken);
        }
        Ok(ended?)
    }
}

/// What clients are told to use. Where every address is listened on this is the one that works on this machine.
/// Without a scheme: `etcdctl --cluster` of 3.4 takes it for the name of the server as it stands, and HTTP/2 here does
/// not take a name with a scheme.
fn client_url(address: SocketAddr) -> String {
    if address.ip().is_unspecified() { format!("localhost:{}", address.port()) } else { address.to_string() }
}
