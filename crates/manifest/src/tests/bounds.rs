//! Limits: what a hostile or a huge file costs.

use super::{lines, service};
use crate::{Input, read};
use std::fmt::Write as _;

/// Checks that an input is refused with this one mistake.
fn check_bound(input: &Input, expected: &str) {
    let mistakes = read(input).expect_err(expected);
    assert!(mistakes.len() == 1 && mistakes[0].what.contains(expected), "{:#?}", lines(&mistakes));
}

#[test]
fn a_bomb_of_aliases_is_refused() {
    let mut bomb = "name: shop\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..30 {
        let before = level - 1;
        let _ = writeln!(bomb, "a{level}: &a{level} [{}]", vec![format!("*a{before}"); 10].join(", "));
    }
    check_bound(&Input::of(bomb), "stands for more than 200000 values");
    let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(100_000), vec!["*a"; 1_000].join(", "));
    check_bound(&Input::of(long), "or 8 MiB of text");
    let many = format!("a: &a x\nb: [{}]\n", vec!["*a"; 6_000].join(", "));
    check_bound(&Input::of(many), "more than 5000 aliases");
}

#[test]
fn a_circle_of_aliases_is_refused() {
    check_bound(&Input::of("a: &a [*a]\n"), "stands inside of what it refers to");
}

#[test]
fn deep_nesting_is_refused() {
    let flow = format!("a: {}{}\n", "[".repeat(5_000), "]".repeat(5_000));
    let block: String = (0..2_000).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    for text in [flow.as_str(), &block[..900_000], &"- ".repeat(10_000), &"{a: ".repeat(10_000)] {
        let mistakes = read(&Input::of(text)).unwrap_err();
        assert_eq!(mistakes.len(), 1, "{mistakes:#?}");
    }
    let variable = "${A:-".repeat(50_000);
    check_bound(&Input::of(service(&format!("labels: {{a: '{variable}'}}"))), "nested more than 16 deep");
}

#[test]
fn a_large_text_is_refused_before_it_is_read() {
    check_bound(&Input::of("#".repeat(1024 * 1024 + 1)), "at most 1048576 are read");
}

#[test]
fn there_are_at_most_500_services() {
    let services = |count: usize| -> String {
        let services = (0..count).map(|n| format!("  s{n}: {{x-orchestrate: {{program: a}}}}\n"));
        format!("name: shop\nservices:\n{}", services.collect::<String>())
    };
    assert_eq!(read(&Input::of(services(500))).expect("right").manifest.services.len(), 500);
    check_bound(&Input::of(services(501)), "more than 500 services");
}

#[test]
fn services_that_extend_a_large_one_are_bounded() {
    let large: String = (0..2_000).map(|n| format!("      V{n}: value\n")).collect();
    let users: String = (0..400).map(|n| format!("  s{n}: {{extends: base}}\n")).collect();
    let text = format!(
        "name: shop\nservices:\n  base:\n    x-orchestrate: {{program: a}}\n    environment:\n{large}{users}"
    );
    let mistakes = read(&Input::of(text)).unwrap_err();
    assert!(mistakes.iter().all(|m| m.what.contains("stands for more than")), "{:#?}", lines(&mistakes));
}

#[test]
fn a_long_service_does_not_fit_into_the_store() {
    let text = service(&format!("environment: {{A: {}}}", "x".repeat(64 * 1024)));
    check_bound(&Input::of(text), "longer than 64 KiB");
}

#[test]
fn the_number_of_mistakes_is_bounded() {
    let text: String = (0..1_000).map(|n| format!("k{n}: 1\n")).collect();
    let mistakes = read(&Input::of(text)).unwrap_err();
    assert_eq!(mistakes.len(), crate::limits::MISTAKES_MAX);
    assert!(mistakes.last().is_some_and(|last| last.what.contains("more mistakes than these 200")));
}
