//! Reads `docs/command-line.md`, from which help and manual pages take the groups of verbs, their
//! descriptions and their exit codes. So these stand in one place.

use crate::exit::Exit;

pub(crate) const DOCUMENT: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/command-line.md"));

/// A group of verbs: a section of the document that describes verbs.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) heading: &'static str,
    pub(crate) verbs: Vec<Section>,
}

/// The description of one verb.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Section {
    /// The verb with its arguments, as in a command line.
    pub(crate) usage: &'static str,
    pub(crate) text: &'static str,
}

impl Section {
    /// Returns the verb, with its sub-verb if it has one.
    pub(crate) fn verb(&self) -> &'static str {
        let is_word = |word: &&str| {
            word.bytes().all(|b| b.is_ascii_lowercase() || b"_-".contains(&b)) && !word.starts_with('-')
        };
        let length: usize = self.usage.split(' ').take_while(is_word).map(|word| word.len() + 1).sum();
        self.usage.get(..length.saturating_sub(1)).unwrap_or_default()
    }
}

/// Returns the groups of verbs, in the order of the document.
pub(crate) fn groups() -> Vec<Group> {
    let mut groups = Vec::new();
    for section in DOCUMENT.split("\n## ").skip(1) {
        let heading = section.lines().next().unwrap_or_default();
        let verbs: Vec<Section> = section.split("\n### `").skip(1).filter_map(verb_section).collect();
        if !verbs.is_empty() {
            groups.push(Group { heading, verbs });
        }
    }
    groups
}

fn verb_section(text: &'static str) -> Option<Section> {
    let (usage, text) = text.split_once("`\n")?;
    Some(Section { usage, text: text.trim() })
}

/// Returns the description of a verb.
pub(crate) fn section_of(verb: &str) -> Option<Section> {
    groups().into_iter().flat_map(|group| group.verbs).find(|section| section.verb() == verb)
}

/// Returns the text of a section that is about all verbs.
pub(crate) fn general(heading: &str) -> &'static str {
    let section =
        DOCUMENT.split("\n## ").find_map(|section| section.strip_prefix(heading)?.strip_prefix('\n'));
    section.map(|text| text.split("\n### `").next().unwrap_or_default().trim()).unwrap_or_default()
}

/// Returns what stands before the first section.
pub(crate) fn introduction() -> &'static str {
    let text = DOCUMENT.split("\n## ").next().unwrap_or_default();
    text.split_once('\n').map(|(_, text)| text.trim()).unwrap_or_default()
}

/// Returns the exit codes of a verb with their meanings: those of its section, and the general ones of
/// which the section says no more.
pub(crate) fn exit_codes(section: &Section, exits: &[Exit]) -> Vec<(String, String)> {
    let mut codes = in_tables(section.text);
    let has_table = !codes.is_empty();
    for block in blocks(section.text) {
        codes.extend(in_sentences(&block));
    }
    let mut codes = merged(codes);
    let is_own = |code: &(String, String)| code.0.parse::<u8>().is_err();
    let of_command = has_table && codes.iter().any(is_own);
    for (code, text) in &mut codes {
        // A section names only what the general meaning does not cover.
        match code.as_str() {
            _ if of_command => {}
            "2" if !text.contains("store") => text.push_str("; or the store cannot be read"),
            "64" => text.push_str("; or wrong usage"),
            _ => {}
        }
    }
    let of_verb: Vec<String> = exits.iter().map(|exit| exit.code().to_string()).collect();
    for (code, text) in in_tables(general("Exit codes")) {
        // Yes, cannot tell and wrong usage can happen to every verb.
        let can_happen = ["0", "2", "64"].contains(&code.as_str()) || of_verb.contains(&code);
        let is_possible = can_happen && (!of_command || code == "64");
        if is_possible && !codes.iter().any(|(known, _)| *known == code) {
            // The first sentence is what counts for every verb.
            let first = text.split(". ").next().unwrap_or_default();
            codes.push((code, first.split(": ").next().unwrap_or_default().to_owned()));
        }
    }
    codes.sort_by_key(|(code, _)| code.parse::<u8>().map_or((1, 0), |code| (0, code)));
    codes
}

/// Returns the codes of tables that have a column for them, or whose first column is "code".
fn in_tables(text: &str) -> Vec<(String, String)> {
    let mut codes = Vec::new();
    let mut column = None;
    for line in text.lines() {
        let Some(row) = line.strip_prefix('|') else {
            column = None;
            continue;
        };
        let cells: Vec<&str> = row.trim_end_matches('|').split(" | ").map(str::trim).collect();
        let Some(column) = column else {
            column = Some(cells.iter().position(|cell| ["exit", "code"].contains(cell)));
            continue;
        };
        let Some(cell) = column.and_then(|column: usize| cells.get(column).copied()) else { continue };
        if cell.contains("---") {
            continue;
        }
        let others = cells.iter().enumerate().filter(|(index, _)| Some(*index) != column);
        let others: Vec<String> =
            others.map(|(_, cell)| plain(cell).trim_end_matches("; see below").to_owned()).collect();
        let several = cell.split(", ").all(|code| code.parse::<u8>().is_ok());
        let each: Vec<&str> = if several { cell.split(", ").collect() } else { vec![cell] };
        codes.extend(each.into_iter().map(|code| (code.to_owned(), others.join(": "))));
    }
    merged(codes)
}

