//! The journal: an acknowledged command is on disk.
//!
//! The journal is one file, `store-N`: a header, a snapshot of the state, then every command since.
//! Each batch of commands is a frame that is synced before any of them is applied or answered. When
//! the commands have outgrown the snapshot, the whole state is written to a new file, which a
//! rename turns into `store-N+1`; it replaces the old file. At start the snapshot is read and the
//! commands are applied again; the same commands give the same state.
//!
//! A torn end is cut off, because it was never acknowledged. A file that is damaged anywhere else,
//! or that a newer program wrote, is refused. It is never taken for an empty one.
//!
//! This file is long because writing, rewriting and loading keep the same invariants of one file
//! format.

mod disk;
mod frame;
mod record;

pub(crate) use disk::{Directory, Disk};
pub(crate) use record::Identity;
pub(crate) use record::write_command;

use crate::core::{Command, Store};
use disk::DiskFile;
use frame::FoundFrame;
use record::Record;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

const MAGIC: [u8; 8] = *b"soloetcd";
const FORMAT: u32 = 1;
/// Size of the file header in bytes: magic, format and nonce.
const FILE_HEADER_BYTES: usize = 20;
/// Number of bytes by which the file grows in advance. A sync is cheaper while the file size stays
/// the same.
const GROW_BYTES: usize = 1024 * 1024;
/// Size of the records from which a frame of a snapshot is written, in bytes.
const SNAPSHOT_FRAME_BYTES: usize = 256 * 1024;
/// Size, in bytes, that the commands must exceed before the file is rewritten. They must also
/// exceed twice the size of the snapshot.
const COMMANDS_MIN_BYTES: u64 = 16 * 1024 * 1024;

/// Reason why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process uses the directory.
    #[error("another process uses the store in {0}")]
    InUse(PathBuf),
    /// The directory holds the data of an etcd.
    #[error(
        "{} holds the data of an etcd (the directory `member`), which solo-etcd cannot read. It was left as it is. Give solo-etcd another directory. To take the keys over start that etcd, and when nobody writes to it any more: etcdctl --endpoints ETCD make-mirror SOLO-ETCD; see docs/solo-etcd.md",
        .0.display()
    )]
    OfEtcd(PathBuf),
    /// The store file is damaged.
    #[error(
        "the store file {file} is damaged at byte {offset}: {detail}. It was left as it is. Put a copy of it from a backup in its place, or move it away to begin with an empty store; a fleet will then ask for `orchestrate store accept`"
    )]
    Damaged {
        /// Path of the file.
        file: String,
        /// Offset of the damage, in bytes.
        offset: u64,
        /// What is wrong at the offset.
        detail: String,
    },
    /// A newer program wrote the store file.
    #[error(
        "the store file {file} has format {found}, and this program knows none above {FORMAT}: use the newer program that wrote it, or export from there"
    )]
    Newer {
        /// Path of the file.
        file: String,
        /// Format number in the file.
        found: u32,
    },
    /// Reading or writing the directory failed.
    #[error("the store in {path}: {source}")]
    Io {
        /// Path of the directory.
        path: PathBuf,
        source: io::Error,
    },
}

pub(crate) struct Journal<D: Disk> {
    disk: D,
    identity: Identity,
    file: StoreFile<D::File>,
    /// True if the content of the disk is unknown, because a sync or a rename failed.
    broken: bool,
    buffer: Vec<u8>,
}

/// The store file in use.
struct StoreFile<F: DiskFile> {
    file: F,
    number: u64,
    nonce: u64,
    next_frame: u64,
    /// Offset of the next frame.
    offset: u64,
    /// Size that the file already has, including zeros written in advance.
    grown: u64,
    /// Offset at which the snapshot ends and the commands begin.
    snapshot_end: u64,
}

