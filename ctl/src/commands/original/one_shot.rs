//! One-shot reports of a script for its host: `update_own_status` and `update_own_info`.
//!
//! With a live agent on the host, the listing and the results of `puppet` and `validation` are
//! under that agent's lease, and every write is fenced by its claim. If the agent applies versions
//! by itself, such reports are refused. Without an agent, the listing is under a lease of
//! [`LISTING_SECONDS`], and a success of these two types is under a lease that lasts as long as the
//! type may stay silent. All other results are durable: a failure, or "not yet", must not disappear
//! because the host stays silent.
//!
//! A result under a lease leaves the durable key `/orchestrate/reporting/<type>/<host>`. So two
//! cases can be told apart. If this key exists and the host has no result of the type, the host
//! stopped reporting it, which is a failure. If neither exists, the host never reported it.
//!
//! This file is long because the two verbs share how they write for a host beside its agent.

use super::desired::{driver, refused_by_agent};
use super::local::status_keys;
use crate::agent::{self, CheckAck, CheckResult};
use crate::commands::answers;
use crate::commands::context::{Store, now, version_of};
use crate::commands::rollout::look_after;
use crate::commands::store::identity::has_brakes;
use crate::commands::verb::{About, Answer, Group, Past, Spec, Verb};
use crate::completion;
use crate::exit::{Exit, Failure};
use crate::local::{self, LeaseName, LocalState};
use crate::numbers::whole;
use crate::output::{self, Output};
use anyhow::anyhow;
use clap::Args;
use etcd_session::StoreError;
use fleet::views::known_types;
use schema::codec;
use schema::instruction::Instruction;
use schema::keys::{self, Key, Prefix, StatusState};
use schema::names::{CheckId, HostName, StatusType, Version, quoted};
use schema::records::{Driver, FailedHost, FailureKind, StatusRecord};
use schema::snapshot::KeySnapshot;
use schema::transaction::Operation;
use schema::writes::HostStatus;
use schema::writes::claims::FoundClaims;
use schema::writes::one_shot::{OneShot, register};
use schemars::JsonSchema;
use serde::Serialize;

/// Lifetime of a listing: twice the minute between two reports, and ten seconds.
const LISTING_SECONDS: i64 = 130;
const VALIDATION_SECONDS: i64 = 60 * 60;
const APPLY_SECONDS: i64 = 24 * 60 * 60;
/// Number of times that a write is tried if an agent comes or goes at the same time.
const TRIES: u32 = 3;

/// Returns the state that an exit code means for a type of result.
fn state_of(kind: &StatusType, code: i64) -> StatusState {
    let is_apply = *kind == StatusType::apply();
    match code {
        0 => StatusState::Success,
        -1 if *kind != StatusType::validation() => StatusState::Pending,
        // Exit codes of Puppet: 1 it could not run, 4 failures, 6 changes and failures.
        1 | 4 | 6 if is_apply => StatusState::Failed,
        _ if is_apply => StatusState::Success,
        _ => StatusState::Failed,
    }
}

/// Returns how many seconds a success of a type lasts if it is not repeated; `None` for no limit.
fn success_seconds(kind: &StatusType) -> Option<i64> {
    if *kind == StatusType::validation() {
        Some(VALIDATION_SECONDS)
    } else if *kind == StatusType::apply() {
        Some(APPLY_SECONDS)
    } else {
        None
    }
}

fn known_type(text: &str) -> Option<StatusType> {
    StatusType::from_caller(text).ok().filter(|kind| known_types().contains(kind))
}

/// Returns the TTL check behind a name, and the result that an exit code means for it. The names of
/// Puppet and the validation mean the same as in the later generations of the original tool (legacy
/// contract). For other names the exit codes are those of monitoring plugins.
fn check_of(name: &str, code: i64) -> Option<(CheckId, CheckResult)> {
    use CheckResult::{Fail, Pass, Warn};
    let is_apply_failure = matches!(code, -1 | 1 | 4 | 6);
    let (id, result) = match name {
        "puppet" => (name, if is_apply_failure { Warn } else { Pass }),
        "puppet_service" => ("service:puppet", if is_apply_failure { Fail } else { Pass }),
        "validation" => (name, if code == 0 { Pass } else { Warn }),
        "validation_service" => ("service:validation", if code == 0 { Pass } else { Fail }),
        _ => match code {
            0 => (name, Pass),
            1 => (name, Warn),
            _ => (name, Fail),
        },
    };
    Some((CheckId::new(id).ok()?, result))
}

