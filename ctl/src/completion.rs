//! Completion of words. A shell's completion script starts this program again with [`VARIABLE`]
//! set, and reads the possible words from it. Names of hosts and services come from the catalog
//! that the agent keeps on this host, so completion does not use the network.

use crate::exit::Exit;
use crate::settings::STATE_DIRECTORY;
use crate::{local, output};
use catalog::CachedCatalog;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::Shells;
use clap_complete::{CompleteEnv, Shell};
use schema::codec;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::PathBuf;

/// Environment variable that only completion scripts set. It is not the library's usual name: if a
/// user has a variable of that name, the program must still answer instead of completing.
pub(crate) const VARIABLE: &str = "_ORCHESTRATE_COMPLETE";

/// The name under which shells find the program.
const PROGRAM: &str = "orchestrate";

/// Returns the completion script of a shell.
pub(crate) fn script(shell: Shell) -> io::Result<String> {
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
pub(crate) fn answer(arguments: &[OsString], definition: fn() -> clap::Command) -> Option<Exit> {
    let here = std::env::current_dir().ok();
    let completed = CompleteEnv::with_factory(definition)
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

/// Returns the completer for hosts: those that publish a service.
pub(crate) fn hosts() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let catalog = catalog();
        let hosts = catalog.services.values().flatten().filter_map(|instance| instance.record.host.as_ref());
        let names: BTreeSet<&str> = hosts.map(|host| host.as_str()).collect();
        names.into_iter().map(CompletionCandidate::new).collect()
    })
}

/// Returns the completer for services.
pub(crate) fn services() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        catalog().services.keys().map(|name| CompletionCandidate::new(name.as_str())).collect()
    })
}

/// Reads the catalog on disk. It is empty if there is none, or if this user may not read it.
fn catalog() -> CachedCatalog {
    let directory = std::env::var_os("ORCHESTRATE_STATE_DIR").filter(|path| !path.is_empty());
    let directory = directory.map_or_else(|| STATE_DIRECTORY.into(), PathBuf::from);
    let text = local::read_up_to(&directory.join("catalog.json"), local::CATALOG_MAX_BYTES);
    let text = text.ok().flatten().unwrap_or_default();
    codec::read(text.as_bytes()).unwrap_or_default()
}
