//! What one cancel costs while others are pending, from one thread.
//!
//! Random timers are cancelled, measured, and replaced, unmeasured; time stands still.

mod baselines;
mod common;

use baselines::{LazyHeap, Tree};
use common::{Churn, Timers, Wheel64, Wheel256};
use criterion::{BenchmarkId, Criterion};

fn main() {
    let mut criterion = common::criterion();
    cancel::<Wheel256>(&mut criterion);
    cancel::<Wheel64>(&mut criterion);
    cancel::<LazyHeap>(&mut criterion);
    cancel::<Tree>(&mut criterion);
    criterion.final_summary();
}

fn cancel<T: Timers>(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("cancel");
    for &(pending, count) in common::populations() {
        let mut churn = None;
        group.bench_function(BenchmarkId::new(T::NAME, pending), |bencher| {
            let churn = churn.get_or_insert_with(|| Churn::<T>::new(count));
            bencher.iter_custom(|iterations| churn.run(common::at_least_some(iterations)).cancel);
        });
    }
    group.finish();
}
