//! Measures durable timers and their peers. All do the same work in one run, and their durability is named.
//!
//! `cargo run --release` measures, and writes the raw results; `cargo run --release -- publish` makes the page from
//! them.

// Floor 0: this process and the machine, servers, results, the plan.
// The tests of this module run with the other book.
#[path = "../../compare/src/machine.rs"]
mod machine;
mod plan;
mod process;
mod results;
mod server;
// Floor 1: the library as a contestant.
mod ours;
// Floor 2: the service.
mod service;
// Floor 3: a turn of one contestant.
mod turn;
// Floor 4: the rounds of a run; the pages.
mod publish;
mod rounds;

use clap::{Parser, Subcommand};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Debug, Parser)]
#[command(about = "Durable timers beside their peers")]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Small sizes: shows that it works, and no more.
    #[arg(long)]
    quick: bool,
    /// Only these cases, or the cases of these workloads, for all contestants; they replace their part of the results.
    #[arg(long)]
    only: Vec<String>,
    /// Only contestants with this in their names, whose rows replace those of the results.
    #[arg(long)]
    contestant: Option<String>,
    /// The number of rounds for all contestants, in place of the plan's numbers.
    #[arg(long)]
    rounds: Option<usize>,
    /// The folder for the data of the turns, on the disk that the rounds measure.
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    data: PathBuf,
    /// The file of the results.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../results/durable/book.json"))]
    results: PathBuf,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Makes the page from the results.
    Publish {
        /// Fails if that would change anything.
        #[arg(long)]
        check: bool,
    },
    /// One turn of ours, in a process of its own.
    #[command(hide = true)]
    Turn { task: String },
    /// A server of HTTP that stores nothing, in a process of its own.
    #[command(hide = true)]
    Floor,
}

fn run(arguments: Arguments) -> Result<(), Box<dyn Error>> {
    match arguments.command {
        Some(Command::Turn { task }) => turn::run(&task),
        Some(Command::Publish { check }) => {
            let results = results::Results::read(&arguments.results)?;
            publish::publish(
                &results,
                Path::new(env!("CARGO_MANIFEST_DIR")).join("../results").as_path(),
                check,
            )
        }
        Some(Command::Floor) => service::floor().map_err(|error| -> Box<dyn Error> { error }),
        None => rounds::measure(&rounds::Choice {
            quick: arguments.quick,
            only: arguments.only,
            contestant: arguments.contestant,
            rounds: arguments.rounds,
            data: arguments.data,
            results: arguments.results,
        }),
    }
}

fn main() -> ExitCode {
    // The same file is also the service, which runs under its own name with its own flags.
    let name = std::env::args_os().next().unwrap_or_default();
    if name == service::NAME {
        return tourbillon_server::main();
    }
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
