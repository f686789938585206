//! The fleet as a whole: `status` and `unaccounted`.

use super::context::{Store, now};
use super::rollout::RolloutFailures;
use super::rollout_status::{self, Outlook};
use super::watch::{self, Answer, Repeat};
use super::{fleet, freezes, maintenance, services};
use crate::exit::{Exit, Failure};
use crate::output::{self, Output};
use catalog::GuardSettings;
use clap::Args;
use etcd_session::{Deadline, StoreError};
use planning::fleet::{Fleet, FleetState, FleetTarget, FleetVerdict, HostFacts, Unaccounted, Waiting};
use schema::codec;
use schema::keys::{Key, Prefix};
use schema::names::{HostName, ServiceName};
use schema::records::Maintenance;
use schema::verdict::WaitingOn;
use serde_json::json;
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

/// Show the state of the fleet: settled (0), updating or failing (1), unknown (2)
#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Show it again whenever it changes, until it is interrupted
    #[arg(long)]
    watch: bool,
}

/// Prints the state of the fleet.
pub(super) async fn status(
    Status { watch }: Status,
    store: &Store<'_>,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let repeat = Repeat::read(watch, None)?;
    watch::repeat(repeat, store, output, async |store, output| {
        Ok(Answer { exit: status_once(store, output).await?, is_final: false })
    })
    .await
}

async fn status_once(store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
    let (read, alarms) = tokio::join!(fleet::read(store, None, store.deadline), alarms(store));
    let (mut fleet, revision) = read?;
    fleet::print_warnings(&fleet);
    fleet::warn_of_unconfirmed_listings(&fleet);
    let waits = |v: &FleetVerdict| matches!(v, FleetVerdict::Waiting(Waiting::On(WaitingOn::Service(_))));
    if fleet.verdicts().values().any(waits) {
        let (view, _) = services::read(store, None, Some(revision)).await?;
        fleet.find_deadlocks(&view, now());
    }
    let extras = StatusExtras { alarms, ..StatusExtras::read(store, revision).await? };
    for alarm in extras.alarms.iter().flatten() {
        output::note(&format!("store alarm: {alarm}"));
    }
    print_status(&fleet, &extras, revision, output);
    let fleet_state = fleet.state();
    if let Some(why) = fleet.unknown_reason().filter(|_| fleet_state == FleetState::Unknown) {
        output::note(&format!("unknown: {why}"));
    }
    Ok(match fleet_state {
        FleetState::Settled => Exit::Yes,
        FleetState::Updating | FleetState::Failing => Exit::No,
        FleetState::Unknown => Exit::CannotTell,
    })
}

/// Returns the alarms of the store; `None` if they are not known, because the user may not read
/// them or the answer does not come soon.
async fn alarms(store: &Store<'_>) -> Option<Vec<String>> {
    const ALARMS_TIMEOUT: Duration = Duration::from_secs(1);
    store.session.alarms(Deadline::within(ALARMS_TIMEOUT.min(store.deadline.left()))).await.ok()
}

/// The parts of the status besides the verdicts.
#[derive(Default)]
struct StatusExtras {
    /// Alarms of the store, if they are known.
    alarms: Option<Vec<String>>,
    /// Services with many silent instances: name, number of silent instances, number of all
    /// instances.
    silent: Vec<(ServiceName, usize, usize)>,
    /// Hosts and services that operators took out of use.
    maintenance: Vec<(HostName, Maintenance)>,
    /// What went wrong in the present rollout, if it has a record.
    failures: Option<RolloutFailures>,
    /// How the present rollout goes on, if it has a record and has not ended.
    outlook: Option<Outlook>,
}

impl StatusExtras {
    async fn read(store: &Store<'_>, revision: i64) -> Result<Self, StoreError> {
        let (session, deadline) = (&store.session, store.deadline);
        let records = session.read_key_list(&Prefix::Services, Some(revision), deadline).await?;
        let healths = session.read_key_list(&Prefix::HealthAll, Some(revision), deadline).await?;
        let speaking: HashSet<&str> = healths.suffixes().collect();
        let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for suffix in records.leased_suffixes() {
            let Some((service, _)) = suffix.split_once('/') else { continue };
            let (silent, all) = counts.entry(service).or_default();
            *all += 1;
            *silent += usize::from(!speaking.contains(suffix));
        }
        let guard = GuardSettings::default();
        let silent = counts
            .into_iter()
            .filter(|(_, (silent, all))| guard.is_cliff(*silent, *all))
            .filter_map(|(name, (silent, all))| Some((ServiceName::new(name).ok()?, silent, all)))
            .collect();
        let snapshot = session.read_all(&[], &[Prefix::Maintenances], Some(revision), deadline).await?;
        let maintenance = snapshot
            .entries
            .iter()
            .filter_map(|(key, entry)| match Key::parse(key) {
                Ok(Key::Maintenance(host)) => Some((host, codec::read(&entry.value).ok()?)),
                _ => None,
            })
            .collect();
        let failures = RolloutFailures::read(Some(revision), store).await?;
        let outlook = match failures.as_ref().is_some_and(|failures| !failures.has_ended()) {
            true => rollout_status::outlook(revision, store).await?,
            false => None,
        };
        Ok(Self { alarms: None, silent, maintenance, failures, outlook })
    }
}

