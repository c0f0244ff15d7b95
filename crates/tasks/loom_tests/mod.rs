//! Models of this crate's races. They are run by
//! `RUSTFLAGS="--cfg tourbillon_loom" cargo test -p tourbillon-tasks --profile loom --lib loom_tests`.
//!
//! Each file names its races. Races rest on steps of the code. For each step, the file names the model that goes red
//! without it.

use crate::sync::AtomicU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

mod delay_queue;
mod idle;

#[cfg(not(debug_assertions))]
compile_error!("models run with debug assertions on: use `--profile loom`");

/// This constant compiles only if the atomic of `crate::sync` is loom's.
const _THE_SHIM_IS_LOOM: fn(AtomicU64) -> loom::sync::atomic::AtomicU64 = |atomic| atomic;

/// Explores all executions of `f` and prints their number. Fails if there is only one execution, because nothing was
/// interleaved then.
fn model(name: &str, f: impl Fn() + Sync + Send + 'static) {
    let executions = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&executions);
    let mut builder = loom::model::Builder::new();
    builder.max_branches = builder.max_branches.max(10_000);
    builder.preemption_bound = builder.preemption_bound.or(Some(4));
    builder.check(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        f();
    });
    let executions = executions.load(Ordering::Relaxed);
    println!("{name}: {executions} executions");
    assert!(executions > 1, "{name} explored a single interleaving");
}
