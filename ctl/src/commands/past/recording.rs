//! `recording`: what keeps a recording of the store in order. The store is not asked.

use crate::commands::answers;
use crate::commands::context::now;
use crate::commands::verb::{About, Answer, Group, LocalVerb, Past, Program, Spec};
use crate::exit::{Exit, Failure};
use crate::output::{self, Output};
use crate::past::NamedRecording;
use crate::settings::Settings;
use anyhow::anyhow;
use archive::recording::{
    Diagnostic, DiagnosticKind, Erased, ListedSegment, Recording, RecordingPlace, SegmentError, SegmentName,
    Source, erase, load, time_text,
};
use clap::Args;
use schema::names::Token;
use schema::time::parse_duration;
use schemars::JsonSchema;
use serde::Serialize;
use std::time::Duration;

/// Remove segments that are old
#[derive(Debug, Args)]
pub(crate) struct Prune {
    /// Remove segments older than this, for example 30d
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    older_than: Duration,
    /// Only the segments of this recorder
    #[arg(long, value_name = "ID", value_parser = |id: &str| Token::new(id))]
    recorder: Option<Token>,
    /// Say what would be removed, and remove nothing
    #[arg(long)]
    dry_run: bool,
}

/// Erase the values of keys
#[derive(Debug, Args)]
pub(crate) struct Erase {
    /// Exact keys
    #[arg(required_unless_present = "below", value_name = "KEY")]
    keys: Vec<String>,
    /// All keys with this prefix
    #[arg(long, value_name = "BEGINNING")]
    below: Option<String>,
    /// Say which segments would be rewritten, and rewrite none
    #[arg(long)]
    dry_run: bool,
}

impl Erase {
    fn includes(&self, key: &str) -> bool {
        self.keys.iter().any(|wanted| wanted == key)
            || self.below.as_ref().is_some_and(|below| key.starts_with(below))
    }

    /// Returns what is erased, for the mark in the segment.
    fn what(&self) -> String {
        let below = self.below.iter().map(|below| format!("those that begin with {below}"));
        let keys: Vec<String> = self.keys.iter().cloned().chain(below).collect();
        format!("the values of {}", keys.join(", "))
    }
}

/// The recording that a verb works on.
struct Opened<'a> {
    named: &'a NamedRecording,
    place: RecordingPlace,
    listed: Vec<ListedSegment>,
}

impl<'a> Opened<'a> {
    /// Opens the recording that `--recording` or the environment names.
    fn open(settings: &'a Settings) -> Result<Self, Failure> {
        let Some(named) = &settings.recording else {
            return Err(Failure::usage(anyhow!(
                "name the recording with --recording: its directory, or the URL of its object store"
            )));
        };
        let place = named.open()?;
        let listed = place.list().map_err(|error| named.unreadable(error))?;
        if listed.is_empty() {
            return Err(Failure::no(format!("{} has no segments", named.name)));
        }
        Ok(Self { named, place, listed })
    }
}

fn recording_of(listed: &[ListedSegment]) -> Recording {
    Recording::new(listed.iter().map(|segment| segment.name.clone()))
}

fn bytes_of<'a>(listed: &[ListedSegment], names: impl IntoIterator<Item = &'a SegmentName>) -> u64 {
    let length = |name: &SegmentName| listed.iter().find(|segment| segment.name == *name).map(|s| s.bytes);
    names.into_iter().filter_map(length).sum()
}

/// List what each recorder has recorded
#[derive(Debug, Args)]
pub(crate) struct List;

