//! The table of keys as a part of the manual.

use crate::form::{Merge, Treatment};
use crate::table::OBJECTS;
use std::fmt::Write as _;

/// Returns the table of all keys in Markdown: for each key what is done with it, and if it is refused, why.
pub fn table_as_markdown() -> String {
    let mut text = String::new();
    for object in OBJECTS.iter().filter(|object| !object.keys.is_empty()) {
        let heading =
            if object.path.is_empty() { "The top level".to_owned() } else { format!("`{}`", object.path) };
        let _ = write!(text, "### {heading}\n\n| key | what is done | meaning, or reason |\n|---|---|---|\n");
        for key in object.keys {
            let (treatment, meaning) = match &key.treatment {
                Treatment::Accepted { what, merge, .. } => ("accepted", format!("{what}{}", rule(*merge))),
                Treatment::NoMeaning(why) => ("no effect", (*why).to_owned()),
                Treatment::Refused { why, right } => ("refused", format!("{why}; {right}")),
            };
            let _ = writeln!(text, "| `{}` | {treatment} | {meaning} |", key.name);
        }
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

fn rule(merge: Merge) -> &'static str {
    match merge {
        Merge::ByKind => "",
        Merge::Pairs => "; files are merged by name",
        Merge::Targets => "; files are merged by target",
    }
}
