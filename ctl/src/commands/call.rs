//! Runs a verb with the options of one command line.

use super::ask::ask;
use super::verb::{LocalVerb, Past, Program, Spec, Verb};
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::seen_stores::About;
use crate::settings::Settings;
use anyhow::anyhow;
use clap::{ArgMatches, Command};
use std::fmt::Debug;

/// A verb with the options of one command line.
pub(crate) trait Call: Debug {
    fn run(self: Box<Self>, program: &Program<'_>, output: &mut Output) -> Result<Exit, Failure>;
}

/// A verb in the list of verbs.
pub(crate) struct VerbEntry {
    pub(crate) spec: Spec,
    /// Adds its options and their help to a definition.
    pub(crate) define: fn(Command) -> Command,
    /// Reads its options.
    pub(crate) read: fn(&ArgMatches) -> Result<Box<dyn Call>, clap::Error>,
}

impl VerbEntry {
    /// Returns the entry of a verb that needs the store.
    pub(crate) const fn of<V: Verb>() -> Self {
        Self {
            spec: V::SPEC,
            define: V::augment_args,
            read: |matches| Ok(Box::new(StoreCall(V::from_arg_matches(matches)?))),
        }
    }

    /// Returns the entry of a verb that needs no store. The list is a constant, so the compiler checks it.
    pub(crate) const fn local<V: LocalVerb>() -> Self {
        assert!(
            matches!(V::SPEC.about, About::Other)
                && matches!(V::SPEC.past, Past::DoesNotRead | Past::OnRecording)
        );
        Self {
            spec: V::SPEC,
            define: V::augment_args,
            read: |matches| Ok(Box::new(LocalCall(V::from_arg_matches(matches)?))),
        }
    }
}

#[derive(Debug)]
struct StoreCall<V>(V);

impl<V: Verb> Call for StoreCall<V> {
    fn run(self: Box<Self>, program: &Program<'_>, output: &mut Output) -> Result<Exit, Failure> {
        let (verb, settings) = (self.0, program.settings);
        check(verb.past(), settings)?;
        if let Some(answer) = verb.answer_locally(settings, output) {
            return answer;
        }
        let most = V::LIMIT.map_or(settings.timeout, |limit| limit.min(settings.timeout));
        ask(
            settings,
            most,
            V::SPEC.about,
            output,
            Box::new(|store, output| Box::pin(verb.run(store, output))),
        )
    }
}

#[derive(Debug)]
struct LocalCall<V>(V);

impl<V: LocalVerb> Call for LocalCall<V> {
    fn run(self: Box<Self>, program: &Program<'_>, output: &mut Output) -> Result<Exit, Failure> {
        check(V::SPEC.past, program.settings)?;
        self.0.run(program, output)
    }
}

/// Refuses a question about the past that the verb does not answer, and a recording that nobody asks.
fn check(past: Past, settings: &Settings) -> Result<(), Failure> {
    if settings.past.is_some() {
        let why = match past {
            Past::Answers => return Ok(()),
            Past::DoesNotRead | Past::OnRecording => "this one does not",
            Past::Waits => "this one waits for changes, and the past does not change",
            Past::NotRecorded(why) => why,
        };
        return Err(Failure::usage(anyhow!("`--at` is for verbs that read the store: {why}")));
    }
    let names_recording = settings.recording.as_ref().is_some_and(|recording| recording.by_option);
    if names_recording && past != Past::OnRecording {
        return Err(Failure::usage(anyhow!("--recording is for a question about the past; add --at MOMENT")));
    }
    Ok(())
}
