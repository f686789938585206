//! The service Auth, which answers like an etcd without users. Its generated trait cannot be
//! implemented outside of `etcd-client`, which does not export the messages of `AuthStatus`. So the
//! methods are told apart by their paths here, and one message serves for all answers: they begin
//! with the header, and the rest is empty.

use crate::engine::Engine;
use etcd_client::proto::PbResponseHeader;
use std::convert::Infallible;
use std::task::{Context, Poll};
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

#[derive(Clone)]
pub(super) struct Auth(pub(super) Engine);

/// Any answer of the service. Fields 2 and 3 are those of `AuthStatusResponse`.
#[derive(Clone, PartialEq, prost::Message)]
struct AuthAnswer {
    #[prost(message, optional, tag = "1")]
    header: Option<PbResponseHeader>,
    #[prost(bool, tag = "2")]
    enabled: bool,
    #[prost(uint64, tag = "3")]
    auth_revision: u64,
}

impl NamedService for Auth {
    const NAME: &'static str = "etcdserverpb.Auth";
}

impl Service<http::Request<Body>> for Auth {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let engine = self.0.clone();
        let method = request.uri().path().rsplit('/').next().unwrap_or("").to_owned();
        Box::pin(async move {
            let mut grpc = Grpc::new(ProstCodec::default());
            Ok(grpc.unary(Method { engine, method }, request).await)
        })
    }
}

struct Method {
    engine: Engine,
    method: String,
}

impl UnaryService<()> for Method {
    type Response = AuthAnswer;
    type Future = std::future::Ready<Result<Response<AuthAnswer>, Status>>;

    fn call(&mut self, _: Request<()>) -> Self::Future {
        std::future::ready(self.answer().map(Response::new))
    }
}

impl Method {
    fn answer(&self) -> Result<AuthAnswer, Status> {
        let header = Some(self.engine.header(self.engine.read().revision()));
        let precondition = |text: &str| Err(Status::failed_precondition(text));
        match self.method.as_str() {
            "AuthStatus" => Ok(AuthAnswer { header, enabled: false, auth_revision: 1 }),
            "AuthDisable" | "UserList" | "RoleList" => Ok(AuthAnswer { header, ..AuthAnswer::default() }),
            "AuthEnable" => precondition("etcdserver: root user does not exist"),
            "Authenticate" => precondition("etcdserver: authentication is not enabled"),
            "UserGet" | "UserDelete" | "UserChangePassword" | "UserGrantRole" | "UserRevokeRole" => {
                precondition("etcdserver: user name not found")
            }
            "RoleGet" | "RoleDelete" | "RoleGrantPermission" | "RoleRevokePermission" => {
                precondition("etcdserver: role name not found")
            }
            "UserAdd" | "RoleAdd" => Err(Status::unimplemented(
                "solo-etcd has no users: it is for one machine; use etcd for a fleet",
            )),
            other => Err(Status::unimplemented(format!("unknown method {other}"))),
        }
    }
}
