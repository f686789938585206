//! The manual pages: `orchestrate(1)`, one for each verb, and `orchestrate-agent.toml(5)`. Their
//! texts are those of the documents, and their options those of the definition.

mod roff;

use crate::commands::answers;
use crate::commands::verb::{About, Answer, Group, LocalVerb, Past, Program, Spec};
use crate::exit::{Exit, Failure};
use crate::help::{document, spec_of, store_arguments};
use crate::local;
use crate::output::Output;
use clap::{Arg, Args, Command};
use document::Section;
use roff::{bold, entry, escaped, inline, italic, section, subsection, title};
use schemars::JsonSchema;
use serde::Serialize;
use std::fs;
use std::path::PathBuf;

/// The settings of the agent.
const CONFIGURATION: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/configuration.md"));

/// Write the manual pages into a directory
#[derive(Debug, Args)]
pub(crate) struct Manual {
    /// Directory below which man1 and man5 are made, for example ~/.local/share/man
    directory: PathBuf,
}

/// A manual page.
struct Page {
    name: String,
    section: u8,
    text: String,
}

impl LocalVerb for Manual {
    const SPEC: Spec = Spec {
        name: "manual",
        group: Group::Setup,
        about: About::Other,
        past: Past::DoesNotRead,
        exits: &[Exit::No],
        answer: Answer::Json(answers::of::<ManualAnswer<'_>>),
        examples: &[(
            "orchestrate manual ~/.local/share/man",
            "for one user; read them with man orchestrate",
        )],
    };

    fn run(self, program: &Program<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let mut paths = Vec::new();
        for page in pages(&(program.definition)(), &(program.specs)()) {
            let directory = self.directory.join(format!("man{}", page.section));
            let path = directory.join(format!("{}.{}", page.name, page.section));
            fs::create_dir_all(&directory)
                .and_then(|()| local::keep(&path, roff::page(&page.text).as_bytes()))
                .map_err(|error| Failure::no(format!("{}: {error}", path.display())))?;
            paths.push(path.display().to_string());
        }
        let answer = ManualAnswer { pages: &paths };
        output.sorted_answer(&answer, |output| paths.iter().for_each(|path| output.line(path)));
        Ok(Exit::Yes)
    }
}

/// What `manual` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ManualAnswer<'a> {
    pages: &'a [String],
}

fn pages(definition: &Command, verbs: &[&Spec]) -> Vec<Page> {
    let mut pages = vec![command_page(definition), settings_page()];
    for verb in definition.get_subcommands() {
        pages.push(verb_page(verb.get_name(), verb, verbs));
        let subs = verb.get_subcommands();
        pages.extend(
            subs.map(|sub| verb_page(&format!("{} {}", verb.get_name(), sub.get_name()), sub, verbs)),
        );
    }
    pages
}

/// Returns the name of the page of a verb.
fn page_name(verb: &str) -> String {
    format!("orchestrate-{}", verb.replace(' ', "-"))
}

/// Returns a reference to a page.
fn reference(name: &str, section: u8) -> String {
    format!("{}({section})", bold(name))
}

fn about(definition: &Command) -> String {
    definition
        .get_about()
        .map(ToString::to_string)
        .unwrap_or_default()
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}

fn name(name: &str, about: &str) -> String {
    let about: String =
        about.chars().take(1).flat_map(char::to_lowercase).chain(about.chars().skip(1)).collect();
    format!("{}{} \\- {}\n", section("Name"), escaped(name), escaped(about.trim_end_matches('.')))
}

