//! Store trust: whether this is the store that the host belongs to, and whether it went back.
//!
//! A store that was restored from a backup, a wiped store or another site's store can have the same
//! cluster id, and its revision passes the old one within seconds. For that reason a store has a
//! random lineage and an epoch, and a host remembers several values, each of which is checked on
//! its own.

use crate::names::Token;
use crate::records::StoreIdentity;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a host remembers of its store across restarts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreMemory {
    /// The lineage that the host belongs to.
    pub lineage: Token,
    /// The epoch that the host has accepted.
    pub epoch: u64,
    /// Highest revision seen in any answer.
    pub revision: i64,
    /// Highest raft term seen in a linearizable read.
    pub raft_term: u64,
    /// The revision of the newest instruction that the host acted on in this epoch.
    pub target_revision: Option<i64>,
    /// The revision at which the host last wrote its report.
    pub report_revision: Option<i64>,
    /// Set when the store was found to have gone back. Only a newer epoch clears it, because a
    /// store that went back passes the old revision again within seconds.
    #[serde(default)]
    pub went_back: Option<WentBack>,
}

/// What a key snapshot shows of the store, as far as store trust depends on it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoreSeen {
    /// The identity of the store, if its key exists and can be read.
    pub identity: Option<StoreIdentity>,
    /// Why the identity cannot be read although its key exists.
    pub identity_unreadable: Option<String>,
    /// Revision of the key snapshot.
    pub revision: i64,
    /// Raft term in which the key snapshot was read.
    pub raft_term: u64,
    /// Set if a linearizable read returned a lower revision than one seen before it, as
    /// (remembered, found).
    pub regressed_revision: Option<(i64, i64)>,
    /// Set if a linearizable read returned a lower raft term than one seen before it, as
    /// (remembered, found).
    pub regressed_term: Option<(u64, u64)>,
    /// The revision of `/current_version`, if it exists.
    pub target_revision: Option<i64>,
    /// The revision of the host's own report, if it exists.
    pub report_revision: Option<i64>,
    /// The revision of the host's own roster entry, if it exists.
    pub roster_revision: Option<i64>,
}

/// The sign that shows that the store went back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "sign", rename_all = "snake_case")]
pub enum WentBack {
    /// `/orchestrate/store` is missing.
    IdentityMissing,
    /// The epoch is lower than the remembered one.
    Epoch {
        /// The epoch that the host remembers.
        remembered: u64,
        /// The epoch of the store.
        found: u64,
    },
    /// The revision is lower than the remembered one.
    Revision {
        /// The revision that the host remembers.
        remembered: i64,
        /// The revision of the store.
        found: i64,
    },
    /// The raft term is lower than the remembered one.
    RaftTerm {
        /// The raft term that the host remembers.
        remembered: u64,
        /// The raft term of the store.
        found: u64,
    },
    /// `/current_version` is older than the instruction that the host acted on.
    Target {
        /// The revision of the instruction that the host acted on.
        remembered: i64,
        /// The revision of `/current_version`.
        found: i64,
    },
    /// The host's own report is missing, or older than the one that the host wrote.
    Report {
        /// The revision at which the host wrote its report.
        remembered: i64,
        /// The revision of the report in the store; `None` if it is missing.
        found: Option<i64>,
    },
}

impl fmt::Display for WentBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::IdentityMissing => f.write_str("its identity /orchestrate/store is missing"),
            Self::Epoch { remembered, found } => write!(f, "its epoch is {found}, it was {remembered}"),
            Self::Revision { remembered, found } => {
                write!(f, "its revision is {found}, it was {remembered}")
            }
            Self::RaftTerm { remembered, found } => {
                write!(f, "its raft term is {found}, it was {remembered}")
            }
            Self::Target { remembered, found } => {
                write!(
                    f,
                    "/current_version is of revision {found}, one of revision {remembered} was acted on"
                )
            }
            Self::Report { remembered, found: Some(found) } => {
                write!(f, "this host's report is of revision {found}, it was written at {remembered}")
            }
            Self::Report { remembered, found: None } => {
                write!(f, "this host's report, written at revision {remembered}, is missing")
            }
        }
    }
}

