//! tourbillon beside other crates' timers, with the same work: medians over rounds in which the contestants take turns.
//!
//! ```text
//! cargo run --release                        # some minutes, on a quiet machine
//! cargo run --release -- --quick             # small sizes: that it works, not how fast
//! cargo run --release -- --filter rearm      # workloads or contestants with this in their names
//! cargo run --release -- --json PATH         # raw figures too
//! ```
#![expect(clippy::print_stdout, reason = "the report")]

#[path = "../../baselines/mod.rs"]
mod baselines;
#[path = "../../common/mod.rs"]
mod common;
#[path = "../../goals/machine.rs"]
mod machine;
#[path = "../../goals/report.rs"]
#[expect(dead_code, reason = "samples and tables only")]
mod report;

mod contestants;
mod crates;
mod outcome;
mod rounds;
mod sizes;
mod workloads;

use clap::Parser;
use outcome::Outcome;
use serde_json::{Value, json};
use sizes::{Scale, Sizes};
use std::error::Error;
use std::path::PathBuf;
use workloads::reach::{self, Reach};

/// Measures tourbillon beside other crates' timers.
#[derive(Debug, Parser)]
struct Options {
    /// Sizes so small that the figures mean little
    #[arg(long)]
    quick: bool,
    /// Only workloads, or contestants, whose name contains this
    #[arg(long, value_name = "SUBSTRING")]
    filter: Option<String>,
    /// Where the raw figures go, too
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
    /// Rounds in which the contestants take turns
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    let mut sizes = Sizes::of(if options.quick { Scale::Quick } else { Scale::Full });
    sizes.rounds = options.rounds.map_or(sizes.rounds, usize::from);
    let filter = options.filter.as_deref().unwrap_or_default();
    let mut outcomes = rounds::select(&sizes, filter);
    let reaches = reach::NAME.contains(filter);
    if outcomes.is_empty() && !reaches {
        return Err("no workload and no contestant has that in its name".into());
    }
    // Before the figures: a file that cannot be written should not cost a run.
    if let Some(path) = &options.json {
        std::fs::File::create(path).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let machine = machine::describe();
    println!("{}\n", machine::table(&machine));
    if sizes.scale != Scale::Full || cfg!(debug_assertions) {
        println!("Small sizes, or not a release build: the figures mean nothing.\n");
    }
    rounds::run(&mut outcomes, sizes.rounds);
    for outcome in &outcomes {
        println!("{outcome}");
    }
    let reach = reaches.then(|| Reach::count(&sizes));
    if let Some(reach) = &reach {
        println!("{reach}");
    }
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&raw(machine, &sizes, &outcomes, reach.as_ref()))?;
        std::fs::write(path, text + "\n")?;
        eprintln!("Raw figures: {}", path.display());
    }
    Ok(())
}

fn raw(machine: Value, sizes: &Sizes, outcomes: &[Outcome], reach: Option<&Reach>) -> Value {
    json!({
        "machine": machine,
        "crates": crates::versions(),
        "debug_assertions": cfg!(debug_assertions),
        "sizes": sizes.to_json(),
        "outcomes": outcomes.iter().map(Outcome::to_json).collect::<Vec<_>>(),
        "reach": reach.map(Reach::to_json),
    })
}
