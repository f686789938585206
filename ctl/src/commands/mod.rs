//! The verbs. Each one reads or writes the store, hands its result to the output, and returns the
//! exit code.

mod bootstrap;
mod bundle;
mod claims;
mod context;
mod desired;
mod discovery_token;
mod enroll;
mod events;
mod failures;
mod fetched_bundle;
mod fleet;
mod freeze_list;
mod freezes;
mod host_config;
mod host_rollout;
mod hosts;
mod identity;
mod lint;
mod local;
mod logs;
mod look_after;
mod maintenance;
mod one_shot;
mod past;
mod past_moment;
mod ping;
mod plan;
mod policy;
mod record;
mod recording;
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
mod ui;
mod values;
mod verbs;
mod verification;
mod verify_hosts;
mod verify_wait;
mod watch;
mod why;
mod with_claim;

use crate::completion;
use crate::exit::{Exit, Failure};
use crate::manual;
use crate::output::{self, Output};
use crate::seen_stores::{self, About};
use crate::settings::Settings;
use anyhow::{Context, anyhow};
use context::{Store, now};
use etcd_session::{Deadline, EndpointSource, Session, SessionConfig};
use hosts::HostsVerb;
use policy::PolicyVerb;
use rollout::RolloutVerb;
use schema::records::certificate_warning;
use std::pin::Pin;
use std::time::Duration;
use values::ValuesVerb;

pub(crate) use verbs::{CatalogVerb, ConfigVerb, ControlVerb, StateVerb, UpdateVerb, Verb};

/// Runs one verb. `definition` returns the command line, for manual pages.
pub(crate) fn run(
    verb: Verb,
    definition: fn() -> clap::Command,
    settings: &Settings,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let most = settings.timeout;
    if settings.past.is_some() {
        past::check(&verb)?;
    }
    let names_recording = settings.recording.as_ref().is_some_and(|recording| recording.by_option);
    if names_recording && settings.past.is_none() && !matches!(verb, Verb::Recording { .. }) {
        return Err(Failure::usage(anyhow!("--recording is for a question about the past; add --at MOMENT")));
    }
    match verb {
        Verb::LocalVersion(options) => local::local_version(options, settings, output),
        Verb::WithClaim(options) => with_claim::with_claim(options, settings),
        Verb::Ui(options) => ask(settings, most, None, output, |store, _| Box::pin(ui::ui(options, store))),
        Verb::Lint(options) => lint::lint_files(options, output),
        Verb::Recording { verb } => recording::recording(&verb, settings, output),
        Verb::Enroll(options) => enroll::enroll(options, &settings.session.namespace, output),
        Verb::Bootstrap(options) => ask(settings, most, None, output, |store, output| {
            Box::pin(bootstrap::bootstrap(options, store, output))
        }),
        Verb::Manual(options) => manual::write(&options, &definition(), output),
        Verb::Completion { shell } => {
            output.raw(&completion::script(shell).context("completion")?);
            Ok(Exit::Yes)
        }
        Verb::Control(verb) => {
            let about = match verb {
                ControlVerb::Claims(_)
                | ControlVerb::Plan(_)
                | ControlVerb::Rollout { verb: RolloutVerb::History | RolloutVerb::Queue } => {
                    Some(About::Hosts)
                }
                ControlVerb::Freezes | ControlVerb::Policy { verb: PolicyVerb::Show } => {
                    Some(About::Operators)
                }
                _ => None,
            };
            ask(settings, most, about, output, |store, output| control(verb, store, output))
        }
        Verb::Update(verb) => {
            let most = if matches!(verb, UpdateVerb::Ping) { ping::limit(settings) } else { most };
            // `verify_hosts` reads the store's identity in its own requests.
            let about_hosts = matches!(
                verb,
                UpdateVerb::RunningVersions
                    | UpdateVerb::CheckSingleVersion(_)
                    | UpdateVerb::GetFailures(_)
                    | UpdateVerb::HostsAtVersion(_)
            );
            ask(settings, most, about_hosts.then_some(About::Hosts), output, |store, output| {
                update(verb, store, output)
            })
        }
        Verb::State(StateVerb::Logs(options)) if options.is_local(settings) => {
            logs::local_logs(&options, settings, output)
        }
        Verb::State(verb) => {
            let about = match verb {
                StateVerb::Unaccounted(_)
                | StateVerb::Hosts { verb: None | Some(HostsVerb::List(_)), .. }
                | StateVerb::Why(_) => Some(About::Hosts),
                // What hosts said in the past.
                StateVerb::Events(_) | StateVerb::Logs(_) | StateVerb::Bundle(_) => Some(About::Operators),
                _ => None,
            };
            ask(settings, most, about, output, |store, output| state(verb, store, output))
        }
        Verb::Catalog(verb) => {
            let about = match verb {
                CatalogVerb::Services { .. } | CatalogVerb::WaitFor(_) | CatalogVerb::Dns(_) => {
                    Some(About::Hosts)
                }
                CatalogVerb::Values { verb: ValuesVerb::List(_) | ValuesVerb::Get(_) } => {
                    Some(About::Operators)
                }
                _ => None,
            };
            ask(settings, most, about, output, |store, output| catalog(verb, store, output))
        }
        Verb::Config(verb) => {
            // A store that went back may have lost the word that holds a host. `rolling_upgrade` looks at the
            // store's identity in its own requests.
            let is_read = matches!(
                verb,
                ConfigVerb::HostData(_) | ConfigVerb::CheckPuppet(_) | ConfigVerb::CheckConfig(_)
            );
            ask(settings, most, is_read.then_some(About::Operators), output, |store, output| {
                config(verb, store, output)
            })
        }
    }
}