impl<D: Disk> Journal<D> {
    /// Opens the store in a directory, or creates an empty one, and records the start. Every lease
    /// begins with its full time at `now_millis`.
    pub(crate) fn open(disk: D, path: &Path, now_millis: u64) -> Result<(Self, Store), OpenError> {
        let io = |source| OpenError::Io { path: path.to_owned(), source };
        let names = disk.list().map_err(io)?;
        let (identity, file, mut store) = match names.iter().filter_map(|name| number_of(name)).max() {
            Some(number) => load(&disk, path, number, now_millis)?,
            None => {
                let (identity, store) = (Identity::random(), Store::default());
                let file = write_new(&disk, 1, identity, &store);
                (identity, file.map_err(|error| io(error.into_inner()))?, store)
            }
        };
        let is_left = |name: &str| match name.strip_suffix(".new") {
            Some(begun) => number_of(begun).is_some(),
            None => number_of(name).is_some_and(|number| number < file.number),
        };
        for name in names.iter().filter(|name| is_left(name)) {
            // A crash left this file behind. If it cannot be removed now, the next start tries
            // again.
            let _ = disk.remove(name);
        }
        let mut journal = Self { disk, identity, file, broken: false, buffer: Vec::new() };
        let mut start = Vec::new();
        write_command(&Command::Start, &mut start);
        // Neither `Start` nor `NoSpace` is ever refused.
        let _ = store.apply(Command::Start, now_millis);
        match journal.append(&start) {
            Ok(()) => {}
            // On a full disk the store still opens: it can be read, and deletions make room.
            Err(error) if is_full(&error) && !journal.broken => {
                let _ = store.apply(Command::NoSpace(true), now_millis);
            }
            Err(error) => return Err(io(error)),
        }
        store.renew_all(now_millis);
        Ok((journal, store))
    }

    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    /// Returns the size of the file in bytes, without the zeros written in advance.
    pub(crate) fn bytes(&self) -> u64 {
        self.file.offset
    }

    /// Appends the records of commands. When this returns, they are on disk.
    ///
    /// # Errors
    /// Returns an error if the records are not on disk. After a failed sync every later call fails.
    pub(crate) fn append(&mut self, records: &[u8]) -> io::Result<()> {
        if self.broken {
            return Err(io::Error::other("the content of the disk is unknown"));
        }
        if records.len() > frame::PAYLOAD_MAX_BYTES {
            return Err(io::Error::other("too much for one frame"));
        }
        self.buffer.clear();
        frame::write(self.file.nonce, self.file.next_frame, records, &mut self.buffer);
        self.file.write(&self.buffer)?;
        if let Err(error) = self.file.file.sync() {
            self.broken = true;
            return Err(error);
        }
        self.file.offset += self.buffer.len() as u64;
        self.file.next_frame += 1;
        Ok(())
    }

    /// True if the content of the disk is unknown, so that nothing is written any more.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken
    }

    /// True if the commands have outgrown the snapshot.
    pub(crate) fn should_rewrite(&self) -> bool {
        let commands = self.file.offset - self.file.snapshot_end;
        commands > COMMANDS_MIN_BYTES && commands > 2 * self.file.snapshot_end
    }

    /// Writes the whole state to a new file and continues with that file.
    ///
    /// # Errors
    /// Returns an error if the new file could not be written. The old one is then still in use,
    /// unless the new one may already have its final name: in that case nothing is written any
    /// more.
    pub(crate) fn rewrite(&mut self, store: &Store) -> io::Result<()> {
        let old = self.file.number;
        match write_new(&self.disk, old + 1, self.identity, store) {
            Ok(file) => self.file = file,
            Err(NewFile::MayBeThere(error)) => {
                // Commands appended to the old file could be lost, because the next start might use
                // the new one.
                self.broken = true;
                return Err(error);
            }
            Err(NewFile::NotThere(error)) => {
                // Delays the next attempt until commands of twice the present file size have been
                // appended.
                self.file.snapshot_end = self.file.offset;
                return Err(error);
            }
        }
        // If the old file cannot be removed now, the next start tries again.
        let _ = self.disk.remove(&file_name(old));
        Ok(())
    }
}

