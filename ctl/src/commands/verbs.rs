//! The list of verbs.

use super::call::{Call, VerbEntry};
use super::verb::{Answer, Spec};
use super::{failures, original, past, rollout, services, setup, state, store};
use crate::manual::Manual;
use clap::error::ErrorKind;
use clap::{ArgMatches, Command};
use schemars::{Schema, SchemaGenerator};

/// All verbs, in the order of help.
const VERBS: &[VerbEntry] = &[
    VerbEntry::of::<rollout::trigger::TriggerUpdate>(),
    VerbEntry::of::<rollout::start::Start>(),
    VerbEntry::of::<rollout::start::Pause>(),
    VerbEntry::of::<rollout::start::Resume>(),
    VerbEntry::of::<rollout::status::Status>(),
    VerbEntry::of::<rollout::history::History>(),
    VerbEntry::of::<rollout::history::Queue>(),
    VerbEntry::of::<rollout::options::Set>(),
    VerbEntry::of::<rollout::status::Excuse>(),
    VerbEntry::of::<rollout::rollback::Rollback>(),
    VerbEntry::of::<rollout::freezes::Freeze>(),
    VerbEntry::of::<rollout::freezes::Unfreeze>(),
    VerbEntry::of::<rollout::freeze_list::Freezes>(),
    VerbEntry::of::<rollout::policy::Show>(),
    VerbEntry::of::<rollout::policy::Set>(),
    VerbEntry::of::<rollout::policy::Check>(),
    VerbEntry::of::<rollout::claims::Claims>(),
    VerbEntry::of::<rollout::claims::Release>(),
    VerbEntry::of::<rollout::plan::Plan>(),
    VerbEntry::of::<original::desired::CurrentVersion>(),
    VerbEntry::of::<original::verify_hosts::VerifyHosts>(),
    VerbEntry::of::<original::running::RunningVersions>(),
    VerbEntry::of::<original::running::HostsAtVersion>(),
    VerbEntry::of::<state::status::Status>(),
    VerbEntry::of::<state::status::Unaccounted>(),
    VerbEntry::of::<state::why::Why>(),
    VerbEntry::of::<state::events::Events>(),
    VerbEntry::of::<failures::logs::Logs>(),
    VerbEntry::of::<failures::bundle::Bundle>(),
    VerbEntry::of::<failures::retry::Retry>(),
    VerbEntry::of::<state::ui::Ui>(),
    VerbEntry::of::<state::hosts::Hosts>(),
    VerbEntry::of::<state::hosts::List>(),
    VerbEntry::of::<state::hosts::Add>(),
    VerbEntry::of::<state::hosts::Decommission>(),
    VerbEntry::of::<services::list::List>(),
    VerbEntry::of::<services::list::Show>(),
    VerbEntry::of::<services::wait_for::WaitFor>(),
    VerbEntry::of::<services::dns::Dns>(),
    VerbEntry::of::<services::maintenance::SetMaintenance>(),
    VerbEntry::of::<services::maintenance::Drain>(),
    VerbEntry::of::<services::drop_stale::DropStale>(),
    VerbEntry::of::<store::values::List>(),
    VerbEntry::of::<store::values::Get>(),
    VerbEntry::of::<store::values::Set>(),
    VerbEntry::of::<store::values::Remove>(),
    VerbEntry::of::<original::desired::PendingUpdate>(),
    VerbEntry::local::<rollout::with_claim::WithClaim>(),
    VerbEntry::local::<original::local::LocalVersion>(),
    VerbEntry::of::<original::one_shot::UpdateOwnStatus>(),
    VerbEntry::of::<original::one_shot::UpdateOwnInfo>(),
    VerbEntry::of::<original::local::LocalHealth>(),
    VerbEntry::of::<original::ping::Ping>(),
    VerbEntry::of::<store::accept::Show>(),
    VerbEntry::of::<store::accept::Accept>(),
    VerbEntry::local::<past::recording::List>(),
    VerbEntry::local::<past::recording::Check>(),
    VerbEntry::local::<past::recording::Prune>(),
    VerbEntry::local::<past::recording::Erase>(),
    VerbEntry::of::<setup::bootstrap::Bootstrap>(),
    VerbEntry::local::<setup::enroll::Enroll>(),
    VerbEntry::local::<setup::lint::Lint>(),
    VerbEntry::local::<setup::completion::Completion>(),
    VerbEntry::local::<Manual>(),
    VerbEntry::of::<original::failures::GetFailures>(),
    VerbEntry::of::<original::failures::DebugTimeout>(),
    VerbEntry::of::<original::running::CheckSingleVersion>(),
    VerbEntry::of::<original::services::PublishService>(),
    VerbEntry::of::<original::services::GetServices>(),
    VerbEntry::of::<original::services::CacheServices>(),
    VerbEntry::of::<original::discovery_token::NewDiscoveryToken>(),
    VerbEntry::of::<original::host_config::ManageConfig>(),
    VerbEntry::of::<original::host_config::SetConfig>(),
    VerbEntry::of::<original::host_config::EnablePuppet>(),
    VerbEntry::of::<original::host_config::HostData>(),
    VerbEntry::of::<original::host_config::CheckConfig>(),
    VerbEntry::of::<original::host_config::CheckPuppet>(),
    VerbEntry::of::<original::rolling_upgrade::Upgrade>(),
    VerbEntry::of::<original::rolling_upgrade::Status>(),
    VerbEntry::of::<original::rolling_upgrade::GlobalDisablePuppet>(),
];

