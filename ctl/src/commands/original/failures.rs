//! What failed: `get_failures` and `debug_timeout`.
//!
//! The cost of reading results depends on how much is wrong. First come counts, then the host names
//! where a count is not zero. Values are read only for hosts that look lost, and for JSON. Deciding
//! which services are down without an explanation needs the whole fleet, of which the reports name
//! the bundles too. Everything is read at the revision of the counts.
//!
//! This file is long because the cheap way to read failures needs many steps that only make sense
//! together.

use super::running::hosts_of;
use crate::commands::answers;
use crate::commands::context::{Store, version_of};
use crate::commands::fleet::{self, warn_of_skipped};
use crate::commands::verb::{About, Answer, Group, Past, Spec, Verb};
use crate::completion;
use crate::exit::{Exit, Failure};
use crate::local;
use crate::output::{self, Output};
use crate::settings::Flavour;
use ::fleet::text::clean;
use ::fleet::views::{FailedCheck, FailureGroups, FailuresView, FoundFailure, known_types};
use ::fleet::{FailedService, NewestBundles, UploadedBundle};
use clap::Args;
use etcd_session::{Counted, KeyList, StoreError};
use schema::keys::{self, Key, Prefix, StatusState};
use schema::names::{HostName, StatusType};
use schema::records::StatusRecord;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeSet, HashSet};
use std::path::Path;

/// Largest number of silent hosts whose roster entries are read before the listings.
const SILENT_FEW: usize = 1024;

/// Largest roster, in hosts, that is always compared with the claims by name. In a larger fleet
/// equal counts mean that nobody is lost: an agent makes sure that a claim has its roster entry, so
/// only keys that somebody wrote by hand could hide a host. `status` reads every name and still
/// shows such a host.
const COMPARED_BY_NAME: i64 = 2_000;

/// Largest number of bundles that are noted.
const BUNDLES_NOTED_MAX: usize = 10;

/// One host and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Problem {
    host: HostName,
    check: FailedCheck,
    /// The last line that the check of a service printed.
    line: Option<String>,
}

impl Problem {
    fn new(host: HostName, check: FailedCheck) -> Self {
        Self { host, check, line: None }
    }
}

impl From<FailedService> for Problem {
    fn from(FailedService { host, check, line }: FailedService) -> Self {
        Self { host, check: FailedCheck::Down(check), line }
    }
}

/// All problems of the fleet, at one revision.
#[derive(Debug, Default)]
struct Failures {
    revision: i64,
    failures: Vec<Problem>,
    warnings: Vec<Problem>,
    /// Empty if no host has reported. It costs no read of its own.
    bundles: NewestBundles,
}

impl Failures {
    fn hosts(&self, wanted: &FailedCheck) -> impl Iterator<Item = &str> {
        self.failures.iter().filter(move |p| p.check == *wanted).map(|p| p.host.as_str())
    }

    /// Prints the output of the later generations of the original tool.
    fn print(&self, warnings: bool, output: &mut Output) {
        let mut block = |title: &str, problems: &[Problem]| {
            if !problems.is_empty() {
                output.line(title);
            }
            for problem in problems {
                output.line(&format!("  Node: {}, Check: {}", problem.host, problem.check));
            }
        };
        block("Failures:", &self.failures);
        if warnings {
            block("Warnings:", &self.warnings);
        }
    }

    /// Prints the output of the first generation of the original tool, which knew two checks.
    fn print_legacy(&self, output: &mut Output) {
        for (title, kind) in [("Validation", StatusType::validation()), ("Puppet", StatusType::apply())] {
            for host in self.hosts(&FailedCheck::Status(kind)) {
                output.line(&format!("{title} failure:{host}"));
            }
        }
    }

    fn print_counts(&self, output: &mut Output) {
        for (title, kind) in [("Validation", StatusType::validation()), ("Puppet", StatusType::apply())] {
            output.line(&format!("{title} failures :{}", self.hosts(&FailedCheck::Status(kind)).count()));
        }
    }

