//! The cost of scheduling a timer and cancelling it at once, while others are pending. Most timeouts have this life.
//!
//! The first figures are from one thread, without a clock. The others are from 1, 2 and 8 threads at once, with the
//! clock read, as the mean time of a pair in its thread. The pending timers also have delays of 1 to 60 s. So a few of
//! them fire during the measurement.

mod baselines;
mod common;
#[path = "common/sampling.rs"]
mod sampling;

use baselines::{LazyHeap, Locked, Tree};
use common::{
    Chance, FireCount, Length, NANOS, OwnNow, Service, TICKS, ThroughHandle, Timers, Wheel64, Wheel256, fill,
    payload, run_pairs,
};
use criterion::{BenchmarkId, Criterion};
use std::time::{Duration, Instant};

fn main() {
    let mut criterion = sampling::criterion();
    alone::<Wheel256>(&mut criterion);
    alone::<Wheel64>(&mut criterion);
    alone::<LazyHeap>(&mut criterion);
    alone::<Tree>(&mut criterion);
    for threads in [1, 2, 8] {
        shared::<ThroughHandle>(&mut criterion, threads);
        shared::<OwnNow>(&mut criterion, threads);
        shared::<Locked<LazyHeap>>(&mut criterion, threads);
        shared::<Locked<Tree>>(&mut criterion, threads);
    }
    criterion.final_summary();
}

fn alone<T: Timers>(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("pair, no threads");
    for &(pending, count) in common::populations() {
        let mut filled = None;
        group.bench_function(BenchmarkId::new(T::NAME, pending), |bencher| {
            let timers = filled.get_or_insert_with(|| filled_with::<T>(count));
            let mut chance = Chance::new(1);
            let ticks: Vec<u64> = (0..1_024).map(|_| chance.within(&TICKS)).collect();
            bencher.iter_custom(|iterations| {
                let iterations = common::at_least_some(iterations);
                let start = Instant::now();
                for (n, tick) in (0..iterations).zip(ticks.iter().cycle()) {
                    let id = timers.schedule(*tick, payload(n));
                    assert_eq!(timers.cancel(id), Some(payload(n)));
                }
                start.elapsed()
            });
            assert_eq!(timers.len(), count);
        });
    }
    group.finish();
}

fn filled_with<T: Timers>(count: usize) -> T {
    let mut timers = T::new();
    let mut chance = Chance::new(count as u64);
    for n in 0..count as u64 {
        timers.schedule(chance.within(&TICKS), payload(n));
    }
    timers
}

fn shared<S: Service>(criterion: &mut Criterion, threads: usize) {
    let mut group = criterion.benchmark_group(format!("pair, threads: {threads}"));
    for &(pending, count) in common::populations() {
        let mut started = None;
        group.bench_function(BenchmarkId::new(S::NAME, pending), |bencher| {
            let (service, fired) = started.get_or_insert_with(|| {
                let fired = FireCount::default();
                let service = S::start(fired.on_fire());
                fill(&service, count, &NANOS, Duration::from_millis(50));
                (service, fired)
            });
            bencher.iter_custom(|iterations| {
                let iterations = common::at_least_some(iterations);
                let run = run_pairs(service, threads, &NANOS, Length::Pairs(iterations));
                Duration::from_secs_f64(run.nanos_per_pair * 1e-9 * iterations as f64)
            });
            fired.check(service, count);
        });
    }
    group.finish();
}
