//! The verbs of the catalog: services, the file that Hiera reads, waiting for services, and DNS.
//!
//! This file is long because it holds six small verbs that share how they read the catalog.

use super::context::{Store, now, service_of};
use super::verb::{About, Group, Past, Spec, Verb};
use crate::completion;
use crate::exit::{Exit, Failure};
use crate::local;
use crate::numbers::whole;
use crate::output::{self, Output};
use catalog::definitions::parse_profile_list;
use catalog::{
    Claim, GuardSettings, QueryType, Question, ResponseCode, StoredAddresses, View, Zone, answer,
    catalog_from_store, vanished_entries,
};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use etcd_session::{Collected, Collector, EntryPage, Feed, FeedEvent, FeedOptions, StoreError};
use fleet::views::{ServiceView, ServicesView};
use schema::health::Level;
use schema::keys::{self, Key, Prefix};
use schema::names::{HostName, ServiceName};
use schema::records::{ServiceRecord, published_interfaces};
use schema::snapshot::KeySnapshot;
use schema::writes::services::{OneShotServices, SERVICES_IN_WRITE};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::time::SystemTime;
use tokio::sync::mpsc;

/// Returns the catalog that a snapshot holds.
pub(super) fn view_of(snapshot: &KeySnapshot) -> View {
    let entries =
        snapshot.entries.iter().map(|(key, entry)| (key.as_str(), entry.value.as_slice(), entry.lease != 0));
    let (view, refused) = catalog_from_store(entries);
    warn_of_refused(refused);
    view
}

fn warn_of_refused(refused: usize) {
    if refused > 0 {
        output::warn(&format!("{refused} records of services cannot be read, or are not of their host"));
    }
}

/// Reads the catalog of all services, or of one, at one revision. Also returns the revision.
pub(super) async fn read(
    store: &Store<'_>,
    service: Option<&ServiceName>,
    at: Option<i64>,
) -> Result<(View, i64), StoreError> {
    let prefixes = match service {
        None => [Prefix::Services, Prefix::HealthAll],
        Some(service) => [Prefix::Service(service.clone()), Prefix::Health(service.clone())],
    };
    let snapshot = store.session.read_all(&[], &prefixes, at, store.deadline).await?;
    Ok((view_of(&snapshot), snapshot.revision))
}

/// List the services
#[derive(Debug, Args)]
pub(crate) struct List;

impl Verb for List {
    const SPEC: Spec = Spec {
        name: "services list",
        group: Group::Services,
        about: About::Hosts,
        past: Past::Answers,
        exits: &[],
        examples: &[("orchestrate services list", "all services with their instances")],
    };

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let (view, revision) = read(store, None, None).await?;
        output.view(&ServicesView::new(&view, revision));
        Ok(Exit::Yes)
    }
}

/// Show the hosts of a service, and whether it works there
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// Name of the service, for example web
    #[arg(add = completion::services())]
    service: String,
    /// Show each check that does not pass, with the last line of its output
    #[arg(long)]
    checks: bool,
}