    /// Notes the problems that affect the exit code, but that standard output does not name.
    fn note_rest(&self, warnings: bool) {
        let [validation, apply, others @ ..] = known_types();
        let stale = [FailedCheck::Stale(validation), FailedCheck::Stale(apply), FailedCheck::Liveness];
        let is_down = |problem: &&Problem| matches!(problem.check, FailedCheck::Down(_));
        let down: BTreeSet<FailedCheck> =
            self.failures.iter().filter(is_down).map(|problem| problem.check.clone()).collect();
        for check in others.into_iter().map(FailedCheck::Status).chain(stale).chain(down) {
            let hosts: Vec<&str> = self.hosts(&check).collect();
            output::note_hosts(&check.to_string(), hosts.into_iter());
        }
        if warnings {
            output::note_hosts("pending", self.warnings.iter().map(|p| p.host.as_str()));
        }
    }

    /// Notes the bundle of each cause, with the hosts that failed for it. The lines on standard output are those that
    /// old scripts read.
    fn note_bundles(groups: &FailureGroups) {
        let mut found = groups.iter().filter_map(|group| Some((group, group.bundle.as_ref()?)));
        for (group, UploadedBundle { host, link }) in found.by_ref().take(BUNDLES_NOTED_MAX) {
            let what = format!("bundle {} of {host} is about these hosts", clean(&link.url));
            output::note_hosts(&what, group.hosts.iter().map(HostName::as_str));
        }
        match found.count() {
            0 => {}
            more => {
                output::note(&format!("{more} more bundles; `orchestrate get_failures --group` names them"))
            }
        }
    }

    fn exit(&self, warnings: bool) -> Exit {
        Exit::of(self.failures.is_empty() && (!warnings || self.warnings.is_empty()))
    }
}

/// Check whether anything in the fleet failed
#[derive(Debug, Args)]
pub(crate) struct GetFailures {
    /// Print the names of the hosts
    #[arg(long)]
    hosts: bool,
    /// Count pending results, and services in warning, too
    #[arg(long = "show_warnings")]
    show_warnings: bool,
    /// Print the causes: hosts that fail in the same way are one line
    #[arg(long, conflicts_with = "hosts")]
    group: bool,
}

impl Verb for GetFailures {
    const SPEC: Spec = Spec {
        name: "get_failures",
        group: Group::Original,
        about: About::Hosts,
        past: Past::Answers,
        exits: &[Exit::No],
        answer: Answer::Json(answers::of::<FailuresView>),
        examples: &[
            ("orchestrate get_failures --hosts", "name the failures"),
            ("orchestrate get_failures --group", "print the causes, and how many hosts have each"),
        ],
    };

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let Self { hosts, show_warnings: warnings, group } = self;
        let found = Reader { store, revision: 0 }.failures(warnings).await?;
        let first = store.settings.flavour == Flavour::Etcd;
        if output.is_json() || group {
            let failures = with_records(&found.failures, &found, store).await?;
            let groups = group.then(|| FailureGroups::new(&failures));
            if output.is_json() {
                let warnings = with_records(&found.warnings, &found, store).await?;
                let view = FailuresView { failures, warnings, groups, revision: found.revision };
                output.answer(&view, |_| {});
            } else if let Some(groups) = groups {
                output.raw(groups.text(output::width()).as_str());
                if warnings {
                    output::note_hosts("pending", found.warnings.iter().map(|p| p.host.as_str()));
                }
            }
        } else if hosts && !first {
            found.print(warnings, output);
        } else {
            if hosts {
                found.print_legacy(output);
            } else {
                found.print_counts(output);
            }
            found.note_rest(warnings);
        }
        if hosts && !output.is_json() && !found.bundles.is_empty() {
            let failures = with_records(&found.failures, &found, store).await?;
            Failures::note_bundles(&FailureGroups::new(&failures));
        }
        Ok(found.exit(warnings))
    }
}

/// Reads the counts, then the keys behind the counts that are not zero.
struct Reader<'a> {
    store: &'a Store<'a>,
    revision: i64,
}

