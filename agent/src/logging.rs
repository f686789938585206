//! The log of the agent.

use crate::journald::Journald;
use settings::LogFormat;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Parses a level or a filter. A bare level applies to this project's crates; other libraries log only
/// warnings unless the filter names them.
///
/// # Errors
/// Returns the parser's error if it is neither.
pub fn filter(level: &str) -> Result<EnvFilter, ParseError> {
    if level.contains(['=', ',']) {
        EnvFilter::try_new(level)
    } else {
        EnvFilter::try_new(format!("warn,agent={level},etcd_session={level}"))
    }
}

/// Starts logging: to the journal if standard error leads there, else to standard error. `ORCHESTRATE_LOG` takes
/// precedence over the level. A level that cannot be parsed counts as `info`.
pub fn start(level: &str, format: LogFormat) {
    let filter = EnvFilter::try_from_env("ORCHESTRATE_LOG")
        .or_else(|_| filter(level))
        .unwrap_or_else(|_| EnvFilter::new("info"));
    let registry = tracing_subscriber::registry().with(filter);
    if stderr_is_the_journal()
        && let Ok(journald) = Journald::new()
    {
        registry.with(journald).init();
        return;
    }
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    match format {
        LogFormat::Text => registry.with(layer.with_ansi(std::io::stderr().is_terminal())).init(),
        LogFormat::Json => registry.with(layer.json().flatten_event(true)).init(),
    }
}

/// True if standard error leads to the journal.
///
/// `JOURNAL_STREAM` holds the device and inode of the stream (systemd.exec(5)). They are compared
/// because a process whose standard error was redirected still inherits the variable.
fn stderr_is_the_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    let Ok(stat) = rustix::fs::fstat(std::io::stderr()) else { return false };
    stream == format!("{}:{}", stat.st_dev, stat.st_ino)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_or_a_filter_is_a_level() {
        for good in ["info", "WARN", "debug,hyper=trace", "agent=debug"] {
            assert!(filter(good).is_ok(), "{good}");
        }
        for bad in ["loud", "agent=loud"] {
            assert!(filter(bad).is_err(), "{bad}");
        }
    }
}
