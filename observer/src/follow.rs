//! Follows the store, and keeps what the observer knows up to date.
//!
//! Each part of the store has a feed. What the feeds send becomes one snapshot, which moves to a revision only when every
//! feed has sent all changes up to it ([`Assembly`]). A feed without changes has to say how far it is: it is asked when
//! another feed, or a read of the store, shows that the store is further.
//!
//! This file is long because each event may change all of one state.

use crate::clock::now;
use crate::freshness::Freshness;
use crate::observed::{Moment, Observed, SharedFleet};
use crate::probe::{Probe, Reading};
use crate::recorder::RecorderFeed;
use etcd_session::{
    Advance, Assembly, Deadline, Feed, FeedEvent, FeedOptions, ReadOnlySession, StorePosition,
};
use fleet::FleetVerdict;
use schema::keys;
use schema::names::Token;
use schema::reads::Keys;
use schema::snapshot::KeySnapshot;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// Shortest time between two states that clients see. The first change after a rest is seen at once.
const MOMENT_INTERVAL: Duration = Duration::from_millis(250);
/// Shortest time between two requests for the progress of a feed.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// Longest time for which clients wait for what the feeds were asked for.
const ANSWER_WAIT: Duration = Duration::from_millis(100);
/// Shortest time between two searches for deadlocks.
const DEADLOCKS_INTERVAL: Duration = Duration::from_secs(1);
/// Longest time between two requests for the progress of a feed.
const PROGRESS_INTERVAL_MAX: Duration = Duration::from_secs(5);
/// How many times longer than its last confirmations took an old member is left alone. It reads a whole range for each.
const CONFIRM_REST: u32 = 20;
/// Longest time for a read that confirms the progress of a feed.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(5);
/// Bounds of the delay before a feed that lost its contact tries again. They are shorter than those of agents, of which
/// thousands come back at once.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(3));
/// Bytes of changes that may wait for a feed that sends nothing. Then everything is read again.
const PENDING_MAX_BYTES: usize = 64 * 1024 * 1024;
/// What is said of a store that went back.
const WENT_BACK: &str = "the store went back to an earlier state, and no operator has accepted it: `orchestrate store accept --version V`";
/// Events that are taken together.
const EVENTS_TOGETHER: usize = 256;

/// Follows the store until the process ends, and tells the recorder what it sees.
pub(crate) async fn follow(
    session: ReadOnlySession,
    fleet: Arc<SharedFleet>,
    recorder: Option<RecorderFeed>,
) {
    let parts = Keys::all();
    let (sender, mut events) = mpsc::channel(EVENTS_TOGETHER);
    let (readings_sender, mut readings) = mpsc::channel(1);
    let (probed, keys) = watch::channel(parts[0].clone());
    let probe = Probe { session: session.clone(), keys, readings: readings_sender };
    let mut tasks = JoinSet::new();
    tasks.spawn(probe.run());
    let mut follower = Follower {
        listing: None,
        requested_at: vec![None; parts.len()],
        awaited: None,
        feed_problems: vec![None; parts.len()],
        probe_problem: None,
        alarms_problem: None,
        has_alarms: false,
        confirming: Some(Duration::ZERO),
        identity: None,
        doubted: None,
        feeds: Vec::new(),
        history: 0,
        freshness: Freshness::default(),
        deadlocks_at: Instant::now(),
        shown_at: None,
        fresh_at: None,
        parts,
        session,
        fleet,
        recorder,
        sender,
        probed,
    };
    follower.listing = Some(follower.new_assembly());
    follower.start_feeds();
    let mut together = Vec::with_capacity(EVENTS_TOGETHER);
    loop {
        let due = follower.next_due();
        tokio::select! {
            // The follower holds a sender itself, so this never ends.
            _ = events.recv_many(&mut together, EVENTS_TOGETHER) => follower.take(together.drain(..)).await,
            reading = readings.recv() => match reading {
                Some(reading) => follower.note_reading(reading),
                None => return,
            },
            () = sleep_until(due) => {}
        }
        follower.go_on();
        if follower.feeds.iter().any(Feed::has_ended) {
            tracing::error!("a feed of the store has ended");
            return;
        }
        if follower.recorder.as_ref().is_some_and(RecorderFeed::has_ended) {
            tracing::error!("the recorder has ended");
            return;
        }
    }
}

