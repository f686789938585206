//! Parts that all answers have in common.

use crate::core::Refusal;
use crate::engine::Engine;
use etcd_client::proto::PbResponseHeader;
use tonic::Status;

/// Version of etcd whose API the server implements.
pub(super) const VERSION: &str = "3.4.23";

pub(super) fn status(refusal: Refusal) -> Status {
    Status::new(refusal.code().into(), refusal.message())
}

/// Fills in the ids and the raft term of a header. The revision stays.
pub(super) fn complete(engine: &Engine, header: &mut Option<PbResponseHeader>) {
    let revision = header.as_ref().map_or(0, |header| header.revision);
    *header = Some(engine.header(revision));
}
