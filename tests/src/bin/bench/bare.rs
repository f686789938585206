//! The yardsticks: the minimum that a program with the same client library can do.

use crate::{load, second_bare};
use etcd_client::{Client, ConnectOptions, GetOptions, Txn, TxnOp, WatchOptions};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::IpAddr;
use std::path::Path;
use std::process::ExitCode;

const PAGE: i64 = 60_000;

pub(crate) fn run(words: &[&str]) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let endpoint = words[1];
        let client = Client::connect([endpoint], Some(ConnectOptions::new())).await.expect("lazy");
        match words[0] {
            "ping" => {
                client.cluster_client().member_list().await.expect("members");
                ExitCode::SUCCESS
            }
            "pending" => {
                client.kv_client().get("/current_version", None).await.expect("a value");
                ExitCode::SUCCESS
            }
            "verify" => verify(&client, words[2]).await,
            "failures" => failures(client).await,
            "status" => status(&client).await,
            "mirror" => mirror(&client).await,
            "render" => {
                dump(&entries(&client).await, Path::new(words[2]));
                ExitCode::SUCCESS
            }
            "render-again" => {
                second_bare::render(&client, Path::new(words[2])).await;
                ExitCode::SUCCESS
            }
            other => panic!("no yardstick {other}"),
        }
    })
}

