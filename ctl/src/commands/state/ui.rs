//! `ui`: shows the fleet in a browser, by an observer that ends with this command.

use crate::commands::context::Store;
use crate::commands::verb::{About, Answer, Group, Past, Spec, Verb};
use crate::exit::{Exit, Failure};
use crate::output::{self, Output};
use crate::settings::Settings;
use anyhow::Context;
use clap::Args;
use etcd_session::{EndpointSource, Secret};
use rustix::fs::{MemfdFlags, memfd_create};
use schema::reads::Keys;
use serde_json::json;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

/// Where the program that shows the fleet is, seen from this program: beside it, or where the package has daemons. One
/// from the PATH could be anybody's.
const PLACES: [&str; 2] = ["orchestrate-observer", "../sbin/orchestrate-observer"];

/// What the observer need not inherit: its settings have it.
const SECRET_VARIABLES: [&str; 4] =
    ["ORCHESTRATE_USER", "ORCHESTRATE_PASSWORD", "ETCDCTL_USER", "ETCDCTL_PASSWORD"];

/// Show the fleet in a browser on this machine
#[derive(Debug, Args)]
pub(crate) struct Ui {
    /// Port on the loopback address [default: a free one]
    #[arg(long, value_name = "PORT")]
    listen: Option<u16>,
}

impl Verb for Ui {
    const SPEC: Spec = Spec {
        name: "ui",
        group: Group::Fleet,
        about: About::Other,
        past: Past::DoesNotRead,
        exits: &[],
        answer: Answer::NotJson,
        examples: &[("orchestrate ui", "print the address of a page that shows the fleet")],
    };

    /// Runs an observer until this command is interrupted.
    async fn run(self, store: &Store<'_>, _: &mut Output) -> Result<Exit, Failure> {
        let own = std::env::current_exe().context("the path of this program")?;
        let places = PLACES.map(|place| own.with_file_name(place));
        let Some(program) = places.iter().find(|place| place.is_file()) else {
            let message =
                format!("{} is missing: the package orchestrate-observer has it", places[0].display());
            return Err(Failure::cannot_tell(message));
        };
        // The page could only say that the store, or a part of what the observer reads, cannot be read.
        for keys in Keys::all() {
            match keys {
                Keys::One(key) => _ = store.session.read_keys(&[key], store.deadline).await?,
                Keys::Below(range) => {
                    _ = store.session.read_short_key_list(&range, 1, store.deadline).await?;
                }
            }
        }
        // Only this user can enter it. The token of the observer is in it.
        let directory =
            tempfile::Builder::new().prefix("orchestrate-ui.").tempdir().context("a directory")?;
        let settings = store.settings;
        // The observer inherits the file, which has no name that others could open.
        let password =
            settings.session.user.as_ref().map(|(_, password)| unnamed_file(password)).transpose()?;
        let text = observer_settings(&self, settings, directory.path(), password.as_ref())?;
        let file = directory.path().join("observer.toml");
        std::fs::write(&file, text).with_context(|| file.display().to_string())?;
        let interrupted = interrupted().context("signals")?;
        let mut command = Command::new(program);
        command.arg("--attached").arg("--config").arg(&file);
        SECRET_VARIABLES.iter().for_each(|name| _ = command.env_remove(name));
        // It ends at the end of its input, so it ends with this command, however that ends.
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn();
        let child = child.with_context(|| program.display().to_string())?;
        // Ctrl-C reaches the observer, too.
        tokio::select! {
            biased;
            () = interrupted => Ok(Exit::Yes),
            shown = show(child, directory.path()) => shown,
        }
    }
}

/// Prints where the page is, and waits until the observer ends, which it does only if something is wrong.
async fn show(mut child: Child, directory: &Path) -> Result<Exit, Failure> {
    // It must stay open.
    let _input = child.stdin.take();
    let address = match child.stdout.take() {
        Some(printed) => BufReader::new(printed).lines().next_line().await.context("the observer")?,
        None => None,
    };
    if let Some(address) = address {
        let token = directory.join("token");
        let token = std::fs::read_to_string(&token).with_context(|| token.display().to_string())?;
        // Browsers send no part of an address after its # to anybody.
        let url = format!("{address}/#t={}", token.trim());
        writeln!(std::io::stdout(), "{url}").context("standard output")?;
        output::note("open this address in a browser on this machine; Ctrl-C ends it");
    }
    let status = child.wait().await.context("the observer")?;
    Err(Failure::cannot_tell(format!("the observer has ended: {status}")))
}

