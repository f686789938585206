//! Manifests: Compose files that say which services of a group run, how often and where.
//!
//! [`read()`] merges the files of an [`Input`] and returns a [`Manifest`] of validated types, or all mistakes with their
//! lines. A manifest has a canonical form and a digest ([`Digest`]), and [`diff()`] compares two.
//!
//! Nothing in a file is ignored silently: a table of all keys of the Compose Specification says for each whether it is
//! acted on or refused ([`table_as_markdown`]). Names that begin with `x-` are ignored, as the specification says.

mod assemble;
mod canonical;
mod diff;
mod document;
mod documents;
mod draft;
mod fields;
mod form;
mod interpolation;
pub mod limits;
mod merge;
mod mistake;
mod model;
mod names;
mod read;
mod reader;
mod source;
mod table;
#[cfg(test)]
mod tests;
mod values;
mod variables;
mod yaml;

pub use canonical::{CanonicalError, Digest};
pub use diff::{Diff, FieldChange, ServiceChange, diff};
pub use document::table_as_markdown;
pub use mistake::Mistake;
pub use model::{Manifest, Mode, Mount, Placement, Reservations, Runtime, Service, Spec};
pub use names::{
    GroupName, LabelKey, MountPath, NameError, ProfileName, ProgramName, UnitName, VariableName, VolumeName,
};
pub use read::{Reading, missing_files, read};
pub use source::{Input, Source};
pub use values::{Bytes, Constraint, MilliCpus, Operator, REPLICAS_MAX, Replicas, Subject, ValueError};
