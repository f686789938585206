//! What `plan` says of a rollout then happens.

use crate::{policy, run, version};
use planning::rollout::{Durations, Forecast, ForecastInput, forecast, hosts_of, resolve};
use schema::instruction::Instruction;
use schema::keys::Key;
use schema::names::HostName;
use schema::order::InstructionOrder;
use schema::snapshot::{Entry, KeySnapshot};
use schema::steps::StepPhase;
use schema::time::EpochSeconds;
use simulator::{Act, Flaw, FleetFact, History, Script, ScriptHost, Wrong};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const POLICY: &str = r#"
    failure_budget = 5
    [[limit]]
    by = "fleet"
    max = 20
    [[limit]]
    by = "role"
    max = "10%"
    values = { db = 4 }
    [[stage]]
    name = "canary"
    count = 2
    soak = "2m"
    [[stage]]
    name = "databases"
    select = { role = ["db"] }
    [[stage]]
    name = "tenth"
    share = "10%"
    soak = "1m"
"#;
/// The largest number of hosts that are updated at once: they can swap their turns.
const AT_ONCE: usize = 20;
/// Any time does where no window is.
const NOW: EpochSeconds = EpochSeconds(1_000_000_000);

/// 1,000 hosts of three roles. The steps take 5 seconds.
fn script(failing: &[HostName]) -> Script {
    let hosts = (0..1_000).map(|number| {
        let name = format!("h{number}");
        ScriptHost::new(&name).role(role_of(&HostName::new(&name).expect("a name")))
    });
    let flaw = Flaw { what: Wrong::Fails(StepPhase::Apply), hosts: failing.to_vec() };
    let flaws = if failing.is_empty() { BTreeMap::new() } else { BTreeMap::from([(version("v2"), flaw)]) };
    let acts = vec![(0, Act::Look), (1_000, Act::Trigger(version("v2")))];
    let (policy, step_millis) = (Some(policy(POLICY)), 5_000);
    // A halted rollout does not end.
    let lasts = if failing.is_empty() { 2 * 60 * 60_000 } else { 20 * 60_000 };
    let mut script =
        Script { hosts: hosts.collect(), policy, flaws, acts, step_millis, lasts, ..Script::default() };
    // A host that validates as its turn comes lets others go first.
    script.agent.validate_every = Duration::from_secs(12 * 60 * 60);
    script
}

fn role_of(host: &HostName) -> &'static str {
    let number: usize = host.as_str()[1..].parse().expect("a number");
    ["web", "web", "web", "db", "cache"][number % 5]
}

/// What is expected of the rollout, from what the store held before it.
pub(super) fn expected(before: &KeySnapshot, failing: &[HostName], now: EpochSeconds) -> Forecast {
    let mut found = before.clone();
    let order = InstructionOrder { epoch: 0, revision: found.revision + 1 };
    let revision = order.revision;
    let entry =
        Entry { value: "v2".into(), create_revision: revision, mod_revision: revision, lease: 0, version: 1 };
    found.entries.insert(Key::CurrentVersion.to_string(), entry);
    let record = resolve(&Instruction { order, version: version("v2") }, &found, now);
    assert_eq!(record.refused, None);
    let durations = Durations::of_reports(&hosts_of(&found), &BTreeMap::new(), &found);
    assert!(durations.median().is_some(), "reports say how long steps take");
    let failing: BTreeSet<HostName> = failing.iter().cloned().collect();
    let (record, found, durations, failing) = (&record, &found, &durations, &failing);
    forecast(&ForecastInput { order, record, found, durations, failing, now })
}

/// The hosts that started, with the number of the last stage that was open then.
fn started(history: &History) -> Vec<(HostName, u32)> {
    let mut open = 0;
    let mut started = Vec::new();
    for noted in &history.log {
        match &noted.fact {
            FleetFact::StageOpened(stage) => open = *stage,
            // A host that tries again started before.
            FleetFact::Started(host, of)
                if *of == version("v2") && !started.iter().any(|(known, _)| known == host) =>
            {
                started.push((host.clone(), open));
            }
            _ => {}
        }
    }
    started
}

