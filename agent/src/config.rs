//! Reads settings from files and the environment. Their rules are in the crate `settings`.

use crate::bundles;
use crate::secrets::Secrets;
use anyhow::{Context, Result};
use commands::trust;
use etcd_session::{EndpointSource, Secret, SessionConfig, TlsFiles};
use settings::{EntryKind, Settings, ValidationDirectory};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use toml_reader::{SettingsError, SettingsErrors};

const FILE_MAX_BYTES: u64 = 1024 * 1024;

/// A variable that takes precedence over a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Override {
    /// The name of the variable.
    pub variable: String,
    pub setting: &'static str,
}

/// Reads `agent.toml`, then the fragments in `agent.d` beside it in name order, then the
/// environment.
///
/// # Errors
/// Returns [`SettingsErrors`]: all mistakes with file and line, and the files that cannot be read.
pub fn load(path: &Path) -> Result<Settings> {
    let Texts { texts, mut errors } = texts(path)?;
    let read = settings::read(&texts).map_err(|SettingsErrors(found)| errors.extend(found)).ok();
    // What is checked without another machine and without files is wrong at any time.
    let of_bundles = read.as_ref().and_then(|read| bundles::check_texts(read.bundles.as_ref()?));
    errors.extend(of_bundles.map(|why| SettingsError::of_file(&path.display().to_string(), why)));
    if !errors.is_empty() {
        return Err(SettingsErrors(errors).into());
    }
    let Some(mut settings) = read else {
        return Err(SettingsErrors(errors).into());
    };
    apply_environment(&mut settings, variable);
    Ok(settings)
}

/// Returns an error on one line for each mistake.
pub fn lines(error: &anyhow::Error) -> Vec<String> {
    match error.downcast_ref::<SettingsErrors>() {
        Some(SettingsErrors(errors)) => errors.iter().map(ToString::to_string).collect(),
        None => vec![format!("{error:#}")],
    }
}

/// Returns a variable of the environment, if it is set and not empty.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The files of the settings.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    /// The name and the text of each file that could be read.
    pub texts: Vec<(String, String)>,
    /// Why the others could not.
    pub errors: Vec<SettingsError>,
}

pub(crate) fn texts(path: &Path) -> Result<Texts> {
    let Texts { mut texts, mut errors } = Texts::default();
    for file in files(path)? {
        let name = file.display().to_string();
        match read_bounded(&file) {
            Ok(text) => texts.push((name, text)),
            Err(why) => errors.push(SettingsError::of_file(&name, why)),
        }
    }
    Ok(Texts { texts, errors })
}

/// Returns the paths of `agent.toml` and of the fragments beside it, in name order.
fn files(path: &Path) -> Result<Vec<PathBuf>> {
    let mut files = vec![path.to_owned()];
    let fragments = fragments(path);
    if fragments.is_dir() {
        let mut found: Vec<PathBuf> = std::fs::read_dir(&fragments)
            .and_then(|entries| entries.map(|e| e.map(|e| e.path())).collect())
            .with_context(|| fragments.display().to_string())?;
        found.retain(|p| p.extension().is_some_and(|e| e == "toml"));
        found.sort();
        files.append(&mut found);
    }
    Ok(files)
}

fn fragments(path: &Path) -> PathBuf {
    path.with_file_name("agent.d")
}

/// Checks whether others could have written the settings and so decided what runs here.
///
/// Returns the first file or directory that is not trusted, and why; `None` if all are trusted.
pub fn untrusted(path: &Path) -> Option<Untrusted> {
    let check_all = || -> Result<()> {
        let path = std::path::absolute(path).with_context(|| path.display().to_string())?;
        let fragments = fragments(&path);
        // Checked even if it is empty: others could put a file into it.
        if fragments.is_dir() {
            trust::check_file(&fragments)?;
        }
        Ok(files(&path)?.iter().try_for_each(|file| trust::check_file(file).map(drop))?)
    };
    let error = check_all().err()?;
    let of_check = error.downcast_ref().is_some_and(trust::NotTrusted::is_of_machine);
    let is_of_machine = of_check || error.downcast_ref().is_some_and(trust::is_of_machine);
    Some(Untrusted { why: format!("{error:#}"), is_of_machine })
}

