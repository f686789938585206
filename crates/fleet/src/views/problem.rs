//! What is wrong on a host and does not show in its verdict.

use crate::facts::HostFacts;
use crate::state::Fleet;
use schema::names::HostName;
use schema::records::ProblemFile;
use schemars::JsonSchema;
use serde::Serialize;
use std::fmt;

/// What a problem is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    /// Another machine runs an agent with the same host name.
    HostName,
    /// The settings of the agent.
    Settings,
    /// A service file.
    ServiceFile,
    /// A file that is rendered from a template.
    Template,
}

impl fmt::Display for ProblemKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HostName => "host name",
            Self::Settings => "settings",
            Self::ServiceFile => "service file",
            Self::Template => "template",
        })
    }
}

/// What is wrong on a host and does not show in its verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Problem {
    /// What it is about.
    pub kind: ProblemKind,
    /// What is wrong.
    pub reason: String,
}

impl Problem {
    /// Returns the problems of a host.
    pub fn of(facts: &HostFacts) -> Vec<Self> {
        let clash = facts.clash.iter().map(|why| Self { kind: ProblemKind::HostName, reason: why.clone() });
        let files = facts.readable_report().into_iter().flat_map(|report| &report.problems).map(|problem| {
            let kind = match problem.file {
                ProblemFile::Settings => ProblemKind::Settings,
                ProblemFile::Service => ProblemKind::ServiceFile,
                ProblemFile::Template => ProblemKind::Template,
            };
            let reason = match problem.line.as_str() {
                "" => problem.reason.clone(),
                line => format!("{}: {line}", problem.reason),
            };
            Self { kind, reason }
        });
        clash.chain(files).collect()
    }
}

/// A problem of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ProblemOn {
    /// The name of the host.
    pub host: HostName,
    /// The problem.
    #[serde(flatten)]
    pub problem: Problem,
}

impl ProblemOn {
    /// The header of [`Self::row`].
    pub(super) const HEADER: [&'static str; 3] = ["PROBLEM", "HOST", "REASON"];

    /// Returns the problems of a fleet, by host.
    pub(super) fn all(fleet: &Fleet) -> Vec<Self> {
        let of_host = |(host, facts): (&HostName, &HostFacts)| {
            let on = |problem| Self { host: host.clone(), problem };
            Problem::of(facts).into_iter().map(on).collect::<Vec<_>>()
        };
        fleet.hosts().iter().flat_map(of_host).collect()
    }

    /// Returns the problem as a row of a table.
    pub(super) fn row(&self) -> [String; 3] {
        [self.problem.kind.to_string(), self.host.to_string(), self.problem.reason.clone()]
    }
}
