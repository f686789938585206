//! The JSON values of the store. Each carries a format version; readers pass over fields they do not
//! know and accept the bare text of the original tool where it wrote one.

use crate::checks::CheckStatus;
use crate::decide::{HostVerdict, Phase, Plan};
use crate::names::{Role, ServiceName, Token, Version, quoted};
use crate::requires::Wait;
use crate::time::{EpochSeconds, format_duration};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The format that this program writes.
pub const FORMAT: u32 = 1;
/// How every value begins that this program writes.
const FRONT: &str = r#"{"format":1,"#;
/// Largest report in bytes.
pub const REPORT_MAX_BYTES: usize = 16 * 1024;
/// Most of a step's output that a report carries, in bytes.
pub const LOG_TAIL_MAX_BYTES: usize = 4 * 1024;
/// Longest reason in a status, in bytes.
pub const REASON_MAX_BYTES: usize = 256;

/// A value that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// Not UTF-8 text.
    #[error("the value is not UTF-8")]
    NotText,
    /// Not the JSON that stands under such a key.
    #[error("the value {shown} is not the expected JSON: {detail}")]
    NotJson {
        /// The value, quoted and cut.
        shown: String,
        /// What the reader said.
        detail: String,
    },
    /// Written by a newer program.
    #[error("the value has format {found}, this program reads up to {FORMAT}")]
    Newer {
        /// The format found.
        found: u32,
    },
}

/// Reads a value of the store.
///
/// # Errors
/// Says what the value is instead.
pub fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ValueError> {
    #[derive(Deserialize)]
    struct Envelope {
        #[serde(default = "first_format")]
        format: u32,
    }
    let text = std::str::from_utf8(bytes).map_err(|_| ValueError::NotText)?;
    let not_json = |e: serde_json::Error| ValueError::NotJson { shown: quoted(text), detail: e.to_string() };
    // serde would read a list as a struct whose fields come in order.
    if !text.trim_start().starts_with('{') {
        return Err(ValueError::NotJson { shown: quoted(text), detail: "not an object".into() });
    }
    // What this program wrote itself need not be looked through for its format.
    if !text.starts_with(FRONT) {
        let envelope: Envelope = serde_json::from_str(text).map_err(not_json)?;
        if envelope.format > FORMAT {
            return Err(ValueError::Newer { found: envelope.format });
        }
    }
    serde_json::from_str(text).map_err(not_json)
}

/// Reads a value that begins as this program writes it, borrowing from it; `None` if it begins otherwise or cannot be
/// read so. What is wrong with it, if anything, [`read`] says.
pub(crate) fn read_own<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    let text = std::str::from_utf8(bytes).ok()?;
    text.starts_with(FRONT).then(|| serde_json::from_str(text).ok())?
}

fn first_format() -> u32 {
    FORMAT
}

/// Writes a value of the store: one line of JSON with its format version in front.
pub fn write<T: Serialize>(value: &T) -> String {
    serde_json::to_string(&Envelope { format: FORMAT, value })
        .unwrap_or_else(|e| unreachable!("values of the store have text keys and finite numbers: {e}"))
}

/// Writes a value as [`write`] does, for values that are too large to be held as text.
///
/// # Errors
/// As the writer says.
pub fn write_to<T: Serialize>(value: &T, writer: impl std::io::Write) -> std::io::Result<()> {
    Ok(serde_json::to_writer(writer, &Envelope { format: FORMAT, value })?)
}

#[derive(Serialize)]
struct Envelope<'a, T> {
    format: u32,
    #[serde(flatten)]
    value: &'a T,
}

/// Reads the text of `/current_version`: surrounding white space is stripped, because
/// `echo 43 | etcdctl put /current_version` stores the newline.
///
/// # Errors
/// Names the rule that the text breaks.
pub fn read_version(bytes: &[u8]) -> Result<Version, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "the value is not UTF-8".to_owned())?;
    Version::new(text.trim()).map_err(|e| e.to_string())
}

