//! The operator's command. Each verb asks the store one question, at one revision. The result goes
//! to standard output, everything else to standard error, and the exit code carries the meaning.

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

/// Returns the definition of the command line, for completions and manual pages.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs one invocation. Arguments and environment variables come in only through the parameters,
/// except in completion, which the library drives.
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

/// Parses the command line with the definition of its verb alone, and with the whole definition if
/// that fails. The reason is speed: there are many verbs, clap copies every global option into
/// each, and that took longer than everything else before the first request. What the smaller
/// definition accepts means the same in the whole definition, because neither accepts a word that
/// is no verb and no option. Definitions are not freed, because the process ends soon.
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

/// Returns the definition of a verb. Building it needs only the definitions of its group.
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
