//! `verify_hosts`: checks whether these hosts run this version. While the list is short, the cost
//! depends on the length of the list and not on the size of the fleet.

use super::context::{Store, version_of};
use super::fleet;
use crate::completion;
use crate::exit::{Exit, Failure};
use crate::output::{self, Output};
use crate::seen_stores;
use anyhow::{Context, anyhow};
use clap::Args;
use etcd_session::{Deadline, EntryPage, StoreError, Survey};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use schema::codec::read_version;
use schema::keys::{Key, Prefix};
use schema::names::{HostName, Version};
use schema::snapshot::KeySnapshot;
use schema::time::{Backoff, parse_duration};
use serde_json::json;
use std::collections::HashSet;
use std::io::{BufRead, IsTerminal};
use std::time::Duration;
use tokio::time::Instant;

/// Longest list of hosts that is always read host by host, at one revision.
const POINT_READS_MAX: usize = 128;
/// Longest list of hosts that is read host by host if more than [`LARGER_FLEET`] times as many
/// hosts are listed under the version.
const SHORT_LIST_MAX: usize = 2048;
const LARGER_FLEET: usize = 8;
/// Shortest time limit of one request.
const LAST_QUESTION: Duration = Duration::from_secs(1);
/// Longest standard input that is read, in bytes; more than any list of hosts needs.
const INPUT_MAX_BYTES: usize = 64 * 1024 * 1024;

/// The result at one revision.
struct Verified<'a> {
    /// Hosts that do not run the version, sorted.
    missing: Vec<&'a str>,
    /// Hosts that are listed under the version, but do not announce it; sorted.
    unconfirmed: Vec<&'a str>,
    revision: i64,
    /// Snapshot with the store's identity, if it could be read.
    store: Option<KeySnapshot>,
}

impl<'a> Verified<'a> {
    fn new(missing: impl Iterator<Item = &'a str>, revision: i64, store: Option<KeySnapshot>) -> Self {
        let mut missing: Vec<&str> = missing.collect();
        missing.sort_unstable();
        Self { missing, unconfirmed: Vec::new(), revision, store }
    }

    fn with_unconfirmed(mut self, hosts: impl Iterator<Item = &'a str>) -> Self {
        self.unconfirmed = hosts.collect();
        self.unconfirmed.sort_unstable();
        self
    }
}

/// Check whether hosts run a version; without arguments the hosts are read from standard input,
/// one per line
#[derive(Debug, Args)]
pub(crate) struct VerifyHosts {
    /// The version
    version: String,
    /// The hosts
    #[arg(add = completion::hosts())]
    hosts: Vec<String>,
    /// Ask again until the answer is yes, at most for this long
    #[arg(long, value_name = "DURATION")]
    wait: Option<String>,
    /// Count a host only if its own key names the version too; any agent may write the list of
    /// a version
    #[arg(long)]
    strict: bool,
}

/// Checks whether these hosts run this version.
pub(super) async fn verify_hosts(
    options: VerifyHosts,
    store: &Store<'_>,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let VerifyHosts { version, hosts: arguments, wait, strict } = options;
    let version = &version_of(&version)?;
    let wait = wait
        .as_deref()
        .map(parse_duration)
        .transpose()
        .map_err(|e| Failure::usage(anyhow!(e).context("--wait")))?;
    let input = if arguments.is_empty() {
        standard_input_within(store.deadline.left().max(wait.unwrap_or_default()))?
    } else {
        arguments.join("\n")
    };
    let hosts = hosts(&input)?;
    let question = Verification { version, hosts, strict };
    let verified = match wait {
        None => question.ask(store, store.deadline).await?,
        Some(limit) => wait_for(&question, store, limit).await?,
    };
    seen_stores::check(store.settings, &store.session, verified.store.as_ref())?;
    let hosts = &question.hosts;
    output::note_hosts(&format!("not at {version}"), verified.missing.iter().copied());
    fleet::warn_of_unconfirmed(version, verified.unconfirmed.iter().copied());
    let answer = json!({
        "version": version,
        "wanted": hosts.len(),
        "present": hosts.len() - verified.missing.len(),
        "missing": verified.missing,
        "unconfirmed": verified.unconfirmed,
        "revision": verified.revision,
    });
    output.answer(&answer, |_| {});
    Ok(Exit::of(verified.missing.is_empty()))
}

