//! What is right and wrong in settings.

use super::{Settings, read};
use schema::records::Driver;
use std::time::Duration;
use toml_reader::SettingsErrors;

fn one(text: &str) -> Result<Settings, SettingsErrors> {
    read(&[("agent.toml".into(), text.into())])
}

fn check_refused(text: &str, expected: &str) {
    let error = one(text).unwrap_err().to_string();
    assert!(error.contains(expected), "{text}\nsaid: {error}\nexpected: {expected}");
}

#[test]
fn no_settings_are_fine() {
    let settings = one("").unwrap();
    assert_eq!(settings.http_listen.to_string(), "127.0.0.1:8580");
    assert_eq!(settings.policy.validate_every, Duration::from_secs(60));
    assert_eq!(settings.policy.driver, Driver::Agent);
}

#[test]
fn a_mistake_has_its_file_its_line_its_setting_and_what_would_be_right() {
    let step = |more: &str| format!("[[apply]]\nname = \"a\"\ncommand = [\"/x\"]\n{more}\n");
    let need = |more: &str| format!("[[requires]]\nservice = \"db\"\nphase = \"apply\"\n{more}\n");
    let duration = "must be a duration in quotes with a unit, as in \"30s\"";
    for (text, expected) in [
        ("role = \"web\"\nvalidaton = 3\n", ":2: unknown setting `validaton`; did you mean `validation`?"),
        ("[store]\nendpoint = []\n", ":2: unknown setting `endpoint`; did you mean `endpoints`?"),
        ("[log]\ncolour = true\n", ":2: unknown setting `colour`; here can stand `level`, `format`"),
        (
            "[[apply]]\nname = \"a\"\ncomand = []\n",
            ":1: apply: the setting `command` is missing; \
          agent.toml:3: unknown setting `comand`; did you mean `command`?",
        ),
        (
            "[validation]\nevery = \"10\"\n",
            ":2: validation.every: \"10\" is not a duration: write a number \
          and a unit each, as in 90s, 1m30s, 500ms, 2h or 1d",
        ),
        ("[validation]\nevery = 5\n", &format!(":2: validation.every: {duration}, not 5")),
        (
            "[http]\nlisten = \"localhost:8580\"\n",
            ":2: http.listen: must be an IP address with a port, as in \
          \"127.0.0.1:8580\", not \"localhost:8580\"",
        ),
        (
            "[store]\ndiscovery_port = 99999\n",
            ":2: store.discovery_port: must be a whole number from 0 to 65535, \
          not 99999",
        ),
        (&need("count = -1"), ":4: requires.count: must be a whole number, 0 or more, or \"all\", not -1"),
        (
            &need("count = \"some\""),
            ":4: requires.count: must be a whole number, 0 or more, or \"all\", not \"some\"",
        ),
        ("driver = \"cron\"\n", ":1: driver: must be \"agent\" or \"external\", not \"cron\""),
        ("driver = 3\n", ":1: driver: must be one of the words of this setting, in quotes, not 3"),
        (
            "\n[store]\nendpoints = []\n",
            ":3: store.endpoints: the list is empty; name one, for example \
          \"http://127.0.0.1:2379\"",
        ),
        (
            "[store]\nnamespace = \"x\"\nendpoints = [\"ftp://x\", \"\"]\n",
            ":2: store.namespace: must be empty or begin \
          with a slash, without a slash at its end, not \"x\"; \
          agent.toml:3: store.endpoints: \"ftp://x\" begins with neither http:// nor https://; \
          agent.toml:3: store.endpoints: \"\" must be a host and a port, as in \"https://etcd-1:2379\"",
        ),
        (&step("done_codes = [999]"), ":4: apply.done_codes: 999 is no exit code: they are from 0 to 255"),
        (
            &step("not_yet_codes = [-1]"),
            ":4: apply.not_yet_codes: -1 is no exit code: they are from 0 to 255",
        ),
        (&step("done_codes = []"), ":4: apply.done_codes: the list is empty: the step could never succeed"),
        (
            "[attempts]\nbackoff_max = \"1m\"\nbackoff_min = \"1h\"\n",
            ":3: attempts.backoff_min: backoff_min is 1h and \
          backoff_max is 1m: the first must not be longer",
        ),
        (
            "[attempts]\nbackoff_max = \"5s\"\n",
            ":2: attempts.backoff_max: backoff_min is 30s and backoff_max is 5s: \
          the first must not be longer",
        ),
        (
            "[log]\nlevel = \"loud\"\n",
            ":2: log.level: must be \"error\", \"warn\", \"info\", \"debug\" or \"trace\", \
          or a filter such as \"info,agent=debug\", not \"loud\"",
        ),
        (&need("step = \"b\""), ":4: requires.step: phase apply has no step b"),
        (
            "[[requires]]\nservice = \"db\"\nphase = \"on_suspect\"\n",
            ":3: requires.phase: must be \"prefetch\", \"apply\", \"converge\" or \"validate\"",
        ),
        (
            "secret_patterns = [\"ok\", \"[0-9\", \"x*\", \"[a-z]{9999}\"]\n",
            ":1: secret_patterns: \"[0-9\" is no regular expression: found unclosed character class; \
          agent.toml:1: secret_patterns: \"x*\" matches the empty text too; describe the whole secret, as in \
          \"ghp_[A-Za-z0-9]{36}\"; agent.toml:1: secret_patterns: \"[a-z]{9999}\" is no regular expression: \
          compiled regex exceeded size limit",
        ),
        ("x = [", ":1: this is not TOML: "),
    ] {
        let error = one(text).unwrap_err().to_string();
        let expected = format!("agent.toml{expected}");
        assert!(
            error == expected || expected.ends_with("TOML: ") && error.starts_with(&expected),
            "{text}\n{error}\n{expected}"
        );
    }
}