/// Reports a result to the agent of this host, if it has a check of this name.
fn send_result(name: &str, code: i64, store: &Store<'_>) -> std::io::Result<CheckAck> {
    match check_of(name, code) {
        Some((check, result)) => {
            agent::report_result(&store.settings.agent_socket, &check, result, &format!("exit code {code}"))
        }
        None => Ok(CheckAck::Unknown("that is no name of a check".into())),
    }
}

/// Reports a result under a name that is no type of result: a TTL check of the agent on this host.
fn report_check(
    hostname: Option<&str>,
    name: &str,
    code: i64,
    store: &Store<'_>,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let host = store.settings.host(hostname)?;
    let shown = quoted(name);
    let unknown = |why: &str| {
        let types = "it can be puppet, validation or provisioned, or a TTL check of the agent on this host";
        Failure::usage(anyhow!("status type {shown}: {types}; {why}"))
    };
    if host.as_str() != store.settings.host_name {
        return Err(unknown("report results of checks on the host that runs them"));
    }
    let socket = store.settings.agent_socket.display();
    match send_result(name, code, store) {
        Ok(CheckAck::Accepted) => {
            output.sorted_answer(&CheckAnswer { host: &host, check: name, exit_code: code }, |_| {});
            Ok(Exit::Yes)
        }
        Ok(CheckAck::NoAgent) => Err(unknown(&format!("no agent listens on {socket}"))),
        Ok(CheckAck::Unknown(why)) => Err(unknown(&why)),
        Err(error) => Err(Failure::cannot_tell(format!("{socket}: {error}"))),
    }
}

/// What the store knows of a host that reports. A user who may not read it learns nothing.
#[derive(Debug, Clone, Copy)]
struct KnownHost {
    /// True if nothing in the store is about the host yet, so that its report makes it a host of the fleet.
    is_new: bool,
    /// True if the report also puts it on the roster.
    joins: bool,
}

/// Writes one-shot reports of one host.
struct Writer<'a> {
    store: &'a Store<'a>,
    host: HostName,
    memory: LocalState,
}

/// The live agent of a host, as far as one-shot writes depend on it.
struct Agent {
    lease: i64,
    revision: i64,
    drives: bool,
}

impl<'a> Writer<'a> {
    fn new(given: Option<&str>, store: &'a Store<'a>) -> Result<Self, Failure> {
        Ok(Self { store, host: store.settings.host(given)?, memory: LocalState::of(store.settings) })
    }

    fn agent(&self, snapshot: &KeySnapshot) -> Option<Agent> {
        let live = Key::Live(self.host.clone());
        let entry = snapshot.get(&live)?;
        let drives = driver(snapshot, &live) == Some(Driver::Agent);
        Some(Agent { lease: entry.lease, revision: entry.mod_revision, drives })
    }

    /// Returns the lease for a purpose: that of an earlier invocation if it is still alive.
    async fn lease(&self, purpose: Option<&StatusType>, seconds: i64) -> Result<i64, StoreError> {
        let own = self.store.settings.host_name == self.host.as_str();
        let name = LeaseName::new(purpose.map(StatusType::as_str), &self.host, own);
        let (session, deadline) = (&self.store.session, self.store.deadline);
        let lease = session.lease_for_one_shot(self.memory.lease(&name), seconds, deadline).await?;
        self.memory.keep_lease(&name, lease);
        Ok(lease)
    }

    /// Returns what the store knows of the host before its report.
    async fn known(&self) -> Result<KnownHost, StoreError> {
        let host = &self.host;
        let mut keys = vec![Key::Host(host.clone()), Key::Live(host.clone()), Key::Announced(host.clone())];
        keys.extend(known_types().map(|kind| Key::Reporting(kind, host.clone())));
        keys.extend(status_keys(host));
        match self.store.session.read_keys(&keys, self.store.deadline).await {
            Ok(found) => {
                let is_new = found.entries.is_empty();
                Ok(KnownHost { is_new, joins: found.get(&Key::Host(host.clone())).is_none() })
            }
            Err(StoreError::PermissionDenied { .. }) => Ok(KnownHost { is_new: false, joins: false }),
            Err(error) => Err(error),
        }
    }

