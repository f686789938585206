//! Completion of words, by bash, zsh and fish themselves, with names from a store.

use schema::codec;
use schema::records::RosterEntry;
use schema::time::EpochSeconds;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use tests::etcd::Etcd;
use tests::host::CommandOutput;
use tests::process::{binary, run};
use tests::proxy::Proxy;
use tests::wait;

const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];
const NOWHERE: &str = "http://127.0.0.1:1";

/// A user with a home of its own and the completion scripts as the package installs them.
struct User {
    home: tempfile::TempDir,
    endpoint: String,
}

impl User {
    fn new(endpoint: &str) -> Self {
        let user = Self { home: tempfile::tempdir().expect("a directory"), endpoint: endpoint.to_owned() };
        for (shell, file) in
            [("bash", "orchestrate.bash"), ("zsh", "_orchestrate"), ("fish", "orchestrate.fish")]
        {
            let result: CommandOutput = run(
                user.command(binary("orchestrate").to_str().expect("a path")).args(["completion", shell]),
                "",
            )
            .into();
            assert_eq!((result.code, result.err.as_str()), (0, ""), "{shell}");
            std::fs::write(user.path(file), result.out).expect("written");
        }
        user
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.home.path().join(name)
    }

    /// Returns a command in the environment of the user.
    fn command(&self, program: &str) -> Command {
        let programs = binary("orchestrate").parent().expect("a directory").to_owned();
        let mut command = Command::new(program);
        command
            .env_clear()
            .current_dir(self.home.path())
            .env("HOME", self.home.path())
            .env("PATH", format!("{}:/usr/bin:/bin", programs.display()))
            .env("LC_ALL", "C.UTF-8")
            .env("TERM", "dumb");
        if !self.endpoint.is_empty() {
            command.env("ORCHESTRATE_ENDPOINTS", &self.endpoint);
        }
        command
    }

    /// Returns the words that a shell offers for the end of a line.
    fn completed(&self, shell: &str, line: &str) -> BTreeSet<String> {
        let directory = self.home.path().display().to_string();
        let script = match shell {
            "bash" => BASH,
            "zsh" => ZSH,
            _ => FISH,
        };
        let mut command = self.command(shell);
        command.args(if shell == "zsh" { &["-f"][..] } else { &[] });
        command.arg("-c").arg(script.replace("@HOME", &directory).replace("@LINE", line));
        let output = run(&mut command, "");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.stderr.is_empty(), "{shell} {line:?}: {output:?}");
        // zsh and fish show the help of a word beside it.
        let words = text.lines().filter_map(|line| line.split(['\t', ' ']).next());
        words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
    }

    /// Asserts that all shells offer exactly these words.
    fn assert_completed(&self, line: &str, expected: &[&str]) {
        let expected: BTreeSet<String> = expected.iter().map(|word| (*word).to_owned()).collect();
        for shell in SHELLS {
            let found = || self.completed(shell, line);
            if expected.is_empty() {
                assert_eq!(found(), expected, "{shell}: {line:?}");
                continue;
            }
            // Completion gives up on a store after half a second. On a slow machine it is asked again.
            let what = format!("{shell} completes {line:?} with {expected:?}");
            wait::until(&what, || (found() == expected).then_some(()), || format!("{:?}", found()));
        }
    }
}