/// Why settings are not trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Untrusted {
    /// The file or directory, and what is wrong with it.
    pub why: String,
    /// True if the machine could not answer, so that it is not known who can write them.
    pub is_of_machine: bool,
}

fn read_bounded(path: &Path) -> Result<String, String> {
    let metadata = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("not a regular file".into());
    }
    if metadata.len() > FILE_MAX_BYTES {
        return Err(format!("larger than {FILE_MAX_BYTES} bytes"));
    }
    std::fs::read_to_string(path).map_err(|error| error.to_string())
}

/// Applies the environment, and returns what it overrides. It takes precedence over files, and
/// `ORCHESTRATE_*` over `ETCDCTL_*`.
pub(crate) fn apply_environment(
    settings: &mut Settings,
    get: impl Fn(&str) -> Option<String>,
) -> Vec<Override> {
    let mut overrides = Vec::new();
    let mut take = |names: &[String], setting: &'static str| {
        let (variable, value) = names.iter().find_map(|name| Some((name.clone(), get(name)?)))?;
        overrides.push(Override { variable, setting });
        Some(value)
    };
    let either = |name: &str| [format!("ORCHESTRATE_{name}"), format!("ETCDCTL_{name}")];
    let store = &mut settings.store;
    if let Some(list) = take(&either("ENDPOINTS"), "store.endpoints") {
        store.endpoints = Some(list.split(',').map(|e| e.trim().to_owned()).collect());
        (store.endpoints_file, store.discovery_srv, store.discovery_url) = (None, None, None);
    }
    // The paths are made absolute because steps receive them and run in another directory.
    for (name, setting, path) in [
        ("CACERT", "store.cacert", &mut store.cacert),
        ("CERT", "store.cert", &mut store.cert),
        ("KEY", "store.key", &mut store.key),
    ] {
        *path = take(&either(name), setting).map(PathBuf::from).or(path.take()).map(absolute);
    }
    store.user = take(&either("USER"), "store.user").or(store.user.take());
    if let Some(directory) = take(&["ORCHESTRATE_STATE_DIR".into()], "state_directory") {
        settings.state_directory = absolute(directory.into());
    }
    if let Some(file) = take(&["ORCHESTRATE_LOCAL_VERSION_FILE".into()], "version_file") {
        settings.version_file = absolute(file.into());
    }
    // The log itself reads this variable.
    take(&["ORCHESTRATE_LOG".into()], "log.level");
    overrides
}

fn absolute(path: PathBuf) -> PathBuf {
    // This fails if there is no current directory; no relative path can be used then anyway.
    std::path::absolute(&path).unwrap_or(path)
}

/// Returns the configuration of the session with the store.
///
/// # Errors
/// Returns an error if the password file cannot be read or if settings contradict each other.
pub fn session(settings: &Settings) -> Result<SessionConfig> {
    let mut config = session_without_user(settings);
    if let Some(user) = &settings.store.user {
        config.user = Some(SessionConfig::parse_user(user, password(settings)?)?);
        config.password_file = settings.store.password_file.clone();
    }
    config.check()?;
    Ok(config)
}

/// Returns the configuration of the session, without the user and unchecked.
pub(crate) fn session_without_user(settings: &Settings) -> SessionConfig {
    let store = &settings.store;
    let mut config = SessionConfig::new(EndpointSource::named(
        store.endpoints_file.clone(),
        store.discovery_srv.clone(),
        store.discovery_url.clone().map(|url| (url, store.discovery_port)),
        store.endpoints.clone(),
    ));
    config.tls = TlsFiles { cacert: store.cacert.clone(), cert: store.cert.clone(), key: store.key.clone() };
    config.namespace = store.namespace.clone();
    config
}

