//! The directory of the recording, and who records.

use super::retention::{Bounds, OwnSegment, Tidying};
use crate::clock::now_millis;
use crate::secret_file;
use anyhow::{Context, Result};
use archive::recording::{
    Branch, Concealer, Directory, PlaceError, Segment, SegmentError, SegmentName, Source,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use etcd_session::random_token;
use schema::names::Token;
use schema::snapshot::KeySnapshot;
use serde::{Deserialize, Serialize};
use settings::RecorderSettings;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// The branch of an epoch before a restoration of the store was seen.
const FIRST_BRANCH: &str = "0";
/// The lineage of a store without an identity.
const NO_LINEAGE: &str = "none";

/// What a recorder keeps about itself. The key hides values ([`Concealer`]).
#[derive(Serialize, Deserialize)]
struct Identity {
    recorder: Token,
    key: String,
}

/// The directory of the recording, and who records.
pub(super) struct RecordingDirectory {
    directory: Directory,
    bounds: Bounds,
    /// The URL of the object store; `None` if segments are not uploaded.
    upload_to: Option<String>,
    recorder: Token,
    key: Vec<u8>,
}

/// In which history of the store a segment belongs.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FoundBranch {
    pub(super) branch: Branch,
    /// True if the last segment of this recorder ends at the same revision.
    pub(super) continues: bool,
    /// True if the branch begins because the store was restored.
    pub(super) restored: bool,
    /// True if this recorder has recorded the branch before.
    pub(super) has_earlier: bool,
}

impl RecordingDirectory {
    /// Opens the directory, which is created if it is not there.
    pub(super) fn open(settings: &RecorderSettings, state_directory: &Path) -> Result<Self> {
        let RecorderSettings { directory, keep, max_bytes, upload } = settings;
        create_directory(directory).with_context(|| format!("recorder.directory {}", directory.display()))?;
        let Identity { recorder, key } = identity(&state_directory.join("recorder.json"))?;
        let key = STANDARD_NO_PAD.decode(key).context("the key of the recorder")?;
        let bounds = Bounds { keep: *keep, max_bytes: *max_bytes };
        Ok(Self {
            directory: Directory::new(directory),
            bounds,
            upload_to: upload.as_ref().map(|upload| upload.to.clone()),
            recorder,
            key,
        })
    }

    pub(super) fn directory(&self) -> &Directory {
        &self.directory
    }

    pub(super) fn bounds(&self) -> Bounds {
        self.bounds
    }

    pub(super) fn recorder(&self) -> &Token {
        &self.recorder
    }

    pub(super) fn concealer(&self) -> Concealer {
        Concealer::new(&self.key)
    }

    /// Creates the file of a segment.
    pub(super) fn create(&self, name: &SegmentName) -> io::Result<File> {
        let path = self.directory.path_of(name);
        if let Some(parent) = path.parent() {
            create_directory(parent)?;
        }
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
    }

    fn own_names(&self) -> io::Result<Vec<SegmentName>> {
        let names = self.directory.names()?.into_iter();
        let mut own: Vec<SegmentName> = names.filter(|name| name.recorder == self.recorder).collect();
        own.sort_by_key(|name| (name.begun, name.revision));
        Ok(own)
    }

    /// Closes segments that this recorder has left open, because the process ended or the disk was full. Those that say nothing
    /// are removed. It must write none meanwhile.
    pub(super) fn close_left(&self) {
        let Ok(own) = self.own_names() else { return };
        for name in own {
            if let Err(error) = self.close_one_left(&name) {
                // What is whole in it can still be read.
                tracing::warn!(%error, segment = %name, "a segment of the recording cannot be closed");
            }
        }
    }

    fn close_one_left(&self, name: &SegmentName) -> io::Result<()> {
        if Segment::is_closed(&File::open(self.directory.path_of(name))?)? {
            return Ok(());
        }
        let bytes = self.directory.load(name).map_err(io::Error::other)?;
        match Segment::rebuild(&bytes) {
            Some(rebuilt) => self.directory.replace(name, &rebuilt).map_err(io::Error::other),
            None if Segment::read(&bytes) == Err(SegmentError::Unfinished) => {
                self.directory.remove(name).map_err(io::Error::other)
            }
            None => Ok(()),
        }
    }

