//! Options that select hosts of the fleet by what their roster entries say.

use super::context::Store;
use super::fleet;
use crate::exit::Failure;
use ::fleet::Fleet;
use ::fleet::views::{HostFilter, HostsView};
use anyhow::anyhow;
use clap::Args;
use schema::names::{HostName, Role};
use schema::verdict::VerdictKind;

/// Which hosts are meant. Without any option, all are.
#[derive(Debug, Default, Args)]
pub(crate) struct Selection {
    /// Only hosts of this role; may be given several times
    #[arg(long = "role", value_name = "ROLE")]
    roles: Vec<String>,
    /// Only hosts of this group; may be given several times
    #[arg(long = "group", value_name = "GROUP")]
    groups: Vec<String>,
    /// Only hosts with this label; if given several times, with all of them
    #[arg(long = "label", value_name = "NAME=VALUE")]
    labels: Vec<String>,
}

impl Selection {
    /// True if no option is given.
    pub(super) fn is_empty(&self) -> bool {
        self.roles.is_empty() && self.groups.is_empty() && self.labels.is_empty()
    }

    /// Returns the hosts that are meant, of those with one of these verdicts; an empty list means all verdicts.
    pub(super) fn filter(&self, verdicts: Vec<VerdictKind>) -> Result<HostFilter, Failure> {
        let names = |texts: &[String], what: &'static str| {
            let name = |text: &String| Role::new(text).map_err(|e| Failure::usage(anyhow!(e).context(what)));
            texts.iter().map(name).collect::<Result<Vec<Role>, Failure>>()
        };
        Ok(HostFilter {
            roles: names(&self.roles, "--role")?,
            groups: names(&self.groups, "--group")?,
            labels: self.labels.iter().map(|text| parse_label(text)).collect::<Result<_, _>>()?,
            verdicts,
        })
    }
}

/// Parses a label of a host. An invalid one is wrong usage.
pub(super) fn parse_label(text: &str) -> Result<(String, String), Failure> {
    HostFilter::parse_label(text).map_err(|why| Failure::usage(anyhow!(why)))
}

/// Refuses a role, a group or a label that no host has, as a freeze of it is refused.
pub(super) fn refuse_unknown(filter: &HostFilter, fleet: &Fleet) -> Result<(), Failure> {
    match filter.unknown(fleet) {
        Some(unknown) => Err(Failure::refused(unknown)),
        None => Ok(()),
    }
}

/// Reads the members of the fleet that are meant, by name. That there is none is a no, so that it is not taken for
/// success.
pub(super) async fn members(filter: &HostFilter, store: &Store<'_>) -> Result<Vec<HostName>, Failure> {
    let (fleet, revision) = fleet::read(store, None, store.deadline).await?;
    fleet::print_warnings(&fleet);
    refuse_unknown(filter, &fleet)?;
    let mut view = HostsView::new(&fleet, false, revision);
    view.keep(filter);
    if view.hosts.is_empty() {
        return Err(Failure::no("no host is selected"));
    }
    Ok(view.hosts.into_iter().map(|host| host.host).collect())
}

/// Returns the answer for a host of which nothing is known.
pub(super) fn unknown(host: &HostName) -> Failure {
    Failure::no(format!("host {host} is not known: it is not on the roster and has never reported"))
}
