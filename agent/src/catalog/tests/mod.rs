//! The loops of the catalog with a real store in this process, on a paused clock: what they do when
//! connections break, answers are lost, leases end, and the store is compacted or restored.

mod follower;
mod publisher;

use etcd_session::{Deadline, Session};
use planning::settings::Settings;
use schema::keys::Key;
use schema::names::{HostName, ServiceName};
use schema::snapshot::KeySnapshot;
use schema::transaction::Transaction;
use solo_etcd::in_process::InProcess;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Longest time, on the paused clock, after which a condition must hold.
const LIMIT: Duration = Duration::from_secs(300);

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
    Arc::new(planning::settings::read(&[("test.toml".into(), text.into())]).expect("settings"))
}

/// Waits until the value in a channel fulfils a condition. Returns that value.
async fn wait_until<T: Clone + Debug>(
    receiver: &mut watch::Receiver<T>,
    what: &str,
    is_so: impl FnMut(&T) -> bool,
) -> T {
    match tokio::time::timeout(LIMIT, receiver.wait_for(is_so)).await {
        Ok(Ok(value)) => return value.clone(),
        Ok(Err(_)) => panic!("{what}: the task has ended"),
        Err(_) => {}
    }
    panic!("{what}: not within {LIMIT:?}: {:?}", receiver.borrow())
}