impl Reader<'_> {
    async fn failures(mut self, warnings: bool) -> Result<Failures, StoreError> {
        let kinds = known_types();
        let state = |state| kinds.iter().map(move |kind| Prefix::Status(kind.clone(), state));
        let mut prefixes: Vec<Prefix> = state(StatusState::Failed).collect();
        if warnings {
            prefixes.extend(state(StatusState::Pending));
        }
        let reporting = kinds.iter().map(|kind| Prefix::Reporting(kind.clone()));
        let others = [Prefix::Hosts, Prefix::Lives].into_iter().chain(reporting);
        let first_other = prefixes.len();
        prefixes.extend(others);
        let first_of_services = prefixes.len();
        prefixes.extend([Prefix::HealthAll, Prefix::Reports]);
        let counted: Vec<Counted<'_>> = prefixes.iter().map(Counted::Range).collect();
        let (read, counts) =
            self.store.session.read_and_count(&[], &counted, None, self.store.deadline).await?;
        self.revision = read.revision;
        let mut found = Failures { revision: read.revision, ..Failures::default() };
        for (prefix, _) in prefixes.iter().zip(&counts).take(first_other).filter(|(_, count)| **count > 0) {
            let Prefix::Status(kind, state) = prefix else { continue };
            let problems = self.hosts(prefix).await?.into_iter();
            let problems = problems.map(|host| Problem::new(host, FailedCheck::Status(kind.clone())));
            match state {
                StatusState::Failed => found.failures.extend(problems),
                _ => found.warnings.extend(problems),
            }
        }
        let (roster, claims) = (counts[first_other], counts[first_other + 1]);
        if roster > 0 && (roster <= COMPARED_BY_NAME || roster != claims) {
            let lost = self.lost().await?.into_iter();
            found.failures.extend(lost.map(|host| Problem::new(host, FailedCheck::Liveness)));
        }
        for (kind, _) in
            kinds.iter().zip(&counts[first_other + 2..first_of_services]).filter(|(_, count)| **count > 0)
        {
            let stale = self.stale(kind).await?.into_iter();
            found.failures.extend(stale.map(|host| Problem::new(host, FailedCheck::Stale(kind.clone()))));
        }
        if counts[first_of_services..].iter().any(|count| *count > 0) {
            let (fleet, _) = fleet::read(self.store, Some(self.revision), self.store.deadline).await?;
            found.failures.extend(fleet.failed_services().into_iter().map(Problem::from));
            if warnings {
                found.warnings.extend(fleet.warning_services().into_iter().map(Problem::from));
            }
            found.bundles = NewestBundles::of(&fleet);
        }
        found.failures.sort();
        found.warnings.sort();
        Ok(found)
    }

    async fn list(&self, prefix: &Prefix) -> Result<KeyList, StoreError> {
        self.store.session.read_key_list(prefix, Some(self.revision), self.store.deadline).await
    }

    async fn hosts(&self, prefix: &Prefix) -> Result<Vec<HostName>, StoreError> {
        let (hosts, skipped) = hosts_of(&self.list(prefix).await?);
        warn_of_skipped(skipped);
        Ok(hosts)
    }

    /// Returns the hosts that are on the roster and neither live nor listed. A few silent hosts are
    /// mostly decommissioned: their roster entries are read first, to leave out the tombstones.
    /// Many silent hosts mean a fleet without agents: then the listings are read first, because
    /// that leaves fewer entries to read.
    async fn lost(&self) -> Result<Vec<HostName>, StoreError> {
        let roster = self.list(&Prefix::Hosts).await?;
        let live = self.list(&Prefix::Lives).await?;
        let mut silent: HashSet<&str> = roster.suffixes().collect();
        live.suffixes().for_each(|host| {
            silent.remove(host);
        });
        let few = silent.len() <= SILENT_FEW;
        if few {
            silent = self.without_tombstones(silent).await?;
        }
        if silent.is_empty() {
            return Ok(Vec::new());
        }
        let running = self.list(&Prefix::RunningVersions).await?;
        running.suffixes().filter_map(|suffix| suffix.split_once('/')).for_each(|(_, host)| {
            silent.remove(host);
        });
        if !few {
            silent = self.without_tombstones(silent).await?;
        }
        Ok(silent.into_iter().filter_map(|host| HostName::new(host).ok()).collect())
    }

    async fn without_tombstones<'h>(&self, hosts: HashSet<&'h str>) -> Result<HashSet<&'h str>, StoreError> {
        let named: Vec<(&str, Key)> =
            hosts.into_iter().filter_map(|host| Some((host, Key::Host(HostName::new(host).ok()?)))).collect();
        let keys: Vec<Key> = named.iter().map(|(_, key)| key.clone()).collect();
        let snapshot =
            self.store.session.read_all(&keys, &[], Some(self.revision), self.store.deadline).await?;
        let is_out = |key: &Key| {
            let entry = snapshot.get(key).and_then(|e| keys::Host::read(&e.value).ok());
            entry.is_some_and(|entry| entry.decommissioned.is_some())
        };
        Ok(named.into_iter().filter(|(_, key)| !is_out(key)).map(|(host, _)| host).collect())
    }

    /// Returns the hosts that once reported this type and have no result of it now. A host with a
    /// live agent is left out: results of an agent do not expire, so the agent has just not
    /// reported this type yet.
    async fn stale(&self, kind: &StatusType) -> Result<Vec<HostName>, StoreError> {
        let traces = self.list(&Prefix::Reporting(kind.clone())).await?;
        let mut silent: HashSet<&str> = traces.suffixes().collect();
        for state in StatusState::ALL {
            let results = self.list(&Prefix::Status(kind.clone(), state)).await?;
            results.suffixes().for_each(|host| {
                silent.remove(host);
            });
        }
        let keys: Vec<Key> =
            silent.into_iter().filter_map(|host| HostName::new(host).ok()).map(Key::Live).collect();
        let snapshot =
            self.store.session.read_all(&keys, &[], Some(self.revision), self.store.deadline).await?;
        let stale = keys.iter().filter(|key| snapshot.get(key).is_none());
        Ok(stale
            .filter_map(|key| if let Key::Live(host) = key { Some(host.clone()) } else { None })
            .collect())
    }
}

