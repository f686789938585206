//! The log of the agent in systemd's journal. Each message is the whole line that a terminal would show,
//! because `journalctl` shows messages; the fields are there besides, so that `journalctl F_VERDICT=failed`
//! finds them.

use std::fmt::{Debug, Write as _};
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{DefaultFields, Writer};
use tracing_subscriber::layer::Context;

/// The socket on which journald takes entries, in the protocol of
/// <https://systemd.io/JOURNAL_NATIVE_PROTOCOL/>.
const SOCKET: &str = "/run/systemd/journal/socket";

/// The longest message of an entry that does not fit into one datagram.
const SHORT_MESSAGE_BYTES: usize = 16 * 1024;

/// Name under which `journalctl -t` finds the entries.
const IDENTIFIER: &str = "orchestrate-agent";

/// Sends every event to journald.
#[derive(Debug)]
pub(crate) struct Journald {
    sender: UnixDatagram,
    path: PathBuf,
}

impl Journald {
    /// # Errors
    /// Returns an error if there is no journald.
    pub(crate) fn new() -> io::Result<Self> {
        Self::at(Path::new(SOCKET))
    }

    fn at(path: &Path) -> io::Result<Self> {
        let journald = Self { sender: UnixDatagram::unbound()?, path: path.to_owned() };
        // journald ignores an empty datagram.
        journald.send(&[])?;
        Ok(journald)
    }

    /// Sends to the path each time, because journald may have been restarted.
    fn send(&self, entry: &[u8]) -> io::Result<usize> {
        self.sender.send_to(entry, &self.path)
    }
}

impl<S: Subscriber> Layer<S> for Journald {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut message = String::new();
        // Writing into a string does not fail.
        let _ = DefaultFields::new().format_fields(Writer::new(&mut message), event);
        let metadata = event.metadata();
        let mut entry = Entry::new(priority(*metadata.level()), metadata.target(), &message);
        event.record(&mut entry);
        let sent = self.send(&entry.0);
        if sent.is_err_and(|error| error.raw_os_error() == Some(rustix::io::Errno::MSGSIZE.raw_os_error())) {
            let end = (0..=SHORT_MESSAGE_BYTES).rev().find(|end| message.is_char_boundary(*end));
            let short = &message[..end.unwrap_or_default().min(message.len())];
            // A log that cannot be written is no reason to stop, and there is no other place to say it.
            let _ = self.send(&Entry::new(priority(*metadata.level()), metadata.target(), short).0);
        }
    }
}

/// The number that syslog(3) has for a level. `debug!` and `trace!` are both debugging there; the numbers
/// keep them apart.
fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "3",
        Level::WARN => "4",
        Level::INFO => "5",
        Level::DEBUG => "6",
        Level::TRACE => "7",
    }
}

/// One entry in the form in which it is sent.
struct Entry(Vec<u8>);

impl Entry {
    fn new(priority: &str, target: &str, message: &str) -> Self {
        let mut entry = Self(Vec::new());
        entry.put("PRIORITY", priority);
        entry.put("SYSLOG_IDENTIFIER", IDENTIFIER);
        entry.put("TARGET", target);
        entry.put("MESSAGE", message);
        entry
    }

    /// Adds a field. The form with a length allows every value, also one of several lines.
    fn put(&mut self, name: &str, value: &str) {
        self.0.extend_from_slice(name.as_bytes());
        self.0.push(b'\n');
        self.0.extend_from_slice(&(value.len() as u64).to_le_bytes());
        self.0.extend_from_slice(value.as_bytes());
        self.0.push(b'\n');
    }
}

impl Visit for Entry {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            return;
        }
        let name = field
            .name()
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' });
        self.put(&format!("F_{}", name.collect::<String>()), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let mut text = String::new();
        // A value that cannot be written gives an empty field.
        let _ = write!(text, "{value:?}");
        self.record_str(field, &text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::layer::SubscriberExt;

    /// Returns the entries that are sent while `log` runs, each with its fields.
    fn entries(log: impl FnOnce()) -> Vec<Vec<(String, String)>> {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("socket");
        let receiver = UnixDatagram::bind(&path).expect("a socket");
        receiver.set_nonblocking(true).expect("set");
        let journald = Journald::at(&path).expect("it listens");
        tracing::subscriber::with_default(tracing_subscriber::registry().with(journald), log);
        let mut buffer = vec![0; 1 << 20];
        let mut datagrams = Vec::new();
        while let Ok(length) = receiver.recv(&mut buffer) {
            datagrams.push(fields(&buffer[..length]));
        }
        assert!(datagrams.remove(0).is_empty(), "the first one asks whether somebody listens");
        datagrams
    }

    fn fields(mut bytes: &[u8]) -> Vec<(String, String)> {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let end = bytes.iter().position(|byte| *byte == b'\n').expect("the end of a name");
            let (name, rest) = bytes.split_at(end);
            let (length, rest) = rest[1..].split_at(8);
            let length = u64::from_le_bytes(length.try_into().expect("eight bytes")) as usize;
            let (value, rest) = rest.split_at(length);
            assert_eq!(rest[0], b'\n');
            bytes = &rest[1..];
            fields.push((String::from_utf8_lossy(name).into(), String::from_utf8_lossy(value).into()));
        }
        fields
    }

    #[test]
    fn a_message_is_the_whole_line_and_the_fields_are_there_besides() {
        let entries = entries(|| {
            tracing::warn!(verdict = "failed", detail = %"two\nlines", step.code = 3, "the verdict of this host");
        });
        let expected = [
            ("PRIORITY", "4"),
            ("SYSLOG_IDENTIFIER", "orchestrate-agent"),
            ("TARGET", "agent::journald::tests"),
            ("MESSAGE", "the verdict of this host verdict=\"failed\" detail=two\nlines step.code=3"),
            ("F_VERDICT", "failed"),
            ("F_DETAIL", "two\nlines"),
            ("F_STEP_CODE", "3"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(entries, [expected.to_vec()]);
    }

    #[test]
    fn a_message_that_is_too_long_is_cut() {
        let long = "ä".repeat(2 << 20);
        let entries = entries(|| tracing::info!(output = long, "a step"));
        let [entry] = entries.as_slice() else { panic!("{} entries", entries.len()) };
        let (_, message) = entry.iter().find(|(name, _)| name == "MESSAGE").expect("a message");
        assert!(message.starts_with("a step output=\"ää") && message.len() <= SHORT_MESSAGE_BYTES);
    }

    #[test]
    fn without_journald_there_is_an_error() {
        assert!(Journald::at(Path::new("/nonexistent/socket")).is_err());
    }
}
