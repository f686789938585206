//! What is wrong in settings is found before the agent starts: all of it at once, each with file, line
//! and setting, and in words of the settings file.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use tests::host::CommandOutput;
use tests::process::{binary, run};

fn check_config(directory: &Path, environment: &[(&str, &str)]) -> CommandOutput {
    let mut command = Command::new(binary("orchestrate-agent"));
    command.env_clear().envs(environment.iter().copied()).arg("--check-config");
    run(command.arg("--config").arg(directory.join("agent.toml")), "").into()
}

fn lint(paths: &[&Path]) -> CommandOutput {
    run(Command::new(binary("orchestrate")).env_clear().arg("lint").args(paths), "").into()
}

/// Returns a directory with these files, each by its name.
fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    for (name, text) in files {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(path, text).expect("written");
    }
    directory
}

/// Words that parsers say about their types.
const PARSER_WORDS: [&str; 8] =
    ["untagged", "Fragment", "invalid type", "invalid value", "expected", "syntax", "u16", "target type"];

/// Checks what `--check-config` and `lint` say of these settings: the severity, or that they are fine, and the
/// words behind the name of the file. `DIR` is the directory of the settings.
#[track_caller]
fn check(settings: &str, by_agent: Result<&str, &str>, by_lint: Result<&str, &str>) {
    let directory = directory(&[("plain", "")]);
    let at = directory.path().display().to_string();
    fs::write(directory.path().join("agent.toml"), settings.replace("DIR", &at)).expect("written");
    let words = |words: &str| words.replace("DIR", &at);
    let agent = check_config(directory.path(), &[]);
    let linted = lint(&[&directory.path().join("agent.toml")]);
    for (who, code, printed, expected) in
        [("agent", agent.code, &agent.err, by_agent), ("lint", linted.code, &linted.out, by_lint)]
    {
        let (expected_code, mark, message) = match expected {
            Ok("") => (0, "", String::new()),
            Ok(warning) => (0, "warning: ", words(warning)),
            Err(error) => (1, if who == "lint" { "error: " } else { "" }, words(error)),
        };
        assert_eq!(code, expected_code, "{who} {settings}: {printed}");
        let prefix = if who == "agent" { "orchestrate-agent: " } else { "" };
        let line = format!("{prefix}{mark}{at}/agent.toml:{message}");
        let is_said = message.is_empty() || printed.lines().any(|found| found.starts_with(&line));
        assert!(is_said, "{who} does not say\n{line}\nbut\n{printed}");
        let leaked = PARSER_WORDS.iter().find(|word| printed.contains(*word));
        assert_eq!(leaked, None, "{who} {settings}: {printed}");
    }
}

#[test]
fn an_object_store_that_cannot_be_used_is_refused_by_lint_check_and_start() {
    for (to, endpoint, part) in [
        ("s3://bucket/prod env", "https://s3.example.org", "the prefix of the URL cannot be used"),
        ("s3://bucket/prod", "ftp://s3.example.org", "must be https://HOST"),
        ("ftp://bucket", "https://s3.example.org", "s3://BUCKET/PREFIX"),
    ] {
        let text = format!(
            "[bundles]\nto = {to:?}\nendpoint = {endpoint:?}\ncredentials = \"/etc/orchestrate/key\"\n"
        );
        let directory = directory(&[("agent.toml", &text)]);
        let file = directory.path().join("agent.toml");
        let (checked, linted) = (check_config(directory.path(), &[]), lint(&[&file]));
        let mut start = Command::new(binary("orchestrate-agent"));
        let started: CommandOutput = run(start.env_clear().arg("--config").arg(&file), "").into();
        for (code, printed, expected) in
            [(checked.code, &checked.err, 1), (linted.code, &linted.out, 1), (started.code, &started.err, 64)]
        {
            assert!(code == expected && printed.contains(part), "{to}: {code}: {printed}");
        }
    }
}