fn print_status(fleet: &Fleet, extras: &StatusExtras, revision: i64, output: &mut Output) {
    let maintenance: Vec<[String; 5]> =
        extras.maintenance.iter().flat_map(|(host, out)| maintenance::rows(host, out)).collect();
    let verdicts = fleet.verdicts();
    let not_ok: Vec<(&HostName, &FleetVerdict)> =
        verdicts.iter().filter(|(_, v)| **v != FleetVerdict::Ok).map(|(host, v)| (*host, v)).collect();
    let unaccounted = unaccounted_of(&verdicts);
    let versions = fleet.versions();
    let down = fleet.failed_services();
    let target = match fleet.target() {
        FleetTarget::Known { version, revision } => Some((version, *revision)),
        _ => None,
    };
    let answer = json!({
        "fleet": fleet.state().to_string(),
        "revision": revision,
        "desired": target.map(|(version, revision)| json!({ "version": version, "revision": revision })),
        "versions": versions.iter().map(|(v, n)| json!({ "version": v, "hosts": n })).collect::<Vec<_>>(),
        "hosts": fleet.hosts().len(),
        "not_ok": not_ok.iter().map(|(host, v)| {
            json!({ "host": host, "verdict": v.kind().as_str(), "reason": v.message() })
        }).collect::<Vec<_>>(),
        "unaccounted": unaccounted.iter().map(|(host, how)| {
            json!({ "host": host, "how": how.to_string() })
        }).collect::<Vec<_>>(),
        "unconfirmed": fleet.unconfirmed().into_iter().flat_map(|(version, hosts)| {
            hosts.into_iter().map(move |host| json!({ "host": host, "version": version }))
        }).collect::<Vec<_>>(),
        "alarms": extras.alarms,
        "freezes": fleet.freezes().iter().map(freezes::json_of).collect::<Vec<_>>(),
        "rollout": extras.failures.as_ref().map(|failures| {
            let mut rollout = failures.json();
            rollout["to_go_seconds"] = json!(extras.outlook.as_ref().and_then(Outlook::to_go_seconds));
            rollout
        }),
        "down": down.iter().map(|down| {
            json!({ "host": down.host, "check": down.check, "output": down.line })
        }).collect::<Vec<_>>(),
        "unpublished": fleet.unpublished().map(|(host, unpublished)| {
            json!({ "host": host, "service": unpublished.service, "reason": unpublished.reason })
        }).collect::<Vec<_>>(),
        "silent": extras.silent.iter().map(|(service, silent, all)| {
            json!({ "service": service, "silent": silent, "instances": all })
        }).collect::<Vec<_>>(),
        "out_of_use": maintenance.iter().map(|[host, service, how, reason, since]| json!({
            "host": host, "service": service, "how": how, "reason": reason, "since": since,
        })).collect::<Vec<_>>(),
    });
    output.answer(&answer, |o| {
        o.line(&format!("fleet: {}", fleet.state()));
        o.line(&match (fleet.target(), target) {
            (_, Some((version, revision))) => format!("desired: {version} (revision {revision})"),
            (FleetTarget::Invalid { why }, _) => format!("desired: not a version: {why}"),
            _ => "desired: none".into(),
        });
        o.line(&format!("hosts: {}, not ok: {}", fleet.hosts().len(), not_ok.len()));
        fleet.freezes().iter().for_each(|frozen| o.line(&frozen.to_string()));
        extras.outlook.iter().for_each(|outlook| o.line(&format!("rollout: {outlook}")));
        extras.failures.iter().flat_map(RolloutFailures::lines).for_each(|line| o.line(&line));
        section(o, versions.is_empty());
        o.table(["VERSION", "HOSTS"], versions.iter().map(|(v, n)| [v.to_string(), n.to_string()]));
        section(o, not_ok.is_empty());
        o.table(
            ["HOST", "VERDICT", "REASON"],
            not_ok.iter().map(|(host, v)| [host.to_string(), v.kind().to_string(), v.message()]),
        );
        section(o, unaccounted.is_empty());
        let rows = unaccounted.iter().map(|(host, how)| [host.to_string(), how.to_string()]);
        o.table(["UNACCOUNTED", "HOW"], rows);
        section(o, down.is_empty());
        let rows = down.iter().map(|down| [down.check.clone(), down.host.to_string(), down.line.clone()]);
        o.table(["DOWN", "HOST", "SAID"], rows);
        let rows: Vec<[String; 3]> = fleet
            .unpublished()
            .map(|(host, held)| [held.service.to_string(), host.to_string(), held.reason.clone()])
            .collect();
        section(o, rows.is_empty());
        o.table(["NOT PUBLISHED", "HOST", "REASON"], rows);
        section(o, extras.silent.is_empty());
        // Agents serve the last known state of these; `orchestrate drop-stale` ends that.
        let rows = extras.silent.iter().map(|(service, silent, all)| {
            [service.to_string(), format!("{silent} of {all}, served on as they were")]
        });
        o.table(["SERVICE", "WENT SILENT"], rows);
        section(o, maintenance.is_empty());
        o.table(["OUT OF USE", "SERVICE", "HOW", "REASON", "SINCE"], maintenance);
    });
}

