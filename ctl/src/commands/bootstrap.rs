//! `bootstrap`: the first settings of a host, as a file of their own beside those of the site. Nothing is written before it is known
//! that an agent with them can work.

use super::Store;
use super::hosts::Said;
use crate::exit::{Exit, Failure};
use crate::local;
use crate::output::{self, Output};
use crate::settings;
use anyhow::{Context as _, anyhow};
use etcd_session::{EndpointSource, SessionConfig};
use model::keys::Key;
use model::names::{HostName, Version};
use model::server_version;
use model::settings::{Initial, StoreSettings};
use model::values::{self, LiveClaim};
use serde_json::json;
use std::path::{Path, PathBuf};

/// The first fragment by name: what a site writes into others wins.
const FRAGMENT: &str = "00-bootstrap.toml";
const PASSWORD: &str = "store-password";

const SETTINGS: &str = "# The settings of the orchestrate agent; fragments in agent.d/*.toml are read after this file, in name order.\n";

/// What is wanted.
pub(super) struct Wish {
    /// The host is the first, and its store is on it.
    pub(super) first: bool,
    /// Where settings stand.
    pub(super) directory: PathBuf,
    /// The name of the host, if it is not the machine's own.
    pub(super) hostname: Option<String>,
    /// What is said of it.
    pub(super) said: Said,
    /// Settings that an earlier invocation wrote may be replaced.
    pub(super) replace: bool,
}

/// Writes the settings, and prints what starts the agent with them.
pub(super) async fn bootstrap(wish: Wish, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
    let config = &store.settings.session;
    let is_default = config.endpoints == settings::default_endpoints();
    if wish.first != is_default {
        return Err(Failure::usage(anyhow!(if wish.first {
            "--first is for a store on this machine; other endpoints were given"
        } else {
            "say where the store of the fleet is (--endpoints and its like), or --first for a store on this machine"
        })));
    }
    let host = store.settings.host(wish.hostname.as_deref())?;
    let is_own = rustix::system::uname().nodename().to_bytes() == host.as_str().as_bytes();
    let files = Files::of(&wish.directory)?;
    let password = config.user.as_ref().map(|_| files.directory.join(PASSWORD));
    let initial = Initial {
        host: (!is_own).then(|| host.clone()),
        role: wish.said.role,
        group: wish.said.group,
        labels: wish.said.labels,
        store: store_settings(config, password.clone())?,
    };
    let text = format!(
        "# Written by `orchestrate bootstrap`. Settings in files that sort after this one win.\n{}",
        initial.to_toml()
    );
    let changed = files.check(&initial, &text, wish.replace)?;
    let found = look(&host, wish.first, store).await?;
    files.make_directories()?;
    if let (Some((_, secret)), Some(path)) = (&config.user, &password) {
        let trouble = || path.display().to_string();
        local::replace_secret(path, |file| secret.write_to(file)).with_context(trouble).map_err(no)?;
    }
    files.write(&text, changed)?;
    let mut next = Vec::new();
    if found.is_none() {
        next.push("systemctl enable --now solo-etcd");
    }
    next.extend(["systemctl enable orchestrate-agent", "systemctl restart orchestrate-agent"]);
    let desired = found.as_ref().and_then(|found| found.desired.as_ref());
    let answer = json!({
        "file": files.fragment(),
        "changed": changed,
        "host": host,
        "store_answers": found.is_some(),
        "revision": found.as_ref().map(|found| found.revision),
        "current_version": desired.and_then(|desired| desired.as_ref().ok()),
        "next": next,
    });
    output.answer(&answer, |o| next.iter().for_each(|line| o.line(line)));
    let state = if changed { "written" } else { "unchanged" };
    output::note(&format!("{}: {state}", files.fragment().display()));
    match found.and_then(|found| found.desired) {
        Some(Ok(version)) => output::note(&format!("the fleet shall run {version}")),
        Some(Err(why)) => output::warn(&format!("{} is not a version: {why}", Key::CurrentVersion)),
        None => output::note("nothing is triggered yet: orchestrate trigger_update VERSION"),
    }
    Ok(Exit::Yes)
}

fn no(error: anyhow::Error) -> Failure {
    Failure { exit: Exit::No, error }
}

/// What the store says.
struct Found {
    revision: i64,
    /// What the fleet shall run, if anything.
    desired: Option<Result<Version, String>>,
}

