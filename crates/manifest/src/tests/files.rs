//! Several files: merging, and services that extend each other.

use super::{check, files, lines};
use crate::{Input, Source, missing_files, read};

const BASE: &str = "name: shop\nservices:\n  web:\n    x-orchestrate: {program: web}\n    labels: {team: a, tier: x}\n    \
                    environment: [A=1, B=2]\n    deploy: {replicas: 2, placement: {constraints: [node.role == web]}}\n    \
                    volumes: [data:/srv]\nvolumes: {data: , other: }\n";

/// Checks what the base file and an overriding one mean together. The fields that do not depend on the overriding file
/// are left out.
fn check_merged(over: &str, field: &str, expected: &str) {
    let reading = read(&files(&[BASE, over])).unwrap_or_else(|m| panic!("{over}\n{}", lines(&m).join("\n")));
    let service = reading.manifest.services["web"].canonical();
    let value: serde_json::Value = service.parse().expect("JSON");
    assert_eq!(value.pointer(field).map(ToString::to_string).unwrap_or_default(), expected, "{over}");
}

#[test]
fn a_later_file_overrides_an_earlier_one_as_the_specification_says() {
    for (lines, field, expected) in [
        ("deploy: {replicas: 3}", "/replicas", "3"),
        ("deploy: {replicas: 3}", "/placement/constraints", r#"["node.role == web"]"#),
        ("deploy: {replicas: !reset null}", "/replicas", "1"),
        ("deploy: {replicas: }", "/replicas", "2"),
        ("labels: {tier: y, rank: r}", "/labels", r#"{"rank":"r","team":"a","tier":"y"}"#),
        ("labels: [tier=y]", "/labels", r#"{"team":"a","tier":"y"}"#),
        ("labels: {team: !reset null}", "/labels", r#"{"tier":"x"}"#),
        ("labels: !reset {}", "/labels", "{}"),
        ("labels: !override {rank: r}", "/labels", r#"{"rank":"r"}"#),
        ("labels: !override [rank=r]", "/labels", r#"{"rank":"r"}"#),
        ("environment: {B: 3, C: 4}", "/environment", r#"{"A":"1","B":"3","C":"4"}"#),
        ("environment: {B: }", "/environment", r#"{"A":"1"}"#),
        (
            "deploy: {placement: {constraints: [node.role != db, node.role == web]}}",
            "/placement/constraints",
            r#"["node.role == web","node.role != db"]"#,
        ),
        (
            "deploy: {placement: {constraints: !override [node.role == db]}}",
            "/placement/constraints",
            r#"["node.role == db"]"#,
        ),
        ("volumes: [other:/srv:ro]", "/volumes", r#"{"/srv":{"read_only":true,"volume":"other"}}"#),
        (
            "volumes: [{type: volume, source: other, target: /new}]",
            "/volumes",
            r#"{"/new":{"read_only":false,"volume":"other"},"/srv":{"read_only":false,"volume":"data"}}"#,
        ),
        ("x-orchestrate: {program: other}", "/runtime", r#"{"program":"other"}"#),
        ("x-orchestrate: {program: !reset null, unit: a.service}", "/runtime", r#"{"unit":"a.service"}"#),
    ] {
        check_merged(&format!("services:\n  web:\n    {lines}\n"), field, expected);
    }
    check_merged("name: other\n", "/replicas", "2");
    assert_eq!(read(&files(&[BASE, "name: other\n"])).expect("right").manifest.name.as_str(), "other");
}

#[test]
fn a_mistake_in_an_overriding_file_is_found_there() {
    let over = "services:\n  web:\n    deploy: {replicas: x}\n    image: a\n";
    check(
        &files(&[BASE, over]),
        &Err(&[
            "b.yaml:3:14: services.web.deploy.replicas: \"x\" is no number of replicas; write a whole number from 0 to 10000",
            "b.yaml:4:5: services.web.image: `image` is refused: this version runs no images; \
             write `x-orchestrate.unit` or `x-orchestrate.program`",
        ]),
    );
    // What a later file removes is no mistake any more.
    let reset = "services: {web: {image: !reset null, deploy: {replicas: 4}}}\n";
    check_merged_three(&[BASE, over, reset]);
}

fn check_merged_three(texts: &[&str]) {
    let reading = read(&files(texts)).unwrap_or_else(|m| panic!("{}", lines(&m).join("\n")));
    assert_eq!(reading.manifest.services["web"].replicas.map(crate::Replicas::get), Some(4));
}

#[test]
fn a_service_extends_another_one() {
    let base = "services:\n  base:\n    x-orchestrate: {program: base}\n    labels: {team: a}\n    environment: [A=1]\n";
    for (text, extended, expected) in [
        (
            "name: shop\nservices:\n  web: {extends: base, labels: [tier=x]}\n  base: {x-orchestrate: {program: web}, labels: {team: a}}\n",
            vec![],
            vec![("base", r#"{"labels":{"team":"a"}}"#), ("web", r#"{"labels":{"team":"a","tier":"x"}}"#)],
        ),
        (
            "name: shop\nservices:\n  web:\n    extends: {service: base, file: base.yaml}\n    environment: {B: 2}\n",
            vec![Source::new("base.yaml", base)],
            vec![(
                "web",
                r#"{"environment":{"A":"1","B":"2"},"labels":{"team":"a"},"runtime":{"program":"base"}}"#,
            )],
        ),
        (
            "name: shop\nservices:\n  web:\n    extends: {service: base, file: base.yaml}\n    labels: !reset {}\n",
            vec![Source::new("./base.yaml", base)],
            vec![("web", r#"{"environment":{"A":"1"},"runtime":{"program":"base"}}"#)],
        ),
        (
            "name: shop\nservices:\n  a: {extends: b, labels: {a: 1}}\n  b: {extends: c, labels: {b: 1}}\n  c: {x-orchestrate: {program: web}}\n",
            vec![],
            vec![("a", r#"{"labels":{"a":"1","b":"1"}}"#), ("b", r#"{"labels":{"b":"1"}}"#), ("c", "{}")],
        ),
    ] {
        let input = Input { extended, ..Input::of(text) };
        check(&input, &Ok(&expected));
    }
}

#[test]
fn a_service_that_extends_nothing_that_exists_is_a_mistake() {
    let one = "x-orchestrate: {program: web}";
    for (services, expected) in [
        (
            format!("  web: {{extends: none, {one}}}\n"),
            "compose.yaml:3:9: services.web.extends: compose.yaml has no service \"none\"; \
             write the name of a service, and `file` if it is in another file",
        ),
        (
            format!("  web: {{extends: {{service: a, file: x/none.yaml}}, {one}}}\n"),
            "compose.yaml:3:9: services.web.extends: the file \"x/none.yaml\" was not given; \
             give the file, or extend a service of this file",
        ),
        (
            format!("  web: {{extends: {{file: compose.yaml}}, {one}}}\n"),
            "compose.yaml:3:9: services.web.extends: no service is named; write `service:` with the name of a service",
        ),
        (
            format!("  web: {{extends: web, {one}}}\n"),
            "compose.yaml:3:9: services.web.extends: services extend each other in a circle: web -> web; remove one `extends`",
        ),
    ] {
        check(&Input::of(format!("name: shop\nservices:\n{services}")), &Err(&[expected]));
    }
    let circle = "name: shop\nservices:\n  a: {extends: b}\n  b: {extends: c}\n  c: {extends: b}\n";
    let mistakes = read(&Input::of(circle)).unwrap_err();
    assert!(mistakes.iter().any(|m| m.what.ends_with("in a circle: b -> c -> b")), "{mistakes:#?}");
}

#[test]
fn the_command_learns_which_files_it_has_to_read() {
    let text = "services:\n  a: {extends: {service: x, file: '${DIR:-lib}/base.yaml'}}\n  b: {extends: {service: y, file: b.yaml}}\n";
    let mut input = Input { sources: vec![Source::new("shop/a.yaml", text)], ..Input::default() };
    assert_eq!(missing_files(&input), ["shop/b.yaml", "shop/lib/base.yaml"]);
    input
        .extended
        .push(Source::new("shop/b.yaml", "services: {y: {extends: {service: z, file: ../c.yaml}}}"));
    assert_eq!(missing_files(&input), ["c.yaml", "shop/lib/base.yaml"]);
}
