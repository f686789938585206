//! Every key of the store. No other place in the code spells the path of a key.
//!
//! `/current_version`, `/running_version`, `/status` and `/available_services` are the names of the
//! original tool, with their leading slash, so that a reader who only knows those sees correct
//! lists. A session may put a namespace in front of every key; the keys here do not contain it.
//!
//! This file is long because no other file may spell a key.

use crate::freeze::FreezeScope;
use crate::host_config::{ConfigKind, ConfigScope};
use crate::limit::{CLAIM_NUMBERS, Limit, Place};
use crate::names::{ConfigName, EventId, HostName, NameError, Role, ServiceName, StatusType, Token, Version};
use crate::order::InstructionOrder;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The three states of a status type. A host is in at most one of them at every revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StatusState {
    /// The last attempt succeeded.
    Success,
    /// The last attempt failed.
    Failed,
    /// The last attempt ended with "not yet".
    Pending,
}

impl StatusState {
    /// All states, in the order in which they are listed.
    pub const ALL: [Self; 3] = [Self::Success, Self::Failed, Self::Pending];

    /// Returns the text that represents the state in a key.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failed => "failed",
            Self::Pending => "pending",
        }
    }
}

/// One key of the store.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// The desired version as text; written by an operator.
    CurrentVersion,
    /// The listing of a host under a version; the value is epoch seconds as text. Attached to the
    /// live lease.
    RunningVersion(Version, HostName),
    /// The last result of a host for one status type.
    Status(StatusType, StatusState, HostName),
    /// The identity of the store.
    Store,
    /// The roster entry of a host, or its tombstone.
    Host(HostName),
    /// The claim of a host name by one running agent. Attached to the live lease.
    Live(HostName),
    /// The version that a host announces; written with every change of the listing.
    Announced(HostName),
    /// The report of a host: what it decided, and why. Its size is bounded.
    Report(HostName),
    /// An operator's request that a host try again.
    Retry(HostName),
    /// A mark that a host reports this status type by one-shot verbs. The lease of the successful
    /// status ends when the reports stop; this key stays, so that the missing reports are noticed.
    Reporting(StatusType, HostName),
    /// The record of an instance: the service is addressable on the host. Attached to the work
    /// lease.
    Service(ServiceName, HostName),
    /// The health of an instance. Attached to the live lease.
    Health(ServiceName, HostName),
    /// An operator's marks on the instances of a host: maintenance or draining.
    Maintenance(HostName),
    /// An operator's request that agents end the retained state of the catalog.
    DropStale,
    /// A value that operators keep for the templates of hosts.
    Config(ConfigName),
    /// A value that the original tool keeps for hosts.
    HostConfig(ConfigKind, ConfigScope, ConfigName),
    /// Whether the rolling upgrade of the original tool lets hosts run their scripts.
    EnablePuppet(ConfigScope),
    /// What an operator did. Bounded in number and age.
    Event(EventId),
    /// What a command in a step of a host did. Bounded in number and age.
    HostEvent(HostName, EventId),
    /// A freeze. Each has a token of its own, so that nobody overwrites the freeze of somebody else.
    Freeze(FreezeScope, Token),
    /// How operators want versions to be rolled out.
    RolloutPolicy,
    /// Who asked for the desired version, and why. It is written together with it.
    Trigger,
    /// What holds for the rollout of one instruction. It is written once.
    RolloutRecord(InstructionOrder),
    /// A mark that a host is writing the record of a rollout. Attached to its live lease.
    Resolving(InstructionOrder),
    /// A host failed in a rollout. Decommissioning the host does not undo that.
    Failed(InstructionOrder, HostName),
    /// Too many hosts failed in a rollout: no host starts until an operator resumes it.
    Halt(InstructionOrder),
    /// A mark that a host looks whether a rollout has ended. Attached to its live lease.
    Closing(InstructionOrder),
    /// A rollout has ended: every host has its version, or will not get it without help.
    Ended(InstructionOrder),
    /// A stage of a rollout is open: its hosts may start. The first one, 0, is always open.
    StageOpened(InstructionOrder, u32),
    /// All hosts up to a stage are through, and are observed before the next stage opens.
    Soak(InstructionOrder, u32),
    /// How long that lasts. Attached to a lease of this time.
    SoakTimer(InstructionOrder, u32),
    /// The rollout does not wait for a host: an operator excused it.
    Excused(InstructionOrder, HostName),
    /// How far a host got in a rollout. Decommissioning the host does not undo that.
    Progress(InstructionOrder, HostName),
    /// A claim of a limit: one host may be unavailable. It is durable: it must outlive the agent.
    Claim(Limit, u32),
    /// The claims of a host, and its ticket.
    Claimed(HostName),
    /// A ticket: a host waits for its turn in a limit. Attached to the live lease.
    Ticket(InstructionOrder, Limit, Place, HostName),
    /// A mark that a host holds claims and that its agent does not run.
    LostMark(HostName),
    /// When this key is gone, a marked host is lost. Attached to a lease of that length.
    LostTimer(HostName),
    /// Another machine runs an agent with the name of this host. Attached to a lease of that agent.
    NameClash(HostName),
}

/// A key that is unknown or contains an invalid name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The path is unknown to this program.
    #[error("unknown key {0}")]
    Unknown(String),
    /// The path is known, but a name in it is invalid.
    #[error("key {key}")]
    Name {
        /// The key, quoted.
        key: String,
        /// The rule that the name breaks.
        #[source]
        source: NameError,
    },
}

