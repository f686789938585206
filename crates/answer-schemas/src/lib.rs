//! The JSON schemas of answers, from the types that are printed: `docs/schema` and the description of the observer's
//! API. The files are checked in, so that a change of an answer shows in a review, and a test compares them. `make
//! schemas` writes them. `docs/schema/names.json` alone is written by hand.

mod closed;
mod print;

use archive::recording::AboutPast;
use closed::Names;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
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
    for Answer { name, title, schema } in answers() {
        let closed = names.closed(&title, schema.as_value()).map_err(|why| format!("{name}: {why}"))?;
        files.push(File { path: directory.join(format!("{name}.json")), text: print::text(&closed) });
    }
    let description = observer::api_description();
    let path = repository.join("observer/src/http/openapi.json");
    files.push(File { path, text: print::text(&description) });
    Ok(files)
}

/// An answer, and the name of its file.
struct Answer {
    name: String,
    title: String,
    schema: Schema,
}

/// Returns the answers of all verbs, and those that any verb can give.
fn answers() -> Vec<Answer> {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut generator = settings.with(|settings| settings.inline_subschemas = true).into_generator();
    let of_verb = |(verb, schema): (&str, Schema)| Answer {
        name: verb.replace(' ', "-"),
        title: format!("orchestrate {verb} -o json"),
        schema,
    };
    let mut answers: Vec<Answer> = ctl::answers(&mut generator).into_iter().map(of_verb).collect();
    answers.push(Answer {
        name: "error".to_owned(),
        title: "The answer of a verb that cannot answer".to_owned(),
        schema: ctl::error_answer(&mut generator),
    });
    answers.push(Answer {
        name: "past".to_owned(),
        title: "The answer of a verb about the past (--at)".to_owned(),
        schema: AboutPast::<()>::json_schema(&mut generator),
    });
    answers
}

#[cfg(test)]
mod tests {
    use super::*;
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
        assert!(old.is_empty(), "`make schemas` writes these again:\n{}", old.join("\n"));
    }

    #[test]
    fn no_schema_besides_the_names_is_written_by_hand() {
        let files = files().unwrap_or_else(|why| panic!("{why}"));
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema");
        let listed = fs::read_dir(&directory).expect("docs/schema");
        let by_hand: Vec<PathBuf> = listed
            .map(|entry| directory.join(entry.expect("an entry").file_name()))
            .filter(|path| files.iter().all(|file| file.path.file_name() != path.file_name()))
            .collect();
        assert_eq!(by_hand, [directory.join("names.json")]);
    }
}