/// Cuts text to at most `max` bytes at a character boundary, marking the cut.
pub fn cut(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let mut end = max.saturating_sub('…'.len_utf8());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &text[..end])
}

/// `/status/<type>/<state>/<host>`: one result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusRecord {
    /// When the attempt ended.
    pub at: EpochSeconds,
    /// The version that it was about, if one is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<Version>,
    /// The exit code of the tool, if it ended with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i64>,
    /// Why, in words; at most [`REASON_MAX_BYTES`].
    #[serde(default)]
    pub reason: String,
}

impl StatusRecord {
    /// Reads a record, or the epoch seconds that the original tool wrote.
    ///
    /// # Errors
    /// As [`read`].
    pub fn read(bytes: &[u8]) -> Result<Self, ValueError> {
        if let Some(seconds) = std::str::from_utf8(bytes).ok().and_then(|t| t.trim().parse::<f64>().ok()) {
            return Ok(Self {
                at: EpochSeconds(seconds as i64),
                version: None,
                code: None,
                reason: String::new(),
            });
        }
        read(bytes)
    }
}

/// `/orchestrate/store`: which store this is. A restored or replaced store can have the same cluster id;
/// it cannot have the same lineage and epoch and a history that goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreIdentity {
    /// Random, made once in the life of a fleet.
    pub lineage: Token,
    /// Goes up by one with each `store accept`.
    pub epoch: u64,
}

/// `/orchestrate/hosts/<host>`: a host that exists, or the tombstone of one that was taken out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct RosterEntry {
    /// The role it plays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// The group it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Role>,
    /// Free labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Since when it is on the roster.
    #[serde(default)]
    pub since: EpochSeconds,
    /// When it was taken out, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decommissioned: Option<EpochSeconds>,
}

/// Who applies versions on a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Driver {
    /// The agent.
    #[default]
    Agent,
    /// An old cron script; the agent follows its files and keeps the leases.
    External,
}

/// `/orchestrate/live/<host>`: one running agent's claim of the name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveClaim {
    /// Random, made when a state directory is first used; tells two agents apart.
    pub instance: Token,
    /// `/etc/machine-id`.
    pub machine_id: String,
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot_id: String,
    /// Addresses of the host, without loopback.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// Version of the program.
    #[serde(default)]
    pub agent_version: String,
    /// Who applies versions here.
    #[serde(default)]
    pub driver: Driver,
}

impl fmt::Display for LiveClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "instance {} on machine {} at {}",
            self.instance,
            quoted(&self.machine_id),
            if self.addresses.is_empty() {
                "unknown addresses".into()
            } else {
                quoted(&self.addresses.join(" "))
            }
        )
    }
}

/// Slow-changing facts about a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct HostFacts {
    /// Operating system and its version.
    #[serde(default)]
    pub operating_system: String,
    /// Kernel release.
    #[serde(default)]
    pub kernel: String,
    /// Logical processors.
    #[serde(default)]
    pub processors: usize,
    /// Memory in MiB.
    #[serde(default)]
    pub memory_mebibytes: u64,
    /// When the certificates of the connection to the store end, by file.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub certificates: BTreeMap<String, EpochSeconds>,
}

/// So long before its end a certificate is spoken of.
pub const CERTIFICATE_WARNING: Duration = Duration::from_secs(14 * 86_400);

/// What to say of a certificate that ends soon or has ended; nothing while there is time.
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

/// What a host remembers of the store; stands in its report so that `store accept` can find it when
/// the store itself has lost it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedStore {
    /// The lineage that the host belongs to.
    pub lineage: Token,
    /// The epoch that the host has accepted.
    pub epoch: u64,
}

/// An instruction as a host saw it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedTarget {
    /// The version.
    pub version: Version,
    /// The revision of `/current_version`.
    pub revision: i64,
}

