//! The service Lease.

use super::answer::status;
use crate::core::{Command, CommandResult, Refusal};
use crate::engine::Engine;
use etcd_client::proto::{
    PbLeaseGrantRequest, PbLeaseGrantResponse, PbLeaseKeepAliveRequest, PbLeaseKeepAliveResponse,
    PbLeaseLeasesRequest, PbLeaseLeasesResponse, PbLeaseRevokeRequest, PbLeaseRevokeResponse, PbLeaseService,
    PbLeaseStatus, PbLeaseTimeToLiveRequest, PbLeaseTimeToLiveResponse,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

pub(super) struct Lease(pub(super) Engine);

/// Largest number of answers on one stream that the client has not received yet.
const ANSWERS_MAX: usize = 16;

#[tonic::async_trait]
impl PbLeaseService for Lease {
    type LeaseKeepAliveStream = ReceiverStream<Result<PbLeaseKeepAliveResponse, Status>>;

    async fn lease_grant(
        &self,
        request: Request<PbLeaseGrantRequest>,
    ) -> Result<Response<PbLeaseGrantResponse>, Status> {
        let mut request = request.into_inner();
        let chosen = request.id != 0;
        loop {
            if !chosen {
                request.id = random_id()?;
            }
            match self.0.commit(Command::LeaseGrant(request)).await {
                Err(Refusal::LeaseExists) if !chosen => {}
                Ok((CommandResult::Granted(ttl), revision)) => {
                    let header = Some(self.0.header(revision));
                    let error = String::new();
                    return Ok(Response::new(PbLeaseGrantResponse { header, id: request.id, ttl, error }));
                }
                Ok(_) => return Err(Status::internal("an answer of another kind")),
                Err(refusal) => return Err(status(refusal)),
            }
        }
    }

    async fn lease_revoke(
        &self,
        request: Request<PbLeaseRevokeRequest>,
    ) -> Result<Response<PbLeaseRevokeResponse>, Status> {
        let (_, revision) =
            self.0.commit(Command::LeaseRevoke(request.into_inner().id)).await.map_err(status)?;
        Ok(Response::new(PbLeaseRevokeResponse { header: Some(self.0.header(revision)) }))
    }

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<PbLeaseKeepAliveRequest>>,
    ) -> Result<Response<Self::LeaseKeepAliveStream>, Status> {
        let mut requests = request.into_inner();
        let engine = self.0.clone();
        let (answers, stream) = mpsc::channel(ANSWERS_MAX);
        tokio::spawn(async move {
            loop {
                let request = tokio::select! {
                    // Neither arm loses data when the other one is ready first.
                    request = requests.message() => request,
                    () = engine.stopped() => return,
                };
                // Both an error and the end of the requests end the stream.
                let Ok(Some(PbLeaseKeepAliveRequest { id })) = request else { return };
                // For a lease that does not exist the answer is a time of 0, not an error.
                let ttl = engine.keep_alive(id).unwrap_or(0);
                let header = Some(engine.header(engine.read().revision()));
                if answers.send(Ok(PbLeaseKeepAliveResponse { header, id, ttl })).await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<PbLeaseTimeToLiveRequest>,
    ) -> Result<Response<PbLeaseTimeToLiveResponse>, Status> {
        let PbLeaseTimeToLiveRequest { id, keys: with_keys } = request.into_inner();
        let (lease, revision) = {
            let store = self.0.read();
            (store.lease(id, self.0.clock().millis()), store.revision())
        };
        let header = Some(self.0.header(revision));
        let (ttl, granted_ttl, keys) = lease.unwrap_or((-1, 0, Vec::new()));
        let keys = if with_keys { keys } else { Vec::new() };
        Ok(Response::new(PbLeaseTimeToLiveResponse { header, id, ttl, granted_ttl, keys }))
    }

    async fn lease_leases(
        &self,
        _: Request<PbLeaseLeasesRequest>,
    ) -> Result<Response<PbLeaseLeasesResponse>, Status> {
        let (leases, revision) = {
            let store = self.0.read();
            (store.leases(), store.revision())
        };
        let leases = leases.into_iter().map(|(id, _)| PbLeaseStatus { id }).collect();
        Ok(Response::new(PbLeaseLeasesResponse { header: Some(self.0.header(revision)), leases }))
    }
}

/// Returns a random positive id.
fn random_id() -> Result<i64, Status> {
    let random = getrandom::u64().map_err(|error| Status::internal(format!("no randomness: {error}")))?;
    Ok(i64::try_from(random >> 1).unwrap_or(i64::MAX).max(1))
}
