//! The table of keys: it is complete and plain, and the manual has the same one.

use crate::form::{Object, Read, Treatment};
use crate::table::{OBJECTS, SERVICE, TOP_LEVEL};
use crate::{Input, read, table_as_markdown};
use std::collections::BTreeSet;

#[test]
fn the_manual_has_the_table_of_the_code() {
    let manual = include_str!("../../../../docs/compose.md");
    let (_, found) = manual.split_once("<!-- table of keys -->\n\n").expect("the start of the table");
    assert_eq!(found, table_as_markdown(), "print the table with the example `compose-table`");
}

#[test]
fn the_example_of_the_manual_is_right() {
    let manual = include_str!("../../../../docs/compose.md");
    let example = manual.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next());
    let reading = read(&Input::of(example.expect("an example"))).expect("right");
    assert_eq!(reading.manifest.services.len(), 2);
}

#[test]
fn every_mapping_and_every_key_stands_once() {
    let paths: BTreeSet<&str> = OBJECTS.iter().map(|object| object.path).collect();
    assert_eq!(paths.len(), OBJECTS.len());
    for object in OBJECTS {
        let names: BTreeSet<&str> = object.keys.iter().map(|key| key.name).collect();
        assert_eq!(names.len(), object.keys.len(), "{}", object.path);
    }
    // The numbers of the JSON schema of the specification: 92 keys of a service and 9 of the top level.
    assert_eq!((SERVICE.keys.len(), TOP_LEVEL.keys.len()), (93, 10));
}

#[test]
fn every_mapping_that_is_read_is_in_the_manual() {
    let is_listed = |object: &Object| OBJECTS.iter().any(|listed| listed.path == object.path);
    for key in OBJECTS.iter().flat_map(|object| object.keys) {
        match &key.treatment {
            Treatment::Accepted { read: Read::Object(object) | Read::Each(object), .. } => {
                assert!(is_listed(object), "{}", object.path);
            }
            Treatment::Accepted { .. } | Treatment::NoMeaning(_) | Treatment::Refused { .. } => {}
        }
    }
}

#[test]
fn every_refusal_says_why_and_what_to_do() {
    for key in OBJECTS.iter().flat_map(|object| object.keys) {
        match &key.treatment {
            Treatment::Refused { why, right } => {
                for text in [why, right] {
                    let begins_small = text.starts_with(|c: char| c.is_ascii_lowercase() || c == '`');
                    assert!(text.len() > 8 && begins_small && !text.ends_with('.'), "{}: {text}", key.name);
                }
            }
            Treatment::Accepted { what, .. } => assert!(what.len() > 8, "{}", key.name),
            Treatment::NoMeaning(why) => assert!(why.len() > 8, "{}", key.name),
        }
    }
}
