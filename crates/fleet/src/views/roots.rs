//! Why hosts wait for services.

use crate::text::Text;
use crate::waits::{Root, WaitGraph};
use schema::names::HostName;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt;

/// The root causes for which hosts wait, those with the most hosts first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RootsView {
    /// The root causes.
    pub waiting: Vec<WaitingFor>,
    /// The revision of the store at which the fleet was read.
    pub revision: i64,
}

/// A root cause, and the hosts that wait because of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct WaitingFor {
    /// The root cause.
    #[serde(serialize_with = "as_text")]
    #[schemars(with = "String")]
    pub root: Root,
    /// The hosts.
    pub hosts: BTreeSet<HostName>,
}

pub(super) fn as_text<S: Serializer>(root: &Root, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(root)
}

impl RootsView {
    /// Returns the root causes of a graph. Hosts in a deadlock have the verdict blocked, but the graph
    /// still shows them as waiting.
    pub fn new(graph: &WaitGraph<'_>, revision: i64) -> Self {
        let roots = graph.roots().into_iter();
        let mut waiting: Vec<WaitingFor> = roots.map(|(root, hosts)| WaitingFor { root, hosts }).collect();
        waiting.sort_by_key(|found| (Reverse(found.hosts.len()), found.root.clone()));
        Self { waiting, revision }
    }
}

impl fmt::Display for RootsView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMED_MAX: usize = 5;
        let mut text = Text::default();
        for WaitingFor { root, hosts } in &self.waiting {
            let (count, s) = (hosts.len(), if hosts.len() == 1 { " waits" } else { "s wait" });
            text.line(&format!("{count} host{s}: {root}"));
            let names: Vec<&str> = hosts.iter().take(NAMED_MAX).map(HostName::as_str).collect();
            let more = count.saturating_sub(NAMED_MAX);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            text.line(&format!("    {}{more}", names.join(" ")));
        }
        text.fmt(f)
    }
}
