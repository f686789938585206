//! The settings of the observer: one file, because there are few.

use super::agent::{LogFormat, LogFragment};
use super::checks;
use super::command::absolute_path;
use super::error::{Problems, name_of};
use super::notify::{NotifyFragment, NotifySettings};
use super::public_url::PublicUrl;
use super::recorder::{RecorderFragment, RecorderSettings};
use super::store::{StoreFragment, StoreSettings};
use fleet::incidents::IncidentTimes;
use schema::names::HostName;
use schema::time::Span;
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use toml_reader::{SettingsError, SettingsErrors};

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Fragment {
    state_directory: Option<PathBuf>,
    store: StoreFragment,
    http: HttpFragment,
    incidents: IncidentsFragment,
    notify: NotifyFragment,
    recorder: RecorderFragment,
    log: LogFragment,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct HttpFragment {
    listen: Option<SocketAddr>,
    names: Vec<HostName>,
    public_url: Option<String>,
    token_file: Option<PathBuf>,
    open_to_local_users: Option<bool>,
    token_digests: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
}

/// Who may look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HttpAccess {
    /// Every user of this machine.
    LocalUsers,
    /// Who shows the token in this file, which is made if it does not exist.
    Token(PathBuf),
    /// Who shows a token whose digest is in this file.
    Digests(PathBuf),
}

/// The files of a server that encrypts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTls {
    /// The certificate and those that lead to its authority, as PEM.
    pub cert: PathBuf,
    /// The key of the certificate, as PEM.
    pub key: PathBuf,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct IncidentsFragment {
    hold_for: Option<Span>,
    clear_for: Option<Span>,
}

/// All settings of an observer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObserverSettings {
    /// The directory of the token and of the open incidents.
    pub state_directory: PathBuf,
    /// The store. What the agent alone uses has its default.
    pub store: StoreSettings,
    /// The address of the HTTP server. Without TLS it is one of the machine itself.
    pub http_listen: SocketAddr,
    /// Names by which clients may ask the server, besides `localhost`.
    pub http_names: Vec<HostName>,
    /// Where people reach the server through a proxy; `None` if there is none.
    pub http_public_url: Option<PublicUrl>,
    /// The files of TLS; `None` if the server does not encrypt.
    pub http_tls: Option<ServerTls>,
    /// Who may look.
    pub http_access: HttpAccess,
    /// How long conditions hold before they are incidents.
    pub incident_times: IncidentTimes,
    /// Who hears of incidents.
    pub notify: NotifySettings,
    /// Where the store is recorded; `None` if it is not.
    pub recorder: Option<RecorderSettings>,
    /// The log filter, in the syntax of `EnvFilter` of tracing.
    pub log_level: String,
    /// The format of the log on standard error.
    pub log_format: LogFormat,
}

/// Reads the text of a settings file. `file` is its name, for messages.
///
/// # Errors
/// Returns all mistakes, each with its line.
pub fn read_observer(file: &str, text: &str) -> Result<ObserverSettings, SettingsErrors> {
    let document = toml_reader::read::<Fragment>(text);
    let in_file = |mistake| SettingsError::in_file(file, mistake);
    let mut errors: Vec<SettingsError> = document.mistakes.into_iter().map(in_file).collect();
    let Some((fragment, table)) = document.content else { return Err(SettingsErrors(errors)) };
    let mut problems = Problems::new(document.lost_tables);
    let settings = validate(fragment, &mut problems);
    errors.extend(problems.into_found().into_iter().map(|(path, message)| SettingsError {
        file: file.to_owned(),
        line: toml_reader::line_of(text, table.get_ref(), &path),
        setting: name_of(&path),
        message,
    }));
    errors.sort_by_key(|error| error.line);
    if errors.is_empty() { Ok(settings) } else { Err(SettingsErrors(errors)) }
}

