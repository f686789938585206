//! The loops and transactions of this crate with a real store in this process, on a paused clock:
//! what they do when connections break, answers are lost, the store is compacted or restored.

mod assembly;
mod feed;
mod mirror;
mod presence;
mod reads;
mod writes;

use crate::{Deadline, Session};
use etcd_client::{AlarmAction, AlarmType, Client, ConnectOptions};
use schema::keys::Key;
use schema::names::{HostName, Version};
use schema::snapshot::KeySnapshot;
use solo_etcd::in_process::{InProcess, LIMIT};

/// A store, a client without faults for what others do, and a session.
struct Fixture {
    store: InProcess,
    others: Client,
    session: Session,
}

impl Fixture {
    async fn new() -> Self {
        let store = InProcess::start();
        let others = client(&store).await;
        let session = Session::through(store.clone());
        Self { store, others, session }
    }

    /// Restores the store from a backup.
    async fn restore(&mut self, backup: solo_etcd::core::Store) {
        self.store.restore(backup);
        self.others = client(&self.store).await;
    }

    /// Another one writes a key. Returns the revision.
    async fn put(&mut self, key: &Key, value: &str) -> i64 {
        let put = self.others.put(key.to_string(), value, None).await.expect("written");
        put.header().expect("a header").revision()
    }

    /// Another one deletes a key. Returns the revision.
    async fn delete(&mut self, key: &Key) -> i64 {
        let deleted = self.others.delete(key.to_string(), None).await.expect("deleted");
        deleted.header().expect("a header").revision()
    }

    /// Raises the alarm NOSPACE: the store accepts no puts and grants no leases.
    async fn fill(&mut self) {
        let raised = self.others.alarm(AlarmAction::Activate, AlarmType::Nospace, None).await;
        raised.expect("the alarm is raised");
    }

    /// Discards the history before a revision.
    async fn compact(&mut self, revision: i64) {
        self.others.compact(revision, None).await.expect("compacted");
    }

    /// Reads keys as another one sees them.
    async fn read(&self, keys: &[Key]) -> KeySnapshot {
        let session = Session::through(self.store.without_faults());
        session.read_keys(keys, Deadline::within(LIMIT)).await.expect("read")
    }
}

/// Returns a client whose connection has no faults.
async fn client(store: &InProcess) -> Client {
    store.without_faults().connect("store", ConnectOptions::new()).await.expect("a client")
}

fn host() -> HostName {
    HostName::new("h1").expect("a name")
}

fn version(text: &str) -> Version {
    Version::new(text).expect("a version")
}
