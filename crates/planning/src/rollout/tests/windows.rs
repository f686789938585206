//! Update windows: when a host may start, by its own clock.

use super::*;
use schema::records::{RolloutOptions, Trigger, Window};

fn seconds(time: &str) -> EpochSeconds {
    EpochSeconds(time.parse::<jiff::Timestamp>().unwrap_or_else(|e| panic!("{time}: {e}")).as_second())
}

fn windows(tables: &str) -> Vec<Window> {
    let tables = tables.replace(']', "\n").replace('[', "[[window]]\n").replace("; ", "\n");
    read_policy("p.toml", &tables).unwrap_or_else(|e| panic!("{tables}: {e}")).windows
}

#[test]
fn a_host_starts_while_a_window_is_open() {
    let check = |tables: &str, now: &str, expected: Option<&str>| {
        let next = next_window(&windows(tables), Place(0), seconds(now)).unwrap();
        assert_eq!(next.as_ref().map(|next| next.opens.as_str()), expected, "{tables} at {now}");
    };
    let work = "[days = \"Mon-Thu\"; from = \"09:00\"; to = \"16:00\"; zone = \"Europe/Berlin\"]";
    // Tuesday. Berlin is one hour ahead in November.
    check(work, "2026-11-24T08:00:00Z", None);
    check(work, "2026-11-24T07:59:59Z", Some("Tue 2026-11-24 09:00 Europe/Berlin"));
    check(work, "2026-11-24T14:59:59Z", None);
    check(work, "2026-11-24T15:00:00Z", Some("Wed 2026-11-25 09:00 Europe/Berlin"));
    check(work, "2026-11-26T15:00:00Z", Some("Mon 2026-11-30 09:00 Europe/Berlin"));
    // In July it is two hours ahead.
    check(work, "2026-07-21T07:00:00Z", None);
    // A day belongs to the opening: Friday's window ends on Saturday.
    let night = "[days = \"Fri\"; from = \"22:00\"; to = \"04:00\"; zone = \"UTC\"]";
    check(night, "2026-11-28T03:59:59Z", None);
    check(night, "2026-11-27T03:00:00Z", Some("Fri 2026-11-27 22:00 UTC"));
    check(night, "2026-11-28T04:00:00Z", Some("Fri 2026-12-04 22:00 UTC"));
    // A whole day, and two windows.
    let day = "[days = \"Sat,Sun\"; from = \"00:00\"; to = \"24:00\"; zone = \"UTC\"]";
    check(day, "2026-11-28T23:59:59Z", None);
    check(day, "2026-11-30T00:00:00Z", Some("Sat 2026-12-05 00:00 UTC"));
    check(&[work, day].concat(), "2026-11-27T12:00:00Z", Some("Sat 2026-11-28 00:00 UTC"));
    check("[from = \"09:00\"; to = \"10:00\"; zone = \"UTC\"]", "2026-11-28T09:30:00Z", None);
    check("", "2026-11-28T09:30:00Z", None);
    // The night in which 02:00 to 03:00 is missing.
    let missing = "[days = \"Sun\"; from = \"02:00\"; to = \"03:00\"; zone = \"Europe/Berlin\"]";
    check(missing, "2026-03-29T00:30:00Z", Some("Sun 2026-04-05 02:00 Europe/Berlin"));
    check(missing, "2026-10-25T00:30:00Z", None);
}

