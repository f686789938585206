//! Export, for a store that outgrows one machine: writes every key of a stopped store into an etcd
//! that has none of these keys.

use crate::core::Store;
use crate::data_directory;
use crate::journal::{Directory, Journal};
use anyhow::{Context, bail, ensure};
use etcd_client::{Client, Compare, CompareOp, Txn, TxnOp};
use std::path::Path;

/// Number of keys in one transaction; etcd allows 128 operations.
const KEYS_IN_TXN: usize = 100;
/// Size of keys and values in one transaction, in bytes; etcd allows requests of 1.5 MiB.
const BYTES_IN_TXN: usize = 1024 * 1024;

/// Result of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Exported {
    /// Number of keys that the other store now holds with the exported values.
    pub written: usize,
    /// Number of keys that were left out because they are attached to a lease: without it they
    /// would outlive the process that they stand for.
    pub leased: usize,
}

/// Writes every key of the store in a directory into another store. No other process may use the
/// directory meanwhile. A key that already exists with the same value counts as written, so an
/// interrupted export can be repeated.
///
/// # Errors
/// Returns an error if the store cannot be opened, or if the other store cannot be reached or holds
/// a different value under one of the keys.
pub async fn export(directory: &Path, endpoints: &[String]) -> anyhow::Result<Exported> {
    let entries = std::fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let mut names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    ensure!(
        names.any(|name| name.starts_with("store-")),
        "there is no store in {}: of `orchestrate-agent --dev` it is in the directory `store` there",
        directory.display()
    );
    let store = open(directory)?;
    let mut client = Client::connect(endpoints, None).await.context("connecting to the other store")?;
    let mut exported = Exported::default();
    let mut batch: Vec<(&[u8], &[u8])> = Vec::new();
    let mut bytes = 0;
    for (key, version) in store.newest() {
        if version.lease != 0 {
            exported.leased += 1;
            continue;
        }
        let more = key.len() + version.value.len();
        if batch.len() == KEYS_IN_TXN || (bytes + more > BYTES_IN_TXN && !batch.is_empty()) {
            exported.written += write(&mut client, &batch).await?;
            (batch, bytes) = (Vec::new(), 0);
        }
        batch.push((key, &version.value));
        bytes += more;
    }
    exported.written += write(&mut client, &batch).await?;
    Ok(exported)
}

fn open(directory: &Path) -> anyhow::Result<Store> {
    let (files, _lock) = data_directory::lock(directory)?;
    let (_, store) = Journal::<Directory>::open(files, directory, 0)?;
    Ok(store)
}

async fn write(client: &mut Client, batch: &[(&[u8], &[u8])]) -> anyhow::Result<usize> {
    if batch.is_empty() {
        return Ok(0);
    }
    let absent = batch.iter().map(|(key, _)| Compare::version(*key, CompareOp::Equal, 0));
    let puts = batch.iter().map(|(key, value)| TxnOp::put(*key, *value, None));
    let txn = Txn::new().when(absent.collect::<Vec<_>>()).and_then(puts.collect::<Vec<_>>());
    if client.txn(txn).await.context("writing to the other store")?.succeeded() {
        return Ok(batch.len());
    }
    // Some keys already exist. An earlier export wrote the same values; any other value is somebody
    // else's and is not overwritten.
    for (key, value) in batch {
        let absent = Compare::version(*key, CompareOp::Equal, 0);
        let put = Txn::new().when([absent]).and_then([TxnOp::put(*key, *value, None)]);
        if client.txn(put).await.context("writing to the other store")?.succeeded() {
            continue;
        }
        let found = client.get(*key, None).await.context("reading from the other store")?;
        if found.kvs().first().is_none_or(|kv| kv.value() != *value) {
            bail!("the other store has a different value under {}", key.escape_ascii());
        }
    }
    Ok(batch.len())
}
