//! Runs the journal on a disk that loses, tears and fails writes. Acknowledged commands must
//! survive.
//!
//! This file is long because it holds a simulated disk and the histories that run on it.

use super::disk::{Disk, DiskFile};
use super::*;
use crate::core::Command;
use etcd_client::proto::{PbCompactionRequest, PbDeleteRequest, PbLeaseGrantRequest, PbPutRequest};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const SECTOR_BYTES: usize = 512;

/// What the disk does after a given number of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The machine loses power: each unsynced sector is kept or lost at random.
    PowerLoss,
    /// The operation fails once, with none or half of it done; the process continues.
    Error(io::ErrorKind),
}

#[derive(Debug, Default, Clone)]
struct Contents {
    /// Contents that survive a power loss.
    durable: Vec<u8>,
    /// Contents that a running program reads.
    seen: Vec<u8>,
    /// Sectors that the next sync writes. A sync that fails forgets them, as in Linux.
    dirty: BTreeSet<usize>,
}

impl Contents {
    fn write(&mut self, bytes: &[u8], offset: usize) {
        let end = offset + bytes.len();
        if self.seen.len() < end {
            self.seen.resize(end, 0);
        }
        self.seen[offset..end].copy_from_slice(bytes);
        self.dirty.extend(offset / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES));
    }

    /// Writes the dirty sectors to the disk; `keeps` decides for each one.
    fn flush(&mut self, mut keeps: impl FnMut() -> bool) {
        self.durable.resize(self.seen.len(), 0);
        for sector in std::mem::take(&mut self.dirty) {
            let start = sector * SECTOR_BYTES;
            let end = (start + SECTOR_BYTES).min(self.seen.len());
            if keeps() {
                self.durable[start..end].copy_from_slice(&self.seen[start..end]);
            }
        }
    }
}

#[derive(Debug)]
struct State {
    /// File names and the index of their contents. An open file refers to its contents, not to its
    /// name.
    names: BTreeMap<String, usize>,
    files: Vec<Contents>,
    operations: usize,
    fault: Option<(usize, Fault)>,
    dead: bool,
    /// True if no file can grow.
    is_full: bool,
    /// State of the random generator [`coin`].
    seed: u64,
}

/// A disk in memory. Clones share it.
#[derive(Debug, Clone)]
struct Memory(Arc<Mutex<State>>);

struct MemoryFile {
    disk: Memory,
    index: usize,
}

impl Memory {
    fn new(seed: u64) -> Self {
        let (names, files) = (BTreeMap::new(), Vec::new());
        let state = State { names, files, operations: 0, fault: None, dead: false, is_full: false, seed };
        Self(Arc::new(Mutex::new(state)))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail_after(&self, operations: usize, fault: Fault) {
        let mut state = self.lock();
        state.fault = Some((state.operations + operations, fault));
    }

    /// Restores power: synced data exists, the rest was kept or lost at random.
    fn restart(&self) {
        let mut state = self.lock();
        state.dead = false;
        state.fault = None;
        let State { files, seed, .. } = &mut *state;
        for contents in files {
            contents.flush(|| coin(seed));
            contents.seen = contents.durable.clone();
        }
    }

    /// Restarts only the process or the whole machine, at random. Without power it is always the
    /// machine.
    fn restart_or_only_the_process(&self) {
        let mut state = self.lock();
        if !state.dead && coin(&mut state.seed) {
            state.fault = None;
        } else {
            drop(state);
            self.restart();
        }
    }

    fn is_dead(&self) -> bool {
        self.lock().dead
    }
}

/// Returns a random bit (xorshift64).
fn coin(seed: &mut u64) -> bool {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed & 1 == 1
}

impl State {
    /// Counts an operation. Returns the fault if it is due.
    fn step(&mut self) -> io::Result<Option<Fault>> {
        if self.dead {
            return Err(io::Error::other("no power"));
        }
        self.operations += 1;
        match self.fault {
            Some((at, fault)) if self.operations > at => {
                self.fault = None;
                self.dead = fault == Fault::PowerLoss;
                Ok(Some(fault))
            }
            _ => Ok(None),
        }
    }
}

fn failed(fault: Fault) -> io::Error {
    match fault {
        Fault::PowerLoss => io::Error::other("no power"),
        Fault::Error(kind) => kind.into(),
    }
}

impl Disk for Memory {
    type File = MemoryFile;

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.lock().names.keys().cloned().collect())
    }

    fn read(&self, name: &str) -> io::Result<Box<dyn Read + '_>> {
        let state = self.lock();
        let index = *state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(io::Cursor::new(state.files[index].seen.clone())))
    }

    fn open(&self, name: &str) -> io::Result<MemoryFile> {
        let index = *self.lock().names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(MemoryFile { disk: self.clone(), index })
    }

    fn create(&self, name: &str) -> io::Result<MemoryFile> {
        let mut state = self.lock();
        if let Some(fault) = state.step()? {
            return Err(failed(fault));
        }
        let index = state.files.len();
        state.files.push(Contents::default());
        state.names.insert(name.to_owned(), index);
        drop(state);
        self.open(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.lock();
        let fault = state.step()?;
        // A rename that fails may have happened or not.
        let happens = fault.is_none() || coin(&mut state.seed);
        if happens {
            let index = state.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
            state.names.insert(to.to_owned(), index);
        }
        fault.map_or(Ok(()), |fault| Err(failed(fault)))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.lock();
        if let Some(fault) = state.step()? {
            return Err(failed(fault));
        }
        state.names.remove(name);
        Ok(())
    }
}

