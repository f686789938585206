//! How templates write text. Parts of it were written by hosts and programs.

use askama::filters::{Escaper, Html};
use fleet::text::clean;
use std::fmt;

/// Escapes HTML, and replaces the characters that steer terminals or change the direction of text. Every template uses
/// it (`askama.toml`), so no page can forget it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CleanHtml;

impl Escaper for CleanHtml {
    fn write_escaped_str<W: fmt::Write>(&self, to: W, text: &str) -> fmt::Result {
        Html.write_escaped_str(to, &clean(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_is_only_text() {
        let mut written = String::new();
        CleanHtml.write_escaped_str(&mut written, "<b a='\"'>&\u{202e}\x1b[2J").unwrap();
        for unsafe_part in ["<", ">", "'", "\"", "\u{202e}", "\x1b"] {
            assert!(!written.contains(unsafe_part), "{written}");
        }
    }
}
