//! The definition of the command line for clap. Names are taken as plain text and each verb checks
//! its own, so that an error message states the rule and shows the given name escaped.
//!
//! This file is long because it lists every verb and option with its help text.

use crate::completion;
use crate::output::Format;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// Shows the state of a fleet, and makes it run another version.
///
/// Exit codes: 0 yes, 1 no, 2 cannot tell, 3 refused by a guard, 64 wrong usage.
#[derive(Debug, Parser)]
#[command(
    name = "orchestrate",
    version,
    max_term_width = 100,
    subcommand_value_name = "VERB",
    subcommand_help_heading = "Verbs"
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalOptions,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// Options of every verb.
#[derive(Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct GlobalOptions {
    /// Host of the store [default: 127.0.0.1]
    #[arg(long = "host", value_name = "HOST", global = true)]
    pub(crate) store_host: Option<String>,
    /// Client port of the store [default: 2379]
    #[arg(long = "port", value_name = "PORT", global = true)]
    pub(crate) store_port: Option<u16>,
    /// Token by which the public etcd discovery service knows the store's hosts; empty: no token
    #[arg(long = "discovery_token", value_name = "TOKEN", global = true)]
    pub(crate) discovery_token: Option<String>,
    /// Endpoints of the store, separated by commas [env: ORCHESTRATE_ENDPOINTS, ETCDCTL_ENDPOINTS]
    #[arg(long, value_name = "LIST", global = true, group = "source")]
    pub(crate) endpoints: Option<String>,
    /// File with one endpoint per line
    #[arg(long, value_name = "FILE", global = true, group = "source")]
    pub(crate) endpoints_file: Option<PathBuf>,
    /// Domain whose SRV records name the endpoints
    #[arg(long, value_name = "DOMAIN", global = true, group = "source")]
    pub(crate) discovery_srv: Option<String>,
    /// URL of an etcd discovery service, with the token
    #[arg(long, value_name = "URL", global = true, group = "source")]
    pub(crate) discovery_url: Option<String>,
    /// Certificates of the authorities that sign the store's certificate [env: ORCHESTRATE_CACERT,
    /// ETCDCTL_CACERT]
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) cacert: Option<PathBuf>,
    /// Client certificate [env: ORCHESTRATE_CERT, ETCDCTL_CERT]
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) cert: Option<PathBuf>,
    /// Private key of the client certificate [env: ORCHESTRATE_KEY, ETCDCTL_KEY]
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) key: Option<PathBuf>,
    /// User, or user and password [env: ORCHESTRATE_USER, ETCDCTL_USER]
    #[arg(long, value_name = "NAME[:PASSWORD]", global = true)]
    pub(crate) user: Option<String>,
    /// Password; safer in the environment [env: ORCHESTRATE_PASSWORD, ETCDCTL_PASSWORD]
    #[arg(long, value_name = "PASSWORD", global = true)]
    pub(crate) password: Option<String>,
    /// Prefix of every key [env: ORCHESTRATE_NAMESPACE]
    #[arg(long, value_name = "PREFIX", global = true)]
    pub(crate) namespace: Option<String>,
    /// Time limit of the whole command [default: 10s] [env: ORCHESTRATE_TIMEOUT]
    #[arg(long, alias = "command-timeout", value_name = "DURATION", global = true)]
    pub(crate) timeout: Option<String>,
    /// Time limit of one connection attempt [default: 2s] [env: ORCHESTRATE_DIAL_TIMEOUT]
    #[arg(long, value_name = "DURATION", global = true)]
    pub(crate) dial_timeout: Option<String>,
    /// Format of the results
    #[arg(
        short = 'o',
        long,
        visible_short_alias = 'w',
        alias = "write-out",
        value_name = "FORMAT",
        value_enum,
        default_value = "table",
        global = true
    )]
    pub(crate) output: Format,
}

impl std::fmt::Debug for GlobalOptions {
    /// Shows no field, because one of them is a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GlobalOptions").finish_non_exhaustive()
    }
}

