//! Reads the fleet at one revision.

use super::context::{Store, now};
use super::services::catalog;
use crate::output;
use etcd_session::{Deadline, FoundEntry, StoreError};
use fleet::{Fleet, FleetTarget, FleetVerdict, HostFacts};
use schema::keys::{Key, Prefix};
use schema::names::{HostName, Version};
use schema::records::certificate_warning;
use schema::snapshot::KeySnapshot;
use schema::time::{EpochSeconds, format_duration};
use schema::why_not::WhyNot;
use std::time::Duration;

/// The ranges with the values that verdicts depend on. [`KEYS`] are read too. Of the listings only
/// the keys are read, because the keys hold all of their information.
const RANGES: [Prefix; 10] = [
    Prefix::Statuses,
    Prefix::Hosts,
    Prefix::Lives,
    Prefix::Announced,
    Prefix::Reports,
    Prefix::ReportingAll,
    Prefix::HealthAll,
    Prefix::Maintenances,
    Prefix::Freezes,
    Prefix::NameClashes,
];
const KEYS: [Key; 2] = [Key::CurrentVersion, Key::Store];

/// Reads the whole fleet at the given revision, or at the current one. Also returns the revision.
pub(super) async fn read(
    store: &Store<'_>,
    at: Option<i64>,
    deadline: Deadline,
) -> Result<(Fleet, i64), StoreError> {
    match read_at(store, at, deadline).await {
        // The store was compacted between two pages: a read at the next revision is as good.
        Err(StoreError::Compacted { .. }) if at.is_none() => read_at(store, at, deadline).await,
        other => other,
    }
}

async fn read_at(store: &Store<'_>, at: Option<i64>, deadline: Deadline) -> Result<(Fleet, i64), StoreError> {
    let mut fleet = Fleet::empty();
    let add = |key: &str, found: FoundEntry<'_>| {
        fleet.add(key, found.value());
        // A report that was written only once may be a copy from an exported store, and copies have no order.
        let is_rewritten = found.version() > 1;
        if let Ok(Key::Report(host)) = Key::parse(key)
            && is_rewritten
        {
            fleet.note_report_revision(&host, found.mod_revision());
        }
    };
    let snapshot = store.session.read_each(&KEYS, &RANGES, at, deadline, add).await?;
    if at.is_none() {
        store.remember_desired(&snapshot);
    }
    let listings = Prefix::RunningVersions;
    let list = store.session.read_key_list(&listings, Some(snapshot.revision), deadline).await?;
    list.suffixes().for_each(|suffix| fleet.add(&format!("{listings}{suffix}"), b""));
    Ok((fleet.complete(FleetTarget::of(&snapshot)), snapshot.revision))
}

/// Reads what keeps waiting hosts, beyond what they say themselves: deadlocks if a host waits for a service, and the
/// halt of the rollout if a host waits for its turn in it.
pub(super) async fn read_wait_causes(
    fleet: &mut Fleet,
    revision: i64,
    store: &Store<'_>,
) -> Result<(), StoreError> {
    let any = |fleet: &Fleet, test: fn(&WhyNot) -> bool| {
        fleet.verdicts().values().filter_map(FleetVerdict::why_not).any(test)
    };
    if any(fleet, |reason| matches!(reason, WhyNot::Service(_))) {
        let (view, _) = catalog::read(store, None, Some(revision)).await?;
        fleet.find_deadlocks(&view, now());
    }
    if let Some(order) = fleet.target().order()
        && any(fleet, WhyNot::depends_on_halt)
    {
        let halt = Key::Halt(order);
        let found =
            store.session.read_all(std::slice::from_ref(&halt), &[], Some(revision), store.deadline).await?;
        fleet.change(&halt.to_string(), found.get(&halt).map(|entry| entry.value.as_slice()));
    }
    Ok(())
}

/// Builds the fleet from the part of the store that is in a snapshot.
pub(super) fn fleet(snapshot: &KeySnapshot) -> Fleet {
    let entries = snapshot.entries.iter().map(|(key, entry)| (key.as_str(), entry.value.as_slice()));
    Fleet::new(FleetTarget::of(snapshot), entries)
}