struct Follower {
    session: ReadOnlySession,
    fleet: Arc<SharedFleet>,
    recorder: Option<RecorderFeed>,
    parts: [Keys; 7],
    feeds: Vec<Feed>,
    sender: mpsc::Sender<(u64, FeedEvent)>,
    /// What the probe reads.
    probed: watch::Sender<Keys>,
    /// Why each feed has no contact with the store.
    feed_problems: Vec<Option<String>>,
    /// Why the probe could not read.
    probe_problem: Option<String>,
    /// Why the alarms could not be read. While nothing can be read, that is said instead, and what was known is shown.
    alarms_problem: Option<String>,
    /// True if the store has said which alarms it has.
    has_alarms: bool,
    /// The lineage and the epoch of the store in the present snapshot.
    identity: Option<(Token, u64)>,
    /// The identity that the store had before it went back, until an operator has accepted it.
    doubted: Option<(Token, u64)>,
    /// The number of the history of the store since the start.
    history: u64,
    /// What is known of the present history before its first snapshot is complete.
    listing: Option<Assembly>,
    freshness: Freshness,
    /// When each feed was last asked for its progress.
    requested_at: Vec<Option<Instant>>,
    /// The revision that the feeds were asked for, and until when clients do not see an earlier one because of that.
    awaited: Option<(i64, Instant)>,
    /// How long confirmations took since progress was last asked for; `None` if one failed.
    confirming: Option<Duration>,
    /// When deadlocks are looked for next.
    deadlocks_at: Instant,
    /// When clients last saw a new state.
    shown_at: Option<Instant>,
    /// The snapshot holds everything that was written before this time.
    fresh_at: Option<Instant>,
}

impl Follower {
    /// Starts the feeds of the present history. Their numbers differ from those of earlier ones.
    fn start_feeds(&mut self) {
        let options = FeedOptions { by_revision: true, backoff: BACKOFF, ..FeedOptions::default() };
        let first = self.history * self.parts.len() as u64;
        let numbered = (first..).zip(&self.parts);
        let start = |(number, keys): (u64, &Keys)| {
            self.session.follow(keys.clone(), options.clone(), number, self.sender.clone())
        };
        self.feeds = numbered.map(start).collect();
    }

    /// Returns the number of the feed in the present history; `None` if it belongs to an earlier one.
    fn number_of(&self, number: u64) -> Option<usize> {
        let first = self.history * self.parts.len() as u64;
        number.checked_sub(first).and_then(|number| usize::try_from(number).ok())
    }

    /// Takes what the feeds sent.
    async fn take(&mut self, events: impl Iterator<Item = (u64, FeedEvent)>) {
        for (number, event) in events {
            let Some(number) = self.number_of(number) else { continue };
            match event {
                FeedEvent::WentBack(revision) => self.begin_history(revision, 0),
                FeedEvent::UnconfirmedProgress(revision) => self.confirm(number, revision).await,
                FeedEvent::Problem(problem) => self.feed_problems[number] = Some(problem),
                event => {
                    if event == FeedEvent::Connected(true) {
                        self.feed_problems[number] = None;
                    }
                    self.with_assembly(|assembly| assembly.take(number, event));
                }
            }
        }
        let disconnected = self.with_assembly(|assembly| assembly.disconnected().next());
        let probed = self.parts[disconnected.flatten().unwrap_or_default()].clone();
        self.probed.send_if_modified(|keys| std::mem::replace(keys, probed.clone()) != probed);
        self.tell_problem();
    }