/// `/orchestrate/reports/<host>`: what a host decided and why. Written on change, with no ages or
/// counters in it. At most [`REPORT_MAX_BYTES`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// When it was written.
    pub at: EpochSeconds,
    /// Random; by it the writer knows its own write again when the answer was lost.
    pub write_id: Token,
    /// Where in its life the host is.
    pub phase: Phase,
    /// The host's own verdict.
    pub verdict: HostVerdict,
    /// The instruction that it decided on.
    #[serde(default)]
    pub target: Option<ReportedTarget>,
    /// The version that it has proven, if any.
    #[serde(default)]
    pub installed: Option<Version>,
    /// What it is going to do.
    pub plan: Plan,
    /// The store that it belongs to.
    #[serde(default)]
    pub store: Option<ReportedStore>,
    /// About the machine.
    #[serde(default)]
    pub facts: HostFacts,
    /// The services that hold it where it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<Wait>,
    /// The checks that do not pass.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<FailingCheck>,
    /// The services that are defined on it and not published.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unpublished: Vec<UnpublishedService>,
    /// The last lines of the step that failed or holds; at most [`LOG_TAIL_MAX_BYTES`], redacted.
    #[serde(default)]
    pub log: Vec<String>,
}

/// A check of a host that does not pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailingCheck {
    /// The service that it is about; none: the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceName>,
    /// Its name.
    pub check: String,
    /// Warning or critical.
    pub status: CheckStatus,
    /// The last line of its output when it began to say so; at most [`CHECK_LINE_MAX_BYTES`], redacted.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub line: String,
}

/// Most of what a check said that is reported, in bytes.
pub const CHECK_LINE_MAX_BYTES: usize = 256;
/// Most checks in a report.
pub const CHECKS_IN_REPORT: usize = 16;

/// A service that is defined on a host and not published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnpublishedService {
    /// The service.
    pub service: ServiceName,
    /// Why, and what would be right; at most [`REASON_MAX_BYTES`].
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// Most services in a report that are not published.
pub const UNPUBLISHED_IN_REPORT: usize = 16;

impl FailingCheck {
    /// The last line of an output, without control characters, within its bound.
    pub fn last_line(output: &str) -> String {
        log_tail(output.lines().rev().find(|line| !line.trim().is_empty()).into_iter())
            .first()
            .map(|line| cut(line, CHECK_LINE_MAX_BYTES))
            .unwrap_or_default()
    }

    /// It says the same: what it printed is no news.
    pub fn is_same_as(&self, other: &Self) -> bool {
        (&self.service, &self.check, self.status) == (&other.service, &other.check, other.status)
    }
}

impl Report {
    /// The report as JSON within its bound: the log goes first, then the plan's actions, then what checks said and why
    /// services are not published.
    pub fn write_bounded(&self) -> String {
        let text = write(self);
        if text.len() <= REPORT_MAX_BYTES {
            return text;
        }
        let mut smaller = self.clone();
        smaller.log.clear();
        let text = write(&smaller);
        if text.len() <= REPORT_MAX_BYTES {
            return text;
        }
        smaller.plan.actions.truncate(8);
        let text = write(&smaller);
        if text.len() <= REPORT_MAX_BYTES {
            return text;
        }
        smaller.checks.iter_mut().for_each(|check| check.line.clear());
        smaller.unpublished.iter_mut().for_each(|service| service.reason.clear());
        write(&smaller)
    }
}

/// Keeps the last lines that fit into [`LOG_TAIL_MAX_BYTES`], with control characters escaped.
pub fn log_tail<'a>(lines: impl DoubleEndedIterator<Item = &'a str>) -> Vec<String> {
    let mut kept = Vec::new();
    let mut bytes = 0;
    for line in lines.rev() {
        let escaped: String =
            line.chars().map(|c| if c.is_control() && c != '\t' { '�' } else { c }).collect();
        let line = cut(&escaped, 512);
        // Two quotes and a comma, and one more byte for each character that JSON escapes.
        bytes += line.len() + 3 + line.matches(['"', '\\', '\t']).count();
        if bytes > LOG_TAIL_MAX_BYTES {
            break;
        }
        kept.push(line);
    }
    kept.reverse();
    kept
}

