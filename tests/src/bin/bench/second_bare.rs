//! A second yardstick for the file of the catalog, so that the first is not the only one. It
//! borrows as much as it can from the answer, keeps addresses in lists that are sorted once, and
//! omits nothing else: the file is the same.

use etcd_client::{Client, GetOptions, KeyValue};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::net::IpAddr;
use std::path::Path;

const PREFIX: &str = "/available_services/";

/// The fields of a record that the file needs.
#[derive(serde::Deserialize)]
struct Record<'a> {
    #[serde(borrow)]
    interfaces: BTreeMap<&'a str, Vec<IpAddr>>,
}

/// The addresses of one interface: one per host, and all of them.
#[derive(Default)]
struct Lists {
    first: Vec<IpAddr>,
    all: Vec<IpAddr>,
}

fn service_of(entry: &KeyValue) -> &str {
    let key = entry.key_str().expect("text");
    key[PREFIX.len()..].split_once('/').expect("a host").0
}

/// Reads the records with one range request, parses them, and writes them as YAML, put in place by
/// fsync and rename.
pub(crate) async fn render(client: &Client, path: &Path) {
    let mut kv = client.kv_client().max_decoding_message_size(64 << 20);
    let answer = kv.get(PREFIX, Some(GetOptions::new().with_prefix())).await.expect("a range");
    let mut lines: BTreeMap<String, Vec<IpAddr>> = BTreeMap::new();
    // The records of one service are adjacent.
    for records in answer.kvs().chunk_by(|one, next| service_of(one) == service_of(next)) {
        let service = service_of(&records[0]);
        let mut interfaces: BTreeMap<&str, Lists> = BTreeMap::new();
        for entry in records {
            let record: Record<'_> = serde_json::from_slice(entry.value()).expect("a record");
            for (name, addresses) in record.interfaces {
                let lists = interfaces.entry(name).or_default();
                lists.first.extend(addresses.iter().min());
                lists.all.extend(addresses);
            }
        }
        for (interface, lists) in interfaces {
            for (front, mut list) in [("services", lists.first), ("services_all", lists.all)] {
                list.sort_unstable();
                list.dedup();
                lines.insert(format!("{front}::{service}::{interface}"), list);
            }
        }
    }
    let mut text = Vec::new();
    for (key, list) in &lines {
        write!(text, "{key}: [").expect("memory");
        for (index, address) in list.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(text, "{comma}{address}").expect("memory");
        }
        text.extend_from_slice(b"]\n");
    }
    let temporary = path.with_extension("new");
    let mut file = File::create(&temporary).expect("a file");
    file.write_all(&text).expect("written");
    file.sync_all().expect("on disk");
    std::fs::rename(&temporary, path).expect("in place");
}
