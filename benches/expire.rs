//! The cost of firing timers, a tick of 1 ms at a time, after the same number of other timers was cancelled. A
//! structure that cannot hold such timers prints that and is left out.

mod baselines;
mod common;
#[path = "common/sampling.rs"]
mod sampling;

use baselines::for_each_structure;
use common::{Chance, Demand, Fired, TICKS, Timers, payload};
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput};

fn main() {
    let mut criterion = sampling::criterion();
    let structures: &[fn(&mut Criterion)] = &for_each_structure!(expire);
    structures.iter().for_each(|expire| expire(&mut criterion));
    criterion.final_summary();
}

fn expire<T: Timers>(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("expire");
    let last = TICKS.end + (T::LIMITS.lateness)(TICKS.end);
    for &(pending, count) in common::populations().iter().filter(|population| population.1 > 0) {
        if let Some(reason) = T::LIMITS.refuses(&Demand::uniform(2 * count, &TICKS)) {
            eprintln!("expire/{}/{pending}: {reason}", T::NAME);
            continue;
        }
        group.throughput(Throughput::Elements(count as u64));
        group.bench_function(BenchmarkId::new(T::NAME, pending), |bencher| {
            bencher.iter_batched(
                || half_cancelled::<T>(count),
                |(mut timers, expected)| {
                    let mut fired = Fired::default();
                    for tick in 1..=last {
                        fired.join(timers.advance(tick));
                    }
                    assert_eq!(fired, expected);
                    timers
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

/// Makes a structure with `count` timers, after the same number of other timers was cancelled in random order. Also
/// returns a checksum of the timers that must fire.
fn half_cancelled<T: Timers>(count: usize) -> (T, Fired) {
    let mut timers = T::new();
    let mut chance = Chance::new(count as u64);
    let ids: Vec<T::Id> =
        (0..2 * count as u64).map(|n| timers.schedule(chance.within(&TICKS), payload(n))).collect();
    let order = chance.order(2 * count);
    let (cancelled, kept) = order.split_at(count);
    for &n in cancelled {
        assert_eq!(timers.cancel(ids[n as usize]), Some(payload(u64::from(n))));
    }
    (timers, kept.iter().map(|&n| payload(u64::from(n))).collect())
}
