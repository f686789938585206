//! Tests that the manual is complete: it documents all verbs, options, exit codes and environment
//! variables, and no verbs, exit codes or variables that do not exist.

use crate::exit::Exit;
use crate::help::document::{DOCUMENT, groups};
use crate::settings::VARIABLES;
use std::collections::BTreeSet;

/// Returns every verb, with its sub-verb if it has any, as in a command line.
fn verbs() -> BTreeSet<String> {
    let root = crate::cli::definition();
    let mut verbs = BTreeSet::new();
    for verb in root.get_subcommands() {
        if !verb.is_subcommand_required_set() {
            verbs.insert(verb.get_name().to_owned());
        }
        verbs.extend(verb.get_subcommands().map(|sub| format!("{} {}", verb.get_name(), sub.get_name())));
    }
    verbs
}

/// Returns the verbs in the headings, `### verb ARGUMENTS`.
fn documented_verbs() -> BTreeSet<String> {
    let sections = groups().into_iter().flat_map(|group| group.verbs);
    sections.map(|section| section.verb().to_owned()).collect()
}

/// Returns the first cells of the table rows under a heading, without back quotes.
fn first_cells(heading: &str) -> BTreeSet<String> {
    let section = DOCUMENT.split("\n## ").find(|section| section.starts_with(heading));
    let rows = section.unwrap_or_else(|| panic!("no section {heading}")).lines();
    let cells = rows.filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    cells.flat_map(|cell| cell.split(", ")).map(|name| name.trim_matches('`').to_owned()).collect()
}

#[test]
fn every_verb_is_documented_and_no_other() {
    assert_eq!(documented_verbs(), verbs());
}

#[test]
fn every_exit_code_is_documented_and_no_other() {
    let documented: BTreeSet<u8> =
        first_cells("Exit codes").iter().filter_map(|cell| cell.parse().ok()).collect();
    assert_eq!(documented, Exit::ALL.map(Exit::code).into_iter().collect());
}

#[test]
fn every_variable_is_documented_and_no_other() {
    let is_variable =
        |name: &String| name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
    let documented: BTreeSet<String> = first_cells("Environment").into_iter().filter(is_variable).collect();
    assert_eq!(documented, VARIABLES.map(str::to_owned).into_iter().collect());
}

#[test]
fn every_option_is_documented() {
    let words: BTreeSet<&str> =
        DOCUMENT.split(|c: char| !(c.is_ascii_alphanumeric() || "-_".contains(c))).collect();
    let root = crate::cli::definition();
    let mut commands = vec![&root];
    while let Some(command) = commands.pop() {
        commands.extend(command.get_subcommands());
        for option in command.get_arguments().filter_map(|argument| argument.get_long()) {
            assert!(words.contains(format!("--{option}").as_str()), "{}: --{option}", command.get_name());
        }
    }
}
