//! What one schedule costs while others are pending, from one thread.
//!
//! Random timers are cancelled, unmeasured, and replaced, measured; time stands still.

mod baselines;
mod common;

use baselines::{LazyHeap, Tree};
use common::{Churn, Timers, Wheel64, Wheel256};
use criterion::{BenchmarkId, Criterion};

fn main() {
    let mut criterion = common::criterion();
    schedule::<Wheel256>(&mut criterion);
    schedule::<Wheel64>(&mut criterion);
    schedule::<LazyHeap>(&mut criterion);
    schedule::<Tree>(&mut criterion);
    criterion.final_summary();
}

fn schedule<T: Timers>(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("schedule");
    for &(pending, count) in common::populations() {
        let mut churn = None;
        group.bench_function(BenchmarkId::new(T::NAME, pending), |bencher| {
            let churn = churn.get_or_insert_with(|| Churn::<T>::new(count));
            bencher.iter_custom(|iterations| churn.run(common::at_least_some(iterations)).schedule);
        });
    }
    group.finish();
}
