//! Text for people: lines, and tables without borders.
//!
//! Parts of it were written by others, so control characters never reach a terminal.

use comfy_table::Table;
use planning::calendar::rfc3339;
use schema::time::EpochSeconds;
use std::borrow::Cow;
use std::fmt;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

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

    /// Adds a table of which no line is wider than this, as far as the last column can be cut. `None` stands for
    /// any width.
    pub fn table_within<const COLUMNS: usize>(
        &mut self,
        width: Option<usize>,
        header: [&str; COLUMNS],
        rows: impl IntoIterator<Item = [String; COLUMNS]>,
    ) {
        let Some(width) = width else { return self.table(header, rows) };
        let rows: Vec<[String; COLUMNS]> = rows.into_iter().collect();
        let of_column = |column: usize| {
            let cells = rows.iter().map(|row| row[column].width());
            cells.max().unwrap_or_default().max(header[column].len())
        };
        let before: usize = (0..COLUMNS - 1).map(|column| of_column(column) + COLUMN_GAP).sum();
        let left = width.saturating_sub(before).max(header[COLUMNS - 1].len());
        let cut = |mut row: [String; COLUMNS]| {
            row[COLUMNS - 1] = cut_to(&row[COLUMNS - 1], left);
            row
        };
        self.table(header, rows.into_iter().map(cut));
    }

    /// Adds a table as [`Self::table_within`] does, with lines of text below some of its rows.
    pub fn noted_table_within<const COLUMNS: usize>(
        &mut self,
        width: Option<usize>,
        header: [&str; COLUMNS],
        rows: impl IntoIterator<Item = ([String; COLUMNS], Vec<String>)>,
    ) {
        let (rows, notes): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
        let mut table = Self::default();
        table.table_within(width, header, rows);
        // Each row is one line, because cells have no line breaks. The header comes first and has no notes.
        for (line, notes) in table.0.lines().zip([Vec::new()].into_iter().chain(notes)) {
            self.line(line);
            notes.iter().for_each(|note| self.line(note));
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

    /// Adds an empty line and a table for a terminal of this width, as [`Self::table_within`] does. On a terminal,
    /// a long table is cut, and a last line has the number of rows that are missing.
    pub fn section_within<const COLUMNS: usize>(
        &mut self,
        width: Option<usize>,
        header: [&str; COLUMNS],
        rows: impl ExactSizeIterator<Item = [String; COLUMNS]>,
    ) {
        self.noted_section_within(width, header, rows.map(|row| (row, Vec::new())));
    }

    /// Adds a section as [`Self::section_within`] does, with lines of text below some of its rows. On a terminal these
    /// get what the rows leave of a long table. Returns the number of lines that are left out.
    pub fn noted_section_within<const COLUMNS: usize>(
        &mut self,
        width: Option<usize>,
        header: [&str; COLUMNS],
        rows: impl ExactSizeIterator<Item = ([String; COLUMNS], Vec<String>)>,
    ) -> usize {
        let count = rows.len();
        if count == 0 {
            return 0;
        }
        let most = if width.is_some() && count > ROWS_ON_TERMINAL { ROWS_ON_TERMINAL - 1 } else { count };
        let mut room = width.map_or(usize::MAX, |_| ROWS_ON_TERMINAL.saturating_sub(count));
        let mut left_out = 0;
        let rows: Vec<_> = rows
            .map(|(row, mut notes)| {
                left_out += notes.len().saturating_sub(room);
                notes.truncate(room);
                room -= notes.len();
                (row, notes)
            })
            .collect();
        self.line("");
        self.noted_table_within(width, header, rows.into_iter().take(most));
        if count > most {
            self.line(&format!("and {} more", count - most));
        }
        left_out
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Largest number of lines of a table that shares a terminal with others.
const ROWS_ON_TERMINAL: usize = 10;

/// Number of blanks between two columns of a table.
const COLUMN_GAP: usize = 2;

/// Returns a text of at most this many columns of a terminal; the last character says that some are missing.
pub fn cut_to(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let fits = |taken: &mut usize, c: char| {
        *taken += c.width().unwrap_or_default();
        (*taken < columns).then_some(c)
    };
    text.chars().scan(0, fits).chain(['…']).collect()
}

/// Returns text in which the characters are replaced that steer a terminal, or that make a text look like
/// another one: control characters except tabs, and marks of direction and of no width.
pub fn clean(text: &str) -> Cow<'_, str> {
    let is_bad = |c: char| is_deceptive(c) || c.is_control() && c != '\t';
    if text.chars().any(is_bad) {
        text.chars().map(|c| if is_bad(c) { '\u{fffd}' } else { c }).collect::<String>().into()
    } else {
        text.into()
    }
}

/// True for the marks of Unicode that change the direction of a text, and for characters without width.
fn is_deceptive(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
    )
}

/// Returns a length of time in the largest unit of which it has two, as people say it: "90 s", "3 min", "2 h".
pub fn rough(seconds: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(24 * 60 * 60, "d"), (60 * 60, "h"), (60, "min")];
    let unit = UNITS.iter().find(|(length, _)| seconds >= 2 * length);
    unit.map_or(format!("{seconds} s"), |(length, name)| format!("{} {name}", seconds / length))
}

