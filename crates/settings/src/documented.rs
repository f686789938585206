//! `docs/configuration.md` is compared with the settings: their names, their defaults, and which of them a
//! running agent takes over.

use super::agent::{Fragment, Settings};
use super::read::read;
use std::collections::{BTreeMap, BTreeSet};

const DOCUMENT: &str = include_str!("../../../docs/configuration.md");

/// A row of a table of settings.
struct Row<'a> {
    name: &'a str,
    kind: &'a str,
    default: &'a str,
    reload: &'a str,
}

/// Returns the tables of settings by heading.
fn tables() -> BTreeMap<&'static str, Vec<Row<'static>>> {
    let mut tables = BTreeMap::new();
    for section in DOCUMENT.split("\n## ").skip(1) {
        let (heading, text) = section.split_once('\n').expect("a heading and a text");
        let rows = text.lines().skip_while(|line| !line.starts_with("| setting |")).skip(2);
        let rows = rows.take_while(|line| line.starts_with('|')).map(|line| {
            // A bar within a cell is escaped.
            let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
            let [name, kind, default, reload, _] = cells[..] else { panic!("{heading}: {line}") };
            Row { name: name.trim_matches('`'), kind, default, reload }
        });
        let rows: Vec<Row<'_>> = rows.collect();
        if !rows.is_empty() {
            tables.insert(heading.trim_matches('`'), rows);
        }
    }
    tables
}

/// Returns the headers of the TOML tables that a heading is about.
fn headers(heading: &str) -> Vec<&str> {
    match heading {
        "Top level" => vec![""],
        "Steps" => vec!["[[prefetch]]", "[[apply]]", "[[converge]]", "[[validate]]", "[[on_suspect]]"],
        header => vec![header],
    }
}

/// Returns what each entry of an array of tables has to have.
fn required(header: &str) -> &'static [(&'static str, &'static str)] {
    match header {
        "[[requires]]" => &[("service", "\"web\""), ("phase", "\"apply\"")],
        "[[template]]" => &[("source", "\"/a\""), ("target", "\"/b\"")],
        array if array.starts_with("[[") => &[("name", "\"s\""), ("command", "[\"/bin/true\"]")],
        _ => &[],
    }
}

/// Returns what a setting needs in its table, or before it, to have an effect.
fn needed(header: &str, name: &str) -> (&'static str, &'static str) {
    match (header, name) {
        ("[http]", "socket_group") => ("", "socket = \"/run/x\"\n"),
        ("[bundles]", name) if name != "to" => ("", "to = \"file:///a\"\n"),
        ("[[requires]]", "role") => ("", "count = \"all\"\n"),
        ("[[requires]]", "step") => ("[[apply]]\nname = \"other\"\ncommand = [\"/bin/true\"]\n", ""),
        _ => ("", ""),
    }
}

/// Returns settings with this value of one setting, or without one.
fn settings(header: &str, name: &str, value: Option<&str>) -> Result<Settings, String> {
    let (before, beside) = needed(header, name);
    let others = required(header).iter().filter(|(other, _)| *other != name);
    let others: String = others.map(|(name, value)| format!("{name} = {value}\n")).collect();
    let own = value.map(|value| format!("{name} = {value}\n")).unwrap_or_default();
    let text = format!("{before}{header}\n{others}{beside}{own}");
    read(&[("agent.toml".into(), text.clone())]).map_err(|error| format!("{error}\n{text}"))
}

/// Returns a value of a type that is not the default.
fn other_value(name: &str, kind: &str) -> String {
    let text = |text: &str| format!("\"{text}\"");
    match (name, kind) {
        ("mode", _) => text("0600"),
        ("level", "text") => text("debug"),
        ("namespace", _) => text("/other"),
        (_, "number" | "number \\| all") => "7".into(),
        (_, "bool") => "true".into(),
        (_, "duration") => text("77s"),
        (_, "path") => text("/other"),
        (_, "address") => text("127.0.0.9:7"),
        (_, "command") => "[\"/bin/other\"]".into(),
        (_, "list of path") => "[\"/other\"]".into(),
        (_, "list of number") => "[7]".into(),
        (_, "list of ip") => "[\"127.0.0.9\"]".into(),
        (_, "list of address") => "[\"127.0.0.9:7\"]".into(),
        (_, "list of text" | "list of name") => "[\"other\"]".into(),
        (_, "table of text") => "{ other = \"text\" }".into(),
        (_, "text" | "name") => text("other"),
        (_, words) => text(words.rsplit(" \\| ").next().expect("words")),
    }
}

