//! The tests' own store client, independent of the code under test.

use crate::recorder::Change;
use etcd_client::{Client, ConnectOptions, GetOptions, LeaseGrantOptions, PutOptions, Txn, TxnOp};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// A client with blocking calls to the store.
pub struct Store {
    runtime: tokio::runtime::Runtime,
    client: Client,
}

/// A result whose error is text.
pub type Result<T> = std::result::Result<T, String>;

const TIMEOUT: Duration = Duration::from_secs(3);

impl Store {
    /// Returns a client that connects at its first use.
    pub fn connect(endpoints: &[String]) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let options =
            ConnectOptions::new().with_timeout(TIMEOUT).with_connect_timeout(Duration::from_secs(1));
        let client = runtime.block_on(Client::connect(endpoints, Some(options))).expect("lazy");
        Self { runtime, client }
    }

    /// Returns the asynchronous client and the runtime that runs its futures.
    pub fn parts(&self) -> (&tokio::runtime::Runtime, Client) {
        (&self.runtime, self.client.clone())
    }

    /// Tries a request several times, because a member may be down. Every request here is
    /// idempotent.
    fn call<T, F>(&self, request: impl Fn(Client) -> F) -> Result<T>
    where
        F: Future<Output = std::result::Result<T, etcd_client::Error>>,
    {
        let mut last = String::new();
        for _ in 0..12 {
            match self.runtime.block_on(request(self.client.clone())) {
                Ok(answer) => return Ok(answer),
                Err(error) => last = error.to_string(),
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Err(last)
    }

    /// Returns the value of a key, `None` if the key does not exist, or an error if the store does
    /// not answer.
    pub fn try_get(&self, key: &str) -> Result<Option<String>> {
        let answer = self.call(|mut c| async move { c.get(key, None).await })?;
        Ok(answer.kvs().first().map(|kv| kv.value_str().expect("text").to_owned()))
    }

    /// Returns the value of a key; panics if the store does not answer.
    pub fn get(&self, key: &str) -> Option<String> {
        self.try_get(key).unwrap_or_else(|e| panic!("get {key}: {e}"))
    }

    /// Returns all keys with this prefix and their values.
    pub fn list(&self, prefix: &str) -> BTreeMap<String, String> {
        let answer =
            self.call(|mut c| async move { c.get(prefix, Some(GetOptions::new().with_prefix())).await });
        let answer = answer.unwrap_or_else(|e| panic!("list {prefix}: {e}"));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        answer.kvs().iter().map(|kv| (text(kv.key()), text(kv.value()))).collect()
    }

    /// Writes a value and returns the revision.
    pub fn put(&self, key: &str, value: &str) -> i64 {
        let answer = self.call(|mut c| async move { c.put(key, value, None).await });
        let answer = answer.unwrap_or_else(|e| panic!("put {key}: {e}"));
        answer.header().expect("a header").revision()
    }

    /// Writes values in one transaction, which may have 128 operations.
    pub fn put_all(&self, values: &[(String, String)]) {
        let put = |(key, value): &(String, String)| TxnOp::put(key.as_str(), value.as_str(), None);
        let txn = Txn::new().and_then(values.iter().map(put).collect::<Vec<_>>());
        let written = self.call(|mut c| {
            let txn = txn.clone();
            async move { c.txn(txn).await }
        });
        written.unwrap_or_else(|e| panic!("put {values:?}: {e}"));
    }

    /// Writes a value with a single try; returns the revision or the error.
    pub fn try_put(&self, key: &str, value: &[u8]) -> Result<i64> {
        let answer =
            self.runtime.block_on(self.client.clone().put(key, value, None)).map_err(|e| e.to_string())?;
        Ok(answer.header().expect("a header").revision())
    }

    /// Deletes a key.
    pub fn delete(&self, key: &str) {
        self.call(|mut c| async move { c.delete(key, None).await })
            .unwrap_or_else(|e| panic!("delete {key}: {e}"));
    }

    /// Returns the current revision of the store.
    pub fn revision(&self) -> i64 {
        let answer = self.call(|mut c| async move { c.get("/", None).await }).expect("a revision");
        answer.header().expect("a header").revision()
    }

    /// Compacts the history up to this revision.
    pub fn compact(&self, revision: i64) {
        self.runtime.block_on(self.client.clone().compact(revision, None)).expect("compacted");
    }

    /// Writes a recorded history, up to revision `to`, into an empty store: each change at its
    /// original revision and under a lease with its original id, with a time to live of
    /// `lease_seconds`.
    pub fn replay(&self, changes: &[Change], to: i64, lease_seconds: i64) {
        let mut leases = BTreeSet::from([0]);
        let mut renewed = Instant::now();
        for group in changes.chunk_by(|a, b| a.revision == b.revision) {
            let revision = group[0].revision;
            if revision > to {
                return;
            }
            for change in group {
                if leases.insert(change.lease) {
                    let options = LeaseGrantOptions::new().with_id(change.lease);
                    self.call(|mut c| {
                        let options = options.clone();
                        async move { c.lease_grant(lease_seconds, Some(options)).await }
                    })
                    .expect("granted");
                }
            }
            let operation = |change: &Change| match &change.value {
                Some(value) => {
                    let options = PutOptions::new().with_lease(change.lease);
                    TxnOp::put(change.key.clone(), value.clone(), Some(options))
                }
                None => TxnOp::delete(change.key.clone(), None),
            };
            let txn = Txn::new().and_then(group.iter().map(operation).collect::<Vec<_>>());
            let answer = self.runtime.block_on(self.client.clone().txn(txn)).expect("replayed");
            assert_eq!(answer.header().expect("a header").revision(), revision, "{group:?}");
            // The end of a lease is a revision too, and a slow disk may need longer than a lease lasts.
            if renewed.elapsed() > Duration::from_secs(lease_seconds.unsigned_abs()) / 4 {
                renewed = Instant::now();
                leases.iter().filter(|lease| **lease != 0).for_each(|lease| self.renew(*lease));
            }
        }
    }

    fn renew(&self, lease: i64) {
        // This renews once, and waits for the answer.
        self.call(|mut c| async move { c.lease_keep_alive(lease).await }).expect("renewed");
    }

    /// Returns the lease of a key; 0 if the key has no lease or does not exist.
    pub fn lease_of(&self, key: &str) -> i64 {
        let answer = self.call(|mut c| async move { c.get(key, None).await }).expect("an answer");
        answer.kvs().first().map_or(0, |kv| kv.lease())
    }

    /// True if this lease exists.
    pub fn has_lease(&self, lease: i64) -> bool {
        let answer = self.call(|mut c| async move { c.lease_time_to_live(lease, None).await });
        answer.is_ok_and(|answer| answer.ttl() > 0)
    }

    /// Returns the ids of the leader and of the member that answers.
    pub fn status(&self) -> Option<(u64, u64)> {
        let status = self.runtime.block_on(self.client.clone().status()).ok()?;
        Some((status.leader(), status.header()?.member_id()))
    }
}
