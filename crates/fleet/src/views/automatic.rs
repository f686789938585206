//! What hosts did in a rollout by themselves, and services that do not work, as events. The keys of rollouts stay in
//! the store as long as their record, so that no event of these acts has to be written.

use super::past_event::{HostChange, PastEvent};
use planning::calendar::rfc3339;
use schema::health::Health;
use schema::keys::{self, Key, Prefix};
use schema::records::{Ended, FailedHost, FailureKind, Halt, RolloutRecord, Soak, StageOpening};
use schema::snapshot::{Entry, KeySnapshot};
use schema::time::EpochSeconds;

/// True for the keys that [`automatic_act`] reads.
pub(super) fn tells_of_acts(key: &Key) -> bool {
    matches!(
        key,
        Key::Halt(_)
            | Key::StageOpened(..)
            | Key::Soak(..)
            | Key::Ended(_)
            | Key::Failed(..)
            | Key::RolloutRecord(_)
            | Key::Health(..)
    )
}

/// True if a key has a part in the answer to who did what. Most health values, and much of what a rollout writes, have none.
pub fn tells_of_events(key: &str, value: &[u8]) -> bool {
    match Key::parse(key) {
        Ok(Key::Health(..)) => is_unwell(Health::read(value)),
        Ok(parsed) => tells_of_acts(&parsed) || !key.starts_with(&Prefix::Rollouts.to_string()),
        Err(_) => true,
    }
}

fn is_unwell(health: Option<Health>) -> bool {
    matches!(health, Some(Health::Critical | Health::Warning))
}

/// Returns the act of a host, or the state of a service, of which a key tells; `None` if it tells of none, or cannot
/// be read.
pub(super) fn automatic_act(text: &str, entry: &Entry) -> Option<PastEvent> {
    let value = entry.value.as_slice();
    let act = |change, (at, by): (EpochSeconds, Option<String>), reason: Option<String>| {
        let act = PastEvent::automatic(text, change, by);
        let (at, seconds) = (rfc3339(at), Some(at));
        PastEvent { at, seconds, reason, revision: entry.create_revision, ..act }
    };
    match Key::parse(text).ok()? {
        Key::Halt(_) => {
            let Halt { at, by, why, rolled_back_to } = keys::Halt::read(value).ok()?;
            let why = match rolled_back_to {
                Some(version) => format!("{why}; the hosts go back to {version}"),
                None => why,
            };
            Some(act(HostChange::Halt, (at, Some(by)), Some(why)))
        }
        Key::StageOpened(..) => {
            let StageOpening { at, by, .. } = keys::StageOpened::read(value).ok()?;
            Some(act(HostChange::Stage, (at, Some(by)), None))
        }
        Key::Soak(..) => {
            let Soak { at, by, .. } = keys::Soak::read(value).ok()?;
            Some(act(HostChange::Soak, (at, Some(by)), None))
        }
        Key::Ended(_) => {
            let Ended { at, by } = keys::Ended::read(value).ok()?;
            Some(act(HostChange::End, (at, Some(by)), None))
        }
        Key::Failed(_, host) => {
            let FailedHost { at, kind, reason, .. } = keys::Failed::read(value).ok()?;
            // Others noticed that the host is lost.
            let by = (kind != FailureKind::Lost).then(|| host.to_string());
            Some(act(HostChange::Failure, (at, by), Some(reason)))
        }
        // The trigger of an operator has an event.
        Key::RolloutRecord(order) => {
            let record = keys::RolloutRecord::read(value).ok().filter(|record| record.rollback)?;
            let RolloutRecord { version, at, by, reason, .. } = record;
            let rollback = act(HostChange::Rollback, (at, by), reason);
            Some(PastEvent { new_value: Some(version.to_string()), revision: order.revision, ..rollback })
        }
        // The health of a service has no time.
        Key::Health(..) => {
            let health = Health::read(value).filter(|health| is_unwell(Some(*health)))?;
            let unwell = PastEvent::automatic(text, HostChange::Health, None);
            Some(PastEvent { new_value: Some(health.to_string()), revision: entry.mod_revision, ..unwell })
        }
        _ => None,
    }
}

/// Returns the automatic acts and the unwell services of which a store tells.
pub(super) fn automatic_acts(found: &KeySnapshot) -> impl Iterator<Item = PastEvent> {
    let ranges = [Prefix::Rollouts, Prefix::HealthAll];
    ranges
        .into_iter()
        .flat_map(|range| found.in_range(&range))
        .filter_map(|(key, entry)| automatic_act(key, entry))
}
