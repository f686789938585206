//! `rolling_upgrade`, for hosts whose scripts ask `check_puppet` whether they may run. `upgrade` decides which may go.

use super::host_config;
use super::upgrade::{UpgradeRules, UpgradeStep, UpgradeView, disable_all, next_step, upgrade_reads};
use super::upgrade_answers::{DisableAnswer, StatusAnswer, UpgradeAnswer, UpgradeLists, lists};
use crate::commands::answers;
use crate::commands::context::{Store, version_of};
use crate::commands::rollout::trigger;
use crate::commands::store::identity::has_brakes;
use crate::commands::verb::{About, Answer, Group, Past, Spec, Verb};
use crate::completion;
use crate::exit::{Exit, Failure};
use crate::local::{self, LocalState};
use crate::output::{self, Output};
use crate::seen_stores;
use anyhow::{Context, anyhow};
use clap::Args;
use schema::names::{HostName, Version};
use schema::snapshot::KeySnapshot;
use schema::writes::host_config::UpgradeChange;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Time between two rounds of `--retry`.
const RETRY_INTERVAL: Duration = Duration::from_secs(15);
/// Number of steps of one round that may be refused because others change the same keys.
const TRIES: u32 = 64;

/// Let as many hosts run their scripts as the rolling rules allow
#[derive(Debug, Args)]
pub(crate) struct Upgrade {
    /// Version to which hosts are upgraded; it is triggered if another one is desired
    #[arg(add = completion::versions())]
    version: String,
    /// Write nothing; say what would be done
    #[arg(long)]
    noop: bool,
    /// Print the state of the hosts too
    #[arg(short, long)]
    verbose: bool,
    /// Go on, every 15 s, until no host is left to upgrade
    #[arg(short, long)]
    retry: bool,
    /// Rules in JSON, which win over those of the file: rolling_rules, role_dependencies, group_mappings
    #[arg(long, value_name = "JSON")]
    instructions: Option<String>,
}

/// Reads what a step is decided from.
async fn read(store: &Store<'_>) -> Result<(KeySnapshot, UpgradeView), Failure> {
    let (keys, ranges) = upgrade_reads();
    let found = store.session.read_all(&keys, &ranges, None, store.deadline).await?;
    seen_stores::check(store.settings, &store.session, Some(&found))?;
    let view = UpgradeView::read(&found).map_err(Failure::cannot_tell)?;
    Ok((found, view))
}

/// Commits a step. Returns the revision, or `None` if others changed what it was decided from.
async fn commit(
    change: &UpgradeChange,
    verb: &'static str,
    found: &KeySnapshot,
    store: &Store<'_>,
) -> Result<Option<i64>, Failure> {
    let names: Vec<&str> = change.enable.iter().map(HostName::as_str).collect();
    let reason = if names.is_empty() { String::new() } else { format!("may run: {}", names.join(" ")) };
    let act = store.act(verb, Some(&reason)).await?;
    let transaction = change.transaction(found, &act);
    let committed = store.session.commit_act(&transaction, &act, store.deadline).await?;
    Ok(committed.applied.then_some(committed.revision))
}

fn others_change() -> Failure {
    Failure::cannot_tell("other commands keep changing the same keys; repeat the command")
}

/// Print which hosts are upgraded, which are being upgraded, and which wait
#[derive(Debug, Args)]
pub(crate) struct Status;

impl Verb for Status {
    const SPEC: Spec = Spec {
        name: "rolling_upgrade status",
        group: Group::Original,
        about: About::SelfChecked,
        past: Past::Answers,
        exits: &[],
        answer: Answer::Json(answers::of::<StatusAnswer<'_>>),
        examples: &[],
    };

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let (found, view) = read(store).await?;
        let lists = lists(&view);
        let line = host_config::mapping(&lists)?;
        let answer = StatusAnswer {
            lists,
            held: view.held_hosts().cloned().collect(),
            version: view.desired(),
            revision: found.revision,
        };
        output.sorted_answer(&answer, |o| o.line(&line));
        note_held(view.held_hosts());
        Ok(Exit::Yes)
    }
}

