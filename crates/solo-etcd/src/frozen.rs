//! A store of the past: what a store held at one revision. Clients in this process read it as they read any store, and
//! can change nothing. There is no connection and no task that waits.

use crate::core::{Refusal, Store};
use etcd_client::proto::{
    PbCompactionRequest, PbCompactionResponse, PbDeleteRequest, PbDeleteResponse, PbKeyValue, PbKvServer,
    PbKvService, PbPutRequest, PbPutResponse, PbRangeRequest, PbRangeResponse, PbRangeStreamResponse,
    PbResponseHeader, PbTxnRequest, PbTxnResponse,
};
use etcd_client::{BalancedChannelBuilder, Channel, Error};
use std::convert::Infallible;
use std::sync::Arc;
use tokio::sync::mpsc;
use tonic::body::Body;
use tonic::transport::Endpoint;
use tonic::transport::channel::Change;
use tonic::{Request, Response, Status};
use tower::ServiceExt;

pub use etcd_client::proto::PbKeyValue as KeyValue;

/// What a store held at one revision.
#[derive(Debug, Clone)]
pub struct Frozen(Arc<Store>);

impl Frozen {
    /// Returns a store with these keys at a revision. It has no history before it.
    pub fn new(revision: i64, keys: impl IntoIterator<Item = PbKeyValue>) -> Self {
        Self(Arc::new(Store::frozen(revision, keys)))
    }

    fn complete(&self, header: &mut Option<PbResponseHeader>) {
        *header = Some(PbResponseHeader { revision: self.0.revision(), ..PbResponseHeader::default() });
    }
}

fn status(refusal: Refusal) -> Status {
    Status::new(refusal.code().into(), refusal.message())
}

fn unchangeable<T>() -> Result<Response<T>, Status> {
    Err(Status::permission_denied("the past cannot be changed"))
}

#[tonic::async_trait]
impl PbKvService for Frozen {
    type RangeStreamStream = tonic::codegen::BoxStream<PbRangeStreamResponse>;

    async fn range(&self, request: Request<PbRangeRequest>) -> Result<Response<PbRangeResponse>, Status> {
        let mut answer = self.0.range(request.get_ref()).map_err(status)?;
        self.complete(&mut answer.header);
        Ok(Response::new(answer))
    }

    async fn range_stream(
        &self,
        _: Request<PbRangeRequest>,
    ) -> Result<Response<Self::RangeStreamStream>, Status> {
        Err(Status::unimplemented("read it as a whole"))
    }

    async fn put(&self, _: Request<PbPutRequest>) -> Result<Response<PbPutResponse>, Status> {
        unchangeable()
    }

    async fn delete_range(&self, _: Request<PbDeleteRequest>) -> Result<Response<PbDeleteResponse>, Status> {
        unchangeable()
    }

    async fn txn(&self, request: Request<PbTxnRequest>) -> Result<Response<PbTxnResponse>, Status> {
        let Some(answer) = self.0.read_only_txn(request.get_ref()) else { return unchangeable() };
        let mut answer = answer.map_err(status)?;
        self.complete(&mut answer.header);
        Ok(Response::new(answer))
    }

    async fn compact(
        &self,
        _: Request<PbCompactionRequest>,
    ) -> Result<Response<PbCompactionResponse>, Status> {
        unchangeable()
    }
}

impl BalancedChannelBuilder for Frozen {
    type Error = Error;

    /// Returns a channel that ends here, whatever endpoints it is given.
    fn balanced_channel(
        self,
        buffer_size: usize,
    ) -> Result<(Channel, mpsc::Sender<Change<axum::http::Uri, Endpoint>>), Error> {
        let (updates, mut endpoints) = mpsc::channel(buffer_size);
        // The client fails if this end of the updates is closed.
        tokio::spawn(async move { while endpoints.recv().await.is_some() {} });
        let never = |never: Infallible| -> tower::BoxError { match never {} };
        let service = ServiceExt::<axum::http::Request<Body>>::map_err(PbKvServer::new(self), never);
        Ok((Channel::Custom(tower::util::BoxCloneSyncService::new(service)), updates))
    }
}
