//! The journal: the host's state on disk, written before the agent acts on it. It is one file that
//! is replaced as a whole; a header line holds its format, length and checksum.

use crate::failpoint;
use crate::files::Directory;
use planning::host::{HostState, Running, RunningStep};
use schema::names::{HostName, Version};
use schema::store_trust::StoreMemory;
use schema::time::EpochSeconds;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::io;

const FILE: &str = "journal";
const SET_ASIDE: &str = "journal.set-aside";
const MAGIC: &str = "orchestrate-journal 2";
/// The format before, which no release wrote.
const OLDER_MAGIC: &str = "orchestrate-journal 1";
/// Size of the largest journal that is read, in bytes.
const MAX_BYTES: u64 = 1024 * 1024;

/// The result of [`load`].
#[derive(Debug)]
pub(crate) enum LoadedJournal {
    /// A journal of this host.
    State(Box<HostState>),
    /// There is no journal.
    Nothing,
    /// There is a journal that cannot be used; it was set aside.
    SetAside { why: String, left: Left },
}

/// What is known of a journal that was set aside.
#[derive(Debug)]
pub(crate) enum Left {
    Nothing,
    /// The state directory, and so its instance, came from another host or machine. `is_disturbed` is true if an
    /// update was under way there.
    Foreign {
        is_disturbed: bool,
    },
    /// An older agent of this host wrote it.
    Older(Box<OlderJournal>),
}

/// What an agent must know of a journal of the format before, so that it does nothing wrong. It knows the store again,
/// it waits for the step that runs, and it takes no version that is not whole for installed. The rest is lost.
#[derive(Debug, Deserialize)]
pub(crate) struct OlderJournal {
    host: HostName,
    machine_id: String,
    store: Option<StoreMemory>,
    installed: Option<Version>,
    #[serde(rename = "dirty")]
    in_progress: Option<IgnoredAny>,
    hold: Option<IgnoredAny>,
    running: Option<RunningStep>,
}

impl OlderJournal {
    /// True if the host may hold claims of limits for an update. With another instance, it keeps them until it is
    /// proven.
    pub(crate) fn may_hold_claims(&self) -> bool {
        self.in_progress.is_some() || self.hold.is_some()
    }

    /// Returns the state of the host. If an update was under way, no version is installed, and the host applies its
    /// version again.
    pub(crate) fn into_state(self, host: &HostName, boot_id: &str, now: EpochSeconds) -> HostState {
        let installed = if self.in_progress.is_none() { self.installed } else { None };
        let mut state = HostState::new(host.clone(), self.machine_id, boot_id.to_owned(), installed);
        // The report under the name with capitals is deleted.
        let is_respelled = self.host != *host;
        state.store = self.store.map(|memory| StoreMemory {
            report_revision: if is_respelled { None } else { memory.report_revision },
            ..memory
        });
        state.steps.running = self.running.map(|step| Running { step, since: None, at: now });
        state
    }
}

/// A journal that can be read.
enum Parsed {
    Current(Box<HostState>),
    Older(Box<OlderJournal>),
}

