//! `--check-config`: finds what is wrong with the settings of this host before the agent uses them.
//! It finds everything at once, also what the agent would meet only later: files, programs, and the
//! variables that take precedence over settings.

use crate::bundles;
use crate::config::{self, Override, Texts};
use crate::logging;
use crate::secrets::Secrets;
use crate::templates;
use commands::trust;
use etcd_session::{ConfigError, SessionConfig, TlsFiles, check_certificates};
use schema::names::quoted;
use settings::lint::Severity;
use settings::named_files::{Purpose, Seen, Where, assess, named_files};
use settings::{PlacedSettings, Settings, name_of, read_with_places};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

#[derive(Debug, Default)]
pub struct Findings {
    /// What keeps the settings from being used.
    pub errors: Vec<String>,
    /// What may be intended, or may be mended by somebody else.
    pub warnings: Vec<String>,
    /// What is good to know.
    pub notes: Vec<String>,
    /// The files that were read.
    pub files: Vec<String>,
    /// What comes of the files, with the file and line of each value, and without secrets. It is
    /// empty if there is an error in them.
    pub shown: String,
}

/// Checks the settings of this host.
pub fn check_config(path: &Path) -> Findings {
    let mut found = Findings::default();
    let Texts { texts, errors: unreadable } = match config::texts(path) {
        Ok(read) => read,
        Err(error) => {
            found.errors.push(format!("{error:#}"));
            return found;
        }
    };
    found.files = texts.iter().map(|(file, _)| file.clone()).collect();
    found.errors.extend(unreadable.iter().map(ToString::to_string));
    if unreadable.is_empty()
        && let Some(untrusted) = config::untrusted(path)
    {
        found.errors.push(format!("the settings are not trusted, nothing would run: {}", untrusted.why));
    }
    let (read, errors) = read_with_places(&texts);
    found.errors.extend(errors.iter().map(ToString::to_string));
    if let Some(read) = read {
        check_read(read, &mut found);
    }
    found
}

/// Checks what settings mean on this host, as far as they are right in themselves.
fn check_read(read: PlacedSettings, found: &mut Findings) {
    let secrets = Secrets::default();
    // URLs can contain passwords too.
    let unreadable = secrets.learn_settings(&read.settings);
    let unknown = |why: String| format!("the secrets of a file are not known: {why}");
    found.warnings.extend(unreadable.into_iter().map(unknown));
    found.shown = secrets.redact(&read.show());
    let mut settings = read.settings.clone();
    let overrides = config::apply_environment(&mut settings, config::variable);
    let places = Places { read, overrides };
    for Override { variable, setting } in &places.overrides {
        let over = match places.in_files(setting) {
            Some(place) => format!("takes precedence over {setting} in {place}"),
            None => format!("sets {setting}"),
        };
        found.notes.push(format!("the variable {variable} {over}"));
    }
    let level = config::variable("ORCHESTRATE_LOG").unwrap_or_else(|| settings.log_level.clone());
    if logging::filter(&level).is_err() {
        let message = format!("{} is neither a level nor a filter", quoted(&level));
        found.add_error(&places, "log.level", &message);
    }
    check_session(&settings, &places, found);
    if let Some((setting, why)) = settings.bundles.as_ref().and_then(bundles::check) {
        found.add_error(&places, setting, &why);
    }
    check_files(&settings, &places, found);
    check_templates(&settings, &places, found);
    check_validation_directory(&settings, &places, found);
}

impl Findings {
    /// Adds an error of a setting, unless its place has one already.
    fn add_error(&mut self, places: &Places, setting: &str, message: &str) {
        let of_setting = places.at(setting, "");
        if !self.errors.iter().any(|error| error.starts_with(&of_setting)) {
            self.errors.push(places.at(setting, message));
        }
    }
}

/// Where settings come from.
struct Places {
    read: PlacedSettings,
    overrides: Vec<Override>,
}

impl Places {
    /// Returns the file and line that set this, if one does.
    fn in_files(&self, setting: &str) -> Option<String> {
        if !self.read.is_written(setting) {
            return None;
        }
        let (file, line) = self.read.place(setting)?;
        Some(format!("{file}:{line}"))
    }

    /// Returns a message about a setting, with the place that decides it.
    fn at(&self, setting: &str, message: &str) -> String {
        let message = format!("{}: {message}", name_of(setting));
        let variable = self.overrides.iter().find(|over| over.setting == setting);
        match (variable, self.read.place(setting)) {
            (Some(over), _) => format!("the variable {}: {message}", over.variable),
            (None, Some((file, line))) => format!("{file}:{line}: {message}"),
            (None, None) => message,
        }
    }