/// Every host starts in its stage. Those that waited for a limit go by place; the first ones find nobody who waits,
/// and go as they come.
fn check_starts(forecast: &Forecast, started: &[(HostName, u32)]) {
    let stages: BTreeMap<&HostName, u32> =
        forecast.hosts.iter().filter(|h| h.starts.is_some()).map(|h| (&h.host, h.stage)).collect();
    for (host, open) in started {
        assert_eq!(stages.get(host), Some(open), "{host} starts in another stage, or was not expected to");
    }
    let last = forecast.stages.len();
    for stage in 0..u32::try_from(last).expect("few stages") {
        let of_stage = started.iter().filter(|(_, open)| *open == stage).map(|(host, _)| host);
        let waited: Vec<&HostName> = of_stage.skip(AT_ONCE).collect();
        let planned = forecast.hosts.iter().map(|planned| &planned.host).filter(|host| waited.contains(host));
        for (planned_at, host) in planned.enumerate() {
            let at = waited.iter().position(|other| *other == host).expect("one of them");
            let differs = at.abs_diff(planned_at);
            assert!(
                differs <= 2 * AT_ONCE,
                "{host} of stage {stage} is number {at}, planned as number {planned_at}"
            );
        }
    }
}

#[test]
fn stages_canaries_and_order_happen_as_planned() {
    let history = run(&script(&[]));
    let forecast = expected(&history.looks[0], &[], NOW);
    let started = started(&history);
    assert_eq!(started.len(), 1_000);
    check_starts(&forecast, &started);
    assert_eq!((forecast.halt, forecast.why), (None, None));
    // The canaries are those of the record.
    let canaries = |hosts: &[&HostName]| hosts.iter().copied().cloned().collect::<BTreeSet<_>>();
    let planned: Vec<&HostName> =
        forecast.hosts.iter().filter(|host| host.stage == 0).map(|host| &host.host).collect();
    let first: Vec<&HostName> = started.iter().filter(|(_, open)| *open == 0).map(|(host, _)| host).collect();
    assert_eq!(canaries(&planned), canaries(&first));
    assert_eq!(planned.len(), 6, "two of each role");
    let ended = history.time_of(&FleetFact::Ended).expect("an end") / 1_000;
    let planned = forecast.ends.expect("an end").as_secs();
    assert!(
        planned <= ended * 13 / 10 && ended <= planned * 13 / 10,
        "planned {planned} s, it took {ended} s"
    );
}

#[test]
fn a_halt_happens_where_it_was_planned() {
    let names: Vec<HostName> = (0..1_000)
        .filter(|number| number % 25 == 1)
        .map(|number| HostName::new(format!("h{number}")).expect("a name"))
        .collect();
    let history = run(&script(&names));
    let forecast = expected(&history.looks[0], &names, NOW);
    let halted = history.all(|fact| match fact {
        FleetFact::Halted(why) => Some(why.clone()),
        _ => None,
    });
    let halted: Vec<(u64, String)> = halted.collect();
    let [(_, why)] = &halted[..] else { panic!("one halt: {halted:?}") };
    assert_eq!(forecast.halt.as_ref().map(|(_, why)| why), Some(why));
    let started = started(&history);
    let planned = forecast.hosts.iter().filter(|host| host.starts.is_some()).count();
    // The order within as many hosts as go at once is drawn, and so many are under way when the rollout halts.
    let differs = started.len().abs_diff(planned);
    assert!(differs <= 2 * AT_ONCE, "planned {planned} hosts, {} started", started.len());
    let stage = |open: Option<u32>| open.expect("a host started");
    let planned_stage = forecast.hosts.iter().filter(|h| h.starts.is_some()).map(|h| h.stage).max();
    assert_eq!(stage(started.last().map(|(_, open)| *open)), stage(planned_stage));
}
