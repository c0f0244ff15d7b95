//! Shards and producers, from one of each to twice the number of cores. The figures show the gain from more shards or
//! producers.

use super::LONG;
use super::pairs::Pairs;
use crate::baselines::ShardedWheel;
use crate::case::Case;
use crate::contestants::{Fires, Of, OwnWorkers, Sharded};
use crate::results::Figures;
use crate::roster::entrants;
use crate::scale::Scale;
use crate::workload::{Family, Workload, columns_by_threads};
use std::thread;
use tourbillon_book::figure::thousands;

pub(super) const WORKLOAD: Workload = Workload {
    name: "shards",
    operation: "schedule a timer and cancel it, by shards and by threads that do so (ns a pair and thread)",
    family: Family::Arming,
    about: "Checked as in `pair`.",
    reading: "Threads that schedule share no line in our engine, so one shard serves any number of threads. \
        A wheel behind a mutex needs a shard for each of them.",
    cases,
    columns: columns_by_threads,
    rounds: |scale, _| scale.pick(5, 1, 1),
    entrants: || entrants![turn: Of<OwnWorkers>, Of<ShardedWheel>],
};

fn cases(scale: Scale) -> Vec<Case> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let upward: Vec<usize> =
        (1..=2 * cores).filter(|n| n.is_power_of_two() || n.is_multiple_of(cores)).collect();
    let timers = scale.pick(100_000, 10_000, 100);
    let case = |&shards: &usize| {
        let s = if shards == 1 { "" } else { "s" };
        Case {
            timers,
            shards,
            threads: upward.clone(),
            time_ms: scale.pick(150, 20, 1),
            settle_ms: scale.pick(50, 5, 1),
            ..Case::named(format!("{shards} shard{s}, {} pending", thousands(timers)))
        }
    };
    upward.iter().map(case).collect()
}

fn turn<C: Sharded>(case: &Case) -> Figures {
    let fires = Fires::default();
    let mut pairs = Pairs::of(C::with_shards(case.shards, fires.handler()), fires, LONG);
    pairs.fill(case.timers, case.settle());
    let figures = pairs.run_by_threads(case);
    pairs.check();
    figures
}
