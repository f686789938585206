//! The only place that writes: results to standard output, all at once at the end, and notes to
//! standard error.
//!
//! Text from the store was written by others, so control characters never reach a terminal.

use crate::exit::{Exit, Failure};
use anyhow::Context;
use archive::recording::{AboutPast, PastView};
use etcd_session::StoreError;
use fleet::text::{Text, clean, cut_to};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::tcgetwinsize;
use schemars::JsonSchema;
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};

/// Returns text quoted as one word for a shell.
pub(crate) fn shell_word(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The format of results. The values have no help of their own, which would make the help of every
/// verb longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum Format {
    // Lines and tables for people, and for the scripts of the original tool.
    #[default]
    Table,
    // One JSON value.
    Json,
}

/// The result of one command.
#[derive(Debug)]
pub(crate) struct Output {
    format: Format,
    text: Text,
    /// The moment that the result is about, if it is not the present.
    past: Option<PastView>,
}

impl Output {
    /// Returns an empty result.
    pub(crate) fn new(format: Format) -> Self {
        Self { format, text: Text::default(), past: None }
    }

    /// Returns an empty result in the same format.
    pub(crate) fn empty(&self) -> Self {
        Self { past: self.past.clone(), ..Self::new(self.format) }
    }

    /// Has the result say that it is about this moment of the past.
    pub(crate) fn set_past(&mut self, past: PastView) {
        self.past = Some(past);
    }

    /// Adds one line.
    pub(crate) fn line(&mut self, text: &str) {
        self.text.line(text);
    }

    /// Adds text unchanged; only for text that this program made itself.
    pub(crate) fn raw(&mut self, text: &str) {
        self.text.raw(text);
    }

    /// Adds a table without borders, whose last column is cut to the width of the terminal; adds nothing if there
    /// are no rows.
    pub(crate) fn table<const COLUMNS: usize>(
        &mut self,
        header: [&str; COLUMNS],
        rows: impl IntoIterator<Item = [String; COLUMNS]>,
    ) {
        self.text.table_within(width(), header, rows);
    }

    /// Adds a view in the requested format. Views remove control characters themselves.
    pub(crate) fn view<T: Serialize + Display>(&mut self, view: &T) {
        self.answer(view, |output| output.raw(&view.to_string()));
    }

    /// Adds the answer in the requested format: `value` as JSON, or what `text` adds.
    pub(crate) fn answer<T: Serialize>(&mut self, value: &T, text: impl FnOnce(&mut Self)) {
        match self.format {
            Format::Table => text(self),
            Format::Json => {
                let json = match &self.past {
                    Some(past) => serde_json::to_string_pretty(&AboutPast { past, answer: value }),
                    None => serde_json::to_string_pretty(value),
                };
                let json =
                    json.unwrap_or_else(|e| unreachable!("answers have text keys and finite numbers: {e}"));
                self.raw(&json);
                self.raw("\n");
            }
        }
    }

    /// Adds an answer whose names are sorted in JSON, also those of the views in it.
    pub(crate) fn sorted_answer<T: Serialize>(&mut self, value: &T, text: impl FnOnce(&mut Self)) {
        let sorted = serde_json::to_value(value);
        let sorted =
            sorted.unwrap_or_else(|e| unreachable!("answers have text keys and finite numbers: {e}"));
        self.answer(&sorted, text);
    }

    /// True if the format is JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    /// Returns what the result says, whatever the revision of the store at which it was read.
    fn content(&self) -> Vec<u8> {
        let value = if self.is_json() { serde_json::from_str(self.text.as_str()).ok() } else { None };
        let Some(serde_json::Value::Object(mut value)) = value else {
            return self.text.as_str().as_bytes().to_vec();
        };
        value.remove("revision");
        serde_json::Value::Object(value).to_string().into_bytes()
    }

    /// Returns the result so far.
    #[cfg(test)]
    pub(crate) fn text(&self) -> &str {
        self.text.as_str()
    }

