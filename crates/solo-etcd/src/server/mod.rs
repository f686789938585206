//! The gRPC and HTTP interface: a thin layer that contains no decisions.

mod answer;
mod auth;
mod cluster;
mod http;
mod kv;
mod lease;
mod maintenance;
mod watch;

use crate::core::REQUEST_BYTES_MAX;
use crate::engine::Engine;
use etcd_client::proto::{PbClusterServer, PbKvServer, PbLeaseServer, PbMaintenanceServer, PbWatchServer};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_stream::StreamExt as _;
use tonic::service::Routes;
use tonic::transport::server::{Router, TcpIncoming};

/// Delay until the next connection is accepted after an accept failed.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);
/// Allowance for the gRPC overhead of a request, in bytes.
const OVERHEAD_BYTES: usize = 512 * 1024;

/// Serves until `stop` resolves and the open connections are drained.
pub(crate) async fn serve(
    engine: Engine,
    listener: TcpListener,
    client_url: String,
    stop: impl Future<Output = ()>,
) -> Result<(), tonic::transport::Error> {
    // A small answer must not wait for the acknowledgement of the previous one.
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true)).then(|accepted| async {
        if accepted.is_err() {
            // Without free file descriptors every accept fails at once, until a client disconnects.
            tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
        }
        accepted
    });
    router(engine, client_url).serve_with_incoming_shutdown(incoming, stop).await
}

/// Returns the server with all its services.
pub(crate) fn router(engine: Engine, client_url: String) -> Router {
    let most = REQUEST_BYTES_MAX + OVERHEAD_BYTES;
    let kv = PbKvServer::new(kv::Kv(engine.clone()))
        .max_decoding_message_size(most)
        .max_encoding_message_size(usize::MAX);
    let watch = PbWatchServer::new(watch::Watch(engine.clone())).max_encoding_message_size(usize::MAX);
    let routes = Routes::new(kv)
        .add_service(watch)
        .add_service(PbLeaseServer::new(lease::Lease(engine.clone())))
        .add_service(PbMaintenanceServer::new(maintenance::Maintenance(engine.clone())))
        .add_service(PbClusterServer::new(cluster::Cluster { engine: engine.clone(), client_url }))
        .add_service(auth::Auth(engine.clone()));
    let grpc = routes.into_axum_router().layer(axum::middleware::from_fn(http::only_grpc));
    tonic::transport::Server::builder()
        .accept_http1(true)
        .max_concurrent_streams(None)
        .add_routes(Routes::from(http::add(grpc, engine)))
}
