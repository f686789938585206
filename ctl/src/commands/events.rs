//! `events`: who did what.

use super::context::{Store, host_of, now};
use super::past_moment::host_changes_since;
use crate::completion;
use crate::exit::{Exit, Failure};
use crate::output::{self, Output, Screen};
use anyhow::{Context, anyhow};
use clap::Args;
use etcd_session::{Feed, FeedBegin, FeedEvent, FeedOptions};
use planning::fleet::views::{EventsView, PastEvent, event_reads};
use schema::keys::Prefix;
use schema::names::HostName;
use schema::snapshot::Entry;
use schema::time::parse_duration;
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
    /// Only what is not older than this, for example 2h
    #[arg(long, value_name = "DURATION")]
    since: Option<String>,
    /// Go on, and print what is done from now on; with `-o json`, one line for each event
    #[arg(long)]
    follow: bool,
}

impl Events {
    /// True if it goes on with what is done from now on.
    pub(super) fn follows(&self) -> bool {
        self.follow
    }
}

/// Prints who did what, the newest last.
pub(super) async fn events(
    Events { host, since, follow }: Events,
    store: &Store<'_>,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let host = host.as_deref().map(host_of).transpose()?;
    let since = since.as_deref().map(parse_duration).transpose();
    let since = since.map_err(|error| Failure::usage(anyhow!(error).context("--since")))?;
    let (keys, ranges) = event_reads();
    let found = store.session.read_all(&keys, &ranges, None, store.deadline).await?;
    let mut view = EventsView::read(&found);
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
        output::note("no events");
    }
    output.answer(&view, |output| output.raw(view.text(output::width()).as_str()));
    Ok(Exit::Yes)
}

/// Prints events, and then those that follow, until nobody reads them any more.
async fn print_on(
    view: &EventsView,
    host: Option<&HostName>,
    store: &Store<'_>,
    output: &Output,
) -> Result<Exit, Failure> {
    view.events.iter().try_for_each(|event| print(event, output))?;
    let (sender, mut receiver) = mpsc::channel(WAITING_PARTS);
    let options = FeedOptions { begin: FeedBegin::After(view.revision), ..FeedOptions::default() };
    let feed = Feed::start(store.session.clone(), Prefix::Events, options, 0, sender);
    let (mut last, mut is_connected) = (view.revision, true);
    while !Screen::is_closed() {
        let Ok(part) = timeout(LOOK_EVERY, receiver.recv()).await else { continue };
        let Some((_, part)) = part else { break };
        let events = match part {
            FeedEvent::Apply(revision, changes) => {
                let events = past_events(&changes, last, revision);
                last = revision;
                events
            }
            // The whole list, because the store no longer has every change since the last one.
            FeedEvent::InitApply(list) => {
                let list: Vec<_> = list.into_iter().map(|(key, entry)| (key, Some(entry))).collect();
                past_events(&list, last, last)
            }
            FeedEvent::InitDone(revision) => {
                last = last.max(revision);
                continue;
            }
            FeedEvent::Progress(_) | FeedEvent::UnconfirmedProgress(_) | FeedEvent::Problem(_) => continue,
            FeedEvent::WentBack(revision) => {
                return Err(Failure::cannot_tell(format!(
                    "the store went back to revision {revision}: it was restored; start the command again"
                )));
            }
            FeedEvent::Connected(connected) => {
                if connected != is_connected {
                    output::note(if connected {
                        "the store answers again"
                    } else {
                        "the store does not answer"
                    });
                }
                is_connected = connected;
                continue;
            }
        };
        for event in events {
            if host.is_none_or(|host| event.concerns(host)) {
                print(&event, output)?;
            }
        }
    }
    drop(feed);
    Ok(Exit::Yes)
}

/// Returns the events after a revision, in order, and those that were deleted although no event took their place.
fn past_events(changes: &[(String, Option<Entry>)], after: i64, revision: i64) -> Vec<PastEvent> {
    let has_new = changes.iter().any(|(_, entry)| entry.is_some());
    let read = |(key, entry): &(String, Option<Entry>)| match entry {
        Some(entry) => (entry.mod_revision > after).then(|| PastEvent::read(key, entry)),
        None => (!has_new).then(|| PastEvent::deleted(key, revision)),
    };
    let mut events: Vec<PastEvent> = changes.iter().filter_map(read).collect();
    events.sort_by_key(|event| event.revision);
    events
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