/// `/orchestrate/maintenance/<host>`: what an operator took out of use on a host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Maintenance {
    /// All of its services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<OutOfUse>,
    /// Some of them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub services: BTreeMap<ServiceName, OutOfUse>,
}

/// One thing taken out of use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutOfUse {
    /// How.
    pub how: OutOfUseHow,
    /// Why, as the operator says.
    #[serde(default)]
    pub reason: String,
    /// Since when.
    pub at: EpochSeconds,
}

/// How something is out of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutOfUseHow {
    /// It counts as not working.
    Maintenance,
    /// It takes nothing new.
    Draining,
}

impl Maintenance {
    /// Nothing is out of use.
    pub fn is_empty(&self) -> bool {
        self.host.is_none() && self.services.is_empty()
    }

    /// What holds for a service. Maintenance weighs more than draining.
    pub fn of(&self, service: &ServiceName) -> Option<&OutOfUse> {
        let both = [self.services.get(service), self.host.as_ref()];
        let both = || both.into_iter().flatten();
        both().find(|o| o.how == OutOfUseHow::Maintenance).or_else(|| both().next())
    }
}

/// `/orchestrate/release_view`: what cliff guards hold back now is let through.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleaseWish {
    /// When it was asked for.
    pub at: EpochSeconds,
}

/// `/orchestrate/retry/<host>`: an operator wants the host to try again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryWish {
    /// When it was asked for.
    pub at: EpochSeconds,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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

    #[test]
    fn values_carry_their_format_and_tolerate_more_than_they_know() {
        let identity = StoreIdentity { lineage: Token::new("abc").unwrap(), epoch: 3 };
        let text = write(&identity);
        assert_eq!(text, r#"{"format":1,"lineage":"abc","epoch":3}"#);
        assert_eq!(read::<StoreIdentity>(text.as_bytes()).unwrap(), identity);
        let more = br#"{"format":1,"lineage":"abc","epoch":3,"colour":"red"}"#;
        assert_eq!(read::<StoreIdentity>(more).unwrap(), identity);
        let newer = read::<StoreIdentity>(br#"{"format":2,"lineage":"abc","epoch":3}"#).unwrap_err();
        assert_eq!(newer, ValueError::Newer { found: 2 });
        read::<RosterEntry>(b"[]").unwrap_err();
        for bad in [&b""[..], b"\xff", b"3", b"null", br#"{"format":1}"#, br#"{"lineage":3}"#] {
            read::<StoreIdentity>(bad).unwrap_err();
        }
    }

    #[test]
    fn a_status_in_the_original_form_is_read() {
        for old in ["1416300000", "1416300000.25", "1416300000\n"] {
            assert_eq!(StatusRecord::read(old.as_bytes()).unwrap().at, EpochSeconds(1_416_300_000));
        }
        StatusRecord::read(b"yesterday").unwrap_err();
    }

    #[test]
    fn a_trailing_newline_is_no_part_of_a_version() {
        assert_eq!(read_version(b" v43\n").unwrap().as_str(), "v43");
        for bad in [&b""[..], b"\n", b"a b", b"../x", b"\xff\xfe", b"a\0"] {
            read_version(bad).unwrap_err();
        }
    }

    proptest! {
        #[test]
        fn a_log_tail_fits_its_bound(lines in prop::collection::vec(".{0,700}", 0..40)) {
            let tail = log_tail(lines.iter().map(String::as_str));
            prop_assert!(serde_json::to_string(&tail).unwrap().len() <= LOG_TAIL_MAX_BYTES + 2);
            let has_control = tail.iter().any(|l| l.chars().any(|c| c.is_control() && c != '\t'));
            prop_assert!(!has_control);
        }

        #[test]
        fn cut_text_fits(text in ".{0,400}", max in 3usize..300) {
            prop_assert!(cut(&text, max).len() <= max);
        }
    }
}
