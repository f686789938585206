//! What each verb answers with `-o json`, as a schema. The programs never call this.

use super::{
    bootstrap, bundle, claims, desired, discovery_token, drop_stale, failures, freeze_list, freezes,
    host_config, hosts, lint, local, logs, maintenance, one_shot, ping, plan, policy, recording, retry,
    rollback, rolling_upgrade, rollout_history, rollout_options, rollout_status, running, services, store,
    trigger, values, verify_hosts,
};
use crate::agent::{RunOutput, Runs};
use crate::manual::ManualAnswer;
use crate::output::ErrorAnswer;
use fleet::views::{
    EventsView, FailuresView, HostView, HostsView, RolloutHistory, RootsView, ServiceView, ServicesView,
    StatusView, UnaccountedView,
};
use planning::rollout::RolloutStatus;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

/// Returns the answer of a verb that cannot answer.
pub fn error_answer(generator: &mut SchemaGenerator) -> Schema {
    of::<ErrorAnswer<'_>>(generator)
}

/// Returns the answers of all verbs that print JSON, by their names.
pub fn answers(generator: &mut SchemaGenerator) -> Vec<(&'static str, Schema)> {
    ANSWERS.iter().map(|(verb, schema)| (*verb, schema(generator))).collect()
}

type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// The verbs and what they answer.
const ANSWERS: &[(&str, SchemaOf)] = &[
    ("bootstrap", of::<bootstrap::BootstrapAnswer<'_>>),
    ("bundle", of::<bundle::BundleAnswer<'_>>),
    ("cache_services", of::<services::CacheAnswer<'_>>),
    ("check_config", of::<host_config::ValueAnswer<'_>>),
    ("check_puppet", of::<host_config::EnabledAnswer<'_>>),
    ("check_single_version", of::<running::SingleVersionAnswer<'_>>),
    ("claims", of::<claims::ClaimsAnswer<'_>>),
    ("claims release", of::<claims::ReleaseAnswer<'_>>),
    ("current_version", of::<desired::CurrentVersionAnswer<'_>>),
    ("debug_timeout", of::<failures::TimeoutAnswer<'_>>),
    ("dns", of::<services::DnsAnswer<'_>>),
    ("drain", of::<maintenance::MaintenanceAnswer<'_>>),
    ("drop-stale", of::<drop_stale::DropStaleAnswer>),
    ("enable_puppet", of::<host_config::ChangeAnswer<'_>>),
    ("events", of::<EventsView>),
    ("freeze", of::<freezes::FreezeAnswer>),
    ("freezes", of::<freeze_list::FreezesAnswer>),
    ("get_failures", of::<FailuresView>),
    ("get_services", of::<services::EntriesAnswer<'_>>),
    ("host_data", of::<host_config::HostDataAnswer<'_>>),
    ("hosts add", of::<hosts::ChangedHost<'_>>),
    ("hosts decommission", of::<hosts::ChangedHost<'_>>),
    ("hosts list", of::<HostsView>),
    ("hosts_at_version", of::<running::HostsAnswer<'_>>),
    ("lint", of::<lint::LintAnswer>),
    ("local_health", of::<local::LocalHealthAnswer<'_>>),
    ("local_version", of::<local::LocalVersionAnswer<'_>>),
    ("logs", |generator| {
        let bundle_or_report = of::<logs::ReportedLog<'_>>(generator);
        either([bundle_or_report, of::<Runs>(generator), of::<RunOutput>(generator)])
    }),
    ("maintenance", of::<maintenance::MaintenanceAnswer<'_>>),
    ("manage_config", of::<host_config::ChangeAnswer<'_>>),
    ("manual", of::<ManualAnswer<'_>>),
    ("new_discovery_token", of::<discovery_token::TokenAnswer<'_>>),
    ("pending_update", of::<desired::PendingAnswer<'_>>),
    ("ping", of::<ping::PingAnswer>),
    ("plan", of::<plan::PlanAnswer<'_>>),
    ("policy check", of::<policy::PolicyAnswer<'_>>),
    ("policy set", of::<policy::StoredPolicyAnswer<'_>>),
    ("policy show", of::<policy::StoredPolicyAnswer<'_>>),
    ("publish_service", of::<services::PublishAnswer<'_>>),
    ("recording check", of::<recording::CheckAnswer<'_>>),
    ("recording erase", of::<recording::EraseAnswer<'_>>),
    ("recording list", of::<recording::ListAnswer<'_>>),
    ("recording prune", of::<recording::PruneAnswer<'_>>),
    ("retry", |generator| {
        either([of::<retry::HostAnswer<'_>>(generator), of::<retry::HostsAnswer<'_>>(generator)])
    }),
    ("rolling_upgrade global_disable_puppet", of::<rolling_upgrade::DisableAnswer>),
    ("rolling_upgrade status", of::<rolling_upgrade::StatusAnswer<'_>>),
    ("rolling_upgrade upgrade", of::<rolling_upgrade::UpgradeAnswer<'_>>),
    ("rollout excuse", |generator| {
        let excused = of::<rollout_status::Excused<'_>>(generator);
        either([excused, of::<rollout_status::ExcusedAlready<'_>>(generator)])
    }),
    ("rollout history", of::<RolloutHistory>),
    ("rollout pause", of::<freezes::FreezeAnswer>),
    ("rollout queue", of::<rollout_history::QueueAnswer<'_>>),
    ("rollout resume", of::<freezes::UnfreezeAnswer>),
    ("rollout rollback", of::<rollback::RollbackAnswer<'_>>),
    ("rollout set", of::<rollout_options::SetAnswer<'_>>),
    ("rollout status", of::<RolloutStatus>),
    ("running_versions", of::<running::RunningAnswer>),
    ("services list", of::<ServicesView>),
    ("services show", of::<ServiceView>),
    ("set_config", of::<host_config::ChangeAnswer<'_>>),
    ("status", of::<StatusView>),
    ("store accept", of::<store::AcceptAnswer<'_>>),
    ("store show", of::<store::ShowAnswer<'_>>),
    ("trigger_update", of::<trigger::TriggerAnswer<'_>>),
    ("unaccounted", of::<UnaccountedView>),
    ("unfreeze", of::<freezes::UnfreezeAnswer>),
    ("update_own_info", of::<one_shot::InfoAnswer<'_>>),
    ("update_own_status", |generator| {
        either([of::<one_shot::StatusAnswer<'_>>(generator), of::<one_shot::CheckAnswer<'_>>(generator)])
    }),
    ("values get", of::<values::ValueAnswer<'_>>),
    ("values list", of::<values::ValuesAnswer<'_>>),
    ("values rm", of::<values::ChangedValue<'_>>),
    ("values set", of::<values::ChangedValue<'_>>),
    ("verify_hosts", of::<verify_hosts::VerifyAnswer<'_>>),
    ("wait_for", of::<services::WaitAnswer<'_>>),
    ("why", |generator| either([of::<HostView>(generator), of::<RootsView>(generator)])),
];

fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    T::json_schema(generator)
}

/// Returns the schema of an answer that has one of several forms.
fn either<const FORMS: usize>(forms: [Schema; FORMS]) -> Schema {
    json_schema!({ "anyOf": forms.as_slice() })
}
