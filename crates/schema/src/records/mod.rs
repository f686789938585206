//! The JSON values of the store. Each contains a format version. Readers ignore fields that they do
//! not know, and accept the plain text of the original tool where it wrote one.

mod bundle_link;
mod cause;
mod event;
mod failed;
mod file_problem;
mod freeze;
mod limit_claim;
mod limit_size;
mod live;
mod log_lines;
mod machine;
mod maintenance;
mod progress;
mod report;
mod requests;
mod rollout;
mod rollout_options;
mod roster;
mod service;
mod stage;
mod status;
mod store;
mod trigger;
mod wait;
mod window;

pub use bundle_link::BundleLink;
pub use cause::{CAUSE_LINE_MAX_BYTES, Cause};
pub use event::{EVENT_TEXT_MAX_BYTES, Event};
pub use failed::{FailedHost, FailureKind, Halt};
pub use file_problem::{FileProblem, PROBLEMS_IN_REPORT, ProblemFile};
pub use freeze::Freeze;
pub use limit_claim::{
    HeldClaim, HostClaims, LOST_AFTER, LimitClaim, LostMark, PURPOSES_MAX, Purpose, REBOOTS_MAX,
    SCRIPT_INSTANCE, Ticket,
};
pub use limit_size::{LimitSize, NotALimitSize};
pub use live::{Driver, LiveClaim, NameClash};
pub use log_lines::LogLines;
pub use machine::{CERTIFICATE_WARNING, MachineInfo, certificate_warning};
pub use maintenance::{Maintenance, MaintenanceEntry, MaintenanceMode};
pub use progress::{Closing, Ended, HostProgress, ProgressState};
pub use report::{
    CHECK_LINE_MAX_BYTES, CHECKS_IN_REPORT, DURATIONS_IN_REPORT, FailingCheck, LONG_STEP, LoggedStep,
    LongStep, REPORT_MAX_BYTES, Report, ReportedStore, ReportedTarget, StepDuration, UNPUBLISHED_IN_REPORT,
    UnpublishedService,
};
pub use requests::{DropStaleRequest, RetryRequest};
pub use rollout::{
    CHARGE_FOR, LimitRule, OnHalt, PROGRESS_DEADLINE, RECORD_BYTES_MAX, ResolvedLimit, RolloutPolicy,
    RolloutRecord,
};
pub use rollout_options::{LimitOption, LimitOptionError, RolloutOptions};
pub use roster::RosterEntry;
pub use service::{
    Interfaces, RECORD_MAX_BYTES, RecordError, ServiceRecord, published_interfaces, read_interfaces,
    usable_addresses,
};
pub use stage::{Excuse, ResolvedStage, STAGES_MAX, Soak, StageOpening, StageRule};
pub use status::{REASON_MAX_BYTES, StatusRecord};
pub use store::{STORE_FORMAT, StoreIdentity};
pub use trigger::Trigger;
pub use wait::Wait;
pub use window::{NoTimeOfDay, NoWeekdays, TimeOfDay, WINDOWS_MAX, Weekdays, Window};