impl<F: DiskFile> StoreFile<F> {
    fn write(&mut self, frame: &[u8]) -> io::Result<()> {
        let end = self.offset + frame.len() as u64;
        if end > self.grown {
            let more = (end - self.grown) as usize + GROW_BYTES;
            // If there is no room to grow in advance, there may still be room for the frame.
            match self.file.write_at(&vec![0; more], self.grown) {
                Ok(()) => self.grown += more as u64,
                Err(error) if is_full(&error) => {}
                Err(error) => return Err(error),
            }
        }
        self.file.write_at(frame, self.offset)?;
        // The zeros of the next growth must not overwrite this frame.
        self.grown = self.grown.max(end);
        Ok(())
    }
}

/// Reason why a new file is not in use.
enum NewFile {
    NotThere(io::Error),
    /// The rename to the final name failed, so the file may have either name.
    MayBeThere(io::Error),
}

impl NewFile {
    fn into_inner(self) -> io::Error {
        match self {
            Self::NotThere(error) | Self::MayBeThere(error) => error,
        }
    }
}

/// True if the disk is full, or the quota of this process on it.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Writes a file with the whole state, under a temporary name until it is complete.
fn write_new<D: Disk>(
    disk: &D,
    number: u64,
    identity: Identity,
    store: &Store,
) -> Result<StoreFile<D::File>, NewFile> {
    let name = file_name(number);
    let temporary = format!("{name}.new");
    let created = disk.create(&temporary).map_err(NewFile::NotThere)?;
    let file = Snapshot::write(created, number, identity, store).map_err(|error| {
        // Removes the incomplete file. If that fails now, the next start tries again.
        let _ = disk.remove(&temporary);
        NewFile::NotThere(error)
    })?;
    disk.rename(&temporary, &name).map_err(NewFile::MayBeThere)?;
    Ok(file)
}

fn load<D: Disk>(
    disk: &D,
    path: &Path,
    number: u64,
    now_millis: u64,
) -> Result<(Identity, StoreFile<D::File>, Store), OpenError> {
    let io = |source| OpenError::Io { path: path.to_owned(), source };
    let name = file_name(number);
    let shown = path.join(&name).display().to_string();
    let mut reader = BufReader::new(disk.read(&name).map_err(io)?);
    let nonce = read_file_header(&mut reader, &shown).map_err(|error| error.or_io(path))?;
    let mut loading = Loading { offset: FILE_HEADER_BYTES as u64, ..Loading::default() };
    let rest = loading.read(&mut reader, nonce, now_millis).map_err(|error| match error {
        LoadError::Io(source) => io(source),
        LoadError::Damaged(offset, detail) => OpenError::Damaged { file: shown.clone(), offset, detail },
    })?;
    drop(reader);
    let Loading { identity, store, next_frame, offset, snapshot_end, last_frame, .. } = loading;
    let Some(store) = store else {
        let detail = "its snapshot is not complete".into();
        return Err(OpenError::Damaged { file: shown, offset, detail });
    };
    let mut file = disk.open(&name).map_err(io)?;
    if let Some(last) = rest.iter().rposition(|byte| *byte != 0) {
        let torn_bytes = last + 1;
        tracing::warn!(file = shown, offset, torn_bytes, "the end of the store file was torn and is cut");
        file.write_at(&vec![0; torn_bytes], offset).and_then(|()| file.sync()).map_err(io)?;
    }
    // If the sync of the last frame failed before this start, the frame may exist only in memory,
    // and the kernel will not write it by itself. After a power loss the frames behind it could not
    // be read. So the frame is written again, and the next sync puts it on disk.
    if let Some(number) = next_frame.checked_sub(1) {
        let mut last = Vec::new();
        frame::write(nonce, number, &last_frame, &mut last);
        file.write_at(&last, offset - last.len() as u64).map_err(io)?;
    }
    let grown = offset + rest.len() as u64;
    Ok((identity, StoreFile { file, number, nonce, next_frame, offset, grown, snapshot_end }, store))
}

