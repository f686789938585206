//! The acts of operators whose answer may be lost, and what operators ask of the store itself.

use crate::commit::Committed;
use crate::error::{Class, StoreError};
use crate::observer::RequestKind;
use crate::read::{get_responses, range_end};
use crate::request::{Deadline, Repeat};
use crate::session::Session;
use etcd_client::{GetOptions, SortOrder, SortTarget, TxnOp};
use schema::keys::{self, Key, Prefix};
use schema::names::HostName;
use schema::snapshot::KeySnapshot;
use schema::transaction::Transaction;
use schema::writes::act::{Act, EVENTS_TO_DELETE, EventLog};
use schema::writes::operator::{self, TargetRequest};
use std::collections::BTreeSet;

/// The keys from which [`Session::set_target`] begins.
pub const TARGET_KEYS: [Key; 2] = [Key::CurrentVersion, Key::Store];

/// The instruction after [`Session::set_target`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetSet {
    /// Revision of `/current_version`.
    pub revision: i64,
    /// True if the call wrote `/current_version`.
    pub changed: bool,
    /// True if freezes or a rollout policy may stand in the store.
    pub has_brakes: bool,
    /// All that was read when it was written; `None` if that was not all, or the answer was lost.
    pub found: Option<KeySnapshot>,
}

fn has_brakes(found: &KeySnapshot) -> bool {
    let identity = found.read(keys::Store);
    // An identity that cannot be read may have them.
    identity.is_some_and(|identity| identity.map_or(true, |identity| identity.has_brakes))
}

