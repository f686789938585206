//! The schemas of JSON answers: there is one for each verb, and a name means the same in all of them. That answers fit
//! them is checked wherever a test asks for JSON; see `tests::answers`.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use tests::answers::directory;

/// Verbs whose answer is not JSON: a script, files, an address, or what their command prints.
const WITHOUT: [&str; 4] = ["completion", "enroll", "ui", "with-claim"];

fn schemas() -> BTreeMap<String, Value> {
    let read = |entry: Result<fs::DirEntry, _>| {
        let path = entry.expect("an entry").path();
        let text = fs::read_to_string(&path).expect("a schema");
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        (name, serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
    };
    fs::read_dir(directory()).expect("docs/schema").map(read).collect()
}

#[test]
fn every_verb_has_a_schema_and_every_schema_has_a_verb() {
    let manual = include_str!("../../docs/command-line.md");
    let headings = manual.lines().filter_map(|line| line.strip_prefix("### `")?.split('`').next());
    let verb = |heading: &str| -> String {
        let is_word = |word: &&str| word.starts_with(|c: char| c.is_ascii_lowercase()) && !word.contains('|');
        heading.split(' ').take_while(is_word).collect::<Vec<_>>().join("-")
    };
    // `hosts` is short for `hosts list`; `rollout start` is `trigger_update`.
    let headings: BTreeSet<String> = headings.map(verb).collect();
    let others = ["hosts", "rollout-start"].into_iter().chain(WITHOUT);
    let wanted = &headings - &others.map(str::to_owned).collect();
    let mut found: BTreeSet<String> = schemas().into_keys().collect();
    assert!(["names", "error", "past"].iter().all(|of_all| found.remove(*of_all)));
    assert_eq!(found, wanted);
}

/// Calls back with every object of a schema.
fn each_object(schema: &Value, found: &mut impl FnMut(&Value)) {
    match schema {
        Value::Object(fields) => {
            if fields.contains_key("properties") {
                found(schema);
            }
            fields.values().for_each(|value| each_object(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| each_object(value, found)),
        _ => {}
    }
}

#[test]
fn a_name_means_the_same_in_all_answers() {
    let mut schemas = schemas();
    let names = schemas.remove("names").expect("the names");
    let names = names["$defs"].as_object().expect("names");
    let mut used = BTreeSet::new();
    let mut wrong = Vec::new();
    for (verb, schema) in &schemas {
        each_object(schema, &mut |object| {
            let properties = object["properties"].as_object().expect("properties");
            let required = object["required"].as_array().map_or(0, Vec::len);
            if object["additionalProperties"] != false || required != properties.len() {
                wrong.push(format!("{verb}: an object is open, or not all of its names are required"));
            }
            for (name, property) in properties {
                let meaning = property.get("anyOf").map_or(property, |either| &either[0]);
                if meaning["$ref"] != format!("names.json#/$defs/{name}") {
                    wrong.push(format!("{verb}: {name} does not mean what names.json says"));
                }
                used.insert(name.clone());
            }
        });
    }
    for (name, meaning) in names {
        let is_lower_snake = name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        let is_described = meaning["description"].as_str().is_some_and(|text| text.ends_with('.'));
        let kind = &meaning["type"];
        let has_kind = kind.is_string() || kind.as_array().is_some_and(|kinds| !kinds.is_empty());
        let is_number = kind == "integer" || kind == "number";
        let is_count = name.ends_with("_count") || name.ends_with("_seconds");
        let is_time = meaning["format"] == "date-time";
        if !is_lower_snake || !is_described || !has_kind || is_count && !is_number {
            wrong.push(format!("names.json: {name}"));
        }
        if is_time && !["at", "since", "until"].iter().any(|end| name.ends_with(end)) && name != "held_until"
        {
            wrong.push(format!("names.json: {name} is no name of a time"));
        }
        if !used.contains(name) {
            wrong.push(format!("names.json: no answer has {name}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn an_answer_with_another_name_or_type_is_found() {
    let ask = |text: &str| tests::answers::wrong(&["ping".to_owned()], text);
    assert_eq!(ask(r#"{"connected": true, "members": ["a"]}"#), None);
    for wrong in [
        r#"{"connected": true, "members": null}"#,
        r#"{"connected": "yes", "members": []}"#,
        r#"{"connected": true}"#,
        r#"{"connected": true, "members": [], "more": 1}"#,
        r#"{"connected": true, "members": [1]}"#,
        "",
        "connected",
    ] {
        assert!(ask(wrong).is_some(), "{wrong}");
    }
}
