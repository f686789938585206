//! Text for people: lines, and tables without borders.
//!
//! Parts of it were written by others, so control characters never reach a terminal.

use comfy_table::Table;
use schema::time::EpochSeconds;
use std::borrow::Cow;
use std::fmt;

/// Text that grows line by line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Text(String);

impl Text {
    /// Adds one line.
    pub fn line(&mut self, text: &str) {
        self.0.push_str(&clean(text));
        self.0.push('\n');
    }

    /// Adds text unchanged; only for text that a program made itself.
    pub fn raw(&mut self, text: &str) {
        self.0.push_str(text);
    }

    /// Adds a table without borders; adds nothing if there are no rows.
    pub fn table<const COLUMNS: usize>(
        &mut self,
        header: [&str; COLUMNS],
        rows: impl IntoIterator<Item = [String; COLUMNS]>,
    ) {
        let mut table = Table::new();
        table.load_style(comfy_table::presets::NOTHING).set_header(header);
        table.add_rows(rows.into_iter().map(|row| row.map(|cell| clean(&cell).into_owned())));
        if table.is_empty() {
            return;
        }
        for line in table.lines() {
            self.0.push_str(line.trim());
            self.0.push('\n');
        }
    }

    /// Adds an empty line and a table; adds nothing if there are no rows.
    pub fn section<const COLUMNS: usize>(
        &mut self,
        header: [&str; COLUMNS],
        rows: impl IntoIterator<Item = [String; COLUMNS]>,
    ) {
        let mut rows = rows.into_iter().peekable();
        if rows.peek().is_some() {
            self.line("");
            self.table(header, rows);
        }
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns text with its control characters replaced, except tabs.
pub fn clean(text: &str) -> Cow<'_, str> {
    let is_bad = |c: char| c.is_control() && c != '\t';
    if text.chars().any(is_bad) {
        text.chars().map(|c| if is_bad(c) { '\u{fffd}' } else { c }).collect::<String>().into()
    } else {
        text.into()
    }
}

/// Returns a time as RFC 3339 text; `None` if it is outside the range of the calendar.
pub fn rfc3339(at: EpochSeconds) -> Option<String> {
    jiff::Timestamp::from_second(at.0).ok().map(|time| time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_cannot_steer_a_terminal() {
        let mut text = Text::default();
        text.line("a\x1b[31mb\nc");
        text.table(["HOST"], [["a\x1b\nb".into()]]);
        assert_eq!(text.as_str(), "a\u{fffd}[31mb\u{fffd}c\nHOST\na\u{fffd}\u{fffd}b\n");
    }

    #[test]
    fn a_table_has_no_borders_and_no_rows_no_table() {
        let mut text = Text::default();
        text.table(["HOST", "VERDICT"], [["web-1".into(), "ok".into()], ["a".into(), "failed".into()]]);
        assert_eq!(text.as_str(), "HOST   VERDICT\nweb-1  ok\na      failed\n");
        let mut text = Text::default();
        text.table(["HOST"], []);
        text.section(["HOST"], []);
        assert_eq!(text.as_str(), "");
        text.section(["HOST"], [["a".into()]]);
        assert_eq!(text.as_str(), "\nHOST\na\n");
    }

    #[test]
    fn times_are_rfc_3339() {
        assert_eq!(rfc3339(EpochSeconds(0)).as_deref(), Some("1970-01-01T00:00:00Z"));
        assert_eq!(rfc3339(EpochSeconds(i64::MAX)), None);
    }
}
