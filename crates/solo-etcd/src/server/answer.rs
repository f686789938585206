//! What all answers have in common.

use crate::core::Refusal;
use crate::engine::Engine;
use etcd_client::proto::PbResponseHeader;
use tonic::Status;

/// The version of etcd whose API this is.
pub(super) const VERSION: &str = "3.4.23";

pub(super) fn status(refusal: Refusal) -> Status {
    Status::new(refusal.code().into(), refusal.message())
}

/// Fills in who answers; the revision of the answer stays.
pub(super) fn complete(engine: &Engine, header: &mut Option<PbResponseHeader>) {
    let revision = header.as_ref().map_or(0, |header| header.revision);
    *header = Some(engine.header(revision));
}