/// Runs a verb that needs the store. `most` is the time limit of the verb, from which the time
/// limit of a request to one member follows. With `about`, the verb answers a question about the fleet: if the store is
/// known to have gone back, it fails instead of giving an answer.
fn ask(
    settings: &Settings,
    most: Duration,
    about: Option<About>,
    output: &mut Output,
    question: impl for<'a> FnOnce(&'a Store<'_>, &'a mut Output) -> Answer<'a>,
) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("runtime")?;
    let exit = runtime.block_on(async {
        let session = match &settings.past {
            Some(question) => past::open(question, output)?,
            None => {
                for (file, end) in etcd_session::certificate_ends(&settings.session.tls) {
                    certificate_warning(&file, end, now()).iter().for_each(|warning| output::warn(warning));
                }
                Session::new(session_config(most, settings))?
            }
        };
        let deadline = Deadline::within(settings.timeout);
        let store = Store::new(settings, session, deadline);
        let question = question(&store, output);
        match about {
            Some(about) => seen_stores::answer(settings, (&store.session, deadline), about, question).await,
            None => question.await,
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

/// The future of one verb. It is boxed, because on the stack each verb would take as much room as the largest
/// one: hundreds of KiB.
type Answer<'a> = Pin<Box<dyn Future<Output = Result<Exit, Failure>> + 'a>>;

/// Runs a verb about how updates go.
fn control<'a>(verb: ControlVerb, store: &'a Store<'_>, output: &'a mut Output) -> Answer<'a> {
    match verb {
        ControlVerb::TriggerUpdate(options) => {
            Box::pin(trigger::trigger_update("trigger_update", options, store, output))
        }
        ControlVerb::Freeze(options) => Box::pin(freezes::freeze(options, store, output)),
        ControlVerb::Unfreeze(options) => Box::pin(freezes::unfreeze(options, store, output)),
        ControlVerb::Freezes => Box::pin(freeze_list::freezes(store, output)),
        ControlVerb::Policy { verb } => Box::pin(policy::policy(verb, store, output)),
        ControlVerb::Claims(options) => Box::pin(claims::claims(options, store, output)),
        ControlVerb::Plan(options) => Box::pin(plan::plan(options, store, output)),
        ControlVerb::Rollout { verb } => Box::pin(rollout::rollout(verb, store, output)),
    }
}

/// Runs a verb about versions.
fn update<'a>(verb: UpdateVerb, store: &'a Store<'_>, output: &'a mut Output) -> Answer<'a> {
    match verb {
        UpdateVerb::CurrentVersion => Box::pin(desired::current_version(store, output)),
        UpdateVerb::Ping => Box::pin(ping::ping(store, output)),
        UpdateVerb::PendingUpdate(options) => Box::pin(desired::pending_update(options, store, output)),
        UpdateVerb::UpdateOwnStatus(options) => Box::pin(one_shot::update_own_status(options, store, output)),
        UpdateVerb::UpdateOwnInfo(options) => Box::pin(one_shot::update_own_info(options, store, output)),
        UpdateVerb::RunningVersions => Box::pin(running::running_versions(store, output)),
        UpdateVerb::VerifyHosts(options) => Box::pin(verify_hosts::verify_hosts(options, store, output)),
        UpdateVerb::CheckSingleVersion(options) => {
            Box::pin(running::check_single_version(options, store, output))
        }
        UpdateVerb::GetFailures(options) => Box::pin(failures::get_failures(options, store, output)),
        UpdateVerb::HostsAtVersion(options) => Box::pin(running::hosts_at_version(options, store, output)),
        UpdateVerb::LocalHealth(options) => Box::pin(local::local_health(options, store, output)),
        UpdateVerb::DebugTimeout(options) => Box::pin(failures::debug_timeout(options, store, output)),
        UpdateVerb::NewDiscoveryToken(options) => {
            Box::pin(discovery_token::new_discovery_token(options, store, output))
        }
    }
}