impl DiskFile for MemoryFile {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.disk.lock();
        let fault = state.step()?;
        let offset = usize::try_from(offset).expect("small");
        // A write that fails may be half done.
        let written = if fault.is_some() { &bytes[..bytes.len() / 2] } else { bytes };
        let is_full = state.is_full;
        let contents = &mut state.files[self.index];
        if is_full && offset + written.len() > contents.seen.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        contents.write(written, offset);
        fault.map_or(Ok(()), |fault| Err(failed(fault)))
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.disk.lock();
        let fault = state.step()?;
        let State { files, seed, .. } = &mut *state;
        match fault {
            None => files[self.index].flush(|| true),
            Some(Fault::PowerLoss) => {}
            Some(Fault::Error(_)) => files[self.index].flush(|| coin(seed)),
        }
        fault.map_or(Ok(()), |fault| Err(failed(fault)))
    }
}

/// Returns the command of this number in a run. Each changes something visible.
fn command(number: usize) -> Command {
    let key = format!("key{}", number % 7).into_bytes();
    match number % 11 {
        3 => Command::DeleteRange(PbDeleteRequest { key, ..PbDeleteRequest::default() }),
        5 => Command::LeaseGrant(PbLeaseGrantRequest { id: 100 + number as i64, ttl: 60 }),
        6 => Command::Put(PbPutRequest { key, lease: 99 + number as i64, ..PbPutRequest::default() }),
        8 => Command::Compact(PbCompactionRequest { revision: number as i64 / 2, physical: false }),
        9 => Command::LeaseRevoke(number as i64 + 96),
        _ => Command::Put(PbPutRequest { key, value: vec![b'v'; number % 700], ..PbPutRequest::default() }),
    }
}

/// Returns the state after `count` commands, with a start before each command number in `starts`.
fn expected(starts: &[usize], count: usize) -> Store {
    let mut store = Store::default();
    for number in 0..=count {
        for _ in starts.iter().filter(|at| **at == number) {
            let _ = store.apply(Command::Start, 0);
        }
        if number < count {
            // Some commands are refused, in the run and here.
            let _ = store.apply(command(number), 0);
        }
    }
    store
}

fn same(found: &Store, expected: &Store) -> bool {
    // The number of starts can differ, because a start may have been interrupted.
    let mut summary = expected.summary();
    summary.raft_term = found.summary().raft_term;
    summary.applied = found.summary().applied;
    // The alarm is raised if a start found no room for its record.
    summary.no_space = found.summary().no_space;
    found.summary() == summary
        && found.leases() == expected.leases()
        && state_hash(found, i64::MAX) == state_hash(expected, i64::MAX)
}

fn open(disk: &Memory) -> Result<(Journal<Memory>, Store), OpenError> {
    Journal::open(disk.clone(), Path::new("/test"), 0)
}