impl Verb for Show {
    const SPEC: Spec = Spec {
        name: "services show",
        group: Group::Services,
        about: About::Hosts,
        past: Past::Answers,
        exits: &[Exit::No],
        examples: &[(
            "orchestrate services show web --checks",
            "where web runs, and which of its checks fail",
        )],
    };

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let service = &service_of(&self.service)?;
        let prefixes =
            [Prefix::Service(service.clone()), Prefix::Health(service.clone()), Prefix::Maintenances];
        let snapshot = store.session.read_ranges(&prefixes, store.deadline).await?;
        let catalog = view_of(&snapshot);
        let mark = |host: &HostName| {
            let entry = snapshot.get(&Key::Maintenance(host.clone()))?;
            let marks = keys::Maintenance::read(&entry.value).ok()?;
            marks.of(service).cloned()
        };
        let mut view = ServiceView::new(service, &catalog, mark, snapshot.revision)
            .ok_or_else(|| Failure::no(format!("no host has {service}")))?;
        if self.checks {
            let keys: Vec<Key> = view.instances.iter().map(|found| Key::Report(found.host.clone())).collect();
            let at = Some(snapshot.revision);
            let without = view.add_checks(&store.session.read_all(&keys, &[], at, store.deadline).await?);
            output::note_hosts("no report of checks", without.iter().map(HostName::as_str));
        }
        output.view(&view);
        Ok(Exit::of(catalog.count(service, Level::Functional) > 0))
    }
}

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
        if let Some(old) = old.filter(|_| changed && !self.force) {
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

/// Wait until a service has enough instances
#[derive(Debug, Args)]
pub(crate) struct WaitFor {
    /// Name of the service, for example mysql
    #[arg(add = completion::services())]
    service: String,
    /// How many instances are enough
    #[arg(long, default_value_t = 1, value_parser = whole::<usize>)]
    count: usize,
    /// What an instance needs in order to count: it is published, or it also works
    #[arg(long, default_value = "functional", value_parser = level_parser())]
    level: Level,
}

/// Parses a level.
fn level_parser() -> impl TypedValueParser<Value = Level> {
    PossibleValuesParser::new(["addressable", "functional"]).try_map(|word| word.parse::<Level>())
}

impl Verb for WaitFor {
    const SPEC: Spec = Spec {
        name: "wait_for",
        group: Group::Services,
        about: About::Hosts,
        past: Past::Waits,
        exits: &[Exit::No],
        examples: &[(
            "orchestrate wait_for mysql --count 2 --timeout 5m",
            "wait until mysql works on two hosts",
        )],
    };

    /// Waits until a service has `count` instances. Exits with 0 if it has, with 1 if it did not in
    /// time, and with 2 if that is not known.
    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let Self { service, count, level } = self;
        let service = &service_of(&service)?;
        // One read answers at once if there are enough, and fails at once if the store is away.
        let (mut have, mut revision) = read_count(service, level, store).await?;
        while have < count {
            let seen = wait_until_counted(service, count, level, store).await?;
            if seen < count {
                have = seen;
                break;
            }
            // The two feeds may be at two different revisions, so a yes must come from a single read.
            (have, revision) = read_count(service, level, store).await?;
        }
        let answer = WaitAnswer { service, level, need: count, have, revision };
        output.sorted_answer(&answer, |_| {});
        if have < count {
            output::note(&format!("{service}: {have} of {count} {level}"));
        }
        Ok(Exit::of(have >= count))
    }
}

async fn read_count(
    service: &ServiceName,
    level: Level,
    store: &Store<'_>,
) -> Result<(usize, i64), StoreError> {
    let (view, revision) = read(store, Some(service), None).await?;
    Ok((view.count(service, level), revision))
}

/// Follows a service until it has enough instances or the time is over. Returns the last count.
async fn wait_until_counted(
    service: &ServiceName,
    count: usize,
    level: Level,
    store: &Store<'_>,
) -> Result<usize, Failure> {
    let (sink, mut events) = mpsc::channel(8);
    let start = |prefix, number| {
        let session = store.session.clone();
        Followed::new(Feed::start(session, prefix, FeedOptions::default(), number, sink.clone()))
    };
    let mut followed =
        [start(Prefix::Service(service.clone()), 0), start(Prefix::Health(service.clone()), 1)];
    let mut have = 0;
    loop {
        let Ok(Some((number, event))) = tokio::time::timeout(store.deadline.left(), events.recv()).await
        else {
            // Both feeds were listed and connected when the time was over, so the count was true
            // then.
            return if followed.iter().all(|feed| feed.is_connected && feed.entries.is_some()) {
                Ok(have)
            } else {
                Err(Failure::cannot_tell("the store was out of reach when the time was over"))
            };
        };
        followed[usize::from(number != 0)].take(event);
        if let [Some(records), Some(healths)] = [&followed[0].entries, &followed[1].entries] {
            let all = records.iter().chain(healths);
            let (view, _) =
                catalog_from_store(all.map(|(key, (value, leased))| (key.as_str(), &value[..], *leased)));
            have = view.count(service, level);
            if have >= count {
                return Ok(have);
            }
        }
    }
}

/// A range that is followed, with its values and whether each key is attached to a lease.
struct Followed {
    _feed: Feed,
    collector: Collector<String, (Vec<u8>, bool)>,
    /// `None` until the range was listed once.
    entries: Option<BTreeMap<String, (Vec<u8>, bool)>>,
    is_connected: bool,
}