impl LocalVerb for List {
    const SPEC: Spec = Spec {
        name: "recording list",
        group: Group::Recording,
        about: About::Other,
        past: Past::OnRecording,
        exits: &[],
        answer: Answer::Json(answers::of::<ListAnswer<'_>>),
        examples: &[(
            "orchestrate recording list --recording /var/lib/orchestrate-observer/recording",
            "what is recorded, and how much space it takes",
        )],
    };

    /// Lists the recorders of each history. Only the last segment of each is read.
    fn run(self, program: &Program<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let Opened { named, place, listed } = Opened::open(program.settings)?;
        let recording = recording_of(&listed);
        let (mut rows, mut recorders) = (Vec::new(), Vec::new());
        for (branch, recorder, names) in recording.recorders() {
            let Some(first) = names.first() else { continue };
            // The newest one may say nothing yet.
            let ends = names.iter().rev().take(2).map(|name| load(name, &place));
            let end = ends
                .filter_map(|end| end.map_err(|why| output::warn(&why.to_string())).ok().flatten())
                .next();
            let end = end.map(|end| (end.last_revision(), time_text(end.last_time())));
            let bytes = bytes_of(&listed, names);
            let (last_revision, last_at) = end.unzip();
            rows.push([
                branch.to_string(),
                recorder.to_string(),
                names.len().to_string(),
                size_text(bytes),
                format!("{}, {}", first.revision, time_text(first.begun)),
                match (last_revision, &last_at) {
                    (Some(revision), Some(at)) => format!("{revision}, {at}"),
                    _ => "not known".into(),
                },
            ]);
            recorders.push(Recorded {
                branch: branch.to_string(),
                recorder: recorder.to_string(),
                segment_count: names.len(),
                byte_count: bytes,
                first_revision: first.revision,
                first_at: time_text(first.begun),
                last_revision,
                last_at,
            });
        }
        output.sorted_answer(&ListAnswer { recording: &named.name, recorders }, |output| {
            output.table(["BRANCH", "RECORDER", "SEGMENTS", "SIZE", "FROM", "TO"], rows);
        });
        Ok(Exit::Yes)
    }
}

/// What `recording list` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ListAnswer<'a> {
    recording: &'a str,
    recorders: Vec<Recorded>,
}

/// What one recorder has recorded of one history.
#[derive(Debug, Serialize, JsonSchema)]
struct Recorded {
    branch: String,
    recorder: String,
    segment_count: usize,
    byte_count: u64,
    first_revision: i64,
    first_at: String,
    last_revision: Option<i64>,
    last_at: Option<String>,
}

/// What `recording check` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CheckAnswer<'a> {
    recording: &'a str,
    segment_count: usize,
    diagnostics: Vec<FoundDiagnostic<'a>>,
}

/// What is wrong with a segment.
#[derive(Debug, Serialize, JsonSchema)]
struct FoundDiagnostic<'a> {
    segment: String,
    diagnostic: &'static str,
    message: &'a str,
}

/// What `recording prune` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PruneAnswer<'a> {
    recording: &'a str,
    removed_segments: &'a [String],
    byte_count: u64,
}

/// What `recording erase` answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct EraseAnswer<'a> {
    recording: &'a str,
    rewritten_segments: &'a [String],
    unchanged_segments: Vec<UnchangedSegment<'a>>,
}

/// A segment that may still have the values.
#[derive(Debug, Serialize, JsonSchema)]
struct UnchangedSegment<'a> {
    segment: &'a str,
    message: &'a str,
}

/// Read every segment, and say what is wrong or missing
#[derive(Debug, Args)]
pub(crate) struct Check;

impl LocalVerb for Check {
    const SPEC: Spec = Spec {
        name: "recording check",
        group: Group::Recording,
        about: About::Other,
        past: Past::OnRecording,
        exits: &[Exit::No],
        answer: Answer::Json(answers::of::<CheckAnswer<'_>>),
        examples: &[(
            "orchestrate recording check --recording /var/lib/orchestrate-observer/recording",
            "read everything, and say what is wrong or missing",
        )],
    };

    fn run(self, program: &Program<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let Opened { named, place, listed } = Opened::open(program.settings)?;
        let diagnostics = recording_of(&listed).check(&place);
        let faults = diagnostics.iter().filter(|diagnostic| diagnostic.kind.is_fault()).count();
        let shown = diagnostics.iter().map(|Diagnostic { segment, kind, message }| FoundDiagnostic {
            segment: segment.to_string(),
            diagnostic: kind_name(*kind),
            message,
        });
        let answer =
            CheckAnswer { recording: &named.name, segment_count: listed.len(), diagnostics: shown.collect() };
        output.sorted_answer(&answer, |output| {
            for Diagnostic { segment, kind, message } in &diagnostics {
                let fault = if kind.is_fault() { "FAULT: " } else { "" };
                // Messages about one segment begin with its name.
                let message = message.strip_prefix(&format!("{segment}: ")).unwrap_or(message);
                output.line(&format!("{segment}: {fault}{message}"));
            }
            let faults = match faults {
                0 => "no fault".to_owned(),
                1 => "1 fault".to_owned(),
                more => format!("{more} faults"),
            };
            output.line(&format!("{} segments, {faults}", listed.len()));
        });
        Ok(if faults == 0 { Exit::Yes } else { Exit::No })
    }
}

fn kind_name(kind: DiagnosticKind) -> &'static str {
    match kind {
        DiagnosticKind::Unreadable => "unreadable",
        DiagnosticKind::Missing => "missing",
        DiagnosticKind::Contradiction => "contradiction",
        DiagnosticKind::NotClosed => "not_closed",
        DiagnosticKind::Gap => "gap",
        DiagnosticKind::Erased => "erased",
    }
}

