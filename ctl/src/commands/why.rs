//! One host: `why` and `logs`. Both use only what the store holds, so they also work if the
//! host is gone.

use super::context::{Store, host_of, now};
use super::{fleet, host_rollout, services};
use crate::completion;
use crate::exit::{Exit, Failure};
use crate::output::{self, Output};
use clap::Args;
use etcd_session::StoreError;
use planning::fleet::views::{HostRollout, HostView, HostWaits, RootsView};
use planning::fleet::{FleetVerdict, WaitGraph, Waiting};
use planning::text::rfc3339;
use schema::codec;
use schema::keys::{Key, Prefix};
use schema::names::{HostName, StatusType, Version};
use schema::records::Report;
use schema::snapshot::KeySnapshot;
use schema::verdict::{HostVerdict, WaitingOn};
use serde_json::json;

pub(super) fn unknown(host: &HostName) -> Failure {
    Failure::no(format!("host {host} is not known: it is not on the roster and has never reported"))
}

/// Show why a host is as it is, and what would change it
#[derive(Debug, Args)]
pub(crate) struct Why {
    /// Host to explain; without it, what keeps hosts waiting
    #[arg(add = completion::hosts())]
    host: Option<String>,
}

/// Prints why a host does what it does, or why hosts wait.
pub(super) async fn why(options: Why, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
    match options.host {
        Some(host) => of_host(&host_of(&host)?, store, output).await,
        None => roots(store, output).await,
    }
}

/// Prints what a host decided, on which instruction, what it waits for and what would change that.
async fn of_host(host: &HostName, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
    let snapshot = read_keys_of(host, store).await?;
    let revision = snapshot.revision;
    let mut fleet = fleet::fleet(&snapshot);
    fleet::print_warnings(&fleet);
    fleet::warn_of_unconfirmed_listings(&fleet);
    let waits_for_service =
        matches!(fleet.verdict(host), Some(FleetVerdict::Waiting(Waiting::On(WaitingOn::Service(_)))));
    let waits = if waits_for_service {
        // Others decide when the host goes on, so the whole fleet counts.
        (fleet, _) = fleet::read(store, Some(revision), store.deadline).await?;
        let (catalog, _) = services::read(store, None, Some(revision)).await?;
        fleet.find_deadlocks(&catalog, now());
        Some(HostWaits::new(host, &WaitGraph::of(&fleet, &catalog, now())))
    } else {
        None
    };
    let rollout = match fleet.hosts().contains_key(host) {
        true => host_rollout::read(host, &snapshot, store).await?,
        false => HostRollout::default(),
    };
    let retry = snapshot.get(&Key::Retry(host.clone())).map(|entry| entry.mod_revision);
    let view = HostView::new(host, &fleet, (waits, rollout), retry, revision);
    let view = view.ok_or_else(|| match snapshot.get(&Key::Host(host.clone())) {
        Some(_) => Failure::no(format!("host {host} was decommissioned")),
        None => unknown(host),
    })?;
    output.answer(&view, |output| output.raw(view.text(now()).as_str()));
    Ok(Exit::Yes)
}

/// Reads the keys of a host on which its verdict depends, and those of the fleet, at one revision. In the
/// listings and results a version or type comes before the host, so the versions and types are read first.
async fn read_keys_of(host: &HostName, store: &Store<'_>) -> Result<KeySnapshot, StoreError> {
    let Store { session, deadline, .. } = store;
    let (versions, at) = session.read_names(&Prefix::RunningVersions, None, *deadline).await?;
    let (types, reporting) = tokio::try_join!(
        session.read_names(&Prefix::Statuses, Some(at), *deadline),
        session.read_names(&Prefix::ReportingAll, Some(at), *deadline),
    )?;
    let mut keys = vec![Key::CurrentVersion, Key::Store];
    keys.extend(Key::of_host(host));
    let versions = versions.into_iter().filter_map(|version| Version::new(version).ok());
    keys.extend(versions.map(|version| Key::RunningVersion(version, host.clone())));
    let types = types.0.into_iter().filter_map(|kind| StatusType::new(kind).ok());
    keys.extend(types.flat_map(|kind| Key::statuses(&kind, host)));
    let reporting = reporting.0.into_iter().filter_map(|kind| StatusType::new(kind).ok());
    keys.extend(reporting.map(|kind| Key::Reporting(kind, host.clone())));
    let snapshot = session.read_all(&keys, &[Prefix::Freezes], Some(at), *deadline).await?;
    super::desired::remember(&snapshot, store);
    Ok(snapshot)
}