/// Whether a host acts on what the store says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "standing", rename_all = "snake_case")]
pub enum StoreTrust {
    /// The store has not been read yet.
    Unread,
    /// The store has no identity and this host has never had a store: the identity may be written.
    Unclaimed,
    /// The store is the host's store.
    Trusted,
    /// The store is the host's store after `store accept`: the host forgets what it remembered and adopts
    /// this epoch.
    Accepted { epoch: u64 },
    /// The identity exists but cannot be read: it is damaged, or was written by a newer program.
    Unreadable {
        /// The error of the parser.
        why: String,
    },
    /// The store went back. Nothing starts until `store accept`.
    WentBack {
        /// The sign that showed it.
        by: WentBack,
    },
    /// The store is another fleet's store. Nothing is written to it.
    OtherLineage {
        /// The lineage that this host belongs to.
        ours: Token,
        /// The lineage of the store.
        theirs: Token,
    },
}

/// Assesses a store by what the host remembers of it.
pub fn assess(memory: Option<&StoreMemory>, seen: &StoreSeen) -> StoreTrust {
    if let Some(why) = &seen.identity_unreadable {
        return StoreTrust::Unreadable { why: why.clone() };
    }
    let Some(memory) = memory else {
        return if seen.identity.is_some() { StoreTrust::Trusted } else { StoreTrust::Unclaimed };
    };
    let Some(identity) = &seen.identity else {
        return StoreTrust::WentBack { by: WentBack::IdentityMissing };
    };
    if identity.lineage != memory.lineage {
        return StoreTrust::OtherLineage { ours: memory.lineage.clone(), theirs: identity.lineage.clone() };
    }
    if identity.epoch > memory.epoch {
        return StoreTrust::Accepted { epoch: identity.epoch };
    }
    match memory.went_back.clone().or_else(|| went_back(memory, identity, seen)) {
        Some(by) => StoreTrust::WentBack { by },
        None => StoreTrust::Trusted,
    }
}

fn went_back(memory: &StoreMemory, identity: &StoreIdentity, seen: &StoreSeen) -> Option<WentBack> {
    if identity.epoch < memory.epoch {
        return Some(WentBack::Epoch { remembered: memory.epoch, found: identity.epoch });
    }
    // The snapshot may be older than the host's own writes, so its revision is not compared here.
    // The linearizable reads detect a regress and report it in `seen`.
    if let Some((remembered, found)) = seen.regressed_revision {
        return Some(WentBack::Revision { remembered, found });
    }
    if let Some((remembered, found)) = seen.regressed_term {
        return Some(WentBack::RaftTerm { remembered, found });
    }
    // A missing target means "no instruction": an operator may delete it.
    if let (Some(remembered), Some(found)) = (memory.target_revision, seen.target_revision)
        && found < remembered
    {
        return Some(WentBack::Target { remembered, found });
    }
    if let Some(remembered) = memory.report_revision
        && seen.report_revision.is_none_or(|found| found < remembered)
    {
        // `hosts decommission` deletes the report and writes the roster entry in one transaction.
        let taken_out_since = seen.roster_revision.is_some_and(|roster| roster > remembered);
        if !taken_out_since {
            return Some(WentBack::Report { remembered, found: seen.report_revision });
        }
    }
    None
}

impl StoreMemory {
    /// Returns the first memory of a store.
    pub fn first(identity: &StoreIdentity, seen: &StoreSeen) -> Self {
        Self {
            lineage: identity.lineage.clone(),
            epoch: identity.epoch,
            revision: seen.revision,
            raft_term: seen.raft_term,
            target_revision: None,
            report_revision: None,
            went_back: None,
        }
    }

