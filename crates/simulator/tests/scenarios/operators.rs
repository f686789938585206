//! What operators do in the middle of a rollout.

use crate::{MINUTE, SECOND, run, script, shown, starts, time_of, trigger, version};
use simulator::{Act, FleetFact};

#[test]
fn accepting_the_store_in_the_middle_of_a_rollout_holds_it_until_the_freeze_is_lifted() {
    let (accepted, lifted) = (45 * SECOND, 5 * MINUTE);
    let acts = vec![trigger(0, "v2"), (accepted, Act::Accept(version("v2"))), (lifted, Act::Unfreeze)];
    let history = run(&script(10, "[[limit]]\nby = \"fleet\"\nmax = 2\n", acts));
    let before = starts(&history).filter(|(at, _)| *at < accepted).count();
    assert!((1..10).contains(&before), "{before}");
    // The transaction takes up to half a second to the store.
    let held = starts(&history).filter(|(at, _)| (accepted + 500..lifted).contains(at)).count();
    assert_eq!(held, 0, "{}", shown(&history));
    assert_eq!(history.hosts_at(&version("v2")), 10, "{}", shown(&history));
    time_of(&history, &FleetFact::Ended);
}
