//! Reads fragments, merges them and checks the result. Every mistake is found at once.

use crate::agent::{Fragment, Settings, StepFragment};
use crate::command::{absolute, absolute_path, check_placeholders};
use crate::error::{Problems, name_of};
use crate::merge::Tree;
use crate::secret_pattern::SecretPattern;
use crate::{checks, services};
use planning::host::{BACKOFF_SECONDS, SUSPECT_AFTER, SiteConfig, Step, Steps};
use schema::time::{Backoff, Span, format_duration};
use std::net::SocketAddr;
use std::time::Duration;
use toml_reader::{SettingsError, SettingsErrors};

/// Settings that remember where they are written.
#[derive(Debug, Clone)]
pub struct PlacedSettings {
    pub settings: Settings,
    tree: Tree,
}

impl PlacedSettings {
    /// Returns the file and the line of a setting such as `apply.0.command`, or of the table that
    /// would contain it; `None` if no file sets it.
    pub fn place(&self, path: &str) -> Option<(String, usize)> {
        self.tree.place(path)
    }

    /// True if a file sets the setting itself.
    pub fn is_written(&self, path: &str) -> bool {
        self.tree.contains(path)
    }

    /// Returns the merged fragments as TOML, with the file and line of each value. Values in
    /// `environment` that may be secrets are hidden.
    pub fn show(&self) -> String {
        self.tree.show()
    }
}

/// Reads fragments in the given order; each is a file name and its text.
///
/// # Errors
/// Returns all mistakes in the fragments and in the merged settings.
pub fn read(fragments: &[(String, String)]) -> Result<Settings, SettingsErrors> {
    match read_with_places(fragments) {
        (Some(read), errors) if errors.is_empty() => Ok(read.settings),
        (_, errors) => Err(SettingsErrors(errors)),
    }
}

/// Reads fragments as far as they are right, and keeps the places of the settings. If there is a
/// mistake, the settings are only good for finding further ones.
pub fn read_with_places(fragments: &[(String, String)]) -> (Option<PlacedSettings>, Vec<SettingsError>) {
    let mut errors = Vec::new();
    let mut tree = Tree::default();
    let mut lost_tables = false;
    for (file, text) in fragments {
        let document = toml_reader::read::<Fragment>(text);
        errors.extend(document.mistakes.into_iter().map(|mistake| SettingsError::in_file(file, mistake)));
        lost_tables |= document.lost_tables;
        if let Some((_, table)) = document.content {
            errors.extend(tree.merge(Tree::of(file, text, table), lost_tables));
        }
    }
    let whole = fragments.iter().map(|(file, _)| file.as_str()).collect::<Vec<_>>().join(", ");
    let settings = match tree.clone().into_table().try_into::<Fragment>() {
        Ok(fragment) => {
            let mut problems = Problems::new(lost_tables);
            let settings = validate(fragment, &mut problems);
            errors.extend(problems.into_found().into_iter().map(|(path, message)| {
                let place = tree.place(&path);
                let (file, line) = place.map_or_else(|| (whole.clone(), None), |(f, n)| (f, Some(n)));
                SettingsError { file, line, setting: name_of(&path), message }
            }));
            Some(settings)
        }
        // Every fragment was read alone, so this is no mistake of one of them.
        Err(error) => {
            errors.push(SettingsError::of_file(&whole, error.message().to_owned()));
            None
        }
    };
    let number = |name: &String| fragments.iter().position(|(file, _)| file == name);
    errors.sort_by_key(|error| (number(&error.file), error.line));
    (settings.map(|settings| PlacedSettings { settings, tree }), errors)
}

