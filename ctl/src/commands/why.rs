//! One host: `why`, `logs`, `retry`. All use only what the store holds, so they also work if the
//! host is gone.
//!
//! This file is long because three verbs read the same report.

use super::claims::ShownClaim;
use super::context::{Store, host_of, now};
use super::host_rollout::HostRollout;
use super::{fleet, services};
use crate::completion;
use crate::exit::{Exit, Failure};
use crate::output::{self, Output, rfc3339};
use clap::Args;
use etcd_session::StoreError;
use planning::fleet::{Chain, FleetTarget, FleetVerdict, HostFacts, Root, WaitGraph, Waiting};
use schema::codec;
use schema::keys::{Key, Prefix};
use schema::names::HostName;
use schema::records::Report;
use schema::snapshot::KeySnapshot;
use schema::verdict::{HostVerdict, WaitingOn};
use schema::writes::operator;
use serde_json::json;
use std::collections::BTreeSet;

/// Reads everything in the store about one host, and the two keys about the fleet, at one revision.
pub(super) async fn read_host_keys(store: &Store<'_>, host: &HostName) -> Result<KeySnapshot, StoreError> {
    let Store { session, deadline, .. } = store;
    let mut keys = vec![Key::CurrentVersion, Key::Store];
    keys.extend(Key::of_host(host));
    // In these keys a version, type or service comes before the host. So the keys of the host are
    // found by listing the ranges without values.
    let mut at = None;
    for prefix in Prefix::BEFORE_HOST {
        let list = session.read_key_list(&prefix, at, *deadline).await?;
        at = Some(list.revision);
        let of_host = list.suffixes().filter(|suffix| suffix.rsplit('/').next() == Some(host.as_str()));
        keys.extend(of_host.filter_map(|suffix| Key::parse(&format!("{prefix}{suffix}")).ok()));
    }
    let snapshot = session.read_all(&keys, &[Prefix::Freezes], at, *deadline).await?;
    super::desired::remember(&snapshot, store);
    Ok(snapshot)
}

fn unknown(host: &HostName) -> Failure {
    Failure::no(format!("host {host} is not known: it is on no roster and never reported"))
}

/// Show what a host decided, on which instruction, and what would change it; without a host,
/// why hosts wait
#[derive(Debug, Args)]
pub(crate) struct Why {
    /// The host
    #[arg(add = completion::hosts())]
    host: Option<String>,
}

/// Prints why a host does what it does, or why hosts wait.
pub(super) async fn why(options: Why, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
    match options.host {
        Some(host) => of_host(&host_of(&host)?, store, output).await,
        None => roots(store, output).await,
    }
}

/// Prints what a host decided, on which instruction, what it waits for and what would change that.
async fn of_host(host: &HostName, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
    let snapshot = read_host_keys(store, host).await?;
    let fleet = fleet::fleet(&snapshot);
    fleet::print_warnings(&fleet);
    fleet::warn_of_unconfirmed_listings(&fleet);
    let (Some(host_facts), Some(verdict)) = (fleet.hosts().get(host), fleet.verdict(host)) else {
        return match snapshot.get(&Key::Host(host.clone())) {
            Some(_) => Err(Failure::no(format!("host {host} was decommissioned"))),
            None => Err(unknown(host)),
        };
    };
    let retry = snapshot.get(&Key::Retry(host.clone())).map(|entry| entry.mod_revision);
    let rollout = HostRollout::read(host, &snapshot, store).await?;
    let waits = match verdict {
        FleetVerdict::Waiting(Waiting::On(WaitingOn::Service(_))) => {
            Some(Waits::read(host, snapshot.revision, store).await?)
        }
        _ => None,
    };
    // A deadlock shows only when the whole fleet is read, so that verdict counts.
    let verdict = waits.as_ref().map_or(verdict, |waits| waits.verdict.clone());
    // The report of a host that waits may be older than the halt.
    let verdict = match (&verdict, rollout.obstacle.clone().filter(|_| rollout.is_halted)) {
        (
            FleetVerdict::Waiting(Waiting::On(
                WaitingOn::Limit { .. } | WaitingOn::Stage { .. } | WaitingOn::Window { .. },
            )),
            Some(why),
        ) => FleetVerdict::Waiting(Waiting::On(WaitingOn::Operator { why })),
        _ => verdict,
    };
    print_why(
        &Explanation { host, host_facts, verdict: &verdict, target: fleet.target(), retry, waits, rollout },
        snapshot.revision,
        output,
    );
    Ok(Exit::Yes)
}

/// The reason why a host waits for a service.
struct Waits {
    verdict: FleetVerdict,
    chain: Option<Chain>,
    /// Number of hosts that wait because of the same root.
    hosts: usize,
}

