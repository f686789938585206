//! What the journal of the service manager has about this agent.

use archive::{Cut, Redactor};
use schema::time::EpochSeconds;
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

/// Time limit for reading the journal.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Longest part of the journal, in bytes.
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// A part of the journal.
pub(super) struct Journal(String);

impl Journal {
    /// Returns what the journal of this unit has since then; `None` if the agent is no unit.
    pub(super) async fn read(since: EpochSeconds) -> Option<Self> {
        let invocation = crate::config::variable("INVOCATION_ID")?;
        let command = [
            "journalctl".to_owned(),
            format!("_SYSTEMD_INVOCATION_ID={invocation}"),
            format!("--since=@{}", since.0),
            "--output=short-iso-precise".into(),
            "--no-pager".into(),
            "--quiet".into(),
        ];
        let outcome = commands::run(&command, &BTreeMap::new(), b"", TIMEOUT, MAX_BYTES).await;
        Some(Self(if outcome.succeeded() {
            outcome.output
        } else {
            format!("journalctl {}", outcome.describe())
        }))
    }

    /// Returns where it was cut.
    pub(super) fn cut(&self) -> Cut {
        Cut { begin: self.0.len() >= MAX_BYTES, end: false }
    }

    /// Returns its lines without secrets, also without those that go on in the next message.
    ///
    /// # Errors
    /// Returns the error of the [`Redactor`].
    pub(super) fn redacted(&self, redactor: &Redactor) -> io::Result<String> {
        let lines = || self.0.split_inclusive('\n').map(divided);
        let messages: String = lines().map(|(_, message)| message).collect();
        let mut shown = Vec::with_capacity(messages.len());
        redactor.copy(messages.as_bytes(), self.cut(), &mut shown)?;
        let shown = String::from_utf8_lossy(&shown);
        let mut shown = shown.split_inclusive('\n');
        let mut text = String::with_capacity(self.0.len());
        for (head, _) in lines() {
            text.push_str(head);
            // The last line may be empty, and of a secret that is very long lines may be missing.
            text.push_str(shown.next().unwrap_or_default());
        }
        Ok(text)
    }
}

/// Returns what journalctl(1) puts before a message, and the message: time, host, and name of the program, as in
/// `2014-11-18T12:00:00.000000+00:00 web1 install[7]: text`. The further lines of a message have blanks there.
fn divided(line: &str) -> (&str, &str) {
    let end = if line.starts_with(|c: char| c.is_ascii_digit()) {
        line.find(": ").map_or(0, |at| at + 2)
    } else {
        line.len() - line.trim_start_matches(' ').len()
    };
    line.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let redactor = Redactor::new([&b"canary-77-long"[..]]);
        let shown = Journal(text.to_owned()).redacted(&redactor).expect("redacted");
        assert_eq!(shown, expected, "{text}");
    }

    #[test]
    fn a_secret_is_removed_also_where_it_goes_on_in_the_next_message() {
        let at = "2014-11-18T12:00:00.000000+00:00 web1";
        let blank = " ".repeat(at.len());
        check("", "");
        check(&format!("{at} a[1]: x\n{at} b: "), &format!("{at} a[1]: x\n{at} b: "));
        check(&format!("{at} a[1]: x\n{at} b: y"), &format!("{at} a[1]: x\n{at} b: y"));
        check(&format!("{at} a[1]: is canary-77-long\n"), &format!("{at} a[1]: is ***\n"));
        check(
            &format!("{at} a[1]: is canary-\n{at} a[1]: 77-long, see\n"),
            &format!("{at} a[1]: is ***\n{at} a[1]: , see\n"),
        );
        check(
            &format!("{at} a[1]: is canary-\n{blank} 77-long\n{at} b: end\n"),
            &format!("{at} a[1]: is ***\n{blank} \n{at} b: end\n"),
        );
        check("journalctl exited with code 1", "journalctl exited with code 1");
    }
}
