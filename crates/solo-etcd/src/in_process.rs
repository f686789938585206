//! A store in this process, reached over connections without sockets, for tests of programs that
//! talk to a store. The connections are HTTP/2 over memory, so clients see a fault of a connection
//! as they see it over a network. All of it runs on tokio's clock: a test that pauses the clock
//! waits for nothing.

use crate::core::{Command, Refusal, Store};
use crate::engine::Engine;
use crate::server;
use crate::solo::DEFAULT_QUOTA_BYTES;
use etcd_client::proto::{PbCompactionRequest, PbRangeRequest};
use etcd_client::{BalancedChannelBuilder, Channel, Client, ConnectOptions, Error};
use hyper_util::rt::TokioIo;
use std::fmt::Debug;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex, split};
use tokio::sync::{mpsc, watch};
use tonic::transport::Endpoint;
use tonic::transport::channel::Change;
use tower::{Service as _, ServiceExt as _, service_fn};

/// Capacity of a connection in each direction, in bytes.
const BUFFER_BYTES: usize = 64 * 1024;

/// What the network between clients and the store does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// The link carries everything.
    Open,
    /// The link refuses attempts to connect. Open connections stay open.
    Refusing,
    /// The link carries nothing, and no connection breaks: nobody answers.
    Silent,
    /// The link carries requests to the store, and no answers to clients.
    WithoutAnswers,
}

#[derive(Debug, Clone, Copy)]
struct Network {
    link: Link,
    /// Number of times that all connections were broken.
    cuts: u64,
    /// If the store is at a later revision than this, the next answer is lost, and the network is
    /// as given.
    loses: Option<(i64, Link)>,
}

/// The direction in which a connection carries bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    ToStore,
    ToClient,
}

/// A store in this process, in memory. Clones are the same store behind the same network.
#[derive(Clone)]
pub struct InProcess(Arc<Inner>);

struct Inner {
    engine: Mutex<Engine>,
    network: watch::Sender<Network>,
}

impl InProcess {
    /// Starts an empty store. It must be called in a tokio runtime.
    pub fn start() -> Self {
        Self::of(start(Store::default()))
    }

    fn of(engine: Engine) -> Self {
        let network = watch::Sender::new(Network { link: Link::Open, cuts: 0, loses: None });
        Self(Arc::new(Inner { engine: Mutex::new(engine), network }))
    }

    fn engine(&self) -> Engine {
        self.0.engine.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns a copy of the whole state.
    pub fn backup(&self) -> Store {
        self.engine().read().clone()
    }

    /// Returns the current revision.
    pub fn revision(&self) -> i64 {
        self.engine().read().revision()
    }

    /// Returns the value that a key had at a revision; `None` if it did not exist, or if the history
    /// is discarded.
    pub fn value_at(&self, key: &str, revision: i64) -> Option<Vec<u8>> {
        let request = PbRangeRequest { key: key.into(), revision, ..PbRangeRequest::default() };
        let found = self.engine().read().range(&request).ok()?;
        found.kvs.into_iter().next().map(|kv| kv.value)
    }

    /// Applies a command, as if a client had sent it. Returns the revision after it.
    ///
    /// # Errors
    /// Returns the refusal of the store.
    pub async fn apply(&self, command: Command) -> Result<i64, Refusal> {
        self.engine().commit(command).await.map(|(_, revision)| revision)
    }

    /// Discards the history before the current revision.
    ///
    /// # Errors
    /// Returns [`Refusal::Compacted`] if it is discarded already.
    pub async fn compact(&self) -> Result<(), Refusal> {
        let request = PbCompactionRequest { revision: self.revision(), physical: true };
        self.apply(Command::Compact(request)).await.map(drop)
    }

    /// Replaces the state by a backup, as if the store had been restored from it. All connections
    /// break.
    pub fn restore(&self, backup: Store) {
        let mut engine = self.0.engine.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *engine, start(backup));
        tokio::spawn(async move { old.stop().await });
        drop(engine);
        self.cut();
    }

    /// Sets what the network does from now on.
    pub fn set_link(&self, link: Link) {
        self.0.network.send_modify(|network| network.link = link);
    }

    /// Breaks all open connections.
    pub fn cut(&self) {
        self.0.network.send_modify(|network| network.cuts += 1);
    }

    /// Breaks all open connections and refuses new ones.
    pub fn disconnect(&self) {
        self.set_link(Link::Refusing);
        self.cut();
    }

    /// Loses the answer to the next request that changes a key: the request is applied, all
    /// connections break instead of the answer, and the network is `then`. Returns a future that
    /// resolves when this has happened.
    pub fn lose_answer(&self, then: Link) -> impl Future<Output = ()> + use<> {
        let mut network = self.0.network.subscribe();
        let cuts = network.borrow().cuts;
        let revision = self.revision();
        self.0.network.send_modify(|network| network.loses = Some((revision, then)));
        let store = self.clone();
        async move {
            // The sender lives as long as `store`.
            let _ = network.wait_for(|network| network.cuts != cuts).await;
            drop(store);
        }
    }

    /// Returns the same store behind a network without faults. After a restore it must be called
    /// again.
    pub fn without_faults(&self) -> Self {
        Self::of(self.engine())
    }