/// Runs a verb about the state of the hosts or the store.
fn state<'a>(verb: StateVerb, store: &'a Store<'_>, output: &'a mut Output) -> Answer<'a> {
    match verb {
        StateVerb::Status(options) => Box::pin(status::status(options, store, output)),
        StateVerb::Unaccounted(selection) => Box::pin(status::unaccounted(selection, store, output)),
        StateVerb::Hosts { verb, list } => {
            Box::pin(hosts::hosts(verb.unwrap_or(HostsVerb::List(list)), store, output))
        }
        StateVerb::Events(options) => Box::pin(events::events(options, store, output)),
        StateVerb::Why(options) => Box::pin(why::why(options, store, output)),
        StateVerb::Logs(options) => Box::pin(logs::logs(options, store, output)),
        StateVerb::Bundle(options) => Box::pin(bundle::bundle(options, store, output)),
        StateVerb::Retry(options) => Box::pin(retry::retry(options, store, output)),
        StateVerb::Store { verb } => Box::pin(self::store::store_verb(verb, store, output)),
    }
}

/// Runs a verb about services.
fn catalog<'a>(verb: CatalogVerb, store: &'a Store<'_>, output: &'a mut Output) -> Answer<'a> {
    match verb {
        CatalogVerb::Services { verb } => Box::pin(services::services(verb, store, output)),
        CatalogVerb::PublishService => Box::pin(services::publish_service(store, output)),
        CatalogVerb::GetServices => Box::pin(services::get_services(store, output)),
        CatalogVerb::CacheServices(options) => Box::pin(services::cache_services(options, store, output)),
        CatalogVerb::WaitFor(options) => Box::pin(services::wait_for(options, store, output)),
        CatalogVerb::Maintenance(options) => Box::pin(maintenance::maintenance(options, store, output)),
        CatalogVerb::Drain(options) => Box::pin(maintenance::drain(options, store, output)),
        CatalogVerb::DropStale => Box::pin(maintenance::drop_stale(store, output)),
        CatalogVerb::Dns(options) => Box::pin(services::dns(options, store, output)),
        CatalogVerb::Values { verb } => Box::pin(values::values(verb, store, output)),
    }
}

/// Runs a verb about the values of the original tool.
fn config<'a>(verb: ConfigVerb, store: &'a Store<'_>, output: &'a mut Output) -> Answer<'a> {
    match verb {
        ConfigVerb::ManageConfig(options) => Box::pin(host_config::manage_config(options, store, output)),
        ConfigVerb::HostData(options) => Box::pin(host_config::host_data(options, store, output)),
        ConfigVerb::CheckPuppet(options) => Box::pin(host_config::check_puppet(options, store, output)),
        ConfigVerb::EnablePuppet(options) => Box::pin(host_config::enable_puppet(options, store, output)),
        ConfigVerb::SetConfig(options) => Box::pin(host_config::set_config(options, store, output)),
        ConfigVerb::CheckConfig(options) => Box::pin(host_config::check_config(options, store, output)),
        ConfigVerb::RollingUpgrade { verb } => {
            Box::pin(rolling_upgrade::rolling_upgrade(verb, store, output))
        }
    }
}