/// Reads the results in the store that problems are about.
async fn with_records(
    problems: &[Problem],
    found: &Failures,
    store: &Store<'_>,
) -> Result<Vec<FoundFailure>, StoreError> {
    let is_failure = std::ptr::eq(problems, found.failures.as_slice());
    let state = if is_failure { StatusState::Failed } else { StatusState::Pending };
    let key = |problem: &Problem| match &problem.check {
        FailedCheck::Status(kind) => Some(Key::Status(kind.clone(), state, problem.host.clone())),
        _ => None,
    };
    let keys: Vec<Key> = problems.iter().filter_map(key).collect();
    let snapshot = store.session.read_all(&keys, &[], Some(found.revision), store.deadline).await?;
    let with_record = |problem: &Problem| {
        let entry = key(problem).and_then(|key| snapshot.get(&key).cloned());
        let record = entry.and_then(|entry| StatusRecord::read(&entry.value).ok());
        let Problem { host, check, line } = problem.clone();
        FoundFailure { line, ..FoundFailure::of_record(host, check, record, &found.bundles) }
    };
    Ok(problems.iter().map(with_record).collect())
}

const DEBUG_TIMEOUT_FILE: &str = "/etc/debug_timeout.ini";
/// Number of lines that are printed of each file, if the list of files sets no other number.
const TAIL_LINES: usize = 20;
/// Largest number of lines that are printed of each file.
const TAIL_LINES_MAX: usize = 10_000;

/// Print what may explain why a deployment took too long
#[derive(Debug, Args)]
pub(crate) struct DebugTimeout {
    /// Version that was deployed
    #[arg(add = completion::versions())]
    version: String,
    /// Print the last lines of the files that /etc/debug_timeout.ini lists
    #[arg(long = "debug_hosts")]
    debug_hosts: bool,
}

