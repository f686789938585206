//! Tests that the manual is complete: it documents all verbs, options, exit codes and environment
//! variables, and no verbs, exit codes or variables that do not exist.

use crate::commands::verb::{Group, Spec};
use crate::exit::Exit;
use crate::help::document::{DOCUMENT, Section, exit_codes, groups, section_of};
use crate::settings::VARIABLES;
use std::collections::BTreeSet;

/// Returns the first cells of the table rows under a heading, without back quotes.
fn first_cells(heading: &str) -> BTreeSet<String> {
    let section = DOCUMENT.split("\n## ").find(|section| section.starts_with(heading));
    let rows = section.unwrap_or_else(|| panic!("no section {heading}")).lines();
    let cells = rows.filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    cells.flat_map(|cell| cell.split(", ")).map(|name| name.trim_matches('`').to_owned()).collect()
}

#[test]
fn every_verb_is_documented_and_no_other() {
    let documented = groups().into_iter().map(|group| (group.heading, group.verbs));
    let documented: Vec<(&str, BTreeSet<&str>)> =
        documented.map(|(heading, verbs)| (heading, verbs.iter().map(Section::verb).collect())).collect();
    let of_group =
        |group| crate::verbs().into_iter().filter(move |spec| spec.group == group).map(|spec| spec.name);
    let expected = Group::ALL.map(|group| (group.heading(), of_group(group).collect()));
    assert_eq!(documented, expected);
}

#[test]
fn every_exit_code_of_a_verb_is_in_its_manual_and_no_other() {
    for Spec { name, exits, .. } in crate::verbs() {
        let section = section_of(name).unwrap_or_else(|| panic!("{name}"));
        let listed = exit_codes(&section, exits).into_iter().filter_map(|(code, _)| code.parse::<u8>().ok());
        let listed: BTreeSet<u8> = listed.filter(|code| ![0, 2, 64].contains(code)).collect();
        assert_eq!(listed, exits.iter().map(|exit| exit.code()).collect(), "{name}");
    }
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
