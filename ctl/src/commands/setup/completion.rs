//! `completion`: prints the completion script of a shell.

use crate::commands::verb::{About, Answer, Group, LocalVerb, Past, Program, Spec};
use crate::completion;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use anyhow::Context;
use clap::Args;

/// Print a completion script for a shell
#[derive(Debug, Args)]
pub(crate) struct Completion {
    /// Shell that reads the script
    shell: clap_complete::Shell,
}

impl LocalVerb for Completion {
    const SPEC: Spec = Spec {
        name: "completion",
        group: Group::Setup,
        about: About::Other,
        past: Past::DoesNotRead,
        exits: &[],
        answer: Answer::NotJson,
        examples: &[(
            "orchestrate completion bash > ~/.local/share/bash-completion/completions/orchestrate",
            "for one user",
        )],
    };

    fn run(self, _: &Program<'_>, output: &mut Output) -> Result<Exit, Failure> {
        output.raw(&completion::script(self.shell).context("completion")?);
        Ok(Exit::Yes)
    }
}