    /// Remembers the revision and raft term of a store that was assessed as
    /// [`StoreTrust::Trusted`].
    pub fn note(&mut self, seen: &StoreSeen) {
        self.revision = self.revision.max(seen.revision);
        self.raft_term = self.raft_term.max(seen.raft_term);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(text: &str) -> Token {
        Token::new(text).unwrap()
    }

    fn memory() -> StoreMemory {
        StoreMemory {
            lineage: token("L"),
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
            identity: Some(StoreIdentity::new(token("L"), 2)),
            identity_unreadable: None,
            revision: 100,
            raft_term: 5,
            regressed_revision: None,
            regressed_term: None,
            target_revision: Some(90),
            report_revision: Some(95),
            roster_revision: Some(10),
        }
    }

    fn check(change: impl FnOnce(&mut StoreSeen), expected: StoreTrust) {
        let mut seen = seen();
        change(&mut seen);
        assert_eq!(assess(Some(&memory()), &seen), expected);
    }

    #[test]
    fn the_same_store_further_on_is_trusted() {
        check(|_| {}, StoreTrust::Trusted);
        check(|s| s.revision = 1_000, StoreTrust::Trusted);
        check(|s| s.raft_term = 9, StoreTrust::Trusted);
        // The snapshot is older than the host's own writes.
        check(|s| s.revision = 99, StoreTrust::Trusted);
        check(|s| s.target_revision = Some(99), StoreTrust::Trusted);
        check(|s| s.report_revision = Some(99), StoreTrust::Trusted);
    }

    #[test]
    fn each_sign_alone_shows_that_the_store_went_back() {
        let back = |by| StoreTrust::WentBack { by };
        check(|s| s.identity = None, back(WentBack::IdentityMissing));
        check(
            |s| s.identity = Some(StoreIdentity::new(token("L"), 1)),
            back(WentBack::Epoch { remembered: 2, found: 1 }),
        );
        check(
            |s| s.regressed_revision = Some((100, 99)),
            back(WentBack::Revision { remembered: 100, found: 99 }),
        );
        check(|s| s.regressed_term = Some((5, 4)), back(WentBack::RaftTerm { remembered: 5, found: 4 }));
        check(|s| s.target_revision = Some(89), back(WentBack::Target { remembered: 90, found: 89 }));
        check(|s| s.report_revision = Some(94), back(WentBack::Report { remembered: 95, found: Some(94) }));
        check(|s| s.report_revision = None, back(WentBack::Report { remembered: 95, found: None }));
    }

    #[test]
    fn a_deleted_target_is_no_instruction_and_not_a_store_that_went_back() {
        check(|s| s.target_revision = None, StoreTrust::Trusted);
    }

    #[test]
    fn a_host_that_was_taken_out_and_added_again_finds_its_report_gone() {
        check(
            |s| {
                s.report_revision = None;
                s.roster_revision = Some(97);
            },
            StoreTrust::Trusted,
        );
    }

    #[test]
    fn an_identity_that_cannot_be_read_is_neither_missing_nor_remembered() {
        check(
            |s| {
                s.identity = None;
                s.identity_unreadable = Some("format 2".into());
            },
            StoreTrust::Unreadable { why: "format 2".into() },
        );
    }

    #[test]
    fn another_lineage_is_refused_naming_both() {
        check(
            |s| s.identity = Some(StoreIdentity::new(token("M"), 7)),
            StoreTrust::OtherLineage { ours: token("L"), theirs: token("M") },
        );
    }

    #[test]
    fn a_newer_epoch_is_accepted_whatever_else_is_lower() {
        check(
            |s| *s = StoreSeen { identity: Some(StoreIdentity::new(token("L"), 3)), ..StoreSeen::default() },
            StoreTrust::Accepted { epoch: 3 },
        );
    }

    #[test]
    fn once_gone_back_stays_so_until_accepted() {
        let mut memory = memory();
        memory.went_back = Some(WentBack::IdentityMissing);
        let healthy_looking = StoreSeen { revision: 5_000, ..seen() };
        assert_eq!(
            assess(Some(&memory), &healthy_looking),
            StoreTrust::WentBack { by: WentBack::IdentityMissing }
        );
    }

    #[test]
    fn a_first_contact_trusts_or_claims() {
        assert_eq!(assess(None, &seen()), StoreTrust::Trusted);
        assert_eq!(assess(None, &StoreSeen::default()), StoreTrust::Unclaimed);
    }
}
