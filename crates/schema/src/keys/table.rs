//! The table of keys. A row names the key and its arguments with their types, and then its path: text, and the
//! names of arguments where their values stand. `number: u32 as ClaimNumber` says how a number is spelled in the path.
//! Then follow
//!
//! - `value`: the form of the value, and the type that reading it returns ([`super::Form`]): `Json<T>`, text, or a
//!   type with a form of its own;
//! - `lifetime`: how long the key exists, as `docs/keys.md` says it;
//! - `owner`: `fleet`, or the argument that names the host to which the key belongs. Decommissioning a host deletes
//!   its keys;
//! - `agents_read`, `agents_write`: which agents may read and write it: `No`, `Own` or `All` ([`Agents`]).
//!
//! From the row `Report(host: HostName) = "/orchestrate/reports/" host { … }` come `Key::Report(host)`, its path, its
//! parser and its grants, and the type [`Report`], which reads: `snapshot.read(keys::Report(host))`, or
//! `keys::Report::read(bytes)`.
//!
//! The order of the rows is the order of keys.

use super::form::{self, Empty, Form, Json, Text};
use super::macros::{self, keys, ranges};
use super::part;
use super::path::{self, KeyError};
use super::row::{Agents, DocumentedKey, Row, TypedKey};
use super::status_state::StatusState;
use crate::freeze::FreezeScope;
use crate::health;
use crate::host_config::{ConfigKind, ConfigScope};
use crate::limit::{Limit, Place};
use crate::names::{ConfigName, EventId, HostName, ServiceName, StatusType, Token, Version};
use crate::order::InstructionOrder;
use crate::records;
use crate::time::EpochSeconds;