    /// Tells why the store cannot be followed, if it cannot.
    fn tell_problem(&self) {
        let feeds = self.feed_problems.iter().flatten();
        self.fleet.set_problem(self.probe_problem.iter().chain(feeds).next().cloned());
    }

    /// Does something with the assembly of the present history.
    fn with_assembly<T>(&mut self, work: impl FnOnce(&mut Assembly) -> T) -> Option<T> {
        match &mut self.listing {
            Some(assembly) => Some(work(assembly)),
            None => self.fleet.change(|observed| observed.as_mut().map(|known| work(&mut known.assembly))),
        }
    }

    fn new_assembly(&self) -> Assembly {
        Assembly::new(self.parts.clone()).with_revisions(self.recorder.is_some())
    }

    /// Begins a new history after the store was restored.
    fn begin_history(&mut self, revision: i64, raft_term: u64) {
        if let Some(recorder) = &mut self.recorder {
            recorder.note_restored();
        }
        tracing::warn!(
            revision,
            "the store went back to an earlier revision: it was restored; everything is read again"
        );
        self.session.begin_history(revision, raft_term);
        self.doubt(self.identity.clone());
        self.read_again();
    }

    /// Notes that the store went back since it had this identity: what it says was true when its backup was made. A store
    /// without an identity has no agents and nothing by which an operator could accept it.
    fn doubt(&mut self, before: Option<(Token, u64)>) {
        self.doubted = self.doubted.take().or(before);
        self.fleet.set_doubt(self.doubted.as_ref().map(|_| WENT_BACK.to_owned()));
    }

    /// Ends the doubt if an operator has accepted the store, or if it is another one.
    fn settle_doubt(&mut self) {
        let (Some((lineage, epoch)), Some(found)) = (&self.doubted, &self.identity) else { return };
        if found.0 != *lineage || found.1 > *epoch {
            self.doubted = None;
            self.fleet.set_doubt(None);
        }
    }

    /// Reads everything again. What was known is shown, ever older, until the first new snapshot is complete.
    fn read_again(&mut self) {
        self.history += 1;
        self.listing = Some(self.new_assembly());
        self.freshness = Freshness::default();
        self.awaited = None;
        self.feed_problems = vec![None; self.parts.len()];
        self.start_feeds();
    }

    /// Confirms by a read that a feed has sent everything up to a revision, because the progress of an old member can
    /// overtake changes.
    async fn confirm(&mut self, number: usize, revision: i64) {
        // One that failed is not repeated for the other feeds.
        let Some(confirming) = self.confirming else { return };
        let Some((since, count)) = self.with_assembly(|assembly| assembly.sent(number)).flatten() else {
            return;
        };
        let (keys, deadline) = (self.parts[number].clone(), Deadline::within(CONFIRM_TIMEOUT));
        let began = Instant::now();
        match self.session.is_unchanged(&keys, since, count, revision, deadline).await {
            Ok(true) => {
                self.with_assembly(|assembly| assembly.take(number, FeedEvent::Progress(revision)));
            }
            // The feed sends the changes.
            Ok(false) => {}
            Err(error) => {
                tracing::debug!(%error, %keys, "the progress of a feed was not confirmed");
                self.confirming = None;
                return;
            }
        }
        self.confirming = Some(confirming + began.elapsed());
    }

