//! `plan` and the time to go are near to what happens, whatever the policy is, while no host fails or falls.

use crate::forecast::expected;
use crate::{MINUTE, SECOND, policy, run, version};
use planning::rollout::PresentRollout;
use schema::snapshot::KeySnapshot;
use schema::time::EpochSeconds;
use simulator::{Act, FleetFact, Script, ScriptHost};
use std::time::Duration;

/// Number of fleets.
const FLEETS: u64 = 100;
/// The times of a running rollout are told by the store in whole seconds: when hosts started and were proven, and what
/// is left.
const CLOCKS: f64 = 2.0;
/// When the version is triggered.
const TRIGGER: u64 = SECOND;

/// Draws a policy.
fn drawn_policy(rng: &mut fastrand::Rng, hosts: u64) -> String {
    let mut text = String::new();
    if rng.u32(0..3) == 0 {
        text += &format!("hold = \"{}s\"\n", rng.u32(5..180));
    }
    let has_stages = rng.u32(0..4) > 0;
    text += if has_stages { "failure_budget = 1\n" } else { "" };
    match rng.u32(0..4) {
        0 if !has_stages => text += "[[limit]]\nby = \"group\"\nmax = 1\n",
        1 => text += &format!("[[limit]]\nby = \"fleet\"\nmax = \"{}%\"\n", rng.u32(10..60)),
        _ => text += &format!("[[limit]]\nby = \"fleet\"\nmax = {}\n", rng.u64(1..hosts.min(14))),
    }
    if rng.bool() {
        text += &format!("[[limit]]\nby = \"role\"\nmax = \"{}%\"\n", rng.u32(20..70));
        text += &format!("values = {{ db = {} }}\n", rng.u32(1..3));
    }
    for number in 0..if has_stages { rng.u32(1..4) } else { 0 } {
        text += &format!("[[stage]]\nname = \"s{number}\"\n");
        text += match rng.u32(0..4) {
            0 => "share = \"30%\"\n",
            1 => "select = { role = [\"db\"] }\n",
            _ => "count = 1\n",
        };
        if rng.u32(0..3) > 0 {
            text += &format!("soak = \"{}s\"\n", rng.u32(5..180));
        }
    }
    if rng.u32(0..6) == 0 {
        // The fleets begin at 22:13 UTC.
        text += &format!("[[window]]\nfrom = \"22:{}\"\nto = \"22:10\"\nzone = \"UTC\"\n", rng.u32(14..40));
    }
    text
}

fn drawn(seed: u64) -> (String, Script) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let count = rng.u64(3..30);
    let role = |rng: &mut fastrand::Rng| *rng.choice(["web", "web", "db", "cache"].iter()).expect("a role");
    let hosts = (0..count).map(|number| ScriptHost::new(&format!("h{number}")).role(role(&mut rng)));
    let hosts = hosts.collect();
    let text = drawn_policy(&mut rng, count);
    // From half a second to a minute: short ones as often as long ones.
    let step_millis = (500.0 * 120f64.powf(rng.f64())) as u64;
    let mut script = Script { hosts, seed, step_millis, policy: Some(policy(&text)), ..Script::default() };
    script.agent.validate_every = Duration::from_secs(rng.u64(60..600));
    if rng.u32(0..3) == 0 {
        script.agent.steps.prefetch = script.agent.steps.validate.clone();
    }
    script.acts = vec![(0, Act::Look), (TRIGGER, Act::Trigger(version("v2")))];
    (text, script)
}

/// Returns the time that a rollout still takes by what the store holds, as `rollout status` says it.
fn to_go(found: &KeySnapshot, now: EpochSeconds) -> Option<f64> {
    let present = PresentRollout::find(found).ok()?;
    let seconds = present.outlook(found, now).to_go_seconds()?;
    Some(seconds as f64)
}

/// Checks that two times in seconds differ by a factor of at most 1.3, apart from this allowance.
fn check_near(what: &str, [expected, real]: [f64; 2], allowance: f64) {
    let is_near = real <= 1.3 * expected + allowance && expected <= 1.3 * real + allowance;
    assert!(is_near, "{what}: expected {expected:.1} s, it was {real:.1} s");
}

#[test]
fn the_plan_and_the_time_to_go_are_within_a_third_of_what_happens() {
    for seed in 0..FLEETS {
        let (text, script) = drawn(seed);
        let what = format!("seed {seed}\n{text}");
        let ended = run(&script).time_of(&FleetFact::Ended).unwrap_or_else(|| panic!("no end: {what}"));
        // The same again, and somebody looks nine times while it goes on.
        let took = ended - TRIGGER;
        let looks = (1..10).map(|tenth| TRIGGER + took * tenth / 10);
        let acts = script.acts.iter().cloned().chain(looks.clone().map(|at| (at, Act::Look)));
        let history = run(&Script { acts: acts.collect(), ..script.clone() });
        let record = PresentRollout::find(&history.end).expect("a rollout").record;
        let seconds = |millis: u64| millis as f64 / 1_000.0;
        let plan = expected(&history.looks[0], &[], record.at);
        let planned = plan.ends.unwrap_or_else(|| panic!("it would not end: {:?}: {what}", plan.why));
        check_near(&format!("the plan, {what}"), [planned.as_secs_f64(), seconds(took)], 0.0);
        for (at, found) in looks.zip(&history.looks[1..]) {
            let now = EpochSeconds(record.at.0 + ((at - TRIGGER) / 1_000) as i64);
            if let Some(to_go) = to_go(found, now) {
                let what = format!("the time to go after {at} ms, {what}");
                check_near(&what, [to_go, seconds(ended - at)], CLOCKS);
            }
        }
    }
}

#[test]
fn a_window_that_closes_holds_the_hosts_that_the_plan_says() {
    for (max, step_millis) in [(1, 4_000), (3, 7_000), (20, 4_000)] {
        // The fleet begins at 22:13 UTC, and the window closes at 22:16.
        let text = format!(
            "[[limit]]\nby = \"fleet\"\nmax = {max}\n[[window]]\nfrom = \"20:00\"\nto = \"22:16\"\nzone = \"UTC\"\n"
        );
        let acts = vec![(0, Act::Look), (TRIGGER, Act::Trigger(version("v2")))];
        let script = Script { step_millis, lasts: 10 * MINUTE, ..crate::script(40, &text, acts) };
        let history = run(&script);
        let record = PresentRollout::find(&history.end).expect("a rollout").record;
        let plan = expected(&history.looks[0], &[], record.at);
        let (open, held): (Vec<_>, Vec<_>) = plan
            .hosts
            .iter()
            .partition(|host| host.starts.is_some_and(|starts| starts < Duration::from_secs(60 * 60)));
        let started = crate::started(&history, &version("v2")).len();
        assert!(
            started.abs_diff(open.len()) <= max,
            "{} of {} planned, {started} started",
            open.len(),
            held.len()
        );
        assert_eq!(max < 20, !held.is_empty(), "{max}");
    }
}
