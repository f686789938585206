//! What a host decides from.

use crate::host::input::{Desired, Observed};
use crate::host::state::HostState;
use schema::time::Now;

/// The values from which a host decides what it does next.
#[derive(Clone, Copy)]
pub(super) struct Inputs<'a> {
    pub(super) state: &'a HostState,
    pub(super) desired: &'a Desired<'a>,
    pub(super) observed: &'a Observed<'a>,
    pub(super) now: Now,
}
