//! The verbs. Each one reads or writes the store, hands its result to the output, and returns the
//! exit code.

mod bootstrap;
mod claims;
mod context;
mod desired;
mod discovery_token;
mod enroll;
mod failures;
mod fleet;
mod freezes;
mod host_config;
mod host_rollout;
mod hosts;
mod lint;
mod local;
mod logs;
mod maintenance;
mod one_shot;
mod ping;
mod plan;
mod policy;
mod record;
mod retry;
mod rollback;
mod rolling_upgrade;
mod rollout;
mod rollout_history;
mod rollout_options;
mod rollout_status;
mod rollout_text;
mod running;
mod script_start;
mod selection;
mod services;
mod status;
mod store;
mod trigger;
mod values;
mod verification;
mod verify_hosts;
mod verify_wait;
mod watch;
mod why;
mod with_claim;

use crate::exit::{Exit, Failure};
use crate::manual::{self, Manual};
use crate::output::{self, Output};
use crate::settings::Settings;
use crate::{completion, seen_stores};
use anyhow::Context;
use clap::Subcommand;
use context::{Store, now};
use etcd_session::{Deadline, EndpointSource, Session, SessionConfig};
use hosts::HostsVerb;
use policy::PolicyVerb;
use rolling_upgrade::RollingUpgradeVerb;
use rollout::RolloutVerb;
use schema::records::certificate_warning;
use selection::Selection;
use services::ServicesVerb;
use std::time::Duration;
use store::StoreVerb;
use values::ValuesVerb;

/// The verbs, in groups: to find the definition of one verb, only its group has to be built. The
/// options of a verb are in the file that runs it.
#[derive(Debug, Subcommand)]
#[command(rename_all = "snake_case")]
pub(crate) enum Verb {
    #[command(flatten)]
    Update(UpdateVerb),
    #[command(flatten)]
    State(StateVerb),
    #[command(flatten)]
    Catalog(CatalogVerb),
    #[command(flatten)]
    Config(ConfigVerb),
    LocalVersion(local::LocalVersion),
    #[command(name = "with-claim", alias = "with_claim")]
    WithClaim(with_claim::WithClaim),
    Lint(lint::Lint),
    Bootstrap(bootstrap::Bootstrap),
    Enroll(enroll::Enroll),
    Manual(Manual),
    /// Print a completion script for a shell
    Completion {
        /// Shell that reads the script
        shell: clap_complete::Shell,
    },
}

/// Verbs about the versions that the fleet runs and is asked to run.
#[derive(Debug, Subcommand)]
#[command(rename_all = "snake_case")]
pub(crate) enum UpdateVerb {
    TriggerUpdate(trigger::TriggerUpdate),
    Freeze(freezes::Freeze),
    Unfreeze(freezes::Unfreeze),
    /// List the freezes
    Freezes,
    /// The rollout policy: how many hosts may update at once
    Policy {
        #[command(subcommand)]
        verb: PolicyVerb,
    },
    Claims(claims::Claims),
    Plan(plan::Plan),
    /// The update of the whole fleet
    Rollout {
        #[command(subcommand)]
        verb: RolloutVerb,
    },
    /// Print the desired version of the fleet
    CurrentVersion,
    /// Check whether the store answers
    Ping,
    PendingUpdate(desired::PendingUpdate),
    UpdateOwnStatus(one_shot::UpdateOwnStatus),
    UpdateOwnInfo(one_shot::UpdateOwnInfo),
    /// List the versions that hosts run
    RunningVersions,
    VerifyHosts(verify_hosts::VerifyHosts),
    CheckSingleVersion(running::CheckSingleVersion),
    GetFailures(failures::GetFailures),
    NewDiscoveryToken(discovery_token::NewDiscoveryToken),
    HostsAtVersion(running::HostsAtVersion),
    LocalHealth(local::LocalHealth),
    DebugTimeout(failures::DebugTimeout),
}

/// Verbs about the state of the hosts and of the store.
#[derive(Debug, Subcommand)]
#[command(rename_all = "snake_case")]
pub(crate) enum StateVerb {
    Status(status::Status),
    /// List the hosts of the fleet, add one, or take one out
    #[command(args_conflicts_with_subcommands = true)]
    Hosts {
        #[command(subcommand)]
        verb: Option<HostsVerb>,
        #[command(flatten)]
        list: hosts::List,
    },
    /// List the unaccounted hosts: late, lost or never seen
    Unaccounted(Selection),
    Why(why::Why),
    Logs(logs::Logs),
    Retry(retry::Retry),
    /// The store itself
    Store {
        #[command(subcommand)]
        verb: StoreVerb,
    },
}