/// Returns each code once, with all its meanings.
fn merged(codes: Vec<(String, String)>) -> Vec<(String, String)> {
    let mut merged: Vec<(String, String)> = Vec::new();
    for (code, text) in codes {
        match merged.iter_mut().find(|(known, _)| *known == code) {
            Some((_, before)) => before.push_str(&format!("; or {text}")),
            None => merged.push((code, text)),
        }
    }
    merged
}

/// Returns the codes of sentences: `Exit code 1: the host is not known.`
fn in_sentences(block: &str) -> Vec<(String, String)> {
    let pieces = block.split("Exit code ").skip(1).filter_map(|piece| piece.split_once(": "));
    let codes = pieces.filter(|(code, _)| code.parse::<u8>().is_ok());
    codes.map(|(code, text)| (code.to_owned(), plain(text.trim().trim_end_matches('.')))).collect()
}

/// Returns the paragraphs and the items of lists, each in one line, without tables and samples.
fn blocks(text: &str) -> Vec<String> {
    let mut blocks = vec![String::new()];
    let mut in_sample = false;
    for line in text.lines() {
        let is_fence = line.trim_start().starts_with("```");
        in_sample ^= is_fence;
        let item = line.trim_start().strip_prefix("- ");
        if in_sample || is_fence || line.starts_with('|') || line.is_empty() || item.is_some() {
            blocks.push(String::new());
        }
        if let (false, false, false, Some(block)) =
            (in_sample, is_fence, line.starts_with('|'), blocks.last_mut())
        {
            block.push_str(item.unwrap_or_else(|| line.trim_start()));
            block.push(' ');
        }
    }
    blocks.retain(|block| !block.trim().is_empty());
    blocks
}

/// Returns a text without the marks of links and of bold words.
pub(crate) fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once('[') {
        plain.push_str(before);
        let parts = link.split_once("](").and_then(|(name, rest)| Some((name, rest.split_once(')')?)));
        if let Some((name, (_, after))) = parts.filter(|(name, _)| !name.contains(['[', ']'])) {
            plain.push_str(name);
            rest = after;
        } else {
            plain.push('[');
            rest = link;
        }
    }
    plain.push_str(rest);
    plain.replace("**", "").replace("\\|", "|")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::verbs::specs;
    use crate::help::spec_of;
    use std::collections::BTreeSet;

    /// Returns all codes that a text mentions.
    fn mentioned(text: &str) -> BTreeSet<String> {
        let joined = text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
        let ways = [
            "exit code ",
            "exits with ",
            "exit with ",
            "code is also ",
            "exit code is ",
            "exit code is also ",
        ];
        let mut found = BTreeSet::new();
        for way in ways {
            for rest in joined.split(way).skip(1) {
                let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
                if !digits.is_empty() {
                    found.insert(digits);
                }
            }
        }
        found
    }

    fn codes(verb: &str) -> Vec<(String, String)> {
        let section = section_of(verb).unwrap_or_else(|| panic!("{verb}"));
        exit_codes(&section, spec_of(verb, &specs()).unwrap_or_else(|| panic!("{verb}")).exits)
    }

    fn numbers(verb: &str) -> Vec<String> {
        codes(verb).into_iter().map(|(code, _)| code).collect()
    }

    #[test]
    fn exit_codes_of_a_verb_stand_in_sentences_or_in_a_table() {
        assert_eq!(numbers("services show"), ["0", "1", "2", "64"]);
        assert_eq!(codes("services show")[1].1, "none is, or no host has the service");
        assert_eq!(
            codes("rollout status")[2].1,
            "the record of the rollout is not written yet; or the store cannot be read"
        );
        assert_eq!(codes("why")[2].1, "cannot tell");
        assert!(codes("verify_hosts")[1].1.contains("; or a host is missing"), "{:?}", codes("verify_hosts"));
        assert_eq!(numbers("trigger_update"), ["0", "2", "3", "64"]);
        assert_eq!(numbers("pending_update"), ["0", "1", "2", "3", "64"]);
        assert_eq!(numbers("verify_hosts"), ["0", "1", "2", "64", "130"]);
        assert_eq!(numbers("check_puppet"), ["0", "2", "9", "64"]);
        assert!(codes("status")[1].1.starts_with("updating: "), "{:?}", codes("status"));
        assert_eq!(
            numbers("with-claim"),
            ["2", "3", "64", "124", "126", "127", "code of the command", "128 + N"]
        );
    }

    #[test]
    fn every_exit_code_that_a_section_mentions_is_in_the_list_of_its_verb() {
        let mut count = 0;
        for section in groups().iter().flat_map(|group| &group.verbs) {
            let codes = codes(section.verb());
            let listed: BTreeSet<String> = codes.iter().map(|(code, _)| code.clone()).collect();
            let mentioned = mentioned(section.text);
            count += mentioned.len();
            assert!(mentioned.is_subset(&listed), "{}: {mentioned:?} {listed:?}", section.usage);
            assert!(codes.iter().all(|(_, text)| !text.is_empty()), "{}", section.usage);
        }
        assert!(count > 40, "{count}");
    }

    #[test]
    fn links_lose_their_marks() {
        assert_eq!(plain("see [a.md](a.md#b), [x] and **y**"), "see a.md, [x] and y");
    }
}