    /// True if somebody sets this, so that it is no default.
    fn is_set(&self, setting: &str) -> bool {
        self.read.is_written(setting) || self.overrides.iter().any(|over| over.setting == setting)
    }
}

fn check_session(settings: &Settings, places: &Places, found: &mut Findings) {
    let config = config::session_without_user(settings);
    let mut problems = config.problems();
    if let Some(user) = &settings.store.user {
        match config::password(settings) {
            Ok(password) => problems.extend(SessionConfig::parse_user(user, password).err()),
            Err(error) => found.add_error(places, "store.password_file", &format!("{error:#}")),
        }
    }
    for problem in problems {
        let (setting, message) = of_session(&problem);
        found.add_error(places, setting, &message);
    }
    let authorities = TlsFiles { cacert: config.tls.cacert.clone(), ..TlsFiles::default() };
    let identity = TlsFiles { cacert: None, ..config.tls };
    for (setting, files) in [("store.cacert", authorities), ("store.cert", identity)] {
        if let Err(error) = check_certificates(&files) {
            found.add_error(places, setting, &error.to_string());
        }
    }
}

/// Returns the setting of a problem, and what is wrong, in words of the settings file.
fn of_session(problem: &ConfigError) -> (&'static str, String) {
    match problem {
        ConfigError::Namespace(_) => ("store.namespace", problem.to_string()),
        ConfigError::HalfIdentity("--key") => {
            ("store.cert", "cert and key go together: key is missing".into())
        }
        ConfigError::HalfIdentity(_) => ("store.key", "cert and key go together: cert is missing".into()),
        ConfigError::NoPassword => (
            "store.user",
            "a user needs a password: as NAME:PASSWORD, in password_file or in ORCHESTRATE_PASSWORD".into(),
        ),
        ConfigError::NoEndpoints | ConfigError::Scheme(_) | ConfigError::PlainText(_) => {
            ("store.endpoints", problem.to_string())
        }
    }
}

/// Looks at the files that settings name. What has a default and was not set is left alone: the
/// default directories are made by the package or by nobody.
fn check_files(settings: &Settings, places: &Places, found: &mut Findings) {
    for file in named_files(settings).iter().filter(|file| places.is_set(&file.setting)) {
        let seen = look(&file.path, file.purpose);
        let Some((severity, what)) = assess(&file.path, file.purpose, &seen, Where::OnTheHost) else {
            continue;
        };
        match severity {
            // A certificate and the password have been read already.
            Severity::Error => found.add_error(places, &file.setting, &what),
            Severity::Warning => found.warnings.push(places.at(&file.setting, &what)),
        }
    }
}

/// Parses the templates that are there. Whether one is missing or not trusted is said with the other files.
fn check_templates(settings: &Settings, places: &Places, found: &mut Findings) {
    for (number, template) in settings.templates.iter().enumerate() {
        if template.source.exists()
            && let Err(error) = templates::check(&template.source)
        {
            found.add_error(places, &format!("template.{number}.source"), &format!("{error:#}"));
        }
    }
}

fn look(path: &Path, purpose: Purpose) -> Seen {
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Seen::Nothing,
        Err(error) => Seen::Refused(format!("{}: {error}", path.display())),
        Ok(metadata) if metadata.is_dir() => Seen::Directory,
        Ok(metadata) if purpose == Purpose::Program && metadata.mode() & 0o111 != 0 => {
            match trust::check_command(path) {
                Ok(()) => Seen::File(true),
                Err(why) => Seen::Refused(why.to_string()),
            }
        }
        Ok(_) => Seen::File(false),
    }
}

fn check_validation_directory(settings: &Settings, places: &Places, found: &mut Findings) {
    let setting = "validation.directory";
    let Some(path) = &settings.validation_directory else { return };
    match config::validation_directory(settings) {
        Ok(directory) => {
            let directory = directory.unwrap_or_default();
            directory.problem.iter().for_each(|why| found.add_error(places, setting, why));
            let skipped = directory.skipped.iter();
            let notes = skipped.map(|skipped| format!("{} does not validate: {skipped}", path.display()));
            found.notes.extend(notes);
        }
        Err(error) => found.add_error(places, setting, &format!("{}: {error}", path.display())),
    }
}
