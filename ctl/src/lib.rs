//! The operator's command. Each verb asks the store one question, at one revision. The result goes
//! to standard output, everything else to standard error, and the exit code carries the meaning.

mod agent;
mod author;
mod cli;
mod commands;
mod completion;
mod endpoints;
mod exit;
mod help;
mod hint;
mod local;
mod manual;
mod numbers;
mod options;
mod output;
mod past;
mod seen_stores;
mod settings;

pub use commands::answers::error_answer;
pub use commands::verb::{About, Example, Group, Past, Spec};
pub use commands::verbs::answers;
pub use exit::Exit;

use cli::Cli;
use commands::verb::Program;
use commands::verbs::specs;
use exit::Failure;
use output::Output;
use settings::Settings;
use std::ffi::OsString;

/// Runs one invocation. Arguments and environment variables come in only through the parameters; the
/// library for completion reads variables of its own.
pub fn run(arguments: impl Iterator<Item = OsString>, environment: impl Fn(&str) -> Option<String>) -> Exit {
    let arguments: Vec<OsString> = arguments.collect();
    if environment(completion::VARIABLE).is_some()
        && let Some(exit) = completion::answer(&arguments, cli::without_help, &environment)
    {
        return exit;
    }
    let wants_json = cli::wants_json(&arguments);
    let cli = match cli::parse(arguments) {
        Ok(cli) => cli,
        Err(error) => return output::usage(&error, wants_json),
    };
    let format = cli.global.output;
    answer(cli, environment).unwrap_or_else(|failure| output::failure(&failure, format))
}

fn answer(cli: Cli, environment: impl Fn(&str) -> Option<String>) -> Result<Exit, Failure> {
    let settings = Settings::resolve(&cli.global, environment)?;
    let mut output = Output::new(settings.format);
    let program = Program { settings: &settings, definition: cli::definition, specs };
    let exit = cli.verb.run(&program, &mut output).map_err(|failure| hint::add(failure, &settings))?;
    output.flush().map_err(|failure| hint::add(failure, &settings))?;
    Ok(exit)
}

/// Returns what is known of every verb, in the order of help.
pub fn verbs() -> Vec<&'static Spec> {
    specs()
}

#[cfg(test)]
mod documents;
