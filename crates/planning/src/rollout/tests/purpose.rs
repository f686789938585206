//! Claims for something else than an update.

use super::*;
use schema::keys;
use schema::time::Now;
use schema::transaction::{Compare, Operation};
use schema::writes::Fence;

fn command() -> Purpose {
    Purpose::Command(Token::new("c1").unwrap())
}

/// What web0 holds after it asked for claims for a command: numbers, or why it waits.
fn claims_after(found: &Found) -> Result<Option<HostClaims>, String> {
    let fence = Fence { live_revision: 5, live_lease: 1, store_revision: 0 };
    let (host, instance, purpose) = (host("web0"), Token::new("i").unwrap(), command());
    let now = Now { boot: BootMillis(0), wall: EpochSeconds(9) };
    let request = ClaimRequest { host: &host, instance: &instance, purpose: &purpose, fence, now };
    let view = view_for_claims(&host, &found.0, None, now.boot);
    match request.answer(&view, &found.0) {
        ClaimAnswer::Nothing => Ok(None),
        ClaimAnswer::Waits(obstacle) => Err(obstacle.detail()),
        ClaimAnswer::Take(transaction, _) => {
            assert!(!transaction.compares.contains(&Compare::absent(Key::Halt(ORDER))));
            let written = transaction.operations.iter().find_map(|operation| match operation {
                Operation::Put { key: Key::Claimed(_), value, .. } => Some(value.clone()),
                _ => None,
            });
            Ok(Some(keys::Claimed::read(&written.expect("the claims of the host")).expect("a value")))
        }
    }
}

#[test]
fn a_command_takes_claims_like_a_host_that_updates() {
    let instruction = |found: &mut Found| {
        found.put(&Key::Store, "{\"format\":2,\"lineage\":\"l\",\"epoch\":0}", 4);
        found.put(&Key::CurrentVersion, "v2", 50);
    };
    let check = |max: u32, change: &dyn Fn(&mut Found), expected: Result<Option<u32>, &str>| {
        // With the record, and before it is written.
        for has_record in [true, false] {
            let mut found = of_web(max);
            if !has_record {
                found.0.entries.remove(&Key::RolloutRecord(ORDER).to_string());
            }
            instruction(&mut found);
            change(&mut found);
            let number = |claims: HostClaims| {
                assert_eq!(claims.purposes, [command()].into(), "{claims:?}");
                assert_eq!((claims.rollout, claims.since), (ORDER, EpochSeconds(9)));
                claims.claims[0].number
            };
            let answer = claims_after(&found).map(|claims| claims.map(number));
            assert_eq!(answer, expected.map_err(str::to_owned), "{has_record}");
        }
    };
    check(1, &|_| {}, Ok(Some(0)));
    check(0, &|_| {}, Err("the limit of role web is 0"));
    let held = |found: &mut Found| drop(found.claim(0, "web5").view("web0"));
    check(1, &held, Err("1 of at most 1 hosts of role web are unavailable: web5"));
    check(2, &held, Ok(Some(1)));
    // Hosts of the rollout that wait come first.
    let waits = |found: &mut Found| drop(found.ticket("web5", Place(7)).view("web0"));
    check(1, &waits, Err("1 host waits for the limit of role web before it"));
    let freeze =
        codec::write(&Freeze { by: "ann".into(), reason: String::new(), at: EpochSeconds(1), until: None });
    let freeze_key = Key::Freeze(schema::freeze::FreezeScope::Fleet, Token::new("f").unwrap());
    let frozen = |found: &mut Found| drop(found.put(&freeze_key, &freeze, 60).view("web0"));
    check(1, &frozen, Err("the fleet is frozen by ann"));
    // A halt is about the version.
    let halted = |found: &mut Found| drop(found.put(&Key::Halt(ORDER), "x", 60).view("web0"));
    check(1, &halted, Ok(Some(0)));
    // Without limits there is nothing to hold.
    let nobody = |found: &mut Found| drop(found.put(&Key::Host(host("web0")), "{}", 1).view("web0"));
    check(1, &nobody, Ok(None));
}

#[test]
fn a_command_on_a_host_that_is_updated_shares_its_claims() {
    let mut found = of_web(1);
    found.put(&Key::CurrentVersion, "v2", 50);
    let claim = HeldClaim { limit: web(), number: 0, keep_failed: true };
    let none = HostClaims::none(Token::new("i").unwrap(), ORDER, EpochSeconds(1));
    let held = HostClaims { claims: vec![claim], ..none };
    found.claim(0, "web0").put(&Key::Claimed(host("web0")), &codec::write(&held), 70);
    let both = [Purpose::Update, command()].into();
    assert_eq!(claims_after(&found), Ok(Some(HostClaims { purposes: both, ..held.clone() })));
    // Claims of an earlier installation say nothing about this one.
    let earlier = HostClaims { instance: Token::new("earlier").unwrap(), ..held.clone() };
    found.put(&Key::Claimed(host("web0")), &codec::write(&earlier), 70);
    let expected = "the host holds claims of an earlier installation until it is proven";
    assert_eq!(claims_after(&found), Err(expected.into()));
    // It asks again after a lost answer.
    let only = HostClaims { purposes: [command()].into(), ..held.clone() };
    found.put(&Key::Claimed(host("web0")), &codec::write(&only), 71);
    assert_eq!(claims_after(&found), Ok(None));
    // What an operator released stays released.
    let released = HostClaims { released: true, claims: Vec::new(), ..held };
    found.0.entries.remove(&Key::Claim(web(), 0).to_string());
    found.put(&Key::Claimed(host("web0")), &codec::write(&released), 72);
    assert!(claims_after(&found).expect("claims").expect("new ones").released);
}