    /// Returns a client that is connected under this name of an endpoint.
    ///
    /// # Errors
    /// Returns the error of the client library.
    pub async fn connect(&self, endpoint: &str, options: ConnectOptions) -> Result<Client, Error> {
        Client::connect_with_balanced_channel([endpoint], Some(options), self.clone()).await
    }

    /// Opens a connection for a client.
    async fn open_connection(self) -> io::Result<TokioIo<DuplexStream>> {
        let mut network = self.0.network.subscribe();
        // The sender lives as long as `self`.
        let cuts = match network.wait_for(|network| network.link != Link::Silent).await {
            Ok(network) if network.link != Link::Refusing => network.cuts,
            _ => return Err(io::ErrorKind::ConnectionRefused.into()),
        };
        let (client, client_end) = duplex(BUFFER_BYTES);
        let (server, server_end) = duplex(BUFFER_BYTES);
        let router = server::router(self.engine(), "in-process".to_owned());
        tokio::spawn(router.serve_with_incoming(tokio_stream::once(Ok::<_, io::Error>(server))));
        tokio::spawn(self.carry(client_end, server_end, cuts));
        Ok(TokioIo::new(client))
    }

    /// Carries a connection until one side closes it or all connections are broken.
    async fn carry(self, client: DuplexStream, server: DuplexStream, cuts: u64) {
        let mut network = self.0.network.subscribe();
        let (from_client, to_client) = split(client);
        let (from_server, to_server) = split(server);
        tokio::select! {
            // A connection that breaks delivers nothing more.
            biased;
            _ = network.wait_for(|network| network.cuts != cuts) => {}
            _ = self.forward(Direction::ToStore, from_client, to_server) => {}
            _ = self.forward(Direction::ToClient, from_server, to_client) => {}
        }
    }

    async fn forward(
        &self,
        direction: Direction,
        mut from: ReadHalf<DuplexStream>,
        mut to: WriteHalf<DuplexStream>,
    ) -> io::Result<()> {
        let mut network = self.0.network.subscribe();
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let length = from.read(&mut buffer).await?;
            if length == 0 {
                return Ok(());
            }
            let carries = |network: &Network| match network.link {
                Link::Open | Link::Refusing => true,
                Link::Silent => false,
                Link::WithoutAnswers => direction == Direction::ToStore,
            };
            // An error means that the store does not exist any more.
            network.wait_for(carries).await.map_err(|_| io::ErrorKind::ConnectionReset)?;
            if direction == Direction::ToClient && self.loses_answer() {
                return Ok(());
            }
            to.write_all(&buffer[..length]).await?;
        }
    }

    /// Breaks all connections if an answer is to be lost now.
    fn loses_answer(&self) -> bool {
        let revision = self.revision();
        self.0.network.send_if_modified(|network| match network.loses {
            Some((after, then)) if revision > after => {
                (network.link, network.loses) = (then, None);
                network.cuts += 1;
                true
            }
            _ => false,
        })
    }
}

/// Longest time, on the paused clock, after which a condition of a test must hold.
pub const LIMIT: Duration = Duration::from_secs(300);

/// Waits until the value in a channel fulfils a condition, and returns that value.
///
/// # Panics
/// Panics with `what` and the last value if the condition does not hold within [`LIMIT`], or if the
/// sender is gone.
pub async fn wait_until<T: Clone + Debug>(
    receiver: &mut watch::Receiver<T>,
    what: &str,
    is_so: impl FnMut(&T) -> bool,
) -> T {
    match tokio::time::timeout(LIMIT, receiver.wait_for(is_so)).await {
        Ok(Ok(value)) => return value.clone(),
        Ok(Err(_)) => panic!("{what}: the task has ended"),
        Err(_) => {}
    }
    panic!("{what}: not within {LIMIT:?}: {:?}", receiver.borrow())
}

/// Starts a store with the task that ends its leases.
fn start(store: Store) -> Engine {
    let engine = Engine::start_task(store, DEFAULT_QUOTA_BYTES);
    tokio::spawn(engine.clone().end_leases());
    engine
}

impl BalancedChannelBuilder for InProcess {
    type Error = Error;

    /// Returns a channel that uses the first endpoint that it is given.
    fn balanced_channel(
        self,
        buffer_size: usize,
    ) -> Result<(Channel, mpsc::Sender<Change<axum::http::Uri, Endpoint>>), Error> {
        let (updates, mut endpoints) = mpsc::channel(buffer_size);
        let (sender, channels) = watch::channel(None);
        tokio::spawn(async move {
            if let Some(Change::Insert(_, endpoint)) = endpoints.recv().await {
                let endpoint: Endpoint = endpoint;
                let connector = service_fn(move |_| self.clone().open_connection());
                sender.send_replace(Some(endpoint.connect_with_connector_lazy(connector)));
            }
            // The client fails if this end of the updates is closed.
            while endpoints.recv().await.is_some() {}
        });
        let service = service_fn(move |request| {
            let mut channels = channels.clone();
            async move {
                let channel = channels.wait_for(Option::is_some).await?.clone();
                let Some(mut channel) = channel else { return Err("no endpoint".into()) };
                Ok(channel.ready().await?.call(request).await?)
            }
        });
        Ok((Channel::Custom(tower::util::BoxCloneSyncService::new(service)), updates))
    }
}
