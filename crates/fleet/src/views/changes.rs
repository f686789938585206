//! What changed about hosts by itself: verdicts, phases, listings, the health of services, and whether their agents run.
//! No key tells of that; it follows from what keys held before and after.

use super::automatic::{automatic_act, tells_of_acts};
use super::past_event::{HostChange, PastEvent};
use planning::calendar::rfc3339;
use schema::health::Health;
use schema::keys::{self, Key};
use schema::names::HostName;
use schema::records::Report;
use schema::snapshot::{Entry, KeyChange};
use schema::time::EpochSeconds;
use schema::verdict::HostVerdict;
use std::collections::BTreeMap;

/// True for the keys from which [`host_changes`] follow.
pub fn tells_of_hosts(key: &str) -> bool {
    let Ok(key) = Key::parse(key) else { return false };
    let is_of_host = matches!(key, Key::Report(_) | Key::Live(_) | Key::RunningVersion(..));
    is_of_host || is_event(&key) || tells_of_acts(&key)
}

fn is_event(key: &Key) -> bool {
    matches!(key, Key::Event(_) | Key::HostEvent(..))
}

/// Returns what changed about hosts at one revision, which the store reached at a time. Reports that cannot be read tell
/// nothing.
pub fn host_changes(revision: i64, at: EpochSeconds, changes: &[KeyChange]) -> Vec<PastEvent> {
    let mut events = Vec::new();
    let mut listings: BTreeMap<HostName, (&KeyChange, [Option<String>; 2])> = BTreeMap::new();
    for change in changes {
        match Key::parse(&change.key) {
            Ok(Key::Report(host)) => events.extend(of_report(&host, change)),
            Ok(Key::Live(host)) if change.before.is_some() != change.after.is_some() => {
                let word = |entry: &Option<Entry>| entry.as_ref().map(|_| "live".to_owned());
                let values = [word(&change.before), word(&change.after)];
                let live = event(&host, &change.key, HostChange::Live, values);
                events.push(PastEvent { reason: end_of(&host, change, changes), ..live });
            }
            Ok(Key::Health(..)) => {
                let word = |entry: &Option<Entry>| Some(Health::read(&entry.as_ref()?.value)?.to_string());
                let values = [word(&change.before), word(&change.after)];
                if values[0] != values[1] {
                    let health = PastEvent::automatic(&change.key, HostChange::Health, None);
                    let [old_value, new_value] = values;
                    events.push(PastEvent { old_value, new_value, ..health });
                }
            }
            // An act deletes old events for its own. Nothing else does, so somebody else did.
            Ok(key) if is_event(&key) => {
                let has_new = || changes.iter().any(is_new_event);
                if let (Some(before), None) = (&change.before, &change.after)
                    && !has_new()
                {
                    events.push(PastEvent::read(&change.key, before).deleted(&change.key));
                }
            }
            Ok(key) if tells_of_acts(&key) && change.before.is_none() => {
                let act = change.after.as_ref().and_then(|entry| automatic_act(&change.key, entry));
                events.extend(act);
            }
            // A host that moves from one version to another is one change.
            Ok(Key::RunningVersion(version, host)) => {
                let listing = listings.entry(host).or_insert((change, [None, None]));
                if change.before.is_some() {
                    listing.1[0] = Some(version.to_string());
                }
                if change.after.is_some() {
                    *listing = (change, [listing.1[0].take(), Some(version.to_string())]);
                }
            }
            _ => {}
        }
    }
    for (host, (change, values)) in listings {
        if values[0] != values[1] {
            let listing = event(&host, &change.key, HostChange::Listing, values);
            // A host takes itself off its list in a transaction with its report.
            let by_host = changes.iter().any(|other| Key::parse(&other.key) == Ok(Key::Report(host.clone())));
            let by = if by_host { Some(host.to_string()) } else { listing.by.clone() };
            events.push(PastEvent { by, reason: end_of(&host, change, changes), ..listing });
        }
    }
    // What tells of a rollback is written after it.
    let dated = |event: PastEvent| match event.change {
        Some(HostChange::Rollback) => event,
        _ => PastEvent { at: rfc3339(at), seconds: Some(at), revision, ..event },
    };
    events.into_iter().map(dated).collect()
}

