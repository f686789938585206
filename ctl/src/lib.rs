//! The operator's command. It asks the store one question at one revision and says the answer: results
//! on standard output, everything else on standard error, the meaning in the exit code.

mod agent;
mod cli;
mod commands;
mod completion;
mod exit;
mod local;
mod output;
mod seen_stores;
mod settings;

pub use exit::Exit;

use clap::{Args, CommandFactory, FromArgMatches, Subcommand};
use cli::{CatalogVerb, Cli, GlobalOptions, StateVerb, UpdateVerb, Verb};
use exit::Failure;
use output::Output;
use settings::Settings;
use std::ffi::OsString;
use std::mem::ManuallyDrop;

/// The definition of the command line, for completions and manual pages.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs one invocation. Everything from outside comes in here: arguments, and a way to read the environment; but for completion,
/// which the library drives.
pub fn run(arguments: impl Iterator<Item = OsString>, environment: impl Fn(&str) -> Option<String>) -> Exit {
    let arguments: Vec<OsString> = arguments.collect();
    if environment(completion::VARIABLE).is_some()
        && let Some(exit) = completion::answer(&arguments, command)
    {
        return exit;
    }
    let cli = match parse(arguments) {
        Ok(cli) => cli,
        Err(error) => return output::usage(&error),
    };
    answer(cli, environment).unwrap_or_else(|failure| {
        output::note(&output::chain(&failure.error));
        failure.exit
    })
}

/// Reads the command line by the definition of the one verb that stands in it, and by the whole one if that
/// fails: there are many verbs, clap copies every global option into each, and that took longer than all else before
/// the first request. What the smaller definition accepts means the same in the whole one, because a word that
/// is neither verb nor option is accepted by none of them. Neither is freed: the process ends soon.
fn parse(arguments: Vec<OsString>) -> Result<Cli, clap::Error> {
    if let Some(verb) = arguments.iter().skip(1).find_map(|word| verb_of(word.to_str()?)) {
        let options = GlobalOptions::augment_args(clap::Command::new("orchestrate"));
        let mut of_verb = ManuallyDrop::new(options.subcommand(verb));
        if let Ok(cli) = read(&mut of_verb, &arguments) {
            return Ok(cli);
        }
    }
    read(&mut ManuallyDrop::new(command()), &arguments)
}

/// The definition of a verb, made with those of its group.
fn verb_of(word: &str) -> Option<clap::Command> {
    fn find_in<V: Subcommand>(word: &str) -> Option<clap::Command> {
        let group = || ManuallyDrop::new(V::augment_subcommands(clap::Command::new("orchestrate")));
        V::has_subcommand(word).then(|| group().find_subcommand(word).cloned())?
    }
    find_in::<UpdateVerb>(word)
        .or_else(|| find_in::<StateVerb>(word))
        .or_else(|| find_in::<CatalogVerb>(word))
        .or_else(|| find_in::<Verb>(word))
}

fn read(definition: &mut clap::Command, arguments: &[OsString]) -> Result<Cli, clap::Error> {
    definition.try_get_matches_from_mut(arguments).and_then(|found| Cli::from_arg_matches(&found))
}

fn answer(cli: Cli, environment: impl Fn(&str) -> Option<String>) -> Result<Exit, Failure> {
    let settings = Settings::resolve(&cli.global, environment)?;
    let mut output = Output::new(settings.format);
    let exit = commands::run(cli.verb, &settings, &mut output)?;
    output.flush()?;
    Ok(exit)
}

#[cfg(test)]
mod documents;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_also_a_verb_is_read_for_what_it_is() {
        let parse = |line: &str| parse(line.split_whitespace().map(OsString::from).collect());
        let cli = parse("orchestrate --namespace ping current_version --timeout 3s").unwrap();
        assert!(matches!(cli.verb, Verb::Update(UpdateVerb::CurrentVersion)), "{:?}", cli.verb);
        assert_eq!(
            (cli.global.namespace.as_deref(), cli.global.timeout.as_deref()),
            (Some("ping"), Some("3s"))
        );
        let cli = parse("orchestrate verify_hosts ping status").unwrap();
        assert!(
            matches!(cli.verb, Verb::Update(UpdateVerb::VerifyHosts { version, .. }) if version == "ping")
        );
        let error = parse("orchestrate ping --no-such-option").unwrap_err();
        assert_eq!(error.kind(), clap::error::ErrorKind::UnknownArgument);
        let help = parse("orchestrate hosts --help").unwrap_err().to_string();
        assert!(help.contains("decommission"), "{help}");
    }
}
