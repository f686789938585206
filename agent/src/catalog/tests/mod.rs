//! The loops of the catalog with a real store in this process, on a paused clock: what they do when
//! connections break, answers are lost, leases end, and the store is compacted or restored.

mod follower;
mod publisher;

use etcd_session::{Deadline, Session};
use schema::keys::Key;
use schema::names::{HostName, ServiceName};
use schema::snapshot::KeySnapshot;
use schema::transaction::Transaction;
use settings::Settings;
use solo_etcd::in_process::{InProcess, LIMIT};
use std::sync::Arc;

/// What others do: they write and read by a connection without faults.
#[derive(Clone)]
struct Others(Session);

impl Others {
    fn of(store: &InProcess) -> Self {
        Self(Session::through(store.without_faults()))
    }

    async fn write(&self, transaction: &Transaction) -> i64 {
        let committed = self.0.commit(transaction, Deadline::within(LIMIT)).await.expect("written");
        assert!(committed.applied);
        committed.revision
    }

    async fn put(&self, key: Key, value: &str, lease: i64) -> i64 {
        let mut transaction = Transaction::idempotent("put");
        transaction.put(key, value, lease);
        self.write(&transaction).await
    }

    async fn delete(&self, key: Key) -> i64 {
        let mut transaction = Transaction::idempotent("delete");
        transaction.delete(key);
        self.write(&transaction).await
    }

    async fn read(&self, keys: &[Key]) -> KeySnapshot {
        self.0.read_keys(keys, Deadline::within(LIMIT)).await.expect("read")
    }
}

fn host(name: &str) -> HostName {
    HostName::new(name).expect("a name")
}

fn service(name: &str) -> ServiceName {
    ServiceName::new(name).expect("a name")
}

fn settings(text: &str) -> Arc<Settings> {
    Arc::new(settings::read(&[("test.toml".into(), text.into())]).expect("settings"))
}