keys! {
    /// The desired version as text; written by an operator.
    CurrentVersion = "/current_version" {
        value: Version, lifetime: "durable",
        owner: fleet, agents_read: All, agents_write: No,
    }

    /// The listing of a host under a version; the value is epoch seconds as text. Attached to the
    /// live lease.
    RunningVersion(version: Version, host: HostName) = "/running_version/" version "/" host {
        value: EpochSeconds, lifetime: "live lease",
        owner: host, agents_read: All, agents_write: All,
    }

    /// The last result of a host for one status type.
    Status(kind: StatusType, state: StatusState, host: HostName) = "/status/" kind "/" state "/" host {
        value: records::StatusRecord, lifetime: "durable",
        owner: host, agents_read: Own, agents_write: Own,
    }

    /// The identity of the store.
    Store = "/orchestrate/store" {
        value: records::StoreIdentity, lifetime: "durable",
        owner: fleet, agents_read: All, agents_write: No,
    }

    /// The roster entry of a host, or its tombstone.
    Host(host: HostName) = "/orchestrate/hosts/" host {
        value: Json<records::RosterEntry>, lifetime: "durable",
        owner: host, agents_read: All, agents_write: Own,
    }

    /// The claim of a host name by one running agent. Attached to the live lease.
    Live(host: HostName) = "/orchestrate/live/" host {
        value: Json<records::LiveClaim>, lifetime: "live lease",
        owner: host, agents_read: All, agents_write: Own,
    }

    /// The version that a host announces; written with every change of the listing.
    Announced(host: HostName) = "/orchestrate/announced/" host {
        value: Version, lifetime: "same lease as the listing",
        owner: host, agents_read: All, agents_write: Own,
    }

    /// The report of a host: what it decided, and why. Its size is bounded.
    Report(host: HostName) = "/orchestrate/reports/" host {
        value: Json<records::Report>, lifetime: "durable",
        owner: host, agents_read: Own, agents_write: Own,
    }

    /// An operator's request that a host try again.
    Retry(host: HostName) = "/orchestrate/retry/" host {
        value: Json<records::RetryRequest>, lifetime: "durable",
        owner: host, agents_read: Own, agents_write: No,
    }

    /// A mark that a host reports this status type by one-shot verbs. The lease of the successful
    /// status ends when the reports stop; this key stays, so that the missing reports are noticed.
    Reporting(kind: StatusType, host: HostName) = "/orchestrate/reporting/" kind "/" host {
        value: EpochSeconds, lifetime: "durable",
        owner: host, agents_read: Own, agents_write: Own,
    }

    /// The record of an instance: the service is addressable on the host. Attached to the work
    /// lease.
    Service(service: ServiceName, host: HostName) = "/available_services/" service "/" host {
        value: records::ServiceRecord, lifetime: "work lease",
        owner: host, agents_read: All, agents_write: Own,
    }

    /// The health of an instance. Attached to the live lease.
    Health(service: ServiceName, host: HostName) = "/orchestrate/health/" service "/" host {
        value: health::Health, lifetime: "live lease",
        owner: host, agents_read: All, agents_write: Own,
    }

    /// An operator's marks on the instances of a host: maintenance or draining.
    Maintenance(host: HostName) = "/orchestrate/maintenance/" host {
        value: Json<records::Maintenance>, lifetime: "durable",
        owner: host, agents_read: All, agents_write: Own,
    }

    /// An operator's request that agents end the retained state of the catalog.
    DropStale = "/orchestrate/release_view" {
        value: Json<records::DropStaleRequest>, lifetime: "durable",
        owner: fleet, agents_read: All, agents_write: No,
    }

    /// A value that operators keep for the templates of hosts.
    Config(name: ConfigName) = "/orchestrate/config/" name {
        value: Text, lifetime: "durable",
        owner: fleet, agents_read: All, agents_write: No,
    }

    /// A value that the original tool keeps for hosts.
    // An operator wrote it for a host, a role or all, and may mean a host that comes back.
    HostConfig(kind: ConfigKind, scope: ConfigScope, name: ConfigName) = "/" kind "/" scope "/" name {
        value: Text, lifetime: "durable",
        owner: fleet, agents_read: All, agents_write: No,
    }

    /// Whether the rolling upgrade of the original tool lets hosts run their scripts.
    EnablePuppet(scope: ConfigScope) = "/config_state/enable_puppet/" scope {
        value: Text, lifetime: "durable",
        owner: fleet, agents_read: All, agents_write: No,
    }

    /// What an operator did. Bounded in number and age.
    Event(id: EventId) = "/orchestrate/events/" id {
        value: Json<records::Event>, lifetime: "the last 10,000",
        owner: fleet, agents_read: No, agents_write: No,
    }

    /// What a command in a step of a host did. Bounded in number and age.
    // It tells what happened, also after the host is gone, so the host does not own it.
    HostEvent(host: HostName, id: EventId) = "/orchestrate/events/host/" host "/" id {
        value: Json<records::Event>, lifetime: "the last 100",
        owner: fleet, agents_read: Own, agents_write: Own,
    }

    /// A freeze. Each has a token of its own, so that nobody overwrites the freeze of somebody else.
    Freeze(scope: FreezeScope, token: Token) = "/orchestrate/freezes/" scope "/" token {
        value: Json<records::Freeze>, lifetime: "durable, or a lease of its length",
        owner: fleet, agents_read: All, agents_write: No,
    }

    /// How operators want versions to be rolled out.
    RolloutPolicy = "/orchestrate/rollout_policy" {
        value: Json<records::RolloutPolicy>, lifetime: "durable",
        owner: fleet, agents_read: All, agents_write: No,
    }

    /// Who asked for the desired version, and why. It is written together with it.
    Trigger = "/orchestrate/trigger" {
        value: Json<records::Trigger>, lifetime: "durable",
        owner: fleet, agents_read: All, agents_write: No,
    }

    /// What holds for the rollout of one instruction. It is written once.
    RolloutRecord(order: InstructionOrder) = "/orchestrate/rollouts/" order "/record" {
        value: Json<records::RolloutRecord>, lifetime: "the last 100 rollouts",
        owner: fleet, agents_read: All, agents_write: All,
    }

    /// A mark that a host is writing the record of a rollout. Attached to its live lease.
    Resolving(order: InstructionOrder) = "/orchestrate/rollouts/" order "/resolving" {
        value: Text, lifetime: "live lease",
        owner: fleet, agents_read: All, agents_write: All,
    }

    /// A host failed in a rollout. Decommissioning the host does not undo that.
    // It goes on counting in the rollout after the host is gone, as do `Excused` and `Progress`.
    Failed(order: InstructionOrder, host: HostName) = "/orchestrate/rollouts/" order "/failed/" host {
        value: Json<records::FailedHost>, lifetime: "as the record",
        owner: fleet, agents_read: All, agents_write: All,
    }

    /// Too many hosts failed in a rollout: no host starts until an operator resumes it.
    Halt(order: InstructionOrder) = "/orchestrate/rollouts/" order "/halt" {
        value: Json<records::Halt>, lifetime: "until `rollout resume`",
        owner: fleet, agents_read: All, agents_write: All,
    }

    /// A mark that a host looks whether a rollout has ended. Attached to its live lease.
    Closing(order: InstructionOrder) = "/orchestrate/rollouts/" order "/closing" {
        value: records::Closing, lifetime: "a lease of 20 seconds, kept alive by looks alone",
        owner: fleet, agents_read: All, agents_write: All,
    }

    /// A rollout has ended: every host has its version, or will not get it without help.
    Ended(order: InstructionOrder) = "/orchestrate/rollouts/" order "/ended" {
        value: Json<records::Ended>, lifetime: "as the record",
        owner: fleet, agents_read: All, agents_write: All,
    }

    /// A stage of a rollout is open: its hosts may start. The first one, 0, is always open.
    StageOpened(order: InstructionOrder, stage: u32 as StageNumber)
        = "/orchestrate/rollouts/" order "/opened/" stage {
        value: Json<records::StageOpening>, lifetime: "as the record",
        owner: fleet, agents_read: All, agents_write: All,
    }

    /// All hosts up to a stage are through, and are observed before the next stage opens.
    Soak(order: InstructionOrder, stage: u32 as StageNumber)
        = "/orchestrate/rollouts/" order "/soak/" stage {
        value: Json<records::Soak>, lifetime: "as the record",
        owner: fleet, agents_read: All, agents_write: All,
    }

    /// How long that lasts. Attached to a lease of this time.
    SoakTimer(order: InstructionOrder, stage: u32 as StageNumber)
        = "/orchestrate/rollouts/" order "/soaking/" stage {
        value: Text, lifetime: "a lease of the time of the soak",
        owner: fleet, agents_read: All, agents_write: All,
    }

    /// The rollout does not wait for a host: an operator excused it.
    Excused(order: InstructionOrder, host: HostName) = "/orchestrate/rollouts/" order "/excused/" host {
        value: Json<records::Excuse>, lifetime: "as the record",
        owner: fleet, agents_read: All, agents_write: All,
    }

    /// How far a host got in a rollout. Decommissioning the host does not undo that.
    Progress(order: InstructionOrder, host: HostName) = "/orchestrate/progress/" order "/" host {
        value: Json<records::HostProgress>, lifetime: "as the record",
        owner: fleet, agents_read: All, agents_write: All,
    }

    /// A claim of a limit: one host may be unavailable. It is durable: it must outlive the agent.
    // Its value names the host, and so does the key `claimed` of the host.
    Claim(limit: Limit, number: u32 as ClaimNumber) = "/orchestrate/claims/" limit "/" number {
        value: Json<records::LimitClaim>, lifetime: "durable",
        owner: fleet, agents_read: All, agents_write: All,
    }

    /// The claims of a host, and its ticket.
    Claimed(host: HostName) = "/orchestrate/claimed/" host {
        value: Json<records::HostClaims>, lifetime: "durable",
        owner: host, agents_read: All, agents_write: All,
    }

    /// A ticket: a host waits for its turn in a limit. Attached to the live lease.
    Ticket(order: InstructionOrder, limit: Limit, place: Place, host: HostName)
        = "/orchestrate/queue/" order "/limit/" limit "/" place "/" host {
        value: Empty, lifetime: "live lease",
        owner: host, agents_read: All, agents_write: All,
    }

    /// A mark that a host holds claims and that its agent does not run.
    LostMark(host: HostName) = "/orchestrate/lost/mark/" host {
        value: Json<records::LostMark>,
        lifetime: "until the agent runs again, the claims end, or the host counts as failed",
        owner: host, agents_read: All, agents_write: All,
    }

    /// When this key is gone, a marked host is lost. Attached to a lease of that length.
    LostTimer(host: HostName) = "/orchestrate/lost/timer/" host {
        value: Empty, lifetime: "a lease of `lost_after`",
        owner: host, agents_read: All, agents_write: All,
    }

    /// Another machine runs an agent with the name of this host. Attached to a lease of that agent.
    NameClash(host: HostName) = "/orchestrate/clashes/" host {
        value: Json<records::NameClash>, lifetime: "a lease of the second agent",
        owner: host, agents_read: Own, agents_write: Own,
    }
}

