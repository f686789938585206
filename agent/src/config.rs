//! Reads settings from files and the environment. Their rules are in `planning::settings`.

use crate::logging;
use crate::secrets::Secrets;
use crate::trust;
use anyhow::{Context, Result};
use etcd_session::{EndpointSource, SessionConfig, TlsFiles};
use planning::settings;
use planning::settings::{EntryKind, Settings, ValidationDirectory};
use schema::names::quoted;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const FILE_MAX_BYTES: u64 = 1024 * 1024;

/// Reads `agent.toml`, then the fragments in `agent.d` beside it in name order, then the
/// environment.
///
/// # Errors
/// Returns the first mistake, with file and line, or why a file cannot be read.
pub fn load(path: &Path) -> Result<Settings> {
    let mut settings = settings::read(&texts(path)?)?;
    apply_environment(&mut settings, |name| std::env::var(name).ok().filter(|v| !v.is_empty()));
    Ok(settings)
}

/// Returns the settings that the files result in, with the file and line of each value, without
/// secrets.
///
/// # Errors
/// Returns the same errors as [`load`].
pub fn show(path: &Path) -> Result<String> {
    let texts = texts(path)?;
    // URLs can contain passwords too.
    let secrets = Secrets::default();
    secrets.learn_settings(&settings::read(&texts)?);
    Ok(secrets.redact(&settings::show(&texts)?))
}

fn texts(path: &Path) -> Result<Vec<(String, String)>> {
    files(path)?.into_iter().map(|file| Ok((file.display().to_string(), read_bounded(&file)?))).collect()
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
pub fn untrusted(path: &Path) -> Option<String> {
    let check_all = || -> Result<()> {
        let path = std::path::absolute(path).with_context(|| path.display().to_string())?;
        let fragments = fragments(&path);
        // Checked even if it is empty: others could put a file into it.
        if fragments.is_dir() {
            trust::check_file(&fragments)?;
        }
        Ok(files(&path)?.iter().try_for_each(|file| trust::check_file(file))?)
    };
    check_all().err().map(|error| format!("{error:#}"))
}

fn read_bounded(path: &Path) -> Result<String> {
    let named = || path.display().to_string();
    let metadata = std::fs::metadata(path).with_context(named)?;
    anyhow::ensure!(metadata.is_file(), "{} is not a regular file", path.display());
    anyhow::ensure!(
        metadata.len() <= FILE_MAX_BYTES,
        "{} is larger than {FILE_MAX_BYTES} bytes",
        path.display()
    );
    std::fs::read_to_string(path).with_context(named)
}

/// Applies the environment. It takes precedence over files, and `ORCHESTRATE_*` over `ETCDCTL_*`.
fn apply_environment(settings: &mut Settings, get: impl Fn(&str) -> Option<String>) {
    let either = |name: &str| get(&format!("ORCHESTRATE_{name}")).or_else(|| get(&format!("ETCDCTL_{name}")));
    let store = &mut settings.store;
    if let Some(list) = either("ENDPOINTS") {
        store.endpoints = Some(list.split(',').map(|e| e.trim().to_owned()).collect());
        (store.endpoints_file, store.discovery_srv, store.discovery_url) = (None, None, None);
    }
    // The paths are made absolute because steps receive them and run in another directory.
    let path = |name: &str| either(name).map(|path| absolute(path.into()));
    store.cacert = path("CACERT").or(store.cacert.take().map(absolute));
    store.cert = path("CERT").or(store.cert.take().map(absolute));
    store.key = path("KEY").or(store.key.take().map(absolute));
    store.user = either("USER").or(store.user.take());
    if let Some(directory) = get("ORCHESTRATE_STATE_DIR") {
        settings.state_directory = absolute(directory.into());
    }
    if let Some(file) = get("ORCHESTRATE_LOCAL_VERSION_FILE") {
        settings.version_file = absolute(file.into());
    }
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
    let store = &settings.store;
    let endpoints = if let Some(path) = &store.endpoints_file {
        EndpointSource::File(path.clone())
    } else if let Some(domain) = &store.discovery_srv {
        EndpointSource::Srv(domain.clone())
    } else if let Some(url) = &store.discovery_url {
        EndpointSource::Discovery { url: url.clone(), port: store.discovery_port }
    } else {
        EndpointSource::List(store.endpoints.clone().unwrap_or_else(|| vec!["127.0.0.1:2379".into()]))
    };
    let mut config = SessionConfig::new(endpoints);
    config.tls = TlsFiles { cacert: store.cacert.clone(), cert: store.cert.clone(), key: store.key.clone() };
    config.namespace = store.namespace.clone();
    if let Some(user) = &store.user {
        let password = match &store.password_file {
            Some(path) => Some(read_bounded(path)?.trim_end_matches('\n').to_owned()),
            None => ["ORCHESTRATE_PASSWORD", "ETCDCTL_PASSWORD"].iter().find_map(|n| std::env::var(n).ok()),
        };
        config.user = Some(SessionConfig::parse_user(user, password.as_deref())?);
    }
    config.check()?;
    Ok(config)
}

/// Checks what the agent reads later: the configuration of the session, the TLS files and the
/// validation directory. Returns a note for each entry of that directory that does not validate.
///
/// # Errors
/// Returns the first thing that cannot be used.
pub fn check(settings: &Settings) -> Result<Vec<String>> {
    logging::filter(&settings.log_level).with_context(|| {
        format!("[log] level {} is neither a level nor a filter", quoted(&settings.log_level))
    })?;
    let session = session(settings)?;
    etcd_session::check_certificates(&session.tls)?;
    let Some(path) = &settings.validation_directory else { return Ok(Vec::new()) };
    let directory = validation_directory(settings).with_context(|| path.display().to_string())?;
    let directory = directory.unwrap_or_default();
    if let Some(why_not) = directory.problem {
        anyhow::bail!(why_not);
    }
    Ok(directory
        .skipped
        .iter()
        .map(|skipped| format!("{} does not validate: {skipped}", path.display()))
        .collect())
}

/// Returns the secrets that must not be shown in the output of programs.
pub fn secrets(config: &SessionConfig, settings: &Settings) -> Secrets {
    let secrets = Secrets::default();
    config
        .user
        .iter()
        .for_each(|(name, password)| secrets.learn(&format!("of the store's user {name}"), password.clone()));
    secrets.learn_settings(settings);
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
        apply_environment(&mut settings, |name| match name {
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