    /// Writes the result. A closed pipe is no error, because the reader wants no more. Any other
    /// error means that the answer did not arrive.
    pub(crate) fn flush(self) -> Result<(), Failure> {
        let mut stdout = io::stdout().lock();
        match stdout.write_all(self.text.as_str().as_bytes()).and_then(|()| stdout.flush()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("standard output")?,
            _ => Ok(()),
        }
    }
}

/// Returns the number of columns of the terminal that shows the results; `None` if there is none.
pub(crate) fn width() -> Option<usize> {
    columns_of(&io::stdout())
}

fn columns_of(stream: &(impl IsTerminal + AsFd)) -> Option<usize> {
    if !stream.is_terminal() {
        return None;
    }
    let columns = tcgetwinsize(stream).ok()?.ws_col;
    // Some terminals do not tell.
    (columns > 0).then_some(columns.into())
}

/// A line that shows how far something is, in its place on a terminal; without a terminal there is none.
#[derive(Debug)]
pub(crate) struct ProgressLine;

impl ProgressLine {
    /// Columns at the end that stay free. A terminal that writes `^C` there would begin a new line.
    const FREE: usize = 3;

    /// Shows the line.
    pub(crate) fn show(&self, text: &str) {
        if let Some(width) = columns_of(&io::stderr()) {
            let _ =
                write!(io::stderr(), "\r\x1b[K{}", cut_to(&clean(text), width.saturating_sub(Self::FREE)));
        }
    }

    /// Removes the line.
    pub(crate) fn clear(&self) {
        if columns_of(&io::stderr()).is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// A result that is shown again and again: in its place on a terminal, else one after the other.
#[derive(Debug, Default)]
pub(crate) struct Screen {
    shown: Option<(Vec<String>, Vec<u8>)>,
}

impl Screen {
    /// Shows a result, unless it is the one that was shown last.
    pub(crate) fn show(&mut self, notes: &[String], result: &Output) -> Result<(), Failure> {
        const CLEAR: &[u8] = b"\x1b[H\x1b[2J";
        let next = (notes.to_vec(), result.content());
        if self.shown.as_ref() == Some(&next) {
            return Ok(());
        }
        let mut stdout = io::stdout().lock();
        let before: &[u8] = match (stdout.is_terminal(), self.shown.is_some()) {
            (true, _) => CLEAR,
            (false, true) if result.format == Format::Table => b"\n",
            (false, _) => b"",
        };
        let written = stdout.write_all(before).and_then(|()| stdout.flush());
        notes.iter().for_each(|text| note(text));
        let written = written
            .and_then(|()| stdout.write_all(result.text.as_str().as_bytes()))
            .and_then(|()| stdout.flush());
        self.shown = Some(next);
        match written {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("standard output")?,
            _ => Ok(()),
        }
    }

    /// True if nobody reads the standard output any more.
    pub(crate) fn is_closed() -> bool {
        let stdout = io::stdout();
        let mut ends = [PollFd::new(&stdout, PollFlags::empty())];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let closed = PollFlags::ERR | PollFlags::HUP;
        poll(&mut ends, Some(&at_once)).is_ok_and(|ready| ready > 0) && ends[0].revents().intersects(closed)
    }

    /// Shows that there is no result for the moment.
    pub(crate) fn interrupt(&mut self, why: &str) {
        note(why);
        self.shown = None;
    }
}

/// Notes that are held back until somebody shows them together with a result.
static HELD: Mutex<Option<Vec<String>>> = Mutex::new(None);

/// Holds notes back from now on.
pub(crate) fn hold_notes() -> HeldNotes {
    *HELD.lock().unwrap_or_else(PoisonError::into_inner) = Some(Vec::new());
    HeldNotes
}

/// Notes are held back while this exists.
pub(crate) struct HeldNotes;

impl HeldNotes {
    /// Returns the notes that were held back.
    pub(crate) fn take(self) -> Vec<String> {
        HELD.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default()
    }
}

/// Writes text to standard error. Errors are ignored, because nobody is left to read about them.
pub(crate) fn note(text: &str) {
    if let Some(held) = HELD.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
        return held.push(text.to_owned());
    }
    let text: Vec<_> = text.lines().map(clean).collect();
    let _ = writeln!(io::stderr(), "{}", text.join("\n"));
}

/// Writes a warning to standard error.
pub(crate) fn warn(text: &str) {
    note(&format!("warning: {text}"));
}

/// Writes a list of hosts to standard error. It names at most 20, so that the list fits on a
/// screen.
pub(crate) fn note_hosts<'a>(what: &str, hosts: impl ExactSizeIterator<Item = &'a str>) {
    const NAMED_MAX: usize = 20;
    let count = hosts.len();
    if count == 0 {
        return;
    }
    let named: Vec<&str> = hosts.take(NAMED_MAX).collect();
    let more = if count > NAMED_MAX { format!(" and {} more", count - NAMED_MAX) } else { String::new() };
    note(&format!("{what} ({count}): {}{more}", named.join(" ")));
}

