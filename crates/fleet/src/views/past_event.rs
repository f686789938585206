//! What happened once: an act of a command, or something that changed without one.

use super::policy_changes::policy_changes;
use crate::text::clean;
use planning::calendar::rfc3339;
use schema::codec;
use schema::freeze::FreezeScope;
use schema::host_config::ConfigScope;
use schema::keys::{self, Key};
use schema::names::{EventId, HostName};
use schema::order::InstructionOrder;
use schema::records::{Event, Trigger};
use schema::snapshot::Entry;
use schema::time::EpochSeconds;
use schemars::JsonSchema;
use serde::Serialize;

/// An act, or a change without an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PastEvent {
    /// When (RFC 3339), by the clock of the machine that ran the command; `None` if no one said.
    pub at: Option<String>,
    /// Who did it, by their own word; `None` if nobody said.
    pub by: Option<String>,
    /// The user of the store as which the command authenticated itself, by its own word.
    pub store_user: Option<String>,
    /// The machine and the program from which it was done, by its own word.
    pub client: Option<String>,
    /// The host whose step ran the command.
    pub step_host: Option<HostName>,
    /// The verb of the command; `None` for a change that no command recorded.
    pub verb: Option<String>,
    /// What a host did, or what changed about it or its services, without a command; `None` for an act of a command.
    pub change: Option<HostChange>,
    /// The key that was changed.
    pub key: String,
    /// Its value before, cut to 1 KiB; `None` if it did not exist, or if that is not known.
    pub old_value: Option<String>,
    /// Its value after, cut to 1 KiB; `None` if it was deleted.
    pub new_value: Option<String>,
    /// The reason that was given.
    pub reason: Option<String>,
    /// True if somebody changed the event afterwards.
    pub overwritten: bool,
    /// The revision of the change.
    pub revision: i64,
    #[serde(skip)]
    pub(super) seconds: Option<EpochSeconds>,
}

/// What a host did, or what changed about it or its services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HostChange {
    /// Its verdict about itself.
    Verdict,
    /// The phase that it is in.
    Phase,
    /// The version under which it is listed.
    Listing,
    /// Whether its agent runs.
    Live,
    /// The health of one of its services.
    Health,
    /// The host halted a rollout.
    Halt,
    /// The host opened a stage of a rollout.
    Stage,
    /// The host began to observe the hosts up to a stage.
    Soak,
    /// The host noticed that a rollout has ended.
    End,
    /// The host counts as failed in a rollout.
    Failure,
    /// The host let the fleet go back to an earlier version.
    Rollback,
}

impl HostChange {
    fn word(self) -> &'static str {
        match self {
            Self::Verdict => "verdict",
            Self::Phase => "phase",
            Self::Listing => "listing",
            Self::Live => "live",
            Self::Health => "health",
            Self::Halt => "halt",
            Self::Stage => "stage",
            Self::Soak => "soak",
            Self::End => "end",
            Self::Failure => "failure",
            Self::Rollback => "rollback",
        }
    }
}

/// What is said of an event that was deleted though no younger one took its place.
const DELETED: &str = "somebody deleted this event";

/// Returns the host whose step left the event with this key, and its id; `None` for other keys.
fn event_key(key: &str) -> Option<(Option<HostName>, EventId)> {
    match Key::parse(key) {
        Ok(Key::Event(id)) => Some((None, id)),
        Ok(Key::HostEvent(host, id)) => Some((Some(host), id)),
        _ => None,
    }
}

/// Returns the host that an act on this key is about.
fn host_of(key: &Key) -> Option<&HostName> {
    match key {
        Key::Freeze(FreezeScope::Host(host), _)
        | Key::Excused(_, host)
        | Key::Failed(_, host)
        | Key::Progress(_, host)
        | Key::HostConfig(_, ConfigScope::Host(host), _)
        | Key::EnablePuppet(ConfigScope::Host(host)) => Some(host),
        key => key.host(),
    }
}

impl PastEvent {
    /// Reads an event. One that cannot be read is shown as a change of its key.
    pub fn read(key: &str, entry: &Entry) -> Self {
        let unknown = Self {
            reason: Some("the event cannot be read".into()),
            overwritten: entry.mod_revision != entry.create_revision,
            revision: entry.mod_revision,
            ..Self::about(key)
        };
        let Some((step_host, id)) = event_key(key) else { return unknown };
        let seconds = i64::try_from(id.millis() / 1000).ok().map(EpochSeconds);
        let dated = Self { at: seconds.and_then(rfc3339), step_host, seconds, ..unknown };
        let Ok(event) = keys::Event::read(&entry.value) else { return dated };
        let Event { by, user, client, verb, what, from, to, reason } = event;
        // Events of development states have the person in the place of the user.
        let (by, store_user) = if by.is_some() { (by, user) } else { (user, None) };
        Self {
            by,
            store_user,
            client: Some(client),
            verb: Some(verb),
            key: what,
            old_value: from,
            new_value: to,
            reason,
            ..dated
        }
    }

    /// Returns an event about a key of which nothing else is known.
    fn about(key: &str) -> Self {
        Self {
            at: None,
            by: None,
            store_user: None,
            client: None,
            step_host: None,
            verb: None,
            change: None,
            key: key.to_owned(),
            old_value: None,
            new_value: None,
            reason: None,
            overwritten: false,
            revision: 0,
            seconds: None,
        }
    }

    /// Returns an event of which a key tells, and no command.
    pub(super) fn automatic(key: &str, change: HostChange, by: Option<String>) -> Self {
        Self { change: Some(change), by, ..Self::about(key) }
    }

