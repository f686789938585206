//! What a host reports of its machine.

use planning::calendar::as_rfc3339;
use schema::records::MachineInfo;
use schema::time::EpochSeconds;
use schemars::JsonSchema;
use serde::Serialize;
use std::fmt;

/// Facts about the machine of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MachineView {
    /// Name of the operating system and its version.
    pub operating_system: String,
    /// Kernel release.
    pub kernel: String,
    /// Number of logical processors.
    pub processor_count: usize,
    /// Memory in MiB.
    pub memory_mebibytes: u64,
    /// The certificates of the connection to the store.
    pub certificates: Vec<CertificateView>,
}

/// A certificate of the connection to the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CertificateView {
    /// Path of the file.
    pub file: String,
    /// When its validity ends (RFC 3339).
    #[serde(serialize_with = "as_rfc3339")]
    #[schemars(with = "Option<String>")]
    pub valid_until: Option<EpochSeconds>,
}

impl MachineView {
    /// Returns the facts; `None` if the host does not report them.
    pub(super) fn of(facts: &MachineInfo) -> Option<Self> {
        let certificates = facts.certificates.iter();
        let certificates = certificates
            .map(|(file, end)| CertificateView { file: file.clone(), valid_until: Some(*end) })
            .collect();
        if *facts == MachineInfo::default() {
            return None;
        }
        Some(Self {
            operating_system: facts.operating_system.clone(),
            kernel: facts.kernel.clone(),
            processor_count: facts.processors,
            memory_mebibytes: facts.memory_mebibytes,
            certificates,
        })
    }
}

impl fmt::Display for MachineView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operating_system, kernel, processor_count, memory_mebibytes, .. } = self;
        write!(
            f,
            "{operating_system}, kernel {kernel}, {processor_count} processors, {memory_mebibytes} MiB of memory"
        )
    }
}