impl Waits {
    async fn read(host: &HostName, revision: i64, store: &Store<'_>) -> Result<Self, StoreError> {
        let (mut fleet, _) = fleet::read(store, Some(revision), store.deadline).await?;
        let (view, _) = services::read(store, None, Some(revision)).await?;
        fleet.find_deadlocks(&view, now());
        let graph = WaitGraph::of(&fleet, &view, now());
        let roots = graph.roots();
        let hosts = roots.values().find(|hosts| hosts.contains(host)).map_or(1, BTreeSet::len);
        let verdict = fleet.verdict(host).unwrap_or(FleetVerdict::Ok);
        let chain = graph.chain(host);
        Ok(Self { verdict, chain, hosts })
    }

    fn json(&self) -> serde_json::Value {
        let links: Vec<_> = self.chain.iter().flat_map(|chain| &chain.links).collect();
        json!({
            "chain": links.iter().map(|(host, wait)| json!({
                "host": host, "service": wait.service, "level": wait.level, "need": wait.need, "have": wait.have,
            })).collect::<Vec<_>>(),
            "root": self.chain.as_ref().map(|chain| chain.root.to_string()),
            "hosts": self.hosts,
        })
    }
}

/// Prints why hosts wait for services: each root once, those with the most hosts first.
async fn roots(store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
    let (mut fleet, revision) = fleet::read(store, None, store.deadline).await?;
    fleet::print_warnings(&fleet);
    let (view, _) = services::read(store, None, Some(revision)).await?;
    fleet.find_deadlocks(&view, now());
    let graph = WaitGraph::of(&fleet, &view, now());
    // Hosts in a deadlock have the verdict blocked, but the graph still shows them as waiting.
    let mut roots: Vec<(Root, BTreeSet<HostName>)> = graph.roots().into_iter().collect();
    roots.sort_by_key(|(root, hosts)| (std::cmp::Reverse(hosts.len()), root.clone()));
    let named = |hosts: &BTreeSet<HostName>| -> String {
        const NAMED_MAX: usize = 5;
        let names: Vec<&str> = hosts.iter().take(NAMED_MAX).map(HostName::as_str).collect();
        let more = hosts.len().saturating_sub(NAMED_MAX);
        if more > 0 { format!("{} and {more} more", names.join(" ")) } else { names.join(" ") }
    };
    let list: Vec<_> =
        roots.iter().map(|(root, hosts)| json!({ "root": root.to_string(), "hosts": hosts })).collect();
    output.answer(&json!({ "waiting": list, "revision": revision }), |o| {
        for (root, hosts) in &roots {
            let (count, s) = (hosts.len(), if hosts.len() == 1 { " waits" } else { "s wait" });
            o.line(&format!("{count} host{s}: {root}"));
            o.line(&format!("    {}", named(hosts)));
        }
    });
    if roots.is_empty() {
        output::note("no host waits for a service");
    }
    Ok(Exit::Yes)
}

/// What is known about one host.
struct Explanation<'a> {
    host: &'a HostName,
    host_facts: &'a HostFacts,
    verdict: &'a FleetVerdict,
    target: &'a FleetTarget,
    retry: Option<i64>,
    waits: Option<Waits>,
    rollout: HostRollout,
}

