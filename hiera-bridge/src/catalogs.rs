//! The catalog on disk, kept for each compile as it was when the compile began.

use catalog::{CachedCatalog, Catalog, GuardSettings, View, Zone};
use schema::codec;
use schema::health::Health;
use schema::names::{HostName, ServiceName};
use schema::time::BootMillis;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::SystemTime;

/// Largest file that is read, in bytes.
const FILE_MAX_BYTES: u64 = 256 * 1024 * 1024;
/// Largest number of catalogs that are held at once. When one more is read, the oldest is dropped,
/// and the compiles that began with it go on with the newest.
const PINNED_MAX: usize = 4;
/// Largest number of compiles that are remembered for one catalog.
const COMPILES_MAX: usize = 256;

/// The catalogs of the current compiles, the newest last.
pub(crate) struct Catalogs {
    path: PathBuf,
    pinned: VecDeque<PinnedCatalog>,
}

/// A catalog as it was read.
pub(crate) struct PinnedCatalog {
    /// Open for as long as the catalog is held, so that no other file gets its inode number. The
    /// agent replaces the file when the catalog differs, and touches it while the store confirms
    /// it. So the age of the catalog is the age of this file.
    file: File,
    catalog: Catalog,
    revision: i64,
    zone: Option<Zone>,
    compiles: VecDeque<String>,
}

impl Catalogs {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, pinned: VecDeque::new() }
    }

    /// Returns the catalog with which a compile began; for a new compile, the newest.
    pub(crate) fn of(&mut self, compile: Option<&str>) -> Result<&mut PinnedCatalog, String> {
        let is_of =
            |held: &PinnedCatalog| compile.is_some_and(|id| held.compiles.iter().any(|known| known == id));
        let at = match self.pinned.iter().position(is_of) {
            Some(at) => at,
            None => self.newest(compile)?,
        };
        Ok(&mut self.pinned[at])
    }

    fn newest(&mut self, compile: Option<&str>) -> Result<usize, String> {
        let wrong = |error: &dyn std::fmt::Display| {
            format!("the catalog {} cannot be read: {error}", self.path.display())
        };
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(format!(
                    "there is no catalog {}: the agent on this host has not read it from the store yet",
                    self.path.display()
                ));
            }
            Err(error) => return Err(wrong(&error)),
        };
        let number = |file: &File| file.metadata().map(|m| (m.dev(), m.ino()));
        let now = number(&file).map_err(|error| wrong(&error))?;
        if self.pinned.back().and_then(|held| number(&held.file).ok()) != Some(now) {
            self.pinned.push_back(PinnedCatalog::read(file).map_err(|error| wrong(&error))?);
            if self.pinned.len() > PINNED_MAX {
                self.pinned.pop_front();
            }
        }
        let at = self.pinned.len() - 1;
        if let Some(id) = compile {
            let compiles = &mut self.pinned[at].compiles;
            compiles.push_back(id.to_owned());
            if compiles.len() > COMPILES_MAX {
                compiles.pop_front();
            }
        }
        Ok(at)
    }
}

impl PinnedCatalog {
    fn read(mut file: File) -> Result<Self, String> {
        let mut bytes = Vec::new();
        (&mut file).take(FILE_MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
        if bytes.len() as u64 > FILE_MAX_BYTES {
            return Err(format!("it has more than {FILE_MAX_BYTES} bytes"));
        }
        let cached: CachedCatalog = codec::read(&bytes).map_err(|error| error.to_string())?;
        let (revision, zone) = (cached.revision, cached.names.as_ref().map(|names| names.zone()));
        let catalog = cached.restore(GuardSettings::default(), BootMillis(0));
        Ok(Self { file, catalog, revision, zone, compiles: VecDeque::new() })
    }

    /// Returns the services and their instances.
    pub(crate) fn view(&self) -> &View {
        self.catalog.view()
    }

    /// Returns the zone of the agent's DNS server.
    pub(crate) fn zone(&self) -> Result<&Zone, String> {
        self.zone.as_ref().ok_or_else(|| "the catalog was written by an older agent, without its zone".into())
    }

    /// Returns the revision of the store at which the catalog last changed.
    pub(crate) fn revision(&self) -> i64 {
        self.revision
    }

    /// Returns for how many seconds the store has not confirmed the catalog; 0 if the clock was set
    /// back.
    pub(crate) fn age_seconds(&self) -> Result<u64, String> {
        let written = self.file.metadata().and_then(|m| m.modified()).map_err(|error| error.to_string())?;
        Ok(SystemTime::now().duration_since(written).unwrap_or_default().as_secs())
    }

    /// Replaces the health of a service.
    pub(crate) fn learn(&mut self, service: &ServiceName, health: BTreeMap<HostName, Health>) {
        self.catalog.replace_health(service, health, BootMillis(0));
        self.catalog.settle(BootMillis(0), false);
    }
}
