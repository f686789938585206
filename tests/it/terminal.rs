//! What people see in a real terminal: one of tmux, of a given size.

use std::cell::Cell;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use tests::etcd::Etcd;
use tests::process::{binary, run};
use tests::wait;

/// A terminal in which a shell runs.
struct Terminal<'a> {
    directory: &'a Path,
    /// Number of commands that were run. It is in the prompt, so that a new one differs.
    commands: Cell<u32>,
}

impl<'a> Terminal<'a> {
    fn start(directory: &'a Path, (columns, rows): (u16, u16), environment: &[(&str, &str)]) -> Self {
        let terminal = Self { directory, commands: Cell::new(0) };
        let mut command = terminal.tmux();
        let (columns, rows) = (columns.to_string(), rows.to_string());
        command.args(["-f", "/dev/null", "new-session", "-d", "-x", &columns, "-y", &rows]);
        for (name, value) in environment {
            command.args(["-e", &format!("{name}={value}")]);
        }
        command.args(["-e", "LC_ALL=C.UTF-8", "/bin/sh"]);
        let output = run(&mut command, "");
        assert!(output.status.success(), "{output:?}");
        terminal
    }

    fn tmux(&self) -> Command {
        let mut command = Command::new("tmux");
        command.arg("-u").arg("-S").arg(self.directory.join("tmux"));
        command
    }

    /// Types a line, or presses a key such as `C-c`.
    fn press(&self, key: &str) {
        let keys: &[&str] = if key.starts_with("C-") { &[key] } else { &[key, "Enter"] };
        let output = run(self.tmux().arg("send-keys").args(keys), "");
        assert!(output.status.success(), "{output:?}");
    }

