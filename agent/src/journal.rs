//! The journal: the host's state on disk, written before the agent acts on it. It is one file that
//! is replaced as a whole; a header line holds its format, length and checksum.

use crate::failpoint;
use crate::files::Directory;
use planning::host::HostState;
use schema::names::HostName;
use std::io;

const FILE: &str = "journal";
const MAGIC: &str = "orchestrate-journal 1";
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
    SetAside {
        why: String,
        /// The state of the other host or machine that the state directory, and so its instance, came
        /// from.
        foreign: Option<Box<HostState>>,
    },
}

/// Reads the journal of a host. A journal that is incomplete or damaged, or that belongs to another
/// host, another machine or another format, is set aside. It is never repaired by guessing. `former` is the
/// host's name with capitals, under which an older agent wrote.
///
/// # Errors
/// Returns the system's error if the state directory cannot be used.
pub(crate) fn load(
    directory: &Directory,
    (host, former): (&HostName, Option<&HostName>),
    machine_id: &str,
) -> io::Result<LoadedJournal> {
    let mut foreign = None;
    let why = match directory.read(FILE, MAX_BYTES) {
        Ok(None) => return Ok(LoadedJournal::Nothing),
        Ok(Some(bytes)) => match parse(&bytes).map(|state| respelled(state, host, former)) {
            Ok(state) if state.host != *host || state.machine_id != machine_id => {
                let why = if state.host == *host {
                    "it was written on another machine (a cloned image?)".to_owned()
                } else {
                    format!("it is the journal of host {}, this is {host}", state.host)
                };
                foreign = Some(Box::new(state));
                why
            }
            Ok(state) => return Ok(LoadedJournal::State(Box::new(state))),
            Err(why) => why,
        },
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => error.to_string(),
        Err(error) => return Err(error),
    };
    directory.set_aside(FILE, "set-aside")?;
    Ok(LoadedJournal::SetAside { why, foreign })
}

/// Returns the state under the name in lower case. What it remembers of keys that are not moved is dropped.
fn respelled(state: HostState, host: &HostName, former: Option<&HostName>) -> HostState {
    if Some(&state.host) == former { state.respelled(host.clone()) } else { state }
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

fn parse(bytes: &[u8]) -> Result<HostState, String> {
    let end = bytes.iter().position(|b| *b == b'\n').ok_or("it has no header line")?;
    let header = std::str::from_utf8(&bytes[..end]).map_err(|_| "its header is not text")?;
    let body = &bytes[end + 1..];
    let expected = format!("{MAGIC} {} {:08x}", body.len(), crc32fast::hash(body));
    if !header.starts_with(MAGIC) {
        return Err(format!(
            "its header is not \"{MAGIC}\": it was written by another version of this program"
        ));
    }
    if header != expected {
        return Err("its length or checksum does not fit its content".into());
    }
    serde_json::from_slice(body).map_err(|e| format!("it cannot be read: {e}"))
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
        let found = load(&directory, (&HostName::new("h1").unwrap(), None), "machine").unwrap();
        (temporary, found)
    }

    #[test]
    fn a_journal_reads_back() {
        let (_keep, found) = load_from(&render(&state()));
        assert!(matches!(found, LoadedJournal::State(read) if *read == state()));
    }

    #[test]
    fn a_journal_of_the_name_with_capitals_belongs_to_the_host() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = Directory::open_or_create(temporary.path()).unwrap();
        let (host, former) = (HostName::new("h1").unwrap(), HostName::new("H1").unwrap());
        directory.replace(FILE, &render(&HostState { host: former.clone(), ..state() }), 0o600).unwrap();
        let found = load(&directory, (&host, Some(&former)), "machine").unwrap();
        assert!(matches!(found, LoadedJournal::State(read) if *read == state()));
    }

    #[test]
    fn a_journal_that_cannot_be_trusted_is_set_aside() {
        let good = render(&state());
        let mut flipped = good.clone();
        *flipped.last_mut().unwrap() ^= 1;
        let newer = [b"orchestrate-journal 2".as_slice(), &good[MAGIC.len()..]].concat();
        let other_host = HostState { host: HostName::new("h2").unwrap(), ..state() };
        let other_machine = HostState { machine_id: "clone".into(), ..state() };
        for (name, content, why) in [
            ("empty", Vec::new(), "no header"),
            ("torn", good[..good.len() - 5].to_vec(), "checksum"),
            ("flipped", flipped, "checksum"),
            ("newer", newer, "another version"),
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
}
