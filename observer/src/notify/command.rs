//! Messages to a command of this machine, on its standard input.

use super::http_client::SendError;
use crate::incidents::Message;
use anyhow::{Context, Result};
use commands::trust::check_command;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Bytes of the output of a command that are in the log if it fails.
const OUTPUT_MAX_BYTES: usize = 1024;

/// A command that reads messages. It has a message if it exits with 0.
#[derive(Clone)]
pub(super) struct NoticeCommand {
    run: Vec<String>,
    timeout: Duration,
}

impl NoticeCommand {
    /// Returns a command.
    ///
    /// # Errors
    /// Returns an error if anybody but root or the user of this process could have put its file there.
    pub(super) fn new(run: Vec<String>, timeout: Duration) -> Result<Self> {
        let program = run.first().map(String::as_str).unwrap_or_default();
        check_command(Path::new(program)).context("a command that hears of incidents")?;
        Ok(Self { run, timeout })
    }

    /// Runs the command with a message.
    pub(super) async fn run(&self, message: &Message) -> Result<(), SendError> {
        let (environment, body) = (BTreeMap::new(), message.body());
        let running = commands::run(&self.run, &environment, body.as_bytes(), self.timeout, OUTPUT_MAX_BYTES);
        let outcome = running.await;
        if outcome.succeeded() { Ok(()) } else { Err(SendError::Failed(outcome.describe())) }
    }
}
