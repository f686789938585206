//! Alerts to an Alertmanager, by its API v2. It forgets alerts when it restarts, so all that are open are sent again and
//! again.

use super::delivery::Delivery;
use super::http_client::{HttpClient, SendError};
use crate::clock::now;
use crate::incidents::{Message, OpenAndWaiting};
use crate::secret_file;
use anyhow::Result;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fleet::incidents::{Incident, NoticeKind};
use planning::calendar::rfc3339;
use schema::names::HostName;
use schema::time::EpochSeconds;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;
use ureq::http::Request;

/// Time after which the open alerts are sent again.
const RESEND: Duration = Duration::from_secs(60);
/// Time after which Alertmanager resolves an alert that nobody sends any more, in seconds. It is long, because an observer
/// that has ended does not mean that all is well.
const EXPIRES_SECONDS: i64 = 24 * 60 * 60;
/// How long the end of an alert is sent again, in seconds. An Alertmanager that restarts before it has notified forgets it.
const RESOLVED_SECONDS: i64 = 15 * 60;
/// Number of hosts that an alert names.
const HOSTS_MAX: usize = 20;

pub(super) struct Alertmanager {
    url: String,
    /// The user, and the file of the password.
    user: Option<(String, PathBuf)>,
    client: HttpClient,
}

/// An alert, as Alertmanager knows it. Alerts with the same labels are the same alert, so labels are only what the id of
/// the incident follows from.
#[derive(Debug, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
struct Alert<'a> {
    labels: Labels<'a>,
    annotations: Annotations<'a>,
    starts_at: String,
    ends_at: String,
}

#[derive(Debug, Serialize, PartialEq, Eq)]
struct Labels<'a> {
    alertname: &'static str,
    incident_id: String,
    kind: &'static str,
    severity: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rollout_id: Option<&'a str>,
}

#[derive(Debug, Serialize, PartialEq, Eq)]
struct Annotations<'a> {
    lineage: &'a str,
    summary: &'a str,
    hint: &'a str,
    host_count: String,
    hosts: String,
}

impl Alertmanager {
    /// Returns the Alertmanager with this base URL.
    ///
    /// # Errors
    /// Returns an error if the file of the password cannot be used.
    pub(super) fn new(url: &str, user: Option<(String, PathBuf)>, client: HttpClient) -> Result<Self> {
        let url = format!("{}/api/v2/alerts", url.trim_end_matches('/'));
        if let Some((user, password_file)) = &user {
            authorization(user, password_file)?;
        }
        Ok(Self { url, user, client })
    }

    /// Sends what opens and what is resolved at once, and what is open each minute.
    pub(super) async fn follow(self, mut delivery: Delivery) {
        let mut added = delivery.kept.subscribe();
        // What was resolved not long ago.
        let mut resolved: Vec<Message> = Vec::new();
        loop {
            added.mark_unchanged();
            let state = delivery.kept.open_and_waiting(&delivery.receiver);
            resolved.retain(|message| now().0.saturating_sub(message.at.0) < RESOLVED_SECONDS);
            if !state.open.is_empty() || !state.waiting.is_empty() || !resolved.is_empty() {
                let body = serde_json::to_string(&alerts(&state, &resolved, now())).unwrap_or_default();
                let (url, user) = (self.url.clone(), self.user.clone());
                let request = move || {
                    let mut request = Request::post(url).header("content-type", "application/json");
                    // The file is read each time, so that the password can be changed.
                    if let Some((user, password_file)) = &user {
                        request = request.header("authorization", authorization(user, password_file)?);
                    }
                    Ok(request.body(body)?)
                };
                let result = self.client.send(request).await;
                // It takes the alerts that it understands, whatever it answers about others. So nothing is dropped.
                let result = result.map_err(|error| match error {
                    SendError::Refused(why) | SendError::Gone(why) => SendError::Failed(why),
                    other => other,
                });
                let (has_failed, messages) = (result.is_err(), state.waiting);
                let ended = messages.iter().filter(|message| message.notice == NoticeKind::Resolved).cloned();
                let ended: Vec<Message> = ended.collect();
                delivery.note(messages, result).await;
                if has_failed {
                    continue;
                }
                resolved.extend(ended);
            }
            tokio::select! {
                changed = added.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(RESEND) => {}
            }
        }
    }
}

/// Returns the header of a user with the password in the file (RFC 7617).
fn authorization(user: &str, password_file: &Path) -> Result<String> {
    let password = secret_file::read("the password of an Alertmanager", password_file)?;
    Ok(format!("Basic {}", STANDARD.encode(format!("{user}:{}", password.trim_end_matches(['\r', '\n'])))))
}

/// Returns an alert for each open incident, and one that has ended for each that was resolved, now or not long ago.
fn alerts<'a>(state: &'a OpenAndWaiting, resolved: &'a [Message], now: EpochSeconds) -> Vec<Alert<'a>> {
    let expires = EpochSeconds(now.0.saturating_add(EXPIRES_SECONDS));
    let open = state.open.iter().map(|open| {
        let count = open.incident.hosts.len();
        alert(&open.incident, count, &state.lineage, open.since, expires)
    });
    let is_over = |message: &&Message| {
        message.notice == NoticeKind::Resolved && !state.open_ids.contains(&message.incident.incident_id)
    };
    let resolved = resolved.iter().chain(&state.waiting).filter(is_over).map(|message| {
        alert(&message.incident, message.host_count, &message.lineage, message.since, message.at)
    });
    open.chain(resolved).collect()
}

fn alert<'a>(
    incident: &'a Incident,
    host_count: usize,
    lineage: &'a str,
    since: EpochSeconds,
    end: EpochSeconds,
) -> Alert<'a> {
    let Incident { incident_id, kind, severity, summary, hint, hosts, rollout_id } = incident;
    let time = |at| rfc3339(at).unwrap_or_default();
    Alert {
        labels: Labels {
            alertname: "OrchestrateIncident",
            incident_id: incident_id.to_string(),
            kind: kind.as_str(),
            severity: severity.as_str(),
            rollout_id: rollout_id.as_deref(),
        },
        annotations: Annotations {
            lineage,
            summary,
            hint,
            host_count: host_count.to_string(),
            hosts: listed(hosts, host_count),
        },
        starts_at: time(since),
        ends_at: time(end),
    }
}

/// Returns the first hosts by name, and how many there are besides them.
fn listed(hosts: &[HostName], count: usize) -> String {
    let names: Vec<&str> = hosts.iter().take(HOSTS_MAX).map(HostName::as_str).collect();
    let more = count - names.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    names.join(", ") + &more
}
