//! The service Maintenance.

use super::answer::{VERSION, status};
use crate::core::{Command, Refusal, Store};
use crate::engine::Engine;
use crate::journal::state_hash;
use etcd_client::proto::{
    PbAlarmMember, PbAlarmRequest, PbAlarmResponse, PbDefragmentRequest, PbDefragmentResponse,
    PbDowngradeRequest, PbDowngradeResponse, PbHashKvRequest, PbHashKvResponse, PbHashRequest,
    PbHashResponse, PbMaintenanceService, PbMoveLeaderRequest, PbMoveLeaderResponse, PbSnapshotRequest,
    PbSnapshotResponse, PbStatusRequest, PbStatusResponse,
};
use tonic::{Request, Response, Status};

pub(super) struct Maintenance(pub(super) Engine);

/// Values of `AlarmType` and `AlarmRequest.AlarmAction`.
const NO_SPACE: i32 = 1;
const ACTIVATE: i32 = 1;
const DEACTIVATE: i32 = 2;

impl Maintenance {
    /// Inspects the whole state on a blocking thread. This takes long, and no other request must
    /// wait for it.
    async fn run_blocking<T: Send + 'static>(
        &self,
        inspect: impl FnOnce(&Store) -> T + Send + 'static,
    ) -> Result<T, Status> {
        let engine = self.0.clone();
        let done = tokio::task::spawn_blocking(move || inspect(&engine.read())).await;
        done.map_err(|error| Status::internal(error.to_string()))
    }
}

#[tonic::async_trait]
impl PbMaintenanceService for Maintenance {
    type SnapshotStream = tonic::codegen::BoxStream<PbSnapshotResponse>;

    async fn alarm(&self, request: Request<PbAlarmRequest>) -> Result<Response<PbAlarmResponse>, Status> {
        let request = request.into_inner();
        let about_space = [0, NO_SPACE].contains(&request.alarm);
        let raised = self.0.read().no_space();
        let named = match request.action {
            ACTIVATE if request.alarm == NO_SPACE => {
                self.0.commit(Command::NoSpace(true)).await.map_err(status)?;
                true
            }
            DEACTIVATE if about_space && raised => {
                self.0.commit(Command::NoSpace(false)).await.map_err(status)?;
                true
            }
            0 => about_space && raised,
            _ => false,
        };
        let member = PbAlarmMember { member_id: self.0.identity().member_id, alarm: NO_SPACE };
        let header = Some(self.0.header(self.0.read().revision()));
        let alarms = if named { vec![member] } else { Vec::new() };
        Ok(Response::new(PbAlarmResponse { header, alarms }))
    }

    async fn status(&self, _: Request<PbStatusRequest>) -> Result<Response<PbStatusResponse>, Status> {
        let engine = &self.0;
        let (revision, in_use, no_space, raft_term, applied) = {
            let store = engine.read();
            (store.revision(), store.bytes(), store.no_space(), store.raft_term(), store.applied())
        };
        let size = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        let errors = if no_space {
            vec![format!("memberID:{} alarm:NOSPACE ", engine.identity().member_id)]
        } else {
            Vec::new()
        };
        Ok(Response::new(PbStatusResponse {
            header: Some(engine.header(revision)),
            // The version of the API, with a suffix that marks solo-etcd.
            version: format!("{VERSION}+solo"),
            db_size: size(engine.file_bytes().max(in_use)),
            db_size_in_use: size(in_use),
            db_size_quota: size(engine.quota_bytes()),
            leader: engine.identity().member_id,
            raft_index: applied,
            raft_applied_index: applied,
            raft_term,
            errors,
            ..PbStatusResponse::default()
        }))
    }

    /// Rewrites the store file without what compactions and deletions left in it.
    async fn defragment(
        &self,
        _: Request<PbDefragmentRequest>,
    ) -> Result<Response<PbDefragmentResponse>, Status> {
        self.0.rewrite().await.map_err(status)?.map_err(|error| Status::internal(error.to_string()))?;
        Ok(Response::new(PbDefragmentResponse { header: None }))
    }

    async fn hash(&self, _: Request<PbHashRequest>) -> Result<Response<PbHashResponse>, Status> {
        let (hash, revision) =
            self.run_blocking(|store| (state_hash(store, i64::MAX), store.revision())).await?;
        Ok(Response::new(PbHashResponse { header: Some(self.0.header(revision)), hash }))
    }

    async fn hash_kv(&self, request: Request<PbHashKvRequest>) -> Result<Response<PbHashKvResponse>, Status> {
        let wanted = request.into_inner().revision;
        let found = self.run_blocking(move |store| {
            let at = if wanted == 0 { store.revision() } else { wanted };
            if at > store.revision() {
                return Err(Refusal::FutureRevision);
            }
            if at > 0 && at < store.compacted() {
                return Err(Refusal::Compacted);
            }
            Ok((state_hash(store, at), at, store.compacted(), store.revision()))
        });
        let (hash, at, compact_revision, revision) = found.await?.map_err(status)?;
        let header = Some(self.0.header(revision));
        Ok(Response::new(PbHashKvResponse { header, hash, compact_revision, hash_revision: at }))
    }

    async fn snapshot(
        &self,
        _: Request<PbSnapshotRequest>,
    ) -> Result<Response<Self::SnapshotStream>, Status> {
        Err(Status::unimplemented(
            "solo-etcd has no snapshots that etcd could restore: copy its directory while it is stopped, or `solo-etcd export --to ENDPOINTS`",
        ))
    }

    async fn move_leader(
        &self,
        request: Request<PbMoveLeaderRequest>,
    ) -> Result<Response<PbMoveLeaderResponse>, Status> {
        if request.into_inner().target_id != self.0.identity().member_id {
            return Err(Status::failed_precondition("etcdserver: bad leader transferee"));
        }
        let header = Some(self.0.header(self.0.read().revision()));
        Ok(Response::new(PbMoveLeaderResponse { header }))
    }

    async fn downgrade(
        &self,
        _: Request<PbDowngradeRequest>,
    ) -> Result<Response<PbDowngradeResponse>, Status> {
        Err(Status::unimplemented("solo-etcd has no downgrade"))
    }
}
