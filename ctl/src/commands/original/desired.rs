//! The desired version: `current_version` and `pending_update`.

use super::script_start;
use crate::commands::answers;
use crate::commands::context::Store;
use crate::commands::rollout::look_after;
use crate::commands::store::identity::has_brakes;
use crate::commands::verb::{About, Answer, Group, Past, Spec, Verb};
use crate::exit::{Exit, Failure};
use crate::local::{self, LocalState};
use crate::output::{self, Output};
use crate::settings::Flavour;
use clap::Args;
use etcd_session::StoreError;
use schema::codec;
use schema::freeze::FreezeScope;
use schema::frozen::FrozenBy;
use schema::keys::{self, Key, Prefix};
use schema::names::{HostName, Version};
use schema::records::Driver;
use schema::snapshot::KeySnapshot;
use schemars::JsonSchema;
use serde::Serialize;

/// The desired version, as far as it is known.
#[derive(Debug, PartialEq, Eq)]
enum Desired {
    /// The version that is set in the store.
    Known(Version),
    /// The store has no version, or the value is not a version.
    NotSet,
    /// The store could not be read.
    Unreadable,
}

/// Reads the desired version from a snapshot, and remembers it for times when the store is away.
fn desired(read: &Result<KeySnapshot, StoreError>, memory: &LocalState) -> Desired {
    let snapshot = match read {
        Ok(snapshot) => snapshot,
        Err(error) => {
            output::warn(&error.to_string());
            return Desired::Unreadable;
        }
    };
    let Some(entry) = snapshot.get(&Key::CurrentVersion) else { return Desired::NotSet };
    match codec::read_version(&entry.value) {
        Ok(version) => {
            memory.keep_current_version(&version);
            Desired::Known(version)
        }
        Err(why) => {
            output::warn(&format!("/current_version is not a version: {why}"));
            Desired::NotSet
        }
    }
}

/// Print the desired version of the fleet
#[derive(Debug, Args)]
pub(crate) struct CurrentVersion;

impl Verb for CurrentVersion {
    const SPEC: Spec = Spec {
        name: "current_version",
        group: Group::Rollout,
        about: About::Other,
        past: Past::Answers,
        exits: &[Exit::No],
        answer: Answer::Json(answers::of::<CurrentVersionAnswer<'_>>),
        examples: &[("orchestrate current_version", "print the desired version")],
    };

    /// Prints the desired version. A configuration run must not abort on it: if the store is away, the
    /// last known version is printed with a warning.
    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let memory = LocalState::of(store.settings);
        let read = store.session.read_keys(&[Key::CurrentVersion], store.deadline).await;
        let revision = read.as_ref().ok().and_then(|p| p.get(&Key::CurrentVersion)).map(|e| e.mod_revision);
        let (version, from_store) = match desired(&read, &memory) {
            Desired::Known(version) => (Some(version), true),
            Desired::NotSet if store.settings.flavour == Flavour::Etcd => {
                return Err(Failure::no("/current_version is not set"));
            }
            Desired::NotSet => (None, true),
            Desired::Unreadable => {
                let version = memory.current_version();
                output::warn(match version {
                    Some(_) => "the version printed is the last one known on this host",
                    None => "no version is known on this host",
                });
                (version, false)
            }
        };
        let revision = if version.is_some() { revision } else { None };
        let answer = CurrentVersionAnswer { version: version.as_ref(), revision, from_store };
        output.sorted_answer(&answer, |o| {
            o.line(version.as_ref().map_or("None", Version::as_str));
        });
        Ok(Exit::Yes)
    }
}

/// What `current_version` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CurrentVersionAnswer<'a> {
    version: Option<&'a Version>,
    revision: Option<i64>,
    from_store: bool,
}

/// What `pending_update` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PendingAnswer<'a> {
    is_pending: Option<bool>,
    desired_version: Option<&'a Version>,
    installed: Option<String>,
    agent_drives: bool,
    frozen_by: Option<String>,
    held_back_by: Option<String>,
}

/// The answers of `pending_update`, with their exit codes and texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pending {
    Yes,
    No,
    NoClue,
    NoClueAndNothingInstalled,
}

impl Pending {
    fn of(desired: &Desired, installed: &str) -> Self {
        match desired {
            Desired::Known(version) if version.as_str() == installed => Self::No,
            Desired::Known(_) => Self::Yes,
            _ if installed.is_empty() => Self::NoClueAndNothingInstalled,
            _ => Self::NoClue,
        }
    }

    fn code(self) -> u8 {
        match self {
            Self::Yes => 0,
            Self::No => 1,
            Self::NoClue => 2,
            Self::NoClueAndNothingInstalled => 3,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Yes => "Yes, there is an update pending",
            Self::No => "No updates pending",
            Self::NoClue => "Could not get current_version",
            Self::NoClueAndNothingInstalled => {
                "Could not get current_version, but there's also no local version set"
            }
        }
    }
}

/// Check whether this host is asked to run another version
#[derive(Debug, Args)]
pub(crate) struct PendingUpdate {
    /// Exit with the true code even where an agent applies updates
    #[arg(long)]
    peek: bool,
}

