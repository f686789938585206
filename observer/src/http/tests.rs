//! The routes, and the document that describes them.

use super::openapi::{DESCRIPTION, SCHEMAS};
use super::routes::routes;
use serde_json::Value;
use std::collections::BTreeSet;

fn description() -> Value {
    serde_json::from_str(DESCRIPTION).expect("openapi.json is JSON")
}

#[test]
fn the_description_has_exactly_the_routes() {
    let description = description();
    let described: BTreeSet<&str> =
        description["paths"].as_object().expect("paths").keys().map(String::as_str).collect();
    assert_eq!(described, routes().iter().map(|route| route.path).collect());
    let text = include_str!("../../../docs/observer.md");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `/")?.split('`').next());
    let documented: BTreeSet<String> = rows.map(|path| format!("/{path}")).collect();
    assert_eq!(documented, described.iter().map(|path| (*path).to_owned()).collect());
}

/// Calls back with every reference in a value.
fn each_reference(value: &Value, found: &mut impl FnMut(&str)) {
    match value {
        Value::Object(fields) => {
            fields.get("$ref").and_then(Value::as_str).into_iter().for_each(&mut *found);
            fields.values().for_each(|value| each_reference(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| each_reference(value, found)),
        _ => {}
    }
}

#[test]
fn every_reference_leads_to_something_and_every_schema_is_used() {
    let description = description();
    let mut used = BTreeSet::new();
    each_reference(&description, &mut |reference| match reference.strip_prefix('#') {
        Some(pointer) => assert!(description.pointer(pointer).is_some(), "{reference}"),
        None => {
            let file = reference.strip_prefix("schema/").expect("a schema of the API");
            used.insert(file.to_owned());
        }
    });
    for (name, text) in SCHEMAS {
        let schema: Value = serde_json::from_str(text).expect("JSON");
        each_reference(&schema, &mut |reference| {
            used.extend(reference.split_once('#').map(|(file, _)| file.to_owned()).filter(|f| !f.is_empty()));
        });
        assert!(!name.contains('/'), "{name}");
    }
    assert_eq!(used, SCHEMAS.iter().map(|(name, _)| (*name).to_owned()).collect());
}
