//! Properties of all manifests, and of all texts.

use super::{files, lines};
use crate::{Input, Manifest, Service, Spec, diff, read};
use proptest::prelude::*;

/// A file of a group with some services.
fn file() -> impl Strategy<Value = String> {
    let pairs = proptest::collection::btree_map("[A-Z]{1,3}", "[a-z0-9 .$]{0,6}", 0..4);
    let service = (pairs.clone(), pairs, 0_u32..5, any::<bool>(), 0_usize..4, 0_u32..100_000, any::<bool>());
    let services = proptest::collection::btree_map("[a-z]{1,4}", service, 1..5);
    services.prop_map(|services| {
        let mut text = "name: shop\nvolumes: {data: }\nservices:\n".to_owned();
        for (name, (environment, labels, replicas, is_global, constraints, millis, has_volume)) in services {
            let pairs = |pairs: &std::collections::BTreeMap<String, String>, form: fn(&str, &str) -> String| {
                let pairs: Vec<String> =
                    pairs.iter().map(|(name, value)| form(name, &value.replace('$', "$$"))).collect();
                pairs.join(", ")
            };
            let constraints = ["node.role == a", "node.group != b", "node.labels.x ~ c"][..constraints.min(3)].join(", ");
            let count = if is_global { "mode: global".to_owned() } else { format!("replicas: {replicas}") };
            let volumes = if has_volume { "[data:/srv]" } else { "[]" };
            text.push_str(&format!(
                "  {name}:\n    x-orchestrate: {{program: {name}}}\n    environment: {{{}}}\n    labels: [{}]\n    \
                 deploy: {{{count}, placement: {{constraints: [{constraints}]}}}}\n    \
                 stop_grace_period: {millis}ms\n    volumes: {volumes}\n",
                pairs(&environment, |name, value| format!("{name}: '{value}'")),
                pairs(&labels, |name, value| format!("'{name}={value}'")),
            ));
        }
        text
    })
}

fn manifest_of(texts: &[&str]) -> Manifest {
    read(&files(texts)).unwrap_or_else(|m| panic!("{texts:#?}\n{}", lines(&m).join("\n"))).manifest
}

proptest! {
    #[test]
    fn the_canonical_form_reads_back(text in file()) {
        let manifest = manifest_of(&[&text]);
        let canonical = manifest.canonical();
        let back = Manifest::from_canonical(&canonical).expect("it is canonical");
        prop_assert_eq!(&back, &manifest);
        prop_assert_eq!(back.canonical(), canonical);
        for service in manifest.services.values() {
            prop_assert_eq!(&Service::from_canonical(&service.canonical()).expect("it is canonical"), service);
            prop_assert_eq!(&Spec::from_canonical(&service.spec.canonical()).expect("it is canonical"), &service.spec);
        }
    }

    #[test]
    fn a_file_merged_with_itself_is_itself(text in file()) {
        prop_assert_eq!(manifest_of(&[&text, &text]), manifest_of(&[&text]));
    }

    #[test]
    fn equal_manifests_do_not_differ_and_others_do(one in file(), other in file()) {
        let (one, other) = (manifest_of(&[&one]), manifest_of(&[&other]));
        prop_assert!(diff(&one, &one).is_empty());
        prop_assert_eq!(diff(&one, &other).is_empty(), one == other);
        prop_assert_eq!(one.digest() == other.digest(), one == other);
    }

    #[test]
    fn an_arbitrary_text_never_panics(text in "\\PC{0,200}") {
        check_error(&text);
    }

    #[test]
    fn a_text_with_signs_of_yaml_never_panics(
        text in r"(name|services|web|x-orchestrate|unit|deploy|volumes|extends|\$\{A|[-:?!&*#|>%@'{}\[\], \n~]|<<|  |a.service){0,60}"
    ) {
        check_error(&text);
    }

    /// A manifest in which some characters were changed is right, or its mistakes are named.
    #[test]
    fn a_damaged_file_never_panics(text in file(), at in any::<prop::sample::Index>(), with in "[-:{}\\[\\]&*!$ \n'x]{0,3}") {
        let places: Vec<usize> = text.char_indices().map(|(place, _)| place).collect();
        let at = places[at.index(places.len())];
        check_error(&format!("{}{with}{}", &text[..at], &text[(at + 1).min(text.len())..]));
    }
}

/// Reads a text. If it is wrong, at least one mistake says where.
fn check_error(text: &str) {
    if let Err(mistakes) = read(&Input::of(text)) {
        assert!(!mistakes.is_empty(), "{text}");
        assert!(
            mistakes.iter().all(|m| m.line >= 1 && m.column >= 1 && !m.right.is_empty()),
            "{mistakes:#?}"
        );
    }
}