/// Returns the names that the program accepts in a table.
fn accepted(header: &str) -> BTreeSet<String> {
    let error = toml::from_str::<Fragment>(&format!("{header}\nzzz = 1\n")).expect_err("an unknown setting");
    let (_, names) = error.message().split_once("expected").expect("the accepted names");
    names.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn every_setting_is_in_the_table_of_its_section() {
    let tables = tables();
    let sections: BTreeSet<String> = tables
        .keys()
        .flat_map(|heading| headers(heading))
        .map(|header| header.trim_matches(['[', ']']).to_owned())
        .collect();
    for (heading, rows) in &tables {
        let documented: BTreeSet<String> = rows.iter().map(|row| row.name.to_owned()).collect();
        for header in headers(heading) {
            let mut names = accepted(header);
            if header.is_empty() {
                names.retain(|name| !sections.contains(name));
            }
            assert_eq!(documented, names, "{heading} {header}");
        }
    }
    let all = accepted("");
    assert!(sections.iter().all(|section| section.is_empty() || all.contains(section)), "{sections:?}");
}

#[test]
fn the_default_of_every_setting_is_the_documented_one() {
    for (heading, rows) in tables() {
        for (row, header) in rows.iter().flat_map(|row| headers(heading).into_iter().map(move |h| (row, h))) {
            let Row { name, kind, default, .. } = row;
            let without = settings(header, name, None);
            let literal = match *default {
                "required" => {
                    assert!(without.is_err(), "{header} {name} is not required");
                    continue;
                }
                "-" => continue,
                default
                    if default.starts_with('[') || ["number", "bool", "number \\| all"].contains(kind) =>
                {
                    default.to_owned()
                }
                default => format!("\"{default}\""),
            };
            assert_eq!(settings(header, name, Some(&literal)), without, "{header} {name} = {literal}");
        }
    }
}

#[test]
fn a_reload_takes_over_the_settings_of_which_the_document_says_so() {
    for (heading, rows) in tables() {
        for (row, header) in rows.iter().flat_map(|row| headers(heading).into_iter().map(move |h| (row, h))) {
            let Row { name, kind, default, reload } = row;
            if *name == "replace" {
                // It has a meaning only when files are merged.
                continue;
            }
            let value = other_value(name, kind);
            let first =
                required(header).iter().find(|(required, _)| required == name).map(|(_, value)| *value);
            let unwrap = |settings: Result<Settings, String>| settings.unwrap_or_else(|e| panic!("{e}"));
            let old = unwrap(settings(header, name, first));
            let new = unwrap(settings(header, name, Some(&value)));
            assert_ne!(old, new, "{header} {name} = {value} (default {default})");
            let (effective, waiting) = old.reload(new.clone());
            assert_eq!(effective == new, *reload == "yes", "{header} {name}: reload {reload}");
            assert_eq!(waiting.is_empty(), *reload == "yes", "{header} {name}: {waiting:?}");
            assert!(["yes", "no"].contains(reload), "{header} {name}: {reload}");
        }
    }
}

#[test]
fn whatever_stands_as_a_value_no_word_of_the_parser_is_said() {
    let wrong = [
        "5",
        "-1",
        "99999999999",
        "1.5",
        "true",
        "\"\"",
        "\"zz zz\"",
        "[]",
        "[1]",
        "[\"\"]",
        "{}",
        "[{}]",
        "2020-01-01",
    ];
    let words = [
        "expected", "variant", "invalid", "Fragment", "struct", "sequence", "untagged", "integer", "syntax",
        "field", "u16", "u32", "u64", "i32", "i64", "usize", " map", "string", "deserial", "type",
    ];
    for (heading, rows) in tables() {
        for (row, header) in rows.iter().flat_map(|row| headers(heading).into_iter().map(move |h| (row, h))) {
            for value in wrong {
                let Err(refused) = settings(header, row.name, Some(value)) else { continue };
                let error = refused.lines().next().unwrap_or_default();
                // What is quoted is not ours.
                let own: String = error.split(['"', '`']).step_by(2).collect();
                let leaked = words.iter().find(|word| own.contains(*word));
                assert_eq!(leaked, None, "{header} {} = {value}: {error}", row.name);
                assert!(error.starts_with("agent.toml:"), "{header} {} = {value}: {error}", row.name);
            }
        }
    }
}
