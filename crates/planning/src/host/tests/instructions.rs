//! Which instruction a host acts on.

use super::*;

#[test]
fn a_new_instruction_or_a_retry_request_arms_a_suspect_host_again() {
    for by_request in [false, true] {
        let mut world = settled_at("1");
        world.fails("packages", 1);
        world.trigger("2");
        world.pass(Duration::from_secs(6 * 3600));
        world.works("packages");
        if by_request {
            world.retry = Some(world.order());
        } else {
            world.trigger("2");
        }
        world.settle();
        assert_eq!(world.published.listing, Some(version("2")), "by request: {by_request}");
        assert_eq!(world.verdict_str(), "ok");
    }
}

/// A restored store uses its revisions again.
#[test]
fn an_instruction_with_the_same_revision_and_another_version_replaces_the_attempt() {
    for starts in [false, true] {
        let mut world = settled_at("1");
        world.fails(if starts { "packages" } else { "fetch" }, 75);
        world.trigger("2");
        world.settle();
        assert_eq!(world.state.is_under_way(), starts);
        let Target::Known(instruction) = &mut world.target else { panic!("a target") };
        instruction.version = version("3");
        world.works("packages");
        world.works("fetch");
        world.pass(Duration::from_secs(120));
        assert_eq!(world.published.listing, Some(version("3")), "{starts}");
    }
}

#[test]
fn the_same_text_again_applies_nothing_where_it_is_proven() {
    let mut world = settled_at("1");
    world.trigger("1");
    world.settle();
    assert!(world.history.is_empty(), "{:?}", world.history);
}

#[test]
fn the_same_text_again_while_it_is_under_way_starts_nothing_over() {
    let mut world = settled_at("1");
    world.trigger("2");
    while world.runs("packages") == 0 {
        assert!(world.act());
    }
    world.trigger("2");
    world.settle();
    assert_eq!(world.runs("packages"), 1);
    assert_eq!(world.published.listing, Some(version("2")));
}

#[test]
fn a_newer_instruction_supersedes_at_the_next_safe_point() {
    let mut world = settled_at("1");
    world.trigger("2");
    while world.runs("packages") == 0 {
        assert!(world.act());
    }
    world.trigger("3");
    world.settle();
    assert_eq!(world.runs("configuration"), 1, "version 2 was left after its first step");
    assert_eq!(world.published.listing, Some(version("3")));
}

#[test]
fn an_older_instruction_is_never_acted_on() {
    let mut world = settled_at("2");
    let newest = world.state.observed.instruction.unwrap();
    world.target = Target::Known(Instruction {
        version: version("1"),
        order: InstructionOrder { revision: newest.revision - 1, ..newest },
    });
    world.settle();
    assert!(!world.history.iter().any(|e| matches!(e, Event::Start(_))));
    assert_eq!(world.decide().plan.because, Reason::OlderInstruction);
}

#[test]
fn a_retry_request_in_a_store_that_is_not_trusted_is_ignored() {
    let mut world = settled_at("1");
    world.store_trust = StoreTrust::WentBack { by: WentBack::IdentityMissing };
    world.retry = Some(InstructionOrder { epoch: 0, revision: 1_000_000 });
    world.settle();
    assert_eq!(world.state.observed.retry, None);
}
