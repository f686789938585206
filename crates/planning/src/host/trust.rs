//! What follows for a host from the assessment of its store: what it remembers, and what it has to
//! do before it decides anything.

use schema::store_trust::{StoreMemory, StoreSeen, StoreTrust, assess};

/// Highest revision and raft term that the store has answered with, in this order. Answers are
/// compared with them.
pub type HighestSeen = (i64, u64);

/// The consequences of one assessment of the store. The agent applies them in the order of the
/// fields, so that it creates an identity last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustChange {
    /// The epoch that an operator has accepted since the last assessment, if that happened.
    pub accepted: Option<u64>,
    /// A new history of the store begins: from now on answers are compared with these values,
    /// because the earlier ones belong to another content of the store.
    pub new_history: Option<HighestSeen>,
    /// True if the store's keys have to be read again before anything is concluded from them.
    pub resyncs: bool,
    /// What the host remembers of the store from now on.
    pub memory: Option<StoreMemory>,
    /// True if the memory must be recorded. A higher revision alone need not be.
    pub must_record: bool,
    /// True if what the host last wrote belongs to another history of the store.
    pub forgets_write: bool,
    /// Whether the host acts on what the store says.
    pub trust: StoreTrust,
    /// True if the identity of the store has to be created.
    pub claims_store: bool,
}

/// Assesses the store. `highest` are the values that answers are compared with now;
/// `decommissioned` is true if the store says that an operator decommissioned the host.
pub fn reassess(
    memory: Option<&StoreMemory>,
    seen: &StoreSeen,
    highest: HighestSeen,
    decommissioned: bool,
) -> TrustChange {
    let trust = assess(memory, seen);
    let mut change = TrustChange {
        accepted: None,
        new_history: None,
        resyncs: false,
        memory: memory.cloned(),
        must_record: false,
        forgets_write: false,
        claims_store: trust == StoreTrust::Unclaimed,
        trust: trust.clone(),
    };
    match trust {
        StoreTrust::Accepted { epoch } => {
            change.accepted = Some(epoch);
            change.new_history = Some((seen.revision, seen.raft_term));
            change.resyncs = true;
            change.memory = seen.identity.as_ref().map(|identity| StoreMemory::first(identity, seen));
            change.forgets_write = true;
            change.trust = StoreTrust::Trusted;
        }
        StoreTrust::Trusted => match &mut change.memory {
            Some(memory) => memory.note(seen),
            none => *none = seen.identity.as_ref().map(|identity| StoreMemory::first(identity, seen)),
        },
        StoreTrust::WentBack { by } => {
            let regressed = seen.regressed_revision.is_some() || seen.regressed_term.is_some();
            if let Some(memory) = change.memory.as_mut().filter(|memory| memory.went_back.is_none()) {
                memory.went_back = Some(by);
                change.forgets_write = true;
            }
            if change.forgets_write || regressed {
                // The memory says from now on that the store went back. Reads are compared with this
                // store as it is, so that the host can follow it.
                change.new_history = Some((seen.revision, seen.raft_term));
            }
        }
        StoreTrust::OtherLineage { .. } => {
            // What another fleet's store answered does not apply to the store of this host.
            change.new_history =
                memory.map(|memory| (memory.revision, memory.raft_term)).filter(|own| *own != highest);
        }
        StoreTrust::Unread | StoreTrust::Unclaimed | StoreTrust::Unreadable { .. } => {}
    }
    if let Some(memory) = change.memory.as_mut()
        && decommissioned
    {
        // Decommissioning a host deletes its report, so a missing report does not mean that the
        // store went back.
        memory.report_revision = None;
    }
    change.must_record = differs(memory, change.memory.as_ref());
    change
}