    /// Returns the history to which this snapshot belongs: that of the newest segment, unless the store was restored since.
    pub(super) fn branch_of(
        &self,
        identity: Option<(Token, u64)>,
        snapshot: &KeySnapshot,
        is_restored: bool,
        now: i64,
    ) -> io::Result<FoundBranch> {
        let token = |text: &str| Token::new(text).map_err(io::Error::other);
        let (lineage, epoch) = match identity {
            Some(identity) => identity,
            None => (token(NO_LINEAGE)?, 0),
        };
        let of = |branch: Token| Branch { lineage: lineage.clone(), epoch, branch };
        let names = self.directory.names()?.into_iter();
        let names = names.filter(|name| name.branch.lineage == lineage && name.branch.epoch == epoch);
        let mut names: Vec<SegmentName> = names.collect();
        names.sort_by_key(|name| (name.begun, name.revision));
        let Some(newest) = names.last().map(|name| name.branch.clone()) else {
            let branch = of(token(FIRST_BRANCH)?);
            return Ok(FoundBranch { branch, continues: false, restored: false, has_earlier: false });
        };
        let new = || {
            let branch = of(token(&now.to_string())?);
            Ok(FoundBranch { branch, continues: false, restored: true, has_earlier: false })
        };
        if is_restored {
            return new();
        }
        let of_branch = |name: &&SegmentName| name.branch == newest;
        let own = names.iter().rev().filter(of_branch).find(|name| name.recorder == self.recorder);
        let last = own.or_else(|| names.iter().rev().find(of_branch));
        let segment = last.and_then(|name| Segment::read(&self.directory.load(name).ok()?).ok());
        // A segment that cannot be read shows nothing. A reader finds what contradicts it.
        let has_earlier = own.is_some();
        let Some(segment) = segment else {
            return Ok(FoundBranch { branch: newest, continues: false, restored: false, has_earlier });
        };
        let end = segment.last_revision();
        // Another recorder may be further.
        let went_back = has_earlier && snapshot.revision < end;
        if went_back || snapshot.revision >= end && self.is_another_history(segment, snapshot) {
            return new();
        }
        let continues = has_earlier && snapshot.revision == end;
        Ok(FoundBranch { branch: newest, continues, restored: false, has_earlier })
    }

    /// True if a key that has not changed since the end of a segment was another one then.
    fn is_another_history(&self, segment: Segment, snapshot: &KeySnapshot) -> bool {
        let end = segment.last_revision();
        let (then, concealer) = (segment.into_keys_at(end).unwrap_or_default(), self.concealer());
        let mut unchanged = snapshot.entries.iter().filter(|(_, entry)| entry.mod_revision <= end);
        unchanged.any(|(key, entry)| {
            let now = concealer.recorded(key, entry);
            then.get(key).is_none_or(|then| then.contradicts(&now))
        })
    }

    /// Returns the latest time in the last own segment, in milliseconds since 1970; 0 if there is none.
    pub(super) fn latest(&self) -> i64 {
        let last = self.own_names().ok().and_then(|mut own| own.pop());
        let segment = last.and_then(|name| Segment::read(&self.directory.load(&name).ok()?).ok());
        segment.map_or(0, |segment| segment.last_time())
    }

    /// Removes own segments that are old, or for which there is no room. Returns how much remains, and why one could not be
    /// removed.
    pub(super) fn tidy(&self) -> io::Result<(Tidying, Option<PlaceError>)> {
        let listed =
            self.directory.list()?.into_iter().filter(|listed| listed.name.recorder == self.recorder);
        let own = listed.map(|listed| {
            let to = self.upload_to.as_ref();
            let is_uploaded = to.is_some_and(|to| self.directory.is_uploaded(&listed.name, to));
            OwnSegment { listed, is_uploaded }
        });
        let tidying = self.bounds.tidy(own.collect(), self.upload_to.is_some(), now_millis());
        // One that cannot be removed keeps none of the others.
        let mut failed = None;
        for name in tidying.expired.iter().chain(&tidying.crowded_out) {
            failed = self.directory.remove(name).err().or(failed);
        }
        Ok((tidying, failed))
    }
}

fn create_directory(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Reads who records, and creates it at the first start.
fn identity(path: &Path) -> Result<Identity> {
    const WHAT: &str = "the identity of the recorder";
    let name = || format!("{WHAT} {}", path.display());
    if std::fs::metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        let key = [random_token().to_string(), random_token().to_string()].concat();
        let new = Identity { recorder: random_token(), key: STANDARD_NO_PAD.encode(key) };
        secret_file::create(path, &serde_json::to_string(&new)?, 0o600).with_context(name)?;
    }
    serde_json::from_str(&secret_file::read(WHAT, path)?).with_context(name)
}

#[cfg(test)]
mod tests;
