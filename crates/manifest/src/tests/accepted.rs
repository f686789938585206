//! Keys that are acted on.

use super::{check, manifest, service};
use crate::{Input, read};
use std::collections::BTreeMap;

#[test]
fn a_key_of_a_service_is_acted_on() {
    for (lines, expected) in [
        ("", "{}"),
        ("environment: {QUEUE: mail, PORT: 8080}", r#"{"environment":{"PORT":"8080","QUEUE":"mail"}}"#),
        ("environment: [QUEUE=mail, \"PORT=8080\"]", r#"{"environment":{"PORT":"8080","QUEUE":"mail"}}"#),
        ("environment: {V: 1.10, B: yes, E: \"\"}", r#"{"environment":{"B":"yes","E":"","V":"1.10"}}"#),
        ("labels: {team: a, flag: }", r#"{"labels":{"flag":"","team":"a"}}"#),
        ("labels: [team=a, flag]", r#"{"labels":{"flag":"","team":"a"}}"#),
        ("stop_grace_period: 1m30s", r#"{"stop_grace_period":"90s"}"#),
        ("stop_grace_period: 10s", "{}"),
        ("deploy: {replicas: 3}", r#"{"replicas":3}"#),
        ("deploy: {replicas: \"0\"}", r#"{"replicas":0}"#),
        ("deploy: {replicas: 1, mode: replicated}", "{}"),
        (
            "deploy: {resources: {reservations: {cpus: '0.50', memory: 64m}}}",
            r#"{"reservations":{"cpus":"0.5","memory":67108864}}"#,
        ),
        (
            "deploy: {placement: {constraints: [node.labels.zone!=attic, node.labels.disk ~ ssd]}}",
            r#"{"placement":{"constraints":["node.labels.disk ~ ssd","node.labels.zone != attic"],"max_replicas_per_node":null,"preferences":[]}}"#,
        ),
        (
            "deploy: {placement: {preferences: [{spread: node.labels.rack}], max_replicas_per_node: 2}}",
            r#"{"placement":{"constraints":[],"max_replicas_per_node":2,"preferences":["node.labels.rack"]}}"#,
        ),
    ] {
        check(&Input::of(service(lines)), &Ok(&[("web", expected)]));
    }
    let global = manifest(&service("deploy: {mode: global}"));
    assert!(
        global.canonical().contains(r#""mode":"global""#) && !global.canonical().contains("replicas\":1")
    );
}

#[test]
fn a_named_volume_pins_its_service() {
    for volumes in [
        "volumes: [data:/var/lib/db]",
        "volumes: [data:/var/lib/db:rw]",
        "volumes: [{type: volume, source: data, target: /var/lib/db}]",
    ] {
        let text = format!("{}volumes: {{data: }}\n", service(volumes));
        let expected = r#"{"volumes":{"/var/lib/db":{"read_only":false,"volume":"data"}}}"#;
        check(&Input::of(&text), &Ok(&[("web", expected)]));
        assert!(manifest(&text).services.values().all(|service| service.spec.is_pinned()));
    }
    assert!(manifest(&service("")).services.values().all(|service| !service.spec.is_pinned()));
}

#[test]
fn a_unit_that_is_no_template_runs_once_on_a_host() {
    for (unit, lines, expected) in [
        ("web.service", "", Some(1)),
        ("web.service", "max_replicas_per_node: 1", Some(1)),
        ("web@.service", "", None),
        ("web@.service", "max_replicas_per_node: 2", Some(2)),
        ("web@one.service", "", Some(1)),
    ] {
        let text = format!(
            "name: shop\nservices:\n  web:\n    x-orchestrate: {{unit: {unit}}}\n    deploy: {{placement: {{{lines}}}}}"
        );
        let found = &manifest(&text).services["web"].spec.placement;
        assert_eq!(found.max_replicas_per_node.map(std::num::NonZeroU32::get), expected, "{text}");
    }
}

#[test]
fn a_variable_without_a_value_takes_that_of_the_command() {
    let mut input = Input::of(service("environment: {A: , B: , C: c}"));
    input.environment = BTreeMap::from([("A".to_owned(), "a".to_owned())]);
    check(&input, &Ok(&[("web", r#"{"environment":{"A":"a","C":"c"}}"#)]));
    let warnings = read(&input).expect("right").warnings;
    assert_eq!(
        super::lines(&warnings),
        [
            "compose.yaml:5:24: services.web.environment.B: the variable B has no value, and the service does not \
             get it; write a value or set the variable"
        ]
    );
}

#[test]
fn variables_are_replaced_in_values() {
    let text = service(
        "environment: {A: \"${NAME:-none}\", B: $$NAME, C: \"${COMPOSE_PROJECT_NAME}-x\"}\n\
         deploy: {replicas: \"${COUNT:-2}\"}\nlabels: [\"of-$NAME=${NAME}\"]",
    );
    let mut input = Input::of(text);
    input.environment = BTreeMap::from([("NAME".to_owned(), "mail".to_owned())]);
    let expected =
        r#"{"environment":{"A":"mail","B":"$NAME","C":"shop-x"},"labels":{"of-mail":"mail"},"replicas":2}"#;
    check(&input, &Ok(&[("web", expected)]));
}

#[test]
fn profiles_switch_services_on() {
    let text = "name: shop\nservices:\n  a: {x-orchestrate: {program: a}}\n  \
                b: {x-orchestrate: {program: b}, profiles: [one, two]}\n  \
                c: {image: only-for-developers, profiles: [dev]}\n";
    for (profiles, expected) in [
        (&[][..], Ok("a")),
        (&["one"], Ok("a b")),
        (&["two", "other"], Ok("a b")),
        (&["dev"], Err("`image` is refused")),
        (&["*"], Err("`image` is refused")),
    ] {
        let mut input = Input::of(text);
        input.profiles = profiles.iter().map(|name| (*name).to_owned()).collect();
        match (read(&input), expected) {
            (Ok(reading), Ok(expected)) => {
                let names: Vec<&str> = reading.manifest.services.keys().map(|name| name.as_str()).collect();
                assert_eq!(names.join(" "), expected, "{profiles:?}");
            }
            (Err(mistakes), Err(expected)) => assert!(mistakes[0].what.contains(expected), "{mistakes:?}"),
            (found, _) => panic!("{profiles:?}: {found:?}"),
        }
    }
}

#[test]
fn anchors_and_merge_keys_stand_for_their_values() {
    let text = "name: shop\nx-common: &common\n  x-orchestrate: {program: web}\n  labels: &labels {team: a, tier: x}\n\
                services:\n  web:\n    <<: *common\n    labels: {<<: [*labels, {team: b, rank: r}], tier: y}\n";
    let expected = r#"{"labels":{"rank":"r","team":"a","tier":"y"}}"#;
    check(&Input::of(text), &Ok(&[("web", expected)]));
}

#[test]
fn names_for_other_programs_are_ignored() {
    let text = format!("x-other: {{image: any}}\n{}", service("x-mine: [1, 2]\ndeploy: {x-theirs: 1}"));
    check(&Input::of(text), &Ok(&[("web", "{}")]));
}

#[test]
fn the_command_can_name_the_group() {
    let mut input = Input::of(service(""));
    input.name = Some("other".to_owned());
    assert_eq!(read(&input).expect("right").manifest.name.as_str(), "other");
}