    /// Says that the report made the host a host of the fleet.
    fn warn_of_new_host(&self) {
        let host = &self.host;
        output::warn(&format!(
            "{host} was not a host of this fleet; with this report it is one. `orchestrate hosts decommission {host}` takes it out"
        ));
    }
}

/// Repeats a write that failed because an agent came or went, or because its lease ended.
async fn until_written(write: impl AsyncFn() -> Result<bool, Failure>) -> Result<(), Failure> {
    for _ in 0..TRIES {
        match write().await {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(failure) if matches!(failure.error.downcast_ref(), Some(StoreError::LeaseGone { .. })) => {}
            Err(failure) => return Err(failure),
        }
    }
    Err(Failure::cannot_tell("an agent on this host starts and stops repeatedly; nothing was written"))
}

/// Report a result of this host by the exit code of a tool
#[derive(Debug, Args)]
pub(crate) struct UpdateOwnStatus {
    /// A host other than this one
    #[arg(long, add = completion::hosts())]
    hostname: Option<String>,
    /// puppet, validation or provisioned (puppet_service and validation_service are old names),
    /// or a TTL check of the agent on this host
    #[arg(value_name = "TYPE", add = completion::words(&["puppet", "validation", "provisioned"]))]
    kind: String,
    /// Exit code of the tool; -1 if it has not finished
    #[arg(allow_negative_numbers = true)]
    code: i64,
}

impl Verb for UpdateOwnStatus {
    const SPEC: Spec = Spec {
        name: "update_own_status",
        group: Group::ThisHost,
        about: About::Other,
        past: Past::DoesNotRead,
        exits: &[],
        answer: Answer::Json(|generator| {
            answers::either([
                answers::of::<StatusAnswer<'_>>(generator),
                answers::of::<CheckAnswer<'_>>(generator),
            ])
        }),
        examples: &[("orchestrate update_own_status validation 0", "report that the validation passed")],
    };

    /// Reports a result by the exit code of the tool that ran.
    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let Self { hostname, kind, code } = self;
        let hostname = hostname.as_deref();
        let name = &kind;
        let Some(kind) = known_type(name) else { return report_check(hostname, name, code, store, output) };
        let writer = Writer::new(hostname, store)?;
        let state = state_of(&kind, code);
        let known = writer.known().await?;
        until_written(async || write_status(&writer, known, &kind, state, code).await).await?;
        if known.is_new {
            writer.warn_of_new_host();
        }
        // Most agents have no check of this name and need none, so only an error is reported.
        if writer.host.as_str() == store.settings.host_name
            && let Err(error) = send_result(name, code, store)
        {
            output::warn(&format!("{}: {error}", store.settings.agent_socket.display()));
        }
        output.sorted_answer(&StatusAnswer { host: &writer.host, state: state.as_str() }, |_| {});
        Ok(Exit::Yes)
    }
}

async fn write_status(
    writer: &Writer<'_>,
    known: KnownHost,
    kind: &StatusType,
    state: StatusState,
    code: i64,
) -> Result<bool, Failure> {
    let Store { session, deadline, settings, .. } = writer.store;
    let keys = [Key::Live(writer.host.clone()), Key::Claimed(writer.host.clone())];
    let snapshot = session.read_keys(&keys, *deadline).await?;
    let agent = writer.agent(&snapshot);
    let agents_own = [StatusType::apply(), StatusType::validation()].contains(kind);
    let lease = match (&agent, success_seconds(kind)) {
        (Some(agent), _) if agent.drives && agents_own => {
            return Err(refused_by_agent(&writer.host, &format!("reports {kind}")));
        }
        (Some(agent), Some(_)) => agent.lease,
        (None, Some(seconds)) if state == StatusState::Success => writer.lease(Some(kind), seconds).await?,
        _ => 0,
    };
    let installed = local::installed_version(settings).ok().and_then(|text| Version::new(text).ok());
    let is_own = settings.host_name == writer.host.as_str();
    let record = StatusRecord {
        at: now(),
        version: if is_own { installed } else { None },
        code: Some(code),
        reason: String::new(),
        cause: None,
    };
    let shot = OneShot { host: writer.host.clone(), lease, live_revision: agent.map(|a| a.revision) };
    let mut transaction = shot.status(&HostStatus { kind: kind.clone(), state, record });
    if known.joins {
        register(&mut transaction, &writer.host, now());
    }
    if state == StatusState::Failed && agents_own {
        let reason = format!("{kind} exited with code {code}");
        let failed = FailedHost {
            at: now(),
            kind: FailureKind::Attempt,
            reason,
            cause: None,
            healed: false,
            again: None,
        };
        shot.release(&mut transaction, Some(&failed), now(), &snapshot);
    }
    Ok(session.commit(&transaction, *deadline).await?.applied)
}

