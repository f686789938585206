//! Every route: what answers, and what the description of the API says of it.

use super::access::SESSION_PATH;
use super::shared::AppState;
use super::{fleet, health, metrics, openapi, session, stream};
use axum::routing::{MethodRouter, get, post};

pub(super) struct Route {
    pub(super) path: &'static str,
    pub(super) handler: MethodRouter<AppState>,
    /// What identifies it in the description.
    pub(super) id: &'static str,
    /// What it answers, in a sentence.
    pub(super) summary: &'static str,
    pub(super) parameters: Vec<Parameter>,
    pub(super) answer: Answer,
}

/// A parameter of a request. Each view also has `at`, if the observer records.
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) description: &'static str,
    pub(super) kind: Kind,
}

/// The values of a parameter.
pub(super) enum Kind {
    /// A part of the path, with an example.
    OfPath(&'static str),
    Text,
    /// Any number of texts.
    Texts,
    /// True or false.
    Flag,
    /// A column by which hosts are sorted.
    Column,
}

/// What a route answers.
pub(super) enum Answer {
    /// A view of the fleet, as the command prints it. `file` is the schema in `docs/schema`, and `none` says why there
    /// is no answer in the present.
    View {
        file: &'static str,
        none: Option<&'static str>,
    },
    Health,
    Incidents,
    /// A part of the description of the API.
    Document {
        none: Option<&'static str>,
    },
    Metrics,
    Stream,
    Cookie,
}

const ROLE: Parameter = query("role", "Only hosts of this role; may be given several times.", Kind::Texts);
const GROUP: Parameter = query("group", "Only hosts of this group; may be given several times.", Kind::Texts);
const LABEL: Parameter = query(
    "label",
    "Only hosts with this label, as NAME=VALUE; if given several times, with all of them.",
    Kind::Texts,
);

const fn query(name: &'static str, description: &'static str, kind: Kind) -> Parameter {
    Parameter { name, description, kind }
}

const fn path(name: &'static str, description: &'static str, example: &'static str) -> Parameter {
    Parameter { name, description, kind: Kind::OfPath(example) }
}

/// Returns all routes of the API.
pub(super) fn routes() -> [Route; 17] {
    [
        Route {
            path: "/metrics",
            handler: get(metrics::metrics),
            id: "metrics",
            summary: "The metrics of the fleet, as Prometheus' text or as OpenMetrics.",
            parameters: vec![],
            answer: Answer::Metrics,
        },
        Route {
            path: "/v1/events",
            handler: get(fleet::events),
            id: "events",
            summary: "Who did what, the newest last.",
            parameters: vec![
                query("since", "Only events newer than this, for example 2h.", Kind::Text),
                query(
                    "host",
                    "Only what was done to this host, or by a command in one of its steps.",
                    Kind::Text,
                ),
            ],
            answer: Answer::View { file: "events.json", none: None },
        },
        Route {
            path: "/v1/failures",
            handler: get(fleet::failures),
            id: "failures",
            summary: "What failed, by host and by cause, and the results that are pending.",
            parameters: vec![],
            answer: Answer::View { file: "get_failures.json", none: None },
        },
        Route {
            path: "/v1/health",
            handler: get(health::health),
            id: "health",
            summary: "Whether what is shown is fresh: 200 if it is, 503 if not.",
            parameters: vec![],
            answer: Answer::Health,
        },
        Route {
            path: "/v1/hosts",
            handler: get(fleet::hosts),
            id: "hosts",
            summary: "The hosts of the fleet.",
            parameters: vec![
                ROLE,
                GROUP,
                LABEL,
                query("verdict", "Only hosts with this verdict; may be given several times.", Kind::Texts),
                query("sort", "The column by which the hosts are sorted.", Kind::Column),
                query("all", "Whether decommissioned hosts are listed too.", Kind::Flag),
            ],
            answer: Answer::View { file: "hosts-list.json", none: None },
        },
        Route {
            path: "/v1/hosts/{host}",
            handler: get(fleet::host),
            id: "host",
            summary: "Why a host is as it is, and what would change it.",
            parameters: vec![path("host", "The name of the host.", "web1")],
            answer: Answer::View {
                file: "why.json",
                none: Some("The host is not known, or was decommissioned."),
            },
        },
        Route {
            path: "/v1/incidents",
            handler: get(health::incidents),
            id: "incidents",
            summary: "The open incidents, the most urgent first.",
            parameters: vec![],
            answer: Answer::Incidents,
        },
        Route {
            path: "/v1/openapi.json",
            handler: get(openapi::description),
            id: "description",
            summary: "This description.",
            parameters: vec![],
            answer: Answer::Document { none: None },
        },
        Route {
            path: "/v1/rollout",
            handler: get(fleet::rollout),
            id: "rollout",
            summary: "How far the rollout of the desired version is.",
            parameters: vec![],
            answer: Answer::View {
                file: "rollout-status.json",
                none: Some("There is no rollout, or its record is not written yet."),
            },
        },
        Route {
            path: "/v1/schema/{name}",
            handler: get(openapi::schema),
            id: "schema",
            summary: "A schema that this description refers to.",
            parameters: vec![path("name", "The name of the file.", "status.json")],
            answer: Answer::Document { none: Some("There is no such schema.") },
        },
        Route {
            path: "/v1/services",
            handler: get(fleet::services),
            id: "services",
            summary: "The services, with the numbers of their instances.",
            parameters: vec![],
            answer: Answer::View { file: "services-list.json", none: None },
        },
        Route {
            path: "/v1/services/{service}",
            handler: get(fleet::service),
            id: "service",
            summary: "The hosts of a service, and whether it works there.",
            parameters: vec![
                path("service", "The name of the service.", "web"),
                query(
                    "checks",
                    "Whether each check that does not pass is shown, with the last line of its output.",
                    Kind::Flag,
                ),
            ],
            answer: Answer::View { file: "services-show.json", none: Some("No host has the service.") },
        },
        Route {
            path: SESSION_PATH,
            handler: post(session::open),
            id: "session",
            summary: "Trades the token for a cookie, for browsers.",
            parameters: vec![],
            answer: Answer::Cookie,
        },
        Route {
            path: "/v1/status",
            handler: get(fleet::status),
            id: "status",
            summary: "The state of the fleet, and what is wrong.",
            parameters: vec![],
            answer: Answer::View { file: "status.json", none: None },
        },
        Route {
            path: "/v1/stream",
            handler: get(stream::stream),
            id: "stream",
            summary: "A stream of server-sent events that say how fresh what is shown is: one at the start, one whenever the revision or its age is confirmed, and at least one every 5 seconds.",
            parameters: vec![],
            answer: Answer::Stream,
        },
        Route {
            path: "/v1/unaccounted",
            handler: get(fleet::unaccounted),
            id: "unaccounted",
            summary: "The keys of hosts that do not fit together.",
            parameters: vec![ROLE, GROUP, LABEL],
            answer: Answer::View { file: "unaccounted.json", none: None },
        },
        Route {
            path: "/v1/waits",
            handler: get(fleet::waits),
            id: "waits",
            summary: "What keeps hosts waiting for services.",
            parameters: vec![],
            answer: Answer::View { file: "why.json", none: None },
        },
    ]
}
