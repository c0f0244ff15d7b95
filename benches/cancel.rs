//! The cost of a cancel on one thread, while other timers are pending.
//!
//! The bench measures the cancels of random timers. It replaces these timers outside of the measurement, and time
//! stands still. A structure that cannot hold such timers prints that and is left out.

mod baselines;
mod common;
#[path = "common/sampling.rs"]
mod sampling;

use baselines::for_each_structure;
use common::{Churn, Demand, TICKS, Timers};
use criterion::{BenchmarkId, Criterion};

fn main() {
    let mut criterion = sampling::criterion();
    let structures: &[fn(&mut Criterion)] = &for_each_structure!(cancel);
    structures.iter().for_each(|cancel| cancel(&mut criterion));
    criterion.final_summary();
}

fn cancel<T: Timers>(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("cancel");
    for &(pending, count) in common::populations() {
        if let Some(reason) = T::LIMITS.refuses(&Demand::uniform(count, &TICKS)) {
            eprintln!("cancel/{}/{pending}: {reason}", T::NAME);
            continue;
        }
        let mut churn = None;
        group.bench_function(BenchmarkId::new(T::NAME, pending), |bencher| {
            let churn = churn.get_or_insert_with(|| Churn::<T>::new(count));
            bencher.iter_custom(|iterations| churn.run(common::at_least_some(iterations)).cancel);
        });
    }
    group.finish();
}