fn is_new_event(change: &KeyChange) -> bool {
    change.after.is_some() && Key::parse(&change.key).is_ok_and(|key| is_event(&key))
}

fn of_report(host: &HostName, change: &KeyChange) -> Vec<PastEvent> {
    let read = |entry: &Option<Entry>| keys::Report::read(&entry.as_ref()?.value).ok();
    let Some(after) = read(&change.after) else { return Vec::new() };
    let before = read(&change.before);
    // What was there and cannot be read, because it was erased or damaged, is not nothing.
    if before.is_none() && change.before.is_some() {
        return Vec::new();
    }
    let mut events = Vec::new();
    let is_same = before.as_ref().is_some_and(|before| before.verdict.is_same_as(&after.verdict));
    if !is_same {
        let word = |report: &Report| report.verdict.kind().as_str().to_owned();
        let values = [before.as_ref().map(word), Some(word(&after))];
        let message = Some(after.verdict.message()).filter(|message| !message.is_empty());
        let changed = event(host, &change.key, HostChange::Verdict, values);
        events.push(PastEvent { reason: message, ..changed });
    }
    if let Some(before) = before.filter(|before| before.phase != after.phase) {
        let values = [before.phase, after.phase].map(|phase| Some(phase.to_string()));
        events.push(event(host, &change.key, HostChange::Phase, values));
    }
    events
}

/// Returns how a key ended; `None` if it exists. A lease ends keys together. A host that deletes its own key says why by
/// the same transaction: it starts an update, or its version is proven no more.
fn end_of(host: &HostName, change: &KeyChange, changes: &[KeyChange]) -> Option<String> {
    if change.after.is_some() {
        return None;
    }
    let is_of_host = |key: &str| match Key::parse(key) {
        Ok(Key::Report(of) | Key::Live(of) | Key::RunningVersion(_, of)) => of == *host,
        _ => false,
    };
    let written =
        changes.iter().filter(|other| is_of_host(&other.key)).find_map(|other| other.after.as_ref());
    let had_lease = change.before.as_ref().is_some_and(|entry| entry.lease != 0);
    let report = written.and_then(|entry| keys::Report::read(&entry.value).ok());
    Some(match (report, written) {
        (Some(Report { verdict: HostVerdict::Running { version }, .. }), _) => {
            format!("an update to {version} starts")
        }
        (Some(report), _) => report.verdict.message(),
        (None, None) if had_lease => "its lease ended".into(),
        (None, _) => "the key was deleted".into(),
    })
}

