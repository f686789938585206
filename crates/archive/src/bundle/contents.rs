//! What a bundle is about, what is in it, and its limits.

use schema::names::{HostName, Version};
use schema::order::InstructionOrder;
use schema::records::Cause;
use schema::time::EpochSeconds;
use serde::{Deserialize, Serialize};

/// The format that this program writes, and the newest one that it reads.
pub const FORMAT: u32 = 1;
/// Longest part of a bundle, in bytes. A longer one is cut at its end.
pub const PART_MAX_BYTES: u64 = 4 * 1024 * 1024;
/// Largest sum of the parts of a bundle, in bytes.
pub const BUNDLE_MAX_BYTES: u64 = 16 * 1024 * 1024;
/// Largest sum of what is unpacked of a bundle, in bytes.
pub const UNPACKED_MAX_BYTES: u64 = 256 * 1024 * 1024;
/// Largest number of files that are unpacked of a bundle.
pub const UNPACKED_MAX_FILES: usize = 1000;

pub(super) const ABOUT: &str = "bundle.json";
pub(super) const CONTENTS: &str = "contents.json";

/// What a bundle is about: `bundle.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// The format of the bundle.
    pub format: u32,
    /// Version of the program that wrote it.
    pub program: String,
    /// The host that failed.
    pub host: HostName,
    /// The version that it was updated to.
    pub version: Version,
    pub rollout: InstructionOrder,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// When the attempt failed, by the clock of the host.
    pub failed_at: EpochSeconds,
    pub cause: Cause,
}

/// What is in a bundle: `contents.json`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Contents {
    pub parts: Vec<Part>,
    /// What is not in it.
    pub left_out: Vec<LeftOut>,
}

/// A part of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Its path in the bundle.
    pub name: String,
    /// Its length without secrets, in bytes.
    pub bytes: u64,
    /// True if its start or its end was cut.
    pub is_cut: bool,
}

/// What is not in a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// The path that it would have.
    pub name: String,
    /// Why it is not there.
    pub why: String,
}
