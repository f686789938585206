//! Remembers the revisions and raft terms of the stores that commands on this host asked. They show
//! if the store that answers now went back: then it was restored, and its content was true only in
//! the past.

use crate::exit::{Exit, Failure};
use crate::local;
use crate::output;
use crate::settings::Settings;
use etcd_session::{Deadline, Session, StoreError};
use schema::keys::{self, Key};
use schema::snapshot::KeySnapshot;
use schema::store_marks::Marks;
use schema::store_trust::{StoreMemory, StoreSeen, StoreTrust, WentBack, assess};
use std::path::PathBuf;
use std::pin::pin;

/// Name of the file in the state directory.
const FILE: &str = "seen_stores";
/// Largest number of remembered stores; more than anybody asks from one host.
const STORES_MAX: usize = 8;

/// What an answer is about, and so what a store must be that gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    /// What operators said. It stays true while the store accepts no writes.
    Operators,
    /// What hosts say. They cannot say what happens to them while the store accepts no writes.
    Hosts,
    /// What hosts say; the verb checks the store in its own requests, which saves one.
    SelfChecked,
    /// Not the fleet, so the store is not checked: the verb writes, or asks about the store or this host, or is
    /// one of the original tool that must not fail for this reason.
    Other,
}

impl About {
    /// True if the answer is about the fleet: then a store that went back cannot give it.
    pub fn is_fleet(self) -> bool {
        self != Self::Other
    }
}

/// Returns the answer to a question, or a failure if it is about the fleet and its store is known to have
/// gone back. If it depends on what hosts say, and the store raised an alarm, it cannot be told.
///
/// The store's identity and its alarms are read concurrently with the question, so they take no extra time.
pub(crate) async fn answer(
    settings: &Settings,
    session: &Session,
    deadline: Deadline,
    about: About,
    question: impl Future<Output = Result<Exit, Failure>>,
) -> Result<Exit, Failure> {
    let depends_on_alarms = match about {
        About::Hosts => true,
        About::Operators => false,
        About::SelfChecked | About::Other => return question.await,
    };
    let trust = async {
        let identity = async { session.read_keys(&[Key::Store], deadline).await.ok() };
        if depends_on_alarms {
            tokio::join!(identity, alarms(settings, session, deadline))
        } else {
            (identity.await, Ok(None))
        }
    };
    let (mut question, mut trust) = (pin!(question), pin!(trust));
    let mut read = None;
    let answered = loop {
        tokio::select! {
            answered = &mut question => break answered,
            found = &mut trust, if read.is_none() => read = Some(found),
        }
    };
    let Ok(exit @ (Exit::Yes | Exit::No)) = answered else { return answered };
    let (identity, alarms) = match read {
        Some(read) => read,
        None => trust.await,
    };
    check(settings, session, identity.as_ref())?;
    Ok(exit_under(alarms?.as_deref(), exit))
}

/// Returns the alarms of the store; `None` if the user may not ask for them, and in the past. Then they are taken for not
/// raised.
///
/// # Errors
/// Returns the store's error if it does not say whether it accepts writes.
pub(crate) async fn alarms(
    settings: &Settings,
    session: &Session,
    deadline: Deadline,
) -> Result<Option<Vec<String>>, StoreError> {
    match &settings.past {
        Some(_) => Ok(None),
        None => session.alarms(deadline).await,
    }
}

/// Returns why the answer of a store that does not say its alarms may be untrue.
pub(crate) fn unknown_alarms(error: &StoreError) -> String {
    format!("the store did not say whether it has an alarm: {error}")
}

/// Returns the exit code of an answer that depends on what hosts say, and says why it cannot be told if the store
/// raised an alarm.
pub(crate) fn exit_under(alarms: Option<&[String]>, exit: Exit) -> Exit {
    let alarms = alarms.unwrap_or_default().join(", ");
    if alarms.is_empty() {
        return exit;
    }
    output::note(&format!(
        "cannot tell: the store raised the alarm {alarms}, and hosts cannot write what has happened to them since; compact and defragment the store, then run `etcdctl alarm disarm`"
    ));
    Exit::CannotTell
}

