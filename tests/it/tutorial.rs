//! `docs/tutorial.md`: a test takes files, commands and expected output from its text and runs them
//! as they stand on three machines with systemd, each with its own files and its own network.

use crate::service_manager::{Machine, can_boot};
use crate::tarball;
use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag, TagEnd};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tests::network::Network;
use tests::process::{in_own_network, run};
use tests::skip;

/// The machines of the tutorial. Their position is the last number of their address.
const MACHINES: [&str; 3] = ["one", "two", "lb"];

/// What the tutorial says to do, in its order.
#[derive(Debug, PartialEq)]
enum Part {
    File { hosts: Vec<String>, path: String, text: String },
    Command { hosts: Vec<String>, line: String, code: i32, output: Option<String> },
}

/// How the test executes a line of the tutorial.
#[derive(Debug, PartialEq)]
enum Kind {
    /// Changes something, or must have a result the first time.
    Once,
    /// Only reads. Repeated until the output is the one of the tutorial.
    Repeated,
    /// `export`: holds for the later lines on this machine.
    Export,
    /// `apt install`: the machines have the packages of this one, so it must have them.
    Packages(Vec<String>),
}

/// Returns how a line is executed.
///
/// # Errors
/// Returns the reason if the test does not know the program or the verb.
fn kind(line: &str) -> Result<Kind, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        ["export", _] => Ok(Kind::Export),
        ["apt", "install", "-y", packages @ ..] => {
            Ok(Kind::Packages(packages.iter().map(|name| (*name).to_owned()).collect()))
        }
        ["curl" | "dig" | "grep" | "journalctl", ..]
        | ["orchestrate", "hosts" | "logs" | "ping" | "services" | "status" | "why", ..] => {
            Ok(Kind::Repeated)
        }
        ["echo" | "mkdir" | "sha256sum" | "systemctl" | "systemd-sysusers" | "tar", ..]
        | ["orchestrate-agent", "--check-config"]
        | [
            "orchestrate",
            "--version" | "bootstrap" | "drain" | "rollout" | "trigger_update" | "verify_hosts" | "wait_for",
            ..,
        ] => Ok(Kind::Once),
        _ => Err(format!("the test does not know how to run {line:?}")),
    }
}

/// Reads the paragraph above a block: "On `one` and `two`, write `/a/file`:", "On all three machines:"
/// or "On `lb`, with exit code 1:". Returns the machines, the file and the exit code.
fn label(paragraph: &str) -> Option<(Vec<String>, Option<String>, i32)> {
    let text = paragraph.strip_prefix("On ")?.strip_suffix(':')?;
    let (place, rest) = text.split_once(", ").unwrap_or((text, ""));
    let hosts: Vec<String> = if place == "all three machines" {
        MACHINES.map(str::to_owned).to_vec()
    } else {
        place.split(" and ").map(|name| name.trim_matches('`').to_owned()).collect()
    };
    let path = rest.strip_prefix("write `").and_then(|rest| rest.strip_suffix('`')).map(str::to_owned);
    let code = rest.strip_prefix("with exit code ").and_then(|code| code.parse().ok());
    let is_known = hosts.iter().all(|host| MACHINES.contains(&host.as_str()))
        && (rest.is_empty() || path.is_some() || code.is_some());
    is_known.then_some((hosts, path, code.unwrap_or_default()))
}

/// Takes the files, the commands and the expected output from the text.
///
/// # Errors
/// Returns the first block that does not follow the form of the tutorial.
fn parse(text: &str) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    // The paragraph or the code block that is being read, and the last paragraph.
    let (mut current, mut paragraph) = (String::new(), String::new());
    let mut language = String::new();
    for event in Parser::new(text) {
        match event {
            Event::Start(Tag::Paragraph) => current.clear(),
            Event::Start(Tag::CodeBlock(kind)) => {
                let CodeBlockKind::Fenced(info) = kind else { return Err("a block without a fence".into()) };
                language = info.into_string();
                current.clear();
            }
            Event::Text(text) => current += &text,
            Event::Code(text) => _ = write!(current, "`{text}`"),
            Event::SoftBreak => current.push(' '),
            Event::End(TagEnd::Paragraph) => paragraph = std::mem::take(&mut current),
            Event::End(TagEnd::CodeBlock) => {
                add(&mut parts, &language, &paragraph, std::mem::take(&mut current))?;
                // A block of commands or a file needs a label of its own.
                paragraph.clear();
            }
            _ => {}
        }
    }
    Ok(parts)
}

