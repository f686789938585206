//! The settings of an object store. What a store accepts is checked where it is opened.

use super::command::absolute_path;
use super::error::Problems;
use serde::Deserialize;
use std::path::PathBuf;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ObjectsFragment {
    pub(super) to: Option<String>,
    pub(super) endpoint: Option<String>,
    pub(super) region: Option<String>,
    pub(super) credentials: Option<PathBuf>,
    pub(super) cacert: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectsSettings {
    /// The object store: `s3://BUCKET/PREFIX` or `file:///DIRECTORY`.
    pub to: String,
    /// The server of S3.
    pub endpoint: Option<String>,
    /// The region of S3.
    pub region: Option<String>,
    /// The file with the access key of S3.
    pub credentials: Option<PathBuf>,
    /// The file with the authorities of the server's certificate.
    pub cacert: Option<PathBuf>,
}

impl ObjectsFragment {
    /// Returns the settings of this table; `None` if it does not say where the store is. `is_needed` is true if another
    /// setting makes no sense without it.
    pub(super) fn validate(
        self,
        table: &str,
        is_needed: bool,
        problems: &mut Problems,
    ) -> Option<ObjectsSettings> {
        let Self { to, endpoint, region, credentials, cacert } = self;
        let paths = [("credentials", &credentials), ("cacert", &cacert)];
        for (setting, path) in paths.into_iter().filter_map(|(name, path)| Some((name, path.as_ref()?))) {
            problems.check(format!("{table}.{setting}"), absolute_path(path));
        }
        let Some(to) = to else {
            let is_other =
                endpoint.is_some() || region.is_some() || credentials.is_some() || cacert.is_some();
            if is_other || is_needed {
                problems.add(table, "the setting `to` is missing");
            }
            return None;
        };
        if to.starts_with("s3://") && (endpoint.is_none() || credentials.is_none()) {
            problems.add(format!("{table}.to"), "a bucket needs the settings `endpoint` and `credentials`");
        }
        Some(ObjectsSettings { to, endpoint, region, credentials, cacert })
    }
}
