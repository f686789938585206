//! The canonical form, digests and differences.

use super::{files, manifest, service};
use crate::{Manifest, Service, Spec, diff, read};

#[test]
fn the_canonical_form_is_sorted_json_with_defaults() {
    let found = manifest("services: {web: {x-orchestrate: {unit: web@.service}}}\nname: shop\n");
    assert_eq!(
        found.canonical(),
        r#"{"name":"shop","services":{"web":{"environment":{},"labels":{},"mode":"replicated","placement":{"constraints":[],"max_replicas_per_node":null,"preferences":[]},"replicas":1,"reservations":{"cpus":"0","memory":0},"runtime":{"unit":"web@.service"},"stop_grace_period":"10s","volumes":{}}}}"#
    );
}

/// Stores keep such digests: another one for the same file starts every instance again.
#[test]
fn a_digest_is_the_same_for_ever() {
    let spec = &manifest(&service("environment: {A: b}")).services["web"].spec;
    // As computed by another program.
    let expected = "8ff36e036794fddad6a36c4d3ff199d790abb42fe0a426e360c4bcccb03331cd";
    assert_eq!(spec.digest().as_str(), expected);
}

#[test]
fn files_that_mean_the_same_have_the_same_digest() {
    let one = "name: shop\nservices:\n  a:\n    x-orchestrate: {unit: a.service}\n    environment: [B=2, A=1]\n    \
               stop_grace_period: 10s\n    deploy: {replicas: 1, placement: {max_replicas_per_node: 1, \
               constraints: [node.role==x, node.group == y]}}\n  b: {x-orchestrate: {program: b}}\n";
    let other = "x-a: &e {A: '1', B: '2'}\nservices:\n  b: {x-orchestrate: {program: b}, deploy: {}}\n  a:\n    \
                 environment: *e\n    deploy: {placement: {constraints: [node.group == y, node.role == x]}}\n    \
                 x-orchestrate: {unit: a.service}\nname: shop\n";
    assert_eq!(manifest(one), manifest(other));
    assert_eq!(manifest(one).digest(), manifest(other).digest());
}

#[test]
fn the_number_of_replicas_is_no_part_of_a_spec() {
    let (two, three) =
        (manifest(&service("deploy: {replicas: 2}")), manifest(&service("deploy: {replicas: 3}")));
    assert_ne!(two.digest(), three.digest());
    assert_eq!(two.services["web"].spec.digest(), three.services["web"].spec.digest());
}

#[test]
fn a_changed_canonical_form_is_refused() {
    let right = manifest(&service("deploy: {replicas: 2}"));
    let (text, of_service) = (right.canonical(), right.services["web"].canonical());
    assert_eq!(Manifest::from_canonical(&text).expect("right"), right);
    for (from, to) in [
        ("\"mode\"", "\"other\":1,\"mode\""),
        ("\"replicas\":2", "\"replicas\":20000"),
        ("\"replicas\":2,", ""),
        ("\"replicated\"", "\"global\""),
        ("\"10s\"", "\"10000ms\""),
        ("\"name\":\"shop\"", "\"name\":\"shop-eu\""),
        ("{\"program\":\"web\"}", "{\"unit\":\"web.service\"}"),
    ] {
        let changed = text.replace(from, to);
        assert!(changed != text && Manifest::from_canonical(&changed).is_err(), "{changed}");
    }
    assert!(Service::from_canonical(&of_service).is_ok());
    assert!(Spec::from_canonical(&of_service).is_err());
}

#[test]
fn a_difference_names_the_field_and_both_values() {
    let base = "labels: {team: a}\ndeploy: {replicas: 2, placement: {constraints: [node.role == web], \
                preferences: [{spread: node.labels.a}, {spread: node.labels.b}]}}";
    for (lines, expected) in [
        (base.to_owned(), ""),
        (base.replace("replicas: 2", "replicas: 3"), "~ web.replicas: 2 -> 3\n"),
        (base.replace("team: a", "team: b"), "~ web.labels.team: a -> b\n"),
        (base.replace("team: a", "tier: \"\""), "- web.labels.team: a\n+ web.labels.tier: \"\"\n"),
        (
            base.replace("node.role == web", "node.role != db"),
            "- web.placement.constraints: node.role == web\n+ web.placement.constraints: node.role != db\n",
        ),
        (
            base.replace(
                "[{spread: node.labels.a}, {spread: node.labels.b}]",
                "[{spread: node.labels.b}, {spread: node.labels.a}]",
            ),
            "~ web.placement.preferences: [\"node.labels.a\",\"node.labels.b\"] -> [\"node.labels.b\",\"node.labels.a\"]\n",
        ),
        (
            base.replace("replicas: 2, placement: {", "replicas: 2, placement: {max_replicas_per_node: 1, "),
            "+ web.placement.max_replicas_per_node: 1\n",
        ),
        (
            base.replace("replicas: 2, ", "mode: global, "),
            "~ web.mode: replicated -> global\n- web.replicas: 2\n",
        ),
        (format!("{base}\nstop_grace_period: 1m"), "~ web.stop_grace_period: 10s -> 1m\n"),
    ] {
        let (old, new) = (manifest(&service(base)), manifest(&service(&lines)));
        let changes = diff(&old, &new);
        assert_eq!(changes.to_string(), expected, "{lines}");
        assert_eq!(changes.is_empty(), expected.is_empty());
    }
}

#[test]
fn services_come_and_go() {
    let texts =
        ["name: shop\nservices: {a: {x-orchestrate: {program: a}}, b: {x-orchestrate: {program: b}}}\n"];
    let old = read(&files(&texts)).expect("right").manifest;
    let new = manifest(
        "name: shop\nservices: {c: {x-orchestrate: {program: c}}, b: {x-orchestrate: {unit: b.service}}}\n",
    );
    let changes = diff(&old, &new);
    assert_eq!(
        changes.to_string(),
        "- a\n+ b.placement.max_replicas_per_node: 1\n- b.runtime.program: b\n+ b.runtime.unit: b.service\n+ c\n"
    );
    let json = serde_json::to_value(&changes).expect("JSON");
    assert_eq!(json["services"]["a"]["change"], "removed");
    assert_eq!(json["services"]["b"]["fields"][1]["path"], "runtime.program");
}