/// Fails if the store is known to have gone back.
///
/// `snapshot` holds the key of the store's identity; without it nothing is known.
pub(crate) fn check(
    settings: &Settings,
    session: &Session,
    snapshot: Option<&KeySnapshot>,
) -> Result<(), Failure> {
    // The past is older than what was seen since.
    if settings.past.is_some() {
        return Ok(());
    }
    let file = settings.state_directory.join(FILE);
    match snapshot.and_then(|snapshot| assess_answer(file, snapshot, session.marks())) {
        Some(by) => Err(Failure::cannot_tell(format!(
            "the store went back: {by}; its content may be outdated. If it is the right store, run `orchestrate store accept --version V`"
        ))),
        None => Ok(()),
    }
}

/// Returns how the store went back since an earlier command. If it did not, remembers the store as
/// it is now. If the file cannot be read or written, nothing is remembered.
fn assess_answer(file: PathBuf, snapshot: &KeySnapshot, seen: Marks) -> Option<WentBack> {
    let identity = snapshot.value_of(keys::Store)?;
    let mut found = StoreSeen {
        identity: Some(identity.clone()),
        revision: seen.revision,
        raft_term: seen.raft_term,
        ..StoreSeen::default()
    };
    let text = local::read(&file).ok().flatten().unwrap_or_default();
    let mut stores: Vec<StoreMemory> = serde_json::from_str(&text).unwrap_or_default();
    let position = stores.iter().position(|store| store.lineage == identity.lineage);
    let before = position.map(|index| stores.remove(index));
    let mut memory = StoreMemory::first(&identity, &found);
    if let Some(before) = before {
        found.regressed_revision =
            (seen.revision < before.revision).then_some((before.revision, seen.revision));
        found.regressed_term =
            (seen.raft_term < before.raft_term).then_some((before.raft_term, seen.raft_term));
        match assess(Some(&before), &found) {
            StoreTrust::WentBack { by } => return Some(by),
            StoreTrust::Accepted { .. } => {}
            _ if before == memory => return None,
            _ => memory.note(&found),
        }
    }
    stores.insert(0, memory);
    stores.truncate(STORES_MAX);
    if let Ok(text) = serde_json::to_vec(&stores) {
        let _ = local::keep(&file, &text);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(lineage: &str, epoch: u64) -> KeySnapshot {
        let value = format!(r#"{{"format":1,"lineage":"{lineage}","epoch":{epoch}}}"#).into_bytes();
        let entry =
            schema::snapshot::Entry { value, create_revision: 1, mod_revision: 1, lease: 0, version: 1 };
        KeySnapshot { entries: [(Key::Store.to_string(), entry)].into(), ..KeySnapshot::default() }
    }

    /// An answer as (lineage, epoch, revision, raft term).
    type Answer = (&'static str, u64, i64, u64);

    /// Checks a series of answers, each with whether its store must count as gone back.
    fn check(answers: &[(Answer, bool)]) {
        let directory = tempfile::tempdir().unwrap();
        for (index, ((lineage, epoch, revision, raft_term), expected)) in answers.iter().enumerate() {
            let seen = Marks { revision: *revision, raft_term: *raft_term, history: 0 };
            let found = assess_answer(directory.path().join(FILE), &snapshot(lineage, *epoch), seen);
            assert_eq!(found.is_some(), *expected, "answer {index} of {answers:?}: {found:?}");
        }
    }

    #[test]
    fn an_answer_that_falls_behind_one_before_is_of_a_store_that_went_back() {
        check(&[(("L", 0, 10, 2), false), (("L", 0, 12, 3), false), (("L", 0, 12, 3), false)]);
        check(&[(("L", 0, 10, 2), false), (("L", 0, 9, 2), true), (("L", 0, 11, 2), false)]);
        check(&[(("L", 0, 10, 3), false), (("L", 0, 11, 2), true)]);
        check(&[(("L", 1, 10, 2), false), (("L", 0, 11, 2), true)]);
    }

    #[test]
    fn a_store_that_was_accepted_begins_anew() {
        check(&[(("L", 0, 10, 3), false), (("L", 1, 5, 2), false), (("L", 1, 4, 2), true)]);
    }

    #[test]
    fn each_store_is_remembered_by_its_lineage() {
        check(&[(("L", 0, 100, 9), false), (("M", 0, 5, 2), false), (("L", 0, 99, 9), true)]);
    }

    #[test]
    fn a_store_without_an_identity_and_a_missing_directory_say_nothing() {
        let seen = Marks { revision: 3, raft_term: 2, history: 0 };
        assert_eq!(assess_answer("/nonexistent/x".into(), &snapshot("L", 0), seen), None);
        assert_eq!(assess_answer("/nonexistent/x".into(), &KeySnapshot::default(), seen), None);
    }
}
