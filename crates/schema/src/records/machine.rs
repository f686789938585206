//! Facts about a machine.

use crate::names::quoted;
use crate::time::{EpochSeconds, format_duration};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Facts about a machine that rarely change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct MachineInfo {
    /// Name of the operating system and its version.
    #[serde(default)]
    pub operating_system: String,
    #[serde(default)]
    pub kernel: String,
    /// Number of logical processors.
    #[serde(default)]
    pub processors: usize,
    #[serde(default)]
    pub memory_mebibytes: u64,
    /// End of validity of each certificate that is used for the connection to the store, by file.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub certificates: BTreeMap<String, EpochSeconds>,
}

/// How long before the end of its validity a certificate causes a warning.
pub const CERTIFICATE_WARNING: Duration = Duration::from_secs(14 * 86_400);

/// Returns a warning about a certificate that has expired or expires within
/// [`CERTIFICATE_WARNING`]; `None` while there is more time left.
pub fn certificate_warning(file: &str, end: EpochSeconds, now: EpochSeconds) -> Option<String> {
    let left = end.0.saturating_sub(now.0);
    let file = quoted(file);
    let days = |seconds: i64| format_duration(Duration::from_secs(seconds.unsigned_abs()));
    match left {
        i64::MIN..=0 => Some(format!("the certificate {file} ended {} ago", days(left))),
        _ if left.unsigned_abs() > CERTIFICATE_WARNING.as_secs() => None,
        _ => Some(format!("the certificate {file} ends in {}", days(left))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_spoken_of_fourteen_days_before_its_end() {
        let day = 86_400;
        let now = EpochSeconds(1_000 * day);
        for (end, expected) in [
            (1_015 * day, None),
            (1_014 * day, Some("the certificate \"/c\" ends in 14d")),
            (1_000 * day + 90, Some("the certificate \"/c\" ends in 1m30s")),
            (1_000 * day, Some("the certificate \"/c\" ended 0s ago")),
            (990 * day - 3_600, Some("the certificate \"/c\" ended 10d1h ago")),
            (i64::MAX, None),
        ] {
            assert_eq!(certificate_warning("/c", EpochSeconds(end), now).as_deref(), expected, "{end}");
        }
    }
}