/// Reads standard input, which must end within the time limit. Nobody types a list of hosts, so a
/// terminal counts as empty.
///
/// Waits in `poll` on this thread: nothing else runs yet, and a second thread would cost more than
/// the request itself.
fn standard_input_within(limit: Duration) -> Result<String, Failure> {
    let deadline = Deadline::within(limit);
    let mut stdin = std::io::stdin().lock();
    let mut bytes = Vec::new();
    if stdin.is_terminal() {
        return Ok(String::new());
    }
    loop {
        let left = Timespec::try_from(deadline.left()).context("standard input")?;
        let ready = retry_on_intr(|| poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&left)));
        if ready.context("standard input")? == 0 {
            return Err(Failure::cannot_tell("standard input: no end of the list within the time-out"));
        }
        let chunk = stdin.fill_buf().context("standard input")?;
        let read = chunk.len();
        if read == 0 {
            return Ok(String::from_utf8_lossy(&bytes).into_owned());
        }
        bytes.extend_from_slice(chunk);
        stdin.consume(read);
        if bytes.len() > INPUT_MAX_BYTES {
            return Err(Failure::usage(anyhow!("standard input is longer than {INPUT_MAX_BYTES} bytes")));
        }
    }
}

/// Parses a list of hosts, one per line. Every line must be a host name; repeated names count once.
fn hosts(input: &str) -> Result<HashSet<&str>, Failure> {
    let lines = input.trim().lines().map(str::trim).filter(|line| !line.is_empty());
    let mut hosts = HashSet::with_capacity(input.len() / 16);
    for line in lines {
        HostName::check(line).map_err(|e| Failure::no(e.to_string()))?;
        hosts.insert(line);
    }
    if hosts.is_empty() {
        return Err(Failure::no("no hosts given"));
    }
    Ok(hosts)
}

/// The hosts and the version to check.
struct Verification<'a> {
    version: &'a Version,
    hosts: HashSet<&'a str>,
    strict: bool,
}

impl<'a> Verification<'a> {
    async fn ask(&self, store: &Store<'_>, deadline: Deadline) -> Result<Verified<'a>, StoreError> {
        if self.strict {
            verify_both(self.version, &self.hosts, store, deadline).await
        } else {
            verify(self.version, &self.hosts, store, deadline).await
        }
    }
}

/// Checks the listings and what each host announces in its own key, at one revision. Any agent may
/// write the listings, because in their keys the version comes before the host; only the host may
/// write its own key.
async fn verify_both<'a>(
    version: &Version,
    hosts: &HashSet<&'a str>,
    store: &Store<'_>,
    deadline: Deadline,
) -> Result<Verified<'a>, StoreError> {
    let ranges = [Prefix::RunningVersion(version.clone()), Prefix::Announced];
    let snapshot = store.session.read_all(&[Key::Store], &ranges, None, deadline).await?;
    let is_there = |host: &&str| {
        let Ok(host) = HostName::new(*host) else { return false };
        let announced = snapshot.get(&Key::Announced(host.clone()));
        announced.is_some_and(|entry| announces(&entry.value, version))
            && snapshot.get(&Key::RunningVersion(version.clone(), host)).is_some()
    };
    let missing: Vec<&str> = hosts.iter().copied().filter(|host| !is_there(host)).collect();
    Ok(Verified::new(missing.into_iter(), snapshot.revision, Some(snapshot)))
}

/// Checks the listings alone, which is what scripts know.
async fn verify<'a>(
    version: &Version,
    hosts: &HashSet<&'a str>,
    store: &Store<'_>,
    deadline: Deadline,
) -> Result<Verified<'a>, StoreError> {
    if hosts.len() > POINT_READS_MAX
        && let Some(verified) = verify_by_range(version, hosts, store, deadline).await?
    {
        return Ok(verified);
    }
    let keys = |host: &&'a str| {
        let named =
            HostName::new(*host).unwrap_or_else(|e| unreachable!("checked when the list was read: {e}"));
        [Key::RunningVersion(version.clone(), named.clone()), Key::Announced(named)]
    };
    let mut keys: Vec<Key> = hosts.iter().flat_map(keys).collect();
    keys.push(Key::Store);
    let snapshot = store.session.read_keys(&keys, deadline).await?;
    let announces = |key| snapshot.get(key).is_some_and(|entry| announces(&entry.value, version));
    let (mut missing, mut unconfirmed) = (Vec::new(), Vec::new());
    for (host, keys) in hosts.iter().zip(keys.chunks_exact(2)) {
        match snapshot.get(&keys[0]) {
            None => missing.push(*host),
            Some(_) if !announces(&keys[1]) => unconfirmed.push(*host),
            Some(_) => {}
        }
    }
    let verified = Verified::new(missing.into_iter(), snapshot.revision, Some(snapshot));
    Ok(verified.with_unconfirmed(unconfirmed.into_iter()))
}