    fn note_reading(&mut self, reading: Reading) {
        match reading {
            Reading::Position(_, Ok(StorePosition { revision, raft_term, went_back: true })) => {
                self.begin_history(revision, raft_term);
            }
            Reading::Position(began, Ok(position)) => {
                self.probe_problem = None;
                if let Some(problem) = &self.alarms_problem {
                    self.fleet.note_unknown_alarms(problem);
                }
                self.freshness.note(position.revision, began);
                if let Some(recorder) = &mut self.recorder {
                    recorder.note_reading(position.revision, began);
                }
            }
            Reading::Position(_, Err(error)) => {
                self.probe_problem = Some(error.to_string());
                // What was answered last stays shown.
                if self.has_alarms {
                    self.alarms_problem = None;
                }
            }
            Reading::Alarms(Ok(alarms)) => {
                (self.has_alarms, self.alarms_problem) = (true, None);
                self.fleet.note_alarms(alarms);
            }
            Reading::Alarms(Err(error)) => self.alarms_problem = Some(error.to_string()),
        }
        self.tell_problem();
    }

    /// Returns the time between two requests for the progress of a feed.
    fn progress_interval(&self) -> Duration {
        let confirming = self.confirming.map_or(PROGRESS_INTERVAL_MAX, |took| took * CONFIRM_REST);
        confirming.clamp(PROGRESS_INTERVAL, PROGRESS_INTERVAL_MAX)
    }

    /// Returns when something is due though nothing comes.
    fn next_due(&self) -> Instant {
        let interval = self.progress_interval();
        let requested = self.requested_at.iter().flatten().max().map(|at| *at + interval);
        let shown = self.shown_at.map(|at| at + MOMENT_INTERVAL);
        let awaited = self.awaited.map(|(_, until)| until);
        let now = Instant::now();
        let all = requested.into_iter().chain(shown).chain(awaited).chain([self.deadlocks_at]);
        let due = all.filter(|at| *at > now).min();
        due.unwrap_or_else(|| now + DEADLOCKS_INTERVAL)
    }

    /// Moves the snapshot as far as is known, asks for what lacks, and lets clients see a new state if it is time.
    fn go_on(&mut self) {
        self.advance();
        self.ask_for_progress();
        self.find_deadlocks();
        self.show();
    }

    fn advance(&mut self) {
        if let Some(mut assembly) = self.listing.take() {
            let Some(advance) = assembly.advance() else {
                self.listing = Some(assembly);
                return self.bound_pending();
            };
            tracing::info!(revision = assembly.snapshot().revision, "the store was read");
            self.identity = identity(assembly.snapshot());
            if let Some(recorder) = &mut self.recorder {
                recorder.tell(advance, assembly.snapshot(), self.identity.as_ref());
            }
            let observed = Observed::new(assembly);
            self.settle_doubt();
            self.fleet.change(|shown| *shown = Some(observed));
            (self.fresh_at, self.deadlocks_at) = (None, Instant::now());
        } else {
            let (reached, identity, advance) = self.fleet.change(|observed| {
                let Some(observed) = observed else { return (0, None, None) };
                let advance = observed.assembly.advance();
                if let Some(advance) = &advance {
                    observed.note_changed(&advance.changed);
                }
                (observed.found().revision, identity(observed.found()), advance)
            });
            // A restored store whose revision has passed the old one shows itself only by this.
            let before = std::mem::replace(&mut self.identity, identity);
            if before.is_some() && before != self.identity {
                tracing::warn!("the identity of the store changed; everything is read again");
                if let Some(recorder) = &mut self.recorder {
                    recorder.note_other_history("the identity of the store changed");
                }
                self.session.begin_history(reached, 0);
                let went_back = match (&before, &self.identity) {
                    (Some((lineage, epoch)), Some(found)) => found.0 == *lineage && found.1 < *epoch,
                    _ => true,
                };
                if went_back {
                    self.doubt(before);
                }
                return self.read_again();
            }
            if before.is_none()
                && self.identity.is_some()
                && let Some(recorder) = &mut self.recorder
            {
                recorder.note_identity();
            }
            self.tell_recorder(advance);
        }
        let reached = self.with_assembly(|assembly| assembly.snapshot().revision).unwrap_or_default();
        let awaited = self.freshness.awaited();
        if let Some(began) = self.freshness.reach(reached) {
            self.fresh_at = Some(began);
            if let Some(recorder) = self.recorder.as_mut()
                && awaited == reached
            {
                recorder.tell_still(reached, began);
            }
        }
        self.bound_pending();
    }