fn print_why(why: &Explanation<'_>, revision: i64, output: &mut Output) {
    let report = why.host_facts.readable_report();
    let desired = match why.target {
        FleetTarget::Known { version, revision } => Some((version, *revision)),
        _ => None,
    };
    let decided = report.and_then(|r| r.target.as_ref());
    let plan: Vec<(String, String)> = report
        .map(|r| r.plan.actions.iter().map(|p| (p.action.to_string(), p.because.to_string())).collect())
        .unwrap_or_default();
    let results: Vec<_> = why.host_facts.statuses.iter().collect();
    let answer = json!({
        "host": why.host,
        "verdict": why.verdict.kind().as_str(),
        "reason": why.verdict.message(),
        "remedy": why.verdict.hint(),
        "desired": desired.map(|(version, revision)| json!({ "version": version, "revision": revision })),
        "decided_on": decided.map(|t| json!({ "version": t.version, "revision": t.revision })),
        "installed": report.and_then(|r| r.installed.clone()),
        "listed_under": why.host_facts.listed,
        "live": why.host_facts.live.is_some(),
        "phase": report.map(|r| r.phase),
        "own_verdict": report.map(|r| own_verdict(&r.verdict)),
        "because": report.map(|r| r.plan.because.to_string()),
        "plan": plan.iter().map(|(what, because)| json!({ "action": what, "because": because })).collect::<Vec<_>>(),
        "statuses": results.iter().map(|((kind, state), record)| json!({
            "type": kind,
            "state": state.as_str(),
            "at": record.as_ref().and_then(|r| rfc3339(r.at)),
            "code": record.as_ref().and_then(|r| r.code),
            "reason": record.as_ref().map(|r| r.reason.as_str()).filter(|reason| !reason.is_empty()),
        })).collect::<Vec<_>>(),
        "reported_at": report.and_then(|r| rfc3339(r.at)),
        "retry_asked_at_revision": why.retry,
        "unpublished": report.iter().flat_map(|r| &r.unpublished).map(|unpublished| {
            json!({ "service": unpublished.service, "reason": unpublished.reason })
        }).collect::<Vec<_>>(),
        "waits": why.waits.as_ref().map(Waits::json),
        "rollout": {
            "obstacle": why.rollout.obstacle,
            "holders": why.rollout.holders.iter().map(ShownClaim::json).collect::<Vec<_>>(),
            "claims": why.rollout.claims,
        },
        "revision": revision,
    });
    output.answer(&answer, |o| {
        let mut say = |name: &str, text: &str| {
            if !text.is_empty() {
                o.line(&format!("{:<14}{text}", format!("{name}:")));
            }
        };
        say("host", why.host.as_str());
        say("verdict", why.verdict.kind().as_str());
        say("because", &why.verdict.message());
        say("would change", why.verdict.hint());
        say("held back by", why.rollout.obstacle.as_deref().unwrap_or_default());
        why.rollout.holders.iter().for_each(|claim| say("held by", &claim.to_string()));
        say("claims", &why.rollout.claims.join(", "));
        if let Some(waits) = &why.waits {
            print_waits(waits, &mut say);
        }
        say("desired", &desired.map_or("none".into(), |(v, r)| format!("{v} (revision {r})")));
        say(
            "decided on",
            &decided.map(|t| format!("{} (revision {})", t.version, t.revision)).unwrap_or_default(),
        );
        say("installed", report.and_then(|r| r.installed.as_ref()).map_or("", |v| v.as_str()));
        let listed: Vec<&str> = why.host_facts.listed.iter().map(|v| v.as_str()).collect();
        say("listed under", if listed.is_empty() { "nothing".into() } else { listed.join(", ") }.as_str());
        let agent = match &why.host_facts.live {
            None => "none".to_owned(),
            Some(Ok(_)) => "live".into(),
            Some(Err(error)) => format!("live, but its claim cannot be read: {error}"),
        };
        say("agent", &agent);
        if let Some(report) = report {
            print_report(report, &mut say);
        }
        for (what, because) in &plan {
            say("next", &format!("{what}, because {because}"));
        }
        for ((kind, state), record) in results {
            let at =
                record.as_ref().and_then(|r| rfc3339(r.at)).map(|at| format!(" at {at}")).unwrap_or_default();
            say("result", &format!("{kind} {}{at}", state.as_str()));
        }
    });
}

fn print_waits(waits: &Waits, say: &mut impl FnMut(&str, &str)) {
    let Some(chain) = &waits.chain else { return };
    for (host, wait) in &chain.links {
        say("chain", &format!("{host} waits for {wait}"));
    }
    say("root", &chain.root.to_string());
    if waits.hosts > 1 {
        say("hosts", &format!("{} wait because of it", waits.hosts));
    }
}

fn print_report(report: &Report, say: &mut impl FnMut(&str, &str)) {
    say("phase", &report.phase.to_string());
    say("says itself", format!("{} {}", report.verdict.kind().as_str(), report.verdict.message()).trim_end());
    say("plan", &report.plan.because.to_string());
    for unpublished in &report.unpublished {
        say("unpublished", &format!("{}: {}", unpublished.service, unpublished.reason));
    }
    say("reported at", &rfc3339(report.at).unwrap_or_default());
}

/// Print the last lines of the step that failed or was deferred on a host
#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// The host
    #[arg(add = completion::hosts())]
    host: String,
}

/// Prints the last lines of the step that failed or was deferred.
pub(super) async fn logs(options: Logs, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
    let host = &host_of(&options.host)?;
    let key = Key::Report(host.clone());
    let snapshot = store.session.read_keys(std::slice::from_ref(&key), store.deadline).await?;
    let Some(entry) = snapshot.get(&key) else {
        return Err(Failure::no(format!("host {host} has not reported")));
    };
    let report: Report =
        codec::read(&entry.value).map_err(|e| Failure::cannot_tell(format!("the report of {host}: {e}")))?;
    let answer = json!({ "host": host, "lines": report.log, "reported_at": rfc3339(report.at) });
    output.answer(&answer, |o| report.log.iter().for_each(|line| o.line(line)));
    if report.log.is_empty() {
        output::note(&no_log(host, &report.verdict));
    }
    Ok(Exit::Yes)
}

