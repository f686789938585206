//! The settings of failure bundles. What an object store accepts is checked where it is opened.

use super::command::absolute_path;
use super::error::Problems;
use schema::time::Span;
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;

/// Time over which hosts that failed begin to upload, unless the settings say it.
const SPREAD: Duration = Duration::from_secs(60);
/// Time after which another host uploads, unless the settings say it.
const TAKE_OVER_AFTER: Duration = Duration::from_secs(600);

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct BundlesFragment {
    to: Option<String>,
    endpoint: Option<String>,
    region: Option<String>,
    credentials: Option<PathBuf>,
    cacert: Option<PathBuf>,
    files: Vec<PathBuf>,
    spread: Option<Span>,
    take_over_after: Option<Span>,
}

/// Where the bundles of failed attempts go, and what is in them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundlesSettings {
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
    /// Files of this host that are part of each bundle.
    pub files: Vec<PathBuf>,
    /// Time over which hosts that failed begin to upload.
    pub spread: Duration,
    /// Time after which another host uploads, if the one that began has not ended.
    pub take_over_after: Duration,
}

impl BundlesFragment {
    pub(super) fn validate(self, problems: &mut Problems) -> Option<BundlesSettings> {
        let Self { to, endpoint, region, credentials, cacert, files, spread, take_over_after } = self;
        let paths = [("credentials", &credentials), ("cacert", &cacert)];
        for (setting, path) in paths.into_iter().filter_map(|(name, path)| Some((name, path.as_ref()?))) {
            problems.check(format!("bundles.{setting}"), absolute_path(path));
        }
        for (at, path) in files.iter().enumerate() {
            problems.check(format!("bundles.files.{at}"), absolute_path(path));
        }
        let Some(to) = to else {
            let is_other =
                endpoint.is_some() || region.is_some() || credentials.is_some() || cacert.is_some();
            if is_other || !files.is_empty() || spread.is_some() || take_over_after.is_some() {
                problems.add("bundles", "the setting `to` is missing");
            }
            return None;
        };
        if to.starts_with("s3://") && (endpoint.is_none() || credentials.is_none()) {
            problems.add("bundles.to", "a bucket needs the settings `endpoint` and `credentials`");
        }
        let spread = spread.map_or(SPREAD, |span| span.0);
        let take_over_after = take_over_after.map_or(TAKE_OVER_AFTER, |span| span.0);
        if take_over_after.is_zero() {
            problems.add("bundles.take_over_after", "must be more than 0");
        }
        Some(BundlesSettings { to, endpoint, region, credentials, cacert, files, spread, take_over_after })
    }
}
