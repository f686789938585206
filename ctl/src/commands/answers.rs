//! What each verb answers with `-o json`, as a schema. The programs never call this.

use super::{failures, original, past, rollout, services, setup, state, store};
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
    ("bootstrap", of::<setup::bootstrap::BootstrapAnswer<'_>>),
    ("bundle", of::<failures::bundle::BundleAnswer<'_>>),
    ("cache_services", of::<original::services::CacheAnswer<'_>>),
    ("check_config", of::<original::host_config::ValueAnswer<'_>>),
    ("check_puppet", of::<original::host_config::EnabledAnswer<'_>>),
    ("check_single_version", of::<original::running::SingleVersionAnswer<'_>>),
    ("claims", of::<rollout::claims::ClaimsAnswer<'_>>),
    ("claims release", of::<rollout::claims::ReleaseAnswer<'_>>),
    ("current_version", of::<original::desired::CurrentVersionAnswer<'_>>),
    ("debug_timeout", of::<original::failures::TimeoutAnswer<'_>>),
    ("dns", of::<services::dns::DnsAnswer<'_>>),
    ("drain", of::<services::maintenance::MaintenanceAnswer<'_>>),
    ("drop-stale", of::<services::drop_stale::DropStaleAnswer>),
    ("enable_puppet", of::<original::host_config::ChangeAnswer<'_>>),
    ("events", of::<EventsView>),
    ("freeze", of::<rollout::freezes::FreezeAnswer>),
    ("freezes", of::<rollout::freeze_list::FreezesAnswer>),
    ("get_failures", of::<FailuresView>),
    ("get_services", of::<original::services::EntriesAnswer<'_>>),
    ("host_data", of::<original::host_config::HostDataAnswer<'_>>),
    ("hosts add", of::<state::hosts::ChangedHost<'_>>),
    ("hosts decommission", of::<state::hosts::ChangedHost<'_>>),
    ("hosts list", of::<HostsView>),
    ("hosts_at_version", of::<original::running::HostsAnswer<'_>>),
    ("lint", of::<setup::lint::LintAnswer>),
    ("local_health", of::<original::local::LocalHealthAnswer<'_>>),
    ("local_version", of::<original::local::LocalVersionAnswer<'_>>),
    ("logs", |generator| {
        let bundle_or_report = of::<failures::logs::ReportedLog<'_>>(generator);
        either([bundle_or_report, of::<Runs>(generator), of::<RunOutput>(generator)])
    }),
    ("maintenance", of::<services::maintenance::MaintenanceAnswer<'_>>),
    ("manage_config", of::<original::host_config::ChangeAnswer<'_>>),
    ("manual", of::<ManualAnswer<'_>>),
    ("new_discovery_token", of::<original::discovery_token::TokenAnswer<'_>>),
    ("pending_update", of::<original::desired::PendingAnswer<'_>>),
    ("ping", of::<original::ping::PingAnswer>),
    ("plan", of::<rollout::plan::PlanAnswer<'_>>),
    ("policy check", of::<rollout::policy::PolicyAnswer<'_>>),
    ("policy set", of::<rollout::policy::StoredPolicyAnswer<'_>>),
    ("policy show", of::<rollout::policy::StoredPolicyAnswer<'_>>),
    ("publish_service", of::<original::services::PublishAnswer<'_>>),
    ("recording check", of::<past::recording::CheckAnswer<'_>>),
    ("recording erase", of::<past::recording::EraseAnswer<'_>>),
    ("recording list", of::<past::recording::ListAnswer<'_>>),
    ("recording prune", of::<past::recording::PruneAnswer<'_>>),
    ("retry", |generator| {
        either([
            of::<failures::retry::HostAnswer<'_>>(generator),
            of::<failures::retry::HostsAnswer<'_>>(generator),
        ])
    }),
    ("rolling_upgrade global_disable_puppet", of::<original::rolling_upgrade::DisableAnswer>),
    ("rolling_upgrade status", of::<original::rolling_upgrade::StatusAnswer<'_>>),
    ("rolling_upgrade upgrade", of::<original::rolling_upgrade::UpgradeAnswer<'_>>),
    ("rollout excuse", |generator| {
        let excused = of::<rollout::status::Excused<'_>>(generator);
        either([excused, of::<rollout::status::ExcusedAlready<'_>>(generator)])
    }),
    ("rollout history", of::<RolloutHistory>),
    ("rollout pause", of::<rollout::freezes::FreezeAnswer>),
    ("rollout queue", of::<rollout::history::QueueAnswer<'_>>),
    ("rollout resume", of::<rollout::freezes::UnfreezeAnswer>),
    ("rollout rollback", of::<rollout::rollback::RollbackAnswer<'_>>),
    ("rollout set", of::<rollout::options::SetAnswer<'_>>),
    ("rollout status", of::<RolloutStatus>),
    ("running_versions", of::<original::running::RunningAnswer>),
    ("services list", of::<ServicesView>),
    ("services show", of::<ServiceView>),
    ("set_config", of::<original::host_config::ChangeAnswer<'_>>),
    ("status", of::<StatusView>),
    ("store accept", of::<store::accept::AcceptAnswer<'_>>),
    ("store show", of::<store::accept::ShowAnswer<'_>>),
    ("trigger_update", of::<rollout::trigger::TriggerAnswer<'_>>),
    ("unaccounted", of::<UnaccountedView>),
    ("unfreeze", of::<rollout::freezes::UnfreezeAnswer>),
    ("update_own_info", of::<original::one_shot::InfoAnswer<'_>>),
    ("update_own_status", |generator| {
        either([
            of::<original::one_shot::StatusAnswer<'_>>(generator),
            of::<original::one_shot::CheckAnswer<'_>>(generator),
        ])
    }),
    ("values get", of::<store::values::ValueAnswer<'_>>),
    ("values list", of::<store::values::ValuesAnswer<'_>>),
    ("values rm", of::<store::values::ChangedValue<'_>>),
    ("values set", of::<store::values::ChangedValue<'_>>),
    ("verify_hosts", of::<original::verify_hosts::VerifyAnswer<'_>>),
    ("wait_for", of::<services::wait_for::WaitAnswer<'_>>),
    ("why", |generator| either([of::<HostView>(generator), of::<RootsView>(generator)])),
];

fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    T::json_schema(generator)
}

/// Returns the schema of an answer that has one of several forms.
fn either<const FORMS: usize>(forms: [Schema; FORMS]) -> Schema {
    json_schema!({ "anyOf": forms.as_slice() })
}