/// Asks the store with what the agent will ask it with. `None`: there is none on this machine yet.
async fn look(host: &HostName, first: bool, store: &Store<'_>) -> Result<Option<Found>, Failure> {
    let keys = [Key::CurrentVersion, Key::Live(host.clone())];
    if first && !settings::somebody_listens_here() {
        return Ok(None);
    }
    let picture = store.session.read_keys(&keys, store.deadline).await?;
    let version = store.session.server_version(store.deadline).await.ok();
    version.as_deref().and_then(server_version::warning).iter().for_each(|text| output::warn(text));
    let claim = picture.get(&keys[1]).and_then(|entry| values::read::<LiveClaim>(&entry.value).ok());
    if let Some(claim) = claim.filter(|claim| Some(&claim.machine_id) != machine_id().as_ref()) {
        return Err(Failure::refused(format!(
            "the fleet has a host {host} already, and it is alive: {claim}; give this one another name by --hostname"
        )));
    }
    let desired = picture.get(&Key::CurrentVersion).map(|entry| values::read_version(&entry.value));
    Ok(Some(Found { revision: picture.revision, desired }))
}

fn machine_id() -> Option<String> {
    Some(local::read(Path::new("/etc/machine-id")).ok()??.trim().to_owned())
}

/// What the agent has to be told to reach the store as this invocation does.
fn store_settings(config: &SessionConfig, password_file: Option<PathBuf>) -> Result<StoreSettings, Failure> {
    let absolute = |path: &Option<PathBuf>| {
        let full = path.as_ref().map(|path| std::path::absolute(path).context(path.display().to_string()));
        full.transpose().map_err(no)
    };
    let mut settings = StoreSettings {
        cacert: absolute(&config.tls.cacert)?,
        cert: absolute(&config.tls.cert)?,
        key: absolute(&config.tls.key)?,
        user: config.user.as_ref().map(|(name, _)| name.clone()),
        password_file,
        namespace: config.namespace.clone(),
        ..StoreSettings::default()
    };
    match config.endpoints.clone() {
        EndpointSource::List(list) => settings.endpoints = Some(list),
        EndpointSource::File(path) => settings.endpoints_file = absolute(&Some(path))?,
        EndpointSource::Srv(domain) => settings.discovery_srv = Some(domain),
        EndpointSource::Discovery { url, port } => {
            (settings.discovery_url, settings.discovery_port) = (Some(url), port);
        }
    }
    Ok(settings)
}

/// The settings on disk, where the agent looks for them.
struct Files {
    directory: PathBuf,
    /// Names and texts, in the order in which the agent reads them; without ours.
    others: Vec<(PathBuf, String)>,
    ours: Option<String>,
}

impl Files {
    fn of(directory: &Path) -> Result<Self, Failure> {
        let directory = std::path::absolute(directory).context("--directory").map_err(no)?;
        let mut files = Self { directory, others: Vec::new(), ours: None };
        for path in local::settings_files(&files.directory) {
            let text = local::read_up_to(&path, local::SETTINGS_MAX_BYTES);
            let text = text.with_context(|| path.display().to_string()).map_err(no)?.unwrap_or_default();
            if path == files.fragment() {
                files.ours = Some(text);
            } else {
                files.others.push((path, text));
            }
        }
        Ok(files)
    }

    fn fragment(&self) -> PathBuf {
        self.directory.join("agent.d").join(FRAGMENT)
    }

    /// Whether there is anything to write, if it may be written and does what it says.
    fn check(&self, initial: &Initial, text: &str, replace: bool) -> Result<bool, Failure> {
        let changed = self.ours.as_deref() != Some(text);
        if changed && self.ours.is_some() && !replace {
            let shown = self.fragment();
            return Err(Failure::refused(format!(
                "{} says something else; --replace replaces it",
                shown.display()
            )));
        }
        let mut all = self.others.clone();
        all.push((self.fragment(), text.to_owned()));
        // As the agent does: the one file first, then fragments by name.
        all.sort_by_key(|(path, _)| (path.parent() != Some(&self.directory), path.clone()));
        let all: Vec<_> = all.into_iter().map(|(path, text)| (path.display().to_string(), text)).collect();
        initial.check(&all).map_err(|error| {
            let others = self.others.iter().map(|(path, _)| path.display().to_string());
            Failure::no(format!("{error}; look at {}", others.collect::<Vec<_>>().join(", ")))
        })?;
        Ok(changed)
    }

    fn make_directories(&self) -> Result<(), Failure> {
        for name in ["agent.d", "services.d", "templates"] {
            let path = self.directory.join(name);
            std::fs::create_dir_all(&path).with_context(|| path.display().to_string()).map_err(no)?;
        }
        Ok(())
    }

    fn write(&self, text: &str, changed: bool) -> Result<(), Failure> {
        let settings = self.directory.join("agent.toml");
        let written = [(settings.clone(), SETTINGS, !settings.exists()), (self.fragment(), text, changed)];
        for (path, text, wanted) in written {
            if wanted {
                let trouble = || path.display().to_string();
                local::replace(&path, text.as_bytes()).with_context(trouble).map_err(no)?;
            }
        }
        Ok(())
    }
}
