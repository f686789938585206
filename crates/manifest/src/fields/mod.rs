//! The functions that read accepted keys of a service. The table names them.

pub(crate) mod basic;
pub(crate) mod placement;
pub(crate) mod volumes;