/// Returns the settings of the merged fragments. If there is a problem, they are only good for
/// finding further ones.
fn validate(fragment: Fragment, problems: &mut Problems) -> Settings {
    let store = fragment.store.validate(problems);
    let steps = Steps {
        prefetch: steps("prefetch", fragment.prefetch, problems),
        apply: steps("apply", fragment.apply, problems),
        converge: steps("converge", fragment.converge, problems),
        validate: steps("validate", fragment.validate, problems),
        on_suspect: steps("on_suspect", fragment.on_suspect, problems),
    };
    let span =
        |given: Option<Span>, default_seconds| given.map_or(Duration::from_secs(default_seconds), |s| s.0);
    let attempts = fragment.attempts;
    let validate_every = span(fragment.validation.every, 60);
    if validate_every < Duration::from_millis(100) {
        problems.add("validation.every", "must be at least 100ms");
    }
    let suspect_after = attempts.suspect_after.unwrap_or(SUSPECT_AFTER);
    if suspect_after == 0 {
        problems.add("attempts.suspect_after", "must be at least 1");
    }
    let bounds =
        [span(attempts.backoff_min, BACKOFF_SECONDS[0]), span(attempts.backoff_max, BACKOFF_SECONDS[1])];
    if bounds[0] > bounds[1] {
        // The one that is written is named; the other may have its default.
        let setting = if attempts.backoff_min.is_some() { "backoff_min" } else { "backoff_max" };
        let [min, max] = bounds.map(format_duration);
        let message = format!("backoff_min is {min} and backoff_max is {max}: the first must not be longer");
        problems.add(format!("attempts.{setting}"), message);
    }
    for (setting, path) in [
        ("state_directory", &fragment.state_directory),
        ("version_file", &fragment.version_file),
        ("facts_file", &fragment.facts_file),
    ] {
        if let Some(path) = path {
            problems.check(setting, absolute_path(path));
        }
    }
    if let Some(level) = &fragment.log.level {
        problems.check("log.level", checks::log_level(level));
    }
    for name in fragment.environment.keys() {
        problems.check("environment", checks::variable(name));
    }
    for (at, path) in fragment.secret_files.iter().enumerate() {
        problems.check(format!("secret_files.{at}"), absolute_path(path));
    }
    let secret_patterns = SecretPattern::read_all("secret_patterns", &fragment.secret_patterns, problems);
    let requires = services::requires(fragment.requires, &steps, problems);
    Settings {
        host: fragment.host,
        role: fragment.role,
        group: fragment.group,
        labels: fragment.labels,
        state_directory: fragment.state_directory.unwrap_or_else(|| "/var/lib/orchestrate".into()),
        version_file: fragment.version_file.unwrap_or_else(|| "/etc/current_version".into()),
        facts_file: fragment.facts_file,
        environment: fragment.environment,
        secret_files: fragment.secret_files,
        secret_patterns,
        store,
        http_listen: fragment.http.listen.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 8580))),
        http_names: fragment.http.names,
        socket: fragment.http.socket.map(|path| (path, fragment.http.socket_group)),
        http_takes_results: fragment.http.take_check_results.unwrap_or(false),
        http_fleet_lock: fragment.http.fleet_lock.unwrap_or(false),
        services: services::services(fragment.services, problems),
        catalog: services::catalog(fragment.catalog, problems),
        dns: services::dns(fragment.dns, problems),
        templates: services::templates(fragment.template, problems),
        bundles: fragment.bundles.validate(problems),
        machine_id_file: fragment.identity.machine_id_file.unwrap_or_else(|| "/etc/machine-id".into()),
        boot_id_file: fragment
            .identity
            .boot_id_file
            .unwrap_or_else(|| "/proc/sys/kernel/random/boot_id".into()),
        log_level: fragment.log.level.unwrap_or_else(|| "info".into()),
        log_format: fragment.log.format.unwrap_or_default(),
        validation_directory: fragment.validation.directory,
        validation_timeout: span(fragment.validation.timeout, 60),
        policy: SiteConfig {
            driver: fragment.driver.unwrap_or_default(),
            steps,
            requires,
            converge_at_most_every: span(attempts.converge_at_most_every, 10),
            validate_every,
            not_yet_retry: span(attempts.not_yet_retry, 15).max(Duration::from_millis(100)),
            attempt_backoff: Backoff::new(bounds[0], bounds[1]),
            suspect_after,
            suspect_retry_on_change: span(attempts.suspect_retry_on_change, 60),
            suspect_retry_every: span(attempts.suspect_retry_every, 3600),
            reapply_per_day: attempts.reapply_per_day.unwrap_or(1),
            reapply_after: span(attempts.reapply_after, 900),
            spread_window: span(attempts.spread_window, 0),
        },
    }
}

fn steps(phase: &str, fragments: Vec<StepFragment>, problems: &mut Problems) -> Vec<Step> {
    let mut steps = Vec::new();
    for (number, fragment) in fragments.into_iter().enumerate() {
        let at = |setting: &str| format!("{phase}.{number}.{setting}");
        let command = fragment.command;
        problems.check(at("command"), absolute(&command).and_then(|()| check_placeholders(&command)));
        let done_codes = fragment.done_codes.unwrap_or_else(|| vec![0]);
        let not_yet_codes = fragment.not_yet_codes.unwrap_or_else(|| vec![75]);
        problems.check(at("done_codes"), checks::exit_codes(&done_codes));
        problems.check(at("not_yet_codes"), checks::exit_codes(&not_yet_codes));
        if done_codes.is_empty() {
            problems.add(at("done_codes"), "the list is empty: the step could never succeed");
        }
        if let Some(code) = done_codes.iter().find(|code| not_yet_codes.contains(code)) {
            problems.add(at("done_codes"), format!("code {code} cannot mean done and not yet"));
        }
        steps.push(Step {
            name: fragment.name,
            command,
            timeout: fragment.timeout.map_or(Duration::from_secs(1800), |s| s.0),
            grace: fragment.grace.map_or(Duration::from_secs(10), |s| s.0),
            done_codes,
            not_yet_codes,
            leftovers: fragment.leftovers.unwrap_or_default(),
            cannot_run: None,
        });
    }
    steps
}