/// Warns of values in the store that are not valid, and of certificates of hosts that end soon.
pub(super) fn print_warnings(fleet: &Fleet) {
    warn_of_skipped(fleet.skipped());
    warn_of_each(fleet.unreadable().iter().map(|key| format!("the value of {key} cannot be read")).collect());
    let reports =
        fleet.hosts().iter().filter_map(|(host, host_facts)| Some((host, host_facts.readable_report()?)));
    let ends =
        reports.flat_map(|(host, r)| r.facts.certificates.iter().map(move |(file, end)| (host, file, *end)));
    let warnings = ends.filter_map(|(host, file, end)| {
        certificate_warning(file, end, now()).map(|warning| format!("{host}: {warning}"))
    });
    warn_of_each(warnings.collect());
    let report = |(host, facts)| {
        let facts: &HostFacts = facts;
        let (at, revision) = (facts.readable_report()?.at, facts.report_revision);
        Some(WrittenReport { host, at, revision })
    };
    let reports: Vec<WrittenReport<'_>> = fleet.hosts().iter().filter_map(report).collect();
    warn_of_each(wrong_clocks(&reports, now()));
    warn_of_each(clocks_behind(&reports, now()));
}

/// The last report of a host.
#[derive(Debug, Clone, Copy)]
struct WrittenReport<'a> {
    host: &'a HostName,
    /// When it was written, by the clock of the host.
    at: EpochSeconds,
    /// Where it stands among all that the store was told; 0 if that is not known.
    revision: i64,
}

/// How much later than now a report may be, by the clock of its host, before that is said.
const CLOCK_DIFFERENCE: Duration = Duration::from_secs(60);

