//! The benchmark book: tourbillon, the classic structures and other engines, with the same work in one run.
//!
//! ```text
//! cargo run --release                        # all of it, on a quiet machine; writes ../results/book.json
//! cargo run --release -- --quick             # about three minutes: shows that it works, gives a first impression
//! cargo run --release -- --filter rearm      # the workload, case or contestant of that name, or with that in its name
//! cargo run --release -- publish             # BENCHMARKS.md, all tables and plots, from the results
//! ```
#![expect(clippy::print_stdout, reason = "where the figures went")]

// Floor 0: the task of a turn, the sizes of a run, this process and the machine; structures and services for the
// contestants.
#[path = "../../baselines/mod.rs"]
mod baselines;
mod case;
#[path = "../../common/mod.rs"]
mod common;
mod crates;
mod machine;
mod process;
mod scale;
mod steady;
// Floor 1: the results; the contestants.
mod contestants;
mod results;
// Floor 2: contestants in other languages.
mod foreign;
// Floor 3: the form of a workload.
mod workload;
// Floor 4: the contestants of each workload; a turn of one of them.
mod roster;
mod turn;
// Floor 5: the workloads.
mod workloads;
// Floor 6: the rounds of a run; the pages.
mod publish;
mod rounds;

use clap::{Args, Parser, Subcommand};
use results::Results;
use scale::Scale;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Instant;
use workloads::WORKLOADS;

/// Measures tourbillon beside the classic structures and other engines.
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Options {
    #[command(subcommand)]
    command: Option<Other>,
    #[command(flatten)]
    run: Run,
}

#[derive(Debug, Args)]
struct Run {
    /// Small sizes, about three minutes
    #[arg(long, conflicts_with = "scale")]
    quick: bool,
    /// How much is measured
    #[arg(long, value_enum, default_value = "full", hide = true)]
    scale: Scale,
    /// Only workloads, cases or contestants of this name or, if there are none, those whose name contains it
    #[arg(long, value_name = "NAME", default_value = "")]
    filter: String,
    /// Measure only the workloads or cases of this name or, if there are none, those whose name contains it, in full
    /// size, and replace their part of the published results
    #[arg(long, value_name = "NAME", conflicts_with_all = ["filter", "quick", "scale", "json"])]
    again: Option<String>,
    /// Rounds in which the contestants take turns, instead of the number of each workload
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// The file of the raw results; by default ../results/book.json for a whole run of full size, and a file in the
    /// system's folder for temporary files otherwise
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Other {
    /// Make the blocks of ../../BENCHMARKS.md, the tables in ../results and the plots in ../../docs/plots from the raw
    /// results
    Publish {
        /// Change nothing, and fail if that would change anything
        #[arg(long)]
        check: bool,
    },
    /// Measure one contestant once, in this process
    #[command(hide = true)]
    Turn { arguments: Vec<String> },
    /// Be the clients and the backend of a server under measurement
    #[command(hide = true)]
    Load { arguments: Vec<String> },
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    match options.command {
        Some(Other::Turn { arguments }) => turn::take(WORKLOADS, &arguments),
        Some(Other::Load { arguments }) => workloads::play_load(&arguments),
        Some(Other::Publish { check }) => {
            let places = publish::Places {
                page: of_project("BENCHMARKS.md"),
                tables: of_project("benches/results"),
                plots: of_project("docs/plots"),
            };
            publish::publish(&Results::read(&published())?.of_one_commit_if_gathered(), &places, check)
        }
        None => run(&options.run),
    }
}

fn run(options: &Run) -> Result<(), Box<dyn Error>> {
    let scale = if options.quick { Scale::Quick } else { options.scale };
    let filter = options.again.as_ref().unwrap_or(&options.filter);
    let mut contests = rounds::select(WORKLOADS, scale, filter, options.rounds);
    if options.again.is_some() {
        contests.retain(rounds::Contest::is_whole);
    }
    if contests.is_empty() {
        return Err("no workload, no case and no contestant has that name, or has it in its name".into());
    }
    let path = options.json.clone().unwrap_or_else(|| match options.again {
        Some(_) => published(),
        None => default_path(scale, filter),
    });
    // The file is opened before the measurement. Otherwise a file that cannot be written would cost a whole run.
    std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(&path)
        .map_err(|error| format!("{}: {error}", path.display()))?;
    if scale != Scale::Full || cfg!(debug_assertions) {
        println!("Small sizes, or not a release build: the figures mean little.");
    }
    let machine = machine::describe();
    let start = Instant::now();
    let failures = rounds::run(&mut contests);
    let mut results = Results {
        machine,
        versions: crates::versions()
            .into_iter()
            .chain(foreign::versions())
            .chain([("wrk".to_owned(), workloads::version_of_wrk())])
            .collect(),
        scale: scale.name().to_owned(),
        seconds: start.elapsed().as_secs(),
        outcomes: contests.into_iter().map(|contest| contest.outcome).collect(),
    };
    let seconds = results.seconds;
    if options.again.is_some() {
        results = Results::read(&path)?.updated_by(results);
    }
    results.write(&path)?;
    println!("{seconds} s. Raw results: {}", path.display());
    if failures.is_empty() { Ok(()) } else { Err(format!("failed:\n{}", failures.join("\n")).into()) }
}

/// Returns the default file for the results. Only a whole run of full size writes to the published results.
fn default_path(scale: Scale, filter: &str) -> PathBuf {
    if scale == Scale::Full && filter.is_empty() {
        published()
    } else {
        std::env::temp_dir().join(format!("tourbillon-book-{}.json", scale.name()))
    }
}

fn published() -> PathBuf {
    of_project("benches/results/book.json")
}

/// Returns an absolute path. `path` is relative to the repository's root.
fn of_project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}
