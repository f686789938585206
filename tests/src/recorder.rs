//! An independent recorder of every change in the store: every revision, in order, with the time at
//! which it arrived.

use crate::etcd::Etcd;
use crate::wait;
use etcd_client::{Client, ConnectOptions, EventType, WatchOptions};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// One change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub revision: i64,
    pub key: String,
    /// The new value; `None` for a deletion.
    pub value: Option<String>,
    /// The lease under which the value was written; 0 for none.
    pub lease: i64,
    /// Time of the recording, in hundredths of a second since boot.
    pub boot_centis: u64,
}

pub struct Recorder {
    changes: Arc<Mutex<Vec<Change>>>,
    _runtime: tokio::runtime::Runtime,
}

/// Returns the clock of `/proc/uptime`, which the test steps log too, in hundredths of a second.
pub fn boot_centis() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    (time.tv_sec * 100 + time.tv_nsec / 10_000_000).cast_unsigned()
}

impl Recorder {
    /// Starts to record from the first revision on.
    pub fn start(etcd: &Etcd) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let changes = Arc::new(Mutex::new(Vec::new()));
        runtime.spawn(record(etcd.endpoints(), Arc::clone(&changes)));
        Self { changes, _runtime: runtime }
    }

    /// Waits until this revision is recorded and returns all recorded changes.
    pub fn up_to(&self, revision: i64) -> Vec<Change> {
        let seen = || self.changes.lock().expect("no panic").last().map_or(0, |c: &Change| c.revision);
        wait::until(
            "the recorder caught up",
            || (seen() >= revision).then_some(()),
            || format!("at {}", seen()),
        );
        self.changes.lock().expect("no panic").clone()
    }
}

async fn record(endpoints: Vec<String>, changes: Arc<Mutex<Vec<Change>>>) {
    let mut next = 1;
    let mut member = 0;
    loop {
        // One member at a time: the watch on a dead member ends, and the next member's watch
        // continues at the next revision.
        let endpoint = &endpoints[member % endpoints.len()];
        member += 1;
        // The next member is tried whatever the error is.
        let _ = record_from(endpoint, &mut next, &changes).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn record_from(
    endpoint: &str,
    next: &mut i64,
    changes: &Mutex<Vec<Change>>,
) -> Result<(), etcd_client::Error> {
    let options = ConnectOptions::new()
        .with_require_leader(true)
        .with_connect_timeout(Duration::from_secs(1))
        .with_keep_alive(Duration::from_secs(5), Duration::from_secs(2));
    let client = Client::connect([endpoint], Some(options)).await?;
    let options = WatchOptions::new().with_prefix().with_start_revision(*next);
    let mut stream = client.watch_client().watch("/", Some(options)).await?;
    while let Some(answer) = stream.message().await? {
        if answer.canceled() {
            return Ok(());
        }
        for event in answer.events() {
            let Some(kv) = event.kv() else { continue };
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            changes.lock().expect("no panic").push(Change {
                revision: kv.mod_revision(),
                key: text(kv.key()),
                value: (event.event_type() == EventType::Put).then(|| text(kv.value())),
                lease: kv.lease(),
                boot_centis: boot_centis(),
            });
            *next = (*next).max(kv.mod_revision() + 1);
        }
    }
    Ok(())
}
