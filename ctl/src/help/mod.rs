//! The text of `--help`: the verbs in groups, and for each verb its own options, examples and exit
//! codes. The options that name the store are shown by `orchestrate help store`.

pub(crate) mod document;

use crate::commands::verb::{Group, Spec};
use crate::options::GlobalOptions;
use clap::{Args, Command};
use std::fmt::Write as _;

/// Columns of the texts that are wrapped here.
const WIDTH: usize = 80;

/// Returns a definition with the texts of help.
pub(crate) fn with_help(definition: Command, verbs: &[&Spec]) -> Command {
    let list = verbs_in_groups(&definition, verbs);
    let header = *definition.get_styles().get_header();
    let mut definition = definition
        .help_template(format!(
            "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{list}\n\
             {header}Options:{header:#}\n{{options}}{{after-help}}"
        ))
        .after_help(
            "`orchestrate help VERB` shows the options, examples and exit codes of a verb.\n\
             `orchestrate help store` shows the options for the store, and their variables.\n\
             `man orchestrate` and `man orchestrate-VERB` are the manual pages.",
        );
    let names: Vec<String> = definition.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    for name in names {
        definition = definition.mut_subcommand(&name, |verb| of_verb(verb, &name, verbs));
    }
    definition
}

/// Returns the list of verbs in groups. Verbs that begin with the same word have one line.
fn verbs_in_groups(definition: &Command, verbs: &[&Spec]) -> String {
    let header = definition.get_styles().get_header();
    let literal = definition.get_styles().get_literal();
    let mut text = String::new();
    for group in Group::ALL {
        let _ = write!(text, "\n{header}{}:{header:#}\n", group.heading());
        let mut listed = Vec::new();
        for verb in verbs.iter().filter(|verb| verb.group == group) {
            let name = verb.name.split(' ').next().unwrap_or_default();
            if listed.contains(&name) {
                continue;
            }
            listed.push(name);
            let about = definition.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let gap = " ".repeat(20_usize.saturating_sub(name.len()));
            let _ = writeln!(text, "  {literal}{name}{literal:#} {gap} {about}");
        }
    }
    text
}

/// Returns what is known of a verb; `None` if there are only verbs that begin with this word.
pub(crate) fn spec_of<'a>(name: &str, verbs: &[&'a Spec]) -> Option<&'a Spec> {
    verbs.iter().copied().find(|spec| spec.name == name)
}

/// Adds examples, exit codes and sub-verbs' texts to the definition of a verb.
fn of_verb(mut verb: Command, path: &str, verbs: &[&Spec]) -> Command {
    let header = *verb.get_styles().get_header();
    let mut text = String::new();
    if path == "store" {
        let _ = write!(text, "{header}Options for the store:{header:#}\n{}\n\n", store_options());
    }
    let spec = spec_of(path, verbs);
    if let Some(spec) = spec.filter(|spec| !spec.examples.is_empty()) {
        let _ = writeln!(text, "{header}Examples:{header:#}");
        for (line, what) in spec.examples {
            let _ = writeln!(text, "  {line}\n      {what}");
        }
        text.push('\n');
    }
    if let (Some(spec), Some(section)) = (spec, document::section_of(path)) {
        let _ = writeln!(text, "{header}Exit codes:{header:#}");
        for (code, meaning) in document::exit_codes(&section, spec.exits) {
            text.push_str(&wrapped(&code, &meaning));
        }
        text.push('\n');
    }
    text.push_str(match path {
        "store" => "These options and variables apply to every verb.",
        _ => "Options for the store: `orchestrate help store`",
    });
    let names: Vec<String> = verb.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    for name in names {
        let path = format!("{path} {name}");
        verb = verb.mut_subcommand(&name, |sub| of_verb(sub, &path, verbs));
    }
    verb.subcommand_value_name("VERB").subcommand_help_heading("Verbs").after_help(text)
}

/// Returns the options that are hidden from the help of every verb, visible.
pub(crate) fn store_arguments() -> Vec<clap::Arg> {
    let options = GlobalOptions::augment_args(Command::new("orchestrate"));
    options
        .get_arguments()
        .filter(|option| option.is_hide_set())
        .map(|option| option.clone().hide(false))
        .collect()
}

/// Returns the help of the options for the store.
fn store_options() -> String {
    let options = Command::new("orchestrate").disable_help_flag(true).args(store_arguments());
    let mut options = options.help_template("{options}");
    format!("{}", options.render_help().ansi()).trim_end().to_owned()
}

