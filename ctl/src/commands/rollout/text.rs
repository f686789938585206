//! What `rollout status` says of a rollout beside its stages: who triggered it, and the hosts that failed.

use planning::calendar::rfc3339;
use planning::rollout::{StageState, StageSummary};
use schema::names::{HostName, Version};
use schema::records::{FailedHost, RolloutRecord};

/// Number of hosts that are shown by name.
pub(super) const HOSTS_NAMED: usize = 10;

/// Returns what is rolled out, who triggered it and why, and which stage is open. `from` is the version that was
/// desired before, if that is known.
pub(super) fn heading(record: &RolloutRecord, from: Option<&Version>, stages: &[StageSummary]) -> String {
    let from = from.map(|from| format!(", from {from}")).unwrap_or_default();
    let by = record.by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
    let reason = record.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let open = stages.iter().rposition(|stage| stage.state != StageState::Closed);
    let stage = match open {
        Some(open) if stages.len() > 1 => {
            format!("; stage {} of {}: {}", open + 1, stages.len(), stages[open].name)
        }
        _ => String::new(),
    };
    let at = rfc3339(record.at).map(|at| format!(" at {at}")).unwrap_or_default();
    format!("{}{from}, triggered{by}{at}{reason}{stage}", record.version)
}

/// Returns a line for each of the first hosts that failed.
pub(super) fn failures(failed: &[(HostName, Option<FailedHost>)]) -> Vec<String> {
    let line = |(host, failed): &(HostName, Option<FailedHost>)| {
        let reason = failed.as_ref().map_or("its failure cannot be read", |failed| &failed.reason);
        format!("{host} failed: {reason} (orchestrate why {host})")
    };
    let mut lines: Vec<String> = failed.iter().take(HOSTS_NAMED).map(line).collect();
    if failed.len() > HOSTS_NAMED {
        lines.push(format!("{} more failed; `orchestrate get_failures`", failed.len() - HOSTS_NAMED));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::records::FailureKind;
    use schema::time::EpochSeconds;

    fn record() -> RolloutRecord {
        let by = Some("ann".to_owned());
        let reason = Some("kernel fix".to_owned());
        RolloutRecord { by, reason, ..RolloutRecord::new(Version::new("43").unwrap(), EpochSeconds(0)) }
    }

    #[test]
    fn the_heading_says_who_why_and_which_stage() {
        let stage = |name: &str, state| StageSummary { name: name.into(), state, ..StageSummary::default() };
        let stages = [
            stage("canary", StageState::Open),
            stage("second", StageState::Soaking),
            stage("rest", StageState::Closed),
        ];
        let from = Version::new("42").unwrap();
        let text = "43, from 42, triggered by ann at 1970-01-01T00:00:00Z: kernel fix; stage 2 of 3: second";
        assert_eq!(heading(&record(), Some(&from), &stages), text);
        let bare = RolloutRecord::new(Version::new("43").unwrap(), EpochSeconds(0));
        assert_eq!(heading(&bare, None, &stages[..1]), "43, triggered at 1970-01-01T00:00:00Z");
    }

    #[test]
    fn the_first_failed_hosts_are_named_with_their_reason() {
        let failed = |number: usize| {
            let reason = "validate step http exited with code 1".to_owned();
            let failed = FailedHost {
                at: EpochSeconds(0),
                kind: FailureKind::Attempt,
                reason,
                cause: None,
                healed: false,
                again: None,
            };
            (HostName::new(format!("web{number}")).unwrap(), Some(failed))
        };
        let one = "web0 failed: validate step http exited with code 1 (orchestrate why web0)";
        assert_eq!(failures(&[failed(0)]), [one]);
        let many: Vec<_> = (0..HOSTS_NAMED + 2).map(failed).collect();
        let lines = failures(&many);
        assert_eq!(
            (lines.len(), lines.last().unwrap().as_str()),
            (11, "2 more failed; `orchestrate get_failures`")
        );
        let unread = [(HostName::new("web1").unwrap(), None)];
        assert_eq!(failures(&unread), ["web1 failed: its failure cannot be read (orchestrate why web1)"]);
    }
}