/// Returns a time with its distance from now: "2026-01-01T14:05:00Z, in 3 min".
pub fn with_distance(at: EpochSeconds, now: EpochSeconds) -> String {
    let text = rfc3339(at).unwrap_or_default();
    let distance = rough(at.0.abs_diff(now.0));
    if at > now { format!("{text}, in {distance}") } else { format!("{text}, {distance} ago") }
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
    fn text_of_others_cannot_look_like_another_one() {
        assert_eq!(clean("a\u{202e}b\u{200b}c\u{feff}d"), "a\u{fffd}b\u{fffd}c\u{fffd}d");
        assert_eq!(clean("Größe\täöü 東京"), "Größe\täöü 東京");
    }

    #[test]
    fn the_last_column_is_cut_to_the_width() {
        let check = |width: usize, expected: &str| {
            let mut text = Text::default();
            text.table_within(Some(width), ["HOST", "WHY"], [["web-1".into(), "it is full".into()]]);
            assert_eq!(text.as_str(), expected);
        };
        let mut wide = Text::default();
        wide.table_within(Some(11), ["HOST", "WHY"], [["a".into(), "東京東京".into()]]);
        assert_eq!(wide.as_str(), "HOST  WHY\na     東京…\n");
        check(17, "HOST   WHY\nweb-1  it is full\n");
        check(16, "HOST   WHY\nweb-1  it is fu…\n");
        check(1, "HOST   WHY\nweb-1  it…\n");
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
    fn lines_below_a_row_do_not_change_the_columns() {
        let mut text = Text::default();
        let note = "  a note that is longer than the table\n".to_owned();
        let rows =
            [(["a\nb".into(), "ok".into()], vec![note]), (["web-1".into(), "failed".into()], Vec::new())];
        text.noted_table_within(Some(20), ["HOST", "VERDICT"], rows);
        let expected = "HOST   VERDICT\na\u{fffd}b    ok\n  a note that is longer than the table\u{fffd}\nweb-1  failed\n";
        assert_eq!(text.as_str(), expected);
    }

    #[test]
    fn times_are_shown_with_their_distance_from_now() {
        let now = EpochSeconds(1_000_000);
        let check = |seconds: i64, expected: &str| {
            let text = with_distance(EpochSeconds(now.0 + seconds), now);
            assert_eq!(text.split_once(", ").map(|(_, distance)| distance), Some(expected));
        };
        check(1, "in 1 s");
        check(119, "in 119 s");
        check(120, "in 2 min");
        check(7199, "in 119 min");
        check(7200, "in 2 h");
        check(3 * 24 * 60 * 60, "in 3 d");
        check(0, "0 s ago");
        check(-180, "3 min ago");
    }
}
