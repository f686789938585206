//! `bootstrap`: writes the first settings of a host, in a file of their own next to the settings of
//! the site. If the store should exist already, nothing is written before it has answered with
//! these settings.

use crate::commands::answers;
use crate::commands::context::Store;
use crate::commands::state::hosts::{RosterOptions, RosterPatch};
use crate::commands::verb::{About, Answer, Group, Past, Spec, Verb};
use crate::exit::{Exit, Failure};
use crate::output::{self, Output};
use crate::{endpoints, local};
use anyhow::{Context as _, anyhow};
use clap::Args;
use etcd_session::{EndpointSource, Secret, SessionConfig};
use schema::codec::VersionError;
use schema::keys::{self, Key};
use schema::names::{HostName, Role, Version};
use schema::server_version;
use schemars::JsonSchema;
use serde::Serialize;
use settings::{Initial, Settings as AgentSettings, StoreSettings, read};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// Directory in which the packaged unit looks for the settings.
const DIRECTORY: &str = "/etc/orchestrate";
/// Name of the written fragment. It sorts first, so settings in the site's other fragments win.
const FRAGMENT: &str = "00-bootstrap.toml";
const PASSWORD: &str = "store-password";

const SETTINGS: &str = "# The settings of the orchestrate agent; fragments in agent.d/*.toml are read after this file, in name order.\n";

/// Write the first settings of this host
#[derive(Debug, Args)]
pub(crate) struct Bootstrap {
    /// The store is on this machine, as on the first host of a fleet
    #[arg(long)]
    first: bool,
    /// Directory of the settings
    #[arg(long, value_name = "DIRECTORY", default_value = DIRECTORY)]
    directory: PathBuf,
    /// Name of the host, if it is not the name of the machine
    #[arg(long)]
    hostname: Option<String>,
    #[command(flatten)]
    roster: RosterOptions,
    /// Replace the settings that an earlier invocation wrote
    #[arg(long)]
    replace: bool,
}

impl Verb for Bootstrap {
    const SPEC: Spec = Spec {
        name: "bootstrap",
        group: Group::Setup,
        about: About::Other,
        past: Past::DoesNotRead,
        exits: &[Exit::No, Exit::Refused],
        answer: Answer::Json(answers::of::<BootstrapAnswer<'_>>),
        examples: &[
            ("orchestrate bootstrap --first | sh", "the first host of a fleet, with the embedded store"),
            ("orchestrate bootstrap --endpoints https://etcd1:2379 --role web | sh", "join a fleet"),
        ],
    };

    /// Writes the settings, and prints the commands that start the agent with them.
    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let roster = RosterPatch::parse(&self.roster)?;
        let config = &store.settings.session;
        if self.first && config.endpoints != endpoints::by_default() {
            return Err(Failure::usage(anyhow!(
                "--first needs the default endpoint on this machine, but another endpoint was given"
            )));
        }
        // Every host may run a member of the fleet's store, or a proxy to it. So the default endpoint
        // can be right, but it must be given explicitly.
        if !self.first && !store.settings.endpoints_given {
            return Err(Failure::usage(anyhow!(
                "give the endpoints of the fleet's store, for example with --endpoints; use --first if the store is on this machine"
            )));
        }
        let files = Files::of(&self.directory)?;
        let earlier = files.existing_settings()?;
        // Settings that exist keep their spelling: by it the agent finds the keys of an older one.
        let spelled = match (&self.hostname, earlier.as_ref().and_then(|earlier| earlier.host.as_ref())) {
            (None, Some(host)) => host.clone(),
            (given, _) => store.settings.host(given.as_deref())?,
        };
        let host = spelled.to_lower();
        let is_own =
            rustix::system::uname().nodename().to_bytes().eq_ignore_ascii_case(host.as_str().as_bytes());
        let password =
            config.user.as_ref().map(|(user, secret)| Password::of(user, secret, &files)).transpose()?;
        let initial = Initial {
            host: (!is_own).then_some(spelled),
            role: roster.role,
            group: roster.group,
            labels: roster.labels,
            store: store_settings(config, password.as_ref().map(|password| password.path.clone()))?,
        };
        let initial = match &earlier {
            Some(earlier) => initial.over(earlier),
            None => initial,
        };
        let text = format!(
            "# Written by `orchestrate bootstrap`. Settings in files that sort after this one win.\n{}",
            initial.to_toml()
        );
        let changed = files.ours.as_deref() != Some(&text) || password.as_ref().is_some_and(|p| p.changed);
        if changed && earlier.is_some() && !self.replace {
            return Err(Failure::refused(format!(
                "{} has other content; --replace overwrites it",
                files.fragment().display()
            )));
        }
        let whole = files.check(&initial, &host, &text)?;
        let found = inspect_store(&host, &whole, self.first, store).await?;
        if changed {
            files.make_directories()?;
            password.iter().try_for_each(Password::write)?;
            files.write(&text)?;
            files.forget_password_of(earlier.as_ref(), password.as_ref());
        }
        print_result(&files, changed, &host, found, output);
        if self.first && config.user.is_none() && config.tls.cert.is_none() {
            output::note(
                "every user of this machine can command this store, and so what its agent runs as root; docs/security.md says more",
            );
        }
        Ok(Exit::Yes)
    }
}