const OWN: &str = "/orchestrate/";
const CURRENT_VERSION: &str = "/current_version";
const RUNNING_VERSION: &str = "/running_version/";
const STATUS: &str = "/status/";
const STORE: &str = "/orchestrate/store";
const HOSTS: &str = "/orchestrate/hosts/";
const LIVE: &str = "/orchestrate/live/";
const ANNOUNCED: &str = "/orchestrate/announced/";
const REPORTS: &str = "/orchestrate/reports/";
const RETRY: &str = "/orchestrate/retry/";
const REPORTING: &str = "/orchestrate/reporting/";
const SERVICES: &str = "/available_services/";
const HEALTH: &str = "/orchestrate/health/";
const MAINTENANCE: &str = "/orchestrate/maintenance/";
const DROP_STALE: &str = "/orchestrate/release_view";
const CONFIG: &str = "/orchestrate/config/";
const CONFIG_STATE: &str = "/config_state/";
const CONFIG_VERSION: &str = "/config_version/";
const ENABLE_PUPPET: &str = "/config_state/enable_puppet/";
const EVENTS: &str = "/orchestrate/events/";
/// What precedes the name of a host, within the events.
const OF_HOST: &str = "host/";
const FREEZES: &str = "/orchestrate/freezes/";
const ROLLOUT_POLICY: &str = "/orchestrate/rollout_policy";
const TRIGGER: &str = "/orchestrate/trigger";
const ROLLOUTS: &str = "/orchestrate/rollouts/";
const PROGRESS: &str = "/orchestrate/progress/";
/// What precedes the name of a host in the key of its failure, within a rollout.
const RECORD: &str = "record";
const FAILED: &str = "failed/";
const EXCUSED: &str = "excused/";
/// What precedes the number of a stage, within a rollout.
const OPENED: &str = "opened/";
const SOAK: &str = "soak/";
const SOAKING: &str = "soaking/";
const CLAIMS: &str = "/orchestrate/claims/";
const CLAIMED: &str = "/orchestrate/claimed/";
const QUEUE: &str = "/orchestrate/queue/";
const LOST: &str = "/orchestrate/lost/";
const LOST_MARK: &str = "/orchestrate/lost/mark/";
const LOST_TIMER: &str = "/orchestrate/lost/timer/";
const CLASHES: &str = "/orchestrate/clashes/";

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CurrentVersion => f.write_str(CURRENT_VERSION),
            Self::RunningVersion(version, host) => write!(f, "{RUNNING_VERSION}{version}/{host}"),
            Self::Status(kind, state, host) => write!(f, "{STATUS}{kind}/{}/{host}", state.as_str()),
            Self::Store => f.write_str(STORE),
            Self::Host(host) => write!(f, "{HOSTS}{host}"),
            Self::Live(host) => write!(f, "{LIVE}{host}"),
            Self::Announced(host) => write!(f, "{ANNOUNCED}{host}"),
            Self::Report(host) => write!(f, "{REPORTS}{host}"),
            Self::Retry(host) => write!(f, "{RETRY}{host}"),
            Self::Reporting(kind, host) => write!(f, "{REPORTING}{kind}/{host}"),
            Self::Service(service, host) => write!(f, "{SERVICES}{service}/{host}"),
            Self::Health(service, host) => write!(f, "{HEALTH}{service}/{host}"),
            Self::Maintenance(host) => write!(f, "{MAINTENANCE}{host}"),
            Self::DropStale => f.write_str(DROP_STALE),
            Self::Config(value) => write!(f, "{CONFIG}{value}"),
            Self::HostConfig(kind, scope, name) => {
                write!(f, "{}{name}", Prefix::HostConfig(*kind, scope.clone()))
            }
            Self::EnablePuppet(scope) => write!(f, "{ENABLE_PUPPET}{}", scope.path()),
            Self::Event(id) => write!(f, "{EVENTS}{id}"),
            Self::HostEvent(host, id) => write!(f, "{}{id}", Prefix::EventsOf(host.clone())),
            Self::Freeze(scope, token) => write!(f, "{}{token}", Prefix::FreezesOf(scope.clone())),
            Self::RolloutPolicy => f.write_str(ROLLOUT_POLICY),
            Self::Trigger => f.write_str(TRIGGER),
            Self::RolloutRecord(order) => Prefix::RecordOf(*order).fmt(f),
            Self::Resolving(order) => write!(f, "{}resolving", Prefix::Rollout(*order)),
            Self::Failed(order, host) => write!(f, "{}{host}", Prefix::FailedOf(*order)),
            Self::Halt(order) => write!(f, "{}", Prefix::HaltOf(*order)),
            Self::Closing(order) => write!(f, "{}closing", Prefix::Rollout(*order)),
            Self::Ended(order) => write!(f, "{}ended", Prefix::Rollout(*order)),
            Self::StageOpened(order, stage) => write!(f, "{}{stage}", Prefix::OpenedOf(*order)),
            Self::Soak(order, stage) => write!(f, "{}{SOAK}{stage}", Prefix::Rollout(*order)),
            Self::SoakTimer(order, stage) => write!(f, "{}{SOAKING}{stage}", Prefix::Rollout(*order)),
            Self::Excused(order, host) => write!(f, "{}{EXCUSED}{host}", Prefix::Rollout(*order)),
            Self::Progress(order, host) => write!(f, "{}{host}", Prefix::ProgressOf(*order)),
            Self::Claim(limit, number) => write!(f, "{}{number:05}", Prefix::ClaimsOf(limit.clone())),
            Self::Claimed(host) => write!(f, "{CLAIMED}{host}"),
            Self::Ticket(order, limit, place, host) => {
                write!(f, "{}{host}", Prefix::TicketAt(*order, limit.clone(), *place))
            }
            Self::LostMark(host) => write!(f, "{LOST_MARK}{host}"),
            Self::LostTimer(host) => write!(f, "{LOST_TIMER}{host}"),
            Self::NameClash(host) => write!(f, "{CLASHES}{host}"),
        }
    }
}