/// The sentences of the manual about the two nights of a year in which clocks change.
#[test]
fn a_window_in_the_night_in_which_the_clocks_change_ends_when_its_times_say() {
    let open = |from: &str, to: &str, zone: &str, day: &str| {
        let tables = format!("[from = \"{from}\"; to = \"{to}\"; zone = \"{zone}\"]");
        let (windows, midnight) = (windows(&tables), seconds(&format!("{day}T00:00:00Z")).0);
        // The minutes of UTC in which a host may start, from the evening before on.
        let minutes = (-180..480).filter(|minute| {
            next_window(&windows, Place(0), EpochSeconds(midnight + minute * 60)).unwrap().is_none()
        });
        let minutes: Vec<i64> = minutes.collect();
        let is_one_piece = minutes.windows(2).all(|pair| pair[1] == pair[0] + 1);
        assert!(is_one_piece, "{tables}: {minutes:?}");
        minutes.first().map(|first| (*first, minutes.len()))
    };
    let (berlin, new_york) = ("Europe/Berlin", "America/New_York");
    // In spring an hour is missing. A window in it does not open in that night.
    assert_eq!(open("02:00", "03:00", berlin, "2026-03-29"), None);
    assert_eq!(open("02:00", "03:00", new_york, "2026-03-08"), None);
    // A time in the missing hour is an hour later: half past three.
    assert_eq!(open("01:00", "02:30", berlin, "2026-03-29"), Some((0, 90)));
    assert_eq!(open("02:30", "04:00", berlin, "2026-03-29"), Some((90, 30)));
    // A window around it is an hour shorter.
    assert_eq!(open("01:00", "04:00", berlin, "2026-03-29"), Some((0, 120)));
    // In autumn an hour is there twice, and a time in it is the first one. A window of it has both.
    assert_eq!(open("02:00", "03:00", berlin, "2026-10-25"), Some((0, 120)));
    assert_eq!(open("01:00", "02:00", new_york, "2026-11-01"), Some((300, 120)));
    assert_eq!(open("01:00", "02:00", "Europe/London", "2026-10-25"), Some((0, 120)));
    // It closes at the first of the two times.
    assert_eq!(open("01:00", "02:30", berlin, "2026-10-25"), Some((-60, 90)));
    assert_eq!(open("02:30", "04:00", berlin, "2026-10-25"), Some((30, 150)));
    assert_eq!(open("01:00", "04:00", berlin, "2026-10-25"), Some((-60, 240)));
}

#[test]
fn hosts_enter_a_window_one_after_the_other() {
    let windows = windows("[from = \"09:00\"; to = \"16:00\"; zone = \"UTC\"]");
    let starts = |place: u32, now: &str| {
        let next = next_window(&windows, Place(place), seconds(now)).unwrap();
        next.map(|next| next.starts)
    };
    assert_eq!(starts(0, "2026-11-24T08:00:00Z"), Some(seconds("2026-11-24T09:00:00Z")));
    assert_eq!(starts(u32::MAX, "2026-11-24T08:00:00Z"), Some(seconds("2026-11-24T09:00:29Z")));
    assert_eq!(starts(u32::MAX / 2, "2026-11-24T09:00:10Z"), Some(seconds("2026-11-24T09:00:14Z")));
    assert_eq!(starts(u32::MAX, "2026-11-24T09:00:29Z"), None);
}

proptest! {
    #[test]
    fn the_next_window_is_open_when_it_comes_and_closed_before(
        now in 1_700_000_000_i64..1_900_000_000,
        from in 0_u16..24,
        hours in 1_u16..24,
        place: u32,
    ) {
        let to = (from + hours) % 24;
        let text = format!("[days = \"Tue,Sat\"; from = \"{from:02}:30\"; to = \"{to:02}:30\"; zone = \"America/New_York\"]");
        let windows = windows(&text);
        let at = |now: i64| next_window(&windows, Place(place), EpochSeconds(now)).unwrap().map(|next| next.starts);
        if let Some(starts) = at(now) {
            prop_assert!(starts.0 > now);
            prop_assert_eq!(at(starts.0), None);
            prop_assert_eq!(at(starts.0 - 1), Some(starts));
        }
    }
}

const WINDOW: &str = "[[window]]\nfrom = \"09:00\"\nto = \"16:00\"\nzone = \"UTC\"\n";

fn at_wall(time: &str) -> Now {
    Now { boot: BootMillis(1_000), wall: seconds(time) }
}

