//! What a request about the past is about.

use crate::observed::SharedFleet;
use archive::recording::PastView;
use form_urlencoded::Serializer;
use schema::time::EpochSeconds;
use std::sync::Arc;

/// The fleet at a moment of the past.
pub(super) struct PastFleet {
    pub(super) fleet: Arc<SharedFleet>,
    pub(super) view: PastView,
    pub(super) present: EpochSeconds,
}

/// What a request about the past is about.
#[derive(Clone)]
pub(super) struct AskedPast {
    pub(super) past: Arc<PastFleet>,
    /// The address of the same view of the present.
    pub(super) present_address: Arc<str>,
}

impl AskedPast {
    /// Returns the moment as a parameter of a query.
    pub(super) fn parameter(&self) -> String {
        Serializer::new(String::new()).append_pair("at", &self.past.view.moment).finish()
    }
}
