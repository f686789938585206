//! `--dev`: runs the embedded store and one agent in one process, in a directory of their own, to
//! try things out.

use crate::config;
use anyhow::{Context, Result};
use settings::Settings;
use solo_etcd::{DEFAULT_QUOTA_BYTES, Solo, Storage};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// etcd's client port, where the command looks for the store.
const STORE_PORT: u16 = 2379;

/// Default port of the DNS server.
const DNS_PORT: u16 = 8600;

/// Settings of a host; `@name` stands for its name, and `@` for its directory.
const SETTINGS: &str = include_str!("dev/agent.toml");

/// What the second host has besides: where the store is, and addresses of its own.
const SECOND: &str = include_str!("dev/second.toml");

/// Definition of a first service.
const WEB_SERVICE: &str = include_str!("dev/web.toml");

/// What the reader may try.
const GUIDE: &str = include_str!("dev/guide.txt");

/// What is ready to run.
struct Prepared {
    path: PathBuf,
    settings: Settings,
    store: Solo,
    listener: TcpListener,
}

/// Runs the store and the agent until the agent is told to stop. A directory that did not exist before is
/// removed if its content or the ports cannot be prepared.
///
/// # Errors
/// Returns an error if the directory cannot be used or another process uses it, and the errors of
/// the store and the agent.
pub async fn run(directory: &Path) -> Result<()> {
    // Only the start that creates the directory may remove it.
    let is_new = std::fs::DirBuilder::new().mode(0o700).create(directory).is_ok();
    let prepared = prepare(directory).await;
    if prepared.is_err() && is_new {
        // The error of the start is the one to report.
        let _ = std::fs::remove_dir_all(directory);
    }
    let Prepared { path, settings, store, listener } = prepared?;
    let (stop, stopped) = oneshot::channel::<()>();
    let mut store = tokio::spawn(store.serve(listener, DEFAULT_QUOTA_BYTES, async {
        // An error means that the sender was dropped; the store stops then as well.
        let _ = stopped.await;
    }));
    tokio::select! {
        ended = crate::run(path, settings) => {
            drop(stop);
            store.await.context("the store's task")??;
            ended
        }
        // The store ends before the agent only if it fails.
        ended = &mut store => Ok(ended.context("the store's task")??),
    }
}

/// Writes what is missing in the directory, chooses ports and opens the store.
async fn prepare(directory: &Path) -> Result<Prepared> {
    let directory = create(directory)?;
    let path = write_host(&directory, "dev")?;
    let web = WEB_SERVICE.replace('@', &directory.display().to_string());
    write_new(&create(&directory.join("services.d"))?.join("web.toml"), &web)?;
    write_new(&directory.join("web-works"), "")?;

    let mut settings = config::load(&path)?;
    // All are open until the last one is chosen, so that they differ.
    let listener = listen(local(STORE_PORT)).await.context("listening for the store")?;
    let http = listen(settings.http_listen).await.context("listening for HTTP")?;
    let dns = listen(local(DNS_PORT)).await.context("listening for DNS")?;
    let others = [listen(local(0)).await?, listen(local(0)).await?];
    let store = Solo::open(&Storage::Directory(directory.join("store")))?;
    let endpoint = format!("http://{}", listener.local_addr()?);
    settings.store.endpoints = Some(vec![endpoint.clone()]);
    settings.http_listen = http.local_addr()?;
    settings.dns.listen = vec![dns.local_addr()?];

    let second = create(&directory.join("second"))?;
    write_host(&second, "dev-2")?;
    let addresses = SECOND
        .replace("@endpoint", &endpoint)
        .replace("@http", &others[0].local_addr()?.to_string())
        .replace("@dns", &others[1].local_addr()?.to_string());
    // They differ from start to start.
    let path_of_addresses = create(&second.join("agent.d"))?.join("addresses.toml");
    std::fs::write(&path_of_addresses, addresses).with_context(|| path_of_addresses.display().to_string())?;
    print_guide(&directory, &endpoint, dns.local_addr()?)?;
    Ok(Prepared { path, settings, store, listener })
}

/// Creates a directory if it does not exist; returns its absolute path.
fn create(directory: &Path) -> Result<PathBuf> {
    let shown = || format!("the directory {}", directory.display());
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).with_context(shown)?;
    directory.canonicalize().with_context(shown)
}

/// Writes the settings of a host if they do not exist; returns their path.
fn write_host(directory: &Path, name: &str) -> Result<PathBuf> {
    let path = directory.join("agent.toml");
    let text = SETTINGS.replace("@name", name).replace('@', &directory.display().to_string());
    write_new(&path, &text)?;
    write_new(&directory.join("machine-id"), &format!("{}\n", etcd_session::random_token()))?;
    Ok(path)
}

fn write_new(path: &Path, text: &str) -> Result<()> {
    match std::fs::OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(mut file) => file.write_all(text.as_bytes()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
    .with_context(|| path.display().to_string())
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// Listens on an address, or on a port that the system chooses if another program uses this one.
async fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    match TcpListener::bind(address).await {
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            TcpListener::bind((address.ip(), 0)).await
        }
        other => other,
    }
}

fn print_guide(directory: &Path, endpoint: &str, dns: SocketAddr) -> Result<()> {
    let text = GUIDE
        .replace("@exports", &exports(endpoint))
        .replace("@directory", &directory.display().to_string())
        .replace("@endpoint", endpoint)
        .replace("@dns_port", &dns.port().to_string());
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("standard output")
}

/// Returns the lines by which another shell finds the programs and the store; none if it finds them anyway.
fn exports(endpoint: &str) -> String {
    let has_command = |directory: &Path| directory.join("orchestrate").exists();
    let own = std::env::current_exe().unwrap_or_default();
    let own = own.parent().filter(|directory| has_command(directory));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let first = std::env::split_paths(&path).find(|directory| has_command(directory));
    let mut lines = String::new();
    if let Some(own) = own.filter(|own| first.as_deref() != Some(own)) {
        lines += &format!("  export PATH={}:$PATH\n", own.display());
    }
    if endpoint != format!("http://127.0.0.1:{STORE_PORT}") {
        lines += &format!("  export ORCHESTRATE_ENDPOINTS={endpoint}\n");
    }
    if lines.is_empty() { lines } else { lines + "\n" }
}
