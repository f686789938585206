//! Claims that programs of this machine ask for: FleetLock's clients before a reboot, and
//! `orchestrate with-claim` for a command. The loop of the host holds the claims of updates; both write
//! `/orchestrate/claimed/<host>` and compare its revision, so that neither overwrites the other.

use crate::catalog::Fencing;
use crate::clock;
use crate::files::Directory;
use crate::rollout::{HOLDERS_INTERVAL, look_after};
use etcd_session::{Deadline, PresenceState, Session, StoreError};
use planning::rollout::{
    ClaimAnswer, ClaimRequest, Holders, Obstacle, limit_reads, rollout_reads, store_reads,
};
use rustix::fs::{FlockOperation, flock};
use schema::names::{HostName, Token};
use schema::records::Purpose;
use schema::snapshot::KeySnapshot;
use schema::writes::Fence;
use schema::writes::purpose::end_purpose;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;

/// Number of times that a transaction is tried if others change the claims at the same time.
const TRIES: u32 = 5;

/// The locks of commands that hold claims. Whoever runs a command holds its lock, and the command inherits
/// it, so that the kernel says whether it still runs.
#[derive(Debug)]
pub(crate) struct CommandLocks {
    directory: Directory,
}

impl CommandLocks {
    /// Opens the directory below the state directory, and removes what ended commands have left there.
    ///
    /// # Errors
    /// Returns the system's error, also if others could have put files into the directory.
    pub(crate) fn open(state_directory: &Path) -> io::Result<Self> {
        let directory = Directory::open_or_create(&state_directory.join("commands"))?;
        directory.check_private()?;
        let locks = Self { directory };
        for entry in std::fs::read_dir(locks.directory.path())? {
            let run = entry?.file_name().to_str().and_then(|name| Token::new(name).ok());
            if let Some(run) = run.filter(|run| !locks.is_held(run)) {
                locks.remove(&run);
            }
        }
        Ok(locks)
    }

    /// Creates the lock of a run, if it does not exist. Returns its path.
    fn create(&self, run: &Token) -> io::Result<PathBuf> {
        self.directory.open_lock(run.as_str())?;
        Ok(self.directory.path().join(run.as_str()))
    }

    /// True if somebody holds the lock of a run.
    fn is_held(&self, run: &Token) -> bool {
        let path = self.directory.path().join(run.as_str());
        // The file is not created here.
        path.exists()
            && self
                .directory
                .open_lock(run.as_str())
                .is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err())
    }

    fn remove(&self, run: &Token) {
        // What is left is removed when the agent starts again.
        let _ = self.directory.remove(run.as_str());
    }

    /// Returns those of the commands for which claims are held that still run.
    pub(crate) fn running<'a>(&self, purposes: impl IntoIterator<Item = &'a Purpose>) -> BTreeSet<Token> {
        let runs = purposes.into_iter().filter_map(|purpose| match purpose {
            Purpose::Command(run) => Some(run),
            Purpose::Update | Purpose::Reboot(_) => None,
        });
        runs.filter(|run| self.is_held(run)).cloned().collect()
    }
}

/// Why claims were not taken or given back.
#[derive(Debug)]
pub(crate) enum ClaimRefusal {
    /// The rollout holds the host back.
    HeldBack(Obstacle),
    /// Nobody holds the lock of the command, which is at this path.
    NotLocked(PathBuf),
    /// The store cannot be written by this host now.
    Away(String),
}

impl From<StoreError> for ClaimRefusal {
    fn from(error: StoreError) -> Self {
        Self::Away(error.to_string())
    }
}

/// Takes claims for programs of this machine.
#[derive(Clone)]
pub(crate) struct LocalClaims {
    parts: Arc<Parts>,
}

struct Parts {
    session: Session,
    host: HostName,
    instance: Token,
    presence: watch::Receiver<PresenceState>,
    fencing: watch::Receiver<Fencing>,
    locks: Arc<CommandLocks>,
    /// One request at a time; and when the holders of claims are looked after again.
    looks_after_at: Mutex<Instant>,
}

impl LocalClaims {
    pub(crate) fn new(
        session: Session,
        (host, instance): (HostName, Token),
        presence: watch::Receiver<PresenceState>,
        fencing: watch::Receiver<Fencing>,
        locks: Arc<CommandLocks>,
    ) -> Self {
        let looks_after_at = Mutex::new(Instant::now());
        Self { parts: Arc::new(Parts { session, host, instance, presence, fencing, locks, looks_after_at }) }
    }

