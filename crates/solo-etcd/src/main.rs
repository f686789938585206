//! The program `solo-etcd`: serves the embedded store, or exports it.

use clap::{Args, Parser, Subcommand};
use solo_etcd::{DEFAULT_QUOTA_BYTES, OpenError, Solo, Storage};
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

const EX_USAGE: u8 = 64;
const EX_IN_USE: u8 = 2;

/// A single-node store that speaks the etcd v3 API, for one machine. A fleet uses etcd.
///
/// Exit codes: 0 ended as asked, 1 failed, 2 another process uses the directory, 64 wrong usage.
#[derive(Parser)]
#[command(name = "solo-etcd", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(flatten)]
    serve: Serve,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Args)]
struct Serve {
    /// Where to listen; a port of 0 is chosen by the system and printed
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:2379")]
    listen: SocketAddr,
    /// Keep the data in this directory
    #[arg(
        long,
        value_name = "DIRECTORY",
        conflicts_with = "in_memory",
        required_unless_present = "in_memory"
    )]
    data_dir: Option<PathBuf>,
    /// Keep the data nowhere: it is gone with the process
    #[arg(long)]
    in_memory: bool,
    /// Raise the alarm NOSPACE above so many bytes
    #[arg(long, value_name = "BYTES", default_value_t = DEFAULT_QUOTA_BYTES)]
    quota_backend_bytes: u64,
}

#[derive(Subcommand)]
enum Verb {
    /// Write every key of a stopped store into an etcd, to grow out of one machine
    Export {
        /// The directory of the store
        #[arg(long, value_name = "DIRECTORY")]
        data_dir: PathBuf,
        /// Endpoints of the etcd, separated by commas
        #[arg(long, value_name = "ENDPOINTS", value_delimiter = ',', required = true)]
        to: Vec<String>,
    },
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Nothing can be done if standard error is closed.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(EX_USAGE) } else { ExitCode::SUCCESS };
        }
    };
    let filter = EnvFilter::try_from_env("SOLO_ETCD_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return report_error(&format!("no runtime: {error}"), 1),
    };
    let result = runtime.block_on(async {
        match cli.verb {
            Some(Verb::Export { data_dir, to }) => export(data_dir, to).await,
            None => serve(cli.serve).await,
        }
    });
    runtime.shutdown_background();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report_error(&format!("{error:#}"), if is_in_use(&error) { EX_IN_USE } else { 1 }),
    }
}

fn is_in_use(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(OpenError::InUse(_)))
}

async fn serve(options: Serve) -> anyhow::Result<()> {
    let storage = options.data_dir.map_or(Storage::Memory, Storage::Directory);
    let store = Solo::open(&storage)?;
    let listener = TcpListener::bind(options.listen)
        .await
        .map_err(|error| anyhow::anyhow!("listening on {}: {error}", options.listen))?;
    let address = listener.local_addr()?;
    warn(&who_may(address));
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    print(&format!("listening on {address}"))?;
    let stop = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    Ok(store.serve(listener, options.quota_backend_bytes, stop).await?)
}

/// Returns who may use the store: it has no users and no TLS.
fn who_may(address: SocketAddr) -> String {
    if address.ip().is_loopback() {
        "the store has no users: every user of this machine can read and write all data".into()
    } else {
        format!("{address} is not a loopback address: everybody who can reach it can read and write all data")
    }
}

async fn export(data_dir: PathBuf, to: Vec<String>) -> anyhow::Result<()> {
    let exported = solo_etcd::export(&data_dir, &to).await?;
    print(&format!(
        "{} keys written, {} that hang on a lease left behind: who wrote them writes them again.\n\
         Now point the agents at the new endpoints, and when they say that they are blocked there:\n  \
         orchestrate store accept --version VERSION",
        exported.written, exported.leased
    ))
}

fn print(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

#[allow(clippy::print_stderr, reason = "a program for people at a terminal")]
fn warn(line: &str) {
    eprintln!("solo-etcd: warning: {line}");
}

#[allow(clippy::print_stderr, reason = "the one place where this program complains")]
fn report_error(message: &str, code: u8) -> ExitCode {
    eprintln!("solo-etcd: {message}");
    ExitCode::from(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_says_who_may_use_a_store_without_users() {
        for (address, expected) in [
            ("127.0.0.1:2379", "every user of this machine"),
            ("[::1]:2379", "every user of this machine"),
            ("0.0.0.0:2379", "everybody who can reach it"),
            ("10.0.0.1:2379", "everybody who can reach it"),
        ] {
            let warning = who_may(address.parse().unwrap());
            assert!(warning.contains(&format!("{expected} can read and write all data")), "{warning}");
        }
    }
}
