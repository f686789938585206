//! Opens the object store that the settings name.

use anyhow::Result;
use archive::objects::{Credentials, ObjectStore, ObjectStoreConfig};
use planning::settings::BundlesSettings;

/// Reads the access key; `None` if none is set.
pub(super) fn credentials(settings: &BundlesSettings) -> Result<Option<Credentials>> {
    Ok(settings.credentials.as_deref().map(Credentials::read_file).transpose()?)
}

/// Opens the store. It is not contacted.
pub(super) fn open(settings: &BundlesSettings) -> Result<ObjectStore> {
    let mut config = ObjectStoreConfig::new(settings.to.parse()?);
    config.endpoint.clone_from(&settings.endpoint);
    if let Some(region) = &settings.region {
        config.region.clone_from(region);
    }
    config.ca.clone_from(&settings.cacert);
    config.credentials = credentials(settings)?;
    Ok(ObjectStore::open(config)?)
}

/// Returns why the store cannot be used, with the setting; `None` if nothing is wrong with the settings.
pub(crate) fn check(settings: &BundlesSettings) -> Option<(&'static str, String)> {
    match credentials(settings) {
        Err(error) => Some(("bundles.credentials", error.to_string())),
        Ok(_) => open(settings).err().map(|error| ("bundles.to", error.to_string())),
    }
}