/// The verbs, in groups: to find the definition of one verb, only its group has to be built.
#[derive(Debug, Subcommand)]
#[command(rename_all = "snake_case")]
pub(crate) enum Verb {
    #[command(flatten)]
    Update(UpdateVerb),
    #[command(flatten)]
    State(StateVerb),
    #[command(flatten)]
    Catalog(CatalogVerb),
    /// Print the version installed on this host, or record it
    LocalVersion {
        /// Record this version
        version: Option<String>,
    },
    /// Check settings and service files before they are used: mistakes, deadlocks, files with two
    /// writers
    Lint {
        /// Directories, one for each kind of host; or settings files, each followed by its service
        /// files
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Write the first settings of this host, and print the commands that start its agent with them
    Bootstrap {
        /// The store is on this machine, as on the first host of a fleet
        #[arg(long)]
        first: bool,
        /// Directory of the settings
        #[arg(long, value_name = "DIRECTORY", default_value = crate::commands::DIRECTORY)]
        directory: PathBuf,
        /// Name of the host, if it is not the name of the machine
        #[arg(long)]
        hostname: Option<String>,
        /// Role of the host
        #[arg(long)]
        role: Option<String>,
        /// Group of the host
        #[arg(long)]
        group: Option<String>,
        /// A free label; may be given several times
        #[arg(long = "label", value_name = "NAME=VALUE")]
        labels: Vec<String>,
        /// Replace the settings that an earlier invocation wrote
        #[arg(long)]
        replace: bool,
    },
    /// Print the commands that give a user of the store exactly the rights that it needs
    Enroll {
        /// Name of the user; for an agent the name of its host, as in its certificate
        name: String,
        /// Kind of user
        #[arg(long = "as", value_name = "KIND", value_enum, default_value = "agent")]
        kind: UserKind,
        /// A service of the host; may be given several times
        #[arg(long = "service", value_name = "SERVICE", add = completion::services())]
        services: Vec<String>,
        /// Print etcdctl commands for a shell, to be run by the store's root user
        #[arg(long = "print-etcdctl", required = true)]
        print_etcdctl: bool,
    },
    /// Print a completion script
    Completion {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// The kinds of users of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum UserKind {
    /// The agent of a host, with rights to its own keys
    Agent,
    /// People who trigger updates, decommission hosts and set values in the store
    Operator,
    /// Users who only read
    Verifier,
}

/// Verbs about the versions that the fleet runs and is asked to run.
#[derive(Debug, Subcommand)]
#[command(rename_all = "snake_case")]
pub(crate) enum UpdateVerb {
    /// Make the fleet run a version
    TriggerUpdate {
        /// The version
        version: String,
        /// Refuse (exit 3) unless every host runs the version that is desired now
        #[arg(long = "require-settled")]
        require_settled: bool,
        /// Write nothing if this version is already the current instruction
        #[arg(long = "if-different")]
        if_different: bool,
    },
    /// Print the desired version of the fleet
    CurrentVersion,
    /// Check whether the store answers
    Ping,
    /// Check whether this host is asked to run another version: 0 yes, 1 no, 2 and 3 cannot tell
    PendingUpdate {
        /// Exit with the true code even where an agent applies updates
        #[arg(long)]
        peek: bool,
    },
    /// Report a result of this host by the exit code of the tool that ran
    UpdateOwnStatus {
        /// A host other than this one
        #[arg(long, add = completion::hosts())]
        hostname: Option<String>,
        /// puppet, validation or provisioned (puppet_service and validation_service are old names),
        /// or a TTL check of the agent on this host
        #[arg(value_name = "TYPE")]
        kind: String,
        /// Exit code of the tool; -1 if it has not finished
        #[arg(allow_negative_numbers = true)]
        code: i64,
    },
    /// Report the version that this host runs
    UpdateOwnInfo {
        /// Accepted for old callers and ignored; without an agent the report lasts 130 seconds
        #[arg(long)]
        interval: Option<u64>,
        /// A host other than this one
        #[arg(long, add = completion::hosts())]
        hostname: Option<String>,
        /// A version other than the one recorded on this host
        #[arg(long)]
        version: Option<String>,
    },
    /// List the versions that hosts run
    RunningVersions,
    /// Check whether hosts run a version; without arguments the hosts are read from standard input,
    /// one per line
    VerifyHosts {
        /// The version
        version: String,
        /// The hosts
        #[arg(add = completion::hosts())]
        hosts: Vec<String>,
        /// Ask again until the answer is yes, at most for this long
        #[arg(long, value_name = "DURATION")]
        wait: Option<String>,
        /// Count a host only if its own key names the version too; any agent may write the list of
        /// a version
        #[arg(long)]
        strict: bool,
    },
    /// Check whether hosts run this version and no other
    CheckSingleVersion {
        /// Print what was found
        #[arg(short, long)]
        verbose: bool,
        /// The version
        version: String,
    },
    /// Check whether anything in the fleet failed
    GetFailures {
        /// Print the names of the hosts
        #[arg(long)]
        hosts: bool,
        /// Count pending results too
        #[arg(long = "show_warnings")]
        show_warnings: bool,
    },
    /// Get a new token from an etcd discovery service
    NewDiscoveryToken {
        /// URL of the service; there is no public one any more
        #[arg(long, value_name = "URL")]
        endpoint: Option<String>,
    },
    /// List the hosts that run a version
    HostsAtVersion {
        /// The version
        version: String,
    },
    /// Report the number of this host's failures in the exit code
    LocalHealth {
        /// Print the failures
        #[arg(short, long)]
        verbose: bool,
    },
    /// Print what may explain why a deployment took too long
    DebugTimeout {
        /// The version that was deployed
        version: String,
        /// Print the last lines of the files that /etc/debug_timeout.ini lists
        #[arg(long = "debug_hosts")]
        debug_hosts: bool,
    },
}

/// Verbs about the state of the hosts and of the store.
#[derive(Debug, Subcommand)]
#[command(rename_all = "snake_case")]
pub(crate) enum StateVerb {
    /// Show the state of the fleet: settled (0), updating or failing (1), unknown (2)
    Status,
    /// The roster: the hosts that the fleet is expected to have
    Hosts {
        #[command(subcommand)]
        verb: HostsVerb,
    },
    /// List the unaccounted hosts: late, lost or never seen
    Unaccounted,
    /// Show what a host decided, on which instruction, and what would change it; without a host,
    /// why hosts wait
    Why {
        /// The host
        #[arg(add = completion::hosts())]
        host: Option<String>,
    },
    /// Print the last lines of the step that failed or was deferred on a host
    Logs {
        /// The host
        #[arg(add = completion::hosts())]
        host: String,
    },
    /// Ask a host to try again
    Retry {
        /// The host
        #[arg(add = completion::hosts())]
        host: String,
    },
    /// The store itself
    Store {
        #[command(subcommand)]
        verb: StoreVerb,
    },
}

/// Verbs about services.
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
    /// Print the addresses of all services, in the format of the file that Hiera reads
    GetServices,
    /// Write the addresses of all services to the file that Hiera reads
    CacheServices {
        /// Write the file even if it loses many addresses
        #[arg(long)]
        force: bool,
    },
    /// Wait until a service has enough instances, at most for --timeout
    WaitFor {
        /// The service
        #[arg(add = completion::services())]
        service: String,
        /// Number of instances
        #[arg(long, default_value_t = 1)]
        count: usize,
        /// Level of the instances: addressable or functional
        #[arg(long, default_value = "functional")]
        level: String,
    },
    /// Let a host, or a service on it, count as critical while somebody works on it
    Maintenance {
        /// on or off
        #[arg(value_parser = ["on", "off"])]
        switch: String,
        /// Only this service
        #[arg(add = completion::services())]
        service: Option<String>,
        /// A host other than this one
        #[arg(long, add = completion::hosts())]
        hostname: Option<String>,
        /// Reason, for others to read
        #[arg(long)]
        reason: Option<String>,
    },
    /// Let a host, or a service on it, take nothing new
    Drain {
        /// Only this service
        #[arg(add = completion::services())]
        service: Option<String>,
        /// A host other than this one
        #[arg(long, add = completion::hosts())]
        hostname: Option<String>,
        /// Reason, for others to read
        #[arg(long)]
        reason: Option<String>,
        /// End draining
        #[arg(long)]
        off: bool,
    },
    /// Stop serving the last known state of instances that stopped reporting together
    #[command(name = "drop-stale", aliases = ["drop_stale", "release-view", "release_view"])]
    DropStale,
    /// Answer a DNS question as the DNS server of an agent would
    Dns {
        /// Name to look up, for example web.service.consul
        name: String,
        /// Type of the records, for example A or SRV
        #[arg(default_value = "A")]
        kind: String,
        /// Domain of the zone
        #[arg(long, default_value = "consul")]
        domain: String,
    },
}

/// Verbs of `services`.
#[derive(Debug, Subcommand)]
pub(crate) enum ServicesVerb {
    /// List the services
    List,
    /// Show the hosts of a service, and whether it works there
    Show {
        /// The service
        #[arg(add = completion::services())]
        service: String,
    },
}

/// Verbs of `hosts`.
#[derive(Debug, Subcommand)]
pub(crate) enum HostsVerb {
    /// List the hosts
    List {
        /// Include decommissioned hosts
        #[arg(long)]
        all: bool,
    },
    /// Add a host, or change its roster entry
    Add {
        /// The host
        #[arg(add = completion::hosts())]
        host: String,
        /// Role of the host
        #[arg(long)]
        role: Option<String>,
        /// Group of the host
        #[arg(long)]
        group: Option<String>,
        /// A free label; may be given several times
        #[arg(long = "label", value_name = "NAME=VALUE")]
        labels: Vec<String>,
    },
    /// Take a host out of the fleet, and delete everything that it wrote
    Decommission {
        /// The host
        #[arg(add = completion::hosts())]
        host: String,
        /// Decommission the host even if its agent is alive
        #[arg(long)]
        force: bool,
    },
}

/// Verbs of `store`.
#[derive(Debug, Subcommand)]
pub(crate) enum StoreVerb {
    /// Print identity, revision, members and alarms of the store
    Show,
    /// Accept the store as it is, for the whole fleet
    Accept {
        /// Version that the fleet is asked to run
        #[arg(long)]
        version: String,
        /// Lineage of the fleet, if the store has lost it
        #[arg(long)]
        lineage: Option<String>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn old_callers_are_understood() {
        for line in [
            "jorc --host=etcd.service.consul ping",
            "jorc --host 10.0.0.1 --port 4001 ping",
            "jorc --discovery_token= update_own_info",
            "jorc update_own_status puppet -1",
            "jorc update_own_status --hostname h validation_service 255",
            "jorc update_own_info --interval 60 --hostname h --version 43",
            "jorc check_single_version -v 43",
            "jorc get_failures --hosts --show_warnings",
            "jorc debug_timeout 43 --debug_hosts",
            "jorc local_health -v",
            "jorc local_version",
            "jorc verify_hosts 43",
            "jorc new_discovery_token --endpoint http://localhost/",
        ] {
            parse(line).unwrap_or_else(|e| panic!("{line}: {e}"));
        }
        let Verb::Update(UpdateVerb::UpdateOwnStatus { code, .. }) =
            parse("o update_own_status puppet -1").unwrap().verb
        else {
            panic!()
        };
        assert_eq!(code, -1);
    }

    #[test]
    fn options_may_stand_behind_the_verb() {
        let cli = parse("o why web-1 --host store --output json --namespace /a").unwrap();
        assert_eq!(cli.global.store_host.as_deref(), Some("store"));
        assert_eq!(cli.global.output, Format::Json);
        let Verb::State(StateVerb::Why { host }) = cli.verb else { panic!() };
        assert_eq!(host.as_deref(), Some("web-1"));
        assert_eq!(parse("o status -w json").unwrap().global.output, Format::Json);
    }

    #[test]
    fn wrong_usage_is_told_from_help() {
        for line in [
            "o",
            "o nonsense",
            "o trigger_update",
            "o update_own_status puppet x",
            "o --endpoints a --discovery-srv b ping",
        ] {
            assert!(parse(line).unwrap_err().exit_code() != 0, "{line}");
        }
        for line in ["o --help", "o --version", "o help why", "o why --help"] {
            assert!(!parse(line).unwrap_err().use_stderr(), "{line}");
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        let cli = parse("o --user a --password canary ping").unwrap();
        assert!(!format!("{cli:?}").contains("canary"));
    }
}
