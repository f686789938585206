//! `lint`: checks settings and service files before they are used. It does not access the store.

use crate::exit::{Exit, Failure};
use crate::local;
use crate::output::{self, Output};
use anyhow::anyhow;
use catalog::definitions::{FILE_KINDS, Parsed, assemble, parse_file};
use clap::Args;
use planning::lint::{Diagnostic, HostConfig, Severity, lint};
use planning::settings;
use planning::settings::{Settings, ValidationDirectory};
use serde_json::json;
use std::path::{Path, PathBuf};

/// The files of one kind of host.
#[derive(Default)]
struct Files {
    source: String,
    settings: Vec<PathBuf>,
    services: Vec<PathBuf>,
}

/// Check settings and service files before they are used
#[derive(Debug, Args)]
pub(crate) struct Lint {
    /// Directories, one for each kind of host; or settings files, each followed by its service
    /// files
    #[arg(required = true)]
    files: Vec<PathBuf>,
}

/// Checks files and directories. A directory is one kind of host: `agent.toml`, `agent.d`,
/// `services.d`. Among single files, a settings file starts a kind of host, and the service files
/// after it belong to that kind.
pub(super) fn lint_files(options: Lint, output: &mut Output) -> Result<Exit, Failure> {
    let mut found: Vec<Diagnostic> = Vec::new();
    let mut hosts: Vec<HostConfig> = Vec::new();
    for files in group(&options.files)? {
        match read(&files, &mut found) {
            Ok(config) => hosts.push(config),
            Err(message) => {
                found.push(Diagnostic { severity: Severity::Error, source: String::new(), message })
            }
        }
    }
    found.extend(lint(&hosts));
    let words = |diagnostic: &Diagnostic| match diagnostic.source.as_str() {
        "" => diagnostic.message.clone(),
        source => format!("{source}: {}", diagnostic.message),
    };
    let severity = |diagnostic: &Diagnostic| match diagnostic.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    let list: Vec<_> = found
        .iter()
        .map(|f| json!({ "severity": severity(f), "source": f.source, "message": f.message }))
        .collect();
    output.answer(&json!({ "diagnostics": list }), |o| {
        found.iter().for_each(|f| o.line(&format!("{}: {}", severity(f), words(f))));
    });
    let errors = found.iter().filter(|f| f.severity == Severity::Error).count();
    output::note(&format!(
        "kinds of host: {}, errors: {errors}, warnings: {}",
        hosts.len(),
        found.len() - errors
    ));
    Ok(Exit::of(errors == 0))
}

fn group(paths: &[PathBuf]) -> Result<Vec<Files>, Failure> {
    let mut groups: Vec<Files> = Vec::new();
    for path in paths {
        if path.is_dir() {
            let services = local::entries(&path.join("services.d"), &FILE_KINDS);
            let settings = local::settings_files(path);
            groups.push(Files { source: path.display().to_string(), settings, services });
            continue;
        }
        let text = text_of(path).map_err(|e| Failure::no(e.to_string()))?;
        let is_service =
            path.extension().is_some_and(|kind| kind == "json" || kind == "hcl") || is_service_file(&text);
        let source = path.display().to_string();
        match groups.last_mut() {
            Some(last) if is_service => last.services.push(path.clone()),
            _ if is_service => {
                groups.push(Files { source, services: vec![path.clone()], ..Files::default() })
            }
            _ => groups.push(Files { source, settings: vec![path.clone()], ..Files::default() }),
        }
    }
    if groups.is_empty() {
        return Err(Failure::usage(anyhow!("no files given")));
    }
    Ok(groups)
}

/// True if the file has `[[…]]` tables and all of them are services or checks, as in this project's
/// own service files.
fn is_service_file(text: &str) -> bool {
    let tables = text.lines().map(str::trim).filter(|line| line.starts_with("[["));
    let mut tables = tables.peekable();
    tables.peek().is_some() && tables.all(|line| line.starts_with("[[service") || line.starts_with("[[check"))
}

fn text_of(path: &Path) -> Result<String, anyhow::Error> {
    match local::read_up_to(path, local::SETTINGS_MAX_BYTES) {
        Ok(Some(text)) => Ok(text),
        Ok(None) => Err(anyhow!("{}: no such file", path.display())),
        Err(error) => Err(anyhow!("{}: {error}", path.display())),
    }
}

fn read(files: &Files, found: &mut Vec<Diagnostic>) -> Result<HostConfig, String> {
    let mut fragments = Vec::new();
    for path in &files.settings {
        fragments.push((path.display().to_string(), text_of(path).map_err(|e| e.to_string())?));
    }
    let settings = settings::read(&fragments).map_err(|e| e.to_string())?;
    found.extend(of_validation_directory(&settings));
    let mut parsed: Vec<(String, Parsed)> = Vec::new();
    for path in &files.services {
        let shown = path.display().to_string();
        let text = text_of(path).map_err(|e| e.to_string())?;
        match parse_file(&shown, &text) {
            Ok(read) => parsed.push((shown, read)),
            Err(error) => found.push(Diagnostic {
                severity: Severity::Error,
                source: String::new(),
                message: error.to_string(),
            }),
        }
    }
    let warning =
        |message: String| Diagnostic { severity: Severity::Warning, source: String::new(), message };
    found.extend(parsed.iter().flat_map(|(_, p)| p.notes.iter().cloned().map(warning)));
    let (definitions, misfits) = assemble(parsed.iter().map(|(file, p)| (file.as_str(), p)));
    found.extend(misfits.iter().map(|error| Diagnostic {
        severity: Severity::Error,
        source: String::new(),
        message: error.to_string(),
    }));
    Ok(HostConfig { source: files.source.clone(), settings, definitions })
}

/// Returns the entries of the validation directory that do not validate. A directory that is not on
/// this machine gives no diagnostics, because settings are also checked on other machines.
fn of_validation_directory(settings: &Settings) -> Vec<Diagnostic> {
    let Some(path) = &settings.validation_directory else { return Vec::new() };
    let Some(entries) = local::all_entries(path) else { return Vec::new() };
    let directory = ValidationDirectory::new(path, entries, settings.validation_timeout);
    let shown = path.display().to_string();
    let diagnostic = |severity, message: String| Diagnostic { severity, source: shown.clone(), message };
    let problem = directory.problem.map(|why| diagnostic(Severity::Error, why));
    let skipped = directory.skipped.iter();
    let skipped =
        skipped.map(|skipped| diagnostic(Severity::Warning, format!("does not validate: {skipped}")));
    problem.into_iter().chain(skipped).collect()
}