/// A prefix, and the function that makes a key from the host name after the prefix.
type PerHost = (&'static str, fn(HostName) -> Key);
/// A prefix, and the function that makes a key from the service and the host name after the prefix.
type PerService = (&'static str, fn(ServiceName, HostName) -> Key);

impl Key {
    /// The keys that exist at most once. All other keys are in the ranges of [`Prefix::WHOLE`].
    pub const SINGLE: [Self; 5] =
        [Self::CurrentVersion, Self::Store, Self::DropStale, Self::RolloutPolicy, Self::Trigger];

    /// Returns the host to which the key belongs; `None` for a key of the whole fleet. All keys of
    /// a host are deleted when it is decommissioned.
    pub fn host(&self) -> Option<&HostName> {
        match self {
            Self::RunningVersion(_, host)
            | Self::Status(_, _, host)
            | Self::Host(host)
            | Self::Live(host)
            | Self::Announced(host)
            | Self::Report(host)
            | Self::Retry(host)
            | Self::Reporting(_, host)
            | Self::Service(_, host)
            | Self::Health(_, host)
            | Self::Maintenance(host)
            | Self::Claimed(host)
            | Self::Ticket(.., host)
            | Self::LostMark(host)
            | Self::LostTimer(host)
            | Self::NameClash(host) => Some(host),
            Self::CurrentVersion
            | Self::Store
            | Self::DropStale
            | Self::Config(_)
            | Self::Event(_)
            // They tell what happened, also after the host is gone.
            | Self::HostEvent(..)
            | Self::RolloutPolicy
            | Self::Trigger
            | Self::RolloutRecord(_)
            | Self::Resolving(_)
            | Self::Halt(_)
            | Self::Closing(_)
            | Self::Ended(_)
            | Self::StageOpened(..)
            | Self::Soak(..)
            | Self::SoakTimer(..)
            // They go on counting in their rollout.
            | Self::Failed(..)
            | Self::Progress(..)
            | Self::Excused(..)
            // Its value names the host, and so does the key `claimed` of the host.
            | Self::Claim(..)
            // An operator wrote it, and may mean a host that comes back.
            | Self::HostConfig(..)
            | Self::EnablePuppet(_)
            | Self::Freeze(..) => None,
        }
    }

    /// Returns the keys of all states of a host for one status type.
    pub fn statuses(kind: &StatusType, host: &HostName) -> [Self; 3] {
        StatusState::ALL.map(|state| Self::Status(kind.clone(), state, host.clone()))
    }

    /// Returns the keys of a host in which nothing but the host's name varies. The others are found
    /// in the ranges of [`Prefix::BEFORE_HOST`].
    pub fn of_host(host: &HostName) -> [Self; 10] {
        [
            Self::Host,
            Self::Live,
            Self::Announced,
            Self::Report,
            Self::Retry,
            Self::Maintenance,
            Self::Claimed,
            Self::LostMark,
            Self::LostTimer,
            Self::NameClash,
        ]
        .map(|make| make(host.clone()))
    }

    /// Parses a key of the store.
    ///
    /// # Errors
    /// Returns an error if the path is unknown or a name in it is invalid. Readers ignore such keys
    /// and count them; they never become part of an answer.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let unknown = || KeyError::Unknown(crate::names::quoted(text));
        let name = |source| KeyError::Name { key: crate::names::quoted(text), source };
        let host = |rest: &str| HostName::new(rest).map_err(name);
        match text {
            CURRENT_VERSION => return Ok(Self::CurrentVersion),
            STORE => return Ok(Self::Store),
            DROP_STALE => return Ok(Self::DropStale),
            ROLLOUT_POLICY => return Ok(Self::RolloutPolicy),
            TRIGGER => return Ok(Self::Trigger),
            _ => {}
        }
        if let Some(rest) = text.strip_prefix(RUNNING_VERSION) {
            let (version, rest) = rest.split_once('/').ok_or_else(unknown)?;
            return Ok(Self::RunningVersion(Version::new(version).map_err(name)?, host(rest)?));
        }
        if let Some(rest) = text.strip_prefix(STATUS) {
            let (kind, rest) = rest.split_once('/').ok_or_else(unknown)?;
            let (state, rest) = rest.split_once('/').ok_or_else(unknown)?;
            let state = StatusState::ALL.into_iter().find(|s| s.as_str() == state).ok_or_else(unknown)?;
            return Ok(Self::Status(StatusType::new(kind).map_err(name)?, state, host(rest)?));
        }
        if let Some(rest) = text.strip_prefix(REPORTING) {
            let (kind, rest) = rest.split_once('/').ok_or_else(unknown)?;
            return Ok(Self::Reporting(StatusType::new(kind).map_err(name)?, host(rest)?));
        }
        if let Some(rest) = text.strip_prefix(CONFIG) {
            return Ok(Self::Config(ConfigName::new(rest).map_err(name)?));
        }
        if let Some(rest) = text.strip_prefix(ENABLE_PUPPET) {
            return read_enable_puppet(rest).ok_or_else(unknown);
        }
        for (prefix, kind) in [(CONFIG_STATE, ConfigKind::State), (CONFIG_VERSION, ConfigKind::Version)] {
            if let Some(rest) = text.strip_prefix(prefix) {
                return read_host_config(kind, rest).ok_or_else(unknown);
            }
        }
        if let Some(rest) = text.strip_prefix(EVENTS) {
            let event = |id: &str| EventId::new(id).map_err(name);
            let Some(rest) = rest.strip_prefix(OF_HOST) else { return Ok(Self::Event(event(rest)?)) };
            let (of, id) = rest.split_once('/').ok_or_else(unknown)?;
            return Ok(Self::HostEvent(host(of)?, event(id)?));
        }
        if let Some((scope, token)) = read_freeze(text) {
            return Ok(Self::Freeze(scope, token.ok_or_else(unknown)?));
        }
        if let Some(rest) = text.strip_prefix(ROLLOUTS) {
            let (order, rest) = rest.split_once('/').ok_or_else(unknown)?;
            let order = InstructionOrder::read(order).ok_or_else(unknown)?;
            return match rest {
                RECORD => Ok(Self::RolloutRecord(order)),
                "resolving" => Ok(Self::Resolving(order)),
                "halt" => Ok(Self::Halt(order)),
                "closing" => Ok(Self::Closing(order)),
                "ended" => Ok(Self::Ended(order)),
                _ => {
                    let (kind, rest) = rest.split_at(rest.find('/').map_or(0, |slash| slash + 1));
                    let stage = || read_stage(rest).ok_or_else(unknown);
                    match kind {
                        FAILED => Ok(Self::Failed(order, host(rest)?)),
                        EXCUSED => Ok(Self::Excused(order, host(rest)?)),
                        OPENED => Ok(Self::StageOpened(order, stage()?)),
                        SOAK => Ok(Self::Soak(order, stage()?)),
                        SOAKING => Ok(Self::SoakTimer(order, stage()?)),
                        _ => Err(unknown()),
                    }
                }
            };
        }
        if let Some(rest) = text.strip_prefix(PROGRESS) {
            let (order, rest) = rest.split_once('/').ok_or_else(unknown)?;
            return Ok(Self::Progress(InstructionOrder::read(order).ok_or_else(unknown)?, host(rest)?));
        }
        if let Some(rest) = text.strip_prefix(CLAIMS) {
            return read_claim(rest).ok_or_else(unknown);
        }
        if let Some(rest) = text.strip_prefix(QUEUE) {
            return read_ticket(rest).ok_or_else(unknown);
        }
        let per_service: [PerService; 2] = [(SERVICES, Self::Service), (HEALTH, Self::Health)];
        for (prefix, make) in per_service {
            if let Some(rest) = text.strip_prefix(prefix) {
                let (service, rest) = rest.split_once('/').ok_or_else(unknown)?;
                return Ok(make(ServiceName::new(service).map_err(name)?, host(rest)?));
            }
        }
        let per_host: [PerHost; 10] = [
            (HOSTS, Self::Host),
            (LIVE, Self::Live),
            (ANNOUNCED, Self::Announced),
            (REPORTS, Self::Report),
            (RETRY, Self::Retry),
            (MAINTENANCE, Self::Maintenance),
            (CLAIMED, Self::Claimed),
            (LOST_MARK, Self::LostMark),
            (LOST_TIMER, Self::LostTimer),
            (CLASHES, Self::NameClash),
        ];
        for (prefix, make) in per_host {
            if let Some(rest) = text.strip_prefix(prefix) {
                return Ok(make(host(rest)?));
            }
        }
        Err(unknown())
    }
}

/// Returns the scope and the token in the key of a freeze; `None` for other keys. The token is `None` if
/// it is not valid: such a key is in the range of its scope, and holds starts like any other.
pub fn read_freeze(text: &str) -> Option<(FreezeScope, Option<Token>)> {
    let (kind, rest) = text.strip_prefix(FREEZES)?.split_once('/')?;
    let (scope, token) = match kind {
        "fleet" => (FreezeScope::Fleet, rest),
        "pause" => (FreezeScope::Pause, rest),
        _ => {
            let (name, token) = rest.split_once('/')?;
            let scope = match kind {
                "role" => FreezeScope::Role(Role::new(name).ok()?),
                "group" => FreezeScope::Group(Role::new(name).ok()?),
                "host" => FreezeScope::Host(HostName::new(name).ok()?),
                _ => return None,
            };
            (scope, token)
        }
    };
    Some((scope, Token::new(token).ok()))
}

/// Reads the part of the key of a host's value after the prefix.
fn read_host_config(kind: ConfigKind, rest: &str) -> Option<Key> {
    let (scope, rest) = ConfigScope::read(rest)?;
    let name = ConfigName::new(rest.strip_prefix('/')?).ok()?;
    Some(Key::HostConfig(kind, scope, name))
}

/// Reads the part of a key of the rolling upgrade after the prefix.
fn read_enable_puppet(rest: &str) -> Option<Key> {
    let (scope, rest) = ConfigScope::read(rest)?;
    rest.is_empty().then_some(Key::EnablePuppet(scope))
}

/// Reads the part of a claim's key after the prefix.
fn read_claim(rest: &str) -> Option<Key> {
    let mut parts = rest.split('/');
    let limit = Limit::read(parts.next()?, parts.next()?)?;
    let text = parts.next().filter(|text| text.len() == 5)?;
    let number = text.parse().ok().filter(|number| *number < CLAIM_NUMBERS)?;
    (parts.next().is_none() && format!("{number:05}") == text).then_some(Key::Claim(limit, number))
}

/// Reads the number of a stage.
fn read_stage(text: &str) -> Option<u32> {
    let number: u32 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

/// Reads the part of a ticket's key after the prefix.
fn read_ticket(rest: &str) -> Option<Key> {
    let mut parts = rest.split('/');
    let order = InstructionOrder::read(parts.next()?)?;
    let limit = (parts.next()? == "limit").then(|| Limit::read(parts.next()?, parts.next()?))??;
    let (place, host) = (Place::read(parts.next()?)?, HostName::new(parts.next()?).ok()?);
    parts.next().is_none().then_some(Key::Ticket(order, limit, place, host))
}

/// Returns the service and the host in the key of a record, both unchecked; `None` for other keys.
pub fn service_key(key: &str) -> Option<(&str, &str)> {
    key.strip_prefix(SERVICES)?.split_once('/')
}

/// A range of keys that is read or watched together. Each prefix ends with a slash, so that a host
/// or version never matches a longer one that begins with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prefix {
    /// Everything that the original tool did not know.
    Own,
    /// The listings under all versions.
    RunningVersions,
    /// The listings under one version.
    RunningVersion(Version),
    /// All statuses of all types.
    Statuses,
    /// The hosts in one state of one status type.
    Status(StatusType, StatusState),
    /// The roster.
    Hosts,
    /// The claims of all host names, which exist while the agents run.
    Lives,
    /// The versions that hosts announce.
    Announced,
    /// The reports of all hosts.
    Reports,
    /// The requests that hosts try again.
    Retries,
    /// The hosts that report any status type by one-shot verbs.
    ReportingAll,
    /// The hosts that report one status type by one-shot verbs.
    Reporting(StatusType),
    /// The records of all services.
    Services,
    /// The records of one service.
    Service(ServiceName),
    /// The health of all services.
    HealthAll,
    /// The health of one service.
    Health(ServiceName),
    /// The operators' marks on instances: maintenance or draining.
    Maintenances,
    /// The values that operators keep for the templates of hosts.
    Config,
    /// What the original tool keeps for hosts about what they may do.
    ConfigState,
    /// What the original tool keeps for hosts about versions of programs.
    ConfigVersion,
    /// The values of one kind and scope.
    HostConfig(ConfigKind, ConfigScope),
    /// The keys of the rolling upgrade.
    EnablePuppet,
    /// What operators did, and what commands in steps of hosts did.
    Events,
    /// What commands in steps of one host did.
    EventsOf(HostName),
    /// All freezes.
    Freezes,
    /// The freezes of one scope.
    FreezesOf(FreezeScope),
    /// The keys of all rollouts.
    Rollouts,
    /// The keys of one rollout.
    Rollout(InstructionOrder),
    /// The record of one rollout.
    RecordOf(InstructionOrder),
    /// The mark that one rollout is halted.
    HaltOf(InstructionOrder),
    /// The stages of one rollout that are open.
    OpenedOf(InstructionOrder),
    /// The hosts that failed in one rollout.
    FailedOf(InstructionOrder),
    /// How far hosts got in all rollouts.
    Progress,
    /// How far hosts got in one rollout.
    ProgressOf(InstructionOrder),
    /// The claims of all limits.
    Claims,
    /// The claims of one limit.
    ClaimsOf(Limit),
    /// The claims of all hosts, by host.
    Claimed,
    /// The tickets of all hosts that wait for their turn.
    Queues,
    /// The tickets of one rollout.
    QueuesOf(InstructionOrder),
    /// The tickets of one limit in one rollout.
    Queue(InstructionOrder, Limit),
    /// The ticket with one place in a queue.
    TicketAt(InstructionOrder, Limit, Place),
    /// The marks and timers of hosts that hold claims and whose agents do not run.
    Lost,
    /// The machines that have the name of a host that lives.
    NameClashes,
}

impl Prefix {
    /// The ranges that together hold every key but [`Key::SINGLE`].
    pub const WHOLE: [Self; 23] = [
        Self::RunningVersions,
        Self::Statuses,
        Self::Services,
        Self::HealthAll,
        Self::Hosts,
        Self::Lives,
        Self::Announced,
        Self::Reports,
        Self::Retries,
        Self::ReportingAll,
        Self::Maintenances,
        Self::Config,
        Self::ConfigState,
        Self::ConfigVersion,
        Self::Events,
        Self::Freezes,
        Self::Rollouts,
        Self::Progress,
        Self::Claims,
        Self::Claimed,
        Self::Queues,
        Self::Lost,
        Self::NameClashes,
    ];

    /// The ranges whose keys end in a host's name, after a version, type or service.
    pub const BEFORE_HOST: [Self; 6] = [
        Self::RunningVersions,
        Self::Statuses,
        Self::ReportingAll,
        Self::Services,
        Self::HealthAll,
        Self::Queues,
    ];
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own => f.write_str(OWN),
            Self::RunningVersions => f.write_str(RUNNING_VERSION),
            Self::RunningVersion(version) => write!(f, "{RUNNING_VERSION}{version}/"),
            Self::Statuses => f.write_str(STATUS),
            Self::Status(kind, state) => write!(f, "{STATUS}{kind}/{}/", state.as_str()),
            Self::Hosts => f.write_str(HOSTS),
            Self::Lives => f.write_str(LIVE),
            Self::Announced => f.write_str(ANNOUNCED),
            Self::Reports => f.write_str(REPORTS),
            Self::Retries => f.write_str(RETRY),
            Self::ReportingAll => f.write_str(REPORTING),
            Self::Reporting(kind) => write!(f, "{REPORTING}{kind}/"),
            Self::Services => f.write_str(SERVICES),
            Self::Service(service) => write!(f, "{SERVICES}{service}/"),
            Self::HealthAll => f.write_str(HEALTH),
            Self::Health(service) => write!(f, "{HEALTH}{service}/"),
            Self::Maintenances => f.write_str(MAINTENANCE),
            Self::Config => f.write_str(CONFIG),
            Self::ConfigState => f.write_str(CONFIG_STATE),
            Self::ConfigVersion => f.write_str(CONFIG_VERSION),
            Self::HostConfig(ConfigKind::State, scope) => write!(f, "{CONFIG_STATE}{}/", scope.path()),
            Self::HostConfig(ConfigKind::Version, scope) => write!(f, "{CONFIG_VERSION}{}/", scope.path()),
            Self::EnablePuppet => f.write_str(ENABLE_PUPPET),
            Self::Events => f.write_str(EVENTS),
            Self::EventsOf(host) => write!(f, "{EVENTS}{OF_HOST}{host}/"),
            Self::Freezes => f.write_str(FREEZES),
            Self::FreezesOf(scope) => write!(f, "{FREEZES}{}/", scope.path()),
            Self::Rollouts => f.write_str(ROLLOUTS),
            Self::Rollout(order) => write!(f, "{ROLLOUTS}{order}/"),
            Self::RecordOf(order) => write!(f, "{ROLLOUTS}{order}/{RECORD}"),
            Self::HaltOf(order) => write!(f, "{ROLLOUTS}{order}/halt"),
            Self::OpenedOf(order) => write!(f, "{ROLLOUTS}{order}/{OPENED}"),
            Self::FailedOf(order) => write!(f, "{ROLLOUTS}{order}/{FAILED}"),
            Self::Progress => f.write_str(PROGRESS),
            Self::ProgressOf(order) => write!(f, "{PROGRESS}{order}/"),
            Self::Claims => f.write_str(CLAIMS),
            Self::ClaimsOf(limit) => write!(f, "{CLAIMS}{}/", limit.path()),
            Self::Claimed => f.write_str(CLAIMED),
            Self::Queues => f.write_str(QUEUE),
            Self::QueuesOf(order) => write!(f, "{QUEUE}{order}/"),
            Self::Queue(order, limit) => write!(f, "{QUEUE}{order}/limit/{}/", limit.path()),
            Self::TicketAt(order, limit, place) => {
                write!(f, "{}{place}/", Self::Queue(*order, limit.clone()))
            }
            Self::Lost => f.write_str(LOST),
            Self::NameClashes => f.write_str(CLASHES),
        }
    }
}