/// Report the version that this host runs
#[derive(Debug, Args)]
pub(crate) struct UpdateOwnInfo {
    /// Accepted for old callers and ignored; without an agent the report lasts 130 seconds
    #[arg(long, value_parser = whole::<u64>)]
    interval: Option<u64>,
    /// A host other than this one
    #[arg(long, add = completion::hosts())]
    hostname: Option<String>,
    /// A version other than the one recorded on this host
    #[arg(long, add = completion::versions())]
    version: Option<String>,
}

impl Verb for UpdateOwnInfo {
    const SPEC: Spec = Spec {
        name: "update_own_info",
        group: Group::ThisHost,
        about: About::Other,
        past: Past::DoesNotRead,
        exits: &[],
        answer: Answer::Json(answers::of::<InfoAnswer<'_>>),
        examples: &[("orchestrate update_own_info", "list this host under its installed version")],
    };

    /// Reports the version that a host runs.
    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let writer = Writer::new(self.hostname.as_deref(), store)?;
        let running = match self.version.as_deref().filter(|text| !text.is_empty()) {
            Some(text) => version_of(text)?,
            None => {
                let file = store.settings.local_version_file.display();
                let text = local::installed_version(store.settings)
                    .map_err(|e| Failure::cannot_tell(format!("{file}: {e}")))?;
                if text.is_empty() {
                    output::note("no version is known on this host; nothing was changed");
                    return Ok(Exit::Yes);
                }
                Version::new(text).map_err(|e| Failure::cannot_tell(format!("{file}: {e}")))?
            }
        };
        let known = writer.known().await?;
        until_written(async || write_listing(&writer, known, &running).await).await?;
        if known.is_new {
            writer.warn_of_new_host();
        }
        output.sorted_answer(&InfoAnswer { host: &writer.host, version: &running }, |_| {});
        Ok(Exit::Yes)
    }
}

async fn write_listing(writer: &Writer<'_>, known: KnownHost, running: &Version) -> Result<bool, Failure> {
    let Store { session, deadline, .. } = writer.store;
    let host = &writer.host;
    let announced = Key::Announced(host.clone());
    let keys = [
        Key::Live(host.clone()),
        announced.clone(),
        Key::Claimed(host.clone()),
        Key::CurrentVersion,
        Key::Store,
    ];
    let snapshot = session.read_keys(&keys, *deadline).await?;
    let agent = writer.agent(&snapshot);
    if agent.as_ref().is_some_and(|agent| agent.drives) {
        return Err(refused_by_agent(host, "announces its version"));
    }
    let others = match snapshot.get(&announced).map(|entry| codec::read_version(&entry.value)) {
        Some(Ok(version)) => vec![version],
        // The listing was written by a tool that does not know that key, or there is no listing.
        _ => listed_under(writer.store, host, snapshot.revision).await?,
    };
    let lease = match &agent {
        Some(agent) => agent.lease,
        None => writer.lease(None, LISTING_SECONDS).await?,
    };
    let shot = OneShot { host: host.clone(), lease, live_revision: agent.map(|a| a.revision) };
    let mut transaction = shot.list(running, now(), &others);
    if known.joins {
        register(&mut transaction, host, now());
    }
    let desired = snapshot.value_of(keys::CurrentVersion);
    // The version for which the claims were taken is the end of that update, also if another one is desired
    // by now.
    let claims = FoundClaims::read(host, &snapshot).claims.filter(|claims| !claims.claims.is_empty());
    // The host is at the desired version, whatever it said before.
    if claims.is_none() && desired.as_ref() == Some(running) {
        transaction.operations.extend(heal(host, &snapshot));
    }
    if let Some(claims) = claims {
        let record = Key::RolloutRecord(claims.rollout);
        let found = session.read_keys(std::slice::from_ref(&record), *deadline).await?;
        let record = found.get(&record).and_then(|e| keys::RolloutRecord::read(&e.value).ok());
        if desired.as_ref() == Some(running) || record.is_some_and(|record| record.version == *running) {
            shot.release(&mut transaction, None, now(), &snapshot);
        }
    }
    let is_written = session.commit(&transaction, *deadline).await?.applied;
    if is_written && has_brakes(&snapshot) {
        look_after::rollout(host, writer.store).await;
    }
    Ok(is_written)
}