/// Verbs about services, and about what hosts read beside them.
#[derive(Debug, Subcommand)]
#[command(rename_all = "snake_case")]
pub(crate) enum CatalogVerb {
    /// The services of the fleet
    Services {
        #[command(subcommand)]
        verb: ServicesVerb,
    },
    /// Publish the roles of this host as services
    PublishService,
    /// Print the addresses of all services, as Hiera reads them
    GetServices,
    CacheServices(services::CacheServices),
    WaitFor(services::WaitFor),
    Maintenance(maintenance::SetMaintenance),
    Drain(maintenance::Drain),
    /// Stop serving instances that went silent together
    #[command(name = "drop-stale", aliases = ["drop_stale", "release-view", "release_view"])]
    DropStale,
    Dns(services::Dns),
    /// The texts that templates and gates of hosts read
    Values {
        #[command(subcommand)]
        verb: ValuesVerb,
    },
}

/// Verbs about the values that the original tool keeps for hosts whose scripts ask for them.
#[derive(Debug, Subcommand)]
#[command(rename_all = "snake_case")]
pub(crate) enum ConfigVerb {
    ManageConfig(host_config::ManageConfig),
    HostData(host_config::HostData),
    CheckPuppet(host_config::CheckPuppet),
    EnablePuppet(host_config::EnablePuppet),
    SetConfig(host_config::SetConfig),
    CheckConfig(host_config::CheckConfig),
    /// The rolling upgrade of hosts that old scripts update
    RollingUpgrade {
        #[command(subcommand)]
        verb: RollingUpgradeVerb,
    },
}

/// Runs one verb. `definition` returns the command line, for manual pages.
pub(crate) fn run(
    verb: Verb,
    definition: fn() -> clap::Command,
    settings: &Settings,
    output: &mut Output,
) -> Result<Exit, Failure> {
    match verb {
        Verb::LocalVersion(options) => local::local_version(options, settings, output),
        Verb::WithClaim(options) => with_claim::with_claim(options, settings),
        Verb::Lint(options) => lint::lint_files(options, output),
        Verb::Enroll(options) => enroll::enroll(options, &settings.session.namespace, output),
        Verb::Bootstrap(options) => ask(settings, settings.timeout, false, output, async |store, output| {
            bootstrap::bootstrap(options, store, output).await
        }),
        Verb::Manual(options) => manual::write(&options, &definition(), output),
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
                    | UpdateVerb::Freezes
                    | UpdateVerb::Claims(_)
                    | UpdateVerb::Plan(_)
                    | UpdateVerb::Policy { verb: PolicyVerb::Show }
                    | UpdateVerb::CheckSingleVersion(_)
                    | UpdateVerb::GetFailures(_)
                    | UpdateVerb::HostsAtVersion(_)
                    | UpdateVerb::Rollout { verb: RolloutVerb::History | RolloutVerb::Queue }
            );
            ask(settings, most, about_fleet, output, async |store, output| update(verb, store, output).await)
        }
        Verb::State(StateVerb::Logs(options)) if options.is_local(settings) => {
            logs::local_logs(&options, settings, output)
        }
        Verb::State(verb) => {
            let about_fleet = matches!(
                verb,
                StateVerb::Unaccounted(_)
                    | StateVerb::Hosts { verb: None | Some(HostsVerb::List(_)), .. }
                    | StateVerb::Why(_)
                    | StateVerb::Logs(_)
            );
            let most = settings.timeout;
            ask(settings, most, about_fleet, output, async |store, output| state(verb, store, output).await)
        }
        Verb::Catalog(verb) => {
            let about_fleet = matches!(
                verb,
                CatalogVerb::Services { .. }
                    | CatalogVerb::WaitFor(_)
                    | CatalogVerb::Dns(_)
                    | CatalogVerb::Values { verb: ValuesVerb::List(_) | ValuesVerb::Get(_) }
            );
            let most = settings.timeout;
            ask(settings, most, about_fleet, output, async |store, output| catalog(verb, store, output).await)
        }
        Verb::Config(verb) => {
            // A store that went back may have lost the word that holds a host. `rolling_upgrade` looks at the
            // store's identity in its own requests.
            let about_fleet = matches!(
                verb,
                ConfigVerb::HostData(_) | ConfigVerb::CheckPuppet(_) | ConfigVerb::CheckConfig(_)
            );
            let most = settings.timeout;
            ask(settings, most, about_fleet, output, async |store, output| config(verb, store, output).await)
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
        UpdateVerb::TriggerUpdate(options) => {
            trigger::trigger_update("trigger_update", options, store, output).await
        }
        UpdateVerb::Freeze(options) => freezes::freeze(options, store, output).await,
        UpdateVerb::Unfreeze(options) => freezes::unfreeze(options, store, output).await,
        UpdateVerb::Freezes => freezes::freezes(store, output).await,
        UpdateVerb::Policy { verb } => policy::policy(verb, store, output).await,
        UpdateVerb::Claims(options) => claims::claims(options, store, output).await,
        UpdateVerb::Plan(options) => plan::plan(options, store, output).await,
        UpdateVerb::Rollout { verb } => rollout::rollout(verb, store, output).await,
        UpdateVerb::CurrentVersion => desired::current_version(store, output).await,
        UpdateVerb::Ping => ping::ping(store, output).await,
        UpdateVerb::PendingUpdate(options) => desired::pending_update(options, store, output).await,
        UpdateVerb::UpdateOwnStatus(options) => one_shot::update_own_status(options, store, output).await,
        UpdateVerb::UpdateOwnInfo(options) => one_shot::update_own_info(options, store, output).await,
        UpdateVerb::RunningVersions => running::running_versions(store, output).await,
        UpdateVerb::VerifyHosts(options) => verify_hosts::verify_hosts(options, store, output).await,
        UpdateVerb::CheckSingleVersion(options) => {
            running::check_single_version(options, store, output).await
        }
        UpdateVerb::GetFailures(options) => failures::get_failures(options, store, output).await,
        UpdateVerb::HostsAtVersion(options) => running::hosts_at_version(options, store, output).await,
        UpdateVerb::LocalHealth(options) => local::local_health(options, store, output).await,
        UpdateVerb::DebugTimeout(options) => failures::debug_timeout(options, store, output).await,
        UpdateVerb::NewDiscoveryToken(options) => {
            discovery_token::new_discovery_token(options, store, output).await
        }
    }
}

