//! The definitions of the verbs.

use super::hosts::HostsVerb;
use super::policy::PolicyVerb;
use super::recording::RecordingVerb;
use super::rolling_upgrade::RollingUpgradeVerb;
use super::rollout::RolloutVerb;
use super::selection::Selection;
use super::services::ServicesVerb;
use super::store::StoreVerb;
use super::values::ValuesVerb;
use super::{
    bootstrap, bundle, claims, desired, discovery_token, enroll, events, failures, freezes, host_config,
    hosts, lint, local, logs, maintenance, one_shot, plan, retry, running, services, status, trigger, ui,
    verify_hosts, why, with_claim,
};
use crate::manual::Manual;
use clap::Subcommand;

/// The verbs, in groups: to find the definition of one verb, only its group has to be built. The
/// options of a verb are in the file that runs it.
#[derive(Debug, Subcommand)]
#[command(rename_all = "snake_case")]
pub(crate) enum Verb {
    #[command(flatten)]
    Control(ControlVerb),
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
    Ui(ui::Ui),
    Lint(lint::Lint),
    /// The recording of the store
    Recording {
        #[command(subcommand)]
        verb: RecordingVerb,
    },
    Bootstrap(bootstrap::Bootstrap),
    Enroll(enroll::Enroll),
    Manual(Manual),
    /// Print a completion script for a shell
    Completion {
        /// Shell that reads the script
        shell: clap_complete::Shell,
    },
}

/// Verbs that start updates, and control how they go through the fleet.
#[derive(Debug, Subcommand)]
#[command(rename_all = "snake_case")]
pub(crate) enum ControlVerb {
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
}

/// Verbs about the versions that the fleet runs and is asked to run.
#[derive(Debug, Subcommand)]
#[command(rename_all = "snake_case")]
pub(crate) enum UpdateVerb {
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
    Events(events::Events),
    Logs(logs::Logs),
    Bundle(bundle::Bundle),
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
