//! The bundle of a failure: which one it is, by the reports of the hosts, and its content, from the object store of the
//! fleet.

use crate::commands::context::Store;
use crate::exit::Failure;
use crate::settings::Settings;
use anyhow::{Context as _, anyhow};
use archive::bundle::{About, BUNDLE_MAX_BYTES, Digested, unpack};
use archive::objects::{ObjectName, ObjectStore, ObjectsUrl};
use clap::Args;
use etcd_session::StoreError;
use fleet::{NewestBundles, UploadedBundle};
use schema::keys::{self, Key, Prefix, StatusState};
use schema::names::{Fingerprint, HostName, StatusType};
use schema::records::{Report, StatusRecord};
use schema::verdict::HostVerdict;
use std::io::{Seek, Write};
use std::path::Path;

/// Where bundles are fetched from.
#[derive(Debug, Args)]
pub(super) struct FetchFrom {
    /// Object store of the fleet, as in the setting `bundles.to` of its hosts [env: ORCHESTRATE_BUNDLES]
    #[arg(long, value_name = "URL")]
    from: Option<ObjectsUrl>,
}

/// What the store holds about the failure of a host.
pub(super) struct ReportedFailure {
    pub(super) host: HostName,
    pub(super) report: Report,
    /// The causes of its failed results.
    causes: Vec<Fingerprint>,
}

impl ReportedFailure {
    /// Reads the report of a host, and its failed results.
    pub(super) async fn read(host: &HostName, store: &Store<'_>) -> Result<Self, Failure> {
        let failed = StatusType::of_agents().map(|kind| Key::Status(kind, StatusState::Failed, host.clone()));
        let own = Key::Report(host.clone());
        let keys: Vec<Key> = failed.iter().chain([&own]).cloned().collect();
        let found = store.session.read_keys(&keys, store.deadline).await?;
        let Some(entry) = found.get(&own) else {
            return Err(Failure::no(format!("host {host} has not reported")));
        };
        let report = keys::Report::read(&entry.value)
            .map_err(|e| Failure::cannot_tell(format!("the report of {host}: {e}")))?;
        let records = failed.iter().filter_map(|key| StatusRecord::read(&found.get(key)?.value).ok());
        let causes = records.filter_map(|record| Some(record.cause?.fingerprint)).collect();
        Ok(Self { host: host.clone(), report, causes })
    }

    /// True if its last attempt failed.
    pub(super) fn has_failed(&self) -> bool {
        matches!(self.report.verdict, HostVerdict::Failed(_))
    }

    /// Returns the bundle that the report names, if it is about this failure.
    pub(super) fn own_bundle(&self) -> Option<UploadedBundle> {
        let Self { host, report, causes } = self;
        // It may have failed for another cause since, of which another host has a bundle.
        let is_of_failure = |cause: &Fingerprint| causes.is_empty() || causes.contains(cause);
        let link = report.bundle.clone().filter(|link| is_of_failure(&link.fingerprint))?;
        Some(UploadedBundle { host: host.clone(), link })
    }

    /// Returns the bundle that the report names, or the newest one of a host that failed for the same cause. For that, all
    /// reports are read.
    pub(super) async fn bundle(&self, store: &Store<'_>) -> Result<Option<UploadedBundle>, StoreError> {
        let causes = &self.causes;
        let own = self.own_bundle();
        if own.is_some() || !self.has_failed() || causes.is_empty() {
            return Ok(own);
        }
        let all = store.session.read_all(&[], &[Prefix::Reports], None, store.deadline).await?;
        // A report that cannot be read vouches for nothing.
        let others = all.entries.iter().filter_map(|(key, entry)| match Key::parse(key) {
            Ok(Key::Report(host)) => {
                let link = keys::Report::read(&entry.value).ok()?.bundle?;
                Some(UploadedBundle { host, link })
            }
            _ => None,
        });
        let newest: NewestBundles = others.collect();
        let same = causes.iter().filter_map(|cause| newest.of_cause(cause));
        Ok(same.max_by_key(|bundle| bundle.link.rollout).cloned())
    }

    /// Returns the bundle, or the failure that says why there is none.
    pub(super) async fn required_bundle(&self, store: &Store<'_>) -> Result<UploadedBundle, Failure> {
        let host = &self.host;
        if let Some(bundle) = self.bundle(store).await? {
            return Ok(bundle);
        }
        Err(Failure::no(if self.has_failed() {
            format!(
                "there is no bundle of this failure: hosts upload one within minutes, if they have the setting \
                 `bundles.to`; `orchestrate logs {host}` shows the last lines"
            )
        } else {
            format!("host {host} has no bundle, because it has not failed")
        }))
    }
}

impl FetchFrom {
    /// True if the option names an object store.
    pub(super) fn is_given(&self) -> bool {
        self.from.is_some()
    }

    /// Returns the object store that the option or else the environment names.
    fn url(&self, settings: &Settings) -> Result<Option<ObjectsUrl>, Failure> {
        let in_environment = || {
            let url = settings.bundles.as_deref().map(str::parse).transpose();
            url.map_err(|error| Failure::usage(anyhow!("ORCHESTRATE_BUNDLES: {error}")))
        };
        self.from.clone().map_or_else(in_environment, |url| Ok(Some(url)))
    }

    /// Finds a bundle in the object store. That is not contacted.
    pub(super) fn find(&self, bundle: UploadedBundle, settings: &Settings) -> Result<BundleObject, Failure> {
        let UploadedBundle { host, link } = &bundle;
        let Some(from) = self.url(settings)? else {
            let why = "a report is not trusted to say where files are fetched from";
            return Err(Failure::usage(anyhow!(
                "the bundle is {}; name the object store of the fleet with --from or ORCHESTRATE_BUNDLES, because {why}",
                link.url
            )));
        };
        let objects = settings.s3.open(&from.to_string()).map_err(Failure::usage)?;
        let Some(name) = from.name_of(&link.url) else {
            return Err(Failure::refused(format!(
                "{host} reports the bundle {}, which is not below {from}",
                link.url
            )));
        };
        Ok(BundleObject { bundle, objects, name })
    }
}

/// A bundle in the object store of the fleet.
pub(super) struct BundleObject {
    pub(super) bundle: UploadedBundle,
    objects: ObjectStore,
    name: ObjectName,
}

impl BundleObject {
    /// Fetches it, and unpacks it into a new directory if it is what the host uploaded.
    pub(super) fn unpack_into(&self, into: &Path) -> Result<About, Failure> {
        let UploadedBundle { host, link } = &self.bundle;
        let file = tempfile::tempfile().context("a temporary file")?;
        let mut fetched = Digested::new(file);
        match self.objects.get(&self.name, BUNDLE_MAX_BYTES * 2, &mut fetched) {
            Ok(Some(_)) => {}
            Ok(None) => return Err(Failure::no(format!("{} does not exist any more", link.url))),
            Err(error) => return Err(Failure::cannot_tell(error.to_string())),
        }
        let (mut file, sha256, _) = fetched.finish();
        if sha256 != link.sha256 {
            return Err(Failure::cannot_tell(format!(
                "{} is not what {host} uploaded: its SHA-256 is {sha256}, and {host} reports {}",
                link.url, link.sha256
            )));
        }
        file.flush().and_then(|()| file.rewind()).context("the temporary file")?;
        unpack(file, into).map_err(|error| Failure::cannot_tell(format!("{}: {error}", link.url)))
    }
}
