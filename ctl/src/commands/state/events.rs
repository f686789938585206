//! `events`: who did what.

use crate::commands::answers;
use crate::commands::context::{Store, host_of, now};
use crate::commands::past::moment::host_changes_since;
use crate::commands::verb::{About, Answer, Group, Past, Spec, Verb};
use crate::completion;
use crate::exit::{Exit, Failure};
use crate::output::{self, Output, Screen};
use anyhow::{Context, anyhow};
use clap::Args;
use etcd_session::{Feed, FeedBegin, FeedEvent, FeedOptions, FoundEntry};
use fleet::views::{EventsView, HostChange, PastEvent, event_reads, events_after, tells_of_events};
use schema::keys::{Key, Prefix};
use schema::names::HostName;
use schema::time::parse_duration;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// How often the command looks whether somebody still reads its output.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How many parts of the feed may wait to be printed.
const WAITING_PARTS: usize = 16;

/// List who did what
#[derive(Debug, Args)]
pub(crate) struct Events {
    /// Only what was done to this host, or by a command in one of its steps
    #[arg(add = completion::hosts())]
    host: Option<String>,
    /// Only events newer than this, for example 2h
    #[arg(long, value_name = "DURATION")]
    since: Option<String>,
    /// Keep running and print new events; with `-o json`, one line for each event
    #[arg(long)]
    follow: bool,
}

impl Verb for Events {
    const SPEC: Spec = Spec {
        name: "events",
        group: Group::Fleet,
        about: About::Operators,
        past: Past::Answers,
        exits: &[Exit::No],
        answer: Answer::Json(answers::of::<EventsView>),
        examples: &[
            ("orchestrate events --since 2h", "who did what in the last two hours"),
            ("orchestrate events web-7", "what was done to web-7"),
            ("orchestrate events --follow", "keep running and print new events"),
        ],
    };

    fn past(&self) -> Past {
        if self.follow { Past::Waits } else { Self::SPEC.past }
    }

    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let Self { host, since, follow } = self;
        let host = host.as_deref().map(host_of).transpose()?;
        let since = since.as_deref().map(parse_duration).transpose();
        let since = since.map_err(|error| Failure::usage(anyhow!(error).context("--since")))?;
        let (mut keys, ranges) = event_reads();
        let of_host = host.iter().flat_map(|host| [Key::Host(host.clone()), Key::Live(host.clone())]);
        let of_host: Vec<Key> = of_host.collect();
        keys.extend(of_host.iter().cloned());
        let mut kept = BTreeMap::new();
        let keep = |key: &str, found: FoundEntry<'_>| {
            if tells_of_events(key, found.value()) {
                kept.insert(key.to_owned(), found.to_entry());
            }
        };
        let mut found = store.session.read_each(&keys, &ranges, None, store.deadline, keep).await?;
        found.entries.append(&mut kept);
        let mut view = EventsView::read(&found);
        let is_known = of_host.iter().any(|key| found.get(key).is_some());
        drop(found);
        if let Some(since) = since {
            let since = now().before(since);
            view.keep_since(since);
            if let Some(question) = &store.settings.past {
                let (changes, gaps) = host_changes_since(question, since)?;
                gaps.iter().for_each(|gap| output::warn(gap));
                view.add_changes(changes, gaps);
            }
        }
        if let Some(host) = &host {
            view.keep_host(host);
        }
        if follow {
            return print_on(&view, host.as_ref(), store, output).await;
        }
        if view.events.is_empty() {
            // A misspelled name would be taken for one of a host to which nothing was done.
            if let Some(host) = host
                && !is_known
            {
                return Err(Failure::no(format!(
                    "host {host} is not known: it is not on the roster, and there is no event about it"
                )));
            }
            output::note("no events");
        }
        output.answer(&view, |output| output.raw(view.text(output::width()).as_str()));
        Ok(Exit::Yes)
    }
}

/// The ranges whose changes are followed. Of all that changes without an event, these say who did it and when.
const FOLLOWED: [Prefix; 3] = [Prefix::Events, Prefix::Rollouts, Prefix::HealthAll];

/// How many printed events of commands are remembered, so that a rollback of an operator is not told as one of a host
/// too.
const REMEMBERED_MAX: usize = 1000;

/// Prints events, and then those that follow, until nobody reads them any more.
async fn print_on(
    view: &EventsView,
    host: Option<&HostName>,
    store: &Store<'_>,
    output: &Output,
) -> Result<Exit, Failure> {
    view.events.iter().try_for_each(|event| print(event, output))?;
    let of_commands = view.events.iter().filter(|event| event.change.is_none());
    let mut printed: BTreeSet<i64> = of_commands.map(|event| event.revision).collect();
    let (sender, mut receiver) = mpsc::channel(WAITING_PARTS);
    let options = FeedOptions { begin: FeedBegin::After(view.revision), ..FeedOptions::default() };
    let feed =
        |(number, range)| Feed::start(store.session.clone(), range, options.clone(), number, sender.clone());
    let feeds: Vec<Feed> = (0..).zip(FOLLOWED).map(feed).collect();
    let (mut last, mut are_connected) = ([view.revision; FOLLOWED.len()], [true; FOLLOWED.len()]);
    while !Screen::is_closed() {
        let Ok(part) = timeout(LOOK_EVERY, receiver.recv()).await else { continue };
        let Some((number, part)) = part else { break };
        let number = usize::try_from(number).unwrap_or_default();
        let (last, was_connected) = (&mut last[number], are_connected.iter().all(|connected| *connected));
        let events = match part {
            FeedEvent::Apply(revision, changes) => {
                let events = events_after(*last, revision, &changes);
                *last = revision;
                events
            }
            // The whole list, because the store no longer has every change since the last one.
            FeedEvent::InitApply(list) => {
                let list: Vec<_> = list.into_iter().map(|(key, entry)| (key, Some(entry))).collect();
                events_after(*last, *last, &list)
            }
            FeedEvent::InitDone(revision) => {
                *last = revision.max(*last);
                continue;
            }
            FeedEvent::Progress(_) | FeedEvent::UnconfirmedProgress(_) | FeedEvent::Problem(_) => continue,
            FeedEvent::WentBack(revision) => {
                return Err(Failure::cannot_tell(format!(
                    "the store went back to revision {revision}: it was restored; start the command again"
                )));
            }
            FeedEvent::Connected(connected) => {
                are_connected[number] = connected;
                let is_connected = are_connected.iter().all(|connected| *connected);
                if is_connected != was_connected {
                    output::note(if is_connected {
                        "the store answers again"
                    } else {
                        "the store does not answer"
                    });
                }
                continue;
            }
        };
        for event in events {
            // The trigger of a rollback is told by its event.
            if event.change == Some(HostChange::Rollback) && printed.contains(&event.revision) {
                continue;
            }
            if event.change.is_none() {
                printed.insert(event.revision);
            }
            if printed.len() > REMEMBERED_MAX {
                printed.pop_first();
            }
            if host.is_none_or(|host| event.concerns(host)) {
                print(&event, output)?;
            }
        }
    }
    drop(feeds);
    Ok(Exit::Yes)
}

fn print(event: &PastEvent, output: &Output) -> Result<(), Failure> {
    let mut part = output.empty();
    if part.is_json() {
        part.raw(&serde_json::to_string(event).context("an event")?);
        part.raw("\n");
    } else {
        part.line(&event.line());
    }
    part.flush()
}