impl LocalVerb for Prune {
    const SPEC: Spec = Spec {
        name: "recording prune",
        group: Group::Recording,
        about: About::Other,
        past: Past::OnRecording,
        exits: &[],
        answer: Answer::Json(answers::of::<PruneAnswer<'_>>),
        examples: &[(
            "orchestrate recording prune --recording /srv/recording --older-than 90d --dry-run",
            "say which segments would be removed",
        )],
    };

    fn run(self, program: &Program<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let Opened { named, place, mut listed } = Opened::open(program.settings)?;
        if let Some(recorder) = &self.recorder {
            listed.retain(|segment| segment.name.recorder == *recorder);
            if listed.is_empty() {
                return Err(Failure::no(format!("{} has no segment of recorder {recorder}", named.name)));
            }
        }
        let age = self.older_than.as_millis();
        let before = now_millis().saturating_sub(i64::try_from(age).unwrap_or(i64::MAX));
        let removed = recording_of(&listed).ended_before(before);
        let bytes = bytes_of(&listed, &removed);
        if !self.dry_run {
            for name in &removed {
                place.remove(name).map_err(|error| named.unreadable(format!("{name}: {error}")))?;
            }
        }
        let names: Vec<String> = removed.iter().map(ToString::to_string).collect();
        let answer = PruneAnswer { recording: &named.name, removed_segments: &names, byte_count: bytes };
        output.sorted_answer(&answer, |output| {
            names.iter().for_each(|name| output.line(name));
            let done = if self.dry_run { "would be removed" } else { "removed" };
            output.line(&format!(
                "{done}: {} of {} segments, {}",
                names.len(),
                listed.len(),
                size_text(bytes)
            ));
        });
        Ok(Exit::Yes)
    }
}

impl LocalVerb for Erase {
    const SPEC: Spec = Spec {
        name: "recording erase",
        group: Group::Recording,
        about: About::Other,
        past: Past::OnRecording,
        exits: &[],
        answer: Answer::Json(answers::of::<EraseAnswer<'_>>),
        examples: &[(
            "orchestrate recording erase /orchestrate/reports/web-7 --recording /srv/recording",
            "erase what web-7 reported",
        )],
    };

    /// Erases values, and says of which segments that could not be done.
    fn run(self, program: &Program<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let Opened { named, place, listed } = Opened::open(program.settings)?;
        let mark = Erased { at: now_millis(), what: self.what() };
        let (mut rewritten, mut left) = (Vec::new(), Vec::new());
        for ListedSegment { name, .. } in &listed {
            // One that cannot be read or written keeps no value in the others.
            let erased =
                place.load(name).map_err(|why| format!("it may have values: {why}")).and_then(|bytes| {
                    let erased =
                        erase(&bytes, |key| self.includes(key), &mark).map_err(|error| why_left(&error))?;
                    if let Some(bytes) = erased.as_ref()
                        && !self.dry_run
                    {
                        place.replace(name, bytes).map_err(|why| format!("it has values: {why}"))?;
                    }
                    Ok(erased.is_some())
                });
            match erased {
                Ok(true) => rewritten.push(name.to_string()),
                Ok(false) => {}
                Err(why) => left.push((name.to_string(), why)),
            }
        }
        let shown = left.iter().map(|(segment, message)| UnchangedSegment { segment, message });
        let answer = EraseAnswer {
            recording: &named.name,
            rewritten_segments: &rewritten,
            unchanged_segments: shown.collect(),
        };
        output.sorted_answer(&answer, |output| {
            rewritten.iter().for_each(|name| output.line(name));
            let done = if self.dry_run { "would be rewritten" } else { "rewritten" };
            output.line(&format!("{done}: {} of {} segments", rewritten.len(), listed.len()));
        });
        left.iter().for_each(|(name, why)| output::warn(&format!("{name}: {why}")));
        Ok(if left.is_empty() { Exit::Yes } else { Exit::CannotTell })
    }
}

fn why_left(error: &SegmentError) -> String {
    match error {
        SegmentError::Unfinished => {
            "it is not closed, so it may have values; erase them again when its recorder has closed it".into()
        }
        error => format!("it may have values: {error}"),
    }
}

fn now_millis() -> i64 {
    now().0.saturating_mul(1000)
}

/// Returns a number of bytes as people read it.
fn size_text(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes / 1024),
        _ => format!("{} MiB", bytes / 1_048_576),
    }
}