/// Prints the commands that come next, and notes what was done.
fn print_result(
    files: &Files,
    changed: bool,
    host: &HostName,
    found: Option<StoreInspection>,
    output: &mut Output,
) {
    let next = files.next_steps(found.is_none());
    let desired = found.as_ref().and_then(|found| found.desired.as_ref());
    let answer = BootstrapAnswer {
        file: files.fragment(),
        changed,
        host,
        store_answers: found.is_some(),
        revision: found.as_ref().map(|found| found.revision),
        desired_version: desired.and_then(|desired| desired.as_ref().ok()),
        commands: &next,
    };
    output.sorted_answer(&answer, |o| next.iter().for_each(|line| o.line(line)));
    let state = if changed { "written" } else { "unchanged" };
    output::note(&format!("{}: {state}", files.fragment().display()));
    match found.map(|found| found.desired) {
        Some(Some(Ok(version))) => output::note(&format!("the desired version is {version}")),
        Some(Some(Err(why))) => output::warn(&format!("{} is not a version: {why}", Key::CurrentVersion)),
        Some(None) => output::note("nothing is triggered yet: orchestrate trigger_update VERSION"),
        None => output::note("no store answers here yet; when it does: orchestrate trigger_update VERSION"),
    }
}

/// What `bootstrap` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct BootstrapAnswer<'a> {
    file: PathBuf,
    changed: bool,
    host: &'a HostName,
    store_answers: bool,
    revision: Option<i64>,
    desired_version: Option<&'a Version>,
    commands: &'a [String],
}

/// Returns the failure for a local file that could not be read or written.
fn local_failure(error: anyhow::Error) -> Failure {
    Failure::new(Exit::No, error)
}

/// The content of the store, as far as `bootstrap` needs it.
struct StoreInspection {
    revision: i64,
    /// Desired version of the fleet, if one is set; an error if the value is not a version.
    desired: Option<Result<Version, VersionError>>,
}

/// Reads the store with the settings that the agent will use. Returns `None` if the store is to be
/// on this machine and does not run yet.
async fn inspect_store(
    host: &HostName,
    settings: &AgentSettings,
    first: bool,
    store: &Store<'_>,
) -> Result<Option<StoreInspection>, Failure> {
    if first && !endpoints::somebody_listens_here() {
        let StoreSettings { cacert, cert, user, .. } = &settings.store;
        if cacert.is_some() || cert.is_some() || user.is_some() {
            return Err(Failure::usage(anyhow!(
                "no store listens on this machine, and the embedded one has neither certificates nor users"
            )));
        }
        return Ok(None);
    }
    let keys = [Key::CurrentVersion, Key::Live(host.clone())];
    let snapshot = store.session.read_keys(&keys, store.deadline).await?;
    let version = store.session.server_version(store.deadline).await.ok();
    version.as_deref().and_then(server_version::warning).iter().for_each(|text| output::warn(text));
    if let Some(entry) = snapshot.get(&keys[1]) {
        let claim = keys::Live::read(&entry.value)
            .map_err(|error| Failure::cannot_tell(format!("the claim of the name {host}: {error}")))?;
        // The agent does the same: its machine id is `unknown` if the file does not exist.
        let own = local::read(&settings.machine_id_file).ok().flatten().unwrap_or_default();
        let own = Some(own.trim()).filter(|id| !id.is_empty()).unwrap_or("unknown");
        if claim.machine_id != own {
            return Err(Failure::refused(format!(
                "a live host named {host} exists already: {claim}; use --hostname to give this host another name"
            )));
        }
    }
    if settings.store.user.as_deref() == Some("root") {
        output::warn(
            "the agent will be the store's root; `orchestrate enroll` makes a user with what it needs",
        );
    }
    let desired = snapshot.read(keys::CurrentVersion);
    Ok(Some(StoreInspection { revision: snapshot.revision, desired }))
}

/// The file from which the agent reads the password of its user. The file name contains the user,
/// so that replacing one user by another never leaves a user with the wrong password.
struct Password<'a> {
    path: PathBuf,
    secret: &'a Secret,
    /// True if the file does not exist or holds another password.
    changed: bool,
}

impl<'a> Password<'a> {
    fn of(user: &str, secret: &'a Secret, files: &Files) -> Result<Self, Failure> {
        let user = Role::new(user).context("the user is part of a file's name").map_err(Failure::usage)?;
        let path = files.directory.join(format!("{PASSWORD}-{user}"));
        let old_text =
            local::read(&path).with_context(|| path.display().to_string()).map_err(local_failure)?;
        let changed = !old_text.is_some_and(|text| secret.is(&text));
        Ok(Self { path, secret, changed })
    }

    fn write(&self) -> Result<(), Failure> {
        let path_text = || self.path.display().to_string();
        local::replace_secret(&self.path, |file| self.secret.write_to(file))
            .with_context(path_text)
            .map_err(local_failure)
    }
}

