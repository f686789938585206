//! The verbs. Each one reads or writes the store, hands its result to the output, and returns the
//! exit code.

mod bootstrap;
mod context;
mod desired;
mod enroll;
mod failures;
mod fleet;
mod hosts;
mod lint;
mod local;
mod maintenance;
mod one_shot;
mod ping;
mod running;
mod services;
mod status;
mod store;
mod trigger;
mod verify_hosts;
mod why;

pub(crate) use bootstrap::DIRECTORY;

use crate::cli::{CatalogVerb, HostsVerb, ServicesVerb, StateVerb, StoreVerb, UpdateVerb, Verb};
use crate::exit::{Exit, Failure};
use crate::output::{self, Output};
use crate::settings::Settings;
use crate::{completion, seen_stores};
use anyhow::Context;
use context::{Store, now};
use etcd_session::{Deadline, EndpointSource, Session, SessionConfig};
use maintenance::MaintenanceRequest;
use schema::records::{MaintenanceMode, certificate_warning};
use std::time::Duration;

/// Runs one verb.
pub(crate) fn run(verb: Verb, settings: &Settings, output: &mut Output) -> Result<Exit, Failure> {
    match verb {
        Verb::LocalVersion { version } => local::local_version(version.as_deref(), settings, output),
        Verb::Lint { files } => lint::files(&files, output),
        Verb::Enroll { name, kind, services, print_etcdctl: _ } => {
            enroll::etcdctl(&name, kind, &services, &settings.session.namespace, output)
        }
        Verb::Bootstrap { first, directory, hostname, role, group, labels, replace } => {
            let patch = hosts::RosterPatch::parse(role.as_deref(), group.as_deref(), &labels)?;
            let request = bootstrap::BootstrapRequest { first, directory, hostname, roster: patch, replace };
            ask(settings, settings.timeout, false, output, async |store, output| {
                bootstrap::bootstrap(request, store, output).await
            })
        }
        Verb::Completion { shell } => {
            output.raw(&completion::script(shell).context("completion")?);
            Ok(Exit::Yes)
        }
        Verb::Update(verb) => {
            let most =
                if matches!(verb, UpdateVerb::Ping) { ping::limit(settings) } else { settings.timeout };
            // `verify_hosts` reads the store's identity in its own requests.
            let about_fleet = matches!(
                verb,
                UpdateVerb::RunningVersions
                    | UpdateVerb::CheckSingleVersion { .. }
                    | UpdateVerb::GetFailures { .. }
                    | UpdateVerb::HostsAtVersion { .. }
            );
            ask(settings, most, about_fleet, output, async |store, output| update(verb, store, output).await)
        }
        Verb::State(verb) => {
            let about_fleet = matches!(
                verb,
                StateVerb::Status
                    | StateVerb::Unaccounted
                    | StateVerb::Hosts { verb: HostsVerb::List { .. } }
                    | StateVerb::Why { .. }
            );
            let most = settings.timeout;
            ask(settings, most, about_fleet, output, async |store, output| state(verb, store, output).await)
        }
        Verb::Catalog(verb) => {
            let about_fleet = matches!(verb, CatalogVerb::Services { .. } | CatalogVerb::WaitFor { .. });
            let most = settings.timeout;
            ask(settings, most, about_fleet, output, async |store, output| catalog(verb, store, output).await)
        }
    }
}

/// Runs a verb that needs the store. `most` is the time limit of the verb, from which the time
/// limit of a request to one member follows. If `about_fleet` is set and the store is known to have
/// gone back, the verb fails instead of giving an answer.
fn ask(
    settings: &Settings,
    most: Duration,
    about_fleet: bool,
    output: &mut Output,
    question: impl AsyncFnOnce(&Store<'_>, &mut Output) -> Result<Exit, Failure>,
) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("runtime")?;
    let exit = runtime.block_on(async {
        let deadline = Deadline::within(settings.timeout);
        let session = Session::new(session_config(most, settings))?;
        for (file, end) in etcd_session::certificate_ends(&settings.session.tls) {
            certificate_warning(&file, end, now()).iter().for_each(|warning| output::warn(warning));
        }
        let store = Store { settings, session, deadline };
        let question = question(&store, output);
        if about_fleet {
            seen_stores::answer(settings, &store.session, deadline, question).await
        } else {
            question.await
        }
    });
    // A name lookup or a read of standard input may still be blocked; its result is no longer
    // needed.
    runtime.shutdown_background();
    exit
}

/// Returns the configuration of the session. If the store may have several members, a silent one
/// must leave time to ask another.
fn session_config(most: Duration, settings: &Settings) -> SessionConfig {
    let mut config = settings.session.clone();
    if !matches!(&config.endpoints, EndpointSource::List(list) if list.len() == 1) {
        config.attempt_timeout = config.attempt_timeout.min(most / 2);
    }
    config
}

