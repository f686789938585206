//! The cause of a failed step: the line of its output that says why, without what differs from host to host, and
//! a fingerprint.
//!
//! Hosts that fail in the same way have the same fingerprint, so a failure of a whole fleet can be shown as one.
//! Fingerprints of the form `f1-…` never change: `tests/causes-f1.txt` holds lines of real programs with
//! theirs. A better algorithm gets the name `f2`.

use regex_lite::{Captures, Regex};
use ring::digest::{SHA256, digest};
use schema::codec::cut;
use schema::names::{Fingerprint, StepName};
use schema::records::{CAUSE_LINE_MAX_BYTES, Cause};
use schema::steps::{StepEnd, StepPhase};
use std::borrow::Cow;
use std::net::Ipv6Addr;
use std::sync::LazyLock;

/// A line with one of these words says why a program failed. Case does not matter.
const WORDS: [&str; 9] =
    ["error", "fail", "fatal", "panic", "denied", "refused", "cannot", "timed out", "timeout"];

/// Words that differ from host to host, or from version to version, although the cause is the same.
#[derive(Debug, Clone, Default)]
pub struct OwnWords {
    /// Each word with what stands for it, the longest first.
    words: Vec<(String, &'static str)>,
}

impl OwnWords {
    /// Returns the words of a host: its names and addresses, and the versions before and after the update. Empty
    /// ones are left out.
    pub fn new(names: impl IntoIterator<Item = String>, versions: impl IntoIterator<Item = String>) -> Self {
        let sorted = |mut words: Vec<String>| {
            words.retain(|word| !word.is_empty());
            // One may be a part of another.
            words.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
            words
        };
        let names = sorted(names.into_iter().collect()).into_iter().map(|word| (word, "HOST"));
        // One without letters would also stand for numbers that happen to be equal. All of them become N anyway.
        let versions = versions.into_iter().filter(|version| version.contains(char::is_alphabetic)).collect();
        let versions = sorted(versions).into_iter().map(|word| (word, "VERSION"));
        Self { words: names.chain(versions).collect() }
    }

    /// Replaces the words where they stand alone.
    fn replace(&self, line: &str) -> String {
        self.words.iter().fold(line.to_owned(), |line, (word, stands)| replace_word(&line, word, stands))
    }
}

/// True for a character that, next to a word, makes it a part of a longer one.
fn touches(c: Option<char>) -> bool {
    c.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '-')
}

/// Replaces a word where no letter, digit, underscore or hyphen touches it.
fn replace_word(line: &str, word: &str, stands: &str) -> String {
    let (mut replaced, mut rest) = (String::with_capacity(line.len()), line);
    let mut before = None;
    while let Some(at) = rest.find(word) {
        let (head, tail) = (&rest[..at], &rest[at + word.len()..]);
        let is_alone = !touches(head.chars().next_back().or(before)) && !touches(tail.chars().next());
        replaced.push_str(head);
        replaced.push_str(if is_alone { stands } else { word });
        before = word.chars().next_back();
        rest = tail;
    }
    replaced + rest
}

/// Compiles a constant pattern.
fn pattern(text: &str) -> Regex {
    Regex::new(text).unwrap_or_else(|error| unreachable!("{text}: {error}"))
}

/// What a terminal does not print: control sequences (ECMA-48, section 5.4), and commands of the operating system
/// such as titles and links.
static TERMINAL_CODES: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]"));
static AUTHORITY: LazyLock<Regex> =
    LazyLock::new(|| pattern(r#"([A-Za-z][A-Za-z0-9+.-]*://)[^/\s"'<>)\]]+"#));
static IPV4: LazyLock<Regex> = LazyLock::new(|| pattern(r"\b[0-9]{1,3}(?:\.[0-9]{1,3}){3}\b"));
static MAC: LazyLock<Regex> = LazyLock::new(|| pattern(r"\b[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2}){5}\b"));
/// What may be an IPv6 address.
static COLONS: LazyLock<Regex> = LazyLock::new(|| pattern(r"[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*[0-9A-Fa-f:]"));
static UUID: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"\b[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\b"));
static HEX: LazyLock<Regex> = LazyLock::new(|| pattern(r"\b(?:0x)?[0-9A-Fa-f]{8,}\b"));
/// Dates and times as RFC 3339, syslog and most logs write them.
static TIMES: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"\b[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]+)?)?(?: ?Z\b| ?[+-][0-9]{2}:?[0-9]{2})?)?",
        r"|\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +[0-9]{1,2} [0-9]{2}:[0-9]{2}:[0-9]{2}",
        r"|\b[0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]+)?)?\b",
    ))
});
static TEMPORARY: LazyLock<Regex> =
    LazyLock::new(|| pattern(r#"(?:/var/tmp|/tmp|/var/run|/run)/[^\s"'<>:;,)\]]*"#));
static DIGITS: LazyLock<Regex> = LazyLock::new(|| pattern(r"[0-9]+"));
static BLANKS: LazyLock<Regex> = LazyLock::new(|| pattern(r"\s+"));

/// Replaces IPv6 addresses. Times and names of programming languages have colons too.
fn without_ipv6(line: &str) -> Cow<'_, str> {
    COLONS.replace_all(line, |found: &Captures<'_>| {
        let text = &found[0];
        let (start, end) = found.get(0).map_or((0, 0), |found| (found.start(), found.end()));
        let is_alone = !touches(line[..start].chars().next_back()) && !touches(line[end..].chars().next());
        let has_digit = text.bytes().any(|b| b.is_ascii_digit());
        let is_address = is_alone && has_digit && text.parse::<Ipv6Addr>().is_ok();
        if is_address { "ADDR".to_owned() } else { text.to_owned() }
    })
}

