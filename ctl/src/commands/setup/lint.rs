//! `lint`: checks settings and service files before they are used. It does not access the store.

use crate::commands::answers;
use crate::commands::verb::{About, Answer, Group, LocalVerb, Past, Program, Spec};
use crate::exit::{Exit, Failure};
use crate::local;
use crate::output::{self, Output};
use archive::objects::WrittenConfig;
use catalog::definitions::{
    CheckDefinition, CheckKind, Definitions, FILE_KINDS, Parsed, assemble, parse_file,
};
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use settings::lint::{Diagnostic, HostConfig, Severity, lint, names_no_user};
use settings::named_files::{NamedFile, Purpose, Seen, Where, assess, named_files};
use settings::{ObjectsSettings, PlacedSettings, Settings, ValidationDirectory, name_of, read_with_places};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
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

impl LocalVerb for Lint {
    const SPEC: Spec = Spec {
        name: "lint",
        group: Group::Setup,
        about: About::Other,
        past: Past::DoesNotRead,
        exits: &[Exit::No],
        answer: Answer::Json(answers::of::<LintAnswer>),
        examples: &[(
            "orchestrate lint /etc/orchestrate",
            "check the settings of this host before they are used",
        )],
    };

    /// Checks files and directories. A directory is one kind of host: `agent.toml`, `agent.d`,
    /// `services.d`. Among single files, a settings file starts a kind of host, and the service files
    /// after it belong to that kind.
    fn run(self, _: &Program<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let mut found: Vec<Diagnostic> = Vec::new();
        let mut hosts: Vec<HostConfig> = Vec::new();
        let mut open: Vec<String> = Vec::new();
        for files in group(&self.files, &mut found) {
            let host = read(&files, &mut found);
            let has_settings = !files.settings.is_empty();
            open.extend(
                host.iter()
                    .filter(|host| has_settings && names_no_user(&host.settings))
                    .map(|host| host.source.clone()),
            );
            hosts.extend(host);
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
        let shown = |f: &Diagnostic| LintDiagnostic {
            severity: severity(f),
            source: f.source.clone(),
            message: f.message.clone(),
        };
        output.sorted_answer(&LintAnswer { diagnostics: found.iter().map(shown).collect() }, |o| {
            found.iter().for_each(|f| o.line(&format!("{}: {}", severity(f), words(f))));
        });
        if !open.is_empty() {
            output::note(&format!(
                "{}: no user of the store is named. If the store has no users, whoever reaches it can trigger a version, and so have root run the steps on these hosts: on the machine of the store that is every user; docs/security.md says more",
                open.join(", ")
            ));
        }
        let errors = found.iter().filter(|f| f.severity == Severity::Error).count();
        output::note(&format!(
            "kinds of host: {}, errors: {errors}, warnings: {}",
            hosts.len(),
            found.len() - errors
        ));
        Ok(Exit::of(errors == 0))
    }
}

fn group(paths: &[PathBuf], found: &mut Vec<Diagnostic>) -> Vec<Files> {
    let mut groups: Vec<Files> = Vec::new();
    for path in paths {
        let source = path.display().to_string();
        if path.is_dir() {
            let services = local::entries(&path.join("services.d"), &FILE_KINDS);
            let settings = local::settings_files(path);
            if services.is_empty() && settings.is_empty() {
                let message = "there is no agent.toml, agent.d/*.toml or services.d/* in this directory";
                found.push(error(&source, message.to_owned()));
                continue;
            }
            groups.push(Files { source, settings, services });
            continue;
        }
        let text = match text_of(path) {
            Ok(text) => text,
            Err(why) => {
                found.push(error("", why));
                continue;
            }
        };
        let is_service =
            path.extension().is_some_and(|kind| kind == "json" || kind == "hcl") || is_service_file(&text);
        match groups.last_mut() {
            Some(last) if is_service => last.services.push(path.clone()),
            _ if is_service => {
                groups.push(Files { source, services: vec![path.clone()], ..Files::default() })
            }
            _ => groups.push(Files { source, settings: vec![path.clone()], ..Files::default() }),
        }
    }
    groups
}

fn error(source: &str, message: String) -> Diagnostic {
    Diagnostic { severity: Severity::Error, source: source.to_owned(), message }
}

fn warning(source: &str, message: String) -> Diagnostic {
    Diagnostic { severity: Severity::Warning, source: source.to_owned(), message }
}

/// True if the file has `[[…]]` tables and all of them are services or checks, as in this project's
/// own service files.
fn is_service_file(text: &str) -> bool {
    let tables = text.lines().map(str::trim).filter(|line| line.starts_with("[["));
    let mut tables = tables.peekable();
    tables.peek().is_some() && tables.all(|line| line.starts_with("[[service") || line.starts_with("[[check"))
}

fn text_of(path: &Path) -> Result<String, String> {
    let shown = path.display();
    match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(format!("{shown}: no such file")),
        Ok(metadata) if !metadata.is_file() => return Err(format!("{shown}: not a regular file")),
        _ => {}
    }
    match local::read_up_to(path, local::SETTINGS_MAX_BYTES) {
        Ok(text) => text.ok_or_else(|| format!("{shown}: no such file")),
        Err(error) => Err(format!("{shown}: {error}")),
    }
}