/// Returns an error with all of its causes, in one line.
pub(crate) fn chain(error: &anyhow::Error) -> String {
    format!("error: {error:#}")
}

/// Prints why a command could not answer, and returns its exit code.
pub(crate) fn failure(failure: &Failure, format: Format) -> Exit {
    let Failure { exit, error, hint } = failure;
    note(&chain(error));
    hint.iter().for_each(|hint| note(&format!("hint: {hint}")));
    if format == Format::Json {
        let kind = error.downcast_ref::<StoreError>().map_or(exit.as_str(), StoreError::as_str);
        json_error(kind, &format!("{error:#}"), hint.as_deref(), *exit);
    }
    *exit
}

/// Prints the parser's message. Help and version are results; everything else is wrong usage.
pub(crate) fn usage(error: &clap::Error, wants_json: bool) -> Exit {
    let _ = error.print();
    if !error.use_stderr() {
        return Exit::Yes;
    }
    if wants_json {
        json_error(Exit::Usage.as_str(), &usage_message(&error.to_string()), None, Exit::Usage);
    }
    Exit::Usage
}

/// Returns what is wrong in one line. The parser names missing options below its first line, and tips and the usage after
/// an empty one.
fn usage_message(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    lines.join(" ").trim_start_matches("error: ").to_owned()
}

/// The answer of a verb that cannot answer.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ErrorAnswer<'a> {
    error: WhatIsWrong<'a>,
}

/// Why a verb cannot answer.
#[derive(Debug, Serialize, JsonSchema)]
struct WhatIsWrong<'a> {
    kind: &'a str,
    message: &'a str,
    hint: Option<&'a str>,
    exit_code: u8,
}

/// Writes an error as JSON in place of the result.
fn json_error(kind: &str, message: &str, hint: Option<&str>, exit: Exit) {
    let error = ErrorAnswer { error: WhatIsWrong { kind, message, hint, exit_code: exit.code() } };
    // The code says it as well if nobody reads this.
    let _ = writeln!(io::stdout(), "{:#}", serde_json::to_value(error).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_at_another_revision_says_the_same() {
        let content = |hosts: u32, revision: u32| {
            let mut output = Output::new(Format::Json);
            output.answer(&serde_json::json!({ "hosts": hosts, "revision": revision }), |_| {});
            output.content()
        };
        assert_eq!(content(1, 5), content(1, 6));
        assert_ne!(content(1, 5), content(2, 5));
    }

    #[test]
    fn wrong_usage_names_what_is_missing() {
        let check = |text: &str, expected: &str| assert_eq!(usage_message(text), expected);
        let missing =
            "error: the following required arguments were not provided:\n  --reason <REASON>\n\nUsage: x\n";
        check(missing, "the following required arguments were not provided: --reason <REASON>");
        check(
            "error: unexpected argument '--x' found\n\n  tip: a similar one exists\n",
            "unexpected argument '--x' found",
        );
    }

    #[test]
    fn json_is_one_value() {
        let mut output = Output::new(Format::Json);
        output.answer(&serde_json::json!({ "hosts": [] }), |o| o.line("text"));
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(output.text()).unwrap()["hosts"],
            serde_json::json!([])
        );
    }
}
