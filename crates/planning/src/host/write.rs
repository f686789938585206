//! A write of the host to the store: what it contains, and what follows once it was applied.

use crate::host::brakes::Brakes;
use crate::host::input::{Decision, Published, Target};
use crate::host::state::HostState;
use crate::host::store_view;
use schema::followed::FollowedKeys;
use schema::keys::StatusState;
use schema::names::StatusType;
use schema::order::InstructionOrder;
use schema::plan::Effect;
use schema::reads::Read;
use schema::records::{HostClaims, HostProgress, ProgressState, Report, StatusRecord};
use schema::store_trust::StoreTrust;
use schema::time::EpochSeconds;
use schema::writes::claims::FoundClaims;
use schema::writes::host::{ExpectedKeys, FailureChange, HostWrite, Listing, StartGuard};
use schema::writes::{Fence, HostStatus, WriteRefusal};
use std::collections::BTreeMap;

/// A write of the host to the store. It always includes the report of the decision that it belongs
/// to.
#[derive(Debug, Clone)]
pub struct StoreWrite {
    start: Option<StartGuard>,
    listing: Listing,
    statuses: BTreeMap<StatusType, (StatusState, StatusRecord)>,
    claims: Option<HostClaims>,
    failure: FailureChange,
    progress: Option<(InstructionOrder, HostProgress)>,
    report: Report,
    rollout_reads: Vec<Read>,
    /// What the store held before, as far as the host knows.
    published: Published,
    is_trusted: bool,
}

/// What a host knows of its store when it writes.
#[derive(Debug)]
pub struct KnownStore<'a> {
    /// What the store holds for the host. If that is not known, the transaction finds out: it
    /// compares the listing, and is repeated with the one found.
    pub published: Option<Published>,
    /// Whether the host acts on what the store says.
    pub trust: &'a StoreTrust,
    /// The keys that the host follows.
    pub followed: &'a FollowedKeys,
    /// What the host knows of freezes and limits.
    pub brakes: Brakes<'a>,
}

impl StoreWrite {
    /// Returns the write of an effect; `None` if the effect does not write to the store.
    pub fn of_effect(
        effect: &Effect,
        state: &HostState,
        decision: &Decision,
        known: KnownStore<'_>,
        at: EpochSeconds,
    ) -> Option<Self> {
        let (listing, start) = match effect {
            Effect::CommitStart { instruction } => {
                let rollout = decision.permit.as_ref().map(|permit| permit.guard.clone());
                let (brakes, revision) = (known.brakes, instruction.order.revision);
                let guard = store_view::start_guard(known.followed, &state.host, revision, brakes, rollout);
                (Listing::Remove, Some(guard))
            }
            Effect::Announce { version } => (Listing::Set(version.clone(), at), None),
            Effect::Withdraw => (Listing::Remove, None),
            Effect::Report => (Listing::Keep, None),
            Effect::RunStep { .. } | Effect::WriteVersionFile { .. } => return None,
        };
        let published = known.published.unwrap_or_default();
        let is_trusted = *known.trust == StoreTrust::Trusted;
        // A store that went back gets no results, but the report may say that the host is blocked.
        let mut statuses = if is_trusted { state.reporting.statuses.clone() } else { BTreeMap::new() };
        statuses.retain(|kind, (state, record)| !is_in_store(&published.statuses, kind, *state, record));
        let report = decision.report.clone();
        let claims = if is_trusted { decision.claims.clone() } else { None };
        let epoch = state.store.as_ref().map_or(0, |store| store.epoch);
        let announces = match (effect, store_view::target(known.followed, epoch)) {
            (Effect::Announce { version }, Target::Known(target))
                if target.version == *version && store_view::marked_at(known.followed).is_some() =>
            {
                Some(target.order)
            }
            _ => None,
        };
        let tells_outcome = is_trusted && decision.tells_outcome;
        let failure = if tells_outcome { state.failure_change(announces) } else { FailureChange::Keep };
        let progress = match (effect, &decision.permit) {
            // A rollout without a record does not end.
            (Effect::CommitStart { instruction }, Some(permit)) => {
                permit.times.map(|_| (instruction.order, HostProgress::of_agent(ProgressState::Started, at)))
            }
            _ if tells_outcome => state.progress_to_write(),
            _ => None,
        };
        let new_ticket = claims.as_ref().and_then(|claims| claims.ticket.as_ref());
        let new_ticket = new_ticket.filter(|ticket| published.claims.ticket() != Some(ticket));
        let rollout_reads = match (effect, known.brakes) {
            // Nothing holds a host back in a store without brakes.
            (Effect::CommitStart { .. }, _) if store_view::marked_at(known.followed).is_none() => Vec::new(),
            (Effect::CommitStart { instruction }, brakes) => {
                let roster = store_view::roster(known.followed, &state.host).unwrap_or_default();
                brakes.reads(&state.host, instruction, &roster)
            }
            (_, Brakes::Known(view)) if new_ticket.is_some_and(|ticket| ticket.rollout == view.order) => {
                view.reads()
            }
            _ => Vec::new(),
        };
        Some(Self {
            start,
            listing,
            statuses,
            claims,
            failure,
            progress,
            report,
            rollout_reads,
            published,
            is_trusted,
        })
    }