fn note_held<'a>(held: impl IntoIterator<Item = &'a HostName>) {
    let held: Vec<&str> = held.into_iter().map(HostName::as_str).collect();
    output::note_hosts("an operator holds", held.into_iter());
}

/// Why hosts wait.
#[derive(Debug, Default, PartialEq, Eq)]
struct Waits {
    obstacles: BTreeSet<String>,
    /// The hosts that an operator holds.
    held: Vec<HostName>,
}

impl Waits {
    fn new(obstacles: BTreeSet<String>, view: &UpgradeView) -> Self {
        Self { obstacles, held: view.held_hosts().cloned().collect() }
    }

    fn note(&self) {
        self.obstacles.iter().for_each(|why| output::note(why));
        note_held(&self.held);
    }
}

/// Hold the scripts of all hosts until `rolling_upgrade upgrade` lets them run
#[derive(Debug, Args)]
pub(crate) struct GlobalDisablePuppet;

impl Verb for GlobalDisablePuppet {
    const SPEC: Spec = Spec {
        name: "rolling_upgrade global_disable_puppet",
        group: Group::Original,
        about: About::SelfChecked,
        past: Past::DoesNotRead,
        exits: &[],
        answer: Answer::Json(answers::of::<DisableAnswer>),
        examples: &[],
    };

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        for _ in 0..TRIES {
            let (found, view) = read(store).await?;
            let (change, is_last) = disable_all(&view);
            let is_done = view.holds_all() && change.is_empty();
            let mut revision = Some(found.revision);
            if !is_done {
                revision = commit(&change, "rolling_upgrade global_disable_puppet", &found, store).await?;
            }
            if is_last && let Some(revision) = revision {
                output.sorted_answer(&DisableAnswer { changed: !is_done, revision }, |_| {});
                return Ok(Exit::Yes);
            }
        }
        Err(others_change())
    }
}

/// Reads the rules of the file, and those of the option, which win.
fn rules(instructions: Option<&str>, store: &Store<'_>) -> Result<UpgradeRules, Failure> {
    let path = &store.settings.upgrade_file;
    let shown = path.display().to_string();
    let wrong = |error, what: &str| Failure::usage(anyhow!("{error}").context(what.to_owned()));
    let file = local::read(path).with_context(|| shown.clone())?;
    let of_file = file.map(|text| UpgradeRules::read(&text, UpgradeRules::default())).transpose();
    let of_file = of_file.map_err(|error| wrong(error, &shown))?.unwrap_or_default();
    match instructions {
        Some(text) => UpgradeRules::read(text, of_file).map_err(|error| wrong(error, "--instructions")),
        None => Ok(of_file),
    }
}

/// What an upgrade did, over all of its rounds.
#[derive(Debug, Default)]
struct Done {
    triggered: bool,
    enabled: Vec<HostName>,
    revision: i64,
    /// The state at the end.
    lists: UpgradeLists,
    is_over: bool,
    /// What was said last. It is not said again in each round.
    waits: Waits,
}

/// The signals that end the loop.
struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    fn listen() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).context("signals");
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// Returns true if a signal came within the time.
    async fn within(&mut self, time: Duration) -> bool {
        tokio::select! {
            _ = self.interrupt.recv() => true,
            _ = self.terminate.recv() => true,
            () = tokio::time::sleep(time) => false,
        }
    }
}