/// Returns the verdict of a host about itself, with the step that failed and how it ended.
fn own_verdict(verdict: &HostVerdict) -> serde_json::Value {
    let failure = if let HostVerdict::Failed(failed) = verdict { Some(&failed.failure) } else { None };
    json!({ "verdict": verdict.kind().as_str(), "reason": verdict.message(), "failure": failure })
}

/// Returns the reason why a report has no log.
fn no_log(host: &HostName, verdict: &HostVerdict) -> String {
    match verdict {
        HostVerdict::Failed(_) => format!("{host} failed: {}; it printed nothing", verdict.message()),
        HostVerdict::Waiting { on: WaitingOn::Step { .. } } => {
            format!("{host} {}; it printed nothing", verdict.message())
        }
        _ => format!("the last report of {host} has no log, because no step failed or was deferred"),
    }
}

/// Ask a host to try again
#[derive(Debug, Args)]
pub(crate) struct Retry {
    /// The host
    #[arg(add = completion::hosts())]
    host: String,
}

/// Asks a host to try again.
pub(super) async fn retry(options: Retry, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
    let host = &host_of(&options.host)?;
    let known_by = [Key::Host(host.clone()), Key::Live(host.clone()), Key::Report(host.clone())];
    let keys = [&known_by[..], &[Key::Retry(host.clone())]].concat();
    let snapshot = store.session.read_keys(&keys, store.deadline).await?;
    if known_by.iter().all(|key| snapshot.get(key).is_none()) {
        return Err(unknown(host));
    }
    let act = store.act("retry", None).await?;
    let revision = store.commit(&operator::request_retry(host, now(), &snapshot, &act)).await?;
    if snapshot.get(&keys[1]).is_none() {
        output::warn(&format!("no agent lives on {host}: it tries again when one comes"));
    }
    output.answer(&json!({ "host": host, "revision": revision, "changed": true }), |_| {});
    Ok(Exit::Yes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Format;
    use planning::fleet::Fleet;
    use schema::names::{StepName, Version};
    use schema::steps::{StepEnd, StepPhase};
    use schema::verdict::{Failure, HostFailure};

    #[test]
    fn a_log_that_is_empty_is_explained_by_what_failed_or_holds() {
        let host = HostName::new("h").unwrap();
        let end = StepEnd::NotStarted { why: "no such file".into() };
        let failure = Failure::of(StepPhase::Apply, StepName::new("pkg").unwrap(), end);
        let failed =
            HostVerdict::Failed(HostFailure { version: Version::new("v1").ok(), failure, suspect: false });
        let on = WaitingOn::Step { phase: StepPhase::Validate, step: StepName::new("look").unwrap() };
        for (verdict, expected) in [
            (HostVerdict::Ok, "the last report of h has no log, because no step failed or was deferred"),
            (
                failed,
                "h failed: apply step pkg could not be started: no such file (version v1); it printed nothing",
            ),
            (
                HostVerdict::Waiting { on },
                "h waits for validate step look, which said \"not yet\"; it printed nothing",
            ),
        ] {
            assert_eq!(no_log(&host, &verdict), expected);
        }
    }

    #[test]
    fn a_host_without_an_agent_is_explained_by_listing_and_results() {
        let target = FleetTarget::Known { version: Version::new("v2").unwrap(), revision: 20 };
        let facts = [("/running_version/v1/h", "1"), ("/status/puppet/failed/h", r#"{"at":0,"code":6}"#)];
        let fleet = Fleet::new(target, facts.iter().map(|(k, v)| (*k, v.as_bytes())));
        let host = HostName::new("h").unwrap();
        let verdict = fleet.verdict(&host).unwrap();
        let why = Explanation {
            host: &host,
            host_facts: &fleet.hosts()[&host],
            verdict: &verdict,
            target: fleet.target(),
            retry: None,
            waits: None,
            rollout: HostRollout::default(),
        };
        let mut output = Output::new(Format::Table);
        print_why(&why, 30, &mut output);
        assert_eq!(
            output.text(),
            "host:         h\n\
             verdict:      failed\n\
             because:      puppet failed with code 6\n\
             would change: a later result of the same type that succeeds\n\
             desired:      v2 (revision 20)\n\
             listed under: v1\n\
             agent:        none\n\
             result:       puppet failed at 1970-01-01T00:00:00Z\n"
        );
    }
}
