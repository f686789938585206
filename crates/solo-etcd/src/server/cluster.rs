//! The service Cluster, which has exactly one member.

use crate::engine::Engine;
use etcd_client::proto::{
    PbClusterService, PbMember, PbMemberAddRequest, PbMemberAddResponse, PbMemberListRequest,
    PbMemberListResponse, PbMemberPromoteRequest, PbMemberPromoteResponse, PbMemberRemoveRequest,
    PbMemberRemoveResponse, PbMemberUpdateRequest, PbMemberUpdateResponse,
};
use tonic::{Request, Response, Status};

pub(super) struct Cluster {
    pub(super) engine: Engine,
    pub(super) client_url: String,
}

/// Name of the only member.
pub(crate) const MEMBER_NAME: &str = "solo";

fn single_member<T>() -> Result<Response<T>, Status> {
    Err(Status::unimplemented("solo-etcd has one member, which stays as it is; a fleet uses etcd"))
}

impl Cluster {
    fn change<T>(&self, member: u64) -> Result<Response<T>, Status> {
        if member != self.engine.identity().member_id {
            return Err(Status::not_found("etcdserver: member not found"));
        }
        single_member()
    }
}

#[tonic::async_trait]
impl PbClusterService for Cluster {
    async fn member_list(
        &self,
        _: Request<PbMemberListRequest>,
    ) -> Result<Response<PbMemberListResponse>, Status> {
        let revision = self.engine.read().revision();
        let member = PbMember {
            id: self.engine.identity().member_id,
            name: MEMBER_NAME.into(),
            peer_ur_ls: Vec::new(),
            client_ur_ls: vec![self.client_url.clone()],
            is_learner: false,
        };
        let header = Some(self.engine.header(revision));
        Ok(Response::new(PbMemberListResponse { header, members: vec![member] }))
    }

    async fn member_add(
        &self,
        _: Request<PbMemberAddRequest>,
    ) -> Result<Response<PbMemberAddResponse>, Status> {
        single_member()
    }

    async fn member_remove(
        &self,
        request: Request<PbMemberRemoveRequest>,
    ) -> Result<Response<PbMemberRemoveResponse>, Status> {
        self.change(request.into_inner().id)
    }

    async fn member_update(
        &self,
        request: Request<PbMemberUpdateRequest>,
    ) -> Result<Response<PbMemberUpdateResponse>, Status> {
        self.change(request.into_inner().id)
    }

    async fn member_promote(
        &self,
        request: Request<PbMemberPromoteRequest>,
    ) -> Result<Response<PbMemberPromoteResponse>, Status> {
        self.change(request.into_inner().id)
    }
}