/// A kind of key, as `docs/keys.md` describes it. A test compares the table there with [`documented`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DocumentedKey {
    /// Path of the key, with placeholders.
    pub path: String,
    /// Form of the value: the first words of its description.
    pub value: &'static str,
    /// How long the key exists.
    pub lifetime: &'static str,
}

/// Returns every kind of key.
pub fn documented() -> Vec<DocumentedKey> {
    let host = "<host>";
    let key = |path: String, value, lifetime| DocumentedKey { path, value, lifetime };
    vec![
        key(CURRENT_VERSION.into(), "text", "durable"),
        key(format!("{RUNNING_VERSION}<version>/{host}"), "epoch seconds", "live lease"),
        key(format!("{STATUS}<type>/<state>/{host}"), "JSON", "durable"),
        key(STORE.into(), "JSON", "durable"),
        key(format!("{HOSTS}{host}"), "JSON", "durable"),
        key(format!("{LIVE}{host}"), "JSON", "live lease"),
        key(format!("{ANNOUNCED}{host}"), "text", "same lease as the listing"),
        key(format!("{REPORTS}{host}"), "JSON", "durable"),
        key(format!("{RETRY}{host}"), "JSON", "durable"),
        key(format!("{REPORTING}<type>/{host}"), "epoch seconds", "durable"),
        key(format!("{SERVICES}<service>/{host}"), "JSON", "work lease"),
        key(format!("{HEALTH}<service>/{host}"), "text", "live lease"),
        key(format!("{MAINTENANCE}{host}"), "JSON", "durable"),
        key(DROP_STALE.into(), "JSON", "durable"),
        key(format!("{CONFIG}<name>"), "text", "durable"),
        key(format!("{CONFIG_STATE}<scope>/<name>"), "text", "durable"),
        key(format!("{ENABLE_PUPPET}<scope>"), "text", "durable"),
        key(format!("{CONFIG_VERSION}<scope>/<name>"), "text", "durable"),
        key(format!("{EVENTS}<ms>-<random>"), "JSON", "the last 10,000"),
        key(format!("{EVENTS}{OF_HOST}{host}/<ms>-<random>"), "JSON", "the last 100"),
        key(format!("{FREEZES}<scope>/<token>"), "JSON", "durable, or a lease of its length"),
        key(ROLLOUT_POLICY.into(), "JSON", "durable"),
        key(TRIGGER.into(), "JSON", "durable"),
        key(format!("{ROLLOUTS}<id>/record"), "JSON", "the last 100 rollouts"),
        key(format!("{ROLLOUTS}<id>/resolving"), "text", "live lease"),
        key(format!("{ROLLOUTS}<id>/{FAILED}{host}"), "JSON", "as the record"),
        key(format!("{ROLLOUTS}<id>/{EXCUSED}{host}"), "JSON", "as the record"),
        key(format!("{ROLLOUTS}<id>/{OPENED}<stage>"), "JSON", "as the record"),
        key(format!("{ROLLOUTS}<id>/{SOAK}<stage>"), "JSON", "as the record"),
        key(format!("{ROLLOUTS}<id>/{SOAKING}<stage>"), "text", "a lease of the time of the soak"),
        key(format!("{ROLLOUTS}<id>/halt"), "JSON", "until `rollout resume`"),
        key(format!("{ROLLOUTS}<id>/closing"), "JSON", "a lease of 20 seconds, kept alive by looks alone"),
        key(format!("{ROLLOUTS}<id>/ended"), "JSON", "as the record"),
        key(format!("{PROGRESS}<id>/{host}"), "JSON", "as the record"),
        key(format!("{CLAIMS}<by>/<value>/<number>"), "JSON", "durable"),
        key(format!("{CLAIMED}{host}"), "JSON", "durable"),
        key(format!("{QUEUE}<id>/limit/<by>/<value>/<place>/{host}"), "empty", "live lease"),
        key(
            format!("{LOST_MARK}{host}"),
            "JSON",
            "until the agent runs again, the claims end, or the host counts as failed",
        ),
        key(format!("{LOST_TIMER}{host}"), "empty", "a lease of `lost_after`"),
        key(format!("{CLASHES}{host}"), "JSON", "a lease of the second agent"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::LimitBy;
    use crate::names::{LabelName, LimitValue};
    use proptest::prelude::*;

    #[test]
    fn every_documented_key_is_single_or_in_one_range() {
        for DocumentedKey { path, .. } in documented() {
            let single = Key::SINGLE.iter().filter(|key| key.to_string() == path).count();
            let ranges = Prefix::WHOLE.iter().filter(|prefix| path.starts_with(&prefix.to_string())).count();
            assert_eq!(single + ranges, 1, "{path}: operators would have no grant for it");
        }
    }

    fn name() -> impl Strategy<Value = String> {
        "[A-Za-z0-9][A-Za-z0-9._+~:-]{0,20}"
    }
    fn host() -> impl Strategy<Value = String> {
        "[a-z0-9]{1,8}(-[a-z0-9]{1,4})?(\\.[a-z0-9]{1,5}){0,2}"
    }

    proptest! {
        #[test]
        fn a_key_reads_back_as_written(v in name(), t in name(), h in host(), s in 0usize..3, number in 0..CLAIM_NUMBERS) {
            let version = Version::new(v.clone()).unwrap();
            let host = HostName::new(h).unwrap();
            let kind = StatusType::new(t.clone()).unwrap();
            let role = Role::new(t.clone()).unwrap();
            let by = [LimitBy::Fleet, LimitBy::Role, LimitBy::Label(LabelName::new(&t).unwrap())];
            let limit = Limit { by: by[s].clone(), value: LimitValue::new(&t).unwrap() };
            let order = InstructionOrder { epoch: s as u64, revision: number.into() };
            let service = ServiceName::new(t).unwrap();
            for key in [
                Key::CurrentVersion,
                Key::RunningVersion(version, host.clone()),
                Key::Status(kind.clone(), StatusState::ALL[s], host.clone()),
                Key::Reporting(kind, host.clone()),
                Key::Store,
                Key::Host(host.clone()),
                Key::Live(host.clone()),
                Key::Announced(host.clone()),
                Key::Report(host.clone()),
                Key::Retry(host.clone()),
                Key::Service(service.clone(), host.clone()),
                Key::Health(service, host.clone()),
                Key::Maintenance(host.clone()),
                Key::DropStale,
                Key::Config(ConfigName::new(&v).unwrap()),
                Key::HostConfig(ConfigKind::State, ConfigScope::Global, ConfigName::new(&v).unwrap()),
                Key::HostConfig(ConfigKind::State, ConfigScope::Role(role.clone()), ConfigName::new(&v).unwrap()),
                Key::HostConfig(ConfigKind::Version, ConfigScope::Host(host.clone()), ConfigName::new(v).unwrap()),
                Key::EnablePuppet(ConfigScope::Global),
                Key::EnablePuppet(ConfigScope::Role(role.clone())),
                Key::EnablePuppet(ConfigScope::Host(host.clone())),
                Key::Event(EventId::new(format!("{s}-a")).unwrap()),
                Key::HostEvent(host.clone(), EventId::new(format!("{s}-a")).unwrap()),
                Key::Freeze(FreezeScope::Fleet, Token::new("a").unwrap()),
                Key::Freeze(FreezeScope::Pause, Token::new("a").unwrap()),
                Key::Freeze(FreezeScope::Role(role.clone()), Token::new("a").unwrap()),
                Key::Freeze(FreezeScope::Group(role), Token::new("a").unwrap()),
                Key::Freeze(FreezeScope::Host(host.clone()), Token::new("a").unwrap()),
                Key::RolloutPolicy,
                Key::RolloutRecord(order),
                Key::Resolving(order),
                Key::Failed(order, host.clone()),
                Key::Halt(order),
                Key::Trigger,
                Key::Closing(order),
                Key::Ended(order),
                Key::StageOpened(order, number),
                Key::Soak(order, number),
                Key::SoakTimer(order, number),
                Key::Excused(order, host.clone()),
                Key::Progress(order, host.clone()),
                Key::Claim(limit.clone(), number),
                Key::Claimed(host.clone()),
                Key::Ticket(order, limit, Place(number), host.clone()),
                Key::LostMark(host.clone()),
                Key::LostTimer(host.clone()),
                Key::NameClash(host),
            ] {
                prop_assert_eq!(Key::parse(&key.to_string()).unwrap(), key);
            }
        }

        #[test]
        fn whatever_is_accepted_is_spelled_as_it_was(text in "/?(orchestrate/|status/|running_version/)?.{0,60}") {
            if let Ok(key) = Key::parse(&text) {
                prop_assert_eq!(key.to_string(), text);
            }
        }
    }

    /// Decommissioning a host and `why` find the keys of a host in this way.
    #[test]
    fn every_key_of_a_host_is_found_by_its_name() {
        let host = HostName::new("h").unwrap();
        let named: Vec<String> = Key::of_host(&host).iter().map(Key::to_string).collect();
        let ranges = Prefix::BEFORE_HOST.map(|prefix| prefix.to_string());
        for DocumentedKey { path, .. } in documented() {
            let key = path.replace("<host>", "h");
            let order = InstructionOrder { epoch: 1, revision: 2 }.to_string();
            let key = key.replace("<id>", &order).replace("<by>", "role").replace("<place>", "0000000a");
            let parsed = Key::parse(&key.replace("<state>", "failed").replace(['<', '>'], ""));
            let belongs = parsed.is_ok_and(|parsed| parsed.host() == Some(&host));
            // What a host did in a rollout outlives the host.
            let is_of_rollout = path.contains(FAILED) || path.contains(EXCUSED) || path.starts_with(PROGRESS);
            let names_host = path.ends_with("<host>") && !is_of_rollout;
            assert_eq!(belongs, names_host, "{path}");
            let is_found = named.contains(&key) || ranges.iter().any(|range| key.starts_with(range));
            assert_eq!(belongs, is_found, "{path}");
        }
    }

    #[test]
    fn garbage_in_the_store_is_refused() {
        for bad in [
            "",
            "/",
            "current_version",
            "/current_version/",
            "/running_version/",
            "/running_version/1",
            "/running_version/1/",
            "/running_version//h",
            "/running_version/../h",
            "/running_version/1/a/b",
            "/status/puppet/failed/",
            "/status/puppet/broken/h",
            "/status/puppet/h",
            "/orchestrate/live/a b",
            "/orchestrate/live/",
            "/orchestrate/hosts/a/b",
            "/orchestrate/unknown/h",
            "/available_services/web",
            "/available_services//h",
            "/available_services/../h",
            "/orchestrate/health/web/a/b",
            "/orchestrate/maintenance/",
            "/orchestrate/release_view/",
            "/orchestrate/events/17",
            "/orchestrate/events/-a",
            "/orchestrate/events/99999999999999999999-a",
            "/running_version/1/h\n",
            "/config_state/",
            "/config_state/global",
            "/config_state/global/",
            "/config_state/global/a/b",
            "/config_state/role/web",
            "/config_state/role/a b/c",
            "/config_state/host/a_b/c",
            "/config_state/rack/a/b",
            "/config_state/enable_puppet",
            "/config_state/enable_puppet/",
            "/config_state/enable_puppet/global/",
            "/config_state/enable_puppet/role/",
            "/config_state/enable_puppet/host/a/b",
            "/config_version/enable_puppet/global",
            "/orchestrate/freezes/fleet",
            "/orchestrate/freezes/fleet/",
            "/orchestrate/freezes/fleet/a/b",
            "/orchestrate/freezes/role/a",
            "/orchestrate/freezes/role/a/b/c",
            "/orchestrate/freezes/rack/a/b",
            "/orchestrate/freezes/host/a b/c",
            "/orchestrate/rollouts/1-2/record",
            "/orchestrate/rollouts/0000000001-0000000000000000002/other",
            "/orchestrate/claims/role/web",
            "/orchestrate/claims/role/web/1",
            "/orchestrate/claims/role/web/99999",
            "/orchestrate/claims/role/web/+0001",
            "/orchestrate/claims/rack/a/00001",
            "/orchestrate/claims/labels./a/00001",
            "/orchestrate/claims/role/web/00001/b",
            "/orchestrate/queue/0000000001-0000000000000000002/limit/role/web/0000000A/h",
            "/orchestrate/queue/0000000001-0000000000000000002/stage/role/web/0000000a/h",
            "/orchestrate/queue/0000000001-0000000000000000002/limit/role/web/0000000a/h/i",
        ] {
            Key::parse(bad).unwrap_err();
        }
    }
}