/// What holds `web0`, and when it tries again, in seconds.
fn outcome(found: &Found, need: ClaimNeed, time: &str) -> (Result<(), String>, Option<u64>) {
    let now = at_wall(time);
    let view = RolloutView::new(&host("web0"), &instruction(), &found.0, now);
    let permit = view.permit(&FoundClaims::default(), need, now).map(drop);
    let tries_in = view.tries_at(now).map(|at| at.since(now.boot).as_secs());
    (permit.map_err(|obstacle| obstacle.detail()), tries_in)
}

#[test]
fn a_policy_of_windows_alone_holds_hosts() {
    let mut found = Found::default();
    found.hosts("web", 1).policy(WINDOW, 10).with_record();
    let why = "no update window is open; the next one opens Tue 2026-11-24 09:00 UTC".to_owned();
    let closed = "2026-11-24T07:00:00Z";
    assert_eq!(outcome(&found, ClaimNeed::Take, closed), (Err(why.clone()), Some(60)));
    assert_eq!(outcome(&found, ClaimNeed::Take, "2026-11-24T12:00:00Z"), (Ok(()), None));
    // Just before it opens the host waits no longer than that.
    let (held, tries_in) = outcome(&found, ClaimNeed::Take, "2026-11-24T08:59:59Z");
    assert!(held.is_err() && tries_in.is_some_and(|seconds| seconds <= 31), "{tries_in:?}");
    // A host that is not available anyway does not wait.
    for need in [ClaimNeed::Retake, ClaimNeed::Nothing, ClaimNeed::FirstInstall] {
        assert_eq!(outcome(&found, need, closed).0, Ok(()), "{need:?}");
    }
}

#[test]
fn a_host_outside_its_windows_has_nothing_to_do_with_limits() {
    let mut found = of_web(1);
    found.policy(&format!("[[limit]]\nby = \"role\"\nmax = 1\n{WINDOW}"), 10).with_record().claim(0, "web9");
    let view = |time: &str| RolloutView::new(&host("web0"), &instruction(), &found.0, at_wall(time));
    assert!(view("2026-11-24T12:00:00Z").holders().is_some());
    let outside = view("2026-11-24T07:00:00Z");
    assert!(outside.holders().is_none() && outside.is_far_back());
    assert!(!outside.ranges().contains(&Prefix::ClaimsOf(web())));
}

#[test]
fn a_rollback_has_no_windows() {
    let mut found = Found::default();
    found.hosts("web", 1).policy(WINDOW, 10);
    assert_eq!(found.record().windows.len(), 1);
    let (at, options) = (EpochSeconds(1), RolloutOptions::default());
    let trigger = Trigger { at, by: "ann".into(), reason: None, from: None, options, rollback: true };
    found.put(&Key::Trigger, &codec::write(&trigger), 50).put(&Key::CurrentVersion, "v2", 50);
    assert_eq!(found.record().windows, []);
}

#[test]
fn windows_that_cannot_be_used_are_refused() {
    let check = |change: [&str; 2], expected: &str| {
        let text = WINDOW.replace(change[0], change[1]);
        let error = read_policy("p.toml", &text).expect_err(&text).to_string();
        assert!(error.contains(expected), "{error}");
    };
    check(["UTC", "Europe/Berln"], "the zone \"Europe/Berln\" of a window is unknown");
    check(
        ["16:00", "09:00"],
        "a window opens and closes at 09:00; a whole day is from \"00:00\" to \"24:00\"",
    );
    check(["16:00", "16"], "\"16\" is no time of the day");
    check(["from", "days = \"Mo-Do\"\nfrom"], "\"Mo-Do\" are no days of the week");
    check(["zone = \"UTC\"\n", ""], "window: the setting `zone` is missing");
    check(["from", "start = \"1\"\nfrom"], "unknown setting `start`");
}