/// Runs a verb about the state of the hosts or the store.
async fn state(verb: StateVerb, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
    match verb {
        StateVerb::Status(options) => status::status(options, store, output).await,
        StateVerb::Unaccounted(selection) => status::unaccounted(&selection, store, output).await,
        StateVerb::Hosts { verb, list } => {
            hosts::hosts(verb.unwrap_or(HostsVerb::List(list)), store, output).await
        }
        StateVerb::Why(options) => why::why(options, store, output).await,
        StateVerb::Logs(options) => logs::logs(options, store, output).await,
        StateVerb::Retry(options) => retry::retry(options, store, output).await,
        StateVerb::Store { verb } => self::store::store_verb(verb, store, output).await,
    }
}

/// Runs a verb about services.
async fn catalog(verb: CatalogVerb, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
    match verb {
        CatalogVerb::Services { verb } => services::services(verb, store, output).await,
        CatalogVerb::PublishService => services::publish_service(store, output).await,
        CatalogVerb::GetServices => services::get_services(store, output).await,
        CatalogVerb::CacheServices(options) => services::cache_services(options, store, output).await,
        CatalogVerb::WaitFor(options) => services::wait_for(options, store, output).await,
        CatalogVerb::Maintenance(options) => maintenance::maintenance(options, store, output).await,
        CatalogVerb::Drain(options) => maintenance::drain(options, store, output).await,
        CatalogVerb::DropStale => maintenance::drop_stale(store, output).await,
        CatalogVerb::Dns(options) => services::dns(options, store, output).await,
        CatalogVerb::Values { verb } => values::values(verb, store, output).await,
    }
}

/// Runs a verb about the values of the original tool.
async fn config(verb: ConfigVerb, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
    match verb {
        ConfigVerb::ManageConfig(options) => host_config::manage_config(options, store, output).await,
        ConfigVerb::HostData(options) => host_config::host_data(options, store, output).await,
        ConfigVerb::CheckPuppet(options) => host_config::check_puppet(options, store, output).await,
        ConfigVerb::EnablePuppet(options) => host_config::enable_puppet(options, store, output).await,
        ConfigVerb::SetConfig(options) => host_config::set_config(options, store, output).await,
        ConfigVerb::CheckConfig(options) => host_config::check_config(options, store, output).await,
        ConfigVerb::RollingUpgrade { verb } => rolling_upgrade::rolling_upgrade(verb, store, output).await,
    }
}
