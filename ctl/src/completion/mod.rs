//! Completion of words. A shell's completion script starts this program again with [`VARIABLE`]
//! set, and reads the possible words from it. Names of hosts, versions, services and values come from the
//! store, with the settings that a verb in the same line would have.

mod names;

use crate::exit::Exit;
use crate::options::GlobalOptions;
use crate::output;
use crate::settings::Settings;
use clap::{Args, FromArgMatches};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::{EnvCompleter, Shells};
use clap_complete::{CompleteEnv, Shell};
use names::Kind;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::OnceLock;

/// Environment variable that only completion scripts set. It is not the library's usual name: if a
/// user has a variable of that name, the program must still answer instead of completing.
pub(crate) const VARIABLE: &str = "_ORCHESTRATE_COMPLETE";

/// The name under which shells find the program.
const PROGRAM: &str = "orchestrate";

/// The script for bash. The library's takes an endpoint, which contains colons, for several words.
const BASH: &str = include_str!("orchestrate.bash");

/// The settings of the line that is completed; empty if they cannot be used. The library calls
/// completers without the line.
static SETTINGS: OnceLock<Option<Settings>> = OnceLock::new();

/// Returns the completion script of a shell.
pub(crate) fn script(shell: Shell) -> io::Result<String> {
    if shell == Shell::Bash {
        return Ok(BASH.to_owned());
    }
    let mut script = Vec::new();
    let shells = Shells::builtins();
    let completer = shells.completer(&shell.to_string());
    let completer = completer.ok_or_else(|| io::Error::other("no completion for this shell"))?;
    completer.write_registration(VARIABLE, PROGRAM, PROGRAM, PROGRAM, &mut script)?;
    if shell == Shell::Zsh {
        // zsh loads this file from its function path when it first completes a word. Then the file
        // itself is the function and has to call the completer.
        let call = format!("_clap_dynamic_completer_{PROGRAM} \"$@\"");
        writeln!(script, "if [[ $funcstack[1] = _{PROGRAM} ]]; then {call}; fi")?;
    }
    String::from_utf8(script).map_err(io::Error::other)
}

/// Answers a completion script. Returns `None` if no completion script called the program.
pub(crate) fn answer(
    arguments: &[OsString],
    definition: fn() -> clap::Command,
    environment: impl Fn(&str) -> Option<String>,
) -> Option<Exit> {
    let here = std::env::current_dir().ok();
    let settings = options_in(arguments).and_then(|options| Settings::resolve(&options, &environment).ok());
    let _ = SETTINGS.set(settings);
    let position = environment("_CLAP_COMPLETE_INDEX").and_then(|index| index.parse::<usize>().ok());
    let separator = environment("_CLAP_IFS").unwrap_or_else(|| "\n".to_owned());
    let words = Shells::builtins();
    let words: Vec<Words<'_>> =
        words.iter().map(|shell| Words { shell, position, separator: &separator }).collect();
    let words: Vec<&dyn EnvCompleter> = words.iter().map(|words| words as &dyn EnvCompleter).collect();
    let completed = CompleteEnv::with_factory(definition)
        .shells(Shells(&words))
        .var(VARIABLE)
        .bin(PROGRAM)
        .completer(PROGRAM)
        .try_complete(arguments.iter().cloned(), here.as_deref());
    match completed {
        Ok(true) => Some(Exit::Yes),
        Ok(false) => None,
        Err(error) => Some(output::usage(&error, false)),
    }
}

/// Completes words as the library does for a shell, but offers options only where one is begun: where
/// a host can stand, hosts are wanted.
struct Words<'a> {
    shell: &'a dyn EnvCompleter,
    /// Place of the word that is completed; the last one if the shell does not say.
    position: Option<usize>,
    /// What stands between the offered words.
    separator: &'a str,
}