    /// Returns what is known when the event with this key was deleted, and not because a younger one took its place.
    pub(super) fn deleted_key(key: &str, revision: i64) -> Self {
        let nothing = Entry {
            value: Vec::new(),
            create_revision: revision,
            mod_revision: revision,
            lease: 0,
            version: 1,
        };
        Self { reason: Some(DELETED.into()), ..Self::read(key, &nothing) }
    }

    /// Returns that this event was deleted, and not because a younger one took its place. Nobody says when and by whom.
    pub(super) fn deleted(&self, key: &str) -> Self {
        let [_, by, verb, what, _] = self.row();
        Self { reason: Some(format!("{DELETED}: {by}, {verb}, {what}")), ..Self::about(key) }
    }

    /// Reads a key that somebody changed without a command of this program.
    pub(super) fn without_command(key: &str, entry: &Entry, trigger: Option<Trigger>) -> Self {
        let text =
            |bytes: &[u8]| codec::cut(&String::from_utf8_lossy(bytes), schema::records::EVENT_TEXT_MAX_BYTES);
        let seconds = trigger.as_ref().map(|trigger| trigger.at);
        let is_rollback = trigger.as_ref().is_some_and(|trigger| trigger.rollback);
        Self {
            at: seconds.and_then(rfc3339),
            by: trigger.as_ref().map(|trigger| trigger.by.clone()),
            change: is_rollback.then_some(HostChange::Rollback),
            old_value: trigger.as_ref().and_then(|trigger| trigger.from.as_ref().map(ToString::to_string)),
            new_value: Some(text(&entry.value)),
            reason: trigger.and_then(|trigger| trigger.reason),
            revision: entry.mod_revision,
            seconds,
            ..Self::about(key)
        }
    }

    /// True if this is about a host, or was done by a command in one of its steps.
    pub fn concerns(&self, host: &HostName) -> bool {
        let key = Key::parse(&self.key).ok();
        key.as_ref().and_then(host_of) == Some(host) || self.step_host.as_ref() == Some(host)
    }

    /// Returns what was changed, in words.
    fn what(&self) -> String {
        let of_rollout = |order: &InstructionOrder| format!("the rollout of revision {}", order.revision);
        match (Key::parse(&self.key), &self.old_value, &self.new_value) {
            (Ok(Key::Halt(order) | Key::Ended(order)), ..) => of_rollout(&order),
            (Ok(Key::StageOpened(order, stage) | Key::Soak(order, stage)), ..) => {
                // As `rollout status` counts them.
                format!("stage {} of {}", u64::from(stage) + 1, of_rollout(&order))
            }
            (Ok(Key::Failed(order, host)), ..) => format!("host {host} in {}", of_rollout(&order)),
            (Ok(Key::RolloutRecord(_)), _, Some(new)) => format!("version {new}"),
            (Ok(Key::Health(service, host)), None, Some(new)) => format!("{service} on host {host}: {new}"),
            (Ok(Key::Health(service, host)), old, new) => {
                let [old, new] = [old, new].map(|of| of.as_deref().unwrap_or("none"));
                format!("{service} on host {host}: {old} to {new}")
            }
            (Ok(Key::Report(host) | Key::Live(host) | Key::RunningVersion(_, host)), old, new)
                if self.change.is_some() =>
            {
                let [old, new] = [old, new].map(|of| of.as_deref().unwrap_or("none"));
                format!("host {host}: {old} to {new}")
            }
            (Ok(Key::CurrentVersion), Some(old), Some(new)) => format!("version {old} to {new}"),
            (Ok(Key::CurrentVersion), None, Some(new)) => format!("version {new}"),
            (Ok(Key::RolloutPolicy), Some(old), Some(new)) => match policy_changes(old, new) {
                Some(changes) => format!("the rollout policy: {changes}"),
                None => "the rollout policy".into(),
            },
            (Ok(Key::RolloutPolicy), ..) => "the rollout policy".into(),
            (Ok(Key::Store), ..) => "the identity of the store".into(),
            (Ok(Key::Config(name)), ..) => format!("value {name}"),
            (Ok(Key::Freeze(scope, _)), ..) => scope.to_string(),
            (Ok(Key::HostConfig(..) | Key::EnablePuppet(_)) | Err(_), ..) => self.key.clone(),
            (Ok(key), ..) => host_of(&key).map_or_else(|| self.key.clone(), |host| format!("host {host}")),
        }
    }

    /// Returns the event in one line.
    pub fn line(&self) -> String {
        let [at, by, verb, what, reason] = self.row();
        let line = format!("{at}  {by}  {verb}  {what}");
        if reason.is_empty() { line } else { format!("{line}  {reason}") }
    }

    /// Returns the event as the columns of a table: when, who, by which verb, what, and why.
    pub fn row(&self) -> [String; 5] {
        let by = self.by.as_deref().unwrap_or("unknown");
        let by = match &self.step_host {
            Some(host) if host.as_str() == by => format!("a step of {host}"),
            Some(host) => format!("{by}, in a step of {host}"),
            None => by.to_owned(),
        };
        let reason = self.reason.clone().unwrap_or_default();
        let reason = match (self.overwritten, reason.is_empty()) {
            (false, _) => reason,
            (true, true) => "somebody changed this event".into(),
            (true, false) => format!("somebody changed this event: {reason}"),
        };
        let words = [
            self.at.clone().unwrap_or_else(|| "unknown".into()),
            by,
            match (&self.verb, self.change) {
                (Some(verb), _) => verb.clone(),
                (None, Some(change)) => change.word().into(),
                (None, None) => "no command".into(),
            },
            self.what(),
            reason,
        ];
        words.map(|word| clean(&word).into_owned())
    }
}