/// Returns the password of the store's user: that of the file, or that of the environment.
///
/// # Errors
/// Returns an error if the file cannot be read.
pub(crate) fn password(settings: &Settings) -> Result<Option<Secret>> {
    let Some(path) = &settings.store.password_file else {
        let set = ["ORCHESTRATE_PASSWORD", "ETCDCTL_PASSWORD"].iter().find_map(|n| std::env::var(n).ok());
        return Ok(set.map(Secret::new));
    };
    Ok(Some(Secret::read_file(path)?))
}

/// Returns the secrets that must not be shown in the output of programs.
pub fn secrets(config: &SessionConfig, settings: &Settings) -> Secrets {
    let secrets = Secrets::default();
    config
        .user
        .iter()
        .for_each(|(name, password)| secrets.learn(&format!("of the store's user {name}"), password.clone()));
    secrets.learn_settings_logged(settings);
    secrets
}

/// Reads the validation directory; `None` if none is configured.
///
/// # Errors
/// Returns the system's error if the directory cannot be read.
pub fn validation_directory(settings: &Settings) -> std::io::Result<Option<ValidationDirectory>> {
    let Some(directory) = &settings.validation_directory else { return Ok(None) };
    let entries: std::io::Result<Vec<_>> = std::fs::read_dir(directory)?
        .map(|entry| {
            let entry = entry?;
            Ok((entry.file_name().into_string().ok(), entry_kind(&entry.path())))
        })
        .collect();
    Ok(Some(ValidationDirectory::new(directory, entries?, settings.validation_timeout)))
}

fn entry_kind(path: &Path) -> EntryKind {
    std::fs::metadata(path).map_or(EntryKind::Other, |file| EntryKind::of(file.is_file(), file.mode()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_wins_over_files_and_ours_over_etcdctls() {
        let text = "[store]\ndiscovery_srv = \"x\"\nuser = \"file\"\n";
        let mut settings = settings::read(&[("f".into(), text.into())]).unwrap();
        let overrides = apply_environment(&mut settings, |name| match name {
            "ETCDCTL_ENDPOINTS" => Some("a:1,b:2".into()),
            "ETCDCTL_USER" => Some("theirs".into()),
            "ORCHESTRATE_USER" => Some("ours".into()),
            "ETCDCTL_CACERT" => Some("tls/ca.crt".into()),
            "ORCHESTRATE_KEY" => Some("/tls/key".into()),
            _ => None,
        });
        assert_eq!(
            settings.store.endpoints.as_deref(),
            Some(["a:1".to_owned(), "b:2".to_owned()].as_slice())
        );
        let variables = overrides.iter().map(|o| (o.variable.as_str(), o.setting));
        let expected = [
            ("ETCDCTL_ENDPOINTS", "store.endpoints"),
            ("ETCDCTL_CACERT", "store.cacert"),
            ("ORCHESTRATE_KEY", "store.key"),
            ("ORCHESTRATE_USER", "store.user"),
        ];
        assert_eq!(variables.collect::<Vec<_>>(), expected);
        assert_eq!(settings.store.discovery_srv, None);
        assert_eq!(settings.store.user.as_deref(), Some("ours"));
        let here = std::env::current_dir().unwrap();
        assert_eq!(settings.store.cacert, Some(here.join("tls/ca.crt")), "steps run elsewhere");
        assert_eq!(settings.store.key, Some("/tls/key".into()));
    }

    #[test]
    fn fragments_are_read_in_name_order() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("agent.toml");
        std::fs::write(&file, "role = \"a\"\n").unwrap();
        std::fs::create_dir(directory.path().join("agent.d")).unwrap();
        std::fs::write(directory.path().join("agent.d/20.toml"), "role = \"c\"\n").unwrap();
        std::fs::write(directory.path().join("agent.d/10.toml"), "role = \"b\"\n").unwrap();
        std::fs::write(directory.path().join("agent.d/30.toml~"), "nonsense").unwrap();
        assert_eq!(load(&file).unwrap().role.unwrap().as_str(), "c");
        std::fs::write(directory.path().join("agent.d/30.toml"), "\n\nrol = 1").unwrap();
        let error = load(&file).unwrap_err().to_string();
        assert!(error.ends_with("agent.d/30.toml:3: unknown setting `rol`; did you mean `role`?"), "{error}");
    }
}
