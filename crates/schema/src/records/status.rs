//! `/status/<type>/<state>/<host>`: one result of a host.

use crate::codec::{ValueError, read};
use crate::names::Version;
use crate::records::Cause;
use crate::time::EpochSeconds;
use serde::{Deserialize, Serialize};

/// Longest reason in a status, in bytes.
pub const REASON_MAX_BYTES: usize = 256;

/// `/status/<type>/<state>/<host>`: one result of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusRecord {
    /// When the attempt ended.
    pub at: EpochSeconds,
    /// Version that the result is about, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<Version>,
    /// Exit code of the tool, if it ended with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i64>,
    /// Reason for the result, in words; at most [`REASON_MAX_BYTES`].
    #[serde(default)]
    pub reason: String,
    /// The cause, if a step failed and its output was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
}

impl StatusRecord {
    /// Reads a record as JSON, or as the epoch seconds that the original tool wrote.
    ///
    /// # Errors
    /// Returns the error of [`read`] if the value is neither.
    pub fn read(bytes: &[u8]) -> Result<Self, ValueError> {
        if let Some(seconds) = std::str::from_utf8(bytes).ok().and_then(|t| t.trim().parse::<f64>().ok()) {
            return Ok(Self {
                at: EpochSeconds(seconds as i64),
                version: None,
                code: None,
                reason: String::new(),
                cause: None,
            });
        }
        read(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_in_the_original_form_is_read() {
        for old in ["1416300000", "1416300000.25", "1416300000\n"] {
            assert_eq!(StatusRecord::read(old.as_bytes()).unwrap().at, EpochSeconds(1_416_300_000));
        }
        StatusRecord::read(b"yesterday").unwrap_err();
    }
}