/// Reads one keys-only range in pages and compares the keys with the given hosts.
async fn verify(client: &Client, version: &str) -> ExitCode {
    let mut input = String::new();
    std::io::stdin().read_to_string(&mut input).expect("hosts");
    let prefix = format!("/running_version/{version}/");
    let mut end = prefix.clone().into_bytes();
    *end.last_mut().expect("a slash") += 1;
    let mut kv = client.kv_client().max_decoding_message_size(64 << 20);
    let mut from = prefix.clone().into_bytes();
    let mut pages = Vec::new();
    loop {
        let options = GetOptions::new().with_range(end.clone()).with_keys_only().with_limit(PAGE);
        let page = kv.get(from.clone(), Some(options)).await.expect("a page");
        let more = page.more();
        if let Some(last) = page.kvs().last() {
            from = last.key().to_vec();
            from.push(0);
        }
        pages.push(page);
        if !more {
            break;
        }
    }
    let listed: HashSet<&str> = pages
        .iter()
        .flat_map(|page| page.kvs())
        .filter_map(|kv| std::str::from_utf8(&kv.key()[prefix.len()..]).ok())
        .collect();
    let missing = input.trim().lines().filter(|host| !listed.contains(host)).count();
    if missing == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Addresses by service and interface.
pub(crate) type Entries = BTreeMap<String, BTreeSet<IpAddr>>;

/// The fields of a record that the file needs.
#[derive(serde::Deserialize)]
struct Record {
    interfaces: BTreeMap<String, Vec<IpAddr>>,
}

/// Reads all records with one range request.
pub(crate) async fn entries(client: &Client) -> Entries {
    let prefix = "/available_services/";
    let mut kv = client.kv_client().max_decoding_message_size(64 << 20);
    let answer = kv.get(prefix, Some(GetOptions::new().with_prefix())).await.expect("a range");
    let mut entries = Entries::new();
    for entry in answer.kvs() {
        let key = std::str::from_utf8(entry.key()).expect("text");
        let (service, _) = key[prefix.len()..].split_once('/').expect("a host");
        let record: Record = serde_json::from_slice(entry.value()).expect("a record");
        for (interface, addresses) in record.interfaces {
            // One address per host, and all addresses.
            entries
                .entry(format!("services::{service}::{interface}"))
                .or_default()
                .extend(addresses.iter().min());
            entries.entry(format!("services_all::{service}::{interface}")).or_default().extend(addresses);
        }
    }
    entries
}

/// Writes the entries as YAML, put in place by fsync and rename.
pub(crate) fn dump(entries: &Entries, path: &Path) {
    let mut text = String::new();
    for (key, addresses) in entries {
        let list: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
        let _ = writeln!(text, "{key}: [{}]", list.join(", "));
    }
    let temporary = path.with_extension("new");
    let mut file = std::fs::File::create(&temporary).expect("a file");
    file.write_all(text.as_bytes()).expect("written");
    file.sync_all().expect("on disk");
    std::fs::rename(&temporary, path).expect("in place");
}

/// Reads the ranges that the state of a fleet depends on, in pages, and drops them.
async fn status(client: &Client) -> ExitCode {
    const VALUES: [&str; 10] = [
        "/status/",
        "/orchestrate/hosts/",
        "/orchestrate/live/",
        "/orchestrate/announced/",
        "/orchestrate/reports/",
        "/orchestrate/reporting/",
        "/orchestrate/health/",
        "/orchestrate/maintenance/",
        "/orchestrate/freezes/",
        "/orchestrate/clashes/",
    ];
    const KEYS: [&str; 3] = ["/running_version/", "/available_services/", "/orchestrate/health/"];
    let mut kv = client.kv_client().max_decoding_message_size(64 << 20);
    let ranges = VALUES.map(|range| (range, false)).into_iter().chain(KEYS.map(|range| (range, true)));
    for (range, keys_only) in ranges {
        let mut end = range.as_bytes().to_vec();
        *end.last_mut().expect("a slash") += 1;
        let mut from = range.as_bytes().to_vec();
        loop {
            let options = GetOptions::new().with_range(end.clone()).with_limit(10_000);
            let options = if keys_only { options.with_keys_only() } else { options };
            let page = kv.get(from.clone(), Some(options)).await.expect("a page");
            let Some(last) = page.kvs().last().filter(|_| page.more()) else { break };
            from = last.key().to_vec();
            from.push(0);
        }
    }
    ExitCode::FAILURE
}

/// Holds every key with its value and follows the changes. Prints the number of keys when it has all.
async fn mirror(client: &Client) -> ExitCode {
    const RANGES: [&str; 7] = [
        "/orchestrate/",
        "/running_version/",
        "/status/",
        "/available_services/",
        "/config_state/",
        "/config_version/",
        "/current_version",
    ];
    let mut kv = client.kv_client().max_decoding_message_size(64 << 20);
    let mut entries = BTreeMap::new();
    let mut watches = Vec::new();
    for range in RANGES {
        let mut end = range.as_bytes().to_vec();
        *end.last_mut().expect("a slash") += 1;
        let mut from = range.as_bytes().to_vec();
        let revision = loop {
            let options = GetOptions::new().with_range(end.clone()).with_limit(10_000);
            let page = kv.get(from.clone(), Some(options)).await.expect("a page");
            for entry in page.kvs() {
                let place = (entry.create_revision(), entry.mod_revision(), entry.lease());
                entries.insert(entry.key().to_vec(), (entry.value().to_vec(), place));
            }
            match page.kvs().last().filter(|_| page.more()) {
                Some(last) => {
                    from = last.key().to_vec();
                    from.push(0);
                }
                None => break page.header().expect("a header").revision(),
            }
        };
        let options = WatchOptions::new().with_start_revision(revision + 1).with_range(end);
        watches.push(client.watch_client().watch(range, Some(options)).await.expect("a watch"));
    }
    load::answer(&format!("{} keys", entries.len()));
    loop {
        for watch in &mut watches {
            // Nothing changes while this is measured.
            watch.message().await.expect("an answer");
        }
    }
}

/// Reads keys-only ranges of the failing prefixes and counts of the others.
async fn failures(client: Client) -> ExitCode {
    let keys_only = |prefix: &str| TxnOp::get(prefix, Some(GetOptions::new().with_prefix().with_keys_only()));
    let count = |prefix: &str| TxnOp::get(prefix, Some(GetOptions::new().with_prefix().with_count_only()));
    let operations = vec![
        keys_only("/status/validation/failed/"),
        keys_only("/status/puppet/failed/"),
        count("/status/validation/success/"),
        count("/status/puppet/success/"),
        count("/status/validation/pending/"),
        count("/status/puppet/pending/"),
        count("/orchestrate/hosts/"),
        count("/orchestrate/live/"),
        count("/running_version/"),
    ];
    client.kv_client().txn(Txn::new().and_then(operations)).await.expect("an answer");
    ExitCode::FAILURE
}
