//! The journal: what the host knows of its own past, on disk before anything is done about it. One file,
//! replaced as a whole; a header line carries its format, length and checksum.

use crate::failpoint;
use crate::files::Directory;
use planning::host::HostState;
use schema::names::HostName;
use std::io;

const FILE: &str = "journal";
const MAGIC: &str = "orchestrate-journal 1";
/// Largest journal that is read.
const MAX_BYTES: u64 = 1024 * 1024;

/// What was found on disk.
#[derive(Debug)]
pub(crate) enum LoadedJournal {
    /// A journal of this host.
    State(Box<HostState>),
    /// Nothing.
    Nothing,
    /// Something that cannot be used; it was set aside.
    SetAside {
        /// Why.
        why: String,
        /// The state directory came from another machine or host, and so did its instance.
        foreign: bool,
    },
}

/// Reads the journal of a host. One that is torn, of another host, another machine or another format is
/// set aside, never repaired by guessing.
///
/// # Errors
/// The state directory cannot be read.
pub(crate) fn load(directory: &Directory, host: &HostName, machine_id: &str) -> io::Result<LoadedJournal> {
    let mut foreign = false;
    let why = match directory.read(FILE, MAX_BYTES) {
        Ok(None) => return Ok(LoadedJournal::Nothing),
        Ok(Some(bytes)) => match parse(&bytes) {
            Ok(state) if state.host != *host || state.machine_id != machine_id => {
                foreign = true;
                if state.host == *host {
                    "it was written on another machine (a cloned image?)".to_owned()
                } else {
                    format!("it is the journal of host {}, this is {host}", state.host)
                }
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

/// Writes the journal.
///
/// # Errors
/// As the system says; the old journal stands then.
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
        let found = load(&directory, &HostName::new("h1").unwrap(), "machine").unwrap();
        (temporary, found)
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
