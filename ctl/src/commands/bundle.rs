//! `bundle`: fetches the bundle of a failure from the object store of the fleet, and unpacks it.

use super::context::{Store, host_of};
use crate::completion;
use crate::exit::{Exit, Failure};
use crate::output::{self, Output};
use crate::past::S3Settings;
use anyhow::{Context as _, anyhow};
use archive::bundle::{About, BUNDLE_MAX_BYTES, Digested, unpack};
use archive::objects::{ObjectStore, ObjectsUrl};
use clap::Args;
use planning::text::rfc3339;
use schema::codec;
use schema::keys::{Key, Prefix, StatusState};
use schema::names::{Fingerprint, HostName, StatusType};
use schema::records::{BundleLink, Report, StatusRecord};
use schema::verdict::HostVerdict;
use serde_json::json;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};

/// Fetch what a host kept of its failed attempt
#[derive(Debug, Args)]
pub(crate) struct Bundle {
    /// Host that failed
    #[arg(add = completion::hosts())]
    host: String,
    /// New directory for the files; bundle-HOST in this directory if it is not given
    #[arg(long, value_name = "DIR")]
    into: Option<PathBuf>,
    /// Object store of the fleet, as in the setting `bundles.to` of its hosts
    #[arg(long, value_name = "URL")]
    from: Option<ObjectsUrl>,
}

impl Bundle {
    /// Opens the object store, and returns its URL too. It is not contacted.
    fn open(&self, link: &BundleLink, s3: &S3Settings) -> Result<(ObjectStore, ObjectsUrl), Failure> {
        let Some(from) = &self.from else {
            let why = "a report is not trusted to say where files are fetched from";
            return Err(Failure::usage(anyhow!(
                "the bundle is {}; name the object store of the fleet with --from, because {why}",
                link.url
            )));
        };
        Ok((s3.open(&from.to_string()).map_err(Failure::usage)?, from.clone()))
    }
}

/// Fetches the bundle of a host, or of another one that failed for the same cause.
pub(super) async fn bundle(options: Bundle, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
    let host = &host_of(&options.host)?;
    let (by, link) = find(host, store).await?;
    let (objects, from) = options.open(&link, &store.settings.s3)?;
    let Some(name) = from.name_of(&link.url) else {
        return Err(Failure::refused(format!(
            "{by} reports the bundle {}, which is not below {from}",
            link.url
        )));
    };
    if by != *host {
        output::note(&format!("{by} failed for the same cause and uploaded the bundle"));
    }
    let into = options.into.unwrap_or_else(|| PathBuf::from(format!("bundle-{host}")));
    if into.exists() {
        return Err(Failure::usage(anyhow!("{} exists; name a new directory with --into", into.display())));
    }
    let file = tempfile::tempfile().context("a temporary file")?;
    let mut fetched = Digested::new(file);
    match objects.get(&name, BUNDLE_MAX_BYTES * 2, &mut fetched) {
        Ok(Some(_)) => {}
        Ok(None) => return Err(Failure::no(format!("{} does not exist any more", link.url))),
        Err(error) => return Err(Failure::cannot_tell(error.to_string())),
    }
    let (mut file, sha256, _) = fetched.finish();
    if sha256 != link.sha256 {
        return Err(Failure::cannot_tell(format!(
            "{} is not what {by} uploaded: its SHA-256 is {sha256}, and {by} reports {}",
            link.url, link.sha256
        )));
    }
    file.flush().and_then(|()| file.rewind()).context("the temporary file")?;
    let about =
        unpack(file, &into).map_err(|error| Failure::cannot_tell(format!("{}: {error}", link.url)))?;
    show(&about, (&into, &link), output);
    Ok(Exit::Yes)
}

fn show(about: &About, (into, link): (&Path, &BundleLink), output: &mut Output) {
    let About { host, version, attempt, failed_at, cause, .. } = about;
    let answer = json!({
        "host": host,
        "version": version,
        "attempt": attempt,
        "failed_at": rfc3339(*failed_at),
        "cause": cause.line,
        "fingerprint": cause.fingerprint,
        "bundle": link.url,
        "digest": link.sha256,
        "directory": into,
    });
    output.answer(&answer, |output| {
        let at = rfc3339(*failed_at).unwrap_or_default();
        output.line(&format!("{host} failed at {version}, attempt {attempt}, {at}: {}", cause.line));
        output.line(&format!("its files are in {}", into.display()));
    });
}

/// Returns the bundle that the report of a host names, or the newest one of a host that failed for the same cause.
async fn find(host: &HostName, store: &Store<'_>) -> Result<(HostName, BundleLink), Failure> {
    let failed = StatusType::of_agents().map(|kind| Key::Status(kind, StatusState::Failed, host.clone()));
    let own = Key::Report(host.clone());
    let keys: Vec<Key> = failed.iter().chain([&own]).cloned().collect();
    let found = store.session.read_keys(&keys, store.deadline).await?;
    let Some(entry) = found.get(&own) else {
        return Err(Failure::no(format!("host {host} has not reported")));
    };
    let report: Report =
        codec::read(&entry.value).map_err(|e| Failure::cannot_tell(format!("the report of {host}: {e}")))?;
    let records = failed.iter().filter_map(|key| StatusRecord::read(&found.get(key)?.value).ok());
    let causes: Vec<Fingerprint> = records.filter_map(|record| Some(record.cause?.fingerprint)).collect();
    // It may have failed for another cause since, of which another host has a bundle.
    if let Some(link) = report.bundle.filter(|link| causes.is_empty() || causes.contains(&link.fingerprint)) {
        return Ok((host.clone(), link));
    }
    if !matches!(report.verdict, HostVerdict::Failed(_)) {
        return Err(Failure::no(format!("host {host} has no bundle, because it has not failed")));
    }
    let all = store.session.read_all(&[], &[Prefix::Reports], None, store.deadline).await?;
    // A report that cannot be read vouches for nothing.
    let others = all.entries.iter().filter_map(|(key, entry)| match Key::parse(key) {
        Ok(Key::Report(of)) => Some((of, codec::read::<Report>(&entry.value).ok()?.bundle?)),
        _ => None,
    });
    let same = others.filter(|(_, link)| causes.contains(&link.fingerprint));
    same.max_by_key(|(_, link)| link.rollout).ok_or_else(|| {
        Failure::no(format!(
            "there is no bundle of this failure: hosts upload one within minutes, if they have the setting \
             `bundles.to`; `orchestrate logs {host}` shows the last lines"
        ))
    })
}
