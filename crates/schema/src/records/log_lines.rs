//! Lines of output in a record.

use serde::de::{DeserializeSeed, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// Lines of output, in one piece: a reader of a whole fleet holds those of every host. In JSON they are a list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogLines(String);

impl LogLines {
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.split_terminator('\n')
    }

    /// True if there is no line.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds a line. If the text has several, all of them are added.
    fn push(&mut self, line: &str) {
        self.0.push_str(line);
        self.0.push('\n');
    }
}

impl<T: AsRef<str>> FromIterator<T> for LogLines {
    fn from_iter<I: IntoIterator<Item = T>>(lines: I) -> Self {
        let mut all = Self::default();
        lines.into_iter().for_each(|line| all.push(line.as_ref()));
        all
    }
}

impl Serialize for LogLines {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for LogLines {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Lines)
    }
}

struct Lines;

impl<'de> Visitor<'de> for Lines {
    type Value = LogLines;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of lines")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<LogLines, A::Error> {
        let mut lines = LogLines::default();
        while list.next_element_seed(Line(&mut lines))?.is_some() {}
        Ok(lines)
    }
}

/// Adds one line without a text of its own.
struct Line<'a>(&'a mut LogLines);

impl<'de> DeserializeSeed<'de> for Line<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Line<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a line")
    }

    fn visit_str<E>(self, line: &str) -> Result<(), E> {
        self.0.push(line);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_a_list_in_json() {
        for lines in [&[][..], &["one"], &["", "two \"words\"", "", "ü"]] {
            let json = serde_json::to_string(&lines).unwrap();
            let read: LogLines = serde_json::from_str(&json).unwrap();
            assert!(read.iter().eq(lines.iter().copied()), "{read:?}");
            assert_eq!(serde_json::to_string(&read).unwrap(), json);
        }
        serde_json::from_str::<LogLines>("[1]").unwrap_err();
        serde_json::from_str::<LogLines>("\"one\"").unwrap_err();
    }
}
