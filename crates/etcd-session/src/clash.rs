//! What an agent tells the fleet while another one lives under the name of its host:
//! `/orchestrate/clashes/<host>`, under a lease of its own.

use crate::error::StoreError;
use crate::request::Deadline;
use crate::session::Session;
use schema::names::HostName;
use schema::records::{LiveClaim, NameClash};
use schema::time::EpochSeconds;
use schema::writes::claim::note_clash;
use std::time::{Duration, SystemTime};

/// The lease under which this agent tells the fleet that it cannot claim its name.
#[derive(Debug, Default)]
pub(crate) struct Clash {
    lease: Option<i64>,
}

/// What this agent would claim.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ours<'a> {
    pub(crate) host: &'a HostName,
    pub(crate) claim: &'a LiveClaim,
    /// Time to live of the lease.
    pub(crate) lease: Duration,
}

impl Clash {
    /// Tells the fleet that another agent lives under the name, or keeps that alive. `holder` is the description
    /// of its claim, and `live_revision` the claim's revision. Errors are only logged, because the agent soon tries again.
    pub(crate) async fn keep(
        &mut self,
        session: &Session,
        ours: Ours<'_>,
        holder: String,
        live_revision: i64,
    ) {
        if let Err(error) = self.try_keep(session, ours, holder, live_revision).await {
            tracing::debug!(%error, "presence: the fleet cannot be told that the name is taken");
        }
    }

    async fn try_keep(
        &mut self,
        session: &Session,
        Ours { host, claim, lease: length }: Ours<'_>,
        holder: String,
        live_revision: i64,
    ) -> Result<(), StoreError> {
        let deadline = Deadline::of_request();
        let lease = match self.lease {
            Some(lease) if session.keep_lease(lease, deadline).await.is_ok() => lease,
            _ => session.grant_lease(length.as_secs().cast_signed(), deadline).await?,
        };
        self.lease = Some(lease);
        let since_epoch = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let at = EpochSeconds(since_epoch.as_secs().cast_signed());
        let clash = NameClash { at, holder, refused: claim.to_string() };
        session.commit(&note_clash(host, &clash, live_revision, lease), deadline).await?;
        Ok(())
    }

    /// Ends it, because this agent has claimed the name.
    pub(crate) async fn end(&mut self, session: &Session) {
        if let Some(lease) = self.lease.take() {
            session.give_up_lease(lease, Deadline::of_request()).await;
        }
    }
}
