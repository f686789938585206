//! How many hosts may be unavailable, and how much of the failure budget is used, in words.

use crate::rollout::present::numbers;
use schema::limit::LimitBy;
use schema::names::LimitValue;
use schema::records::ResolvedLimit;

#[test]
fn the_numbers_are_the_limits_and_the_budget() {
    let limits = [
        ResolvedLimit { by: LimitBy::Fleet, max: 6, values: [].into(), keep_failed: None },
        ResolvedLimit {
            by: LimitBy::Role,
            max: 2,
            values: [(LimitValue::new("web").unwrap(), 3)].into(),
            keep_failed: None,
        },
    ];
    let text = "at most 6 of the fleet, 2 of each role (web 3) are unavailable at the same time";
    assert_eq!(numbers(&limits, Some(2), 1), Some(format!("{text}; failure budget: 1 of 2 used")));
    assert_eq!(numbers(&limits, None, 1).as_deref(), Some(text));
    assert_eq!(numbers(&[], Some(2), 1).as_deref(), Some("failure budget: 1 of 2 used"));
    assert_eq!(numbers(&[], None, 0), None);
}