    /// Returns what the transaction reads of the rollout.
    pub fn rollout_reads(&self) -> &[Read] {
        &self.rollout_reads
    }

    /// Returns the content of the transaction.
    pub fn content<'a>(&'a self, state: &'a HostState, fence: Fence) -> HostWrite<'a> {
        let statuses = self.statuses.iter().map(|(kind, (state, record))| HostStatus {
            kind: kind.clone(),
            state: *state,
            record: record.clone(),
        });
        HostWrite {
            host: &state.host,
            fence,
            start: self.start.clone(),
            listing: self.listing.clone(),
            statuses: statuses.collect(),
            claims: self.claims.clone(),
            failure: self.failure.clone(),
            progress: self.progress,
            report: &self.report,
            rollout_reads: &self.rollout_reads,
        }
    }

    /// Returns what the host believes that the store holds.
    pub fn expected(&self) -> ExpectedKeys {
        let listing = self.published.listing.as_ref();
        ExpectedKeys {
            announced: listing.map(|version| version.as_str().as_bytes().to_vec()),
            report_revision: self.published.report_revision,
            claims: self.published.claims.clone(),
        }
    }

    /// Notes that the write was applied at `revision`. Returns what the store holds from now on.
    ///
    /// # Errors
    /// Returns a refusal if the store went back before the write.
    pub fn applied(self, state: &mut HostState, revision: i64) -> Result<Published, WriteRefusal> {
        let Self { listing, statuses, claims, failure, progress, report, mut published, .. } = self;
        if let Some(memory) = state.store.as_mut()
            && self.is_trusted
        {
            if revision < memory.revision {
                // The next read shows that the store went back, which this lower revision must not
                // hide by becoming the remembered one.
                return Err(WriteRefusal::Store);
            }
            memory.revision = revision;
            memory.report_revision = Some(revision);
        }
        state.failure_written(&failure);
        state.progress_written(progress);
        published.report = Some(report);
        published.report_revision = revision;
        if let Some(claims) = claims {
            published.claims = if claims.is_empty() {
                FoundClaims::default()
            } else {
                FoundClaims { claims: Some(claims), revision }
            };
        }
        match listing {
            Listing::Keep => {}
            Listing::Remove => published.listing = None,
            Listing::Set(version, _) => published.listing = Some(version),
        }
        for (kind, (state, record)) in statuses {
            published.statuses.retain(|(k, _), _| *k != kind);
            published.statuses.insert((kind, state), record);
        }
        Ok(published)
    }
}

/// True if the store holds this result and no other one of its type.
fn is_in_store(
    published: &BTreeMap<(StatusType, StatusState), StatusRecord>,
    kind: &StatusType,
    state: StatusState,
    record: &StatusRecord,
) -> bool {
    let mut of_kind = published.iter().filter(|((k, _), _)| k == kind);
    of_kind.next().is_some_and(|((_, s), r)| *s == state && r == record) && of_kind.next().is_none()
}