/// Returns the settings with which the agent reaches the store as this invocation does.
fn store_settings(config: &SessionConfig, password_file: Option<PathBuf>) -> Result<StoreSettings, Failure> {
    let absolute = |path: &Option<PathBuf>| path.as_deref().map(absolute).transpose();
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
        EndpointSource::File(path) => settings.endpoints_file = Some(self::absolute(&path)?),
        EndpointSource::Srv(domain) => settings.discovery_srv = Some(domain),
        EndpointSource::Discovery { url, port } => {
            (settings.discovery_url, settings.discovery_port) = (Some(url), port);
        }
    }
    Ok(settings)
}

/// Returns the absolute path, which must be UTF-8 because settings are.
fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    let full =
        std::path::absolute(path).with_context(|| path.display().to_string()).map_err(local_failure)?;
    if full.to_str().is_none() {
        return Err(Failure::usage(anyhow!("{}: settings are UTF-8, and this path is not", full.display())));
    }
    Ok(full)
}

/// The settings on disk, where the agent looks for them.
struct Files {
    directory: PathBuf,
    /// Paths and texts of the other settings files, in the order in which the agent reads them.
    others: Vec<(PathBuf, String)>,
    ours: Option<String>,
}

impl Files {
    fn of(directory: &Path) -> Result<Self, Failure> {
        let mut files = Self { directory: absolute(directory)?, others: Vec::new(), ours: None };
        for path in local::settings_files(&files.directory) {
            let text = local::read_up_to(&path, local::SETTINGS_MAX_BYTES);
            let text =
                text.with_context(|| path.display().to_string()).map_err(local_failure)?.unwrap_or_default();
            if path == files.fragment() {
                files.ours = Some(text);
            } else {
                files.others.push((path, text));
            }
        }
        Ok(files)
    }

    fn settings(&self) -> PathBuf {
        self.directory.join("agent.toml")
    }

    fn fragment(&self) -> PathBuf {
        self.directory.join("agent.d").join(FRAGMENT)
    }

    /// Reads the settings that an earlier invocation wrote.
    fn existing_settings(&self) -> Result<Option<AgentSettings>, Failure> {
        let ours = self.ours.clone().map(|text| read(&[(self.fragment().display().to_string(), text)]));
        ours.transpose().map_err(|error| local_failure(error.into()))
    }

    /// Reads all settings together with the new ones, as the agent will. It is a failure if the
    /// result differs from the new settings, because other files override or extend them.
    fn check(&self, initial: &Initial, host: &HostName, text: &str) -> Result<AgentSettings, Failure> {
        let mut all = self.others.clone();
        all.push((self.fragment(), text.to_owned()));
        // The agent reads the files in this order: agent.toml first, then the fragments by name.
        all.sort_by_key(|(path, _)| (*path != self.settings(), path.clone()));
        let all: Vec<_> = all.into_iter().map(|(path, text)| (path.display().to_string(), text)).collect();
        initial.check(host, &all).map_err(|error| {
            let others: Vec<_> = self.others.iter().map(|(path, _)| path.display().to_string()).collect();
            Failure::no(format!("{error}; look at {}", others.join(", ")))
        })
    }

    fn make_directories(&self) -> Result<(), Failure> {
        for name in ["agent.d", "services.d", "templates"] {
            let path = self.directory.join(name);
            // The agent runs commands from these files, so write access means the rights of the
            // agent.
            let made = DirBuilder::new().recursive(true).mode(0o755).create(&path);
            made.with_context(|| path.display().to_string()).map_err(local_failure)?;
        }
        Ok(())
    }

    fn write(&self, text: &str) -> Result<(), Failure> {
        let is_there = self.settings().symlink_metadata().is_ok();
        let first = (!is_there).then(|| (self.settings(), SETTINGS));
        for (path, text) in first.into_iter().chain([(self.fragment(), text)]) {
            let path_text = || path.display().to_string();
            local::replace(&path, text.as_bytes()).with_context(path_text).map_err(local_failure)?;
        }
        Ok(())
    }

    /// Removes the password file of an earlier invocation if the settings no longer name it.
    fn forget_password_of(&self, earlier: Option<&AgentSettings>, now: Option<&Password<'_>>) {
        let Some(path) = earlier.and_then(|earlier| earlier.store.password_file.as_ref()) else { return };
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_ours = path.parent() == Some(&self.directory) && name.starts_with(PASSWORD);
        if is_ours
            && now.is_none_or(|now| now.path != *path)
            && let Err(error) = std::fs::remove_file(path)
        {
            output::warn(&format!("{}: {error}", path.display()));
        }
    }

    /// Returns the commands that start the agent with these settings.
    fn next_steps(&self, without_store: bool) -> Vec<String> {
        let store = without_store.then(|| "systemctl enable --now solo-etcd".to_owned());
        let agent = if self.directory == Path::new(DIRECTORY) {
            vec!["systemctl enable orchestrate-agent".into(), "systemctl restart orchestrate-agent".into()]
        } else {
            // The packaged unit reads the settings in `DIRECTORY`.
            let settings = self.settings().display().to_string();
            vec![format!("orchestrate-agent --config {}", output::shell_word(&settings))]
        };
        store.into_iter().chain(agent).collect()
    }
}