#[test]
fn every_mistake_is_found_before_the_agent_starts() {
    let both = |settings: &str, error: &str| check(settings, Err(error), Err(error));
    // Values without sense.
    both("[store]\nendpoints = []\n", "2: store.endpoints: the list is empty");
    both("[store]\nendpoints = [\"ftp://x\"]\n", "2: store.endpoints: \"ftp://x\" begins with neither");
    both("[store]\nendpoints = [\"\"]\n", "2: store.endpoints: \"\" must be a host and a port");
    both("[log]\nlevel = \"loud\"\n", "2: log.level: must be \"error\", \"warn\"");
    both(
        "[attempts]\nbackoff_min = \"1h\"\nbackoff_max = \"1m\"\n",
        "2: attempts.backoff_min: backoff_min is 1h and backoff_max is 1m",
    );
    let step = |more: &str| format!("[[apply]]\nname = \"a\"\ncommand = [\"/bin/true\"]\n{more}\n");
    both(&step("done_codes = [999]"), "4: apply.done_codes: 999 is no exit code: they are from 0 to 255");
    // Values of another type.
    both(
        &step("timeout = 5"),
        "4: apply.timeout: must be a duration in quotes with a unit, as in \"30s\", not 5",
    );
    both("[http]\nlisten = \"localhost:8580\"\n", "2: http.listen: must be an IP address with a port");
    both(
        "[store]\ndiscovery_port = 99999\n",
        "2: store.discovery_port: must be a whole number from 0 to 65535",
    );
    both(
        "[[requires]]\nservice = \"db\"\nphase = \"apply\"\ncount = -1\n",
        "4: requires.count: must be a whole number, 0 or more, or \"all\", not -1",
    );
    both("rol = 1\n", "1: unknown setting `rol`; did you mean `role`?");
    both("[log]\nzzz = 1\n", "2: unknown setting `zzz`; here can stand `level`, `format`");
    // Programs: one that is missing may still be installed, one that would be refused is an error.
    let program = |path: &str| format!("[[apply]]\nname = \"a\"\ncommand = [\"{path}\"]\n");
    check(
        &program("DIR/none"),
        Ok("3: apply.command: DIR/none does not exist: it cannot run until something installs it"),
        Ok("3: apply.command: DIR/none is not on this machine"),
    );
    let plain = "3: apply.command: DIR/plain is not executable";
    check(&program("DIR/plain"), Err(plain), Ok(plain));
    // Files.
    check(
        "[[template]]\nsource = \"DIR/none\"\ntarget = \"DIR/x\"\n",
        Ok("2: template.source: DIR/none does not exist: it counts for nothing until it does"),
        Ok("2: template.source: DIR/none is not on this machine"),
    );
    for (setting, other) in
        [("cacert", ""), ("cert", "key = \"DIR/plain\"\n"), ("key", "cert = \"DIR/plain\"\n")]
    {
        let settings = format!("[store]\n{setting} = \"DIR/none\"\n{other}");
        let missing = format!("2: store.{setting}: ");
        let elsewhere = format!("2: store.{setting}: DIR/none is not on this machine");
        check(&settings, Err(&missing), Ok(&elsewhere));
    }
    check(
        "[store]\nendpoints_file = \"DIR/none\"\n",
        Err("2: store.endpoints_file: DIR/none does not exist"),
        Ok("2: store.endpoints_file: DIR/none is not on this machine"),
    );
    // The object store. What only the host knows is not for lint.
    check(
        "[bundles]\nto = \"ftp://x\"\n",
        Err("2: bundles.to: the URL of an object store is s3://BUCKET/PREFIX or file:///ABSOLUTE/"),
        Err("2: bundles.to: the URL of an object store is s3://BUCKET/PREFIX or file:///ABSOLUTE/"),
    );
    let bucket = "[bundles]\nto = \"s3://bundles/prod\"\nendpoint = \"https://s3.example.org\"\n";
    let incomplete = "2: bundles.to: a bucket needs the settings `endpoint` and `credentials`";
    check(bucket, Err(incomplete), Err(incomplete));
    check(
        &format!("{bucket}credentials = \"DIR/none\"\n"),
        Err("4: bundles.credentials: DIR/none: No such file"),
        Ok(""),
    );
    check("role = \"web\"\n", Ok(""), Ok(""));
}

#[test]
fn the_mistakes_of_all_files_are_named_at_once() {
    let directory = directory(&[
        ("agent.toml", "[log]\nlevel = \"loud\"\n[store]\ncacert = \"/none\"\n"),
        (
            "agent.d/10-a.toml",
            "[[apply]]\nname = \"a\"\ncommand = [\"/none/a\"]\ntimeout = 5\ndone_codes = [999]\n",
        ),
        ("agent.d/20-b.toml", "nonsense\n"),
        (
            "services.d/web.toml",
            "[[service]]\nname = \"web\"\nport = 0\n[[service.check]]\ntcp = \"x\"\ninterval = 5\n",
        ),
    ]);
    let at = directory.path().display().to_string();
    let expected = [
        "agent.toml:2: log.level: ",
        "agent.toml:4: store.cacert: ",
        "agent.d/10-a.toml:3: apply.command: /none/a ",
        "agent.d/10-a.toml:4: apply.timeout: ",
        "agent.d/10-a.toml:5: apply.done_codes: ",
        "agent.d/20-b.toml:1: this is not TOML: ",
    ];
    let agent = check_config(directory.path(), &[]);
    let linted = lint(&[directory.path()]);
    assert_eq!((agent.code, linted.code), (1, 1), "{agent:?} {linted:?}");
    for (printed, more) in [
        (agent.err, &[][..]),
        (
            linted.out,
            &[
                "services.d/web.toml:3: service web: 0 is no port: 1 to 65535",
                "services.d/web.toml:5: service web: check service:web: tcp must be of the form host:port",
                "services.d/web.toml:6: service.check.interval: must be a duration in quotes with a unit",
            ],
        ),
    ] {
        for part in expected.iter().chain(more) {
            let line = format!("{at}/{part}");
            assert!(printed.contains(&line), "{line} is missing:\n{printed}");
        }
    }
    // The agent itself says the same when it starts.
    let mut command = Command::new(binary("orchestrate-agent"));
    let path = directory.path().join("agent.toml");
    let started = CommandOutput::from(run(command.env_clear().arg("--config").arg(path), ""));
    assert_eq!((started.code, started.err.lines().count()), (64, 4), "{started:?}");
}

