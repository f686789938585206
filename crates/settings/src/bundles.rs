//! The settings of failure bundles.

use super::command::absolute_path;
use super::error::Problems;
use super::objects::{ObjectsFragment, ObjectsSettings};
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
    pub objects: ObjectsSettings,
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
        for (at, path) in files.iter().enumerate() {
            problems.check(format!("bundles.files.{at}"), absolute_path(path));
        }
        let is_needed = !files.is_empty() || spread.is_some() || take_over_after.is_some();
        let objects = ObjectsFragment { to, endpoint, region, credentials, cacert };
        let objects = objects.validate("bundles", is_needed, problems)?;
        let spread = spread.map_or(SPREAD, |span| span.0);
        let take_over_after = take_over_after.map_or(TAKE_OVER_AFTER, |span| span.0);
        if take_over_after.is_zero() {
            problems.add("bundles.take_over_after", "must be more than 0");
        }
        Some(BundlesSettings { objects, files, spread, take_over_after })
    }
}