/// State of reading a file.
#[derive(Default)]
struct Loading {
    identity: Identity,
    summary: crate::core::Summary,
    leases: Vec<(i64, i64)>,
    versions: Vec<(Vec<u8>, crate::core::Version)>,
    /// The state; `None` until the snapshot is complete.
    store: Option<Store>,
    next_frame: u64,
    offset: u64,
    snapshot_end: u64,
    /// Payload of the last frame.
    last_frame: Vec<u8>,
}

enum LoadError {
    Io(io::Error),
    /// Offset of the damage, and what is wrong there.
    Damaged(u64, String),
}

impl Loading {
    /// Reads all frames. Returns the bytes after the last one: zeros, unless the end is torn.
    fn read(&mut self, file: &mut impl Read, nonce: u64, now_millis: u64) -> Result<Vec<u8>, LoadError> {
        loop {
            match frame::read(nonce, self.next_frame, file).map_err(LoadError::Io)? {
                FoundFrame::Frame(payload) => {
                    let at = self.offset;
                    self.take(&payload, now_millis).map_err(|detail| LoadError::Damaged(at, detail))?;
                    self.last_frame = payload;
                }
                FoundFrame::Other(mut bytes) => {
                    file.read_to_end(&mut bytes).map_err(LoadError::Io)?;
                    if frame::holds_later(nonce, self.next_frame, &bytes) {
                        let detail = "a frame is damaged, and later ones are whole".to_owned();
                        return Err(LoadError::Damaged(self.offset, detail));
                    }
                    return Ok(bytes);
                }
            }
        }
    }

    fn take(&mut self, payload: &[u8], now_millis: u64) -> Result<(), String> {
        for record in record::read_all(payload)? {
            match (record, &mut self.store) {
                (Record::Command(command), Some(store)) => {
                    // A command that was refused the first time is refused again.
                    let _ = store.apply(command, now_millis);
                }
                (Record::Identity(identity), None) => self.identity = identity,
                (Record::Summary(summary), None) => self.summary = summary,
                (Record::Lease(id, seconds), None) => self.leases.push((id, seconds)),
                (Record::Version(key, version), None) => self.versions.push((key, version)),
                (Record::SnapshotEnd, None) => {
                    let leases = std::mem::take(&mut self.leases).into_iter();
                    let versions = std::mem::take(&mut self.versions).into_iter();
                    let store = Store::restore(&self.summary, leases, versions, now_millis);
                    self.store = Some(store.map_err(|refusal| refusal.message().to_owned())?);
                    self.snapshot_end = self.offset + (frame::HEADER_BYTES + payload.len()) as u64;
                }
                (record, _) => return Err(format!("a record out of place: {record:?}")),
            }
        }
        self.next_frame += 1;
        self.offset += (frame::HEADER_BYTES + payload.len()) as u64;
        Ok(())
    }
}

/// State of writing a snapshot.
struct Snapshot<F: DiskFile> {
    file: F,
    nonce: u64,
    records: Vec<u8>,
    frame: Vec<u8>,
    next_frame: u64,
    offset: u64,
}

impl<F: DiskFile> Snapshot<F> {
    /// Writes a complete file with header and snapshot, and syncs it.
    fn write(mut file: F, number: u64, identity: Identity, store: &Store) -> io::Result<StoreFile<F>> {
        let nonce = record::random();
        let header = [&MAGIC[..], &FORMAT.to_le_bytes(), &nonce.to_le_bytes()].concat();
        file.write_at(&header, 0)?;
        let offset = header.len() as u64;
        let mut snapshot =
            Self { file, nonce, records: Vec::new(), frame: Vec::new(), next_frame: 0, offset };
        snapshot.fill(identity, store)?;
        let Self { mut file, next_frame, offset, .. } = snapshot;
        file.sync()?;
        Ok(StoreFile { file, number, nonce, next_frame, offset, grown: offset, snapshot_end: offset })
    }

