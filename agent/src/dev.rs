//! `--dev`: runs the embedded store and one agent in one process, in a directory of their own, to
//! try things out.

use crate::config;
use anyhow::{Context, Result};
use solo_etcd::{DEFAULT_QUOTA_BYTES, Solo, Storage};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// etcd's client port. If it is in use, the system chooses another one.
const STORE_PORT: u16 = 2379;

/// Default port of the DNS server. If it is in use, the system chooses another one.
const DNS_PORT: u16 = 8600;

/// Definition of a first service, whose check always passes.
const WEB_SERVICE: &str = r#"# A service of this host, and how it is found out whether it works. Changed while the agent runs, it counts at once.

[[service]]
name = "web"
port = 8080

[[service.check]]
command = ["/usr/bin/test", "-e", "/proc/self"]
interval = "5s"
"#;

/// Settings of a new directory; `@` is replaced by the path of the directory.
const SETTINGS: &str = r#"# One agent for development; `orchestrate-agent --dev` gives it the store. Change what a version does here,
# and send SIGHUP or start it again.

host = "dev"
role = "development"
state_directory = "@/state"
version_file = "@/current_version"

[identity]
machine_id_file = "@/machine-id"

[validation]
every = "10s"

[services]
directories = ["@/services.d"]
addresses = ["127.0.0.1"]

[[apply]]
name = "install"
command = ["/bin/sh", "-c", 'echo "version $ORCHESTRATE_STEP_VERSION" > "@/installed"']

[[validate]]
name = "installed"
command = ["/bin/sh", "-c", 'grep -qx "version $ORCHESTRATE_STEP_VERSION" "@/installed"']
"#;

/// Runs the store and the agent until the agent is told to stop.
///
/// # Errors
/// Returns an error if the directory cannot be used or another process uses it, and the errors of
/// the store and the agent.
pub async fn run(directory: &Path) -> Result<()> {
    let shown = || format!("the directory {}", directory.display());
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).with_context(shown)?;
    let directory = directory.canonicalize().with_context(shown)?;
    let path = directory.join("agent.toml");
    write_new(&path, &SETTINGS.replace('@', &directory.display().to_string()))?;
    write_new(&directory.join("machine-id"), &format!("{}\n", etcd_session::random_token()))?;
    let mut settings = config::load(&path)?;

    let services = directory.join("services.d");
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&services).with_context(shown)?;
    write_new(&services.join("web.toml"), WEB_SERVICE)?;
    let listener = listen(STORE_PORT).await.context("listening for the store")?;
    // Consul or another agent may use the default port; the system chooses another one then.
    let free = listen(DNS_PORT).await.context("listening for DNS")?.local_addr()?;
    settings.dns.listen = vec![free];
    let endpoint = format!("http://{}", listener.local_addr()?);
    settings.store.endpoints = Some(vec![endpoint.clone()]);
    let (stop, stopped) = oneshot::channel::<()>();
    let store = Solo::open(&Storage::Directory(directory.join("store")))?;
    print_next_steps(&directory, &endpoint, settings.http_listen, free)?;
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

fn write_new(path: &Path, text: &str) -> Result<()> {
    match std::fs::OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(mut file) => file.write_all(text.as_bytes()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
    .with_context(|| path.display().to_string())
}

async fn listen(port: u16) -> std::io::Result<TcpListener> {
    let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    match TcpListener::bind(at(port)).await {
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => TcpListener::bind(at(0)).await,
        other => other,
    }
}

fn print_next_steps(directory: &Path, endpoint: &str, http: SocketAddr, dns: SocketAddr) -> Result<()> {
    let directory = directory.display();
    let (name_server, port) = (dns.ip(), dns.port());
    let text = format!(
        "A store and one agent, in {directory}. In another shell:\n\n  \
         export ORCHESTRATE_ENDPOINTS={endpoint}\n  \
         orchestrate trigger_update 1\n  \
         orchestrate status\n  \
         cat {directory}/installed\n  \
         orchestrate why dev\n  \
         orchestrate services show web\n  \
         dig @{name_server} -p {port} web.service.consul SRV\n  \
         curl -s http://{http}/v1/services/web\n  \
         curl -s http://{http}/status\n  \
         ETCDCTL_API=3 etcdctl --endpoints {endpoint} get --prefix /\n\n\
         What a version does stands in {directory}/agent.toml. Ctrl-C ends both.\n"
    );
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("standard output")
}
