//! The arguments in the path of a key.

use super::path::{Mismatch, Part, PathReader};
use super::status_state::StatusState;
use crate::freeze::FreezeScope;
use crate::host_config::{ConfigKind, ConfigScope};
use crate::limit::{CLAIM_NUMBERS, Limit, Place};
use crate::names::{ConfigName, EventId, HostName, Role, ServiceName, StatusType, Token, Version};
use crate::order::InstructionOrder;
use std::fmt;

/// Names that take one segment.
macro_rules! name_parts {
    ($($type:ident $placeholder:literal,)+) => { $(
        impl Part for $type {
            const PLACEHOLDERS: &'static [&'static str] = &[$placeholder];
            fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
            fn read(path: &mut PathReader<'_>) -> Result<Self, Mismatch> {
                Self::new(path.segment()).map_err(Mismatch::Name)
            }
        }
    )+ };
}

name_parts! {
    Version "<version>",
    HostName "<host>",
    StatusType "<type>",
    ServiceName "<service>",
    ConfigName "<name>",
    EventId "<ms>-<random>",
    Token "<token>",
}

impl Part for StatusState {
    const PLACEHOLDERS: &'static [&'static str] = &["<state>"];
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
    fn read(path: &mut PathReader<'_>) -> Result<Self, Mismatch> {
        let text = path.segment();
        Self::ALL.into_iter().find(|state| state.as_str() == text).ok_or(Mismatch::Path)
    }
}

impl Part for ConfigKind {
    const PLACEHOLDERS: &'static [&'static str] = &[Self::State.as_str(), Self::Version.as_str()];
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
    fn read(path: &mut PathReader<'_>) -> Result<Self, Mismatch> {
        let text = path.segment();
        [Self::State, Self::Version].into_iter().find(|kind| kind.as_str() == text).ok_or(Mismatch::Path)
    }
}

impl Part for ConfigScope {
    const PLACEHOLDERS: &'static [&'static str] = &["<scope>"];
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path())
    }
    fn read(path: &mut PathReader<'_>) -> Result<Self, Mismatch> {
        path.part_with(Self::read)
    }
}

impl Part for FreezeScope {
    const PLACEHOLDERS: &'static [&'static str] = &["<scope>"];
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path())
    }
    fn read(path: &mut PathReader<'_>) -> Result<Self, Mismatch> {
        match path.segment() {
            "fleet" => return Ok(Self::Fleet),
            "pause" => return Ok(Self::Pause),
            kind => {
                path.text("/")?;
                let name = path.segment();
                match kind {
                    "role" => Role::new(name).map(Self::Role),
                    "group" => Role::new(name).map(Self::Group),
                    "host" => HostName::new(name).map(Self::Host),
                    _ => return Err(Mismatch::Path),
                }
            }
        }
        .map_err(Mismatch::Name)
    }
}

impl Part for InstructionOrder {
    const PLACEHOLDERS: &'static [&'static str] = &["<id>"];
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
    fn read(path: &mut PathReader<'_>) -> Result<Self, Mismatch> {
        Self::read(path.segment()).ok_or(Mismatch::Path)
    }
}

impl Part for Limit {
    const PLACEHOLDERS: &'static [&'static str] = &["<by>/<value>"];
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path())
    }
    fn read(path: &mut PathReader<'_>) -> Result<Self, Mismatch> {
        let by = path.segment();
        path.text("/")?;
        Self::read(by, path.segment()).ok_or(Mismatch::Path)
    }
}

impl Part for Place {
    const PLACEHOLDERS: &'static [&'static str] = &["<place>"];
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
    fn read(path: &mut PathReader<'_>) -> Result<Self, Mismatch> {
        Self::read(path.segment()).ok_or(Mismatch::Path)
    }
}

/// The number of a stage in a path.
pub(super) struct StageNumber(u32);

impl Part for StageNumber {
    const PLACEHOLDERS: &'static [&'static str] = &["<stage>"];
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
    fn read(path: &mut PathReader<'_>) -> Result<Self, Mismatch> {
        let text = path.segment();
        match text.parse::<u32>() {
            Ok(number) if number.to_string() == text => Ok(Self(number)),
            _ => Err(Mismatch::Path),
        }
    }
}

/// The number of a claim in a path: five digits, so that claims sort by it.
pub(super) struct ClaimNumber(u32);

impl Part for ClaimNumber {
    const PLACEHOLDERS: &'static [&'static str] = &["<number>"];
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:05}", self.0)
    }
    fn read(path: &mut PathReader<'_>) -> Result<Self, Mismatch> {
        let text = path.segment();
        match text.parse::<u32>() {
            Ok(number) if number < CLAIM_NUMBERS && format!("{number:05}") == text => Ok(Self(number)),
            _ => Err(Mismatch::Path),
        }
    }
}

/// Numbers are plain in a key, and have their type only in its path.
macro_rules! numbers {
    ($($type:ident)+) => { $(
        impl From<u32> for $type {
            fn from(number: u32) -> Self {
                Self(number)
            }
        }
        impl From<$type> for u32 {
            fn from(number: $type) -> Self {
                number.0
            }
        }
    )+ };
}

numbers! { StageNumber ClaimNumber }