    fn fill(&mut self, identity: Identity, store: &Store) -> io::Result<()> {
        record::write_identity(identity, &mut self.records);
        record::write_summary(&store.summary(), &mut self.records);
        for (id, seconds) in store.leases() {
            record::write_lease(id, seconds, &mut self.records);
            self.flush_if_full()?;
        }
        for (key, version) in store.versions() {
            record::write_version(key, version, &mut self.records);
            self.flush_if_full()?;
        }
        record::write_snapshot_end(&mut self.records);
        self.flush()
    }

    fn flush_if_full(&mut self) -> io::Result<()> {
        if self.records.len() < SNAPSHOT_FRAME_BYTES { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.frame.clear();
        frame::write(self.nonce, self.next_frame, &self.records, &mut self.frame);
        self.file.write_at(&self.frame, self.offset)?;
        self.offset += self.frame.len() as u64;
        self.next_frame += 1;
        self.records.clear();
        Ok(())
    }
}

enum HeaderError {
    Open(OpenError),
    Io(io::Error),
}

impl HeaderError {
    fn or_io(self, path: &Path) -> OpenError {
        match self {
            Self::Open(error) => error,
            Self::Io(source) => OpenError::Io { path: path.to_owned(), source },
        }
    }
}

/// Checks magic and format of a file. Returns its nonce.
fn read_file_header(file: &mut impl Read, shown: &str) -> Result<u64, HeaderError> {
    let mut header = Vec::new();
    file.take(FILE_HEADER_BYTES as u64).read_to_end(&mut header).map_err(HeaderError::Io)?;
    let damaged = |detail: &str| {
        HeaderError::Open(OpenError::Damaged { file: shown.to_owned(), offset: 0, detail: detail.to_owned() })
    };
    let Some(rest) = header.strip_prefix(&MAGIC) else {
        return Err(damaged("it does not begin as a store of this program does"));
    };
    let (Some(format), Some(nonce)) =
        (rest.first_chunk::<4>(), rest.get(4..).and_then(|r| r.first_chunk::<8>()))
    else {
        return Err(damaged("it ends within its header"));
    };
    match u32::from_le_bytes(*format) {
        FORMAT => Ok(u64::from_le_bytes(*nonce)),
        found if found > FORMAT => Err(HeaderError::Open(OpenError::Newer { file: shown.to_owned(), found })),
        found => Err(damaged(&format!("it has the unknown format {found}"))),
    }
}

fn file_name(number: u64) -> String {
    format!("store-{number:016x}")
}

fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("store-").filter(|digits| digits.len() == 16)?;
    u64::from_str_radix(digits, 16).ok()
}

/// Returns a checksum over every version up to a revision. It is equal for equal histories,
/// regardless of the layout of the files.
pub(crate) fn state_hash(store: &Store, revision: i64) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    let mut bytes = Vec::new();
    for (key, version) in store.versions().filter(|(_, version)| version.revision <= revision) {
        bytes.clear();
        record::write_version(key, version, &mut bytes);
        hasher.update(&bytes);
    }
    hasher.finalize()
}

/// Entry points for the fuzz targets.
#[cfg(fuzzing)]
pub mod fuzzing {
    use super::{FILE_HEADER_BYTES, Loading, read_file_header};

    /// Reads a whole store file.
    pub fn file(mut bytes: &[u8]) {
        let Ok(nonce) = read_file_header(&mut bytes, "fuzz") else { return };
        let mut loading = Loading { offset: FILE_HEADER_BYTES as u64, ..Loading::default() };
        let _ = loading.read(&mut bytes, nonce, 0);
    }

    /// Reads records as if their checksum were correct, after the snapshot of an empty store.
    pub fn records(bytes: &[u8]) {
        let mut loading = Loading { store: Some(crate::core::Store::default()), ..Loading::default() };
        let _ = loading.take(bytes, 0);
        // Also reads them as parts of a snapshot.
        let _ = Loading::default().take(bytes, 0);
    }
}

#[cfg(test)]
mod tests;
