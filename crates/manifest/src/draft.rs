//! A service while it is read. A field is empty until its key was read.

use crate::mistake::Position;
use crate::model::{Mode, Mount};
use crate::names::{LabelKey, MountPath, ProgramName, UnitName, VariableName};
use crate::values::{Bytes, Constraint, MilliCpus, Replicas, Subject};
use schema::time::Span;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

/// A value and where it stands, for mistakes that show only when all keys were read.
#[derive(Debug, Clone)]
pub(crate) struct Placed<T> {
    pub(crate) value: T,
    pub(crate) path: String,
    pub(crate) position: Position,
}

/// A service while it is read.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) unit: Option<Placed<UnitName>>,
    pub(crate) program: Option<Placed<ProgramName>>,
    pub(crate) environment: BTreeMap<VariableName, String>,
    pub(crate) labels: BTreeMap<LabelKey, String>,
    pub(crate) mode: Option<Mode>,
    pub(crate) replicas: Option<Placed<Replicas>>,
    pub(crate) constraints: BTreeSet<Constraint>,
    pub(crate) preferences: Vec<Subject>,
    pub(crate) max_replicas_per_node: Option<Placed<NonZeroU32>>,
    pub(crate) cpus: Option<MilliCpus>,
    pub(crate) memory: Option<Bytes>,
    pub(crate) stop_grace_period: Option<Span>,
    pub(crate) volumes: BTreeMap<MountPath, Placed<Mount>>,
    /// True if a key that chooses what runs was wrong. Then it is not reported as missing.
    pub(crate) has_wrong_runtime: bool,
}