/// Adds an empty line before a table that has rows.
fn section(output: &mut Output, empty: bool) {
    if !empty {
        output.line("");
    }
}

fn unaccounted_of<'a>(verdicts: &BTreeMap<&'a HostName, FleetVerdict>) -> Vec<(&'a HostName, Unaccounted)> {
    verdicts.iter().filter_map(|(host, verdict)| Some((*host, verdict.unaccounted()?))).collect()
}

/// Lists the unaccounted hosts.
pub(super) async fn unaccounted(store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
    let (fleet, revision) = fleet::read(store, None, store.deadline).await?;
    fleet::print_warnings(&fleet);
    let verdicts = fleet.verdicts();
    let found = unaccounted_of(&verdicts);
    let last_report = |host: &HostName| {
        let report = fleet.hosts().get(host).and_then(HostFacts::readable_report);
        report.and_then(|report| output::rfc3339(report.at))
    };
    let list: Vec<_> = found
        .iter()
        .map(|(host, how)| {
            let reason = verdicts[host].message();
            json!({ "host": host, "how": how.to_string(), "reason": reason, "last_report": last_report(host) })
        })
        .collect();
    output.answer(&json!({ "unaccounted": list, "revision": revision }), |o| {
        let row = |(host, how): &(&HostName, Unaccounted)| {
            [
                host.to_string(),
                how.to_string(),
                verdicts[host].message(),
                last_report(host).unwrap_or("never".into()),
            ]
        };
        o.table(["HOST", "HOW", "REASON", "LAST REPORT"], found.iter().map(row));
    });
    Ok(Exit::of(found.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Format;
    use schema::names::Version;

    fn fleet(facts: &[(&str, &str)]) -> Fleet {
        let target = FleetTarget::Known { version: Version::new("v2").unwrap(), revision: 20 };
        Fleet::new(target, facts.iter().map(|(k, v)| (*k, v.as_bytes())))
    }

    fn check(facts: &[(&str, &str)], expected: &str) {
        let mut output = Output::new(Format::Table);
        print_status(&fleet(facts), &StatusExtras::default(), 30, &mut output);
        assert_eq!(output.text(), expected);
    }

    #[test]
    fn status_names_what_is_not_ok() {
        check(
            &[("/running_version/v2/a", "1")],
            "fleet: settled\ndesired: v2 (revision 20)\nhosts: 1, not ok: 0\n\nVERSION  HOSTS\nv2       1\n",
        );
        check(
            &[
                ("/running_version/v2/a", "1"),
                ("/running_version/v1/b", "1"),
                ("/orchestrate/hosts/c", r#"{"since":1}"#),
            ],
            "fleet: failing\ndesired: v2 (revision 20)\nhosts: 3, not ok: 2\n\
             \nVERSION  HOSTS\nv1       1\nv2       1\n\
             \nHOST  VERDICT  REASON\nb     running  listed under v1\nc     lost     on the roster, but never seen\n\
             \nUNACCOUNTED  HOW\nb            late\nc            never seen\n",
        );
    }

    #[test]
    fn lists_in_json_are_never_null() {
        let mut output = Output::new(Format::Json);
        print_status(&fleet(&[]), &StatusExtras::default(), 30, &mut output);
        let value: serde_json::Value = serde_json::from_str(output.text()).unwrap();
        assert_eq!(value["fleet"], "unknown");
        for list in [
            "versions",
            "not_ok",
            "unaccounted",
            "unconfirmed",
            "down",
            "unpublished",
            "silent",
            "out_of_use",
        ] {
            assert_eq!(value[list], json!([]), "{list}");
        }
    }
}
