//! The directory of the recording, and who records.

use crate::secret_file;
use anyhow::{Context, Result};
use archive::recording::{Branch, Concealer, Directory, Segment, SegmentName, Source};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use etcd_session::random_token;
use planning::settings::RecorderSettings;
use schema::names::Token;
use schema::snapshot::KeySnapshot;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

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
pub(super) struct Place {
    directory: Directory,
    keep: Duration,
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

impl Place {
    /// Opens the directory, and closes segments that this recorder has left open.
    pub(super) fn open(settings: &RecorderSettings, state_directory: &Path) -> Result<Self> {
        let RecorderSettings { directory, keep } = settings;
        create_directory(directory).with_context(|| format!("recorder.directory {}", directory.display()))?;
        let Identity { recorder, key } = identity(&state_directory.join("recorder.json"))?;
        let key = STANDARD_NO_PAD.decode(key).context("the key of the recorder")?;
        let place = Self { directory: Directory::new(directory), keep: *keep, recorder, key };
        if let Err(error) = place.rebuild() {
            // What is whole in it can be read nevertheless.
            tracing::warn!(%error, "the last segment of the recording cannot be closed");
        }
        Ok(place)
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
        own.sort_by_key(|name| name.begun);
        Ok(own)
    }

    /// Closes the last segment, if the process ended while it wrote it.
    fn rebuild(&self) -> io::Result<()> {
        let Some(last) = self.own_names()?.pop() else { return Ok(()) };
        let Ok(bytes) = self.directory.load(&last) else { return Ok(()) };
        let Some(rebuilt) = Segment::rebuild(&bytes) else { return Ok(()) };
        let path = self.directory.path_of(&last);
        let new = path.with_extension("new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(&rebuilt)?;
        file.sync_all()?;
        fs::rename(&new, &path)
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
        names.sort_by_key(|name| name.begun);
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

    /// Removes own segments whose end is older than what is kept, the oldest first, so that no hole appears.
    pub(super) fn prune(&self) {
        let Ok(mut own) = self.own_names() else { return };
        own.pop();
        for name in own {
            let path = self.directory.path_of(&name);
            let ended = fs::metadata(&path).and_then(|metadata| metadata.modified());
            let age = ended.ok().and_then(|ended| SystemTime::now().duration_since(ended).ok());
            if age.is_none_or(|age| age <= self.keep) {
                return;
            }
            if let Err(error) = fs::remove_file(&path) {
                tracing::warn!(%error, file = %path.display(), "a segment of the recording cannot be removed");
                return;
            }
        }
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
mod tests {
    use super::*;
    use archive::recording::{Between, Header, SegmentWriter};
    use schema::snapshot::Entry;

    fn token(text: &str) -> Token {
        Token::new(text).unwrap()
    }

    fn snapshot(revision: i64, value: &str) -> KeySnapshot {
        let entry = |at: i64, value: &str| Entry {
            value: value.into(),
            create_revision: at,
            mod_revision: at,
            lease: 0,
            version: 1,
        };
        let entries = [("/a", entry(3, value)), ("/b", entry(revision, "newest"))];
        let entries = entries.map(|(key, entry)| (key.to_owned(), entry)).into();
        KeySnapshot { revision, raft_term: 1, entries }
    }

    fn record(place: &Place, branch: &Branch, begun: i64, snapshot: &KeySnapshot) -> SegmentName {
        let (recorder, revision) = (place.recorder.clone(), snapshot.revision);
        let name = SegmentName { branch: branch.clone(), recorder: recorder.clone(), revision, begun };
        let header = Header {
            format: 0,
            program: "test".into(),
            lineage: branch.lineage.clone(),
            epoch: branch.epoch,
            branch: branch.branch.clone(),
            recorder,
            revision,
            keys: 0,
            between: Between { after: None, by: begun },
            restored: false,
            continues: false,
            gap: None,
            erased: Vec::new(),
        };
        let file = place.create(&name).unwrap();
        SegmentWriter::begin(file, header, snapshot, place.concealer()).unwrap().finish().unwrap();
        name
    }

    fn open(directory: &Path, recorder: &str) -> Place {
        let state = directory.join(recorder);
        fs::create_dir_all(&state).unwrap();
        let settings =
            RecorderSettings { directory: directory.join("recording"), keep: Duration::from_secs(60) };
        Place::open(&settings, &state).unwrap()
    }

    #[test]
    fn a_restored_store_is_another_branch_however_that_is_seen() {
        let directory = tempfile::tempdir().unwrap();
        let place = open(directory.path(), "one");
        assert_eq!(place.recorder, open(directory.path(), "one").recorder, "it keeps its name");
        let identity = || Some((token("lineage"), 1));
        let check = |place: &Place, snapshot: &KeySnapshot, restored: bool, branch: &str, continues: bool| {
            let found = place.branch_of(identity(), snapshot, restored, 77).unwrap();
            assert_eq!((found.branch.branch.as_str(), found.continues), (branch, continues));
            found.branch
        };
        let first = check(&place, &snapshot(9, "a"), false, "0", false);
        record(&place, &first, 1000, &snapshot(9, "a"));
        check(&place, &snapshot(9, "a"), false, "0", true);
        check(&place, &snapshot(12, "a"), false, "0", false);
        check(&place, &snapshot(12, "a"), true, "77", false);
        check(&place, &snapshot(8, "a"), false, "77", false);
        // It passed the old revision before anybody looked.
        check(&place, &snapshot(12, "other"), false, "77", false);
        // Another recorder joins in; it may be behind the first one.
        let other = open(directory.path(), "two");
        check(&other, &snapshot(9, "a"), false, "0", false);
        check(&other, &snapshot(8, "a"), false, "0", false);
        check(&other, &snapshot(9, "other"), false, "77", false);
        // Another epoch, and a store without an identity, begin anew.
        let accepted = place.branch_of(Some((token("lineage"), 2)), &snapshot(12, "a"), false, 77).unwrap();
        assert_eq!(accepted.branch.to_string(), "lineage/2/0");
        assert_eq!(
            place.branch_of(None, &snapshot(12, "a"), false, 77).unwrap().branch.to_string(),
            "none/0/0"
        );
    }

    #[test]
    fn what_a_dead_recorder_left_is_closed() {
        let directory = tempfile::tempdir().unwrap();
        let place = open(directory.path(), "one");
        let branch = Branch { lineage: token("l"), epoch: 1, branch: token("0") };
        let name = record(&place, &branch, 1000, &snapshot(9, "a"));
        let path = place.directory.path_of(&name);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 5]).unwrap();
        let place = open(directory.path(), "one");
        assert_eq!(fs::read(&path).unwrap(), whole);
        assert_eq!(place.own_names().unwrap(), [name]);
    }

    #[test]
    fn old_segments_are_removed_and_never_a_newer_one_before_them() {
        let directory = tempfile::tempdir().unwrap();
        let (place, other) = (open(directory.path(), "one"), open(directory.path(), "two"));
        let branch = Branch { lineage: token("l"), epoch: 1, branch: token("0") };
        let names = [10, 20, 30, 40].map(|at| record(&place, &branch, at * 1000, &snapshot(at, "a")));
        let of_other = record(&other, &branch, 10_000, &snapshot(10, "a"));
        let set_age = |name: &SegmentName, seconds| {
            let time = SystemTime::now() - Duration::from_secs(seconds);
            let file = File::options().write(true).open(place.directory.path_of(name)).unwrap();
            file.set_modified(time).unwrap();
        };
        set_age(&of_other, 90);
        for (name, age) in names.iter().zip([90, 30, 90, 90]) {
            set_age(name, age);
        }
        place.prune();
        assert_eq!(place.own_names().unwrap(), names[1..]);
        set_age(&names[1], 70);
        place.prune();
        assert_eq!(place.own_names().unwrap(), names[3..], "the last one may still grow");
        assert!(place.directory.path_of(&of_other).exists());
    }
}