/// Resolves when this command is interrupted.
fn interrupted() -> std::io::Result<impl Future<Output = ()>> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hangup.recv() => {}
        }
    })
}

/// Returns a file in memory that holds the secret.
fn unnamed_file(secret: &Secret) -> Result<File, Failure> {
    let descriptor = memfd_create("password", MemfdFlags::empty()).context("a file in memory")?;
    let mut file = File::from(descriptor);
    secret.write_to(&mut file).context("a file in memory")?;
    Ok(file)
}

/// Returns the settings of the observer: the store of this command, and a directory of its own.
fn observer_settings(
    Ui { listen }: &Ui,
    settings: &Settings,
    directory: &Path,
    password: Option<&File>,
) -> Result<String, Failure> {
    let session = &settings.session;
    // A file that is named relative to the present directory.
    let path = |path: &Path| {
        let path = std::path::absolute(path).context("a path")?;
        let text = path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?;
        Ok::<_, Failure>(json!(text))
    };
    let mut store = match &session.endpoints {
        EndpointSource::List(endpoints) => vec![("endpoints", json!(endpoints))],
        EndpointSource::File(file) => vec![("endpoints_file", path(file)?)],
        EndpointSource::Srv(domain) => vec![("discovery_srv", json!(domain))],
        EndpointSource::Discovery { url, port } => {
            vec![("discovery_url", json!(url)), ("discovery_port", json!(port))]
        }
    };
    let tls = &session.tls;
    for (name, file) in [("cacert", &tls.cacert), ("cert", &tls.cert), ("key", &tls.key)] {
        if let Some(file) = file {
            store.push((name, path(file)?));
        }
    }
    store.push(("namespace", json!(session.namespace)));
    if let (Some((user, _)), Some(password)) = (&session.user, password) {
        store.push(("user", json!(user)));
        store.push(("password_file", json!(format!("/proc/self/fd/{}", password.as_raw_fd()))));
    }
    let address = format!("127.0.0.1:{}", listen.unwrap_or(0));
    let mut text = String::new();
    // Strings and lists of JSON are the same in TOML.
    let mut add = |name: &str, value: serde_json::Value| text.push_str(&format!("{name} = {value}\n"));
    add("state_directory", path(directory)?);
    add("http.listen", json!(address));
    add("http.token_file", path(&directory.join("token"))?);
    add("log.level", json!("warn"));
    store.into_iter().for_each(|(name, value)| add(&format!("store.{name}"), value));
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::GlobalOptions;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        global: GlobalOptions,
    }

    fn check(arguments: &str, expected: &[&str]) {
        let line = Line::parse_from(["x"].into_iter().chain(arguments.split_whitespace()));
        let settings = Settings::resolve(&line.global, |_| None).unwrap();
        let password = settings.session.user.as_ref().map(|(_, secret)| unnamed_file(secret).unwrap());
        let ui = Ui { listen: Some(8590) };
        let text = observer_settings(&ui, &settings, Path::new("/tmp/x"), password.as_ref()).unwrap();
        for line in expected {
            assert!(text.lines().any(|found| found == *line), "{line}: {text}");
        }
        assert!(!text.contains("secret"), "{text}");
        let read = settings::read_observer("o.toml", &text).unwrap();
        assert_eq!(read.http_listen.to_string(), "127.0.0.1:8590");
        if let Some(file) = read.store.password_file {
            assert!(Secret::read_file(&file).unwrap().is("secret"));
        }
    }

    #[test]
    fn the_observer_reads_the_store_of_the_command() {
        check("", &["store.endpoints = [\"127.0.0.1:2379\"]"]);
        check("--endpoints https://a:1,b --cacert /ca", &["store.cacert = \"/ca\""]);
        check("--discovery-srv example.org --namespace /x", &["store.namespace = \"/x\""]);
        check("--user viewer:secret", &["store.user = \"viewer\""]);
    }
}