impl Followed {
    fn new(feed: Feed) -> Self {
        Self { _feed: feed, collector: Collector::default(), entries: None, is_connected: false }
    }

    fn take(&mut self, event: FeedEvent) {
        let collected = self.collector.take(event, |key, entry| {
            Some((key.to_owned(), entry.map(|entry| (entry.value.clone(), entry.lease != 0))))
        });
        match collected {
            None => {}
            Some(Collected::Replaced(entries, _)) => self.entries = Some(entries),
            Some(Collected::Changed(changes, _)) => {
                let entries = self.entries.get_or_insert_default();
                for (key, entry) in changes {
                    match entry {
                        Some(entry) => entries.insert(key, entry),
                        None => entries.remove(&key),
                    };
                }
            }
            Some(Collected::Connected(connected)) => self.is_connected = connected,
        }
    }
}

/// Answer a DNS question as an agent would
#[derive(Debug, Args)]
pub(crate) struct Dns {
    /// Name to look up, for example web.service.consul
    name: String,
    /// Type of the records, for example A or SRV
    #[arg(default_value = "A")]
    kind: String,
    /// Domain of the zone
    #[arg(long, default_value = "consul")]
    domain: String,
}

impl Verb for Dns {
    const SPEC: Spec = Spec {
        name: "dns",
        group: Group::Services,
        about: About::Hosts,
        past: Past::Answers,
        exits: &[Exit::No],
        examples: &[("orchestrate dns web.service.consul SRV", "hosts and ports of web, as DNS gives them")],
    };

    /// Answers a question as the DNS server of an agent would, from the store. Exits with 0 if there
    /// are records, with 1 if there are none.
    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let Self { name, kind, domain } = self;
        let kind: QueryType = kind.parse().map_err(|error| Failure::usage(anyhow::Error::new(error)))?;
        let (view, revision) = read(store, None, None).await?;
        let zone = Zone {
            domain: domain.trim_matches('.').to_ascii_lowercase(),
            datacenter: None,
            host: store.settings.host(None)?,
            ttl: 5,
            negative_ttl: 5,
        };
        let lower = name.trim_end_matches('.').to_ascii_lowercase();
        let mut found = answer(&Question { labels: lower.split('.').collect(), kind }, &view, &zone);
        if let Some(host) = found.host.take() {
            let key = Key::Live(host);
            let snapshot = store.session.read_keys(std::slice::from_ref(&key), store.deadline).await?;
            let claim = Claim::read(snapshot.get(&key).map(|entry| &entry.value[..]));
            found = found.with_claim(&claim.map_err(|e| Failure::cannot_tell(format!("{key}: {e}")))?, kind);
        }
        let mut records = found.records;
        records.sort();
        let lines: Vec<String> = records.iter().map(|record| record.data.text(&zone)).collect();
        let answer = DnsAnswer {
            name: &lower,
            kind: kind.to_string(),
            answer: found.code.as_str(),
            records: &lines,
            revision,
        };
        output.sorted_answer(&answer, |o| lines.iter().for_each(|line| o.line(line)));
        if lines.is_empty() {
            let why = match found.code {
                ResponseCode::NoError => format!("the name has no record of the type {kind}"),
                ResponseCode::NoSuchName => "no such name (NXDOMAIN)".into(),
                ResponseCode::Refused => "the name is outside the zones of the agents (REFUSED)".into(),
                ResponseCode::NotReady => "the catalog has not been read yet (SERVFAIL)".into(),
            };
            output::note(&format!("{lower} {kind}: {why}"));
        }
        Ok(Exit::of(!lines.is_empty()))
    }
}

/// What `get_services` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct EntriesAnswer<'a> {
    entries: BTreeMap<String, &'a [IpAddr]>,
    revision: i64,
}

/// What `cache_services` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct CacheAnswer<'a> {
    file: &'a Path,
    changed: bool,
    revision: i64,
}

/// What `publish_service` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct PublishAnswer<'a> {
    published: &'a [ServiceName],
}

/// What `wait_for` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct WaitAnswer<'a> {
    service: &'a ServiceName,
    level: Level,
    need: usize,
    have: usize,
    revision: i64,
}

/// What `dns` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct DnsAnswer<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    kind: String,
    answer: &'static str,
    records: &'a [String],
    revision: i64,
}