impl Verb for DebugTimeout {
    const SPEC: Spec = Spec {
        name: "debug_timeout",
        group: Group::Original,
        about: About::Other,
        past: Past::DoesNotRead,
        exits: &[],
        answer: Answer::Json(answers::of::<TimeoutAnswer<'_>>),
        examples: &[],
    };

    /// Prints what may explain why a deployment took too long. It exits with 0 whenever it could read,
    /// even if there are failures.
    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let version = version_of(&self.version)?;
        let found = Reader { store, revision: 0 }.failures(false).await?;
        let prefix = Prefix::RunningVersion(version.clone());
        let list = store.session.read_key_list(&prefix, Some(found.revision), store.deadline).await?;
        let (hosts, skipped) = hosts_of(&list);
        warn_of_skipped(skipped);
        if output.is_json() {
            let failures = with_records(&found.failures, &found, store).await?;
            let answer = TimeoutAnswer { failures, hosts: &hosts, revision: found.revision };
            output.sorted_answer(&answer, |_| {});
            return Ok(Exit::Yes);
        }
        found.print(false, output);
        if hosts.is_empty() {
            output.line("No Hosts registered!");
        } else {
            output.line("Registered hosts in consul with key name Running_Versions are:");
            hosts.iter().for_each(|host| output.line(&format!("   {host}")));
        }
        if self.debug_hosts {
            print_tails(output)?;
        }
        Ok(Exit::Yes)
    }
}

fn print_tails(output: &mut Output) -> Result<(), Failure> {
    let unreadable = |error: std::io::Error| Failure::cannot_tell(format!("{DEBUG_TIMEOUT_FILE}: {error}"));
    let Some(text) = local::read(Path::new(DEBUG_TIMEOUT_FILE)).map_err(unreadable)? else {
        output::warn(&format!("{DEBUG_TIMEOUT_FILE} is not there"));
        return Ok(());
    };
    let (files, refused) = listed_files(&text);
    for line in refused {
        output::warn(&format!(
            "{DEBUG_TIMEOUT_FILE}: {line:?} is no number of lines from 1 to {TAIL_LINES_MAX}"
        ));
    }
    for (path, lines) in files {
        output.line(&format!("==> {path} <=="));
        match local::tail(Path::new(path), lines) {
            Ok(lines) => lines.iter().for_each(|line| output.line(line)),
            Err(error) => output::warn(&format!("{path}: {error}")),
        }
    }
    Ok(())
}

/// Parses an INI file that lists files, as `name = /path, /path` or as paths alone. Returns each
/// path with the number of lines to print, and the lines whose number of lines is not valid.
/// `lines`, `size` or `tail` sets the number for the files that follow in its section; before the
/// first section it sets the number for all sections.
fn listed_files(text: &str) -> (Vec<(&str, usize)>, Vec<&str>) {
    let (mut files, mut refused) = (Vec::new(), Vec::new());
    let mut everywhere = TAIL_LINES;
    let mut here = None;
    let mut is_top = true;
    for line in text.lines().map(without_comment) {
        if line.starts_with('[') {
            (here, is_top) = (None, false);
            continue;
        }
        let (name, value) = match line.split_once(['=', ':']) {
            Some((name, value)) if !line.starts_with('/') => (name.trim(), value.trim()),
            _ => ("", line),
        };
        let is_size = ["lines", "size", "tail"].iter().any(|size| name.eq_ignore_ascii_case(size));
        if !is_size || value.starts_with('/') {
            let lines = here.unwrap_or(everywhere);
            let paths = value.split(',').map(str::trim).filter(|path| path.starts_with('/'));
            files.extend(paths.map(|path| (path, lines)));
            continue;
        }
        match value.parse().ok().filter(|lines| *lines > 0) {
            Some(lines) if is_top => everywhere = TAIL_LINES_MAX.min(lines),
            Some(lines) => here = Some(TAIL_LINES_MAX.min(lines)),
            None => refused.push(line),
        }
    }
    (files, refused)
}

/// Returns the line without its comment, trimmed. A comment starts at the beginning of the line or
/// after white space.
fn without_comment(line: &str) -> &str {
    let is_begin = |at: usize| at == 0 || line[..at].ends_with(char::is_whitespace);
    let comment = line.match_indices(['#', ';']).map(|(at, _)| at).find(|at| is_begin(*at));
    line[..comment.unwrap_or(line.len())].trim()
}

