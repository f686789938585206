//! `wait_for`: waits until a service has enough instances.

use super::catalog::read;
use crate::commands::answers;
use crate::commands::context::{Store, service_of};
use crate::commands::verb::{About, Answer, Group, Past, Spec, Verb};
use crate::completion;
use crate::exit::{Exit, Failure};
use crate::numbers::whole;
use crate::output::{self, Output};
use catalog::catalog_from_store;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use etcd_session::{Collected, Collector, Feed, FeedEvent, FeedOptions, StoreError};
use schema::health::Level;
use schema::keys::Prefix;
use schema::names::ServiceName;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use tokio::sync::mpsc;

/// Wait until a service has enough instances
#[derive(Debug, Args)]
pub(crate) struct WaitFor {
    /// Name of the service, for example mysql
    #[arg(add = completion::services())]
    service: String,
    /// How many instances are enough
    #[arg(long, default_value_t = 1, value_parser = whole::<usize>)]
    count: usize,
    /// What an instance needs in order to count: it is published, or it also works
    #[arg(long, default_value = "functional", value_parser = level_parser())]
    level: Level,
}

/// Parses a level.
fn level_parser() -> impl TypedValueParser<Value = Level> {
    PossibleValuesParser::new(["addressable", "functional"]).try_map(|word| word.parse::<Level>())
}

impl Verb for WaitFor {
    const SPEC: Spec = Spec {
        name: "wait_for",
        group: Group::Services,
        about: About::Hosts,
        past: Past::Waits,
        exits: &[Exit::No],
        answer: Answer::Json(answers::of::<WaitAnswer<'_>>),
        examples: &[(
            "orchestrate wait_for mysql --count 2 --timeout 5m",
            "wait until mysql works on two hosts",
        )],
    };

    /// Waits until a service has `count` instances. Exits with 0 if it has, with 1 if it did not in
    /// time, and with 2 if that is not known.
    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let Self { service, count, level } = self;
        let service = &service_of(&service)?;
        // One read answers at once if there are enough, and fails at once if the store is away.
        let (mut have, mut revision) = read_count(service, level, store).await?;
        while have < count {
            let seen = wait_until_counted(service, count, level, store).await?;
            if seen < count {
                have = seen;
                break;
            }
            // The two feeds may be at two different revisions, so a yes must come from a single read.
            (have, revision) = read_count(service, level, store).await?;
        }
        let answer = WaitAnswer { service, level, need: count, have, revision };
        output.sorted_answer(&answer, |_| {});
        if have < count {
            output::note(&format!("{service}: {have} of {count} {level}"));
        }
        Ok(Exit::of(have >= count))
    }
}

async fn read_count(
    service: &ServiceName,
    level: Level,
    store: &Store<'_>,
) -> Result<(usize, i64), StoreError> {
    let (view, revision) = read(store, Some(service), None).await?;
    Ok((view.count(service, level), revision))
}

/// Follows a service until it has enough instances or the time is over. Returns the last count.
async fn wait_until_counted(
    service: &ServiceName,
    count: usize,
    level: Level,
    store: &Store<'_>,
) -> Result<usize, Failure> {
    let (sink, mut events) = mpsc::channel(8);
    let start = |prefix, number| {
        let session = store.session.clone();
        Followed::new(Feed::start(session, prefix, FeedOptions::default(), number, sink.clone()))
    };
    let mut followed =
        [start(Prefix::Service(service.clone()), 0), start(Prefix::Health(service.clone()), 1)];
    let mut have = 0;
    loop {
        let Ok(Some((number, event))) = tokio::time::timeout(store.deadline.left(), events.recv()).await
        else {
            // Both feeds were listed and connected when the time was over, so the count was true
            // then.
            return if followed.iter().all(|feed| feed.is_connected && feed.entries.is_some()) {
                Ok(have)
            } else {
                Err(Failure::cannot_tell("the store was out of reach when the time was over"))
            };
        };
        followed[usize::from(number != 0)].take(event);
        if let [Some(records), Some(healths)] = [&followed[0].entries, &followed[1].entries] {
            let all = records.iter().chain(healths);
            let (view, _) =
                catalog_from_store(all.map(|(key, (value, leased))| (key.as_str(), &value[..], *leased)));
            have = view.count(service, level);
            if have >= count {
                return Ok(have);
            }
        }
    }
}

/// A range that is followed, with its values and whether each key is attached to a lease.
struct Followed {
    _feed: Feed,
    collector: Collector<String, (Vec<u8>, bool)>,
    /// `None` until the range was listed once.
    entries: Option<BTreeMap<String, (Vec<u8>, bool)>>,
    is_connected: bool,
}

impl Followed {
    fn new(feed: Feed) -> Self {
        Self { _feed: feed, collector: Collector::default(), entries: None, is_connected: false }
    }

    fn take(&mut self, event: FeedEvent) {
        let collected = self.collector.take(event, |key, entry| {
            Some((key.to_owned(), entry.map(|entry| (entry.value.clone(), entry.lease != 0))))
        });
        match collected {
            None => {}
            Some(Collected::Replaced(entries, _)) => self.entries = Some(entries),
            Some(Collected::Changed(changes, _)) => {
                let entries = self.entries.get_or_insert_default();
                for (key, entry) in changes {
                    match entry {
                        Some(entry) => entries.insert(key, entry),
                        None => entries.remove(&key),
                    };
                }
            }
            Some(Collected::Connected(connected)) => self.is_connected = connected,
        }
    }
}

/// What `wait_for` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct WaitAnswer<'a> {
    service: &'a ServiceName,
    level: Level,
    need: usize,
    have: usize,
    revision: i64,
}
