//! `why`: why a host is as it is. It uses only what the store holds, so it also works if the host is gone.

use crate::commands::answers;
use crate::commands::context::{Store, host_of, now};
use crate::commands::fleet;
use crate::commands::rollout::host;
use crate::commands::selection::unknown;
use crate::commands::services::catalog;
use crate::commands::verb::{About, Answer, Group, Past, Spec, Verb};
use crate::completion;
use crate::exit::{Exit, Failure};
use crate::output::{self, Output};
use ::fleet::views::{HostRollout, HostView, HostWaits, RootsView};
use ::fleet::{FleetVerdict, WaitGraph};
use clap::Args;
use etcd_session::StoreError;
use schema::keys::{Key, Prefix};
use schema::names::{HostName, StatusType, Version};
use schema::snapshot::KeySnapshot;

/// Show why a host is as it is, and what would change it
#[derive(Debug, Args)]
pub(crate) struct Why {
    /// Host to explain; without it, what keeps hosts waiting
    #[arg(add = completion::hosts())]
    host: Option<String>,
}

impl Verb for Why {
    const SPEC: Spec = Spec {
        name: "why",
        group: Group::Fleet,
        about: About::Hosts,
        past: Past::Answers,
        exits: &[Exit::No],
        answer: Answer::Json(|generator| {
            answers::either([answers::of::<HostView>(generator), answers::of::<RootsView>(generator)])
        }),
        examples: &[
            ("orchestrate why web-7", "why this host is not done, and what it does next"),
            ("orchestrate why", "what keeps hosts waiting, and which"),
        ],
    };

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        match self.host {
            Some(host) => of_host(&host_of(&host)?, store, output).await,
            None => roots(store, output).await,
        }
    }
}

/// Prints what a host decided, on which instruction, what it waits for and what would change that.
async fn of_host(host: &HostName, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
    let snapshot = read_keys_of(host, store).await?;
    let revision = snapshot.revision;
    let mut fleet = fleet::fleet(&snapshot);
    fleet::print_warnings(&fleet);
    fleet::warn_of_unconfirmed_listings(&fleet);
    let waits = if fleet.verdict(host).is_some_and(FleetVerdict::waits_for_services) {
        // Others decide when the host goes on, so the whole fleet counts.
        (fleet, _) = fleet::read(store, Some(revision), store.deadline).await?;
        let (view, _) = catalog::read(store, None, Some(revision)).await?;
        fleet.find_deadlocks(&view, now());
        HostWaits::all(host, &WaitGraph::of(&fleet, &view, now()))
    } else {
        fleet::read_wait_causes(&mut fleet, revision, store).await?;
        Vec::new()
    };
    let rollout = if fleet.hosts().contains_key(host) {
        host::read(host, &fleet, &snapshot, store).await?
    } else {
        HostRollout::default()
    };
    let retry = snapshot.get(&Key::Retry(host.clone())).map(|entry| entry.mod_revision);
    let view = HostView::new(host, &fleet, waits, rollout, retry, revision);
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
    store.remember_desired(&snapshot);
    Ok(snapshot)
}

/// Prints why hosts wait for services: each root once, those with the most hosts first.
async fn roots(store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
    let (mut fleet, revision) = fleet::read(store, None, store.deadline).await?;
    fleet::print_warnings(&fleet);
    let (view, _) = catalog::read(store, None, Some(revision)).await?;
    fleet.find_deadlocks(&view, now());
    let roots = RootsView::new(&WaitGraph::of(&fleet, &view, now()), revision);
    output.view(&roots);
    if roots.waiting.is_empty() {
        output::note("no host waits for a service");
    }
    Ok(Exit::Yes)
}