impl EnvCompleter for Words<'_> {
    fn name(&self) -> &'static str {
        self.shell.name()
    }

    fn is(&self, name: &str) -> bool {
        self.shell.is(name)
    }

    fn write_registration(
        &self,
        variable: &str,
        name: &str,
        program: &str,
        completer: &str,
        script: &mut dyn io::Write,
    ) -> io::Result<()> {
        self.shell.write_registration(variable, name, program, completer, script)
    }

    fn write_complete(
        &self,
        definition: &mut clap::Command,
        words: Vec<OsString>,
        here: Option<&Path>,
        answer: &mut dyn io::Write,
    ) -> io::Result<()> {
        let position = self.position.unwrap_or_else(|| words.len().saturating_sub(1));
        let begun = words.get(position).is_some_and(|word| word.as_encoded_bytes().starts_with(b"-"));
        let mut found = Vec::new();
        self.shell.write_complete(definition, words, here, &mut found)?;
        if begun {
            return answer.write_all(&found);
        }
        let found = String::from_utf8_lossy(&found);
        let offered = found.split(self.separator).filter(|word| !word.trim_start().starts_with('-'));
        answer.write_all(offered.collect::<Vec<_>>().join(self.separator).as_bytes())
    }
}

/// Returns the options of every verb that stand in the line to be completed. The line is not whole
/// yet, so other words are left out, and so is an option without its value.
fn options_in(arguments: &[OsString]) -> Option<GlobalOptions> {
    let definition = GlobalOptions::augment_args(clap::Command::new(PROGRAM).disable_help_flag(true));
    let names: Vec<&str> = definition
        .get_arguments()
        .flat_map(|option| option.get_long_and_visible_aliases())
        .flatten()
        .collect();
    let line = arguments.iter().skip_while(|word| *word != "--").skip(2);
    let mut line = line.map(|word| word.to_string_lossy().into_owned()).take_while(|word| word != "--");
    let mut options = vec![PROGRAM.to_owned()];
    while let Some(word) = line.next() {
        let Some(name) = word.strip_prefix("--") else { continue };
        if let Some((name, _)) = name.split_once('=') {
            if names.contains(&name) {
                options.push(word);
            }
        } else if names.contains(&name)
            && let Some(value) = line.next().filter(|value| !value.is_empty())
        {
            options.push(format!("{word}={value}"));
        }
    }
    GlobalOptions::from_arg_matches(&definition.try_get_matches_from(options).ok()?).ok()
}

/// Returns the completer for hosts.
pub(crate) fn hosts() -> ArgValueCandidates {
    ArgValueCandidates::new(|| candidates(Kind::Hosts))
}

/// Returns the completer for versions.
pub(crate) fn versions() -> ArgValueCandidates {
    ArgValueCandidates::new(|| candidates(Kind::Versions))
}

/// Returns the completer for services.
pub(crate) fn services() -> ArgValueCandidates {
    ArgValueCandidates::new(|| candidates(Kind::Services))
}

/// Returns the completer for values of operators.
pub(crate) fn values() -> ArgValueCandidates {
    ArgValueCandidates::new(|| candidates(Kind::Values))
}

/// Returns the completer for words that a verb checks itself.
pub(crate) fn words(words: &'static [&'static str]) -> ArgValueCandidates {
    ArgValueCandidates::new(|| words.iter().map(CompletionCandidate::new).collect())
}

fn candidates(kind: Kind) -> Vec<CompletionCandidate> {
    let settings = SETTINGS.get().and_then(Option::as_ref);
    let names = settings.map(|settings| names::names(kind, settings)).unwrap_or_default();
    names.into_iter().map(CompletionCandidate::new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(line: &str) -> Option<GlobalOptions> {
        let words = ["orchestrate", "--"].into_iter().chain(line.split(' '));
        options_in(&words.map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn the_options_of_a_line_that_is_not_whole_are_found() {
        let found = options("orchestrate --endpoints a:1 why --namespace=/x --no-such w --cacert ").unwrap();
        assert_eq!(found.endpoints.as_deref(), Some("a:1"));
        assert_eq!(found.namespace.as_deref(), Some("/x"));
        assert_eq!(found.cacert, None);
        let behind = options("orchestrate with-claim -- cmd --endpoints a:1 ").unwrap();
        assert_eq!(behind.endpoints, None);
        assert!(options("orchestrate --port x why ").is_none(), "a store that cannot be named is not asked");
    }

    #[test]
    fn the_script_for_bash_calls_this_program() {
        assert!(BASH.contains(&format!("{VARIABLE}=bash")) && BASH.contains(&format!("{PROGRAM} -- ")));
    }
}
