//! Completion of words: the script of a shell starts this program again with [`VARIABLE`] set, and is told what may stand there. Names of
//! hosts and services come from the catalog that the agent keeps on this host: pressing a key asks no network.

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

/// Set by completion scripts alone. Not the name that the library has for it: whoever has a variable of that name must not get
/// words instead of an answer.
pub(crate) const VARIABLE: &str = "_ORCHESTRATE_COMPLETE";

/// The name under which shells find the program.
const PROGRAM: &str = "orchestrate";

/// The script of a shell.
pub(crate) fn script(shell: Shell) -> io::Result<Vec<u8>> {
    let mut script = Vec::new();
    let shells = Shells::builtins();
    let completer = shells.completer(&shell.to_string());
    let completer = completer.ok_or_else(|| io::Error::other("no completion for this shell"))?;
    completer.write_registration(VARIABLE, PROGRAM, PROGRAM, PROGRAM, &mut script)?;
    if shell == Shell::Zsh {
        // Read from the function path at the first word to complete, the file is itself the function.
        let call = format!("_clap_dynamic_completer_{PROGRAM} \"$@\"");
        writeln!(script, "if [[ $funcstack[1] = _{PROGRAM} ]]; then {call}; fi")?;
    }
    Ok(script)
}

/// Answers a completion script; `None` if this is no question of one.
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
        Err(error) => Some(output::usage(&error)),
    }
}

/// Hosts that publish a service.
pub(crate) fn hosts() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let catalog = catalog();
        let hosts = catalog.services.values().flatten().filter_map(|instance| instance.record.host.as_ref());
        let names: BTreeSet<&str> = hosts.map(|host| host.as_str()).collect();
        names.into_iter().map(CompletionCandidate::new).collect()
    })
}

/// Services of the fleet.
pub(crate) fn services() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        catalog().services.keys().map(|name| CompletionCandidate::new(name.as_str())).collect()
    })
}

/// The catalog on disk; empty if there is none, or not for this user.
fn catalog() -> CachedCatalog {
    let directory = std::env::var_os("ORCHESTRATE_STATE_DIR").filter(|path| !path.is_empty());
    let directory = directory.map_or_else(|| STATE_DIRECTORY.into(), PathBuf::from);
    let text = local::read_up_to(&directory.join("catalog.json"), local::CATALOG_MAX_BYTES);
    let text = text.ok().flatten().unwrap_or_default();
    codec::read(text.as_bytes()).unwrap_or_default()
}