/// Adds what one code block says.
fn add(parts: &mut Vec<Part>, language: &str, paragraph: &str, text: String) -> Result<(), String> {
    if language == "text" {
        return match parts.last_mut() {
            Some(Part::Command { output: output @ None, .. }) => {
                *output = Some(text);
                Ok(())
            }
            _ => Err(format!("no command has this output:\n{text}")),
        };
    }
    let (hosts, path, code) = label(paragraph)
        .ok_or_else(|| format!("{paragraph:?} does not say on which machine this belongs:\n{text}"))?;
    match path {
        Some(path) if ["ini", "jinja", "toml"].contains(&language) => {
            parts.push(Part::File { hosts, path, text });
        }
        None if language == "sh" => {
            for line in text.lines() {
                kind(line)?;
                parts.push(Part::Command { hosts: hosts.clone(), line: line.to_owned(), code, output: None });
            }
        }
        _ => return Err(format!("{language:?} after {paragraph:?}:\n{text}")),
    }
    Ok(())
}

/// Returns a line without what differs from run to run: times, revisions, and the width of columns.
fn normalise(line: &str) -> String {
    let is_time =
        |word: &str| word.trim_end_matches(':').ends_with('Z') && word.as_bytes().get(10) == Some(&b'T');
    let mut before = "";
    let words = line.split_whitespace().map(|word| {
        let is_revision = std::mem::replace(&mut before, word) == "(revision";
        match word {
            _ if is_time(word) => "TIME",
            _ if is_revision => "NUMBER)",
            _ => word,
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

fn is_expected(line: &str, expected: &str) -> bool {
    match expected.strip_suffix(" …") {
        Some(begin) => line.strip_prefix(begin).is_some_and(|rest| rest.is_empty() || rest.starts_with(' ')),
        None => line == expected,
    }
}

/// Checks that an output is the expected one. A line `…` stands for any number of lines, and `…` at the end
/// of a line for the rest of it, which may be empty.
///
/// # Errors
/// Returns the first line that is missing or not expected.
fn compare(expected: &str, output: &str) -> Result<(), String> {
    let mut lines = output.lines().map(normalise).filter(|line| !line.is_empty());
    let mut skips = false;
    for expected in expected.lines().map(normalise).filter(|line| !line.is_empty()) {
        if expected == "…" {
            skips = true;
            continue;
        }
        loop {
            match lines.next() {
                Some(line) if is_expected(&line, &expected) => break,
                Some(_) if skips => {}
                Some(line) => return Err(format!("expected {expected:?}, got {line:?}")),
                None => return Err(format!("the line {expected:?} is missing")),
            }
        }
        skips = false;
    }
    match lines.next() {
        Some(line) if !skips => Err(format!("not expected: {line:?}")),
        _ => Ok(()),
    }
}

/// The three machines, and a record of what was done on them.
struct Fleet {
    machines: BTreeMap<&'static str, Machine>,
    exports: BTreeMap<String, String>,
    record: String,
    record_file: PathBuf,
}

impl Fleet {
    fn note(&mut self, text: &str) {
        self.record += text;
        std::fs::write(&self.record_file, &self.record).expect("the record is written");
    }

    fn fail(&self, host: &str, why: &str) -> ! {
        panic!("{}{host}: {why}\n{}", self.record, self.machines[host].describe());
    }

    /// Runs a line in a shell of root; returns its exit code and everything that it printed.
    fn shell(&self, host: &str, line: &str) -> (i32, String) {
        let exports = self.exports.get(host).map(String::as_str).unwrap_or_default();
        let script = format!("exec 2>&1; cd /root; {exports}\n{line}");
        let environment = ["env", "-i", "HOME=/root", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"];
        let shell = ["bash", "-o", "pipefail", "-c", &script];
        let mut command =
            self.machines[host].enter(&[&environment[..], &shell[..]].concat()).expect("the machine runs");
        let output = run(&mut command, "");
        (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn execute(&mut self, part: &Part) {
        match part {
            Part::File { hosts, path, text } => {
                for host in hosts {
                    self.machines[host.as_str()].write(path, text);
                    self.note(&format!("{host}: wrote {path}\n"));
                }
            }
            Part::Command { hosts, line, code, output } => {
                for host in hosts {
                    self.execute_line(host, line, *code, output.as_deref());
                }
            }
        }
    }

    fn execute_line(&mut self, host: &str, line: &str, code: i32, expected: Option<&str>) {
        let begin = Instant::now();
        let kind = kind(line).expect("known");
        let (line_to_run, deadline) = match &kind {
            Kind::Packages(packages) => (format!("dpkg-query -W {}", packages.join(" ")), begin),
            Kind::Export => {
                *self.exports.entry(host.to_owned()).or_default() += &format!("{line}\n");
                (String::new(), begin)
            }
            Kind::Once => (line.to_owned(), begin),
            Kind::Repeated => (line.to_owned(), begin + Duration::from_secs(20)),
        };
        loop {
            let (actual, output) = self.shell(host, &line_to_run);
            let result = match expected {
                _ if actual != code => Err(format!("the exit code is {actual}, not {code}")),
                Some(expected) => compare(expected, &output),
                None => Ok(()),
            };
            match result {
                Ok(()) => {
                    let seconds = begin.elapsed().as_secs_f64();
                    self.note(&format!("{host}: {line}   # {kind:?}, {seconds:.1} s\n{output}"));
                    return;
                }
                Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(50)),
                Err(why) => self.fail(host, &format!("{line}\n{output}\n{why}")),
            }
        }
    }
}

/// Starts the three machines, with the tarball in `/root` as the tutorial says.
fn machines(tarball: &Path) -> Option<BTreeMap<&'static str, Machine>> {
    let network = Network::new();
    let mut machines = BTreeMap::new();
    for (number, name) in (1..).zip(MACHINES) {
        let mut machine = Machine::new()?;
        machine.write("/etc/hostname", &format!("{name}\n"));
        machine.write("/etc/machine-id", &format!("{number:032x}\n"));
        // What this machine may have of its own.
        for path in [
            "/etc/orchestrate",
            "/srv/page",
            "/var/lib/orchestrate",
            "/var/lib/private/solo-etcd",
            "/var/lib/solo-etcd",
            "/var/log/journal",
        ] {
            let _ = std::fs::remove_dir_all(machine.file(path));
        }
        for file in std::fs::read_dir(tarball).expect("the tarball").flatten() {
            let to = machine.file("/root").join(file.file_name());
            std::fs::copy(file.path(), to).expect("copied");
        }
        machine.start_at(&network.place(number), name);
        machines.insert(name, machine);
    }
    machines.values().for_each(Machine::wait_until_booted);
    Some(machines)
}

#[test]
fn every_line_of_it_works_on_three_machines_and_prints_what_it_shows() {
    let name = "tutorial::every_line_of_it_works_on_three_machines_and_prints_what_it_shows";
    if let Err(why) = can_boot() {
        return skip(name, why);
    }
    if !in_own_network(name) {
        return;
    }
    let parts = parse(include_str!("../../docs/tutorial.md")).expect("the form of the tutorial");
    let commands = parts.iter().filter(|part| matches!(part, Part::Command { .. })).count();
    let outputs = parts.iter().filter(|part| matches!(part, Part::Command { output: Some(_), .. })).count();
    assert!(commands > 40 && outputs > 15, "{commands} commands, {outputs} outputs");
    let directory = tempfile::tempdir().expect("a directory");
    let tarball = directory.path().join("tarball");
    tarball::make(&tarball, "022");
    let Some(machines) = machines(&tarball) else {
        return skip(name, "no file system can be laid over this machine's own");
    };
    let record_file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tutorial.txt");
    let mut fleet = Fleet { machines, exports: BTreeMap::new(), record: String::new(), record_file };
    parts.iter().for_each(|part| fleet.execute(part));
}

#[test]
fn a_line_or_a_block_that_it_does_not_know_is_an_error() {
    let block = |label: &str, language: &str, text: &str| format!("{label}\n\n```{language}\n{text}\n```\n");
    let parts = parse(&block("On `one` and `lb`, with exit code 1:", "sh", "orchestrate status"));
    let hosts = vec!["one".to_owned(), "lb".to_owned()];
    let line = "orchestrate status".to_owned();
    assert_eq!(parts, Ok(vec![Part::Command { hosts, line, code: 1, output: None }]));
    for (text, why) in [
        (block("On `one`:", "sh", "rm -r /"), "does not know how to run"),
        (block("On `one`:", "sh", "orchestrate frobnicate"), "does not know how to run"),
        (block("On `three`:", "sh", "grep a /a"), "does not say on which machine"),
        (block("Then run this:", "sh", "grep a /a"), "does not say on which machine"),
        (block("On `one`, with luck:", "sh", "grep a /a"), "does not say on which machine"),
        (block("On `one`:", "toml", "a = 1"), "\"toml\" after"),
        (block("On `one`, write `/a`:", "sh", "grep a /a"), "\"sh\" after"),
        (block("This is printed:", "text", "a"), "no command has this output"),
    ] {
        let error = parse(&text).expect_err(&text);
        assert!(error.contains(why), "{text}: {error}");
    }
}

#[test]
fn an_output_that_differs_is_an_error() {
    let output = "fleet: settled\ndesired: 2 (revision 26)\n\nHOST  SINCE\none   2026-01-02T03:04:05Z\n";
    for (expected, matches) in [
        (output, true),
        ("fleet: settled\n…\n", true),
        ("…\none 2030-01-01T00:00:00Z", true),
        ("fleet: …\ndesired: 2 (revision 1)\nHOST SINCE\none …\n", true),
        ("fleet: settled\n", false),
        ("…\nHOST SINCE", false),
        ("fleet: failing\n…\n", false),
        ("fleet: settled\ndesired: 3 (revision 26)\n…\n", false),
        ("fleet: settled\n…\ntwo 2026-01-02T03:04:05Z\n", false),
        ("fleet: settled\n…\none\n", false),
        ("fl …\n…\n", false),
    ] {
        assert_eq!(compare(expected, output).is_ok(), matches, "{expected}");
    }
}
