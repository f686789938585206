//! What is known about a template, and what is wrong with it.

use serde::Serialize;
use std::fmt;

/// The state of a template, as `/status` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct TemplateState {
    /// True if the file shows the current catalog.
    pub up_to_date: bool,
    /// What is wrong, or what the template waits for.
    #[serde(rename = "trouble")]
    pub problem: Option<String>,
    /// What is wrong; `None` also while the template only waits, for example for the catalog after a start.
    #[serde(skip)]
    pub fault: Option<TemplateFault>,
}

impl TemplateState {
    /// True if the other state is as this one, apart from the output of a command.
    pub(super) fn is_same_as(&self, other: &Self) -> bool {
        match (&self.fault, &other.fault) {
            (Some(fault), Some(other)) => fault.what == other.what,
            (None, None) => self.problem == other.problem,
            _ => false,
        }
    }
}

/// What is wrong with a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TemplateFault {
    /// What failed, without the output of commands.
    pub what: String,
    /// The last output of the command that failed.
    pub output: String,
}

impl TemplateFault {
    /// Returns the fault with the part of the work in which it occurred.
    pub(super) fn in_part(self, part: &str) -> Self {
        Self { what: format!("{part}: {}", self.what), ..self }
    }
}

impl fmt::Display for TemplateFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if self.output.is_empty() { Ok(()) } else { write!(f, ": {}", self.output) }
    }
}

impl std::error::Error for TemplateFault {}

impl From<anyhow::Error> for TemplateFault {
    fn from(error: anyhow::Error) -> Self {
        let other = |error| Self { what: format!("{error:#}"), output: String::new() };
        error.downcast::<Self>().unwrap_or_else(other)
    }
}