/// Returns the line without what differs although the cause is the same.
fn normalised(line: &str, own: &OwnWords) -> String {
    let line = own.replace(line);
    let line = AUTHORITY.replace_all(&line, "${1}ADDR");
    let line = IPV4.replace_all(&line, "ADDR");
    let line = MAC.replace_all(&line, "ADDR");
    let line = without_ipv6(&line);
    let line = UUID.replace_all(&line, "ID");
    let line = TIMES.replace_all(&line, "TIME");
    let line = HEX.replace_all(&line, "ID");
    let line = TEMPORARY.replace_all(&line, "TMP");
    let line = DIGITS.replace_all(&line, "N");
    cut(BLANKS.replace_all(&line, " ").trim(), CAUSE_LINE_MAX_BYTES)
}

/// Returns the line that says why: the last one with a word of failure, else the last one that is not empty.
fn line_of(output: &str) -> String {
    let text = TERMINAL_CODES.replace_all(output, "");
    let lines = || text.split(['\n', '\r']).map(str::trim).filter(|line| !line.is_empty());
    let says_why = |line: &&str| {
        let line = line.to_ascii_lowercase();
        WORDS.iter().any(|word| line.contains(word))
    };
    let line = lines().rev().find(says_why).or_else(|| lines().next_back()).unwrap_or_default();
    let visible: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    cut(&visible, CAUSE_LINE_MAX_BYTES)
}

/// Returns how a step ended, without what differs although the cause is the same.
fn end_of(end: &StepEnd) -> String {
    match end {
        StepEnd::Exited { code } => format!("exit {code}"),
        StepEnd::Signalled { signal } => format!("signal {signal}"),
        StepEnd::TimedOut { .. } => "timeout".into(),
        StepEnd::Interrupted => "interrupted".into(),
        StepEnd::NotStarted { .. } => "not started".into(),
    }
}

