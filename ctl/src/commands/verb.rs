//! What a verb is: a struct with its options that implements [`Verb`], or [`LocalVerb`] if it needs no store.
//!
//! All that is known of a verb before its options are read is its constant `SPEC`. Dispatch, help, manual pages and
//! completion follow from it and from the list in `verbs.rs`, and so does whether the verb refuses the past or a
//! store that went back. Only where that depends on its options, a verb also has a method, as [`Verb::past`].

use super::context::Store;
use crate::exit::{Exit, Failure};
use crate::output::Output;
pub use crate::seen_stores::About;
use crate::settings::Settings;
use clap::{Args, Command};
use schemars::{Schema, SchemaGenerator};
use std::fmt::Debug;
use std::time::Duration;

/// A command line, and what it does.
pub type Example = (&'static str, &'static str);

/// What is known of a verb before its options are read.
#[derive(Debug, Clone, Copy)]
pub struct Spec {
    /// Its words in a command line, for example `why` or `rollout status`.
    pub name: &'static str,
    /// The group under which help lists it.
    pub group: Group,
    /// What its answer is about. A verb about the fleet refuses a store that went back.
    pub about: About,
    /// Whether it answers `--at`.
    pub past: Past,
    /// Its exit codes, besides 0, 2 and 64, which every verb has. Their meanings stand in its section of
    /// `docs/command-line.md`.
    pub exits: &'static [Exit],
    /// What it prints with `-o json`.
    pub answer: Answer,
    /// Examples for help and manual pages.
    pub examples: &'static [Example],
}

/// A group of verbs in help: a heading of `docs/command-line.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    Rollout,
    Fleet,
    Hosts,
    Services,
    Values,
    ThisHost,
    Store,
    Recording,
    Setup,
    Original,
}

impl Group {
    /// All groups, in the order of help.
    pub const ALL: [Self; 10] = [
        Self::Rollout,
        Self::Fleet,
        Self::Hosts,
        Self::Services,
        Self::Values,
        Self::ThisHost,
        Self::Store,
        Self::Recording,
        Self::Setup,
        Self::Original,
    ];

    /// Returns the heading of the group.
    pub fn heading(self) -> &'static str {
        match self {
            Self::Rollout => "Making the fleet run a version",
            Self::Fleet => "How the fleet stands",
            Self::Hosts => "The hosts",
            Self::Services => "Services",
            Self::Values => "Values",
            Self::ThisHost => "This host",
            Self::Store => "The store",
            Self::Recording => "The recording of the store",
            Self::Setup => "Setting up",
            Self::Original => "Verbs of the original tool",
        }
    }
}

/// Whether a verb answers a question about the past, `--at`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Past {
    /// Yes: it reads the store once.
    Answers,
    /// No: it writes, or asks something else than the store.
    DoesNotRead,
    /// No: it waits for changes.
    Waits,
    /// No: a recording does not have what it reads. The text says so.
    NotRecorded(&'static str),
    /// No: it works on a recording, which `--recording` names for it alone.
    OnRecording,
}

/// Adds what a type says about its JSON to a generator, and returns its schema.
pub(crate) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// What a verb prints with `-o json`.
#[derive(Debug, Clone, Copy)]
pub enum Answer {
    /// A value with this schema.
    Json(SchemaOf),
    /// What another verb prints, for which this one is a second name.
    OfOther,
    /// No JSON: a script, files, an address, or what another command prints.
    NotJson,
}

/// A verb that asks the store, or writes to it.
pub(crate) trait Verb: Args + Debug + 'static {
    /// What is known of it before its options are read.
    const SPEC: Spec;
    /// Its own time limit, if that is shorter than `--timeout`.
    const LIMIT: Option<Duration> = None;

    /// Returns whether it answers a question about the past with these options.
    fn past(&self) -> Past {
        Self::SPEC.past
    }

    /// Answers without the store, if these options are about this machine alone.
    fn answer_locally(&self, _: &Settings, _: &mut Output) -> Option<Result<Exit, Failure>> {
        None
    }

    /// Hands the answer to the output, and returns the exit code.
    async fn run(self, store: &Store<'_>, output: &mut Output) -> Result<Exit, Failure>;
}

/// A verb that needs no store.
pub(crate) trait LocalVerb: Args + Debug + 'static {
    /// What is known of it before its options are read.
    const SPEC: Spec;

    /// Hands the answer to the output, and returns the exit code.
    fn run(self, program: &Program<'_>, output: &mut Output) -> Result<Exit, Failure>;
}

/// The program in which a verb runs.
pub(crate) struct Program<'a> {
    pub(crate) settings: &'a Settings,
    /// Returns the whole command line.
    pub(crate) definition: fn() -> Command,
    /// Returns what is known of all verbs.
    pub(crate) specs: fn() -> Vec<&'static Spec>,
}