/// Returns an exit code and its meaning in lines.
fn wrapped(code: &str, meaning: &str) -> String {
    const INDENT: usize = 7;
    let mut line = format!("  {code:<4} ");
    if line.len() > INDENT {
        line.push_str("  ");
    }
    let mut lines = String::new();
    for word in meaning.split_whitespace() {
        if line.chars().count() + word.chars().count() > WIDTH {
            lines.push_str(line.trim_end());
            lines.push('\n');
            line = " ".repeat(INDENT);
        }
        line.push_str(word);
        line.push(' ');
    }
    lines.push_str(line.trim_end());
    lines.push('\n');
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn help(line: &str) -> String {
        let arguments = line.split(' ').map(std::ffi::OsString::from).collect();
        crate::cli::parse(arguments).unwrap_err().to_string()
    }

    /// Returns every definition of a verb or sub-verb, with its name.
    fn verbs() -> Vec<(String, Command)> {
        let mut found = Vec::new();
        for verb in crate::cli::definition().get_subcommands() {
            found.push((verb.get_name().to_owned(), verb.clone()));
            let subs = verb.get_subcommands();
            found.extend(subs.map(|sub| (format!("{} {}", verb.get_name(), sub.get_name()), sub.clone())));
        }
        found
    }

    #[test]
    fn verbs_stand_in_the_groups_of_the_document_one_line_each() {
        let text = help("orchestrate --help");
        assert_eq!(text, help("orchestrate help"));
        let headings: Vec<&str> = text.lines().filter_map(|line| line.strip_suffix(':')).collect();
        let expected = [
            "Making the fleet run a version",
            "How the fleet stands",
            "The hosts",
            "Services",
            "Values",
            "This host",
            "The store",
            "The recording of the store",
            "Setting up",
            "Verbs of the original tool",
            "Options",
        ];
        assert_eq!(headings, expected);
        for verb in crate::cli::definition().get_subcommands() {
            let name = format!("  {} ", verb.get_name());
            let lines: Vec<&str> = text.lines().filter(|line| line.starts_with(&name)).collect();
            assert_eq!(lines.len(), 1, "{name}: {lines:?}");
            assert!(lines[0].trim_start().contains("  "), "no description: {lines:?}");
        }
        let long: Vec<&str> = text.lines().filter(|line| line.chars().count() > WIDTH).collect();
        assert!(long.is_empty(), "{long:#?}");
        let (own, old) = text.split_once("Verbs of the original tool:").unwrap();
        assert!(own.contains("\n  status ") && !own.contains("\n  check_puppet "), "{own}");
        assert!(old.contains("\n  check_puppet ") && !old.contains("\n  status "), "{old}");
    }

    #[test]
    fn a_verb_shows_its_own_options_examples_and_exit_codes_and_not_those_of_the_store() {
        for (verb, definition) in verbs() {
            for line in [format!("orchestrate {verb} --help"), format!("orchestrate help {verb}")] {
                let text = help(&line);
                assert!(text.contains("orchestrate help store") || verb == "store", "{text}");
                assert_eq!(text.contains("--cacert <FILE>"), verb == "store", "{text}");
                assert_eq!(text.contains("Exit codes:"), document::section_of(&verb).is_some(), "{text}");
                let own =
                    definition.get_arguments().filter(|a| !a.is_hide_set()).filter_map(|a| a.get_long());
                let own: Vec<&str> = own.collect();
                assert!(own.iter().all(|option| text.contains(&format!("--{option}"))), "{text}");
            }
        }
        let text = help("orchestrate help wait_for");
        assert!(text.contains("[possible values: addressable, functional]"), "{text}");
        assert!(text.contains("  1    the service did not have enough instances"), "{text}");
        assert!(text.trim_end().ends_with("Options for the store: `orchestrate help store`"), "{text}");
    }

    #[test]
    fn help_for_the_store_shows_its_options_with_their_variables() {
        let text = help("orchestrate help store");
        for part in ["--endpoints <LIST>", "ORCHESTRATE_ENDPOINTS", "--cacert", "ETCDCTL_KEY", "  accept "] {
            assert!(text.contains(part), "{part}: {text}");
        }
        for variable in crate::settings::VARIABLES {
            // Those that both begin with the same word are variables of the options.
            let Some(name) = variable.strip_prefix("ETCDCTL_") else { continue };
            assert!(text.contains(variable) && text.contains(&format!("ORCHESTRATE_{name}")), "{variable}");
        }
    }

    #[test]
    fn arguments_say_more_than_their_name() {
        for (verb, definition) in verbs() {
            for argument in definition.get_arguments() {
                let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
                let is_empty_word =
                    ["the version", "the host", "the service", "the file", "the key", "the shell"]
                        .contains(&help.to_lowercase().as_str());
                assert!(!help.is_empty() && !is_empty_word, "{verb} {}: {help:?}", argument.get_id());
            }
        }
    }

    #[test]
    fn long_texts_are_wrapped() {
        let text = wrapped("1", &"word ".repeat(40));
        assert!(text.lines().all(|line| line.len() <= WIDTH), "{text}");
        assert!(text.lines().skip(1).all(|line| line.starts_with("       word")), "{text}");
    }
}