#[test]
fn the_mistakes_of_all_files_are_found_at_once_and_none_of_them_causes_another() {
    let check = |texts: &[&str], expected: &[&str]| {
        let fragments: Vec<(String, String)> = texts
            .iter()
            .enumerate()
            .map(|(number, text)| (format!("{number}.toml"), (*text).to_owned()))
            .collect();
        let SettingsErrors(errors) = read(&fragments).unwrap_err();
        let places: Vec<String> = errors
            .iter()
            .map(|e| format!("{}:{} {}", e.file, e.line.unwrap_or_default(), e.setting))
            .collect();
        assert_eq!(places, expected, "{errors:?}");
    };
    check(
        &[
            "[attempts]\nbackoff_min = \"2h\"\nsuspect_after = 0\n[dns]\nttl = 5\n",
            "[[apply]]\nname = \"a\"\ncommand = [\"x\"]\ntimeout = 5\ndone_codes = [300]\n",
            "nonsense",
            "[log]\nlevel = \"loud\"\n",
        ],
        &[
            "0.toml:2 attempts.backoff_min",
            "0.toml:3 attempts.suspect_after",
            "0.toml:5 dns.ttl",
            "1.toml:3 apply.command",
            "1.toml:4 apply.timeout",
            "1.toml:5 apply.done_codes",
            "2.toml:1 ",
            "3.toml:2 log.level",
        ],
    );
    // A step that cannot be read is not missed by what refers to it.
    let needs_a = "[[requires]]\nservice = \"db\"\nphase = \"apply\"\nstep = \"a\"\n";
    check(&["[[apply]]\nname = \"a\"\n", needs_a], &["0.toml:1 apply"]);
    let replaced = "[[apply]]\nname = \"a\"\ncommand = [\"/x\"]\nreplace = true\n";
    check(&["[[apply]]\nname = \"a\"\n", replaced], &["0.toml:1 apply"]);
    check(&["x = [", replaced], &["0.toml:1 "]);
}

#[test]
fn what_cannot_work_together_is_refused() {
    let step = |name: &str, command: &str| format!("[[apply]]\nname = \"{name}\"\ncommand = {command}\n");
    check_refused(&(step("a", "[\"/x\"]") + &step("a", "[\"/y\"]")), "is already defined in agent.toml:1");
    check_refused(&step("a", "[\"x\"]"), "must be an absolute path");
    check_refused(&step("a", "[]"), "the command is empty");
    check_refused(&(step("a", "[\"/x\"]") + "done_codes = [75]\n"), "cannot mean done and not yet");
    check_refused(&step("a", "[\"/x\", \"{version}\"]"), "after \"--\"");
    check_refused(&step("a", "[\"/x\", \"--\", \"v={version}\"]"), "an argument of its own");
    one(&step("a", "[\"/x\", \"--\", \"{version}\"]")).unwrap();
    check_refused("[store]\nendpoints = []\ndiscovery_srv = \"x\"\n", "not several");
    check_refused("state_directory = \"var\"\n", "must be an absolute path");
    check_refused("[attempts]\nsuspect_after = 0\n", "at least 1");
    check_refused("[store]\nlive_lease = \"1s\"\n", "at least 2s");
    check_refused("[store]\nlive_lease = \"2500ms\"\n", "whole seconds");
}

#[test]
fn later_fragments_win_and_tables_merge() {
    let settings = read(&[
        ("a".into(), "role = \"web\"\n[store]\nnamespace = \"/x\"\nendpoints = [\"a\", \"b\"]\n".into()),
        ("b".into(), "role = \"db\"\n[store]\nendpoints = [\"c\"]\n".into()),
    ])
    .unwrap();
    assert_eq!(settings.role.unwrap().as_str(), "db");
    assert_eq!(settings.store.namespace, "/x");
    assert_eq!(settings.store.endpoints.unwrap(), ["c"]);
}