/// Checks the same as [`verify`], by reading all listings of the version. Returns `None` if there
/// are many times more listings than hosts to check.
async fn verify_by_range<'a>(
    version: &Version,
    hosts: &HashSet<&'a str>,
    store: &Store<'_>,
    deadline: Deadline,
) -> Result<Option<Verified<'a>>, StoreError> {
    let prefix = Prefix::RunningVersion(version.clone());
    let both = [Prefix::RunningVersions, Prefix::Announced];
    let (list, identity, counts) = if hosts.len() <= SHORT_LIST_MAX {
        let limit = hosts.len() * LARGER_FLEET;
        let Survey { list, keys: snapshot, counts } =
            store.session.survey((&prefix, limit), &[Key::Store], &both, deadline).await?;
        let Some(list) = list else { return Ok(None) };
        (list, Some(snapshot), Some(counts))
    } else {
        // For a long list a second request is worth its cost: the store works on both requests at
        // the same time.
        let (list, beside) = tokio::join!(
            store.session.read_key_list(&prefix, None, deadline),
            store.session.read_and_count(&[Key::Store], &both, deadline),
        );
        let (identity, counts) = beside.ok().unzip();
        (list?, identity, counts)
    };
    let mut absent = hosts.clone();
    for found in list.suffixes() {
        absent.remove(found);
    }
    let verified = Verified::new(absent.iter().copied(), list.revision, identity);
    // A host writes its listing and announces the version in one transaction. If there are equally
    // many keys of both kinds, no more is read, which keeps the request cheap. A host whose listing
    // was moved to another version is found only after it has listed itself again.
    if counts.is_some_and(|counts| counts[0] == counts[1]) {
        return Ok(Some(verified));
    }
    let mut unconfirmed: HashSet<&str> = hosts.difference(&absent).copied().collect();
    let take = |page: &EntryPage| {
        for (key, _) in page.entries().filter(|(_, value)| announces(value, version)) {
            unconfirmed.remove(key.rsplit('/').next().unwrap_or_default());
        }
    };
    let announced = &Prefix::Announced;
    match store.session.read_entry_pages(announced, Some(list.revision), deadline, take).await {
        Ok(_) => Ok(Some(verified.with_unconfirmed(unconfirmed.into_iter()))),
        Err(error) => {
            let error = anyhow!(error).context("reading whether the hosts confirm their listings");
            output::warn(&format!("{error:#}"));
            Ok(Some(verified))
        }
    }
}

/// True if a host's own key names the version.
fn announces(announced: &[u8], version: &Version) -> bool {
    read_version(announced).is_ok_and(|announced_version| announced_version == *version)
}

/// Asks again until all hosts run the version or the time is over. The last answer counts; if no
/// request was answered, the result is the last error.
async fn wait_for<'a>(
    question: &Verification<'a>,
    store: &Store<'_>,
    limit: Duration,
) -> Result<Verified<'a>, Failure> {
    let end = Instant::now() + limit;
    let pace = Backoff::new(Duration::from_millis(300), Duration::from_secs(3));
    let wanted = question.hosts.len();
    let progress = progress_bar(wanted);
    let mut held: Option<Verified<'a>> = None;
    let mut rounds = 0;
    loop {
        // Every request gets some time even if none is left, because the answer at the end counts.
        let left = end.saturating_duration_since(Instant::now());
        let most = left.max(LAST_QUESTION).min(store.settings.timeout);
        let started = Instant::now();
        let answer = question.ask(store, Deadline::within(most)).await;
        let last_error = match answer {
            Ok(verified) if verified.missing.is_empty() => return Ok(verified),
            Ok(verified) => {
                progress.set_position((wanted - verified.missing.len()) as u64);
                held = Some(verified);
                None
            }
            Err(error) => Some(error),
        };
        rounds += 1;
        // A long list costs the store something, so the store is left alone nine tenths of the
        // time.
        let delay = pace.delay(rounds, etcd_session::jitter()).max(started.elapsed() * 9);
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            progress.finish_and_clear();
            return match (held, last_error) {
                (Some(verified), last_error) => {
                    last_error.iter().for_each(|error| output::warn(&error.to_string()));
                    Ok(verified)
                }
                (None, Some(error)) => Err(error.into()),
                (None, None) => unreachable!("a round ends with an answer or an error"),
            };
        }
        tokio::time::sleep(delay.min(left)).await;
    }
}

/// Returns a progress bar, which is drawn only on a terminal.
fn progress_bar(hosts: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(hosts as u64), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} hosts, {elapsed}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_one_host_per_line() {
        let found = hosts("\n a\r\nb-1\n\nc.example.org \na\n\n").unwrap();
        assert_eq!(found, HashSet::from(["a", "b-1", "c.example.org"]));
    }

    #[test]
    fn nothing_to_verify_is_no() {
        for empty in ["", "\n", "  \n\t\n"] {
            let failure = hosts(empty).unwrap_err();
            assert_eq!((failure.exit, failure.error.to_string().as_str()), (Exit::No, "no hosts given"));
        }
    }

    #[test]
    fn a_line_that_is_no_host_is_named() {
        let failure = hosts("a\nb_1\n").unwrap_err();
        assert_eq!(failure.exit, Exit::No);
        assert!(failure.error.to_string().contains("\"b_1\""), "{}", failure.error);
    }
}
