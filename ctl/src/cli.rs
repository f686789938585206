//! The command line. The options of every verb are in `options`, those of one verb in its file in
//! `commands`. Names are taken as plain text and each verb checks its own, so that an error message
//! states the rule and shows the given name escaped.

use crate::commands::call::Call;
use crate::commands::verbs;
use crate::help::with_help;
use crate::options::GlobalOptions;
use clap::{Args, CommandFactory, FromArgMatches, Parser};
use std::ffi::OsString;
use std::mem::ManuallyDrop;

/// Shows the state of a fleet, and makes it run another version.
///
/// Exit codes: 0 yes, 1 no, 2 cannot tell, 3 refused by a guard, 64 wrong usage.
#[derive(Debug, Parser)]
#[command(
    name = "orchestrate",
    version,
    max_term_width = 100,
    subcommand_value_name = "VERB",
    subcommand_help_heading = "Verbs",
    subcommand_required = true,
    arg_required_else_help = true
)]
struct WithoutVerbs {
    #[command(flatten)]
    global: GlobalOptions,
}

/// A command line.
#[derive(Debug)]
pub(crate) struct Cli {
    pub(crate) global: GlobalOptions,
    pub(crate) verb: Box<dyn Call>,
}

/// Parses the command line with the definition of its verb alone, and with the whole definition if
/// that fails. The reason is speed: there are many verbs, clap copies every global option into
/// each, and that took longer than everything else before the first request. What the smaller
/// definition accepts means the same in the whole definition, because neither accepts a word that
/// is no verb and no option. Definitions are not freed, because the process ends soon. Only the whole
/// definition has the texts of help.
pub(crate) fn parse(arguments: Vec<OsString>) -> Result<Cli, clap::Error> {
    if let Some(verb) = arguments.iter().skip(1).find_map(|word| verbs::define(word.to_str()?)) {
        let options = GlobalOptions::augment_args(clap::Command::new("orchestrate"));
        let mut of_verb = ManuallyDrop::new(options.subcommand(verb));
        if let Ok(cli) = read(&mut of_verb, &arguments) {
            return Ok(cli);
        }
    }
    read(&mut ManuallyDrop::new(definition()), &arguments)
}

/// Returns the whole definition, with the texts of help.
pub(crate) fn definition() -> clap::Command {
    with_help(without_help(), &verbs::specs())
}

/// Returns the whole definition.
pub(crate) fn without_help() -> clap::Command {
    verbs::define_all(WithoutVerbs::command())
}

/// True if the arguments ask for JSON, also if they are wrong otherwise.
pub(crate) fn wants_json(arguments: &[OsString]) -> bool {
    let words: Vec<_> = arguments.iter().map(|word| word.to_string_lossy()).collect();
    let is_one = |word: &str| ["-ojson", "-o=json", "--output=json"].contains(&word);
    words.iter().any(|word| is_one(word))
        || words.windows(2).any(|two| ["-o", "--output"].contains(&two[0].as_ref()) && two[1] == "json")
}

fn read(definition: &mut clap::Command, arguments: &[OsString]) -> Result<Cli, clap::Error> {
    let found = definition.try_get_matches_from_mut(arguments)?;
    Ok(Cli { global: GlobalOptions::from_arg_matches(&found)?, verb: verbs::read(&found)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Format;

    /// Parses with the whole definition.
    fn whole(line: &str) -> Result<Cli, clap::Error> {
        let arguments: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        read(&mut without_help(), &arguments)
    }

    #[test]
    fn the_definition_is_consistent() {
        without_help().debug_assert();
    }

    #[test]
    fn old_callers_are_understood() {
        for line in [
            "jorc --host=etcd.service.consul ping",
            "jorc --host 10.0.0.1 --port 4001 ping",
            "jorc --discovery_token= update_own_info",
            "jorc update_own_status puppet -1",
            "jorc update_own_status --hostname h validation_service 255",
            "jorc update_own_info --interval 60 --hostname h --version 43",
            "jorc check_single_version -v 43",
            "jorc get_failures --hosts --show_warnings",
            "jorc debug_timeout 43 --debug_hosts",
            "jorc local_health -v",
            "jorc local_version",
            "jorc verify_hosts 43",
            "jorc new_discovery_token --endpoint http://localhost/",
            "jorc manage_config state role enable_update=False -n cp",
            "jorc manage_config config_version host enable_update False --name cp1 --action delete",
            "jorc host_data config_state -n cp1",
            "jorc check_puppet --hostname cp1",
            "jorc enable_puppet False role -n cp -a delete",
            "jorc set_config a=b global -c version",
            "jorc set_config a b role --config_type config_state --name cp",
            "jorc check_config a host --name cp1 -c state",
            "orchestrate rolling_upgrade --host h --port 1 upgrade v2 -v -r --instructions={}",
            "orchestrate rolling_upgrade status",
            "orchestrate rolling_upgrade global_disable_puppet",
        ] {
            whole(line).unwrap_or_else(|e| panic!("{line}: {e}"));
        }
        let verb = whole("o update_own_status puppet -1").unwrap().verb;
        assert!(format!("{verb:?}").contains(r#"kind: "puppet", code: -1"#), "{verb:?}");
    }

    #[test]
    fn options_may_stand_behind_the_verb() {
        let cli = whole("o why web-1 --host store --output json --namespace /a").unwrap();
        assert_eq!(cli.global.store_host.as_deref(), Some("store"));
        assert_eq!(cli.global.output, Format::Json);
        assert!(format!("{:?}", cli.verb).contains("web-1"), "{:?}", cli.verb);
        assert_eq!(whole("o status -w json").unwrap().global.output, Format::Json);
    }

    #[test]
    fn wrong_usage_is_told_from_help() {
        for line in [
            "o",
            "o nonsense",
            "o trigger_update",
            "o update_own_status puppet x",
            "o --endpoints a --discovery-srv b ping",
        ] {
            assert!(whole(line).unwrap_err().exit_code() != 0, "{line}");
        }
        for line in ["o --help", "o --version", "o help why", "o why --help"] {
            assert!(!whole(line).unwrap_err().use_stderr(), "{line}");
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        let cli = whole("o --user a --password canary ping").unwrap();
        assert!(!format!("{cli:?}").contains("canary"));
    }

    #[test]
    fn a_word_that_is_also_a_verb_is_read_for_what_it_is() {
        let parse = |line: &str| parse(line.split_whitespace().map(OsString::from).collect());
        let cli = parse("orchestrate --namespace ping current_version --timeout 3s").unwrap();
        assert_eq!(format!("{:?}", cli.verb), "StoreCall(CurrentVersion)");
        assert_eq!(
            (cli.global.namespace.as_deref(), cli.global.timeout.as_deref()),
            (Some("ping"), Some("3s"))
        );
        let cli = parse("orchestrate verify_hosts ping status").unwrap();
        let expected = r#"VerifyHosts { version: "ping", hosts: ["status"]"#;
        assert!(format!("{:?}", cli.verb).contains(expected), "{:?}", cli.verb);
        let error = parse("orchestrate ping --no-such-option").unwrap_err();
        assert_eq!(error.kind(), clap::error::ErrorKind::UnknownArgument);
        let help = parse("orchestrate hosts --help").unwrap_err().to_string();
        assert!(help.contains("decommission"), "{help}");
    }
}
