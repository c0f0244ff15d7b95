//! The table that texts on timing wheels print as O-notation, measured: wheels, heaps, a tree, lists; insert, cancel,
//! expiry, memory, precision; from 100 to 10 million timers, from one thread.
//!
//! ```text
//! cargo bench --bench structures                         # some 15 minutes, on a quiet machine
//! cargo bench --bench structures -- --only uniform       # one workload
//! cargo bench --bench structures -- --timers 10000       # one population
//! cargo bench --bench structures -- --filter wheel       # structures with this in their names
//! cargo bench --bench structures -- --quick              # small sizes: that it works, not how fast
//! cargo bench --bench structures -- --json PATH          # raw figures too
//! ```
//!
//! The structures take turns round by round, each time in a fresh process that measures one population. Cells are medians
//! with the smallest and the largest behind them, but for memory, which is looked at once.
#![expect(clippy::print_stdout, reason = "the report")]

#[path = "../baselines/mod.rs"]
mod baselines;
#[path = "../common/mod.rs"]
mod common;
#[path = "../goals/machine.rs"]
mod machine;
#[path = "../goals/process.rs"]
#[expect(dead_code, reason = "children and their memory only")]
mod process;
#[path = "../goals/report.rs"]
#[expect(dead_code, reason = "samples and tables only")]
mod report;
#[path = "../goals/sizes.rs"]
#[expect(dead_code, reason = "the scale and its rounds only")]
mod sizes;

mod contestant;
mod outcome;
mod workload;

use clap::{Parser, ValueEnum};
use contestant::{Contestant, Run};
use outcome::Outcome;
use process::measure_apart;
use serde_json::{Value, json};
use sizes::{Scale, Sizes};
use std::error::Error;
use std::path::PathBuf;
// What a child is told first.
use workload::Workload as Section;

/// Measures all timer structures at all sizes.
#[derive(Debug, Parser)]
struct Options {
    /// Sizes so small that the figures mean little
    #[arg(long)]
    quick: bool,
    /// Only these workloads
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<Section>,
    /// Only these populations
    #[arg(long, value_name = "N", value_delimiter = ',')]
    timers: Vec<usize>,
    /// Only structures whose name contains this
    #[arg(long, value_name = "SUBSTRING", default_value = "")]
    filter: String,
    /// Rounds in which the structures take turns
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// Where the raw figures go, too
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
    /// Measure one structure in this process, for the parent's sake
    #[arg(long, hide = true, num_args = 3, value_names = ["SCALE", "WORKLOAD", "TASK"])]
    child: Vec<String>,
    /// Passed by `cargo bench`
    #[arg(long, hide = true)]
    bench: bool,
    /// Passed by those who know test harnesses
    #[arg(long, hide = true)]
    test: bool,
    #[arg(long, hide = true)]
    nocapture: bool,
}

/// From here on there are fewer rounds.
const HUGE: usize = 10_000_000;
const ROUNDS_IF_HUGE: usize = 3;

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    if let [scale, workload, task] = options.child.as_slice() {
        println!("{}", run_child(Scale::from_str(scale, true)?, Section::from_str(workload, true)?, task));
        return Ok(());
    }
    let scale = if options.quick {
        Scale::Quick
    } else if options.bench && !options.test {
        Scale::Full
    } else {
        Scale::Smoke
    };
    let mut sizes = Sizes::of(scale);
    sizes.rounds = options.rounds.map_or(sizes.rounds, usize::from);
    report_all(&options, &sizes)
}

fn report_all(options: &Options, sizes: &Sizes) -> Result<(), Box<dyn Error>> {
    let machine = machine::describe();
    println!("{}\n", machine::table(&machine));
    if sizes.scale != Scale::Full {
        println!("Sizes are small: the figures mean nothing.\n");
    }
    let mut raw =
        json!({ "machine": machine, "scale": format!("{:?}", sizes.scale), "rounds": sizes.rounds });
    let mut contestants = contestant::all();
    contestants.retain(|contestant| contestant.name.contains(&options.filter));
    for &workload in Section::value_variants() {
        if options.only.is_empty() || options.only.contains(&workload) {
            let outcome = measure(options, sizes, workload, &contestants);
            println!("{outcome}");
            raw[workload.name()] = outcome.to_json();
        }
    }
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&raw)? + "\n";
        std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        println!("Raw figures: {}", path.display());
    }
    Ok(())
}

fn measure(options: &Options, sizes: &Sizes, workload: Section, contestants: &[Contestant]) -> Outcome {
    let mut populations = populations(sizes.scale, workload).to_vec();
    if !options.timers.is_empty() {
        populations.clone_from(&options.timers);
    }
    let mut outcome = Outcome::new(workload, populations.clone(), contestants);
    for (population, &timers) in populations.iter().enumerate() {
        let rounds = if timers < HUGE { sizes.rounds } else { sizes.rounds.min(ROUNDS_IF_HUGE) };
        for round in 0..rounds {
            eprintln!("{}: {timers} timers, round {} of {rounds}", workload.name(), round + 1);
            for turn in 0..contestants.len() {
                let contestant = (turn + round) % contestants.len();
                if outcome.is_refused(contestant, population) {
                    continue;
                }
                let kinds = if round == 0 { &["time", "memory"][..] } else { &["time"] };
                for kind in kinds {
                    let task = format!("{kind}/{timers}/{round}/{}", contestants[contestant].name);
                    outcome.add(contestant, population, &measure_apart(workload, &task, sizes));
                }
            }
        }
    }
    outcome
}

fn populations(scale: Scale, workload: Section) -> &'static [usize] {
    match (scale, workload) {
        (Scale::Full, Section::Uniform) => &[100, 10_000, 1_000_000, HUGE],
        (Scale::Full, Section::Few) => &[100, 10_000, 1_000_000],
        (Scale::Quick, Section::Uniform) => &[100, 2_000, 50_000],
        (Scale::Quick, Section::Few) => &[2_000],
        (Scale::Smoke, _) => &[150],
    }
}

fn run_child(scale: Scale, workload: Section, task: &str) -> Value {
    const MUST: &str = "the parent knows what to ask for";
    let [kind, timers, seed, name] = task.splitn(4, '/').collect::<Vec<_>>().try_into().expect(MUST);
    let timers: usize = timers.parse().expect(MUST);
    // As many timers in all, or nearly, as make a population that can be measured.
    let enough = match scale {
        Scale::Full => 100_000,
        Scale::Quick => 5_000,
        Scale::Smoke => 1,
    };
    let contestant = contestant::all().into_iter().find(|contestant| contestant.name == name).expect(MUST);
    let (measure, most) = match kind {
        "time" => (contestant.time, 100),
        "memory" => (contestant.memory, 1_000),
        _ => panic!("{MUST}"),
    };
    let repeats = (enough / timers).clamp(1, most);
    measure(&Run { workload, timers, seed: seed.parse().expect(MUST), repeats })
}
