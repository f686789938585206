//! Opens and serves the store.

use crate::core;
use crate::data_directory;
use crate::engine::{Clock, Engine, OpenStore};
use crate::journal::{Journal, OpenError};
use crate::server;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::TcpListener;

/// Default quota in bytes: 2 GiB, as in etcd.
pub const DEFAULT_QUOTA_BYTES: u64 = 2 * 1024 * 1024 * 1024;
/// Longest time for open connections to end.
const DRAIN: Duration = Duration::from_secs(2);

/// Where a store keeps its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Storage {
    /// In a directory of its own, which is created if it does not exist.
    Directory(PathBuf),
    /// Only in memory: for tests.
    Memory,
}

/// Reason why a store ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The listener has no address, or the writer thread could not be started.
    #[error("solo-etcd: {0}")]
    Io(#[from] std::io::Error),
    /// The journal cannot be written any more.
    #[error(
        "solo-etcd: it is not known what is on the disk any more, so nothing was promised since; after a restart it shows"
    )]
    Broken,
    /// The server failed on its listener.
    #[error("solo-etcd: {0}")]
    Transport(#[from] tonic::transport::Error),
}

/// An open store, which no other process can open.
pub struct Solo(OpenStore);

impl Solo {
    /// Opens an existing store, or creates an empty one.
    ///
    /// # Errors
    /// Returns an error if another process uses the store, if it is damaged, if an etcd or a newer
    /// program wrote it, or if reading or writing fails.
    pub fn open(storage: &Storage) -> Result<Self, OpenError> {
        match storage {
            Storage::Directory(path) => {
                let clock = Clock::new();
                let (directory, lock) = data_directory::lock(path)?;
                let (journal, store) = Journal::open(directory, path, clock.millis())?;
                let identity = journal.identity();
                let (journal, lock) = (Some(journal), Some(lock));
                Ok(Self(OpenStore { store, journal, lock, identity, clock }))
            }
            Storage::Memory => Ok(Self(OpenStore::in_memory(core::Store::default()))),
        }
    }

    /// Serves on a listener until `shutdown` resolves. When this returns, everything acknowledged
    /// is on disk, and another process may open the store.
    ///
    /// # Errors
    /// Returns an error if the listener fails, the journal cannot be written any more, or the
    /// writer thread cannot be started.
    pub async fn serve(
        self,
        listener: TcpListener,
        quota_bytes: u64,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        let client_url = client_url(listener.local_addr()?);
        let (engine, writer) = Engine::start(self.0, quota_bytes)?;
        let leases = tokio::spawn(engine.clone().end_leases());
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let serving = server::serve(engine.clone(), listener, client_url, async {
            // An error means that the sender is gone, which also means the end.
            let _ = stopped.await;
        });
        tokio::pin!(serving);
        let mut is_broken = false;
        let ended = tokio::select! {
            ended = &mut serving => Some(ended),
            () = shutdown => None,
            // Nobody stopped the writer, so its journal is broken.
            () = engine.stopped() => {
                is_broken = true;
                None
            }
        };
        leases.abort();
        // Streams end with the writer; then connections can end.
        engine.stop().await;
        drop(stop);
        let ended = match ended {
            Some(ended) => ended,
            None => tokio::time::timeout(DRAIN, serving).await.unwrap_or(Ok(())),
        };
        // A panic of the writer has already been printed, and nothing is left to be written.
        let _ = tokio::task::spawn_blocking(move || writer.join()).await;
        if is_broken {
            return Err(ServeError::Broken);
        }
        Ok(ended?)
    }
}

/// Returns the address that clients are told to use. If the server listens on every address, it is
/// one that works on this machine. It has no scheme: `etcdctl --cluster` of 3.4 uses the text
/// unchanged as the name of the server, and the HTTP/2 library here does not accept a name with a
/// scheme.
fn client_url(address: SocketAddr) -> String {
    if address.ip().is_unspecified() { format!("localhost:{}", address.port()) } else { address.to_string() }
}
