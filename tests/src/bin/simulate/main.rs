//! Simulates fleets: many of them for a time, one of them line by line, or with each planted bug.
//!
//! ```text
//! simulate for SECONDS         fresh fleets on every core
//! simulate replay SEED [BUG]   the history of one fleet
//! simulate bugs [PART]         a seed that shows each planted bug, or those with this part of a name
//! simulate exhaustively [long] all orders of events of small fleets, on every core
//! ```

use simulator::{Bounds, Mutation, Searched, Summary, search, trace};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tests::simulation::{Run, find, fresh_seed};

/// Seeds between the fleets of two threads.
const THREAD_STRIDE: u64 = 100_000;

#[allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people at a terminal")]
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<u64>().ok();
    match words.as_slice() {
        ["for", seconds] if number(seconds).is_some() => {
            let (begin, first) = (Instant::now(), fresh_seed());
            let limit = Duration::from_secs(number(seconds).unwrap_or_default());
            let runs: Vec<Run> = std::thread::scope(|scope| {
                let handles: Vec<_> = (0..threads())
                    .map(|n| scope.spawn(move || Run::for_time(first + n * THREAD_STRIDE, limit, 0)))
                    .collect();
                handles.into_iter().map(|handle| handle.join().expect("a run")).collect()
            });
            let fleets: u64 = runs.iter().map(|run| run.fleets).sum();
            let mut sum = Summary::default();
            runs.iter().for_each(|run| sum += run.sum);
            let Summary { hosts, revisions, starts, with_claims, lost, halts, ends, rollbacks, stages } = sum;
            println!(
                "{fleets} fleets from seed {first} in {:.0} s: {hosts} hosts, {starts} starts, {with_claims} of them with claims, {lost} hosts lost, {halts} rollouts halted, {ends} ended, {stages} stages opened, {rollbacks} rolled back by hosts, {revisions} revisions checked",
                begin.elapsed().as_secs_f64()
            );
            let reports: Vec<String> = runs.iter().filter_map(Run::report).collect();
            reports.iter().for_each(|report| eprintln!("{report}"));
            if reports.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        ["replay", seed, bug @ ..] if number(seed).is_some() => {
            let mutation = bug.first().and_then(|name| Mutation::ALL.iter().find(|m| m.name.contains(name)));
            let (lines, result) = trace(number(seed).unwrap_or_default(), mutation);
            lines.iter().for_each(|line| println!("{line}"));
            match result {
                Ok(summary) => println!("no law was broken: {summary:?}"),
                Err(violation) => println!("{violation}"),
            }
            ExitCode::SUCCESS
        }
        ["bugs", part @ ..] => {
            let mut missed = false;
            let wanted = |mutation: &&Mutation| part.iter().all(|part| mutation.name.contains(part));
            for mutation in Mutation::ALL.iter().filter(wanted) {
                match find(mutation, 10_000) {
                    Some((seed, violation)) => println!("{}: seed {seed}: {violation}", mutation.name),
                    None => {
                        println!("{}: not found", mutation.name);
                        missed = true;
                    }
                }
            }
            if missed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
        }
        ["exhaustively"] => search_all(Bounds::everyday()),
        ["exhaustively", "long"] => search_all(Bounds::long()),
        _ => {
            eprintln!(
                "usage: simulate for SECONDS | simulate replay SEED [BUG] | simulate bugs [PART] | simulate exhaustively [long]"
            );
            ExitCode::from(64)
        }
    }
}

/// Searches all orders of events within each of these bounds.
#[allow(clippy::print_stdout, reason = "a program for people at a terminal")]
fn search_all(all: Vec<Bounds>) -> ExitCode {
    let waiting = Mutex::new(all.into_iter());
    let search_some = || {
        let mut sum = Some(Searched::default());
        loop {
            let next = waiting.lock().expect("no search panicked").next();
            let Some(bounds) = next else { return sum };
            let begin = Instant::now();
            match search(bounds, None) {
                Ok(searched) => {
                    let Searched { states, transitions, ends } = searched;
                    let seconds = begin.elapsed().as_secs();
                    println!(
                        "{bounds}: {states} states, {transitions} transitions, {ends} ends, {seconds} s"
                    );
                    sum.iter_mut().for_each(|sum| *sum += searched);
                }
                Err((violation, moves)) => {
                    println!("{bounds}: {violation}\n{}", moves.join("\n"));
                    sum = None;
                }
            }
        }
    };
    let sums: Vec<Option<Searched>> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads()).map(|_| scope.spawn(search_some)).collect();
        handles.into_iter().map(|handle| handle.join().expect("a search")).collect()
    });
    let mut together = Searched::default();
    for sum in sums {
        let Some(sum) = sum else { return ExitCode::FAILURE };
        together += sum;
    }
    let Searched { states, transitions, ends } = together;
    println!("together: {states} states, {transitions} transitions, {ends} ends");
    ExitCode::SUCCESS
}

fn threads() -> u64 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u64)
}