/// Returns `orchestrate(1)`.
fn command_page(definition: &Command) -> Page {
    let mut text = title("orchestrate", 1);
    text += &name("orchestrate", &about(definition));
    text += &section("Synopsis");
    text += &format!("{} [{}] {} ...\n", bold("orchestrate"), italic("OPTIONS"), italic("VERB"));
    text += &section("Description");
    text += &roff::text(document::introduction());
    text += &section("Verbs");
    for group in document::groups() {
        text += &subsection(group.heading);
        for section in group.verbs {
            let about = find(definition, section.verb()).map(about).unwrap_or_default();
            let page = reference(&page_name(section.verb()), 1);
            text += &format!(".TP\n{}\n{}.\n{page}\n", bold(section.verb()), inline(&about));
        }
    }
    text += &section("Options");
    let output = definition.get_arguments().filter(|option| !option.is_hide_set()).cloned();
    text += &output.chain(store_arguments()).map(|option| argument(&option)).collect::<String>();
    let options = document::general("Options of every verb").rsplit_once("\n|");
    text += &roff::text(options.map(|(_, last_row)| after_row(last_row)).unwrap_or_default());
    for heading in ["Names", "Environment", "Files"] {
        text += &section(heading);
        text += &roff::text(document::general(heading));
    }
    text += &section("Exit status");
    text += &roff::text(document::general("Exit codes"));
    text += &section("See also");
    text += &format!("{},\n{}\n", reference("orchestrate-agent.toml", 5), reference("orchestrate-agent", 8));
    Page { name: "orchestrate".into(), section: 1, text }
}

/// Returns what stands behind the last row of a table.
fn after_row(last_row: &str) -> &str {
    last_row.split_once('\n').map(|(_, text)| text).unwrap_or_default()
}

/// Returns the definition of a verb, or of a sub-verb.
fn find<'a>(definition: &'a Command, verb: &str) -> Option<&'a Command> {
    verb.split(' ').try_fold(definition, |found, word| found.find_subcommand(word))
}

/// Returns the page of a verb.
fn verb_page(verb: &str, definition: &Command, verbs: &[&Spec]) -> Page {
    let page = page_name(verb);
    let mut text = title(&page, 1);
    text += &name(&page, &about(definition));
    text += &section("Synopsis");
    let described = document::section_of(verb);
    let usage = described.as_ref().map_or(verb, |section| section.usage);
    let arguments = usage.strip_prefix(verb).unwrap_or_default();
    let sub =
        if definition.is_subcommand_required_set() { format!(" {}", italic("VERB")) } else { String::new() };
    text += &format!("{}{}{sub}\n", bold(&format!("orchestrate {verb}")), escaped(arguments));
    text += &section("Description");
    match &described {
        Some(section) => text += &roff::text(section.text),
        None => text += &format!("{}.\n", inline(&about(definition))),
    }
    let subs: Vec<&Command> = definition.get_subcommands().collect();
    if !subs.is_empty() {
        text += &section("Verbs");
        for sub in subs {
            let page = reference(&page_name(&format!("{verb} {}", sub.get_name())), 1);
            text += &format!(".TP\n{}\n{}.\n{page}\n", bold(sub.get_name()), inline(&about(sub)));
        }
    }
    let own: String = definition.get_arguments().filter(|a| !a.is_hide_set()).map(argument).collect();
    if !own.is_empty() {
        text += &section("Options");
        text += &own;
        text += ".PP\nThe options that name the store, and the variables of the environment, are in\n";
        text += &format!("{}.\n", reference("orchestrate", 1));
    }
    let spec = spec_of(verb, verbs);
    if let (Some(section), Some(spec)) = (&described, spec) {
        text += &exit_status(section, spec);
    }
    if let Some(spec) = spec.filter(|spec| !spec.examples.is_empty()) {
        text += &section("Examples");
        for (line, what) in spec.examples {
            text += &entry(&bold(line), what);
        }
    }
    text += &section("See also");
    text += &format!("{}\n", reference("orchestrate", 1));
    Page { name: page, section: 1, text }
}

fn exit_status(described: &Section, spec: &Spec) -> String {
    let codes = document::exit_codes(described, spec.exits);
    let entries = codes.iter().map(|(code, meaning)| entry(&bold(code), meaning));
    section("Exit status") + &entries.collect::<String>()
}