/// Prints why hosts wait for services: each root once, those with the most hosts first.
async fn roots(store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
    let (mut fleet, revision) = fleet::read(store, None, store.deadline).await?;
    fleet::print_warnings(&fleet);
    let (view, _) = services::read(store, None, Some(revision)).await?;
    fleet.find_deadlocks(&view, now());
    let roots = RootsView::new(&WaitGraph::of(&fleet, &view, now()), revision);
    output.view(&roots);
    if roots.waiting.is_empty() {
        output::note("no host waits for a service");
    }
    Ok(Exit::Yes)
}

/// Print the last lines of the step that failed on a host
#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// Host whose output is printed
    #[arg(add = completion::hosts())]
    host: String,
}

/// Prints the last lines of the step that failed or was deferred.
pub(super) async fn logs(options: Logs, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
    let host = &host_of(&options.host)?;
    let key = Key::Report(host.clone());
    let snapshot = store.session.read_keys(std::slice::from_ref(&key), store.deadline).await?;
    let Some(entry) = snapshot.get(&key) else {
        return Err(Failure::no(format!("host {host} has not reported")));
    };
    let report: Report =
        codec::read(&entry.value).map_err(|e| Failure::cannot_tell(format!("the report of {host}: {e}")))?;
    let (phase, step) = report.log_of.map(|of| (of.phase, of.step)).unzip();
    let answer = json!({
        "host": host,
        "phase": phase,
        "step": step,
        "lines": report.log,
        "reported_at": rfc3339(report.at),
    });
    if report.log.is_empty() {
        output::note(&no_log(host, &report.verdict));
    } else if let (Some(phase), Some(step)) = (phase, step) {
        output::note(&format!(
            "{phase} step {step}, reported at {}:",
            rfc3339(report.at).unwrap_or_default()
        ));
    }
    output.answer(&answer, |o| report.log.iter().for_each(|line| o.line(line)));
    Ok(Exit::Yes)
}

/// Returns the reason why a report has no log.
fn no_log(host: &HostName, verdict: &HostVerdict) -> String {
    match verdict {
        HostVerdict::Failed(_) => format!("{host} failed: {}; it printed nothing", verdict.message()),
        HostVerdict::Waiting { on: WaitingOn::Step { .. } } => {
            format!("{host} {}; it printed nothing", verdict.message())
        }
        _ => format!("the last report of {host} has no log, because no step failed or was deferred"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::names::{StepName, Version};
    use schema::steps::{StepEnd, StepPhase};
    use schema::verdict::{Failure, HostFailure};

    #[test]
    fn a_log_that_is_empty_is_explained_by_what_failed_or_holds() {
        let host = HostName::new("h").unwrap();
        let end = StepEnd::NotStarted { why: "no such file".into() };
        let failure = Failure::of(StepPhase::Apply, StepName::new("pkg").unwrap(), end);
        let failed =
            HostVerdict::Failed(HostFailure { version: Version::new("v1").ok(), failure, suspect: false });
        let on = WaitingOn::Step { phase: StepPhase::Validate, step: StepName::new("look").unwrap() };
        for (verdict, expected) in [
            (HostVerdict::Ok, "the last report of h has no log, because no step failed or was deferred"),
            (
                failed,
                "h failed: apply step pkg could not be started: no such file (version v1); it printed nothing",
            ),
            (
                HostVerdict::Waiting { on },
                "h waits for validate step look, which said \"not yet\"; it printed nothing",
            ),
        ] {
            assert_eq!(no_log(&host, &verdict), expected);
        }
    }
}