/// Returns what is wrong with the clocks of hosts whose last report lies in the future, or with the clock of this machine
/// if that is so for most of them.
fn wrong_clocks(reports: &[WrittenReport<'_>], now: EpochSeconds) -> Vec<String> {
    let count = reports.len();
    let ahead: Vec<(&HostName, Duration)> = reports
        .iter()
        .filter_map(|WrittenReport { host, at, .. }| {
            let ahead = Duration::from_secs(u64::try_from(at.0.saturating_sub(now.0)).ok()?);
            (ahead > CLOCK_DIFFERENCE).then_some((*host, ahead))
        })
        .collect();
    if ahead.len() > 1 && ahead.len() * 2 > count {
        let (hosts, least) = (ahead.len(), ahead.iter().map(|(_, ahead)| *ahead).min().unwrap_or_default());
        let least = format_duration(least);
        return vec![format!(
            "{hosts} of {count} hosts reported at least {least} later than now: the clock of this machine may be behind"
        )];
    }
    let warning = |(host, ahead): &(&HostName, Duration)| {
        format!(
            "{host}: its last report is {} later than now: its clock is ahead, or that of this machine is behind",
            format_duration(*ahead)
        )
    };
    ahead.iter().map(warning).collect()
}

/// How much earlier than a report that the store got before it a report may be, before that is said. A report that the
/// store did not take at once is as old as that.
const BEHIND_MIN: Duration = Duration::from_secs(300);

/// Returns which clocks are behind: the store got the report later than another one, and it says an earlier time. A
/// report alone does not tell, because it may be old. Reports in the future say nothing about other clocks.
fn clocks_behind(reports: &[WrittenReport<'_>], now: EpochSeconds) -> Vec<String> {
    let is_past = |at: EpochSeconds| at.0 <= now.0.saturating_add_unsigned(CLOCK_DIFFERENCE.as_secs());
    let is_ordered = |report: &&WrittenReport<'_>| report.revision != 0 && is_past(report.at);
    let mut reports: Vec<_> = reports.iter().filter(is_ordered).collect();
    reports.sort_by_key(|report| report.revision);
    let mut latest: Option<&WrittenReport<'_>> = None;
    let mut warnings = Vec::new();
    for report in reports {
        let before = latest.filter(|latest| latest.at > report.at);
        if let Some(before) = before {
            let behind = Duration::from_secs(before.at.0.abs_diff(report.at.0));
            if behind >= BEHIND_MIN {
                let (host, other, behind) = (report.host, before.host, format_duration(behind));
                warnings.push(format!(
                    "{host}: its clock is at least {behind} behind that of {other}: its last report came later and says an earlier time"
                ));
            }
        } else {
            latest = Some(report);
        }
    }
    warnings
}

/// Warns of keys with names that are not valid. Such keys never become part of an answer.
pub(super) fn warn_of_skipped(count: usize) {
    if count > 0 {
        output::warn(&format!("{count} keys hold names that are not valid and were passed over"));
    }
}

/// Warns of each, but of no more than fit on a screen, and says how many are left out.
fn warn_of_each(mut warnings: Vec<String>) {
    const PRINTED_MAX: usize = 10;
    let more = warnings.len().saturating_sub(PRINTED_MAX);
    warnings.truncate(PRINTED_MAX);
    if more > 0 {
        warnings.push(format!("and {more} more of this kind"));
    }
    warnings.iter().for_each(|warning| output::warn(warning));
}

/// Warns of listings that their hosts do not confirm.
pub(super) fn warn_of_unconfirmed_listings(fleet: &Fleet) {
    for (version, hosts) in fleet.unconfirmed() {
        warn_of_unconfirmed(version, hosts.iter().map(|host| host.as_str()));
    }
}

/// Warns of hosts that are listed under a version that their own key does not name. Every agent may
/// write the listings, and an old script that does not know the hosts' own keys may have written
/// them too.
pub(super) fn warn_of_unconfirmed<'a>(version: &Version, hosts: impl ExactSizeIterator<Item = &'a str>) {
    output::note_hosts(&format!("warning: listings under {version} that are not confirmed"), hosts);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each host with the time of its report and its revision.
    fn written(hosts: &[HostName; 3], reported: [(i64, i64); 3]) -> Vec<WrittenReport<'_>> {
        let report = |(host, (at, revision))| WrittenReport { host, at: EpochSeconds(at), revision };
        hosts.iter().zip(reported).map(report).collect()
    }

    #[test]
    fn a_host_whose_report_came_later_and_says_an_earlier_time_has_a_clock_that_is_behind() {
        let hosts = ["a", "b", "c"].map(|name| HostName::new(name).unwrap());
        let check = |reported: [(i64, i64); 3], expected: &[&str]| {
            assert_eq!(clocks_behind(&written(&hosts, reported), EpochSeconds(10_000)), expected);
        };
        check([(9_000, 3), (9_100, 4), (9_900, 5)], &[]);
        // An old report is no slow clock, and a copied one has no order.
        check([(9_000, 3), (1_800, 0), (9_900, 5)], &[]);
        check([(1_000, 3), (9_100, 4), (9_900, 5)], &[]);
        check([(9_000, 3), (8_800, 4), (9_900, 5)], &[]);
        check(
            [(9_000, 3), (1_800, 4), (9_900, 5)],
            &[
                "b: its clock is at least 2h behind that of a: its last report came later and says an earlier time",
            ],
        );
        // A clock that is ahead is told otherwise, and makes no other one late.
        check([(99_000, 3), (9_100, 4), (9_900, 5)], &[]);
    }

    #[test]
    fn a_host_whose_clock_is_ahead_is_named_and_this_machine_if_most_hosts_are() {
        let hosts = ["a", "b", "c"].map(|name| HostName::new(name).unwrap());
        let check = |reported: [i64; 3], expected: &[&str]| {
            let reports = written(&hosts, reported.map(|at| (at, 1)));
            let found = wrong_clocks(&reports, EpochSeconds(10_000));
            assert_eq!(found.len(), expected.len(), "{found:?}");
            for (found, expected) in found.iter().zip(expected) {
                assert!(found.contains(expected), "{found}");
            }
        };
        check([9_000, 10_000, 10_060], &[]);
        check([9_000, 13_600, 10_000], &["b: its last report is 1h later than now: its clock is ahead"]);
        check([13_600, 13_700, 10_000], &["2 of 3 hosts reported at least 1h later than now"]);
    }
}
