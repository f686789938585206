//! Questions about the past: `--recording` and `--at`. The recorded keys become a store in this process, so that a verb
//! reads the past as it reads the present.

use super::context;
use super::hosts::HostsVerb;
use super::past_moment::find;
use super::policy::PolicyVerb;
use super::rolling_upgrade::RollingUpgradeVerb;
use super::rollout::RolloutVerb;
use super::store::StoreVerb;
use super::{CatalogVerb, ConfigVerb, ControlVerb, StateVerb, UpdateVerb, Verb};
use crate::exit::Failure;
use crate::output::{self, Output};
use crate::past::PastQuestion;
use anyhow::anyhow;
use archive::recording::RecordedEntry;
use etcd_session::Session;
use solo_etcd::frozen::{Frozen, KeyValue};

/// Refuses a verb that does not read the store once: the past neither changes nor can be changed.
pub(super) fn check(verb: &Verb) -> Result<(), Failure> {
    let refused = |why: &str| {
        let allowed = "`--at` is for verbs that read the store";
        Err(Failure::usage(anyhow!("{allowed}: {why}")))
    };
    let waits = "this one waits for changes, and the past does not change";
    let writes = "this one does not";
    let is_read = match verb {
        Verb::Control(verb) => match verb {
            ControlVerb::Freezes
            | ControlVerb::Plan(_)
            | ControlVerb::Policy { verb: PolicyVerb::Show }
            | ControlVerb::Rollout { verb: RolloutVerb::History | RolloutVerb::Queue } => true,
            ControlVerb::Rollout { verb: RolloutVerb::Status { watch, wait } } => {
                if *watch || wait.is_some() {
                    return refused(waits);
                }
                true
            }
            ControlVerb::Claims(options) => options.lists(),
            _ => false,
        },
        Verb::Update(verb) => match verb {
            UpdateVerb::VerifyHosts(options) if options.waits() => return refused(waits),
            UpdateVerb::CurrentVersion
            | UpdateVerb::RunningVersions
            | UpdateVerb::VerifyHosts(_)
            | UpdateVerb::CheckSingleVersion(_)
            | UpdateVerb::GetFailures(_)
            | UpdateVerb::HostsAtVersion(_) => true,
            _ => false,
        },
        Verb::State(verb) => match verb {
            StateVerb::Status(options) if options.watches() => return refused(waits),
            StateVerb::Events(options) if options.follows() => return refused(waits),
            StateVerb::Logs(options) if options.concerns_runs() => {
                return refused("the runs on this machine are not recorded");
            }
            StateVerb::Status(_)
            | StateVerb::Unaccounted(_)
            | StateVerb::Why(_)
            | StateVerb::Events(_)
            | StateVerb::Logs(_)
            | StateVerb::Bundle(_)
            | StateVerb::Hosts { verb: None | Some(HostsVerb::List(_)), .. }
            | StateVerb::Store { verb: StoreVerb::Show } => true,
            _ => false,
        },
        Verb::Catalog(verb) => match verb {
            CatalogVerb::Values { .. } => {
                return refused("the values are not recorded, because they may be secret");
            }
            CatalogVerb::WaitFor(_) => return refused(waits),
            CatalogVerb::Services { .. } | CatalogVerb::GetServices | CatalogVerb::Dns(_) => true,
            _ => false,
        },
        Verb::Config(verb) => matches!(
            verb,
            ConfigVerb::HostData(_)
                | ConfigVerb::CheckPuppet(_)
                | ConfigVerb::CheckConfig(_)
                | ConfigVerb::RollingUpgrade { verb: RollingUpgradeVerb::Status }
        ),
        _ => false,
    };
    if is_read { Ok(()) } else { refused(writes) }
}

/// Reads the recording. Returns a session with the store as it was, and says in the output which moment that is.
pub(super) fn open(question: &PastQuestion, output: &mut Output) -> Result<Session, Failure> {
    let PastQuestion { recording, now, .. } = question;
    let (past, _, _) = find(question)?;
    past.problems.iter().for_each(|problem| output::warn(problem));
    let now = now.unwrap_or_else(|| past.present());
    context::set_now(now);
    let view = past.view(now, &recording.name, env!("CARGO_PKG_VERSION"));
    view.erased.iter().for_each(|mark| output::warn(mark));
    output::note(&view.sentence());
    output.set_past(view);
    let keys = past.keys.into_iter().map(|(key, entry)| key_value(key, entry));
    Ok(Session::through(Frozen::new(past.moment.revision, keys)))
}

fn key_value(key: String, entry: RecordedEntry) -> KeyValue {
    let entry = entry.into_entry();
    KeyValue {
        key: key.into_bytes(),
        value: entry.value,
        create_revision: entry.create_revision,
        mod_revision: entry.mod_revision,
        version: entry.version,
        lease: entry.lease,
    }
}
