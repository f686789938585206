//! The service KV.

use super::answer::{complete, status};
use crate::core::{Command, CommandResult};
use crate::engine::Engine;
use etcd_client::proto::{
    PbCompactionRequest, PbCompactionResponse, PbDeleteRequest, PbDeleteResponse, PbKvService, PbPutRequest,
    PbPutResponse, PbRangeRequest, PbRangeResponse, PbRangeStreamResponse, PbTxnRequest, PbTxnResponse,
};
use tonic::{Request, Response, Status};

pub(super) struct Kv(pub(super) Engine);

#[tonic::async_trait]
impl PbKvService for Kv {
    type RangeStreamStream = tonic::codegen::BoxStream<PbRangeStreamResponse>;

    async fn range(&self, request: Request<PbRangeRequest>) -> Result<Response<PbRangeResponse>, Status> {
        let mut answer = self.0.read().range(request.get_ref()).map_err(status)?;
        complete(&self.0, &mut answer.header);
        Ok(Response::new(answer))
    }

    /// Answers a request of etcd 3.7. The whole range is sent in one piece, which the API allows.
    async fn range_stream(
        &self,
        request: Request<PbRangeRequest>,
    ) -> Result<Response<Self::RangeStreamStream>, Status> {
        let range_response = Some(self.range(request).await?.into_inner());
        let piece = Ok(PbRangeStreamResponse { range_response });
        Ok(Response::new(Box::pin(tokio_stream::once(piece))))
    }

    async fn put(&self, request: Request<PbPutRequest>) -> Result<Response<PbPutResponse>, Status> {
        match self.0.commit(Command::Put(request.into_inner())).await {
            Ok((CommandResult::Put(mut answer), _)) => {
                complete(&self.0, &mut answer.header);
                Ok(Response::new(answer))
            }
            other => Err(unexpected(other)),
        }
    }

    async fn delete_range(
        &self,
        request: Request<PbDeleteRequest>,
    ) -> Result<Response<PbDeleteResponse>, Status> {
        match self.0.commit(Command::DeleteRange(request.into_inner())).await {
            Ok((CommandResult::DeleteRange(mut answer), _)) => {
                complete(&self.0, &mut answer.header);
                Ok(Response::new(answer))
            }
            other => Err(unexpected(other)),
        }
    }

    async fn txn(&self, request: Request<PbTxnRequest>) -> Result<Response<PbTxnResponse>, Status> {
        let request = request.into_inner();
        let read = self.0.read().read_only_txn(&request);
        let mut answer = match read {
            Some(answer) => answer.map_err(status)?,
            None => match self.0.commit(Command::Txn(request)).await {
                Ok((CommandResult::Txn(answer), _)) => answer,
                other => return Err(unexpected(other)),
            },
        };
        complete(&self.0, &mut answer.header);
        Ok(Response::new(answer))
    }

    async fn compact(
        &self,
        request: Request<PbCompactionRequest>,
    ) -> Result<Response<PbCompactionResponse>, Status> {
        let (_, revision) = self.0.commit(Command::Compact(request.into_inner())).await.map_err(status)?;
        Ok(Response::new(PbCompactionResponse { header: Some(self.0.header(revision)) }))
    }
}

/// Converts a refusal, or an answer that does not fit the command, into a status.
fn unexpected(answer: Result<(CommandResult, i64), crate::core::Refusal>) -> Status {
    match answer {
        Err(refusal) => status(refusal),
        Ok((answer, _)) => Status::internal(format!("an answer of another kind: {answer:?}")),
    }
}