/// Returns an option or an argument with its values and its default.
fn argument(argument: &Arg) -> String {
    let mut names: Vec<String> =
        argument.get_short().map(|short| bold(&format!("-{short}"))).into_iter().collect();
    names.extend(argument.get_long().map(|long| bold(&format!("--{long}"))));
    let values: Vec<String> =
        argument.get_value_names().unwrap_or_default().iter().map(|v| italic(v)).collect();
    let takes_value = argument.is_positional() || argument.get_action().takes_values();
    let values = match (takes_value, values.is_empty()) {
        (false, _) => String::new(),
        (true, true) => italic(&argument.get_id().as_str().to_uppercase()),
        (true, false) => values.join(" "),
    };
    let name = match (names.is_empty(), values.is_empty()) {
        (true, _) => values,
        (false, true) => names.join(", "),
        (false, false) => format!("{} {values}", names.join(", ")),
    };
    let mut help = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let possible = if takes_value { argument.get_possible_values() } else { Vec::new() };
    let words: Vec<&str> =
        possible.iter().filter(|v| !v.is_hide_set()).map(clap::builder::PossibleValue::get_name).collect();
    if !words.is_empty() {
        help += &format!(" [possible values: {}]", words.join(", "));
    }
    let defaults = argument.get_default_values().iter().filter_map(|value| value.to_str());
    let defaults: Vec<&str> = defaults.filter(|value| !value.is_empty()).collect();
    if takes_value && !defaults.is_empty() {
        help += &format!(" [default: {}]", defaults.join(" "));
    }
    entry(&name, &help)
}

/// Returns `orchestrate-agent.toml(5)`.
fn settings_page() -> Page {
    let page = "orchestrate-agent.toml";
    let mut text = title(page, 5);
    text += &name(page, "settings of the agent of a host");
    let mut sections = CONFIGURATION.split("\n## ");
    let introduction = sections.next().and_then(|first| first.split_once('\n')).map(|(_, text)| text);
    text += &section("Description");
    text += &roff::text(introduction.unwrap_or_default());
    for part in sections {
        let (heading, body) = part.split_once('\n').unwrap_or((part, ""));
        text += &section(&heading.replace('`', ""));
        text += &roff::text(body);
    }
    text += &section("Files");
    text += &entry(&bold("/etc/orchestrate/agent.toml"), "the first file of settings");
    text += &entry(&bold("/etc/orchestrate/agent.d/*.toml"), "further files, in the order of their names");
    text += &section("See also");
    text += &format!("{},\n{}\n", reference("orchestrate-agent", 8), reference("orchestrate-lint", 1));
    Page { name: page.into(), section: 5, text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::verbs::specs;
    use std::collections::BTreeSet;

    fn text_of(name: &str) -> String {
        let page = pages(&crate::cli::definition(), &specs()).into_iter().find(|page| page.name == name);
        page.unwrap_or_else(|| panic!("no page {name}")).text
    }

    #[test]
    fn every_verb_has_a_page_with_its_options_and_exit_codes() {
        let names: BTreeSet<String> =
            pages(&crate::cli::definition(), &specs()).into_iter().map(|page| page.name).collect();
        assert_eq!(names.len(), pages(&crate::cli::definition(), &specs()).len());
        for section in document::groups().iter().flat_map(|group| &group.verbs) {
            let text = text_of(&page_name(section.verb()));
            let definition = crate::cli::definition();
            let definition = find(&definition, section.verb()).unwrap();
            for option in definition.get_arguments().filter(|a| !a.is_hide_set()).filter_map(Arg::get_long) {
                let option = escaped(&format!("--{option}"));
                assert!(text.contains(&option), "{}: {option}", section.verb());
            }
            assert!(text.contains(".SH \"EXIT STATUS\"\n.TP\n"), "{text}");
        }
        assert!(names.contains("orchestrate-rollout-status") && names.contains("orchestrate-rollout"));
    }

    #[test]
    fn the_page_of_the_command_has_variables_files_and_exit_status() {
        let text = text_of("orchestrate");
        for variable in crate::settings::VARIABLES {
            assert!(text.contains(variable), "{variable}");
        }
        for part in
            ["ENVIRONMENT", "FILES", "EXIT STATUS", "/var/lib/orchestrate", "\\-\\-cacert", "Setting up"]
        {
            assert!(text.contains(part), "{part}");
        }
    }

    #[test]
    fn the_page_of_the_settings_has_every_setting_of_the_document() {
        let text = text_of("orchestrate-agent.toml");
        let rows = CONFIGURATION.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        let rows: Vec<&str> = rows.collect();
        assert!(rows.len() > 60, "{rows:?}");
        for name in rows {
            assert!(text.contains(&format!(".TP\n{}", bold(name))), "{name}");
        }
    }
}
