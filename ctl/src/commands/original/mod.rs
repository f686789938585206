//! The verbs of the original tool, which old scripts still call as `jorc …` or `python -m jiocloud.orchestrate …`. What
//! those scripts may rely on stands in `docs/contract.md`. Nothing outside of this folder uses it, except the list of
//! verbs.
//!
//! | file | verbs |
//! |---|---|
//! | `desired.rs` | `current_version`, and `pending_update`, whose "yes" is the start of a script: `script_start.rs` |
//! | `local.rs` | `local_version`, `local_health` |
//! | `one_shot.rs` | `update_own_status`, `update_own_info` |
//! | `running.rs` | `running_versions`, `hosts_at_version`, `check_single_version` |
//! | `verify_hosts.rs` | `verify_hosts`: `verification.rs` asks, and `verify_wait.rs` asks again |
//! | `failures.rs` | `get_failures`, `debug_timeout` |
//! | `services.rs` | `publish_service`, `get_services`, `cache_services` |
//! | `host_config.rs` | `manage_config`, `set_config`, `check_config`, `host_data`, `enable_puppet`, `check_puppet` |
//! | `rolling_upgrade.rs` | `rolling_upgrade`: `upgrade` decides which hosts may go |
//! | `ping.rs`, `discovery_token.rs` | `ping`, `new_discovery_token` |
//!
//! `trigger_update` is the original's verb too. It starts a rollout, so it stands in `rollout/trigger.rs`.
//!
//! Other code that exists only for the original tool and its scripts stands with the data that it concerns:
//!
//! - `ctl/src/settings.rs`: `Flavour`, the generation of the tool whose output is wanted, and in `ctl/src/options.rs` `--host`,
//!   `--port` and `--discovery_token`.
//! - `crates/schema/src/host_config.rs`, `writes/host_config.rs`: the values for hosts, and the rolling upgrade.
//! - `crates/schema/src/writes/one_shot.rs`: the transactions of reports that a script makes for its host.
//! - `crates/schema/src/writes/services.rs`: `OneShotServices`, the services that `publish_service` writes.
//! - `crates/schema/src/records/status.rs`, `records/service.rs`: both read the original's form of a value, too.
//! - `crates/catalog/src/hiera.rs`: the file that `cache_services` writes.
//! - `crates/catalog/src/definitions/mod.rs`: `parse_profile_list`, the original's list of the roles of a host.
//! - `packaging/python`: the package `jiocloud` and the script `jorc`, which run this program.
//! - `tests/it/old_clients.rs`, `old_upgrade.rs`, `contract`: the contract as tests.

pub(super) mod desired;
pub(super) mod discovery_token;
pub(super) mod failures;
pub(super) mod host_config;
pub(super) mod local;
pub(super) mod one_shot;
pub(super) mod ping;
pub(super) mod rolling_upgrade;
pub(super) mod running;
mod script_start;
pub(super) mod services;
mod upgrade;
mod upgrade_answers;
mod verification;
pub(super) mod verify_hosts;
mod verify_wait;