impl Session {
    /// Reads the number of events, the oldest ones and the newest one, for [`Act::log`]: those of operators, or those of a host.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn read_event_log(
        &self,
        host: Option<&HostName>,
        deadline: Deadline,
    ) -> Result<EventLog, StoreError> {
        /// More than are needed, because some keys there may not be events.
        const PAGE: i64 = 10 * EVENTS_TO_DELETE as i64;
        let (from, end) = match host {
            Some(host) => {
                let from = self.full(Prefix::EventsOf(host.clone()));
                let end = range_end(from.as_bytes());
                (from, end)
            }
            // Ids of events begin with a digit, and hosts have events of their own beside them.
            None => (self.full(Prefix::Events) + "0", (self.full(Prefix::Events) + ":").into_bytes()),
        };
        let options = |order| GetOptions::new().with_range(end.clone()).with_sort(SortTarget::Create, order);
        let oldest = options(SortOrder::Ascend).with_limit(PAGE).with_keys_only();
        let newest = options(SortOrder::Descend).with_limit(PAGE).with_keys_only();
        let gets = [TxnOp::get(from.clone(), Some(oldest)), TxnOp::get(from, Some(newest))];
        let answer = self.commit_reads(&gets, deadline).await?;
        let mut log = EventLog::default();
        let (mut oldest, mut newest) = (Vec::new(), Vec::new());
        for (read, got) in [&mut oldest, &mut newest].into_iter().zip(get_responses(&answer)) {
            log.count = usize::try_from(got.count()).unwrap_or(0);
            let keys = got.kvs().iter().filter_map(|kv| self.strip(kv.key()));
            read.extend(keys.filter_map(|key| match Key::parse(key) {
                Ok(Key::Event(id) | Key::HostEvent(_, id)) => Some(id),
                _ => None,
            }));
        }
        oldest.truncate(EVENTS_TO_DELETE);
        log.oldest = oldest;
        log.newest = newest.into_iter().next();
        Ok(log)
    }

    /// Writes the desired version. After a lost answer it looks for the event of the act. The write
    /// is repeated only if nobody else wrote meanwhile, so that a repeated older instruction never
    /// overwrites a newer one of another operator. `before` holds [`TARGET_KEYS`] as they are.
    ///
    /// With `if_different` nothing is written if this version is already the instruction in force.
    /// Otherwise the write replaces only the instruction that was read before.
    ///
    /// # Errors
    /// Returns the store's error. It is of class [`Class::Unknown`] if it is not known whether the
    /// write will be applied, also if another operator's instruction is found after a lost answer.
    pub async fn set_target(
        &self,
        request: &TargetRequest,
        mut before: KeySnapshot,
        act: &Act,
        deadline: Deadline,
    ) -> Result<TargetSet, StoreError> {
        let operation = "set /current_version";
        let event = act.key();
        let keys = [Key::CurrentVersion, Key::Store, event.clone()];
        let mut may_be_applied = false;
        loop {
            let revision_before = before.revision_of(&keys[0]);
            if request.if_different && !may_be_applied && operator::is_in_force(&before, &request.version) {
                return Ok(TargetSet {
                    revision: revision_before,
                    changed: false,
                    has_brakes: has_brakes(&before),
                    found: None,
                });
            }
            let only_if_unchanged = request.if_different || may_be_applied;
            let transaction = operator::set_target(request, only_if_unchanged, &before, act);
            let lost = match self.commit(&transaction, deadline).await {
                Ok(Committed { applied: true, revision, found, is_whole }) => {
                    let is_read = is_whole && !request.rollout_reads.is_empty();
                    let found = if is_read { Some(found) } else { None };
                    let has_brakes = has_brakes(&before);
                    return Ok(TargetSet { revision, changed: true, has_brakes, found });
                }
                Ok(_) => None,
                Err(error) if error.class() == Class::Unknown && !deadline.left().is_zero() => Some(error),
                Err(error) => return Err(error),
            };
            may_be_applied |= lost.is_some();
            let now = match (self.read_keys(&keys, deadline).await, lost) {
                (Ok(now), _) => now,
                (Err(_), Some(lost)) => return Err(lost),
                (Err(error), None) => return Err(error),
            };
            // The event is written with the instruction, so it shows whether this one was applied.
            let (revision, applied_at) = (now.revision_of(&keys[0]), now.revision_of(&event));
            if applied_at != 0 && applied_at == revision {
                let has_brakes = has_brakes(&now);
                return Ok(TargetSet { revision, changed: true, has_brakes, found: None });
            }
            if may_be_applied && revision != revision_before {
                let when = if applied_at == 0 { "was not applied before it" } else { "came before it" };
                let detail = format!("another instruction stands there now; this one {when}");
                return Err(StoreError::Unknown { operation, detail });
            }
            before = now;
        }
    }

    /// Commits the transaction of an act, which must compare the keys that it replaces. After a lost
    /// answer it looks for the event of the act: if it is there, the transaction was applied;
    /// otherwise the transaction is repeated.
    ///
    /// # Errors
    /// Returns the store's error. It is of class [`Class::Unknown`] if the deadline passed before it
    /// was known whether the transaction was applied.
    pub async fn commit_act(
        &self,
        transaction: &Transaction,
        act: &Act,
        deadline: Deadline,
    ) -> Result<Committed, StoreError> {
        let event = act.key();
        let mut lost: Option<StoreError> = None;
        loop {
            let refused = match self.commit(transaction, deadline).await {
                Ok(refused) if !refused.applied && lost.is_some() => Some(refused),
                Ok(committed) => return Ok(committed),
                Err(error) if error.class() != Class::Unknown || deadline.left().is_zero() => {
                    return Err(lost.unwrap_or(error));
                }
                Err(error) => {
                    lost = Some(error);
                    None
                }
            };
            let found = match (self.read_keys(std::slice::from_ref(&event), deadline).await, &lost) {
                (Ok(found), _) => found,
                // The lost answer matters more than why it cannot be found out.
                (Err(_), Some(lost)) => return Err(lost.clone()),
                (Err(error), None) => return Err(error),
            };
            match (found.revision_of(&event), refused) {
                (0, Some(refused)) => return Ok(refused),
                (0, None) => {}
                (revision, _) => return Ok(Committed { applied: true, revision, found, is_whole: true }),
            }
        }
    }

    /// Returns a lease for a host without an agent: the remembered lease, kept alive, if it still
    /// exists, else a new lease of `seconds`.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn lease_for_one_shot(
        &self,
        remembered: Option<i64>,
        seconds: i64,
        deadline: Deadline,
    ) -> Result<i64, StoreError> {
        if let Some(lease) = remembered {
            let kept = self
                .call(RequestKind::Lease, "lease keep-alive", Repeat::Freely, deadline, |mut c| async move {
                    c.lease_keep_alive(lease).await.map(|_| ())
                })
                .await;
            match kept {
                Ok(()) => return Ok(lease),
                Err(StoreError::LeaseGone { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.grant_lease(seconds, deadline).await
    }

    /// Returns the names of the members of the store, for `ping`.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn members(&self, deadline: Deadline) -> Result<Vec<String>, StoreError> {
        let answer = self
            .call(RequestKind::Admin, "list the members", Repeat::Freely, deadline, |mut c| async move {
                c.member_list().await
            })
            .await?;
        Ok(answer.members().iter().map(|m| m.name().to_owned()).collect())
    }

    /// Returns the etcd version of the member that answers, for example `3.5.21`.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn server_version(&self, deadline: Deadline) -> Result<String, StoreError> {
        let answer = self
            .call(RequestKind::Admin, "ask for the version", Repeat::Freely, deadline, |mut c| async move {
                c.status().await
            })
            .await?;
        Ok(answer.version().to_owned())
    }

    /// Returns the names of the raised alarms, for example `NOSPACE`, as the member knows them that answers. It is
    /// asked for its status, which costs the other members nothing: a list of the alarms is an entry in the log of
    /// the store. `None` if the user may not ask, as behind a filter; etcd itself answers every user.
    ///
    /// # Errors
    /// Returns the store's error if it does not say whether there are alarms.
    pub async fn alarms(&self, deadline: Deadline) -> Result<Option<Vec<String>>, StoreError> {
        let answered = self
            .call(RequestKind::Admin, "ask for the alarms", Repeat::Freely, deadline, |mut c| async move {
                c.status().await
            })
            .await;
        let answer = match answered {
            Err(StoreError::PermissionDenied { .. }) => return Ok(None),
            answered => answered?,
        };
        let words = answer.errors().iter().flat_map(|error| error.split_whitespace());
        let names: BTreeSet<&str> = words.filter_map(|word| word.strip_prefix("alarm:")).collect();
        Ok(Some(names.into_iter().map(str::to_owned).collect()))
    }
}
