//! The JSON schemas of answers, from the types that are printed: `docs/schema` and the description of the observer's
//! API. The files are checked in, so that a change of an answer shows in a review, and a test compares them. `make
//! schemas` writes them. `docs/schema/names.json` alone is written by hand.

mod closed;
mod print;

use archive::recording::AboutPast;
use closed::Names;
use planning::fleet::views::{
    EventsView, FailuresView, HostView, HostsView, RootsView, ServiceView, ServicesView, StatusView,
    UnaccountedView,
};
use planning::rollout::RolloutStatus;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, json_schema};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A file that follows from the types.
#[derive(Debug)]
pub struct File {
    /// Where it is.
    pub path: PathBuf,
    /// Its content.
    pub text: String,
}

/// Returns all files that follow from the types.
///
/// # Errors
/// Returns an error if `names.json` does not have a name of an answer, or says another type.
pub fn files() -> Result<Vec<File>, String> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let directory = repository.join("docs/schema");
    let names = Names::read(&directory.join("names.json"))?;
    let mut files = Vec::new();
    for Answer { verb, title, schema } in answers() {
        let closed = names.closed(&title, schema).map_err(|why| format!("{verb}: {why}"))?;
        files.push(File {
            path: directory.join(format!("{}.json", verb.replace(' ', "-"))),
            text: print::text(&closed),
        });
    }
    let description = observer::api_description();
    let path = repository.join("observer/src/http/openapi.json");
    files.push(File { path, text: print::text(&description) });
    Ok(files)
}

/// What a verb answers.
struct Answer {
    verb: &'static str,
    title: String,
    schema: Value,
}

fn answers() -> Vec<Answer> {
    let of = |verb: &'static str, schema: Schema| Answer {
        verb,
        title: format!("orchestrate {verb} -o json"),
        schema: schema.into(),
    };
    let past = Answer {
        verb: "past",
        title: "The answer of a verb about the past (--at)".to_owned(),
        schema: schema::<AboutPast<'_, ()>>().into(),
    };
    vec![
        past,
        of("events", schema::<EventsView>()),
        of("get_failures", schema::<FailuresView>()),
        of("hosts list", schema::<HostsView>()),
        of("rollout status", schema::<RolloutStatus>()),
        of("services list", schema::<ServicesView>()),
        of("services show", schema::<ServiceView>()),
        of("status", schema::<StatusView>()),
        of("unaccounted", schema::<UnaccountedView>()),
        of("why", either([schema::<HostView>(), schema::<RootsView>()])),
    ]
}

/// Returns the schema of one of several answers.
fn either(answers: [Schema; 2]) -> Schema {
    json_schema!({ "anyOf": answers })
}

/// Returns the schema of a type as it is printed.
fn schema<T: JsonSchema>() -> Schema {
    let settings = SchemaSettings::draft2020_12().for_serialize().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    settings.into_generator().into_root_schema_for::<T>()
}

#[cfg(test)]
mod tests {
    use super::files;
    use std::fs;

    #[test]
    fn the_schemas_are_those_of_the_types() {
        let files = files().unwrap_or_else(|why| panic!("{why}"));
        let differs = |path: &_, text: &str| fs::read_to_string(path).ok().as_deref() != Some(text);
        let old: Vec<String> = files
            .iter()
            .filter(|file| differs(&file.path, &file.text))
            .map(|file| file.path.display().to_string())
            .collect();
        assert!(old.is_empty(), "`make schemas` writes these anew:\n{}", old.join("\n"));
    }
}