impl Verb for PendingUpdate {
    const SPEC: Spec = Spec {
        name: "pending_update",
        group: Group::ThisHost,
        about: About::Other,
        past: Past::DoesNotRead,
        exits: &[Exit::No, Exit::Refused],
        answer: Answer::Json(answers::of::<PendingAnswer<'_>>),
        examples: &[("orchestrate pending_update", "is this host to run another version?")],
    };

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        // No agent can claim a host name that is not valid, so there is no claim to read.
        let host = store.settings.host(None).ok();
        let live = host.clone().map(Key::Live);
        let mut keys = vec![Key::CurrentVersion, Key::Store];
        keys.extend(live.clone());
        keys.extend(host.clone().map(Key::Host));
        let mut read = store.session.read_keys(&keys, store.deadline).await;
        let has_brakes = read.as_ref().is_ok_and(has_brakes);
        if let (true, Some(host), Ok(found)) = (has_brakes && !self.peek, &host, &read) {
            script_start::join(host, found, store).await?;
        }
        if has_brakes {
            keys.push(Key::RolloutPolicy);
            read = store.session.read_all(&keys, &[Prefix::Freezes], None, store.deadline).await;
        }
        let held_back = read.as_ref().ok().and_then(|snapshot| frozen_by(host.as_ref(), snapshot));
        let frozen_by = held_back.as_ref().map(ToString::to_string);
        let held_back = held_back.map(|frozen| frozen.to_string());
        let desired = desired(&read, &LocalState::of(store.settings));
        // If the file cannot be read, the answer must be neither "no" nor "nothing is installed".
        let (pending, installed) = match local::installed_version(store.settings) {
            Ok(installed) => (Pending::of(&desired, &installed), Some(installed)),
            Err(error) => {
                output::warn(&format!("{}: {error}", store.settings.local_version_file.display()));
                (Pending::NoClue, None)
            }
        };
        // Nobody may start while it is not known whether a freeze stands.
        let pending = if has_brakes && read.is_err() { Pending::NoClue } else { pending };
        let agent_drives = match (&read, &live) {
            (Ok(snapshot), Some(live)) => driver(snapshot, live) == Some(Driver::Agent),
            _ => false,
        };
        let version = if let Desired::Known(version) = &desired { Some(version) } else { None };
        let is_installed = installed.as_ref().is_some_and(|text| !text.is_empty());
        let starts = matches!(pending, Pending::Yes | Pending::NoClueAndNothingInstalled);
        let held_back = if starts && !self.peek { held_back } else { None };
        let has_policy = read.as_ref().is_ok_and(|found| found.get(&Key::RolloutPolicy).is_some());
        // The answer "yes" is the start of a script: it takes claims.
        let claims = starts && !self.peek && !agent_drives && has_policy && held_back.is_none();
        let held_back = match (claims, &host) {
            (true, Some(host)) => script_start::claim(host, is_installed, store).await?,
            // A host that has nothing to start looks after the others.
            (false, Some(host)) if pending == Pending::No && !self.peek && has_policy => {
                look_after::rollout(host, store).await;
                held_back
            }
            _ => held_back,
        };
        let answer = PendingAnswer {
            is_pending: match pending {
                Pending::Yes => Some(true),
                Pending::No => Some(false),
                Pending::NoClue | Pending::NoClueAndNothingInstalled => None,
            },
            desired_version: version,
            installed: installed.filter(|text| !text.is_empty()),
            agent_drives,
            frozen_by,
            held_back_by: held_back.clone(),
        };
        output.sorted_answer(&answer, |o| match &held_back {
            Some(why) => o.line(&format!("Held back: {why}")),
            None => o.line(pending.text()),
        });
        if agent_drives && !self.peek {
            // Any other exit code could make a script start the work that the agent does.
            output::note("the agent on this host applies updates");
            return Ok(Exit::CannotTell);
        }
        // A script starts its work on the codes 0 and 3.
        Ok(if held_back.is_some() { Exit::CannotTell } else { Exit::Own(pending.code()) })
    }
}

/// Returns the freeze that matches a host. A host without a valid name is held by those of the whole
/// fleet.
fn frozen_by(host: Option<&HostName>, snapshot: &KeySnapshot) -> Option<FrozenBy> {
    let scopes = host.map_or(vec![FreezeScope::Fleet, FreezeScope::Pause], |host| {
        let roster = snapshot.value_of(keys::Host(host.clone())).unwrap_or_default();
        FreezeScope::of_host(host, roster.role.as_ref(), roster.group.as_ref())
    });
    FrozenBy::all(snapshot).find(|frozen| scopes.contains(&frozen.scope))
}

/// Returns the driver of the host, from the claim under the key `live`; `None` without a live
/// agent.
pub(crate) fn driver(snapshot: &KeySnapshot, live: &Key) -> Option<Driver> {
    let entry = snapshot.get(live)?;
    // A claim that cannot be read was written by a newer agent: assume that the agent drives.
    Some(keys::Live::read(&entry.value).map_or(Driver::Agent, |claim| claim.driver))
}

/// Returns the failure of a verb that is refused because the agent does the same work by itself.
pub(crate) fn refused_by_agent(host: &HostName, what: &str) -> Failure {
    Failure::refused(format!("the agent on {host} {what} by itself; nothing was changed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pending_update_has_the_codes_and_texts_of_the_original() {
        let known = || Desired::Known(Version::new("v2").unwrap());
        for (desired, installed, code, text) in [
            (known(), "v1", 0, "Yes, there is an update pending"),
            (known(), "", 0, "Yes, there is an update pending"),
            (known(), "v2", 1, "No updates pending"),
            (Desired::NotSet, "v1", 2, "Could not get current_version"),
            (Desired::Unreadable, "v1", 2, "Could not get current_version"),
            (Desired::NotSet, "", 3, "Could not get current_version, but there's also no local version set"),
            (
                Desired::Unreadable,
                "",
                3,
                "Could not get current_version, but there's also no local version set",
            ),
        ] {
            let pending = Pending::of(&desired, installed);
            assert_eq!((pending.code(), pending.text()), (code, text), "{desired:?} {installed:?}");
        }
    }
}
