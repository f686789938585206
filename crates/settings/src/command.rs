//! Checks of the commands and paths in settings.

use schema::names::quoted;
use std::path::Path;

pub(super) fn absolute(command: &[String]) -> Result<(), String> {
    match command.first() {
        Some(program) if program.starts_with('/') => Ok(()),
        Some(program) => Err(format!("the program {program:?} must be an absolute path")),
        None => Err("the command is empty".into()),
    }
}

pub(super) fn absolute_path(path: &Path) -> Result<(), String> {
    if path.is_absolute() {
        return Ok(());
    }
    Err(format!("{} must be an absolute path", quoted(&path.to_string_lossy())))
}

/// Placeholder for the version in a command. It must be a whole argument after `--`.
pub const VERSION_PLACEHOLDER: &str = "{version}";

/// Checks the use of the version in a command. Steps get the version in the environment. A command
/// that takes it as an argument must name it as a whole argument after `--`, so that it can never
/// be read as an option.
pub(super) fn check_placeholders(command: &[String]) -> Result<(), String> {
    for (index, argument) in command.iter().enumerate().filter(|(_, a)| a.contains(VERSION_PLACEHOLDER)) {
        if argument != VERSION_PLACEHOLDER || !command[..index].iter().any(|a| a == "--") {
            return Err(format!(
                "{argument:?}: {VERSION_PLACEHOLDER} must be an argument of its own, after \"--\""
            ));
        }
    }
    Ok(())
}
