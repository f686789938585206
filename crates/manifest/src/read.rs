//! From the text of files to a manifest.

use crate::assemble::assemble;
use crate::documents::Documents;
use crate::limits::TEXT_MAX_BYTES;
use crate::merge::merge_document;
use crate::mistake::{Mistake, Position, Report};
use crate::model::Manifest;
use crate::reader::Reader;
use crate::source::Input;
use crate::yaml::Node;

/// A manifest, and what an operator should know about its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    pub manifest: Manifest,
    /// What is no mistake and may surprise, for example a variable that is not set.
    pub warnings: Vec<Mistake>,
}

/// Reads a manifest.
///
/// # Errors
/// Returns all mistakes, in the order in which they stand in the files.
pub fn read(input: &Input) -> Result<Reading, Vec<Mistake>> {
    let mut reader = Reader { report: Report::default(), variables: &input.environment };
    let manifest =
        if is_too_large(input, &mut reader.report) { None } else { read_files(input, &mut reader) };
    let file =
        |index: usize| input.source(index).map_or_else(|| "-".to_owned(), |source| source.name.clone());
    let (mistakes, warnings) = reader.report.finish(file);
    match manifest {
        Some(manifest) if mistakes.is_empty() => Ok(Reading { manifest, warnings }),
        Some(_) | None => Err(mistakes),
    }
}

/// Returns the names of files that `extends.file` refers to and that the input does not have. Their text belongs to
/// [`Input::extended`]; they may refer to further files.
pub fn missing_files(input: &Input) -> Vec<String> {
    let mut reader = Reader { report: Report::default(), variables: &input.environment };
    if is_too_large(input, &mut reader.report) {
        return Vec::new();
    }
    Documents::load(input, &mut reader).missing_files(&mut reader)
}

fn is_too_large(input: &Input, report: &mut Report) -> bool {
    let size: usize = input.sources.iter().chain(&input.extended).map(|source| source.text.len()).sum();
    if size > TEXT_MAX_BYTES {
        let what = format!("the files have {size} bytes, and at most {TEXT_MAX_BYTES} are read");
        report.mistake(Position::default(), "", what, "deploy several groups");
    }
    size > TEXT_MAX_BYTES
}

fn read_files(input: &Input, reader: &mut Reader<'_>) -> Option<Manifest> {
    if input.sources.is_empty() {
        reader.report.mistake(Position::default(), "", "no file was given", "give a Compose file");
        return None;
    }
    let mut documents = Documents::load(input, reader);
    // Compose gives the files this variable, whatever the environment says.
    let mut variables = input.environment.clone();
    let name = input.name.clone().or_else(|| documents.name(reader));
    variables.extend(name.map(|name| ("COMPOSE_PROJECT_NAME".to_owned(), name)));
    let mut reader_of_files = Reader { report: std::mem::take(&mut reader.report), variables: &variables };
    let merged = merged(input, &mut documents, &mut reader_of_files);
    let manifest = merged.and_then(|root| assemble(&root, input, &mut reader_of_files));
    reader.report = reader_of_files.report;
    manifest
}

fn merged(input: &Input, documents: &mut Documents<'_>, reader: &mut Reader<'_>) -> Option<Node> {
    let mut all: Option<Node> = None;
    for index in 0..input.sources.len() {
        let Some(root) = documents.resolved(index, reader) else { continue };
        let base = all.get_or_insert_with(|| Node::empty(root.position));
        merge_document(base, root);
    }
    all
}