/// Returns the settings. If there is a problem, they are only good for finding further ones.
fn validate(fragment: Fragment, problems: &mut Problems) -> ObserverSettings {
    let Fragment { state_directory, store, http, incidents, notify, recorder, log } = fragment;
    for (setting, is_given) in
        [("live_lease", store.live_lease.is_some()), ("backstop", store.backstop.is_some())]
    {
        if is_given {
            problems.add(format!("store.{setting}"), "only the agent has this setting");
        }
    }
    let store = store.validate(problems);
    if store.user.as_ref().is_some_and(|user| !user.contains(':')) && store.password_file.is_none() {
        problems.add("store.user", "the setting `password_file` is missing");
    }
    if let Some(path) = &state_directory {
        problems.check("state_directory", absolute_path(path));
    }
    let state_directory = state_directory.unwrap_or_else(|| "/var/lib/orchestrate-observer".into());
    let default = IncidentTimes::default();
    let incident_times = IncidentTimes {
        hold_for: incidents.hold_for.map_or(default.hold_for, |span| span.0),
        clear_for: incidents.clear_for.map_or(default.clear_for, |span| span.0),
    };
    if let Some(level) = &log.level {
        problems.check("log.level", checks::log_level(level));
    }
    let (http_listen, http_tls) = http.server(problems);
    let public_url = http.public_url.as_deref().map(PublicUrl::parse).transpose();
    problems.check("http.public_url", public_url.as_ref().map(|_| ()).map_err(Clone::clone));
    ObserverSettings {
        store,
        http_listen,
        http_tls,
        http_access: http.access(&state_directory),
        http_names: http.names,
        http_public_url: public_url.ok().flatten(),
        state_directory,
        incident_times,
        notify: notify.validate(problems),
        recorder: recorder.validate(problems),
        log_level: log.level.unwrap_or_else(|| "info".into()),
        log_format: log.format.unwrap_or_default(),
    }
}

impl HttpFragment {
    /// Returns where the server listens, and its files of TLS.
    fn server(&self, problems: &mut Problems) -> (SocketAddr, Option<ServerTls>) {
        for (setting, path) in [
            ("token_file", &self.token_file),
            ("token_digests", &self.token_digests),
            ("cert", &self.cert),
            ("key", &self.key),
        ] {
            if let Some(path) = path {
                problems.check(format!("http.{setting}"), absolute_path(path));
            }
        }
        let tls = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => Some(ServerTls { cert: cert.clone(), key: key.clone() }),
            (None, None) => None,
            (Some(_), None) => {
                problems.add("http.cert", "the setting `key` is missing");
                None
            }
            (None, Some(_)) => {
                problems.add("http.key", "the setting `cert` is missing");
                None
            }
        };
        let listen = self.listen.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 8590)));
        if !listen.ip().is_loopback() && (tls.is_none() || self.token_digests.is_none()) {
            let message = "must be an address of the machine itself, as in \"127.0.0.1:8590\"; another one needs \
                           `cert`, `key` and `token_digests`";
            problems.add("http.listen", message);
        }
        if self.token_digests.is_some() {
            let others = [("token_file", self.token_file.is_some()), ("open_to_local_users", self.is_open())];
            for (setting, _) in others.iter().filter(|(_, is_given)| *is_given) {
                problems.add(format!("http.{setting}"), "`token_digests` says already who may look");
            }
        }
        if self.public_url.is_some() && self.is_open() {
            // A proxy is a local user, and asks for everybody who reaches it.
            let message = "must not be true together with `public_url`: everybody who reaches the proxy could look \
                           without a token; leave it out";
            problems.add("http.open_to_local_users", message);
        }
        (listen, tls)
    }

    fn is_open(&self) -> bool {
        self.open_to_local_users.unwrap_or(false)
    }

    fn access(&self, state_directory: &Path) -> HttpAccess {
        match &self.token_digests {
            Some(file) => HttpAccess::Digests(file.clone()),
            None if self.is_open() => HttpAccess::LocalUsers,
            None => {
                HttpAccess::Token(self.token_file.clone().unwrap_or_else(|| state_directory.join("token")))
            }
        }
    }
}

#[cfg(test)]
mod tests;