impl Verb for Upgrade {
    const SPEC: Spec = Spec {
        name: "rolling_upgrade upgrade",
        group: Group::Original,
        about: About::SelfChecked,
        past: Past::DoesNotRead,
        exits: &[Exit::No, Exit::Refused],
        answer: Answer::Json(answers::of::<UpgradeAnswer<'_>>),
        examples: &[(
            "orchestrate rolling_upgrade upgrade v43 --retry",
            "upgrade host after host until all are done",
        )],
    };

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let version = version_of(&self.version)?;
        let rules = rules(self.instructions.as_deref(), store)?;
        let repeats = self.retry && !self.noop;
        let mut stop = if repeats { Some(Stop::listen()?) } else { None };
        let mut done = Done::default();
        let mut stopped = false;
        if self.noop {
            preview(&version, &rules, &mut done, store).await?;
        } else {
            round(&version, &rules, true, &mut done, store).await?;
        }
        while !done.is_over && !stopped {
            let Some(stop) = stop.as_mut() else { break };
            stopped = stop.within(RETRY_INTERVAL).await;
            if stopped {
                break;
            }
            match round(&version, &rules, false, &mut done, &store.again()).await {
                Err(failure) if failure.exit == Exit::CannotTell => {
                    output::warn(&format!("{:#}; the command tries again", failure.error));
                }
                other => other?,
            }
        }
        if stopped {
            output::note("stopped; not every host is upgraded yet");
        }
        print(&done, &self, &version, output)?;
        Ok(Exit::of(!stopped))
    }
}

/// Says what the next step would be.
async fn preview(
    version: &Version,
    rules: &UpgradeRules,
    done: &mut Done,
    store: &Store<'_>,
) -> Result<(), Failure> {
    let (found, view) = read(store).await?;
    let UpgradeStep { change, obstacles } = next_step(&view, version, rules);
    let waits = Waits::new(obstacles, &view);
    waits.note();
    *done = Done {
        triggered: view.desired() != Some(version),
        enabled: change.enable,
        revision: found.revision,
        lists: lists(&view),
        is_over: view.is_over() && view.desired() == Some(version),
        waits,
    };
    Ok(())
}

/// Takes all steps that can be taken now. Only the first round triggers the version: if another one is
/// desired later, somebody else triggered it.
async fn round(
    version: &Version,
    rules: &UpgradeRules,
    may_trigger: bool,
    done: &mut Done,
    store: &Store<'_>,
) -> Result<(), Failure> {
    let mut refused = 0;
    while refused < TRIES {
        store.prepare_act();
        let (found, view) = read(store).await?;
        if view.desired() != Some(version) && (done.triggered || !may_trigger) {
            let now = view.desired().map_or("none", Version::as_str);
            return Err(Failure::refused(format!(
                "the desired version is {now} now, not {version}; the upgrade to {version} ends"
            )));
        }
        let UpgradeStep { change, obstacles } = next_step(&view, version, rules);
        if change.is_empty() {
            (done.lists, done.is_over, done.revision) = (lists(&view), view.is_over(), found.revision);
            let waits = Waits::new(obstacles, &view);
            if waits != done.waits {
                waits.note();
                done.waits = waits;
            }
            return Ok(());
        }
        let Some(revision) = commit(&change, "rolling_upgrade upgrade", &found, store).await? else {
            refused += 1;
            continue;
        };
        output::note_hosts("may run now", change.enable.iter().map(HostName::as_str));
        done.enabled.extend(change.enable);
        if change.trigger.is_some() {
            done.triggered = true;
            LocalState::of(store.settings).keep_current_version(version);
            let has_brakes = has_brakes(&found);
            let record = if has_brakes { trigger::write_record(revision, None, store).await } else { None };
            trigger::if_started(version, record)?;
        }
    }
    Err(others_change())
}

fn print(done: &Done, options: &Upgrade, version: &Version, output: &mut Output) -> Result<(), Failure> {
    let answer = UpgradeAnswer {
        version,
        noop: options.noop,
        triggered: done.triggered,
        enabled_hosts: &done.enabled,
        states: &done.lists,
        over: done.is_over,
        revision: done.revision,
    };
    let status = host_config::mapping(&done.lists)?;
    output.sorted_answer(&answer, |o| {
        let would = if options.noop { "would be " } else { "" };
        if done.triggered {
            o.line(&format!("{version} {would}triggered"));
        }
        done.enabled.iter().for_each(|host| o.line(&format!("{host} {would}enabled")));
        if options.verbose {
            o.line(&status);
        }
        if done.is_over {
            o.line("No hosts left to upgrade");
        }
    });
    Ok(())
}
