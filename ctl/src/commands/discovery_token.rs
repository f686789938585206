//! A token of an etcd discovery service: `new_discovery_token`.

use super::context::Store;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use anyhow::Context;
use clap::Args;

/// Get a new token from an etcd discovery service
#[derive(Debug, Args)]
pub(crate) struct NewDiscoveryToken {
    /// URL of the service; the public service no longer exists
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
}

/// Gets a token from a discovery service; this does not use the store.
pub(super) async fn new_discovery_token(
    options: NewDiscoveryToken,
    store: &Store<'_>,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let Some(endpoint) = options.endpoint else {
        return Err(Failure::cannot_tell(
            "the public etcd discovery service no longer exists; use --endpoint URL",
        ));
    };
    let asking = tokio::task::spawn_blocking(move || etcd_session::new_discovery_token(&endpoint));
    let Ok(answer) = tokio::time::timeout(store.deadline.left(), asking).await else {
        return Err(Failure::cannot_tell("the discovery service: no answer within the time-out"));
    };
    let token = answer.context("the discovery service")??;
    output.answer(&serde_json::json!({ "token": token }), |o| o.line(&token));
    Ok(Exit::Yes)
}
