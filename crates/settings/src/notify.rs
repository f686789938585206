//! Who hears of incidents, and how.

use super::command::{absolute, absolute_path};
use super::error::Problems;
use fleet::incidents::Severity;
use schema::names::quoted;
use schema::time::Span;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Default of the time limit of a command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest name of a receiver, in bytes.
const NAME_MAX_BYTES: usize = 64;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct NotifyFragment {
    cacert: Option<PathBuf>,
    heartbeat_url: Option<String>,
    alertmanagers: BTreeMap<String, AlertmanagerFragment>,
    webhooks: BTreeMap<String, WebhookFragment>,
    commands: BTreeMap<String, CommandFragment>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AlertmanagerFragment {
    url: String,
    user: Option<String>,
    password_file: Option<PathBuf>,
    min_severity: Option<Severity>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WebhookFragment {
    url: String,
    secret_files: Vec<PathBuf>,
    min_severity: Option<Severity>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CommandFragment {
    run: Vec<String>,
    timeout: Option<Span>,
    min_severity: Option<Severity>,
}

/// Who hears of incidents.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NotifySettings {
    /// The authorities that sign the certificates of receivers; `None` for those of the system.
    pub cacert: Option<PathBuf>,
    /// What is requested each minute while the data of the observer is fresh.
    pub heartbeat_url: Option<String>,
    /// The Alertmanagers, by name.
    pub alertmanagers: BTreeMap<String, AlertmanagerSettings>,
    /// The webhooks, by name.
    pub webhooks: BTreeMap<String, WebhookSettings>,
    /// The commands, by name.
    pub commands: BTreeMap<String, NoticeCommandSettings>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertmanagerSettings {
    /// Its base URL, under which its API is. It may hold a secret.
    pub url: String,
    /// The user as whom the observer asks, and the file of the password; `None` if it asks for none.
    pub user: Option<(String, PathBuf)>,
    /// Less severe incidents are left out.
    pub min_severity: Severity,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookSettings {
    /// Where the messages are sent. It may hold a secret.
    pub url: String,
    /// The files of the keys that sign the messages: one, or two while the key changes.
    pub secret_files: Vec<PathBuf>,
    /// Less severe incidents are left out.
    pub min_severity: Severity,
}

/// A command that reads a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoticeCommandSettings {
    /// The program and its arguments.
    pub run: Vec<String>,
    pub timeout: Duration,
    /// Less severe incidents are left out.
    pub min_severity: Severity,
}

impl NotifyFragment {
    /// Returns the settings. If there is a problem, they are only good for finding further ones.
    pub(super) fn validate(self, problems: &mut Problems) -> NotifySettings {
        if let Some(path) = &self.cacert {
            problems.check("notify.cacert", absolute_path(path));
        }
        if let Some(url) = &self.heartbeat_url {
            problems.check("notify.heartbeat_url", receiver_url(url));
        }
        let alertmanagers = self.alertmanagers.into_iter().map(|(name, alertmanager)| {
            let setting = format!("notify.alertmanagers.{name}");
            problems.check(setting.clone(), receiver_name(&name));
            problems.check(format!("{setting}.url"), base_url(&alertmanager.url));
            let AlertmanagerFragment { url, user, password_file, min_severity } = alertmanager;
            let user = user_of(&setting, user, password_file, problems);
            let min_severity = min_severity.unwrap_or(Severity::Info);
            (name, AlertmanagerSettings { url, user, min_severity })
        });
        let alertmanagers = alertmanagers.collect();
        let webhooks = self.webhooks.into_iter().map(|(name, webhook)| {
            let setting = format!("notify.webhooks.{name}");
            problems.check(setting.clone(), receiver_name(&name));
            problems.check(format!("{setting}.url"), receiver_url(&webhook.url));
            if !(1..=2).contains(&webhook.secret_files.len()) {
                let message = "name the file of one key, or of two while the key changes";
                problems.add(format!("{setting}.secret_files"), message);
            }
            for path in &webhook.secret_files {
                // The message does not repeat it, because it may be the key itself by mistake.
                if !path.is_absolute() {
                    problems.add(format!("{setting}.secret_files"), "must be absolute paths of files");
                }
            }
            let WebhookFragment { url, secret_files, min_severity } = webhook;
            let min_severity = min_severity.unwrap_or(Severity::Info);
            (name, WebhookSettings { url, secret_files, min_severity })
        });
        let webhooks = webhooks.collect();
        let commands = self.commands.into_iter().map(|(name, command)| {
            let setting = format!("notify.commands.{name}");
            problems.check(setting.clone(), receiver_name(&name));
            problems.check(format!("{setting}.run"), absolute(&command.run));
            let timeout = command.timeout.map_or(COMMAND_TIMEOUT, |span| span.0);
            if timeout.is_zero() {
                problems.add(format!("{setting}.timeout"), "must be more than 0");
            }
            let min_severity = command.min_severity.unwrap_or(Severity::Info);
            (name, NoticeCommandSettings { run: command.run, timeout, min_severity })
        });
        NotifySettings {
            cacert: self.cacert,
            alertmanagers,
            heartbeat_url: self.heartbeat_url,
            webhooks,
            commands: commands.collect(),
        }
    }
}

/// Returns a user with the file of the password (RFC 7617).
fn user_of(
    setting: &str,
    user: Option<String>,
    password_file: Option<PathBuf>,
    problems: &mut Problems,
) -> Option<(String, PathBuf)> {
    if let Some(user) = &user
        && (user.is_empty() || user.contains(|c: char| c == ':' || c.is_control()))
    {
        problems.add(format!("{setting}.user"), "must be a name without a colon");
    }
    if let Some(path) = &password_file {
        problems.check(format!("{setting}.password_file"), absolute_path(path));
    }
    match (user, password_file) {
        (Some(user), Some(path)) => Some((user, path)),
        (None, None) => None,
        (Some(_), None) => {
            problems.add(format!("{setting}.user"), "the setting `password_file` is missing");
            None
        }
        (None, Some(_)) => {
            problems.add(format!("{setting}.password_file"), "the setting `user` is missing");
            None
        }
    }
}

/// Checks the name of a receiver, which stands in the log and in metrics.
fn receiver_name(name: &str) -> Result<(), String> {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if (1..=NAME_MAX_BYTES).contains(&name.len()) && name.bytes().all(is_fine) {
        return Ok(());
    }
    Err(format!("the name {} must be of letters, digits, - and _, at most {NAME_MAX_BYTES}", quoted(name)))
}

/// Checks a URL to which the observer sends: encrypted, or on this machine. The message does not repeat it, because it may
/// hold a secret.
fn receiver_url(url: &str) -> Result<(), String> {
    let is_clean = url.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    let parts = if is_clean { url.split_once("://") } else { None };
    let authority = parts.map(|(_, rest)| rest.split(['/', '?', '#']).next().unwrap_or_default());
    let authority = authority.filter(|authority| !authority.is_empty());
    match (parts.map(|(scheme, _)| scheme), authority) {
        (_, Some(authority)) if authority.contains('@') => Err("must not contain a user".into()),
        (Some("https"), Some(_)) => Ok(()),
        (Some("http"), Some(authority)) if is_this_machine(authority) => Ok(()),
        (Some("http"), Some(_)) => {
            Err("must begin with https://, because what is sent to another machine must be encrypted".into())
        }
        _ => {
            Err("must be a URL that begins with https://, or with http:// and an address of this machine"
                .into())
        }
    }
}

/// Checks a URL to which a path is added.
fn base_url(url: &str) -> Result<(), String> {
    if url.contains(['?', '#']) {
        return Err("must not contain ? or #, because a path is added to it".into());
    }
    receiver_url(url)
}

fn is_this_machine(authority: &str) -> bool {
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leaves_the_machine_is_encrypted() {
        let check = |url: &str, expected: Option<&str>| {
            let error = receiver_url(url).err().unwrap_or_default();
            assert_eq!(
                error.split_once("must ").map(|(_, rest)| rest).is_some(),
                expected.is_some(),
                "{url}"
            );
            assert!(error.contains(expected.unwrap_or_default()), "{url}: {error}");
        };
        check("https://a.example/x?y=z#1", None);
        check("http://localhost:9093", None);
        check("http://127.0.0.1:9093/base", None);
        check("http://127.9.9.9", None);
        check("http://[::1]:9093/", None);
        check("http://a.example/", Some("begin with https://"));
        check("http://localhost.example/", Some("begin with https://"));
        check("http://127.0.0.1.example/", Some("begin with https://"));
        check("http://127.0.0.1\\@a.example/", Some("be a URL"));
        check("http://127.0.0.1@a.example/", Some("not contain a user"));
        check("https://user:word@a.example/", Some("not contain a user"));
        for bad in ["", "a.example", "ftp://localhost", "https://", "http:///x", "https://a b"] {
            check(bad, Some("be a URL"));
        }
    }
}
