//! The catalog in the verbs of the original tool: `publish_service`, `get_services` and `cache_services`.

use crate::commands::answers;
use crate::commands::context::{Store, now};
use crate::commands::services::catalog::warn_of_refused;
use crate::commands::verb::{About, Answer, Group, Past, Spec, Verb};
use crate::exit::{Exit, Failure};
use crate::local;
use crate::output::{self, Output};
use catalog::definitions::parse_profile_list;
use catalog::{GuardSettings, StoredAddresses, vanished_entries};
use clap::Args;
use etcd_session::{EntryPage, StoreError};
use schema::keys::{self, Key, Prefix};
use schema::names::{HostName, ServiceName};
use schema::records::{ServiceRecord, published_interfaces};
use schema::writes::services::{OneShotServices, SERVICES_IN_WRITE};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::time::SystemTime;

/// Print the addresses of all services, as Hiera reads them
#[derive(Debug, Args)]
pub(crate) struct GetServices;

impl Verb for GetServices {
    const SPEC: Spec = Spec {
        name: "get_services",
        group: Group::Original,
        about: About::Other,
        past: Past::Answers,
        exits: &[],
        answer: Answer::Json(answers::of::<EntriesAnswer<'_>>),
        examples: &[],
    };

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let (found, revision) = stored_addresses(store).await?;
        if output.is_json() {
            output.sorted_answer(&EntriesAnswer { entries: found.hiera_entries(), revision }, |_| {});
        } else {
            output.answer(&Value::Null, |o| o.raw(&found.hiera_yaml()));
        }
        Ok(Exit::Yes)
    }
}

/// Reads the addresses of all services, which is all that the file for Hiera needs.
async fn stored_addresses(store: &Store<'_>) -> Result<(StoredAddresses, i64), StoreError> {
    let mut found = StoredAddresses::default();
    let take = |page: &EntryPage| found.add(&mut page.entries());
    let revision = store.session.read_entry_pages(&Prefix::Services, None, store.deadline, take).await?;
    found.sort();
    warn_of_refused(found.refused);
    Ok((found, revision))
}

/// Write the file that Hiera reads, with all addresses
#[derive(Debug, Args)]
pub(crate) struct CacheServices {
    /// Write the file even if it loses many addresses
    #[arg(long)]
    force: bool,
}

