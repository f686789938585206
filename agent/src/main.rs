//! The program `orchestrate-agent`: command line, logging, start of the agent, exit codes.

use agent::check_config::check_config;
use agent::{NameInUse, StateDirectoryInUse, TaskEnded, config, dev, logging, run, step};
use clap::{Parser, Subcommand};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use settings::LogFormat;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

const EX_USAGE: u8 = 64;
const EX_CANNOT: u8 = 2;
/// A part of the agent has ended by a fault of the program (`EX_SOFTWARE` of sysexits).
const EX_SOFTWARE: u8 = 70;

/// The orchestrate agent.
#[derive(Parser)]
#[command(name = "orchestrate-agent", version)]
struct Arguments {
    /// The settings; fragments in agent.d beside it are read too.
    #[arg(long, default_value = "/etc/orchestrate/agent.toml", env = "ORCHESTRATE_CONFIG")]
    config: PathBuf,
    /// Run a store and this agent together, for development, in this directory
    /// [default: orchestrate-dev]
    #[arg(
        long,
        value_name = "DIRECTORY",
        num_args = 0..=1,
        default_missing_value = "orchestrate-dev",
        conflicts_with_all = ["config", "check_config"]
    )]
    dev: Option<PathBuf>,
    /// Check the settings and exit: 0 if they are right, 1 if not.
    #[arg(long)]
    check_config: bool,
    /// With --check-config: print what comes of the files, with the file and the line
    /// of each value.
    #[arg(long, requires = "check_config")]
    show: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Run one step; started by the agent itself.
    #[command(hide = true)]
    RunStep {
        /// The directory of the run.
        directory: PathBuf,
    },
}

/// How many files the agent may have open. More would make programs slow that close every possible file at their start.
const OPEN_FILES: u64 = 65_536;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Nothing can be done if standard error is gone.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(EX_USAGE) } else { ExitCode::SUCCESS };
        }
    };
    if let Some(Command::RunStep { directory }) = arguments.command {
        return match step::runner::run(&directory) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => report_error(&format!("run-step: {error}"), 1),
        };
    }
    if let Some(directory) = arguments.dev {
        logging::start("info", LogFormat::Text);
        return run_to_end(dev::run(&directory));
    }
    if arguments.check_config {
        return check(&arguments.config, arguments.show);
    }
    let settings = match config::load(&arguments.config) {
        Ok(settings) => settings,
        Err(error) => {
            config::lines(&error).iter().for_each(|line| print_error(line));
            return ExitCode::from(EX_USAGE);
        }
    };
    logging::start(&settings.log_level, settings.log_format);
    raise_open_files();
    run_to_end(run(arguments.config, settings))
}

/// Raises the limit of open files to what the machine allows, up to [`OPEN_FILES`]: the usual 1,024 are fewer than the
/// connections that clients may hold together.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(OPEN_FILES, |most| most.min(OPEN_FILES));
    if limit.current.is_some_and(|current| current < wanted)
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit })
    {
        tracing::warn!(%error, "the limit of open files cannot be raised to {wanted}");
    }
}

/// Says what was found in the settings. Only what `--show` prints goes to standard output.
fn check(path: &Path, show: bool) -> ExitCode {
    let found = check_config(path);
    found.notes.iter().for_each(|note| print_error(&format!("note: {note}")));
    found.warnings.iter().for_each(|warning| print_error(&format!("warning: {warning}")));
    found.errors.iter().for_each(|error| print_error(error));
    if !found.errors.is_empty() {
        return report_error(&format!("the settings are not valid: errors: {}", found.errors.len()), 1);
    }
    if show && let Err(error) = std::io::stdout().lock().write_all(found.shown.as_bytes()) {
        return report_error(&error.to_string(), 1);
    }
    print_error(&format!("the settings are valid; read: {}", found.files.join(", ")));
    ExitCode::SUCCESS
}

fn run_to_end(agent: impl Future<Output = anyhow::Result<()>>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return report_error(&format!("no runtime: {error}"), EX_CANNOT),
    };
    let result = runtime.block_on(agent);
    // Threads that still wait for the end of a step must not delay the end of the agent.
    runtime.shutdown_timeout(Duration::ZERO);
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_in_use(&error) => report_error(&error.to_string(), EX_CANNOT),
        Err(error) if error.is::<TaskEnded>() => report_error(&error.to_string(), EX_SOFTWARE),
        Err(error) => report_error(&format!("{error:#}"), 1),
    }
}

/// True if another process uses the store, state directory or host name that this one needs.
fn is_in_use(error: &anyhow::Error) -> bool {
    let store_in_use = matches!(error.downcast_ref(), Some(solo_etcd::OpenError::InUse(_)));
    store_in_use || error.is::<StateDirectoryInUse>() || error.is::<NameInUse>()
}

fn report_error(message: &str, code: u8) -> ExitCode {
    print_error(message);
    ExitCode::from(code)
}

#[allow(clippy::print_stderr, reason = "the one place where this program speaks before or after logging")]
fn print_error(message: &str) {
    eprintln!("orchestrate-agent: {message}");
}