/// Returns the deletion of the failure of a host in the present rollout. A store that never had a policy has
/// none, and the user may have no right to delete it there.
fn heal(host: &HostName, snapshot: &KeySnapshot) -> Option<Operation> {
    let identity = snapshot.value_of(keys::Store)?;
    if !identity.has_brakes {
        return None;
    }
    let instruction = Instruction::find(snapshot)?;
    Some(Operation::Delete(Key::Failed(instruction.order, host.clone())))
}

/// Returns the versions under which a host is listed, from the keys of the listings alone.
pub(crate) async fn listed_under(
    store: &Store<'_>,
    host: &HostName,
    revision: i64,
) -> Result<Vec<Version>, StoreError> {
    let list = store.session.read_key_list(&Prefix::RunningVersions, Some(revision), store.deadline).await?;
    let of_host =
        list.suffixes().filter_map(|suffix| suffix.split_once('/')).filter(|(_, h)| *h == host.as_str());
    Ok(of_host.filter_map(|(version, _)| Version::new(version).ok()).collect())
}

/// What `update_own_status` answers about a result.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct StatusAnswer<'a> {
    host: &'a HostName,
    state: &'static str,
}

/// What `update_own_status` answers about a check of the agent.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CheckAnswer<'a> {
    host: &'a HostName,
    check: &'a str,
    exit_code: i64,
}

/// What `update_own_info` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct InfoAnswer<'a> {
    host: &'a HostName,
    version: &'a Version,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_mean_what_they_meant() {
        use StatusState::{Failed, Pending, Success};
        for (kind, code, state) in [
            ("puppet", 0, Success),
            ("puppet", 2, Success),
            ("puppet", 1, Failed),
            ("puppet", 4, Failed),
            ("puppet", 6, Failed),
            ("puppet", -1, Pending),
            ("puppet", 255, Success),
            ("puppet_service", 6, Failed),
            ("validation", 0, Success),
            ("validation", 1, Failed),
            ("validation", -1, Failed),
            ("validation_service", 255, Failed),
            ("provisioned", 0, Success),
            ("provisioned", -1, Pending),
            ("provisioned", 2, Failed),
        ] {
            assert_eq!(state_of(&known_type(kind).expect("a type"), code), state, "{kind} {code}");
        }
    }

    #[test]
    fn exit_codes_are_results_of_checks() {
        use CheckResult::{Fail, Pass, Warn};
        for (name, code, id, result) in [
            ("puppet", 0, "puppet", Pass),
            ("puppet", 2, "puppet", Pass),
            ("puppet", 4, "puppet", Warn),
            ("puppet", -1, "puppet", Warn),
            ("puppet_service", 6, "service:puppet", Fail),
            ("puppet_service", 2, "service:puppet", Pass),
            ("validation", 0, "validation", Pass),
            ("validation", 3, "validation", Warn),
            ("validation_service", 1, "service:validation", Fail),
            ("service:db", 0, "service:db", Pass),
            ("service:db", 1, "service:db", Warn),
            ("service:db", 2, "service:db", Fail),
            ("service:db", -1, "service:db", Fail),
        ] {
            let expected = (CheckId::new(id).expect("a name"), result);
            assert_eq!(check_of(name, code), Some(expected), "{name} {code}");
        }
        assert_eq!(check_of("", 0), None);
    }
}