impl Verb for CacheServices {
    const SPEC: Spec = Spec {
        name: "cache_services",
        group: Group::Original,
        about: About::Other,
        past: Past::DoesNotRead,
        exits: &[],
        answer: Answer::Json(answers::of::<CacheAnswer<'_>>),
        examples: &[("orchestrate cache_services", "write the file that Hiera reads")],
    };

    /// Writes the file that Hiera reads. If the new file would lose so many addresses that a fault is
    /// the likelier cause, the old file is kept and the exit code is 2.
    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let (found, revision) = stored_addresses(store).await?;
        let yaml = found.hiera_yaml();
        let path = &store.settings.hiera_file;
        let unreadable = |e: std::io::Error| Failure::cannot_tell(format!("{}: {e}", path.display()));
        let old = local::read_up_to(path, local::CATALOG_MAX_BYTES).map_err(unreadable)?;
        let changed = old.as_deref() != Some(yaml.as_str());
        if let Some(old) = old
            && changed
            && !self.force
        {
            let lost = vanished_entries(&old, &yaml, &GuardSettings::default());
            let written =
                std::fs::metadata(path).and_then(|m| m.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
            if !lost.is_empty() && !released_since(store, written).await? {
                let lost: Vec<String> =
                    lost.iter().map(|(service, lost, of)| format!("{service} {lost} of {of}")).collect();
                return Err(Failure::cannot_tell(format!(
                    "{} was kept: too many addresses are gone from the catalog ({}); `orchestrate drop-stale` or --force writes it",
                    path.display(),
                    lost.join(", ")
                )));
            }
        }
        if changed {
            local::replace(path, yaml.as_bytes()).map_err(unreadable)?;
        }
        let answer = CacheAnswer { file: path, changed, revision };
        output.sorted_answer(&answer, |_| {});
        Ok(Exit::Yes)
    }
}

/// Number of times that a write is tried if an agent comes or goes at the same time.
const TRIES: u32 = 3;

/// Seconds for which a drop-stale request lets the file be written.
const RELEASED_FOR_SECONDS: u64 = 600;

async fn released_since(store: &Store<'_>, written: SystemTime) -> Result<bool, StoreError> {
    let snapshot = store.session.read_keys(&[Key::DropStale], store.deadline).await?;
    let request = snapshot.value_of(keys::DropStale);
    let written = written.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    // An old request must not let every later loss through.
    let requested_at = request.map_or(0, |request| u64::try_from(request.at.0).unwrap_or(0));
    let now = u64::try_from(now().0).unwrap_or(0);
    Ok(requested_at >= written && now.saturating_sub(requested_at) < RELEASED_FOR_SECONDS)
}

/// Publish the roles of this host as services
#[derive(Debug, Args)]
pub(crate) struct PublishService;

impl Verb for PublishService {
    const SPEC: Spec = Spec {
        name: "publish_service",
        group: Group::Original,
        about: About::Other,
        past: Past::DoesNotRead,
        exits: &[],
        answer: Answer::Json(answers::of::<PublishAnswer<'_>>),
        examples: &[],
    };

    /// Publishes the roles of the profile list. With an agent on the host they are under its lease.
    /// Without one they stay until somebody deletes them, as with the original tool.
    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let host = store.settings.host(None)?;
        let path = &store.settings.profile_list;
        let text = local::read(path).map_err(|e| Failure::cannot_tell(format!("{}: {e}", path.display())))?;
        let list = parse_profile_list(&path.display().to_string(), &text.unwrap_or_default());
        list.notes.iter().for_each(|note| output::warn(note));
        let networks = sysinfo::Networks::new_with_refreshed_list().map_err(|error| {
            Failure::cannot_tell(format!("the addresses of this machine cannot be read: {error}"))
        })?;
        let interfaces = published_interfaces(networks.iter().map(|(name, data)| {
            (name.to_string_lossy(), data.ip_networks().iter().map(|network| network.addr))
        }));
        let record = ServiceRecord { host: Some(host.clone()), ..ServiceRecord::of_interfaces(interfaces) };
        let names: Vec<ServiceName> = list.services.iter().map(|service| service.name.clone()).collect();
        let record = record.write();
        for tries in 1.. {
            if write_once(&host, &record, &names, store).await? {
                break;
            }
            if tries == TRIES {
                return Err(Failure::cannot_tell("an agent on this host starts and stops repeatedly"));
            }
        }
        let answer = PublishAnswer { published: &names };
        output.sorted_answer(&answer, |o| names.iter().for_each(|name| o.line(name.as_str())));
        Ok(Exit::Yes)
    }
}

/// Publishes services of a host. Returns false if an agent came or went meanwhile: nothing, or only
/// a part, was written, and the call can be repeated.
async fn write_once(
    host: &HostName,
    record: &str,
    names: &[ServiceName],
    store: &Store<'_>,
) -> Result<bool, StoreError> {
    for services in names.chunks(SERVICES_IN_WRITE) {
        let write = OneShotServices { host, record, services };
        let found = store.session.read_keys(&write.keys(), store.deadline).await?;
        if !store.session.commit(&write.transaction(&found), store.deadline).await?.applied {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What `get_services` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct EntriesAnswer<'a> {
    entries: BTreeMap<String, &'a [IpAddr]>,
    revision: i64,
}

/// What `cache_services` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CacheAnswer<'a> {
    file: &'a Path,
    changed: bool,
    revision: i64,
}

/// What `publish_service` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PublishAnswer<'a> {
    published: &'a [ServiceName],
}