/// Reads one kind of host; `None` if its settings cannot be used.
fn read(files: &Files, found: &mut Vec<Diagnostic>) -> Option<HostConfig> {
    let settings = read_settings(&files.settings, found);
    let mut parsed: Vec<(String, Parsed)> = Vec::new();
    for path in &files.services {
        let shown = path.display().to_string();
        match text_of(path).map(|text| parse_file(&shown, &text)) {
            Ok(Ok(read)) => parsed.push((shown, read)),
            Ok(Err(errors)) => found.extend(errors.0.iter().map(|mistake| error("", mistake.to_string()))),
            Err(why) => found.push(error("", why)),
        }
    }
    found.extend(parsed.iter().flat_map(|(_, p)| p.notes.iter().cloned().map(|note| warning("", note))));
    let (definitions, misfits) = assemble(parsed.iter().map(|(file, p)| (file.as_str(), p)));
    found.extend(misfits.iter().map(|misfit| error("", misfit.to_string())));
    found.extend(of_checks(&files.source, &definitions));
    Some(HostConfig { source: files.source.clone(), settings: settings?, definitions })
}

fn read_settings(paths: &[PathBuf], found: &mut Vec<Diagnostic>) -> Option<Settings> {
    let (mut fragments, mut all_are_read) = (Vec::new(), true);
    for path in paths {
        match text_of(path) {
            Ok(text) => fragments.push((path.display().to_string(), text)),
            Err(why) => {
                all_are_read = false;
                found.push(error("", why));
            }
        }
    }
    let (read, errors) = read_with_places(&fragments);
    found.extend(errors.iter().map(|mistake| error("", mistake.to_string())));
    let read = read?;
    found.extend(of_validation_directory(&read.settings));
    found.extend(of_named_files(&read));
    found.extend(of_bundles(&read));
    (all_are_read && errors.is_empty()).then_some(read.settings)
}

/// Returns what no agent can use of the settings of bundles, whatever the files are that they name.
fn of_bundles(read: &PlacedSettings) -> Option<Diagnostic> {
    let ObjectsSettings { to, endpoint, region, .. } = &read.settings.bundles.as_ref()?.objects;
    let (endpoint, region) = (endpoint.as_deref(), region.as_deref());
    let written = WrittenConfig { url: to, endpoint, region, credentials: None, ca: None, timeout: None };
    let why = written.check().err()?;
    let place = read.place("bundles.to").map(|(name, line)| format!("{name}:{line}"));
    Some(error(&place.unwrap_or_default(), format!("bundles.to: {why}")))
}

/// Returns the files that settings name and that cannot be used on this machine.
fn of_named_files(read: &PlacedSettings) -> Vec<Diagnostic> {
    let files = named_files(&read.settings).into_iter();
    let of_file = |file: NamedFile| {
        if !read.is_written(&file.setting) {
            return None;
        }
        let (name, line) = read.place(&file.setting)?;
        let (severity, what) = assess(&file.path, file.purpose, &look(&file.path), Where::Anywhere)?;
        Some(Diagnostic {
            severity,
            source: format!("{name}:{line}"),
            message: format!("{}: {what}", name_of(&file.setting)),
        })
    };
    files.filter_map(of_file).collect()
}

/// Returns the checks whose programs cannot be used on this machine. A name without a path is looked
/// up when the check runs.
fn of_checks(source: &str, definitions: &Definitions) -> Vec<Diagnostic> {
    let checks = definitions.services.values().flat_map(|service| &service.checks);
    let of_check = |check: &CheckDefinition| {
        let CheckKind::Command { arguments } = &check.kind else { return None };
        let program = Path::new(arguments.first()?);
        if !program.is_absolute() {
            return None;
        }
        let (severity, what) = assess(program, Purpose::Program, &look(program), Where::Anywhere)?;
        Some(Diagnostic {
            severity,
            source: source.to_owned(),
            message: format!("check {}: {what}", check.id),
        })
    };
    checks.chain(&definitions.host_checks).filter_map(of_check).collect()
}

fn look(path: &Path) -> Seen {
    match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Seen::Nothing,
        Err(error) => Seen::Refused(format!("{}: {error}", path.display())),
        Ok(metadata) if metadata.is_dir() => Seen::Directory,
        Ok(metadata) => Seen::File(metadata.mode() & 0o111 != 0),
    }
}

/// Returns the entries of the validation directory that do not validate. A directory that is not on
/// this machine is a warning, because settings are also checked on other machines.
fn of_validation_directory(settings: &Settings) -> Vec<Diagnostic> {
    let Some(path) = &settings.validation_directory else { return Vec::new() };
    let shown = path.display().to_string();
    let Some(entries) = local::all_entries(path) else {
        return vec![warning(&shown, "the validation directory is not on this machine".into())];
    };
    let directory = ValidationDirectory::new(path, entries, settings.validation_timeout);
    let diagnostic = |severity, message: String| Diagnostic { severity, source: shown.clone(), message };
    let problem = directory.problem.map(|why| diagnostic(Severity::Error, why));
    let skipped = directory.skipped.iter();
    let skipped =
        skipped.map(|skipped| diagnostic(Severity::Warning, format!("does not validate: {skipped}")));
    problem.into_iter().chain(skipped).collect()
}

/// What `lint` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LintAnswer {
    diagnostics: Vec<LintDiagnostic>,
}

/// What is wrong with the settings of a host.
#[derive(Debug, Serialize, JsonSchema)]
struct LintDiagnostic {
    severity: &'static str,
    source: String,
    message: String,
}
