//! What a manifest says, in validated types. A value of these types is right: it needs no further check.

use crate::names::{GroupName, LabelKey, MountPath, ProgramName, UnitName, VariableName, VolumeName};
use crate::values::{Bytes, Constraint, MilliCpus, Replicas, Subject};
use schema::names::ServiceName;
use schema::time::Span;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

/// A group of services.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The name of the group.
    pub name: GroupName,
    /// The services, by their names in the group.
    pub services: BTreeMap<ServiceName, Service>,
}

/// A service: how it runs and how often.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// The number of slots. `None` if each suitable host has one.
    ///
    /// It is no part of [`Spec`], because a change of the number restarts nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<Replicas>,
    #[serde(flatten)]
    pub spec: Spec,
}

/// The wanted form of a service, without the number of its slots. The store names it by its digest.
///
/// All fields are written, also those with their defaults. A field that is added later is left out while it has its
/// default: otherwise the same file would have another digest after an update of the command, and every instance would
/// be started again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// The variables that the service gets.
    pub environment: BTreeMap<VariableName, String>,
    /// Labels, which other programs may read.
    pub labels: BTreeMap<LabelKey, String>,
    /// Whether the service has numbered slots or one on each host.
    pub mode: Mode,
    /// Which hosts may run it.
    pub placement: Placement,
    /// What a host keeps free for each slot.
    pub reservations: Reservations,
    pub runtime: Runtime,
    /// How long the service may take to stop before it is killed.
    pub stop_grace_period: Span,
    /// The named volumes, by their paths. A service with one is pinned to its hosts.
    pub volumes: BTreeMap<MountPath, Mount>,
}

/// How the slots of a service are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// As many as `replicas` says.
    #[default]
    Replicated,
    /// One on each host that meets the constraints.
    Global,
}

/// What runs for a slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Runtime {
    /// A unit of systemd that root installed.
    Unit(UnitName),
    /// A program that root defined on the host.
    Program(ProgramName),
}

/// Which hosts may run a service, and in which order they come.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Placement {
    /// The constraints. All of them hold, so their order does not matter.
    pub constraints: BTreeSet<Constraint>,
    /// Most slots on one host. `None` if there is no limit.
    pub max_replicas_per_node: Option<NonZeroU32>,
    /// Over which properties the slots are spread, the most important one first.
    pub preferences: Vec<Subject>,
}

/// What a host keeps free for each slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reservations {
    pub cpus: MilliCpus,
    /// Memory in bytes.
    pub memory: Bytes,
}

/// A volume in a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    /// True if the service cannot write to it.
    pub read_only: bool,
    /// The name of the volume.
    pub volume: VolumeName,
}

impl Service {
    /// Returns the name of a service in the catalog: the names of its group and of itself.
    pub fn catalog_name(group: &GroupName, service: &ServiceName) -> String {
        format!("{group}-{service}")
    }

    /// True if the fields do not contradict each other, as in every service that was read from a file.
    pub(crate) fn is_consistent(&self) -> bool {
        let is_counted = match self.spec.mode {
            Mode::Replicated => self.replicas.is_some(),
            Mode::Global => self.replicas.is_none(),
        };
        is_counted && self.spec.is_consistent()
    }
}

impl Spec {
    /// True if a slot stays on its host, because the service has a named volume.
    pub fn is_pinned(&self) -> bool {
        !self.volumes.is_empty()
    }

    /// True if the fields do not contradict each other, as in every spec that was read from a file.
    pub(crate) fn is_consistent(&self) -> bool {
        let most = self.placement.max_replicas_per_node;
        match self.mode {
            Mode::Global => most.is_none(),
            Mode::Replicated => !self.runtime.is_once_per_host() || most == Some(NonZeroU32::MIN),
        }
    }
}

impl Runtime {
    /// True if a host can run it for one slot only: a unit that is no template has no instances.
    pub fn is_once_per_host(&self) -> bool {
        match self {
            Self::Unit(unit) => !unit.as_str().contains("@."),
            Self::Program(_) => false,
        }
    }
}