/// Reads the journal of a host. A journal that is incomplete or damaged, or that belongs to another
/// host, another machine or another format, is set aside. It is never repaired by guessing. `former` is the
/// host's name with capitals, under which an older agent wrote.
///
/// # Errors
/// Returns the system's error if the state directory cannot be used.
pub(crate) fn load(
    directory: &Directory,
    host: &HostName,
    former: Option<&HostName>,
    machine_id: &str,
) -> io::Result<LoadedJournal> {
    let (bytes, parsed) = match directory.read(FILE, MAX_BYTES) {
        Ok(None) => return Ok(LoadedJournal::Nothing),
        Ok(Some(bytes)) => {
            let parsed = parse(&bytes);
            (bytes, parsed)
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => (Vec::new(), Err(error.to_string())),
        Err(error) => return Err(error),
    };
    let why_foreign = |of: &HostName, machine: &str| {
        if of != host && Some(of) != former {
            Some(format!("it is the journal of host {of}, this is {host}"))
        } else if machine != machine_id {
            Some("it was written on another machine (a cloned image?)".to_owned())
        } else {
            None
        }
    };
    let (why, left) = match parsed {
        Ok(Parsed::Current(state)) => match why_foreign(&state.host, &state.machine_id) {
            Some(why) => (why, Left::Foreign { is_disturbed: state.is_disturbed() }),
            None => return Ok(LoadedJournal::State(state)),
        },
        Ok(Parsed::Older(older)) => match why_foreign(&older.host, &older.machine_id) {
            Some(why) => (why, Left::Foreign { is_disturbed: older.in_progress.is_some() }),
            None => (describe_older(), Left::Older(older)),
        },
        Err(why) => (why, Left::Nothing),
    };
    if let Left::Older(_) = left {
        // It stays until the new journal replaces it: what it says must survive a kill.
        if let Err(error) = directory.replace(SET_ASIDE, &bytes, 0o600) {
            tracing::warn!(%error, "no copy of the older journal is kept");
        }
    } else {
        directory.set_aside(FILE, "set-aside")?;
    }
    Ok(LoadedJournal::SetAside { why, left })
}

/// Says what is lost with a journal of the format before.
fn describe_older() -> String {
    format!(
        "an older agent wrote it: it is an \"{OLDER_MAGIC}\", this agent reads \"{MAGIC}\". \
         The installed version, the identity of the store and the running step are taken over. \
         Attempts, failures, results, the place in rollouts, and the times and output of steps are lost. \
         An update that was under way is applied again"
    )
}

/// Writes the journal.
///
/// # Errors
/// Returns the errors of [`Directory::replace`].
pub(crate) fn save(directory: &Directory, state: &HostState) -> io::Result<()> {
    failpoint::reach("agent-before-journal");
    directory.replace(FILE, &render(state), 0o600)?;
    failpoint::reach("agent-after-journal");
    Ok(())
}

fn render(state: &HostState) -> Vec<u8> {
    let body = serde_json::to_vec(state)
        .unwrap_or_else(|e| unreachable!("the state has text keys and finite numbers: {e}"));
    let mut bytes = format!("{MAGIC} {} {:08x}\n", body.len(), crc32fast::hash(&body)).into_bytes();
    bytes.extend_from_slice(&body);
    bytes
}

fn parse(bytes: &[u8]) -> Result<Parsed, String> {
    let end = bytes.iter().position(|b| *b == b'\n').ok_or("it has no header line")?;
    let header = std::str::from_utf8(&bytes[..end]).map_err(|_| "its header is not text")?;
    let body = &bytes[end + 1..];
    let is_of = |magic: &str| header.strip_prefix(magic).is_some_and(|rest| rest.starts_with(' '));
    let magic = [MAGIC, OLDER_MAGIC].into_iter().find(|magic| is_of(magic)).ok_or_else(|| {
        format!("its header is not \"{MAGIC}\": it was written by another version of this program")
    })?;
    if header != format!("{magic} {} {:08x}", body.len(), crc32fast::hash(body)) {
        return Err("its length or checksum does not fit its content".into());
    }
    let parsed = if magic == MAGIC {
        serde_json::from_slice(body).map(Parsed::Current)
    } else {
        serde_json::from_slice(body).map(Parsed::Older)
    };
    parsed.map_err(|e| format!("it cannot be read: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> HostState {
        HostState::new(HostName::new("h1").unwrap(), "machine".into(), "boot".into(), None)
    }

    fn load_from(content: &[u8]) -> (tempfile::TempDir, LoadedJournal) {
        let temporary = tempfile::tempdir().unwrap();
        let directory = Directory::open_or_create(temporary.path()).unwrap();
        directory.replace(FILE, content, 0o600).unwrap();
        let (host, former) = (HostName::new("h1").unwrap(), HostName::new("H1").unwrap());
        let found = load(&directory, &host, Some(&former), "machine").unwrap();
        (temporary, found)
    }

    fn with_header(magic: &str, body: &str) -> Vec<u8> {
        format!("{magic} {} {:08x}\n{body}", body.len(), crc32fast::hash(body.as_bytes())).into_bytes()
    }

    /// Returns a journal of the format before, with this in progress, and with these other values.
    fn older(host: &str, in_progress: &str, others: &str) -> Vec<u8> {
        let body = format!(
            r#"{{"host":"{host}","boot_id":"boot","machine_id":"machine","store":{{"lineage":"L","epoch":3,
            "revision":58,"raft_term":1,"target_revision":42,"report_revision":57,"went_back":null}},
            "installed":"1","dirty":{in_progress},"attempt":null,"acted_on":null,"log":[]{others}}}"#
        );
        with_header(OLDER_MAGIC, &body)
    }

    #[test]
    fn a_journal_reads_back() {
        let (_keep, found) = load_from(&render(&state()));
        assert!(matches!(found, LoadedJournal::State(read) if *read == state()));
    }

    #[test]
    fn a_journal_that_cannot_be_trusted_is_set_aside() {
        let good = render(&state());
        let mut flipped = good.clone();
        *flipped.last_mut().unwrap() ^= 1;
        let newer = [b"orchestrate-journal 3".as_slice(), &good[MAGIC.len()..]].concat();
        let other_host = HostState { host: HostName::new("h2").unwrap(), ..state() };
        let other_machine = HostState { machine_id: "clone".into(), ..state() };
        for (name, content, why) in [
            ("empty", Vec::new(), "no header"),
            ("torn", good[..good.len() - 5].to_vec(), "checksum"),
            ("flipped", flipped, "checksum"),
            ("newer", newer, "another version"),
            ("older, and flipped", with_header(OLDER_MAGIC, "{}"), "missing field"),
            ("older, of another host", older("h2", "null", ""), "journal of host h2"),
            ("other host", render(&other_host), "journal of host h2"),
            ("other machine", render(&other_machine), "another machine"),
        ] {
            let (keep, found) = load_from(&content);
            assert!(
                matches!(&found, LoadedJournal::SetAside { why: reason, .. } if reason.contains(why)),
                "{name}: {found:?}"
            );
            assert!(keep.path().join("journal.set-aside").exists(), "{name} is kept for a look");
        }
    }

    fn state_of_older(content: &[u8]) -> (HostState, bool) {
        match load_from(content).1 {
            LoadedJournal::SetAside { why, left: Left::Older(older) } => {
                assert!(why.contains("an older agent wrote it"), "{why}");
                let may_hold_claims = older.may_hold_claims();
                let host = HostName::new("h1").unwrap();
                (older.into_state(&host, "boot", EpochSeconds(9)), may_hold_claims)
            }
            found => panic!("{found:?}"),
        }
    }

    #[test]
    fn of_an_older_journal_only_what_keeps_the_host_from_a_wrong_act_is_taken_over() {
        let (settled, may_hold_claims) = state_of_older(&older("h1", "null", r#","running":null"#));
        assert_eq!(settled.versions.installed, Some(Version::new("1").unwrap()));
        assert_eq!((settled.listing(), may_hold_claims), (None, false), "it is validated first");
        let memory = settled.store.unwrap();
        assert_eq!((memory.epoch, memory.revision, memory.report_revision), (3, 58, Some(57)));
        // What was under way is not whole, and the host may still hold claims for it.
        let running = r#","running":{"run_id":"r1","phase":"apply","step":"packages"}"#;
        let (disturbed, may_hold_claims) = state_of_older(&older("h1", "\"2\"", running));
        assert_eq!((disturbed.versions.installed.clone(), may_hold_claims), (None, true));
        assert_eq!(disturbed.steps.running().map(|running| running.run_id.as_str()), Some("r1"));
        let (_, may_hold_claims) = state_of_older(&older("h1", "null", r#","hold":{"length":60}"#));
        assert!(may_hold_claims, "the claims of a host that was just proven");
    }

    #[test]
    fn an_older_journal_of_the_name_with_capitals_belongs_to_the_host() {
        let (state, _) = state_of_older(&older("H1", "null", ""));
        assert_eq!(state.host.as_str(), "h1");
        assert_eq!(state.store.and_then(|memory| memory.report_revision), None, "its report is deleted");
    }
}
