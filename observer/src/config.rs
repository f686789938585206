//! Reads the settings. Their rules are in the crate `settings`.

use anyhow::{Context, Result};
use etcd_session::{EndpointSource, Secret, SessionConfig, TlsFiles};
use settings::{ObserverSettings, read_observer};
use std::path::Path;
use toml_reader::SettingsErrors;

const FILE_MAX_BYTES: u64 = 1024 * 1024;

/// Reads the settings file.
///
/// # Errors
/// Returns [`SettingsErrors`], all mistakes with their lines, or why the file cannot be read.
pub fn load(path: &Path) -> Result<ObserverSettings> {
    let name = path.display().to_string();
    let size = std::fs::metadata(path).with_context(|| name.clone())?.len();
    anyhow::ensure!(size <= FILE_MAX_BYTES, "{name}: larger than {FILE_MAX_BYTES} bytes");
    let text = std::fs::read_to_string(path).with_context(|| name.clone())?;
    let settings = read_observer(&name, &text)?;
    if let Some(upload) = settings.recorder.as_ref().and_then(|recorder| recorder.upload.as_ref()) {
        crate::recorder::check_texts(upload).with_context(|| format!("{name}: recorder.upload"))?;
    }
    Ok(settings)
}

/// Checks what the settings name, as far as that can be done without another machine.
///
/// # Errors
/// Returns an error that names the setting.
pub fn check(settings: &ObserverSettings) -> Result<()> {
    if let Some(upload) = settings.recorder.as_ref().and_then(|recorder| recorder.upload.as_ref()) {
        crate::recorder::open_store(upload, None).context("recorder.upload")?;
    }
    // The observer makes the directory if it can.
    let nearest = settings.state_directory.ancestors().find(|part| part.exists());
    let is_directory = nearest.is_some_and(Path::is_dir);
    anyhow::ensure!(
        is_directory,
        "state_directory: {} is no directory",
        nearest.unwrap_or(Path::new("/")).display()
    );
    Ok(())
}

/// Returns an error on one line for each mistake.
pub fn lines(error: &anyhow::Error) -> Vec<String> {
    match error.downcast_ref::<SettingsErrors>() {
        Some(SettingsErrors(errors)) => errors.iter().map(ToString::to_string).collect(),
        None => vec![format!("{error:#}")],
    }
}

/// Returns the configuration of the session with the store.
pub(crate) fn session(settings: &ObserverSettings) -> Result<SessionConfig> {
    let store = settings.store.clone();
    let mut config = SessionConfig::new(EndpointSource::named(
        store.endpoints_file,
        store.discovery_srv,
        store.discovery_url.map(|url| (url, store.discovery_port)),
        store.endpoints,
    ));
    config.tls = TlsFiles { cacert: store.cacert, cert: store.cert, key: store.key };
    config.namespace = store.namespace;
    if let Some(user) = &store.user {
        let password = store.password_file.as_deref().map(Secret::read_file).transpose()?;
        config.user = Some(SessionConfig::parse_user(user, password)?);
        config.password_file = store.password_file;
    }
    config.check()?;
    Ok(config)
}