/// True if two memories differ in more than the highest revision and raft term.
fn differs(before: Option<&StoreMemory>, after: Option<&StoreMemory>) -> bool {
    let lasting = |memory: &StoreMemory| StoreMemory { revision: 0, raft_term: 0, ..memory.clone() };
    before.map(lasting) != after.map(lasting)
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::names::Token;
    use schema::records::StoreIdentity;
    use schema::store_trust::WentBack;

    fn identity(lineage: &str, epoch: u64) -> StoreIdentity {
        StoreIdentity::new(Token::new(lineage).unwrap(), epoch)
    }

    fn memory() -> StoreMemory {
        StoreMemory {
            lineage: Token::new("L").unwrap(),
            epoch: 2,
            revision: 100,
            raft_term: 5,
            target_revision: Some(90),
            report_revision: Some(95),
            went_back: None,
        }
    }

    fn seen() -> StoreSeen {
        StoreSeen {
            identity: Some(identity("L", 2)),
            revision: 120,
            raft_term: 6,
            target_revision: Some(90),
            report_revision: Some(95),
            roster_revision: Some(10),
            ..StoreSeen::default()
        }
    }

    /// Checks a change of this memory. `expected` changes a result by which nothing changes.
    fn check(memory: Option<StoreMemory>, seen: &StoreSeen, expected: impl FnOnce(&mut TrustChange)) {
        let mut wanted = TrustChange {
            accepted: None,
            new_history: None,
            resyncs: false,
            memory: memory.clone(),
            must_record: false,
            forgets_write: false,
            claims_store: false,
            trust: StoreTrust::Trusted,
        };
        expected(&mut wanted);
        assert_eq!(reassess(memory.as_ref(), seen, (100, 5), false), wanted);
    }

    #[test]
    fn a_trusted_store_is_remembered_and_a_higher_revision_alone_is_not_recorded() {
        let remembered = StoreMemory { revision: 120, raft_term: 6, ..memory() };
        check(Some(memory()), &seen(), |c| c.memory = Some(remembered.clone()));
        check(None, &seen(), |c| {
            c.memory = Some(StoreMemory { target_revision: None, report_revision: None, ..remembered });
            c.must_record = true;
        });
    }

    #[test]
    fn an_accepted_store_begins_a_new_history() {
        let seen = StoreSeen { identity: Some(identity("L", 3)), revision: 7, raft_term: 2, ..seen() };
        check(Some(memory()), &seen, |c| {
            c.accepted = Some(3);
            c.new_history = Some((7, 2));
            c.resyncs = true;
            c.memory = Some(StoreMemory::first(&identity("L", 3), &seen));
            c.must_record = true;
            c.forgets_write = true;
        });
    }

    #[test]
    fn a_store_that_went_back_is_followed_from_where_it_is() {
        let by = WentBack::Report { remembered: 95, found: None };
        let back = StoreSeen { report_revision: None, ..seen() };
        let remembered = StoreMemory { went_back: Some(by.clone()), ..memory() };
        check(Some(memory()), &back, |c| {
            c.new_history = Some((120, 6));
            c.memory = Some(remembered.clone());
            c.must_record = true;
            c.forgets_write = true;
            c.trust = StoreTrust::WentBack { by: by.clone() };
        });
        // What is known already changes nothing, unless the store goes back again.
        check(Some(remembered.clone()), &back, |c| c.trust = StoreTrust::WentBack { by: by.clone() });
        let again = StoreSeen { regressed_revision: Some((120, 8)), revision: 8, ..back };
        check(Some(remembered), &again, |c| {
            c.new_history = Some((8, 6));
            c.trust = StoreTrust::WentBack { by };
        });
    }

    #[test]
    fn the_store_of_another_fleet_changes_nothing() {
        let theirs = StoreSeen { identity: Some(identity("M", 9)), ..seen() };
        let other = |c: &mut TrustChange| {
            let (ours, theirs) = (Token::new("L").unwrap(), Token::new("M").unwrap());
            c.trust = StoreTrust::OtherLineage { ours, theirs };
        };
        check(Some(memory()), &theirs, other);
        // Its answers have raised the values that answers are compared with.
        let change = reassess(Some(&memory()), &theirs, (5_000, 9), false);
        assert_eq!((change.new_history, change.must_record), (Some((100, 5)), false));
    }

    #[test]
    fn an_identity_is_created_once_and_never_over_an_unreadable_one() {
        check(None, &StoreSeen::default(), |c| {
            c.claims_store = true;
            c.trust = StoreTrust::Unclaimed;
        });
        let unreadable = StoreSeen { identity: None, identity_unreadable: Some("format 2".into()), ..seen() };
        check(Some(memory()), &unreadable, |c| c.trust = StoreTrust::Unreadable { why: "format 2".into() });
    }

    #[test]
    fn a_decommissioned_host_does_not_expect_its_report() {
        let change =
            reassess(Some(&memory()), &StoreSeen { revision: 100, raft_term: 5, ..seen() }, (100, 5), true);
        assert_eq!(change.memory, Some(StoreMemory { report_revision: None, ..memory() }));
        assert!(change.must_record);
    }
}