/// What `debug_timeout` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TimeoutAnswer<'a> {
    failures: Vec<FoundFailure>,
    hosts: &'a [HostName],
    revision: i64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Format;

    fn problem(host: &str, check: FailedCheck) -> Problem {
        Problem::new(HostName::new(host).unwrap(), check)
    }

    fn found() -> Failures {
        let kind = |text| StatusType::new(text).unwrap();
        Failures {
            revision: 1,
            failures: vec![
                problem("a", FailedCheck::Status(kind("puppet"))),
                problem("a", FailedCheck::Status(kind("validation"))),
                problem("b", FailedCheck::Status(kind("validation"))),
                problem("c", FailedCheck::Stale(kind("validation"))),
                problem("d", FailedCheck::Liveness),
                problem("f", FailedCheck::Down("mysql".into())),
            ],
            warnings: vec![problem("e", FailedCheck::Status(kind("puppet")))],
            bundles: NewestBundles::default(),
        }
    }

    fn check(print: impl Fn(&Failures, &mut Output), failures: &Failures, expected: &str) {
        let mut output = Output::new(Format::Table);
        print(failures, &mut output);
        assert_eq!(output.text(), expected);
    }

    #[test]
    fn failures_are_printed_as_each_generation_did() {
        check(Failures::print_counts, &found(), "Validation failures :2\nPuppet failures :1\n");
        check(Failures::print_counts, &Failures::default(), "Validation failures :0\nPuppet failures :0\n");
        let first = "Validation failure:a\nValidation failure:b\nPuppet failure:a\n";
        check(Failures::print_legacy, &found(), first);
        check(Failures::print_legacy, &Failures::default(), "");
        let newer = "Failures:\n  Node: a, Check: puppet\n  Node: a, Check: validation\n  Node: b, Check: validation\n  \
                     Node: c, Check: validation (stale)\n  Node: d, Check: liveness\n  \
                     Node: f, Check: mysql\n";
        check(|f, o| f.print(false, o), &found(), newer);
        check(|f, o| f.print(true, o), &found(), &format!("{newer}Warnings:\n  Node: e, Check: puppet\n"));
        check(|f, o| f.print(true, o), &Failures::default(), "");
    }

    #[test]
    fn warnings_count_only_when_they_are_asked_for() {
        let only_warnings = Failures { failures: Vec::new(), ..found() };
        assert_eq!(only_warnings.exit(false), Exit::Yes);
        assert_eq!(only_warnings.exit(true), Exit::No);
        assert_eq!(found().exit(false), Exit::No);
    }

    #[test]
    fn files_to_show_are_listed_in_an_ini_file_with_how_much_of_each() {
        let check = |text: &str, expected: &[(&str, usize)], wrong: &[&str]| {
            let (listed, refused) = listed_files(text);
            assert_eq!((listed, refused), (expected.to_vec(), wrong.to_vec()), "{text:?}");
        };
        let plain = "[logs]\n# old\nsyslog = /var/log/syslog\n/var/log/puppet.log\nrelative = log\n";
        check(plain, &[("/var/log/syslog", 20), ("/var/log/puppet.log", 20)], &[]);
        check("files = /a, /b,/c\n  /d\n", &[("/a", 20), ("/b", 20), ("/c", 20), ("/d", 20)], &[]);
        check("lines = 50\n/a\n[one]\n/b\n", &[("/a", 50), ("/b", 50)], &[]);
        check("Lines: 50\na: /a\n", &[("/a", 50)], &[]);
        // A setting in a section ends with the section.
        let sections = "[one]\nlines = 5\n/a\nsize=7\n/b\n[two]\n/c\n[three]\ntail = 9\n/d\n";
        check(sections, &[("/a", 5), ("/b", 7), ("/c", 20), ("/d", 9)], &[]);
        check("lines = 3\n[one]\nlines = 5\n/a\n[two]\n/b\n", &[("/a", 5), ("/b", 3)], &[]);
        check("lines = 1000000\n/a\nlines = 10000\n/b", &[("/a", 10_000), ("/b", 10_000)], &[]);
        check("; /a\nlines = 7 ; of each\n  # /b\na = /a#1 # old\n", &[("/a#1", 7)], &[]);
        // A path is a file even if its name is `lines`.
        check("lines = /var/log/lines\n", &[("/var/log/lines", 20)], &[]);
        for wrong in ["lines = many", "tail = 0", "size = -1", "lines ="] {
            check(&format!("{wrong}\n/a\n"), &[("/a", 20)], &[wrong]);
        }
    }
}
