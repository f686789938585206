//! The operator's command. It asks the store one question at one revision and says the answer: results
//! on standard output, everything else on standard error, the meaning in the exit code.

mod cli;
mod commands;
mod exit;
mod local;
mod output;
mod settings;

pub use exit::Exit;

use clap::{CommandFactory, Parser};
use cli::Cli;
use exit::Failure;
use output::Output;
use settings::Settings;
use std::ffi::OsString;

/// The definition of the command line, for completions and manual pages.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs one invocation. Everything from outside comes in here: arguments, and a way to read the environment.
pub fn run(arguments: impl Iterator<Item = OsString>, environment: impl Fn(&str) -> Option<String>) -> Exit {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => return output::usage(&error),
    };
    answer(cli, environment).unwrap_or_else(|failure| {
        output::note(&output::chain(&failure.error));
        failure.exit
    })
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