#[test]
fn right_settings_are_called_right_with_the_files_that_were_read_and_the_variables_that_override_them() {
    let directory = directory(&[
        ("agent.toml", "[store]\nendpoints = [\"a:1\"]\n"),
        ("agent.d/role.toml", "role = \"web\"\n"),
    ]);
    let at = directory.path().display();
    let result = check_config(directory.path(), &[]);
    let valid =
        format!("orchestrate-agent: the settings are valid; read: {at}/agent.toml, {at}/agent.d/role.toml\n");
    assert_eq!((result.code, result.out.as_str(), result.err.as_str()), (0, "", valid.as_str()));
    let state = [("ORCHESTRATE_STATE_DIR", "/s"), ("ETCDCTL_ENDPOINTS", "b:1"), ("ORCHESTRATE_LOG", "debug")];
    let result = check_config(directory.path(), &state);
    for note in [
        format!("the variable ETCDCTL_ENDPOINTS takes precedence over store.endpoints in {at}/agent.toml:2"),
        "the variable ORCHESTRATE_STATE_DIR sets state_directory".to_owned(),
        "the variable ORCHESTRATE_LOG sets log.level".to_owned(),
    ] {
        assert!(result.err.contains(&format!("orchestrate-agent: note: {note}\n")), "{note}: {result:?}");
    }
    assert_eq!(result.code, 0);
}

#[test]
fn a_path_without_settings_is_no_green_result() {
    let empty = tempfile::tempdir().expect("a directory");
    for (path, expected) in [
        (Path::new("/etc"), "there is no agent.toml, agent.d/*.toml or services.d/* in this directory"),
        (empty.path(), "there is no agent.toml, agent.d/*.toml or services.d/* in this directory"),
        (Path::new("/dev/null"), "not a regular file"),
        (Path::new("/nonexistent"), "no such file"),
    ] {
        let result = lint(&[path]);
        let line = format!("error: {}: {expected}\n", path.display());
        assert_eq!((result.code, result.out.as_str()), (1, line.as_str()), "{result:?}");
    }
}

#[test]
fn a_number_of_an_option_is_refused_in_plain_words() {
    for (number, expected) in [
        ("99999999999999999999999", "the number is too large"),
        ("-1", "\"-1\" is not a whole number, 0 or more"),
        ("many", "\"many\" is not a whole number, 0 or more"),
    ] {
        let mut command = Command::new(binary("orchestrate"));
        let count = format!("--count={number}");
        let result = CommandOutput::from(run(command.env_clear().args(["wait_for", "web", &count]), ""));
        assert!(result.code == 64 && result.err.contains(expected), "{result:?}");
    }
}

#[test]
fn a_program_that_the_agent_would_refuse_is_an_error() {
    let directory = directory(&[("open", "#!/bin/sh\n")]);
    let program = directory.path().join("open");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o777)).expect("set");
    let shown = program.display();
    let settings = format!("[[apply]]\nname = \"a\"\ncommand = [\"{shown}\"]\n");
    fs::write(directory.path().join("agent.toml"), settings).expect("written");
    let result = check_config(directory.path(), &[]);
    let expected = format!("agent.toml:3: apply.command: {shown} is writable by others (mode 777)");
    assert!(result.code == 1 && result.err.contains(&expected), "{result:?}");
}

#[test]
fn the_agent_names_the_line_of_a_template_that_cannot_be_read() {
    let directory = directory(&[
        (
            "good.j2",
            "{% macro line(i) %}{{ i.host }}{% endmacro %}{% for i in service('web') %}{{ line(i) }}{% endfor %}",
        ),
        ("broken.j2", "a\n{% if %}\n"),
        ("other.j2", "{% include 'x' %}\n"),
    ]);
    let at = directory.path().display();
    let template =
        |name: &str| format!("[[template]]\nsource = \"{at}/{name}.j2\"\ntarget = \"{at}/{name}.conf\"\n");
    let write = |names: &[&str]| {
        let text: String = names.iter().map(|name| template(name)).collect();
        fs::write(directory.path().join("agent.toml"), text).expect("written");
        check_config(directory.path(), &[])
    };
    let fine = write(&["good"]);
    assert_eq!(fine.code, 0, "{fine:?}");
    let wrong = write(&["good", "broken", "other"]);
    assert_eq!(wrong.code, 1, "{wrong:?}");
    for (line, name, why) in
        [(5, "broken", "line 2: "), (8, "other", "line 1: include: a template is one file")]
    {
        let begin =
            format!("orchestrate-agent: {at}/agent.toml:{line}: template.source: {at}/{name}.j2: {why}");
        assert!(wrong.err.lines().any(|found| found.starts_with(&begin)), "{begin}\n{}", wrong.err);
    }
    assert!(!wrong.err.contains("good"), "{}", wrong.err);
}
