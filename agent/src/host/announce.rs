//! Writes what is true on the host to the store: the start and done transactions, the withdrawal
//! and the report.

use super::context::Context;
use super::execute::{ExecuteError, Executor};
use crate::clock;
use crate::rollout::FoundRollout;
use etcd_session::{Deadline, HostWritten, jitter};
use planning::host::{Decision, Fact, KnownStore, StoreWrite, store_view};
use schema::plan::Effect;
use schema::why_not::WhyNot;
use schema::writes::WriteRefusal;
use std::sync::Arc;

impl Executor {
    /// Commits the transaction of an effect, which includes the report of this decision.
    pub(super) async fn announce(
        &self,
        context: &mut Context,
        decision: &Decision,
        effect: &Effect,
    ) -> Result<(), ExecuteError> {
        let Some(fence) = context.fence() else {
            return Err(ExecuteError::Refused(WriteRefusal::Claim));
        };
        let now = clock::now();
        let followed = &context.snapshot.followed;
        let (host, written) = (&context.state.host, context.written.as_ref());
        let published = store_view::published(followed, host, written, fence.live_revision);
        let brakes = context.brakes.known();
        let known = KnownStore { published, trust: &context.store_trust, followed, brakes };
        let Some(write) = StoreWrite::of_effect(effect, &context.state, decision, known, now.wall) else {
            return Ok(());
        };
        let content = write.content(&context.state, fence);
        let marks = self.session.marks();
        let written = self.session.write_host(&content, write.expected(), Deadline::of_request()).await;
        let (written, found) = written.map_err(ExecuteError::Store)?;
        let reads = write.rollout_reads();
        if let Some(found) = found
            && !reads.is_empty()
        {
            context.rollout_found = FoundRollout::new(&marks, reads, found).map(Arc::new);
        }
        let revision = match written {
            HostWritten::Done(revision) => revision,
            HostWritten::Refused(refusal) => return Err(ExecuteError::Refused(refusal)),
            HostWritten::Frozen(by, at) => return Err(ExecuteError::HeldBack(WhyNot::Frozen(by), at)),
            HostWritten::HeldBack(at) => return Err(ExecuteError::HeldBack(WhyNot::NotRead, at)),
        };
        context.store_written();
        let published = write.applied(&mut context.state, revision).map_err(ExecuteError::Refused)?;
        context.written = Some((revision, published));
        context.state.record(Fact::ReportWritten, &context.policy, now, jitter());
        context.unsaved = true;
        Ok(())
    }
}
