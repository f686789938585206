//! A message about an incident. Its JSON is fixed: `docs/observer.md` describes it, and a change of its meaning needs
//! another `format`.

use etcd_session::random_token;
use fleet::incidents::{Incident, IncidentId, IncidentKind, Notice, NoticeKind, Severity};
use planning::calendar::rfc3339;
use schema::names::HostName;
use schema::time::EpochSeconds;
use serde::{Deserialize, Serialize};

/// The format of the JSON.
const FORMAT: u32 = 1;
/// Number of hosts that a message names.
const HOSTS_MAX: usize = 50;

/// A message about an incident.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Message {
    /// What identifies the message. It is the same however often the message is sent.
    pub(crate) id: String,
    pub(crate) notice: NoticeKind,
    pub(crate) at: EpochSeconds,
    /// Since when the condition of the incident holds, or held.
    pub(crate) since: EpochSeconds,
    pub(crate) lineage: String,
    /// The name of the machine of the observer.
    observer: String,
    pub(crate) host_count: usize,
    /// The incident, with at most [`HOSTS_MAX`] hosts.
    pub(crate) incident: Incident,
}

/// What is sent, by the conventions of Standard Webhooks.
#[derive(Serialize)]
struct Body<'a> {
    r#type: String,
    timestamp: String,
    data: Data<'a>,
}

#[derive(Serialize)]
struct Data<'a> {
    format: u32,
    lineage: &'a str,
    observer: &'a str,
    incident_id: &'a IncidentId,
    kind: IncidentKind,
    severity: Severity,
    since: String,
    summary: &'a str,
    hint: &'a str,
    rollout_id: Option<&'a str>,
    host_count: usize,
    hosts: &'a [HostName],
}

impl Message {
    /// Returns the message that a notice makes.
    pub(super) fn new(notice: &Notice, lineage: &str, observer: &str) -> Self {
        let mut incident = notice.incident.clone();
        let host_count = incident.hosts.len();
        incident.hosts.truncate(HOSTS_MAX);
        Self {
            id: random_token().to_string(),
            notice: notice.notice,
            at: notice.at,
            since: notice.since,
            lineage: lineage.to_owned(),
            observer: observer.to_owned(),
            host_count,
            incident,
        }
    }

    /// Returns the JSON that is sent.
    pub(crate) fn body(&self) -> String {
        let Incident { incident_id, kind, severity, summary, hint, hosts, rollout_id } = &self.incident;
        let body = Body {
            r#type: format!("incident.{}", self.notice.as_str()),
            timestamp: rfc3339(self.at).unwrap_or_default(),
            data: Data {
                format: FORMAT,
                lineage: &self.lineage,
                observer: &self.observer,
                incident_id,
                kind: *kind,
                severity: *severity,
                since: rfc3339(self.since).unwrap_or_default(),
                summary,
                hint,
                rollout_id: rollout_id.as_deref(),
                host_count: self.host_count,
                hosts,
            },
        };
        serde_json::to_string(&body).unwrap_or_default()
    }
}