/// The words that verbs of two words begin with, and that are no verbs themselves, with their description.
const NOUNS: [(&str, &str); 7] = [
    ("rollout", "The update of the whole fleet"),
    ("policy", "The rollout policy: how many hosts may update at once"),
    ("services", "The services of the fleet"),
    ("values", "The texts that templates and gates of hosts read"),
    ("store", "The store itself"),
    ("recording", "The recording of the store"),
    ("rolling_upgrade", "The rolling upgrade of hosts that old scripts update"),
];

/// Adds all verbs to a definition.
pub(crate) fn define_all(mut definition: Command) -> Command {
    for verb in VERBS {
        let word = verb.spec.name.split(' ').next().unwrap_or_default();
        if definition.find_subcommand(word).is_none() {
            definition = definition.subcommands(define(word));
        }
    }
    definition
}

/// Returns the definition of a first word, with those of the verbs that begin with it; `None` if no verb does.
pub(crate) fn define(word: &str) -> Option<Command> {
    let command = if let Some(verb) = find(word) {
        (verb.define)(Command::new(verb.spec.name))
    } else {
        let (noun, about) = NOUNS.into_iter().find(|(noun, _)| *noun == word)?;
        Command::new(noun).about(about).subcommand_required(true).arg_required_else_help(true)
    };
    let second_words = VERBS.iter().filter_map(|verb| match verb.spec.name.split_once(' ') {
        Some((first, second)) if first == word => Some((verb.define)(Command::new(second))),
        _ => None,
    });
    Some(command.subcommands(second_words))
}

/// Reads the verb of a command line and its options.
pub(crate) fn read(matches: &ArgMatches) -> Result<Box<dyn Call>, clap::Error> {
    let (mut name, mut matches) = match matches.subcommand() {
        Some((name, matches)) => (name.to_owned(), matches),
        None => return Err(clap::Error::new(ErrorKind::MissingSubcommand)),
    };
    if let Some((second, options)) = matches.subcommand() {
        (name, matches) = (format!("{name} {second}"), options);
    }
    match find(&name) {
        Some(verb) => (verb.read)(matches),
        None => Err(clap::Error::new(ErrorKind::InvalidSubcommand)),
    }
}

/// Returns what is known of all verbs.
pub(crate) fn specs() -> Vec<&'static Spec> {
    VERBS.iter().map(|verb| &verb.spec).collect()
}

/// Returns the answers of all verbs that have a schema of their own, by their names. The program never asks for them.
pub fn answers(generator: &mut SchemaGenerator) -> Vec<(&'static str, Schema)> {
    let of_verb = |entry: &VerbEntry| match entry.spec.answer {
        Answer::Json(schema) => Some((entry.spec.name, schema(generator))),
        Answer::OfOther | Answer::NotJson => None,
    };
    VERBS.iter().filter_map(of_verb).collect()
}

fn find(name: &str) -> Option<&'static VerbEntry> {
    VERBS.iter().find(|verb| verb.spec.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::verb::{Group, Past, Spec};
    use crate::seen_stores::About;
    use std::ffi::OsString;

    /// Splits a command line as a shell does; what a shell itself reads is cut off.
    fn words(line: &str) -> Vec<OsString> {
        let mut line = line;
        for end in [" | ", " || ", " > ", " < "] {
            line = line.split(end).next().unwrap_or_default();
        }
        let quoted = line.split('\'').enumerate();
        let parts = quoted.flat_map(|(index, part)| match index % 2 {
            0 => part.split_whitespace().collect::<Vec<_>>(),
            _ => vec![part],
        });
        parts.map(OsString::from).collect()
    }

    #[test]
    fn every_verb_has_a_name_of_its_own_and_is_found_by_it() {
        for (index, verb) in VERBS.iter().enumerate() {
            let name = verb.spec.name;
            assert!(VERBS[..index].iter().all(|other| other.spec.name != name), "{name}");
            let definition = define(name.split(' ').next().unwrap()).unwrap();
            let second = name.split_once(' ').map(|(_, second)| second);
            assert!(second.is_none_or(|second| definition.find_subcommand(second).is_some()), "{name}");
        }
        assert!(define("nonsense").is_none());
    }

    #[test]
    fn every_example_is_a_command_line_of_its_verb() {
        for Spec { name, examples, .. } in VERBS.iter().map(|verb| &verb.spec) {
            for (line, what) in *examples {
                let cli = crate::cli::parse(words(line)).unwrap_or_else(|e| panic!("{line}: {e}"));
                assert!(line.contains(&format!(" {name}")), "{line} is not about {name}");
                assert!(!what.is_empty() && !what.ends_with('.'), "{line}: {what}");
                drop(cli);
            }
        }
    }

    #[test]
    fn every_verb_that_people_use_has_an_example() {
        for Spec { name, group, examples, .. } in VERBS.iter().map(|verb| &verb.spec) {
            assert!(*group == Group::Original || !examples.is_empty(), "{name}");
        }
    }

    /// A verb that reads the store once must refuse one that went back, unless the manual says otherwise.
    #[test]
    fn a_verb_that_reads_the_store_is_about_the_fleet_or_the_manual_names_it() {
        let introduction = crate::help::document::introduction();
        let exempt = introduction.split("read. The verbs ").nth(1).unwrap();
        let exempt = exempt.split("of the original tool do not make this check").next().unwrap();
        for Spec { name, about, past, .. } in VERBS.iter().map(|verb| &verb.spec) {
            let is_exempt = exempt.contains(&format!("`{name}`"));
            assert!(!is_exempt || *about == About::Other, "{name} makes the check, and the manual denies it");
            let is_about_store = *name == "store show";
            assert!(*past != Past::Answers || about.is_fleet() || is_exempt || is_about_store, "{name}");
        }
    }
}