/// Writes until the fault occurs, restarts and checks the state: everything acknowledged exists, in
/// order, and besides it at most the batch that was being written. Then continues. Returns the
/// number of acknowledged commands.
fn check(seed: u64, faults: &[(usize, Fault)]) -> usize {
    let disk = Memory::new(seed | 1);
    let mut acknowledged = 0;
    let mut last_term = 0;
    let mut first = true;
    for (after, fault) in faults.iter().copied().chain([(usize::MAX / 2, Fault::PowerLoss)]) {
        if !first {
            disk.restart_or_only_the_process();
        }
        disk.fail_after(after, fault);
        let (mut journal, mut store) = match open(&disk) {
            Ok(open) => open,
            Err(OpenError::Io { .. }) => {
                first = false;
                continue;
            }
            Err(error) => panic!("seed {seed}, {faults:?}: {error}"),
        };
        let batch = 1 + seed as usize % 3;
        let found = (acknowledged..=acknowledged + batch).find(|n| same(&store, &expected(&[], *n)));
        let found =
            found.unwrap_or_else(|| panic!("seed {seed}, {faults:?}: {acknowledged} were acknowledged"));
        if !store.no_space() {
            assert!(store.raft_term() > last_term, "the term goes up with every start that could be written");
            last_term = store.raft_term();
        }
        acknowledged = found;
        first = false;
        for round in 0..40 {
            if round % 13 == 12 {
                // If this fails, the old file is still in use.
                let _ = journal.rewrite(&store);
            }
            let commands: Vec<Command> = (acknowledged..acknowledged + batch).map(command).collect();
            let mut records = Vec::new();
            commands.iter().for_each(|command| write_command(command, &mut records));
            if journal.append(&records).is_err() {
                if disk.is_dead() || journal.broken {
                    break;
                }
                continue;
            }
            commands.into_iter().for_each(|command| drop(store.apply(command, 0)));
            acknowledged += batch;
        }
    }
    acknowledged
}

#[test]
fn what_was_acknowledged_survives_a_fault_at_every_operation() {
    let kinds =
        [Fault::PowerLoss, Fault::Error(io::ErrorKind::StorageFull), Fault::Error(io::ErrorKind::Other)];
    for after in 0..140 {
        for (number, fault) in kinds.into_iter().enumerate() {
            let acknowledged = check(1 + after as u64 * 7 + number as u64, &[(after, fault)]);
            assert!(acknowledged >= 30, "after the fault it goes on: {acknowledged}");
        }
    }
}

#[test]
fn what_was_read_after_a_failed_sync_outlives_the_power() {
    let append = |journal: &mut Journal<Memory>, numbers: std::ops::Range<usize>| {
        let mut records = Vec::new();
        numbers.for_each(|number| write_command(&command(number), &mut records));
        journal.append(&records)
    };
    for seed in 1..40 {
        let disk = Memory::new(seed);
        let (mut journal, _) = open(&disk).expect("opens");
        append(&mut journal, 0..1).expect("is written");
        // The write succeeds, but the sync fails.
        disk.fail_after(1, Fault::Error(io::ErrorKind::Other));
        // The frame has many sectors: a sector that it shared with the next frame would be written
        // with that frame.
        append(&mut journal, 1..80).expect_err("fails");
        assert!(journal.is_broken());
        drop(journal);
        let (mut journal, store) = open(&disk).expect("opens");
        assert!(same(&store, &expected(&[], 80)), "the frame is there to be read");
        append(&mut journal, 80..81).expect("is written");
        drop(journal);
        disk.restart();
        let (_, store) = open(&disk).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(same(&store, &expected(&[], 81)), "seed {seed}");
    }
}

/// Returns the configuration with this number of cases, or with the number in PROPTEST_CASES.
fn cases(default: u32) -> ProptestConfig {
    let given = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok());
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(given.unwrap_or(default)) }
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn what_was_acknowledged_survives_any_faults(
        seed in any::<u64>(),
        faults in prop::collection::vec((0usize..120, prop_oneof![
            3 => Just(Fault::PowerLoss),
            1 => Just(Fault::Error(io::ErrorKind::StorageFull)),
            1 => Just(Fault::Error(io::ErrorKind::Other)),
        ]), 1..6),
    ) {
        check(seed, &faults);
    }
}

