//! Where the bundle of a failure is.

use crate::names::Fingerprint;
use crate::order::InstructionOrder;
use serde::{Deserialize, Serialize};

/// Where the bundle of a failure is, as the host that uploaded it says in its report. The crate `archive` makes and reads
/// bundles.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleLink {
    /// The object: `s3://BUCKET/NAME` or `file:///PATH`, about 1 KiB at most.
    pub url: String,
    /// The SHA-256 of the object, in hexadecimal.
    pub sha256: String,
    /// Its length, in bytes.
    pub bytes: u64,
    /// The rollout in which the host failed.
    pub rollout: InstructionOrder,
    /// The cause of the failure.
    pub fingerprint: Fingerprint,
}