fn event(host: &HostName, key: &str, change: HostChange, [old, new]: [Option<String>; 2]) -> PastEvent {
    // Whoever wrote the key; it may also have ended with its lease.
    let by = new.is_some().then(|| host.to_string());
    PastEvent { old_value: old, new_value: new, ..PastEvent::automatic(key, change, by) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::codec;
    use schema::names::{StepName, Token};
    use schema::order::InstructionOrder;
    use schema::plan::Phase;
    use schema::steps::{StepEnd, StepPhase};
    use schema::verdict::{Failure, HostFailure};

    fn report(verdict: HostVerdict, phase: Phase) -> String {
        let idle = Report::idle(EpochSeconds(0), Token::new("w").unwrap());
        codec::write(&Report { verdict, phase, ..idle })
    }

    #[test]
    fn changes_of_hosts_are_told_and_nothing_else() {
        let failure =
            Failure::of(StepPhase::Apply, StepName::new("pkg").unwrap(), StepEnd::Exited { code: 3 });
        let failed = HostVerdict::Failed(HostFailure { version: None, failure, suspect: false });
        let ok = report(HostVerdict::Ok, Phase::Idle);
        let (broken, works) = (report(failed, Phase::Idle), report(HostVerdict::Ok, Phase::Apply));
        let report_key = "/orchestrate/reports/web1";
        let check = |changes: &[(&str, Option<&str>, Option<&str>)], expected: &[&str]| {
            let entry = |value: &str| Entry {
                value: value.into(),
                create_revision: 1,
                mod_revision: 1,
                lease: i64::from(value == "leased"),
                version: 1,
            };
            let change = |(key, before, after): &(&str, Option<&str>, Option<&str>)| KeyChange {
                key: (*key).to_owned(),
                before: before.map(entry),
                after: after.map(entry),
            };
            let changes: Vec<KeyChange> = changes.iter().map(change).collect();
            let events = host_changes(7, EpochSeconds(1_700_000_000), &changes);
            let rows: Vec<String> = events.iter().map(|event| event.row()[1..].join("|")).collect();
            assert_eq!(rows, expected);
            assert!(events.iter().all(|event| event.revision == 7 && event.at.is_some()));
        };
        check(&[(report_key, Some(&ok), Some(&ok))], &[]);
        check(
            &[(report_key, Some(&ok), Some(&broken))],
            &["web1|verdict|host web1: ok to failed|apply step pkg exited with code 3"],
        );
        check(&[(report_key, None, Some(&ok))], &["web1|verdict|host web1: none to ok|"]);
        check(&[(report_key, Some(&ok), Some(&works))], &["web1|phase|host web1: idle to apply|"]);
        check(&[(report_key, Some(&ok), None)], &[]);
        check(&[(report_key, Some(&ok), Some("no JSON"))], &[]);
        check(&[(report_key, Some("(erased)"), Some(&ok))], &[]);
        let (old, new) = ("/running_version/1/web1", "/running_version/2/web1");
        check(&[(old, Some("1"), None), (new, None, Some("2"))], &["web1|listing|host web1: 1 to 2|"]);
        check(&[(old, Some("1"), Some("2"))], &[]);
        check(&[(old, Some("1"), None)], &["unknown|listing|host web1: 1 to none|the key was deleted"]);
        let ended = "unknown|listing|host web1: 1 to none|its lease ended";
        check(&[(old, Some("leased"), None)], &[ended]);
        // The host took itself off its list.
        let towards = HostVerdict::Running { version: schema::names::Version::new("2").unwrap() };
        let starts = report(towards, Phase::Start);
        let by_host = [(old, Some("leased"), None), (report_key, Some(&starts[..]), Some(&starts[..]))];
        check(&by_host, &["web1|listing|host web1: 1 to none|an update to 2 starts"]);
        let order = InstructionOrder { epoch: 1, revision: 7 };
        let (health, rollout) = ("/orchestrate/health/web/web1", format!("/orchestrate/rollouts/{order}"));
        check(
            &[(health, Some("passing"), Some("critical"))],
            &["unknown|health|web on host web1: passing to critical|"],
        );
        check(&[(health, Some("critical"), Some("critical"))], &[]);
        let (halt, value) =
            (format!("{rollout}/halt"), r#"{"format":1,"at":1,"by":"db1","why":"1 host failed"}"#);
        check(&[(&halt, None, Some(value))], &["db1|halt|the rollout of revision 7|1 host failed"]);
        check(&[(&halt, Some(value), None)], &[]);
        let live = "/orchestrate/live/web1";
        check(&[(live, Some("a"), None)], &["unknown|live|host web1: live to none|the key was deleted"]);
        check(&[(live, Some("leased"), None)], &["unknown|live|host web1: live to none|its lease ended"]);
        check(&[(live, None, Some("a"))], &["web1|live|host web1: none to live|"]);
        check(&[(live, Some("a"), Some("b"))], &[]);
        let event = "/orchestrate/events/1700000000000-a";
        let acted = r#"{"format":1,"by":"ann","client":"c","verb":"retry","what":"/orchestrate/retry/web1"}"#;
        check(
            &[(event, Some(acted), None)],
            &[
                "unknown|no command|/orchestrate/events/1700000000000-a|somebody deleted this event: ann, retry, host web1",
            ],
        );
        check(&[(event, None, Some(acted))], &[]);
        check(&[(event, Some(acted), None), ("/orchestrate/events/1700000000001-b", None, Some(acted))], &[]);
        check(&[("/orchestrate/config/a", None, Some("x")), ("/elsewhere", None, Some("x"))], &[]);
    }
}