    /// Returns the screen as it is seen, without the lines below.
    fn screen(&self) -> String {
        let output = run(self.tmux().args(["capture-pane", "-p"]), "");
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// Returns everything that was shown, with the codes for colours, and lines joined that were broken.
    fn history(&self) -> String {
        let output = run(self.tmux().args(["capture-pane", "-p", "-e", "-J", "-S", "-"]), "");
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// Runs a command and returns the screen when it has ended, with its exit code in the last line.
    fn screen_after(&self, line: &str) -> String {
        self.commands.set(self.commands.get() + 1);
        let prompt = format!("{}#", self.commands.get());
        self.press(&format!("clear; PS1='{prompt} '"));
        // What is typed before the shell has cleared the screen is cleared too, and the output follows the prompt.
        let is_clear = || (self.screen().trim() == prompt).then_some(());
        wait::until("the screen is clear", is_clear, || self.history());
        self.press(&format!("{line}; echo \"ended with $?\""));
        // What was typed has no number there.
        let has_ended = |line: &str| {
            let code = line.split_once("ended with ");
            code.is_some_and(|(_, code)| code.starts_with(|c: char| c.is_ascii_digit()))
        };
        let look = || self.screen().lines().any(has_ended).then_some(());
        wait::until("the command ends", look, || self.history());
        self.screen()
    }

    fn wait_for(&self, part: &str) {
        let look = || self.screen().contains(part).then_some(());
        wait::until(&format!("the terminal shows {part:?}"), look, || self.history());
    }
}

impl Drop for Terminal<'_> {
    fn drop(&mut self) {
        run(self.tmux().arg("kill-server"), "");
    }
}

/// Fills a store with hosts of which some fail, with long reasons and marks that turn text around.
fn fill(etcd: &Etcd) {
    let store = etcd.store();
    store.put("/current_version", "7");
    for number in 1..=14 {
        store.put(&format!("/orchestrate/hosts/web-{number}"), r#"{"since":1416300000,"role":"web"}"#);
        store.put(&format!("/running_version/7/web-{number}"), "1");
        store.put(&format!("/orchestrate/announced/web-{number}"), "7");
        // Each has a reason of its own, so that the table of causes is long.
        let reason = format!("package number {number} of a rather long list of packages cannot be installed");
        let record = format!(r#"{{"at":1416300000,"code":1,"reason":"{reason} \u202egnorw\u200b"}}"#);
        if number > 2 {
            store.put(&format!("/status/validation/failed/web-{number}"), &record);
        }
    }
}

#[test]
fn answers_fit_the_terminal_and_are_whole_where_there_is_none() {
    let etcd = Etcd::single();
    fill(&etcd);
    let program = binary("orchestrate").display().to_string();
    let endpoint = etcd.endpoint(0);
    let common = [("ORCHESTRATE_ENDPOINTS", endpoint.as_str()), ("ORCHESTRATE_HOSTNAME", "web-1")];
    let check = |(columns, rows): (u16, u16), line: &str, wanted: &[&str], unwanted: &[&str]| {
        let directory = tempfile::tempdir().expect("a directory");
        let terminal = Terminal::start(directory.path(), (columns, rows), &common);
        let screen = terminal.screen_after(&line.replace("orchestrate", &program));
        let mut wrong = String::new();
        for part in wanted.iter().filter(|part| !screen.contains(**part)) {
            let _ = writeln!(wrong, "it lacks {part:?}");
        }
        for part in unwanted.iter().filter(|part| screen.contains(**part)) {
            let _ = writeln!(wrong, "it has {part:?}");
        }
        assert!(wrong.is_empty(), "{line} at {columns} columns:\n{wrong}\n{screen}");
    };
    // Each answer begins with its first line: nothing was scrolled away.
    let summary = ["fleet: failing", "hosts: 14 (12 failed, 2 ok)", "ended with 1"];
    check(
        (80, 24),
        "orchestrate status",
        &[&summary[..], &["web-3", "…", "and 3 more"]].concat(),
        &["web-9"],
    );
    check(
        (200, 40),
        "orchestrate status",
        &[&summary[..], &["be installed \u{fffd}gnorw\u{fffd}"]].concat(),
        &["…"],
    );
    check(
        (60, 24),
        "orchestrate hosts --verdict failed",
        &["HOST", "web-3 ", "web-14 ", "…"],
        &["installed"],
    );
    check((200, 24), "orchestrate hosts --verdict failed", &["installed \u{fffd}gnorw\u{fffd}"], &["…"]);
    // A pipe has no width, so nothing is cut.
    check((80, 60), "orchestrate status | cat", &["be installed", "web-14", "ended with 0"], &["…", "more"]);
    check((80, 24), "orchestrate hosts | head -n 1", &["HOST", "ended with 0"], &["error", "panicked"]);
    // The old verbs print what scripts read, in a terminal too.
    check((40, 24), "orchestrate running_versions", &["7", "ended with 0"], &["…"]);
}

#[test]
fn a_wide_character_does_not_break_the_columns() {
    let etcd = Etcd::single();
    let store = etcd.store();
    for (host, label) in [("a", "東京"), ("b", "x")] {
        let entry = format!(r#"{{"since":1416300000,"labels":{{"at":"{label}"}}}}"#);
        store.put(&format!("/orchestrate/hosts/{host}"), &entry);
    }
    let directory = tempfile::tempdir().expect("a directory");
    let endpoint = etcd.endpoint(0);
    let terminal = Terminal::start(directory.path(), (120, 20), &[("ORCHESTRATE_ENDPOINTS", &endpoint)]);
    let screen = terminal.screen_after(&format!("{} hosts --wide", binary("orchestrate").display()));
    // The column of a part of a line as the terminal shows it: tmux gives two cells to each of these characters.
    let column = |line: &str, part: &str| {
        let before = &line[..line.find(part).unwrap_or_else(|| panic!("{part} in {screen}"))];
        before.chars().map(|c| if c.is_ascii() { 1 } else { 2 }).sum::<usize>()
    };
    let lines: Vec<&str> =
        screen.lines().filter(|line| line.contains("at=") || line.contains("VERDICT")).collect();
    let columns: Vec<usize> =
        lines.iter().zip(["VERDICT", "lost", "lost"]).map(|(line, part)| column(line, part)).collect();
    assert!(columns.len() == 3 && columns.iter().all(|at| *at == columns[0]), "{columns:?}\n{screen}");
}

#[test]
fn nothing_is_coloured_if_nobody_wants_colours() {
    let program = binary("orchestrate").display().to_string();
    for (environment, has_colours) in [(&[][..], true), (&[("NO_COLOR", "1")][..], false)] {
        let directory = tempfile::tempdir().expect("a directory");
        let terminal = Terminal::start(directory.path(), (100, 50), environment);
        terminal.screen_after(&format!("{program} ping --no-such-option; {program} help ping"));
        let history = terminal.history();
        assert!(history.contains("no-such-option") && history.contains("Usage"), "{history}");
        assert_eq!(history.contains('\u{1b}'), has_colours, "{environment:?}: {history:?}");
    }
}

#[test]
fn an_interrupt_ends_what_waits_and_says_what_is_known() {
    let etcd = Etcd::single();
    fill(&etcd);
    let directory = tempfile::tempdir().expect("a directory");
    let endpoint = etcd.endpoint(0);
    let terminal = Terminal::start(directory.path(), (100, 30), &[("ORCHESTRATE_ENDPOINTS", &endpoint)]);
    let program = binary("orchestrate").display().to_string();
    for (line, begun, shown) in [
        ("status --watch", "fleet: failing", "fleet: failing"),
        ("verify_hosts 8 web-1 web-2 --wait 5m --wait-anyway", "0/2 hosts", "not at 8 (2): web-1 web-2"),
    ] {
        terminal.press("clear");
        terminal.press(&format!("{program} {line}"));
        match begun {
            "" => wait::until(
                "the bar is shown",
                || terminal.screen().contains("0/2").then_some(()),
                || terminal.history(),
            ),
            begun => terminal.wait_for(begun),
        }
        terminal.press("C-c");
        // What is typed before the command has ended stands in the line that it wants to remove.
        terminal.wait_for(shown);
        // The shell leaves out what follows on the line of a command that was interrupted.
        terminal.press("echo \"ended with $?\"");
        terminal.wait_for("ended with 130");
        let screen = terminal.screen();
        assert!(screen.contains(shown), "{line}:\n{screen}");
        // Nothing is left of the line that showed the progress.
        assert!(!screen.contains("0/2 "), "{line}:\n{screen}");
    }
}
