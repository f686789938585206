//! `orchestrate`: the operator's command.

use std::process::ExitCode;

fn main() -> ExitCode {
    ctl::run(std::env::args_os(), |name| std::env::var(name).ok()).into()
}
