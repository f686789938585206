//! Writes what is true on the host to the store: the start and done transactions, the withdrawal
//! and the report.

use super::context::Context;
use super::execute::{ExecuteError, Executor};
use super::store_view;
use crate::clock;
use etcd_session::{Deadline, PresenceState, Written, jitter};
use planning::host::{Decision, Fact};
use schema::keys::{Key, StatusState};
use schema::names::StatusType;
use schema::records::StatusRecord;
use schema::store_trust::StoreTrust;
use schema::writes::host::{HostWrite, Listing};
use schema::writes::{Fence, WriteRefusal};
use std::collections::BTreeMap;

impl Executor {
    /// Commits one transaction of the host, which includes the report of this decision. With
    /// `target_revision` it also compares that `/current_version` still has that revision.
    pub(super) async fn announce(
        &self,
        context: &mut Context,
        decision: &Decision,
        listing: Listing,
        target_revision: Option<i64>,
    ) -> Result<(), ExecuteError> {
        let PresenceState::Held { lease, live_revision } = context.presence else {
            return Err(ExecuteError::Refused(WriteRefusal::Claim));
        };
        let host = context.state.host.clone();
        let store_revision = context.snapshot.keys.revision_of(&Key::Store);
        let now = clock::now();
        let report = decision.report.clone();
        // A store that went back gets no results, but the report may say that the host is blocked.
        let trusted = context.store_trust == StoreTrust::Trusted;
        let written = context.written.as_ref();
        // If it is not known what the store holds, the transaction finds out: it compares the
        // listing, and is repeated with the one found.
        let mut published =
            store_view::published(&context.snapshot, &host, written, live_revision).unwrap_or_default();
        let mut statuses = if trusted { context.state.statuses.clone() } else { BTreeMap::new() };
        statuses.retain(|kind, wanted| !is_in_store(&published.statuses, kind, wanted));
        let write = HostWrite {
            host: &host,
            lease,
            fence: Fence { live_revision, store_revision },
            target_revision,
            listing: listing.clone(),
            statuses: statuses.iter().map(|(kind, (s, record))| (kind.clone(), *s, record.clone())).collect(),
            report: &report,
        };
        let written =
            self.session.write_host(&write, published.listing.as_ref(), Deadline::of_request()).await;
        let revision = match written.map_err(ExecuteError::Store)? {
            Written::Done(revision) => revision,
            Written::Refused(refusal) => return Err(ExecuteError::Refused(refusal)),
        };
        context.store_written();
        if let Some(memory) = context.state.store.as_mut().filter(|_| trusted) {
            if revision < memory.revision {
                // The store went back before this write. The next read shows that, which this lower
                // revision must not hide by becoming the remembered one.
                return Err(ExecuteError::Refused(WriteRefusal::Store));
            }
            memory.revision = revision;
            memory.report_revision = Some(revision);
        }
        published.report = Some(report);
        match listing {
            Listing::Keep => {}
            Listing::Remove => published.listing = None,
            Listing::Set(version, _) => published.listing = Some(version),
        }
        replace_statuses(&mut published.statuses, statuses);
        context.written = Some((revision, published));
        context.state.record(Fact::ReportWritten, &context.policy, now, jitter());
        context.unsaved = true;
        Ok(())
    }
}

/// True if the store holds this result and no other one of its type.
fn is_in_store(
    published: &BTreeMap<(StatusType, StatusState), StatusRecord>,
    kind: &StatusType,
    (state, record): &(StatusState, StatusRecord),
) -> bool {
    let mut of_kind = published.iter().filter(|((k, _), _)| k == kind);
    of_kind.next().is_some_and(|((_, s), r)| s == state && r == record) && of_kind.next().is_none()
}

fn replace_statuses(
    published: &mut BTreeMap<(StatusType, StatusState), StatusRecord>,
    written: BTreeMap<StatusType, (StatusState, StatusRecord)>,
) {
    for (kind, (state, record)) in written {
        published.retain(|(k, _), _| *k != kind);
        published.insert((kind, state), record);
    }
}