    /// Takes claims for a command whose lock somebody holds. Returns the path of the lock.
    pub(crate) async fn take_for_command(&self, run: &Token) -> Result<PathBuf, ClaimRefusal> {
        let locks = &self.parts.locks;
        let path = locks.create(run).map_err(|error| ClaimRefusal::Away(error.to_string()))?;
        if !locks.is_held(run) {
            return Err(ClaimRefusal::NotLocked(path));
        }
        self.take(&Purpose::Command(run.clone())).await.map(|()| path)
    }

    /// Gives the claims of a command back.
    pub(crate) async fn end_command(&self, run: &Token) -> Result<(), ClaimRefusal> {
        self.end(&Purpose::Command(run.clone())).await?;
        self.parts.locks.remove(run);
        Ok(())
    }

    /// Takes claims. Does nothing if the host holds them for this purpose already.
    pub(crate) async fn take(&self, purpose: &Purpose) -> Result<(), ClaimRefusal> {
        let Parts { session, host, instance, looks_after_at, .. } = &*self.parts;
        let mut looks_after_at = looks_after_at.lock().await;
        for _ in 0..TRIES {
            let fence = self.fence()?;
            let found = self.read().await?;
            let request = ClaimRequest { host, instance, purpose, fence, at: clock::now().wall };
            match request.answer(&found) {
                ClaimAnswer::Nothing => return Ok(()),
                ClaimAnswer::Take(transaction) => {
                    if session.commit(&transaction, Deadline::of_request()).await?.applied {
                        tracing::info!(%purpose, "claims taken");
                        return Ok(());
                    }
                }
                ClaimAnswer::Waits(obstacle, holders) => {
                    if let Some(holders) = holders {
                        self.look_after(&holders, fence, &mut looks_after_at).await;
                    }
                    return Err(ClaimRefusal::HeldBack(obstacle));
                }
            }
        }
        Err(ClaimRefusal::HeldBack(Obstacle::NotRead))
    }

    /// Looks after the hosts that keep this one waiting, now and then.
    async fn look_after(&self, holders: &Holders, fence: Fence, due: &mut Instant) {
        if *due > Instant::now() {
            return;
        }
        *due = Instant::now() + HOLDERS_INTERVAL;
        let Parts { session, host, .. } = &*self.parts;
        // The answer does not depend on it.
        if let Err(error) = look_after(session, host, holders, fence).await {
            tracing::warn!(%error, "the holders of claims could not be looked after");
        }
    }

    /// Gives claims back. Does nothing if the host does not hold them for this purpose.
    pub(crate) async fn end(&self, purpose: &Purpose) -> Result<(), ClaimRefusal> {
        let Parts { session, host, looks_after_at, .. } = &*self.parts;
        let _one_at_a_time = looks_after_at.lock().await;
        for _ in 0..TRIES {
            let fence = self.fence()?;
            let found = session.read_keys(&store_reads(host), Deadline::of_request()).await?;
            let Some(transaction) = end_purpose(host, fence, purpose, &found) else { return Ok(()) };
            if session.commit(&transaction, Deadline::of_request()).await?.applied {
                tracing::info!(%purpose, "claims given back");
                return Ok(());
            }
        }
        Err(ClaimRefusal::Away("the claims of the host keep changing".into()))
    }

    /// Returns what every write of this host compares.
    fn fence(&self) -> Result<Fence, ClaimRefusal> {
        let Parts { presence, fencing, session, .. } = &*self.parts;
        let fencing = fencing.borrow().clone();
        let is_usable = !fencing.decommissioned && fencing.history == session.marks().history;
        match (&*presence.borrow(), fencing.store_revision.filter(|_| is_usable)) {
            (PresenceState::Held { lease, live_revision }, Some(store_revision)) => {
                Ok(Fence { live_revision: *live_revision, live_lease: *lease, store_revision })
            }
            _ => Err(ClaimRefusal::Away(
                "the agent does not hold the name of this host, or does not trust the store; `/status` says why".into(),
            )),
        }
    }

    /// Reads everything that a claim depends on, at one revision.
    async fn read(&self) -> Result<KeySnapshot, StoreError> {
        let Parts { session, host, .. } = &*self.parts;
        let deadline = Deadline::of_request();
        let mut found = session.read_keys(&store_reads(host), deadline).await?;
        let (keys, ranges) = rollout_reads(host, &found);
        let rollout = session.read_all(&keys, &ranges, Some(found.revision), deadline).await?;
        found.entries.extend(rollout.entries);
        let limits = limit_reads(host, &found);
        if !limits.is_empty() {
            let limits = session.read_all(&[], &limits, Some(found.revision), deadline).await?;
            found.entries.extend(limits.entries);
        }
        Ok(found)
    }
}