    /// Tells the recorder how the snapshot moved, and everything if it asks for it.
    fn tell_recorder(&mut self, advance: Option<Advance>) {
        let (Some(recorder), fleet) = (&mut self.recorder, &self.fleet) else { return };
        if (advance.is_some() || recorder.is_asked())
            && let Some(observed) = &*fleet.read()
        {
            recorder.tell(advance.unwrap_or_default(), observed.found(), self.identity.as_ref());
        }
    }

    /// Reads everything again if too much waits for a feed that sends nothing.
    fn bound_pending(&mut self) {
        let pending = self.with_assembly(|assembly| assembly.pending_bytes()).unwrap_or_default();
        if pending > PENDING_MAX_BYTES {
            tracing::warn!(
                bytes = pending,
                "a part of the store could not be followed; everything is read again"
            );
            if let Some(recorder) = &mut self.recorder {
                recorder.note_lost("a part of the store could not be followed");
            }
            self.read_again();
        }
    }

    /// Asks the feeds how far they are that keep the snapshot from moving on, when clients may see a new state.
    fn ask_for_progress(&mut self) {
        if self.was_shown_just_now() {
            return;
        }
        let revision = self.freshness.awaited();
        let behind = self.with_assembly(|assembly| {
            (assembly.behind(revision).collect::<Vec<_>>(), assembly.newest().max(Some(revision)))
        });
        let Some((behind, Some(newest))) = behind else { return };
        let interval = self.progress_interval();
        let is_due = |number: &usize| self.requested_at[*number].is_none_or(|at| at.elapsed() >= interval);
        let due: Vec<usize> = behind.into_iter().filter(is_due).collect();
        if !due.is_empty() {
            self.confirming = Some(Duration::ZERO);
            // A feed that does not answer is asked again, but what the others sent is shown before.
            self.awaited.get_or_insert((newest, Instant::now() + ANSWER_WAIT));
        }
        for number in due {
            self.requested_at[number] = Some(Instant::now());
            self.feeds[number].request_progress();
        }
    }

    /// Looks for deadlocks if a host waits for a service. They depend on the time.
    fn find_deadlocks(&mut self) {
        if self.listing.is_some() || self.deadlocks_at > Instant::now() {
            return;
        }
        self.deadlocks_at = Instant::now() + DEADLOCKS_INTERVAL;
        let waits = FleetVerdict::waits_for_services;
        self.fleet.change(|observed| {
            if let Some(observed) = observed.as_mut().filter(|o| o.fleet.verdicts().values().any(waits)) {
                observed.find_deadlocks(now());
            }
        });
    }

    fn was_shown_just_now(&self) -> bool {
        self.shown_at.is_some_and(|at| at.elapsed() < MOMENT_INTERVAL)
    }

    /// Lets clients see the present state, unless they saw another one just before.
    fn show(&mut self) {
        if self.listing.is_some() || self.was_shown_just_now() {
            return;
        }
        let revision = self.with_assembly(|assembly| assembly.snapshot().revision).unwrap_or_default();
        // The answers of the feeds come within milliseconds. What is shown now would keep them from being shown then.
        if self.awaited.is_some_and(|(awaited, until)| revision < awaited && Instant::now() < until) {
            return;
        }
        self.awaited = None;
        let moment = Moment { history: self.history, revision, fresh_at: self.fresh_at };
        if moment != self.fleet.moment() {
            self.fleet.set_moment(moment);
            self.shown_at = Some(Instant::now());
        }
    }
}

/// Returns the lineage and the epoch of the store; `None` if it has no identity that can be read.
fn identity(found: &KeySnapshot) -> Option<(Token, u64)> {
    let identity = found.value_of(keys::Store)?;
    Some((identity.lineage, identity.epoch))
}
