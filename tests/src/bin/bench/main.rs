//! `make bench`: speed and memory as ratios to the raw store, measured in the same run. Prints a
//! table and writes `docs/performance.md`. This process stays small, because the memory that a
//! child inherits from it would count in the child's peak memory; heavy work is done in child
//! processes (`bench load …`, `bench bare …`).

mod bare;
mod bundles;
mod catalog;
mod fleet;
mod limits;
mod load;
mod measure;
mod names;
mod observer;
mod processes;
mod recording;
mod report;
mod rollout;
mod second_bare;
mod solo;
mod verdicts;

use report::Report;
use std::process::ExitCode;

#[allow(clippy::print_stderr, reason = "a program for people at a terminal")]
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["bare", rest @ ..] => bare::run(rest),
        ["load", rest @ ..] => load::run(rest),
        ["simulate", hosts] => rollout::simulate(hosts),
        _ => {
            let wanted = |name: &str| words.is_empty() || words.contains(&name);
            let mut report = Report::default();
            type Part = (&'static str, fn(&mut Report));
            let parts: [Part; 17] = [
                ("command", fleet::commands),
                ("status", fleet::status),
                ("propagation", fleet::propagation),
                ("agent", fleet::agent),
                ("storm", fleet::storm),
                ("heal", fleet::heal),
                ("update", fleet::update),
                ("limited", limits::limited),
                ("plan", rollout::plan),
                ("observer", observer::observer),
                ("recording", recording::recording),
                ("bundles", bundles::bundles),
                ("solo", solo::solo),
                ("names", names::names),
                ("catalog", catalog::catalog),
                ("failing", catalog::failing_check),
                ("checks", catalog::checks),
            ];
            for (name, measure) in parts.into_iter().filter(|(name, _)| wanted(name)) {
                eprintln!("measuring: {name}");
                measure(&mut report);
                if words.is_empty() {
                    report.write();
                }
            }
            report.print();
            if !words.is_empty() {
                report.keep_others(&words);
                report.write();
            }
            ExitCode::SUCCESS
        }
    }
}