ranges! {
    whole {
        /// The listings under all versions.
        RunningVersions = "/running_version/";
        /// All statuses of all types.
        Statuses = "/status/";
        /// The records of all services.
        Services = "/available_services/";
        /// The health of all services.
        HealthAll = "/orchestrate/health/";
        Hosts = "/orchestrate/hosts/";
        /// The claims of all host names, which exist while the agents run.
        Lives = "/orchestrate/live/";
        /// The versions that hosts announce.
        Announced = "/orchestrate/announced/";
        /// The reports of all hosts.
        Reports = "/orchestrate/reports/";
        /// The requests that hosts try again.
        Retries = "/orchestrate/retry/";
        /// The hosts that report any status type by one-shot verbs.
        ReportingAll = "/orchestrate/reporting/";
        /// The operators' marks on instances: maintenance or draining.
        Maintenances = "/orchestrate/maintenance/";
        /// The values that operators keep for the templates of hosts.
        Config = "/orchestrate/config/";
        /// What the original tool keeps for hosts about what they may do.
        ConfigState = "/config_state/";
        /// What the original tool keeps for hosts about versions of programs.
        ConfigVersion = "/config_version/";
        /// What operators did, and what commands in steps of hosts did.
        Events = "/orchestrate/events/";
        Freezes = "/orchestrate/freezes/";
        /// The keys of all rollouts.
        Rollouts = "/orchestrate/rollouts/";
        /// How far hosts got in all rollouts.
        Progress = "/orchestrate/progress/";
        /// The claims of all limits.
        Claims = "/orchestrate/claims/";
        /// The claims of all hosts, by host.
        Claimed = "/orchestrate/claimed/";
        /// The tickets of all hosts that wait for their turn.
        Queues = "/orchestrate/queue/";
        /// The marks and timers of hosts that hold claims and whose agents do not run.
        Lost = "/orchestrate/lost/";
        /// The machines that have the name of a host that lives.
        NameClashes = "/orchestrate/clashes/";
    }
    parts {
        /// Everything that the original tool did not know.
        Own = "/orchestrate/";
        /// The listings under one version.
        RunningVersion(version: Version) = "/running_version/" version "/";
        /// The hosts in one state of one status type.
        Status(kind: StatusType, state: StatusState) = "/status/" kind "/" state "/";
        /// The hosts that report one status type by one-shot verbs.
        Reporting(kind: StatusType) = "/orchestrate/reporting/" kind "/";
        /// The records of one service.
        Service(service: ServiceName) = "/available_services/" service "/";
        /// The health of one service.
        Health(service: ServiceName) = "/orchestrate/health/" service "/";
        /// The values of one kind and scope.
        HostConfig(kind: ConfigKind, scope: ConfigScope) = "/" kind "/" scope "/";
        /// The keys of the rolling upgrade.
        EnablePuppet = "/config_state/enable_puppet/";
        /// What commands in steps of one host did.
        EventsOf(host: HostName) = "/orchestrate/events/host/" host "/";
        /// The freezes of one scope.
        FreezesOf(scope: FreezeScope) = "/orchestrate/freezes/" scope "/";
        /// The keys of one rollout.
        Rollout(order: InstructionOrder) = "/orchestrate/rollouts/" order "/";
        /// The record of one rollout.
        RecordOf(order: InstructionOrder) = "/orchestrate/rollouts/" order "/record";
        /// The mark that one rollout is halted.
        HaltOf(order: InstructionOrder) = "/orchestrate/rollouts/" order "/halt";
        /// The stages of one rollout that are open.
        OpenedOf(order: InstructionOrder) = "/orchestrate/rollouts/" order "/opened/";
        /// The hosts that failed in one rollout.
        FailedOf(order: InstructionOrder) = "/orchestrate/rollouts/" order "/failed/";
        /// How far hosts got in one rollout.
        ProgressOf(order: InstructionOrder) = "/orchestrate/progress/" order "/";
        /// The claims of one limit.
        ClaimsOf(limit: Limit) = "/orchestrate/claims/" limit "/";
        /// The tickets of one rollout.
        QueuesOf(order: InstructionOrder) = "/orchestrate/queue/" order "/";
        /// The tickets of one limit in one rollout.
        Queue(order: InstructionOrder, limit: Limit) = "/orchestrate/queue/" order "/limit/" limit "/";
        /// The ticket with one place in a queue.
        TicketAt(order: InstructionOrder, limit: Limit, place: Place)
            = "/orchestrate/queue/" order "/limit/" limit "/" place "/";
    }
}