/// Returns the cause of a step that failed. `output` is what the step printed, without secrets. Of a step that
/// could not be started, the reason takes its place.
///
/// The fingerprint is `f1-` and the first 12 hexadecimal digits of the SHA-256 of three lines: the phase and the
/// step as `phase/step`, the end, and the line.
pub fn cause_of(phase: StepPhase, step: &StepName, end: &StepEnd, output: &str, own: &OwnWords) -> Cause {
    let output = match end {
        StepEnd::NotStarted { why } => why,
        _ => output,
    };
    let line = normalised(&line_of(output), own);
    let text = format!("{phase}/{step}\n{}\n{line}", end_of(end));
    let hash = digest(&SHA256, text.as_bytes());
    let hex: String = hash.as_ref().iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    let fingerprint = Fingerprint::new(format!("f1-{hex}"));
    Cause { fingerprint: fingerprint.unwrap_or_else(|error| unreachable!("{error}")), line }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn own() -> OwnWords {
        let names = ["web1.example.org", "web1", "10.0.0.7", "fd00::7", ""];
        OwnWords::new(names.map(str::to_owned), ["v43", "v42", "17"].map(str::to_owned))
    }

    fn check(output: &str, line: &str) {
        assert_eq!(normalised(&line_of(output), &own()), line, "{output:?}");
    }

    #[test]
    fn the_last_line_that_says_why_counts() {
        check("Error: first\nE: Unable to lock\nfatal: second\ndone\n\n", "fatal: second");
        check("one\ntwo \n \n", "two");
        check("", "");
        check("  \n", "");
        check("10 %\r50 %\rwrite FAILED\r", "write FAILED");
        check("\x1b[1;31mError:\x1b[0m \x1b]8;;http://a\x07no route\x1b]8;;\x07", "Error: no route");
    }

    #[test]
    fn what_differs_from_host_to_host_is_replaced() {
        check("web1: Permission denied", "HOST: Permission denied");
        check("cannot reach web1.example.org (10.0.0.7)", "cannot reach HOST (HOST)");
        check("web12 and myweb1 and web1-a fail", "webN and mywebN and webN-a fail");
        check("app v43 cannot replace v42, v431 left", "app VERSION cannot replace VERSION, vN left");
        check("app 17 fails after 17 s", "app N fails after N s");
        check("error at https://ann:x@repo.example.org:8443/dists/x", "error at https://ADDR/dists/x");
        check("connect to 192.0.2.9:80 refused", "connect to ADDR:N refused");
        check("connect to [2001:db8::5]:80 refused", "connect to [ADDR]:N refused");
        check("std::runtime_error: bad::thing", "std::runtime_error: bad::thing");
        check("eth0 de:ad:be:ef:00:01 failed", "ethN ADDR failed");
        check("job 6fa459ea-ee8a-3ca4-894e-db77e160355e failed", "job ID failed");
        check("commit 4f2a9c81d0 cannot be read", "commit ID cannot be read");
        check("2026-11-24T10:11:12.5Z error", "TIME error");
        check("Nov 24 10:11:12 web1 app[77]: fatal", "TIME HOST app[N]: fatal");
        check("[10:11:12] error 5", "[TIME] error N");
        check("cannot open /tmp/x.Ab3/y: gone", "cannot open TMP: gone");
        check("cannot  open\t/run/a", "cannot open TMP");
        check("took 17.5 s: timed out", "took N.N s: timed out");
    }

    #[test]
    fn the_step_and_its_end_are_a_part_of_the_cause() {
        let step = |name: &str| StepName::new(name).unwrap();
        let of = |phase, name: &str, end: &StepEnd, output: &str| {
            cause_of(phase, &step(name), end, output, &own()).fingerprint
        };
        let (apply, exit) = (StepPhase::Apply, StepEnd::Exited { code: 1 });
        let first = of(apply, "a", &exit, "error 1");
        assert_eq!(first, of(apply, "a", &exit, "error 77"));
        assert_ne!(first, of(StepPhase::Validate, "a", &exit, "error 1"));
        assert_ne!(first, of(apply, "b", &exit, "error 1"));
        assert_ne!(first, of(apply, "a", &StepEnd::Exited { code: 2 }, "error 1"));
        assert_ne!(first, of(apply, "a", &exit, "fatal 1"));
        let late = |limit_millis| StepEnd::TimedOut { limit_millis };
        assert_eq!(of(apply, "a", &late(1), "x"), of(apply, "a", &late(2), "x"));
        let not_started = StepEnd::NotStarted { why: "No such file".into() };
        assert_eq!(cause_of(apply, &step("a"), &not_started, "", &own()).line, "No such file");
    }

    /// Lines of real programs with their causes. Nobody edits the file: a change of the algorithm would make the
    /// causes of hosts with different agents differ.
    #[test]
    fn causes_of_the_first_form_never_change() {
        let names = ["web-17.example.net", "web-17", "10.1.2.17"].map(str::to_owned);
        let own = OwnWords::new(names, ["v43", "v42"].map(str::to_owned));
        let (step, end) = (StepName::new("packages").unwrap(), StepEnd::Exited { code: 1 });
        let golden = include_str!("../tests/causes-f1.txt");
        for block in golden.split("\n\n") {
            let [output, line, fingerprint] = block.lines().collect::<Vec<_>>()[..] else {
                panic!("{block}")
            };
            let cause = cause_of(StepPhase::Apply, &step, &end, output, &own);
            assert_eq!((cause.line.as_str(), cause.fingerprint.as_str()), (line, fingerprint), "{output}");
        }
        assert_eq!(golden.split("\n\n").count(), 60);
    }

    proptest! {
        #[test]
        fn two_hosts_with_one_cause_have_one_fingerprint(
            words in proptest::collection::vec("[a-z]{1,8}|#|%|@|/tmp/[a-z0-9]{1,6}|[0-9]{1,5}", 1..12),
            other in "[a-z]{3,9}[0-9]{0,3}",
        ) {
            let line = |name: &str, address: &str, number: &str| {
                let word = |word: &String| match word.as_str() {
                    "#" => name.to_owned(),
                    "%" => address.to_owned(),
                    "@" => number.to_owned(),
                    word => word.to_owned(),
                };
                words.iter().map(word).collect::<Vec<_>>().join(" ")
            };
            prop_assume!(words.iter().all(|word| *word != other && word != "web1"));
            let of = |name: &str, address: &str, number: &str| {
                let own = OwnWords::new([name.to_owned(), address.to_owned()], []);
                normalised(&line_of(&line(name, address, number)), &own)
            };
            let one = of("web1", "10.0.0.7", "17");
            prop_assert_eq!(&one, &of(&other, "fd00::12", "4711"));
            prop_assert!(!one.contains(|c: char| c.is_ascii_digit()));
        }

        #[test]
        fn any_output_has_a_bounded_cause_in_one_line(output in "\\PC*|[\\x00-\\x7f]*", long in 0usize..900) {
            let text = format!("{output} {}", "é".repeat(long));
            let cause = cause_of(
                StepPhase::Apply,
                &StepName::new("a").unwrap(),
                &StepEnd::Exited { code: 1 },
                &text,
                &own(),
            );
            prop_assert!(cause.line.len() <= CAUSE_LINE_MAX_BYTES);
            prop_assert!(!cause.line.contains(|c: char| c.is_control()));
        }
    }
}
