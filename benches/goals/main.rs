//! The speed goals in one run: ours and the baselines in turns, medians with their spread, and what was reached.
//!
//! ```text
//! cargo bench --bench goals                       # some minutes, on a quiet machine
//! cargo bench --bench goals -- --only pair        # one section
//! cargo bench --bench goals -- --quick            # small sizes: that it works, not how fast
//! ```
//! The raw figures go to `target/goals.json`.
#![expect(clippy::print_stdout, reason = "the report")]

#[path = "../baselines/mod.rs"]
mod baselines;
#[path = "../common/mod.rs"]
mod common;

mod idle;
mod lateness;
mod machine;
mod memory;
mod owned;
mod pair;
mod process;
mod report;
mod sizes;
mod steady;
mod storm;
mod wheel;

use clap::{Parser, ValueEnum};
use report::Report;
use serde_json::{Value, json};
use sizes::{Scale, Sizes};
use std::path::PathBuf;

/// Measures the speed goals and says which are met.
#[derive(Debug, Parser)]
struct Options {
    /// Sizes so small that the figures mean little
    #[arg(long)]
    quick: bool,
    /// Only these sections
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<Section>,
    /// Rounds in which the contestants take turns
    #[arg(long)]
    rounds: Option<usize>,
    /// Where the raw figures go instead of target/goals.json
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
    /// Measure one contestant in this process, for the parent's sake
    #[arg(long, hide = true, num_args = 3, value_names = ["SCALE", "SECTION", "CONTESTANT"])]
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Section {
    /// The wheel alone: insert, cancel, expiry
    Wheel,
    /// The engine: schedule + cancel from 1, 2 and 8 threads
    Pair,
    /// Resident bytes for each pending timer
    Memory,
    /// A million timers due over two seconds
    Lateness,
    /// A hundred thousand timers a second
    Steady,
    /// Owned timers: memory, and what reaches a shard
    Owned,
    /// Timers pending and none due
    Idle,
    /// Schedule + cancel without end: what stays behind
    Storm,
}

impl Section {
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn run(self, sizes: &Sizes) -> Report {
        match self {
            Self::Wheel => wheel::run(sizes),
            Self::Pair => pair::run(sizes),
            Self::Memory => memory::run(sizes),
            Self::Lateness => lateness::run(sizes),
            Self::Steady => steady::run(sizes),
            Self::Owned => owned::run(sizes),
            Self::Idle => idle::run(sizes),
            Self::Storm => storm::run(sizes),
        }
    }

    fn run_child(self, contestant: &str, sizes: &Sizes) -> Value {
        let contestants = match self {
            Self::Memory => memory::CONTESTANTS,
            Self::Lateness => lateness::CONTESTANTS,
            Self::Steady => steady::CONTESTANTS,
            Self::Owned => owned::CONTESTANTS,
            Self::Idle => idle::CONTESTANTS,
            Self::Storm => storm::CONTESTANTS,
            Self::Wheel | Self::Pair => &[],
        };
        let (_, measure) = contestants
            .iter()
            .find(|(name, _)| *name == contestant)
            .expect("the parent knows its contestants");
        measure(sizes)
    }
}

/// A contestant's name, and what its own process does.
type Contestant = (&'static str, fn(&Sizes) -> Value);

fn main() {
    let options = Options::parse();
    if let [scale, section, contestant] = options.child.as_slice() {
        let scale = Scale::from_str(scale, true).expect("a scale");
        let section = Section::from_str(section, true).expect("a section");
        println!("{}", section.run_child(contestant, &Sizes::of(scale)));
        return;
    }
    let scale = if options.quick {
        Scale::Quick
    } else if options.bench && !options.test {
        Scale::Full
    } else {
        Scale::Smoke
    };
    let mut sizes = Sizes::of(scale);
    sizes.rounds = options.rounds.unwrap_or(sizes.rounds).max(1);
    report_all(&options, &sizes);
}

fn report_all(options: &Options, sizes: &Sizes) {
    let machine = machine::describe();
    println!("{}\n", machine::table(&machine));
    if sizes.scale != Scale::Full {
        println!("Sizes are small: neither figures nor verdicts mean anything.\n");
    }
    let mut raw = json!({ "machine": machine, "sizes": sizes.to_json() });
    let mut verdicts = Vec::new();
    for section in Section::value_variants() {
        if options.only.is_empty() || options.only.contains(section) {
            let report = section.run(sizes);
            println!("{report}");
            raw[section.name()] = report.to_json();
            verdicts.extend(report.verdicts);
        }
    }
    let met = verdicts.iter().filter(|verdict| verdict.is_met).count();
    println!("{met} of {} goals met.", verdicts.len());
    if let Some(path) = json_path(options, sizes.scale) {
        let text = serde_json::to_string_pretty(&raw).expect("plain values");
        match std::fs::write(&path, text + "\n") {
            Ok(()) => println!("Raw figures: {}", path.display()),
            Err(error) => eprintln!("{}: {error}", path.display()),
        }
    }
}

/// Only a whole run writes to the usual place, lest a part overwrite it.
fn json_path(options: &Options, scale: Scale) -> Option<PathBuf> {
    if options.json.is_some() {
        return options.json.clone();
    }
    let mut name = "goals".to_owned();
    match scale {
        Scale::Full => {}
        Scale::Quick => name += "-quick",
        Scale::Smoke => return None,
    }
    for section in &options.only {
        name = name + "-" + &section.name();
    }
    Some(
        PathBuf::from(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
            .join(name + ".json"),
    )
}
