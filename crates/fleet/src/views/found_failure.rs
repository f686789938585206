//! A host and a check that it fails.

use crate::bundles::{BundleFields, NewestBundles, UploadedBundle};
use crate::services::FailedService;
use planning::calendar::rfc3339;
use schema::names::{Fingerprint, HostName, StatusType, Version};
use schema::records::StatusRecord;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use std::fmt;

/// The check that a host fails.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailedCheck {
    /// A result that the host reported.
    Status(StatusType),
    /// A result that the host used to report and no longer reports.
    Stale(StatusType),
    /// The host is on the roster, but neither live nor listed.
    Liveness,
    /// A service that does not work, or a failing check of the host itself.
    Down(String),
}

impl fmt::Display for FailedCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(kind) => kind.fmt(f),
            Self::Stale(kind) => write!(f, "{kind} (stale)"),
            Self::Liveness => f.write_str("liveness"),
            Self::Down(check) => f.write_str(check),
        }
    }
}

/// A host and a check that it fails, with the result if the host reported one that can be read.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[schemars(with = "FoundFailureJson<'_>")]
pub struct FoundFailure {
    /// The host.
    pub host: HostName,
    /// The check.
    pub check: FailedCheck,
    /// The result.
    pub record: Option<StatusRecord>,
    /// The last line that the check of a service printed, if it is known.
    pub line: Option<String>,
    /// The newest bundle of its cause, if a host uploaded one.
    pub bundle: Option<UploadedBundle>,
}

impl FoundFailure {
    /// Returns what a host reported of a check that it fails, with the bundle of its cause.
    pub fn of_record(
        host: HostName,
        check: FailedCheck,
        record: Option<StatusRecord>,
        bundles: &NewestBundles,
    ) -> Self {
        let cause = record.as_ref().and_then(|record| record.cause.as_ref());
        let bundle = cause.and_then(|cause| bundles.of_cause(&cause.fingerprint)).cloned();
        Self { host, check, record, line: None, bundle }
    }

    /// Returns a check that a host fails without a result.
    pub fn without_record(host: HostName, check: FailedCheck, line: Option<String>) -> Self {
        Self { host, check, record: None, line, bundle: None }
    }
}

impl From<FailedService> for FoundFailure {
    fn from(FailedService { host, check, line }: FailedService) -> Self {
        Self::without_record(host, FailedCheck::Down(check), line)
    }
}

/// The names of [`FoundFailure`] in JSON.
#[derive(Serialize, JsonSchema)]
struct FoundFailureJson<'a> {
    host: &'a HostName,
    check: String,
    at: Option<String>,
    version: Option<&'a Version>,
    exit_code: Option<i64>,
    reason: Option<&'a str>,
    fingerprint: Option<&'a Fingerprint>,
    cause: Option<&'a str>,
    #[serde(flatten)]
    bundle: BundleFields<'a>,
}

impl Serialize for FoundFailure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { host, check, record, line, bundle } = self;
        let record = record.as_ref();
        let cause = record.and_then(|record| record.cause.as_ref());
        let row = FoundFailureJson {
            host,
            check: check.to_string(),
            at: record.and_then(|record| rfc3339(record.at)),
            version: record.and_then(|record| record.version.as_ref()),
            exit_code: record.and_then(|record| record.code),
            reason: record.map(|record| record.reason.as_str()).or(line.as_deref()).filter(|r| !r.is_empty()),
            fingerprint: cause.map(|cause| &cause.fingerprint),
            cause: cause.map(|cause| cause.line.as_str()).filter(|line| !line.is_empty()),
            bundle: BundleFields::of(bundle.as_ref()),
        };
        row.serialize(serializer)
    }
}