/// Runs a verb about versions.
async fn update(verb: UpdateVerb, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
    match verb {
        UpdateVerb::TriggerUpdate { version, require_settled, if_different } => {
            let version = context::version(&version)?;
            trigger::trigger_update(&version, require_settled, if_different, store, output).await
        }
        UpdateVerb::CurrentVersion => desired::current_version(store, output).await,
        UpdateVerb::Ping => ping::ping(store, output).await,
        UpdateVerb::PendingUpdate { peek } => desired::pending_update(peek, store, output).await,
        UpdateVerb::UpdateOwnStatus { hostname, kind, code } => {
            one_shot::update_own_status(hostname.as_deref(), &kind, code, store, output).await
        }
        UpdateVerb::UpdateOwnInfo { interval: _, hostname, version } => {
            one_shot::update_own_info(hostname.as_deref(), version.as_deref(), store, output).await
        }
        UpdateVerb::RunningVersions => running::running_versions(store, output).await,
        UpdateVerb::VerifyHosts { version, hosts, wait, strict } => {
            let options = verify_hosts::Options { wait: wait.as_deref(), strict };
            verify_hosts::verify_hosts(&context::version(&version)?, hosts, options, store, output).await
        }
        UpdateVerb::CheckSingleVersion { verbose, version } => {
            running::check_single_version(&context::version(&version)?, verbose, store, output).await
        }
        UpdateVerb::GetFailures { hosts, show_warnings } => {
            failures::get_failures(hosts, show_warnings, store, output).await
        }
        UpdateVerb::HostsAtVersion { version } => {
            running::hosts_at_version(&context::version(&version)?, store, output).await
        }
        UpdateVerb::LocalHealth { verbose } => local::local_health(verbose, store, output).await,
        UpdateVerb::DebugTimeout { version, debug_hosts } => {
            failures::debug_timeout(&context::version(&version)?, debug_hosts, store, output).await
        }
        UpdateVerb::NewDiscoveryToken { endpoint } => new_discovery_token(endpoint, store, output).await,
    }
}

/// Runs a verb about the state of the hosts or the store.
async fn state(verb: StateVerb, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
    match verb {
        StateVerb::Status => status::status(store, output).await,
        StateVerb::Unaccounted => status::unaccounted(store, output).await,
        StateVerb::Hosts { verb: HostsVerb::List { all } } => hosts::list(all, store, output).await,
        StateVerb::Hosts { verb: HostsVerb::Add { host, role, group, labels } } => {
            let patch = hosts::RosterPatch::parse(role.as_deref(), group.as_deref(), &labels)?;
            hosts::add(&context::host(&host)?, patch, store, output).await
        }
        StateVerb::Hosts { verb: HostsVerb::Decommission { host, force } } => {
            hosts::decommission(&context::host(&host)?, force, store, output).await
        }
        StateVerb::Why { host: Some(host) } => why::why(&context::host(&host)?, store, output).await,
        StateVerb::Why { host: None } => why::roots(store, output).await,
        StateVerb::Logs { host } => why::logs(&context::host(&host)?, store, output).await,
        StateVerb::Retry { host } => why::retry(&context::host(&host)?, store, output).await,
        StateVerb::Store { verb: StoreVerb::Show } => self::store::show(store, output).await,
        StateVerb::Store { verb: StoreVerb::Accept { version, lineage } } => {
            self::store::accept(&context::version(&version)?, lineage.as_deref(), store, output).await
        }
    }
}

/// Runs a verb about services.
async fn catalog(verb: CatalogVerb, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
    match verb {
        CatalogVerb::Services { verb: ServicesVerb::List } => services::list(store, output).await,
        CatalogVerb::Services { verb: ServicesVerb::Show { service } } => {
            services::show(&context::service(&service)?, store, output).await
        }
        CatalogVerb::PublishService => services::publish_service(store, output).await,
        CatalogVerb::GetServices => services::get_services(store, output).await,
        CatalogVerb::CacheServices { force } => services::cache_services(force, store, output).await,
        CatalogVerb::WaitFor { service, count, level } => {
            services::wait_for(&context::service(&service)?, count, &level, store, output).await
        }
        CatalogVerb::Maintenance { switch, service, hostname, reason } => {
            let request = MaintenanceRequest {
                how: MaintenanceMode::Maintenance,
                on: switch == "on",
                service: service.as_deref(),
                hostname: hostname.as_deref(),
                reason: reason.as_deref(),
            };
            maintenance::set(request, store, output).await
        }
        CatalogVerb::Drain { service, hostname, reason, off } => {
            let request = MaintenanceRequest {
                how: MaintenanceMode::Draining,
                on: !off,
                service: service.as_deref(),
                hostname: hostname.as_deref(),
                reason: reason.as_deref(),
            };
            maintenance::set(request, store, output).await
        }
        CatalogVerb::DropStale => maintenance::drop_stale(store, output).await,
        CatalogVerb::Dns { name, kind, domain } => services::dns(&name, &kind, &domain, store, output).await,
    }
}

/// Gets a token from a discovery service; this does not use the store.
async fn new_discovery_token(
    endpoint: Option<String>,
    store: &Store<'_>,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let Some(endpoint) = endpoint else {
        return Err(Failure::cannot_tell(
            "the public etcd discovery service is gone, and --endpoint URL names another",
        ));
    };
    let asking = tokio::task::spawn_blocking(move || etcd_session::new_discovery_token(&endpoint));
    let Ok(answer) = tokio::time::timeout(store.deadline.left(), asking).await else {
        return Err(Failure::cannot_tell("the discovery service: no answer within the time-out"));
    };
    let token = answer.context("the discovery service")??;
    output.answer(&serde_json::json!({ "token": token }), |o| o.line(&token));
    Ok(Exit::Yes)
}
