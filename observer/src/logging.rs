//! The log, on standard error.

use settings::LogFormat;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Starts the log. `ORCHESTRATE_LOG` takes precedence over the level. A bare level applies to this project's crates; other
/// libraries log only warnings. A level that cannot be parsed counts as `info`.
pub fn start(level: &str, format: LogFormat) {
    let of_level = || {
        if level.contains(['=', ',']) {
            EnvFilter::try_new(level)
        } else {
            EnvFilter::try_new(format!("warn,observer={level},etcd_session={level}"))
        }
    };
    let filter = EnvFilter::try_from_env("ORCHESTRATE_LOG").or_else(|_| of_level());
    let registry = tracing_subscriber::registry().with(filter.unwrap_or_else(|_| EnvFilter::new("info")));
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    match format {
        LogFormat::Text => registry.with(layer.with_ansi(std::io::stderr().is_terminal())).init(),
        LogFormat::Json => registry.with(layer.json().flatten_event(true)).init(),
    }
}
