//! Requests of the etcd API as they are sent over the wire: no client library adds, repeats or
//! hides anything.

use etcd_client::proto::{PbResponseHeader, PbWatchRequest, PbWatchRequestUnion, PbWatchResponse};
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

/// An error status of the store: gRPC code and message; code -1 is an error of the connection.
pub type Refused = (i32, String);

/// One connection to a store.
#[derive(Clone)]
pub struct Raw {
    channel: Channel,
}

impl Raw {
    /// Returns a connection that is established at its first use.
    pub fn connect(endpoint: &str) -> Self {
        let endpoint = Endpoint::from_shared(endpoint.to_owned()).expect("an endpoint");
        Self { channel: endpoint.connect_lazy() }
    }

    /// Calls a method of a service; `method` is, for example, `KV/Put`.
    pub async fn call<Q, A>(&self, method: &str, request: Q) -> Result<A, Refused>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut grpc = tonic::client::Grpc::new(self.channel.clone()).max_decoding_message_size(usize::MAX);
        grpc.ready().await.map_err(|error| (-1, error.to_string()))?;
        let path = format!("/etcdserverpb.{method}").parse().expect("a path");
        let answer = grpc.unary(Request::new(request), path, ProstCodec::<Q, A>::default()).await;
        answer.map(tonic::Response::into_inner).map_err(refused)
    }

    /// Sends one message on a stream and returns the first answer.
    pub async fn call_streaming<Q, A>(&self, method: &str, request: Q) -> Result<A, Refused>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut grpc = tonic::client::Grpc::new(self.channel.clone());
        grpc.ready().await.map_err(|error| (-1, error.to_string()))?;
        let path = format!("/etcdserverpb.{method}").parse().expect("a path");
        let (sender, requests) = mpsc::channel(1);
        sender.send(request).await.map_err(|error| (-1, error.to_string()))?;
        let requests = Request::new(ReceiverStream::new(requests));
        let answer = grpc.streaming(requests, path, ProstCodec::<Q, A>::default()).await.map_err(refused)?;
        let message = answer.into_inner().message().await.map_err(refused)?;
        message.ok_or((-1, "the stream ended".to_owned()))
    }

    /// Opens a watch stream with its first request; etcd does not answer before that request.
    pub async fn watch(&self, first: PbWatchRequestUnion) -> WatchStream {
        let mut grpc = tonic::client::Grpc::new(self.channel.clone()).max_decoding_message_size(usize::MAX);
        grpc.ready().await.expect("a connection");
        let (requests, outgoing) = mpsc::channel(64);
        requests.send(PbWatchRequest { request_union: Some(first) }).await.expect("there is room");
        let path = "/etcdserverpb.Watch/Watch".parse().expect("a path");
        let codec = ProstCodec::<PbWatchRequest, PbWatchResponse>::default();
        let answer = grpc.streaming(Request::new(ReceiverStream::new(outgoing)), path, codec).await;
        WatchStream { requests: Some(requests), answers: answer.expect("a stream").into_inner() }
    }
}

fn refused(status: Status) -> Refused {
    (status.code().into(), status.message().to_owned())
}

/// A stream of watchers.
pub struct WatchStream {
    /// Sender of requests; `None` after [`WatchStream::ask_nothing_more`].
    requests: Option<mpsc::Sender<PbWatchRequest>>,
    answers: Streaming<PbWatchResponse>,
}

impl WatchStream {
    pub async fn send(&self, union: PbWatchRequestUnion) {
        let request = PbWatchRequest { request_union: Some(union) };
        let requests = self.requests.as_ref().expect("it asks on");
        requests.send(request).await.expect("the stream is open");
    }

    /// Closes the sending side of the stream; answers continue to arrive.
    pub fn ask_nothing_more(&mut self) {
        self.requests = None;
    }

    /// Waits for the next answer.
    pub async fn next(&mut self) -> Result<PbWatchResponse, Refused> {
        let message = self.answers.message().await.map_err(refused)?;
        message.ok_or((-1, "the stream ended".to_owned()))
    }
}

/// Returns the revision in a header, or -1 if there is no header.
pub fn revision(header: Option<&PbResponseHeader>) -> i64 {
    header.map_or(-1, |header| header.revision)
}