/// Splits the line as readline does, calls the function that is registered for the command, and
/// prints its answer.
const BASH: &str = r#"
source @HOME/orchestrate.bash
COMP_LINE='@LINE' COMP_POINT=${#COMP_LINE} COMP_TYPE=9
words=$(sed -E 's/([=:])/ \1 /g' <<<"$COMP_LINE")
read -ra COMP_WORDS <<<"$words"
[[ $COMP_LINE == *' ' ]] && COMP_WORDS+=('')
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
last=${COMP_WORDS[COMP_CWORD]}
[[ $last == [=:] ]] && last=''
spec=$(complete -p orchestrate)
function=${spec##*-F } function=${function%% *}
$function orchestrate "$last" "${COMP_WORDS[COMP_CWORD-1]}"
for word in "${COMPREPLY[@]}"; do echo "$word"; done
"#;

/// A zsh in a pseudo-terminal, in which the line is typed and completed. What the completion system
/// is given by the function goes to a file.
const ZSH: &str = r#"
zmodload zsh/zpty
zpty shell TERM=dumb zsh -f -i
zpty -w shell "PS1=; PROMPT=; unsetopt zle_bracketed_paste; fpath=(@HOME \$fpath); autoload -Uz compinit; compinit -u -d @HOME/dump"
zpty -w shell "compadd() { builtin compadd -O shown \"\$@\"; print -rl -- \$shown >> @HOME/found; builtin compadd \"\$@\" }"
zpty -w shell "done-completing() { print -r -- end >> @HOME/found }; zle -N done-completing; bindkey '^X' done-completing; print read''y"
zpty -r -m shell seen '*ready*'
: > @HOME/found
zpty -w -n shell '@LINE'$'\t'$'\x18'
for ((i = 0; i < 100; i++)); do
    [[ $(tail -n 1 @HOME/found) == end ]] && break
    sleep 0.1
done
[[ $(tail -n 1 @HOME/found) == end ]] || print -u2 'the shell did not answer'
zpty -d shell
grep -v '^end$' @HOME/found
true
"#;

/// The words that fish would show.
const FISH: &str = r"
source @HOME/orchestrate.fish
complete -C'@LINE'
";

/// Puts a fleet into the store: three hosts on the roster, of which one is gone and one has no
/// service, and a listed host that is not on the roster.
fn fill(etcd: &Etcd) {
    let store = etcd.store();
    let on_roster = |out: Option<i64>| {
        let entry = RosterEntry {
            since: EpochSeconds(1),
            decommissioned: out.map(EpochSeconds),
            ..RosterEntry::default()
        };
        codec::write(&entry)
    };
    for (host, out) in [("lb-1", None), ("web-1", None), ("old-1", Some(5))] {
        store.put(&format!("/orchestrate/hosts/{host}"), &on_roster(out));
    }
    store.put("/current_version", "v43");
    store.put("/running_version/v42/web-1", "");
    store.put("/running_version/v42/db-1", "");
    store.put("/available_services/web/web-1", r#"{"addresses": ["10.0.0.1"]}"#);
    store.put("/available_services/mysql/db-1", r#"{"addresses": ["10.0.0.2"]}"#);
}

#[test]
fn hosts_versions_and_services_are_completed_in_every_shell_from_the_store() {
    let etcd = Etcd::single();
    fill(&etcd);
    let user = User::new(&etcd.endpoint(0));
    user.assert_completed("orchestrate why ", &["db-1", "lb-1", "web-1"]);
    user.assert_completed("orchestrate why l", &["lb-1"]);
    user.assert_completed("orchestrate verify_hosts v43 web-1 d", &["db-1"]);
    user.assert_completed("orchestrate trigger_update ", &["v42", "v43"]);
    user.assert_completed("orchestrate rollout rollback --to ", &["v42", "v43"]);
    user.assert_completed("orchestrate wait_for ", &["mysql", "web"]);
    user.assert_completed("orchestrate maintenance on web-1 --service m", &["mysql"]);
    user.assert_completed("orchestrate wait_for web --level ", &["addressable", "functional"]);
    user.assert_completed("orchestrate manage_config ", &["state", "version"]);
}

#[test]
fn a_store_named_in_the_line_is_the_one_that_is_asked() {
    let etcd = Etcd::single();
    fill(&etcd);
    let user = User::new("");
    let endpoint = etcd.endpoint(0);
    user.assert_completed(&format!("orchestrate --endpoints {endpoint} why w"), &["web-1"]);
    user.assert_completed(&format!("orchestrate why --endpoints={endpoint} w"), &["web-1"]);
    user.assert_completed(&format!("orchestrate --endpoints {endpoint} --namespace /other why w"), &[]);
}

#[test]
fn a_store_with_users_gives_names_to_those_who_may_read_them() {
    let etcd = Etcd::single_real();
    fill(&etcd);
    for arguments in ["user add root:canary", "user grant-role root root", "auth enable"] {
        etcd.etcdctl(&arguments.split(' ').collect::<Vec<_>>(), "");
    }
    let user = User::new(&etcd.endpoint(0));
    let completed = |credentials: Option<&str>| {
        let mut ask = user.command(binary("orchestrate").to_str().expect("a path"));
        ask.env("_ORCHESTRATE_COMPLETE", "fish").args(["--", "orchestrate", "why", "w"]);
        ask.envs(credentials.map(|text| ("ORCHESTRATE_USER", text)));
        let result: CommandOutput = run(&mut ask, "").into();
        assert_eq!((result.code, result.err.as_str()), (0, ""), "{credentials:?}");
        result.out.trim().to_owned()
    };
    assert_eq!(completed(None), "");
    assert_eq!(completed(Some("root:wrong")), "");
    assert_eq!(completed(Some("root")), "", "a user without a password");
    let names = || Some(completed(Some("root:canary"))).filter(|names| !names.is_empty());
    assert_eq!(wait::until("names are offered", names, String::new), "web-1");
    assert_eq!(completed(None), "", "what one user may read is not kept for others");
    let kept = std::fs::read_dir(user.path(".cache/orchestrate")).expect("a directory").flatten();
    let kept: Vec<(String, String)> = kept
        .map(|file| (format!("{:?}", file.file_name()), std::fs::read_to_string(file.path()).expect("text")))
        .collect();
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert!(!format!("{kept:?}").contains("canary"), "{kept:?}");
}

#[test]
fn options_of_the_store_are_offered_only_if_they_are_begun() {
    let user = User::new(NOWHERE);
    let expected = ["--canary", "--budget", "--max", "--require-settled", "--reason", "--output", "--help"];
    for shell in SHELLS {
        let found = user.completed(shell, "orchestrate trigger_update --");
        assert!(expected.iter().all(|option| found.contains(*option)), "{shell}: {found:?}");
        assert!(!found.iter().any(|o| o.starts_with("--endpoints") || o == "--cacert"), "{shell}: {found:?}");
        let verbs = user.completed(shell, "orchestrate ho");
        assert!(verbs.is_superset(&BTreeSet::from(["hosts".into(), "hosts_at_version".into()])), "{verbs:?}");
        let begun = user.completed(shell, "orchestrate trigger_update --cac");
        assert_eq!(begun, BTreeSet::from(["--cacert".into()]), "{shell}");
    }
}

#[test]
fn without_a_store_or_without_its_answer_there_are_soon_no_names_and_no_message() {
    let user = User::new(NOWHERE);
    user.assert_completed("orchestrate why ", &[]);
    // It accepts the connection and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent = format!("http://{}", silent.local_addr().expect("its address"));
    for endpoint in [NOWHERE, silent.as_str(), "http://no-such-host.invalid:2379", "", "half a name"] {
        let user = User::new(endpoint);
        let before = Instant::now();
        let mut ask = user.command(binary("orchestrate").to_str().expect("a path"));
        ask.env("_ORCHESTRATE_COMPLETE", "fish").args(["--", "orchestrate", "why", ""]);
        let result: CommandOutput = run(&mut ask, "").into();
        let took = before.elapsed();
        assert_eq!((result.code, result.err.as_str()), (0, ""), "{endpoint}");
        assert_eq!(result.out.trim(), "", "{endpoint}");
        // The commands themselves would wait for 10 s.
        assert!(took < Duration::from_secs(8), "{endpoint}: {took:?}");
    }
    // The variable alone does not request a completion.
    let mut verb = user.command(binary("orchestrate").to_str().expect("a path"));
    let result: CommandOutput =
        run(verb.args(["trigger_update"]).env("_ORCHESTRATE_COMPLETE", ""), "").into();
    assert_eq!(result.code, 64, "{result:?}");
}

#[test]
fn names_are_kept_for_some_seconds_in_a_directory_of_the_user() {
    let etcd = Etcd::single();
    fill(&etcd);
    let proxy = Proxy::start(&etcd.endpoint(0));
    let user = User::new(&proxy.endpoint());
    let ask = || user.completed("bash", "orchestrate why ");
    let ask_for = |name: &str| {
        let found = || Some(ask()).filter(|names| names.contains(name));
        wait::until(&format!("{name} is offered"), found, || format!("{:?}", ask()))
    };
    let first = ask_for("lb-1");
    let requests = proxy.accepted();
    assert!(requests > 0, "{first:?}");
    assert_eq!(ask(), first);
    assert_eq!(proxy.accepted(), requests, "the second answer is the one that was kept");
    let directory = user.path(".cache/orchestrate");
    let mode = |path: &Path| std::os::unix::fs::MetadataExt::mode(&path.metadata().expect("there")) & 0o777;
    assert_eq!(mode(&directory), 0o700);
    for file in directory.read_dir().expect("a directory").flatten() {
        assert_eq!(mode(&file.path()), 0o600);
        // The time is over.
        let old = std::time::SystemTime::now() - Duration::from_secs(11);
        std::fs::File::open(file.path()).expect("a file").set_modified(old).expect("set");
    }
    etcd.store().put("/running_version/v42/new-1", "");
    ask_for("new-1");
    assert!(proxy.accepted() > requests);
}

#[test]
fn completion_scripts_are_read_by_their_shell() {
    let user = User::new(NOWHERE);
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let mut command = user.command(binary("orchestrate").to_str().expect("a path"));
        let result: CommandOutput = run(command.args(["completion", shell]), "").into();
        assert_eq!((result.code, result.err.as_str()), (0, ""), "{shell}");
        let script = user.path(shell);
        std::fs::write(&script, &result.out).expect("written");
        if SHELLS.contains(&shell) {
            let output = Command::new(shell).arg("-n").arg(&script).output().expect(shell);
            assert!(output.status.success(), "{shell}: {output:?}");
        }
    }
}
