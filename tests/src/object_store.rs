//! An S3 server in this process, which counts requests and can be made to misbehave.

use archive::objects::{Credentials, ObjectStore, ObjectStoreConfig};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, HttpError, HttpResponse};
use s3s_fs::FileSystem;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// The bucket that is there.
pub const BUCKET: &str = "bundles";
/// Id of the access key that the server knows.
pub const KEY_ID: &str = "key-of-tests";
/// Secret of that key.
pub const SECRET: &str = "secret-of-tests";

/// What the server does with requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// It serves them.
    Serve,
    /// It refuses them: 403 AccessDenied.
    Refuse,
    /// It has no time: 503 SlowDown.
    Unavailable,
    /// It has no space: 507.
    Full,
    /// It could not order them among others: 409 ConditionalRequestConflict.
    Conflict,
    /// It never answers.
    Hang,
    /// It serves them after this time.
    Slow(Duration),
}

struct State {
    behaviour: Behaviour,
    /// For how many requests; `None` for all.
    left: Option<usize>,
    counts: BTreeMap<(String, String), usize>,
    serialises_creates: bool,
}

/// What all connections share.
struct Shared {
    state: Mutex<State>,
    creates: tokio::sync::Mutex<()>,
    server: S3Service,
}

/// An S3 server at a free loopback port, with one access key and one bucket. It ends with this value.
pub struct ObjectServer {
    port: u16,
    shared: Arc<Shared>,
    directory: tempfile::TempDir,
    /// `None` while the value is dropped.
    runtime: Option<Runtime>,
}

impl ObjectServer {
    /// Starts a server. Like the one of AWS, it lets one of many writers create an object: s3s-fs looks for the object
    /// before it writes and lets several do so, therefore creates wait for each other.
    ///
    /// # Panics
    /// Panics if there is no free port.
    pub fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(directory.path().join(BUCKET)).expect("a bucket");
        let mut builder = S3ServiceBuilder::new(FileSystem::new(directory.path()).expect("a file system"));
        builder.set_auth(SimpleAuth::from_single(KEY_ID, SECRET));
        let state = State {
            behaviour: Behaviour::Serve,
            left: None,
            counts: BTreeMap::new(),
            serialises_creates: true,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            creates: tokio::sync::Mutex::default(),
            server: builder.build(),
        });
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build().expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0))).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        runtime.spawn(accept(listener, shared.clone()));
        Self { port, shared, directory, runtime: Some(runtime) }
    }

    /// Returns the endpoint for clients.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Returns the URL of a prefix in the bucket.
    pub fn url(&self, prefix: &str) -> String {
        format!("s3://{BUCKET}/{prefix}")
    }

    /// Returns the settings of a client for a prefix in the bucket.
    ///
    /// # Panics
    /// Panics if the prefix cannot be one.
    pub fn config(&self, prefix: &str) -> ObjectStoreConfig {
        let mut config = ObjectStoreConfig::new(self.url(prefix).parse().expect("a URL"));
        config.endpoint = Some(self.endpoint());
        config.credentials = Some(Credentials::new(KEY_ID, SECRET));
        config
    }

    /// Returns a client for a prefix in the bucket.
    ///
    /// # Panics
    /// Panics if the prefix cannot be one.
    pub fn store(&self, prefix: &str) -> ObjectStore {
        ObjectStore::open(self.config(prefix)).expect("a store")
    }

    /// Does this with all requests from now on.
    pub fn behave(&self, behaviour: Behaviour) {
        let mut state = self.state();
        (state.behaviour, state.left) = (behaviour, None);
    }

    /// Does this with so many requests, and serves the others.
    pub fn behave_for(&self, count: usize, behaviour: Behaviour) {
        let mut state = self.state();
        (state.behaviour, state.left) = (behaviour, Some(count));
    }

    /// Sets whether creates wait for each other.
    pub fn serialise_creates(&self, value: bool) {
        self.state().serialises_creates = value;
    }

    /// Returns how many requests with a method there were.
    pub fn count(&self, method: &str) -> usize {
        self.state().counts.iter().filter(|((of, _), _)| of == method).map(|(_, count)| count).sum()
    }

    /// Returns how many requests with a method there were for an object of the bucket.
    pub fn count_of(&self, method: &str, key: &str) -> usize {
        let path = format!("/{BUCKET}/{key}");
        self.state().counts.get(&(method.to_owned(), path)).copied().unwrap_or_default()
    }

    /// Returns the number of requests for each method and path.
    pub fn counts(&self) -> BTreeMap<(String, String), usize> {
        self.state().counts.clone()
    }

    /// Returns the path of the file that holds an object of the bucket.
    pub fn file_of(&self, key: &str) -> PathBuf {
        self.directory().join(key)
    }

    /// Returns the directory that holds the objects of the bucket.
    pub fn directory(&self) -> PathBuf {
        Path::new(self.directory.path()).join(BUCKET)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ObjectServer {
    fn drop(&mut self) {
        // Requests that hang are not waited for.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let shared = shared.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(shared.clone(), request));
            let connection =
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            // A client that goes away is no matter of the server.
            let _ = connection.await;
        });
    }
}

/// Counts a request and returns what to do with it.
fn note(state: &mut State, method: &str, path: &str) -> (Behaviour, bool) {
    *state.counts.entry((method.to_owned(), path.to_owned())).or_default() += 1;
    let behaviour = match &mut state.left {
        Some(0) => Behaviour::Serve,
        Some(left) => {
            *left -= 1;
            state.behaviour
        }
        None => state.behaviour,
    };
    (behaviour, state.serialises_creates)
}

async fn answer(shared: Arc<Shared>, request: http::Request<Incoming>) -> Result<HttpResponse, HttpError> {
    let (behaviour, serialises) = {
        let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        note(&mut state, request.method().as_str(), request.uri().path())
    };
    match behaviour {
        Behaviour::Serve => {}
        Behaviour::Slow(time) => tokio::time::sleep(time).await,
        Behaviour::Hang => std::future::pending().await,
        Behaviour::Refuse => return Ok(error(403, "AccessDenied")),
        Behaviour::Unavailable => return Ok(error(503, "SlowDown")),
        Behaviour::Full => return Ok(error(507, "XMinioStorageFull")),
        Behaviour::Conflict => return Ok(error(409, "ConditionalRequestConflict")),
    }
    // s3s-fs says of a missing bucket that the object is missing, and creates the bucket for a new object.
    if request.uri().path().split('/').nth(1) != Some(BUCKET) {
        return Ok(error(404, "NoSuchBucket"));
    }
    let is_create = request.method() == "PUT" && request.headers().contains_key("if-none-match");
    let _alone = if is_create && serialises { Some(shared.creates.lock().await) } else { None };
    shared.server.call(request.map(Body::from)).await
}

/// Returns an error as S3 does.
fn error(status: u16, code: &str) -> HttpResponse {
    let text = format!("<?xml version=\"1.0\"?>\n<Error><Code>{code}</Code><Message>no</Message></Error>");
    let mut response = HttpResponse::new(Body::from(text));
    *response.status_mut() = http::StatusCode::from_u16(status).expect("a status");
    response
}
