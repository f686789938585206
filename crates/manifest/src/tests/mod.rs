//! What manifests mean, as tables of texts and results.

mod accepted;
mod bounds;
mod changes;
mod files;
mod properties;
mod real;
mod refused;
mod table;

use crate::{Input, Manifest, Mistake, Source, read};

/// A manifest with one service and these further lines of it.
fn service(lines: &str) -> String {
    let lines: String = lines.lines().map(|line| format!("    {line}\n")).collect();
    format!("name: shop\nservices:\n  web:\n    x-orchestrate: {{program: web}}\n{lines}")
}

/// Returns an input of several files, named `a.yaml`, `b.yaml` and so on.
fn files(texts: &[&str]) -> Input {
    let name = |index: usize| format!("{}.yaml", ["a", "b", "c", "d"][index]);
    let sources = texts.iter().enumerate().map(|(index, text)| Source::new(name(index), *text));
    Input { sources: sources.collect(), ..Input::default() }
}

fn manifest(text: &str) -> Manifest {
    match read(&Input::of(text)) {
        Ok(reading) => reading.manifest,
        Err(mistakes) => panic!("{text}\n{}", lines(&mistakes).join("\n")),
    }
}

fn lines(mistakes: &[Mistake]) -> Vec<String> {
    mistakes.iter().map(ToString::to_string).collect()
}

/// Checks what an input means: the canonical form of each service, without what is as usual; or its mistakes.
fn check(input: &Input, expected: &Result<&[(&str, &str)], &[&str]>) {
    match (read(input), expected) {
        (Ok(reading), Ok(expected)) => {
            let found: Vec<(String, String)> = reading
                .manifest
                .services
                .iter()
                .map(|(name, service)| (name.to_string(), unusual(&service.canonical())))
                .collect();
            let found: Vec<(&str, &str)> =
                found.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
            assert_eq!(found, *expected, "{input:#?}");
        }
        (Err(mistakes), Err(expected)) => assert_eq!(lines(&mistakes), *expected, "{input:#?}"),
        (Ok(reading), Err(expected)) => panic!("{input:#?}\n{:?}\nmisses {expected:#?}", reading.manifest),
        (Err(mistakes), Ok(_)) => panic!("{input:#?}\n{}", lines(&mistakes).join("\n")),
    }
}

/// Returns a canonical form without the fields that a service with nothing but a program has.
fn unusual(canonical: &str) -> String {
    let usual = manifest("name: shop\nservices: {web: {x-orchestrate: {program: web}}}").services;
    let usual: serde_json::Value =
        usual.values().next().map(|service| service.canonical().parse().expect("JSON")).expect("a service");
    let mut found: serde_json::Value = canonical.parse().expect("JSON");
    if let serde_json::Value::Object(fields) = &mut found {
        fields.retain(|name, value| usual[name.as_str()] != *value);
    }
    found.to_string()
}
