//! Opens the object store that the settings name.

use archive::objects::{ConfigError, Credentials, CredentialsError, ObjectStore, WrittenConfig};
use settings::{BundlesSettings, ObjectsSettings};

/// Reads the access key; `None` if none is set.
pub(super) fn credentials(settings: &BundlesSettings) -> Result<Option<Credentials>, CredentialsError> {
    settings.objects.credentials.as_deref().map(Credentials::read_file).transpose()
}

/// Opens the store. It is not contacted.
pub(super) fn open(settings: &BundlesSettings) -> Result<ObjectStore, ConfigError> {
    written(settings).open()
}

fn written(settings: &BundlesSettings) -> WrittenConfig<'_> {
    let ObjectsSettings { to, endpoint, region, credentials, cacert } = &settings.objects;
    WrittenConfig {
        url: to,
        endpoint: endpoint.as_deref(),
        region: region.as_deref(),
        credentials: credentials.as_deref(),
        ca: cacert.as_deref(),
        timeout: None,
    }
}

/// Returns why the settings cannot be used, whatever the files are that they name; `None` if nothing is wrong with them.
pub(crate) fn check_texts(settings: &BundlesSettings) -> Option<String> {
    let error = written(settings).check().err()?;
    Some(format!("bundles.to: {error}"))
}

/// Returns why the store cannot be used, with the setting; `None` if nothing is wrong with the settings.
pub(crate) fn check(settings: &BundlesSettings) -> Option<(&'static str, String)> {
    let error = open(settings).err()?;
    let setting = match &error {
        ConfigError::Credentials(_) => "bundles.credentials",
        ConfigError::Url(_) | ConfigError::Store(_) => "bundles.to",
    };
    Some((setting, error.to_string()))
}