impl Memory {
    fn contents(&self, name: &str) -> Vec<u8> {
        let state = self.lock();
        state.files[state.names[name]].seen.clone()
    }

    fn set(&self, name: &str, bytes: Vec<u8>) {
        let mut state = self.lock();
        let index = state.files.len();
        state.files.push(Contents { durable: bytes.clone(), seen: bytes, ..Contents::default() });
        state.names.insert(name.to_owned(), index);
    }
}

/// Returns a disk with a snapshot and some commands, the name of the file, and the expected state.
fn written() -> (Memory, String, Store) {
    let disk = Memory::new(1);
    let (mut journal, mut store) = open(&disk).expect("an empty store");
    for number in 0..30 {
        let mut records = Vec::new();
        write_command(&command(number), &mut records);
        journal.append(&records).expect("written");
        let _ = store.apply(command(number), 0);
    }
    let name = file_name(journal.file.number);
    (disk, name, store)
}

#[test]
fn a_damaged_file_is_refused_and_left_as_it_is() {
    let (disk, name, store) = written();
    let whole = disk.contents(&name);
    let used = whole.iter().rposition(|byte| *byte != 0).expect("something") + 1;
    let mut refused = 0;
    for at in (0..used).step_by(7) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x55;
        disk.set(&name, damaged.clone());
        match open(&disk) {
            Err(OpenError::Damaged { .. } | OpenError::Newer { .. }) => {
                refused += 1;
                assert_eq!(disk.contents(&name), damaged, "byte {at}");
            }
            // The damaged frame is the last one, which cannot be told from a torn one.
            Ok((_, found)) => assert!(found.revision() >= store.revision() - 2, "byte {at}"),
            Err(error) => panic!("byte {at}: {error}"),
        }
    }
    assert!(refused > used / 7 - 20, "{refused} of {}", used / 7);
}

#[test]
fn damage_over_several_frames_is_no_torn_end() {
    let (disk, name, _) = written();
    let whole = disk.contents(&name);
    let used = whole.iter().rposition(|byte| *byte != 0).expect("something") + 1;
    for start in (600..used - 1200).step_by(97) {
        for with in [0, 0x5a] {
            let mut damaged = whole.clone();
            damaged[start..start + 512].fill(with);
            disk.set(&name, damaged.clone());
            let opened = open(&disk);
            assert!(matches!(opened, Err(OpenError::Damaged { .. })), "from byte {start} with {with}");
            assert_eq!(disk.contents(&name), damaged);
        }
    }
}

#[test]
fn what_somebody_put_beside_the_store_stays() {
    let (disk, _, _) = written();
    for name in ["store-0000000000000001.damaged", "store-backup", "store-0000000000000009.bak"] {
        disk.set(name, vec![1]);
    }
    drop(open(&disk).expect("the store"));
    assert_eq!(disk.list().expect("names").len(), 4);
}

#[test]
fn a_full_disk_can_still_be_opened_and_read() {
    let (disk, name, store) = written();
    // There is no room to grow: the file ends where its frames end.
    let mut bytes = disk.contents(&name);
    let used = bytes.iter().rposition(|byte| *byte != 0).expect("something") + 1;
    bytes.truncate(used);
    disk.set(&name, bytes);
    disk.lock().is_full = true;
    let (journal, found) = open(&disk).expect("the store");
    assert!(found.no_space() && !journal.is_broken());
    assert_eq!(state_hash(&found, i64::MAX), state_hash(&store, i64::MAX));
}

#[test]
fn a_newer_format_and_another_program_s_file_are_refused() {
    for (at, byte, part) in [(8, 9, "format 9"), (0, b'X', "does not begin as a store")] {
        let (disk, name, _) = written();
        let mut changed = disk.contents(&name);
        changed[at] = byte;
        disk.set(&name, changed);
        let Err(error) = open(&disk) else { panic!("opened in spite of byte {at}") };
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn what_an_interrupted_rewrite_left_is_removed() {
    let (disk, name, store) = written();
    disk.set("store-00000000000000ff.new", Vec::new());
    let (_, found) = open(&disk).expect("the store");
    assert!(same(&found, &store));
    assert_eq!(disk.list().expect("names"), [name]);
}
