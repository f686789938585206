//! The program `orchestrate-observer`: command line, log, signals, exit codes.

use clap::Parser;
use observer::{config, logging, run};

use std::path::PathBuf;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

const EX_USAGE: u8 = 64;

/// Shows the fleet: follows the store, and answers over HTTP. It writes nothing.
#[derive(Parser)]
#[command(name = "orchestrate-observer", version)]
struct Arguments {
    /// The settings.
    #[arg(long, default_value = "/etc/orchestrate/observer.toml")]
    config: PathBuf,
    /// Check the settings and exit: 0 if they are right, 1 if not.
    #[arg(long)]
    check_config: bool,
    /// Run for another program: print the address on standard output, and stop at the end of standard input.
    #[arg(long)]
    attached: bool,
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Nothing can be done if standard error is gone.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(EX_USAGE) } else { ExitCode::SUCCESS };
        }
    };
    let settings = match config::load(&arguments.config) {
        Ok(settings) => settings,
        Err(error) => {
            config::lines(&error).iter().for_each(|line| print_error(line));
            return ExitCode::from(if arguments.check_config { 1 } else { EX_USAGE });
        }
    };
    if arguments.check_config {
        if let Err(error) = config::check(&settings) {
            print_error(&format!("{}: {error:#}", arguments.config.display()));
            return ExitCode::FAILURE;
        }
        print_error(&format!("the settings are valid; read: {}", arguments.config.display()));
        return ExitCode::SUCCESS;
    }
    logging::start(&settings.log_level, settings.log_format);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let ended = runtime.map_err(anyhow::Error::new).and_then(|runtime| {
        let ended = runtime.block_on(async {
            let (mut terminate, mut interrupt) =
                (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
            let stopped = async {
                tokio::select! {
                    () = end_of_input(), if arguments.attached => {}
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
            };
            let started = |url: &str| {
                if arguments.attached {
                    print_address(url);
                }
            };
            run(settings, started, stopped).await
        });
        // A request to a receiver that does not answer must not delay the end. Its message is kept.
        runtime.shutdown_background();
        ended
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Resolves when nobody holds the other end of standard input any more.
async fn end_of_input() {
    let read = || std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
    // An input that cannot be read has ended too.
    let _ = tokio::task::spawn_blocking(read).await;
}

#[allow(clippy::print_stdout, reason = "the program that runs this one reads it")]
fn print_address(url: &str) {
    println!("{url}");
}

#[allow(clippy::print_stderr, reason = "the one place where this program speaks before or after logging")]
fn print_error(message: &str) {
    eprintln!("orchestrate-observer: {message}");
}
